package modelwire_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

// shows is a tool whose result holds images.
type shows struct{ images []agent.Block }

func (*shows) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "Show", Description: "shows", InputSchema: json.RawMessage(`{"type":"object"}`)}
}

func (s *shows) Call(context.Context, agent.Call) (agent.Output, error) {
	return agent.Output{Text: "an image follows", Images: s.images}, nil
}

// dataOf is the base64 of an image.
func dataOf(t *testing.T, b agent.Block) string {
	t.Helper()
	var source struct{ Data string }
	if err := json.Unmarshal(b.Source, &source); err != nil {
		t.Fatal(err)
	}
	return source.Data
}

// calledOnce calls a tool at the first request of a conversation, and says ok to all others.
func calledOnce(tool string) modeltest.Handler {
	return func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		if r.N == 1 {
			return modeltest.Call(tool, map[string]any{})
		}
		return modeltest.Text("ok")
	}
}

// An image that the provider refuses becomes a text that says so, and the call is made again, once. So
// it is for the prompt after it, for a summary, and for the conversation that is opened again: none
// of them is refused for what was said before.
func TestRefusedImage(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		good, bad, prompted := imageBlock(t, 20, 10), imageBlock(t, 30, 30), imageBlock(t, 40, 40)
		refuse := modeltest.Refusing(dataOf(t, bad), "image exceeds what we take", calledOnce("Show"))
		s := serve(t, modeltest.Refusing(dataOf(t, prompted), "Could not process image", refuse))
		m := d.connect(t, config{url: s.URL})
		path := filepath.Join(t.TempDir(), "talk.jsonl")
		open := func() (*agent.Loop, *agent.Transcript) {
			file, history, err := agent.OpenTranscript(path, agent.Meta{})
			if err != nil {
				t.Fatal(err)
			}
			l, err := agent.NewLoop(agent.Config{Model: m, ModelName: "m", Tools: []agent.Tool{&shows{[]agent.Block{good, bad}}},
				Transcript: file}, history.Messages)
			if err != nil {
				t.Fatal(err)
			}
			return l, file
		}
		l, file := open()
		ctx := waittest.Context(t, patience)
		res, err := l.Turn(ctx, agent.TextBlock("look"))
		if err != nil || res.Text != "ok" || s.Count() != 3 {
			t.Fatalf("%q, %v, %d calls; want 3: the call, one that is refused, and once more", res.Text, err, s.Count())
		}
		if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "an image: ") ||
			!strings.Contains(res.Warnings[0], "image exceeds what we take") {
			t.Errorf("the user is told %q", res.Warnings)
		}
		sent := string(s.Requests()[2].Body)
		if !strings.Contains(sent, dataOf(t, good)) || !strings.Contains(sent, "left out: the provider refuses an image") {
			t.Errorf("the second try was %.2000s", sent)
		}
		if res, err = l.Turn(ctx, agent.TextBlock("and this"), prompted); err != nil || res.Text != "ok" || s.Count() != 5 {
			t.Fatalf("the next prompt: %v, %d calls in all; want 5", err, s.Count())
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}

		l, file = open()
		defer file.Close()
		if _, err = l.Turn(ctx, agent.TextBlock("again")); err != nil || s.Count() != 6 {
			t.Fatalf("the conversation that is opened again: %v, %d calls; want 6: nothing is refused any more", err, s.Count())
		}
		if err := l.Compact(ctx, ""); err != nil || s.Count() != 7 {
			t.Fatalf("the summary: %v, %d calls; want 7", err, s.Count())
		}
	})
}

// A summary is made of a conversation that holds what the provider refuses.
func TestRefusedInSummary(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		bad := imageBlock(t, 30, 30)
		s := serve(t, modeltest.Refusing(dataOf(t, bad), "no", calledOnce("")))
		m := d.connect(t, config{url: s.URL})
		l, err := agent.NewLoop(agent.Config{Model: m, ModelName: "m"}, []agent.Message{
			agent.NewMessage(agent.User, agent.TextBlock("look"), bad), agent.NewMessage(agent.Assistant, agent.TextBlock("so"))})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Compact(waittest.Context(t, patience), ""); err != nil || s.Count() != 2 {
			t.Fatalf("%v, %d calls; want 2", err, s.Count())
		}
	})
}

// What is refused without a word of where it stands is looked for: an image in the newest message,
// then all images. A result and the input of a call can be refused too; a block that is refused
// again as a text ends the turn.
func TestRefusedElsewhere(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		bad := imageBlock(t, 30, 30)
		history := []agent.Message{
			agent.NewMessage(agent.User, agent.TextBlock("look"), bad),
			agent.NewMessage(agent.Assistant, agent.TextBlock("so"), modeltest.ToolUse("toolu_1", "Bash", map[string]any{"a": "POISON"})),
			agent.NewMessage(agent.User, agent.ToolResultBlock("toolu_1", "VENOM", false), imageBlock(t, 20, 10)),
			agent.NewMessage(agent.Assistant, agent.TextBlock("done")),
		}
		unplaced := func(ctx context.Context, r *modeltest.Request) modeltest.Answer {
			if strings.Contains(string(r.Body), dataOf(t, bad)) {
				return modeltest.Error(400, "invalid_request_error", "Could not process image")
			}
			return modeltest.Text("ok")
		}
		for _, c := range []struct {
			name  string
			h     modeltest.Handler
			calls int
			fails bool
		}{
			{"unplaced", unplaced, 3, false},
			{"result", modeltest.Refusing("VENOM", "no", calledOnce("")), 2, false},
			{"prompt", modeltest.Refusing("SPOILT", "no", calledOnce("")), 2, false},
			{"for-ever", modeltest.Refusing("o", "no", calledOnce("")), 12, true},
		} {
			t.Run(c.name, func(t *testing.T) {
				s := serve(t, c.h)
				l, err := agent.NewLoop(agent.Config{Model: d.connect(t, config{url: s.URL}), ModelName: "m"}, history)
				if err != nil {
					t.Fatal(err)
				}
				prompt := agent.TextBlock("go")
				if c.name == "prompt" {
					prompt = agent.TextBlock("SPOILT")
				}
				_, err = l.Turn(waittest.Context(t, patience), prompt)
				if (err != nil) != c.fails || s.Count() > c.calls || s.Count() < c.calls && !c.fails {
					t.Fatalf("%v, %d calls; want %d", err, s.Count(), c.calls)
				}
				for _, r := range s.Requests() {
					paired(t, r)
				}
			})
		}
	})
}

// A tool whose schema the provider refuses is left out, and named.
func TestRefusedTool(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		s := serve(t, modeltest.Refusing("shows", "JSON schema is invalid", calledOnce("")))
		m := d.connect(t, config{url: s.URL})
		l, err := agent.NewLoop(agent.Config{Model: m, ModelName: "m", Tools: []agent.Tool{&counting{}, &shows{}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := l.Turn(waittest.Context(t, patience), agent.TextBlock("go"))
		if err != nil || len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "the tool Show is left out") {
			t.Fatalf("%v; the user is told %q", err, res.Warnings)
		}
		p, err := s.Requests()[1].Params()
		if err != nil || len(p.Tools) != 1 || p.Tools[0].Name != "Bash" {
			t.Errorf("the second try has the tools %v, %v", p.Tools, err)
		}
	})
}

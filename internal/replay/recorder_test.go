package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/task"
)

// memory is a log in memory that numbers what it is given.
type memory struct {
	mu      sync.Mutex
	reached task.Seq
	refused error
	posted  []string
}

func (l *memory) Reached() task.Seq {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reached
}

func (l *memory) Append(context.Context, lifecycle.Entry) (task.Seq, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reached++
	return l.reached, l.refused
}

func (l *memory) AppendAll(ctx context.Context, entries []lifecycle.Entry) (seqs []task.Seq, errs []error) {
	for _, e := range entries {
		seq, err := l.Append(ctx, e)
		seqs, errs = append(seqs, seq), append(errs, err)
	}
	return seqs, errs
}

func (l *memory) Post(_ context.Context, m task.Message) (task.Seq, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reached++
	l.posted = append(l.posted, m.Text)
	return l.reached, l.refused
}

func recorder(out *bytes.Buffer, hide func([]byte) []byte) *Recorder {
	return NewRecorder(out, Head{Session: "s1", Prompt: []byte(`{}`)}, hide, environment.Unrecorded{})
}

// lines completes a recording and returns the kinds of its entries, each with what a test shows of it.
func lines(t *testing.T, r *Recorder, out *bytes.Buffer, show func(Entry) string) string {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := Read(out)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range f.Entries {
		all = append(all, string(e.Kind)+" "+show(e))
	}
	return strings.Join(all, "\n")
}

// portOf returns the port that a recorder or a player gives an agent.
func portOf(s environment.Seam, id task.ID, c agent.Config) agent.Port {
	s.Agent(id, &c)
	return c.Port
}

func asking(texts ...string) *agent.Request {
	r := &agent.Request{Agent: "main"}
	for _, text := range texts {
		r.Messages = append(r.Messages, agent.NewMessage(agent.User, agent.TextBlock(text)))
	}
	return r
}

func saying(string) func(func(agent.Part)) (*agent.Reply, error) {
	return func(on func(agent.Part)) (*agent.Reply, error) {
		on(agent.Part{Kind: agent.TextPart, Text: "he"})
		on(agent.Part{Kind: agent.PartKind(99), Text: "is not part of the reply"})
		on(agent.Part{Kind: agent.TextPart, Text: "llo"})
		return &agent.Reply{StopReason: "end_turn", Blocks: []agent.Block{agent.TextBlock("hello")}}, nil
	}
}

// Calls have their pieces, their number by agent and the messages that are new; failures have what a replay needs.
func TestRecordCalls(t *testing.T) {
	var out bytes.Buffer
	r := recorder(&out, nil)
	p, until := portOf(r, "s1", agent.Config{}), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	failing := func(err error) func(func(agent.Part)) (*agent.Reply, error) {
		return func(func(agent.Part)) (*agent.Reply, error) { return nil, err }
	}
	heard := ""
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for i, ask := range []func(func(agent.Part)) (*agent.Reply, error){
		saying("hello"),
		failing(fmt.Errorf("call: %w", &agent.ModelError{Status: 429, Kind: "rate_limit", Text: "later", Until: until})),
		failing(&agent.CutError{Whole: []agent.Block{agent.TextBlock("whole")}, Err: errors.New("broken off")}),
		failing(context.Canceled),
	} {
		if i == 3 {
			end()
		}
		texts := []string{"one", "two", "three", "four"}[:i+1]
		reply, err := p.Reply(ctx, asking(texts...), func(p agent.Part) { heard += p.Text }, ask)
		if (err == nil) != (i == 0) || i == 0 && reply.Blocks[0].Text != "hello" {
			t.Errorf("call %d: %v, %v", i+1, reply, err)
		}
	}
	_, _ = portOf(r, "a1", agent.Config{}).Reply(t.Context(), asking("other"), func(agent.Part) {}, saying("hello"))
	if heard != "heis not part of the replyllo" {
		t.Errorf("the loop heard %q", heard)
	}
	got := lines(t, r, &out, func(e Entry) string {
		if e.Kind == AgentEntry {
			return string(e.Agent)
		}
		text := fmt.Sprintf("%s %d, %d chunks, %d new of %d", e.Agent, e.Call, len(e.Chunks), len(e.Request.New), e.Request.Count)
		if f := e.Failure; f != nil {
			text += fmt.Sprintf(", failed %d %q %q %t %t %d %t", f.Status, f.Kind, f.Text, f.Cut, f.Interrupted, len(f.Whole), f.Until.Equal(until))
		}
		return text
	})
	want := `agent s1
call s1 1, 2 chunks, 1 new of 1
call s1 2, 0 chunks, 1 new of 2, failed 429 "rate_limit" "later" false false 0 true
call s1 3, 0 chunks, 1 new of 3, failed 0 "" "broken off" true false 1 false
call s1 4, 0 chunks, 1 new of 4, failed 0 "" "context canceled" false true 0 false
agent a1
call a1 1, 2 chunks, 1 new of 1`
	if got != want {
		t.Errorf("recorded:\n%s\nwant:\n%s", got, want)
	}
}

// Decisions, results, mail and texts are there as the loop got them, each call with the place of its decision.
func TestRecordPort(t *testing.T) {
	var out bytes.Buffer
	r, log := recorder(&out, nil), &memory{reached: 7}
	r.Log(log)
	p, ctx := portOf(r, "a1", agent.Config{Deferred: []string{"far"}}), t.Context()
	call := agent.Call{ID: "t1", Name: "Bash", Input: []byte(`{}`)}
	for _, d := range []struct {
		agent.Decision
		err error
	}{{Decision: agent.Decision{Reason: "it is denied"}}, {err: errors.New("nobody can be asked")}, {Decision: agent.Decision{Allow: true}}} {
		if got, err := p.Check(ctx, call, func() (agent.Decision, error) { return d.Decision, d.err }); got.Reason != d.Reason || !errors.Is(err, d.err) {
			t.Errorf("decided %v, %v", got, err)
		}
	}
	log.reached = 9
	got, err := p.Run(ctx, "Bash", call, func() (agent.Output, error) {
		return agent.Output{Text: "out", Structured: map[string]int{"n": 1}}, nil
	}, func(o agent.Output) agent.Output { o.Text += " and a hook"; return o })
	if got.Text != "out and a hook" || err != nil {
		t.Errorf("the loop gets %q, %v", got.Text, err)
	}
	_, _ = p.Take(ctx, func() ([]agent.MailMessage, error) { return []agent.MailMessage{{Text: "a letter"}}, nil })
	_, _ = p.Take(ctx, func() ([]agent.MailMessage, error) { return nil, nil })
	if _, err := p.Take(ctx, func() ([]agent.MailMessage, error) { return nil, errors.New("broken") }); err == nil {
		t.Error("an error of the mailbox is lost")
	}
	_, _ = p.Texts(ctx, agent.StopTexts, func() ([]string, error) { return []string{"go on"}, nil })
	if _, err := r.Texts(ctx, "s1", environment.PromptTexts, func() ([]string, error) { return nil, errors.New("blocked") }); err == nil {
		t.Error("a failure is lost")
	}
	text := lines(t, r, &out, func(e Entry) string {
		text := fmt.Sprintf("%s after %d: %s %s %q", e.Agent, e.After, strings.Join(e.Deferred, ","), e.What, e.Texts)
		if e.Decided != nil {
			text += fmt.Sprintf(" decided after %d", e.Decided.After)
		}
		if e.Decision != nil {
			text += fmt.Sprintf(" %t %s", e.Decision.Allow, e.Decision.Reason)
		}
		if e.Failure != nil {
			text += " " + e.Failure.Text
		}
		if e.Output != nil {
			text += fmt.Sprintf(" %s %s", e.Output.Text, e.Output.Structured)
		}
		return text
	})
	want := `agent a1 after 7: far  []
tool a1 after 7:   [] decided after 7 false it is denied
tool a1 after 7:   [] decided after 7 nobody can be asked
tool a1 after 9:   [] decided after 7 true  out and a hook {"n":1}
mail a1 after 9:   ["a letter"]
mail a1 after 9:   []
text a1 after 9:  stop ["go on"]
text s1 after 9:  prompt [] blocked`
	if text != want {
		t.Errorf("recorded:\n%s\nwant:\n%s", text, want)
	}
}

// The log is there with answers that are no outputs, and with messages; each output is there once, without secrets.
func TestRecordLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b1.output")
	if err := os.WriteFile(file, []byte("printed hush-hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r := recorder(&out, func(data []byte) []byte { return bytes.ReplaceAll(data, []byte("hush-hush"), []byte("[left out]")) })
	log := r.Log(&memory{})
	entry := func(v task.Verb, id task.ID, k task.Kind, output, answer string) lifecycle.Entry {
		return lifecycle.Entry{Verb: v, Answer: answer, Task: task.Record{ID: id, Kind: k, OutputFile: output, Command: "say hush-hush"}}
	}
	_, errs := log.AppendAll(t.Context(), []lifecycle.Entry{entry(task.Create, "b1", task.LocalBash, file, ""), entry(task.Create, "r1", task.RemoteAgent, "/none", "")})
	_, err := log.Append(t.Context(), entry(task.Complete, "b1", task.LocalBash, file, ""))
	_, again := log.Append(t.Context(), entry(task.Complete, "r1", task.RemoteAgent, "/none", "the answer"))
	if err := errors.Join(append(errs, err, again)...); err != nil {
		t.Fatal(err)
	}
	for _, k := range []task.MessageKind{task.PlainMessage, task.Prompt, task.Stalled} { // a replay does not send the last two
		if seq, err := log.Post(t.Context(), task.Message{From: "ada", Kind: k, Text: "hush-hush"}); seq == 0 || err != nil {
			t.Errorf("%s: %d, %v", k, seq, err)
		}
	}
	whole := out.String()
	got := lines(t, r, &out, func(e Entry) string {
		switch {
		case e.Event != nil:
			return fmt.Sprintf("%d %s %s %q", e.Event.Seq, e.Event.Verb, e.Event.Task.Command, e.Texts)
		case e.Message != nil:
			return fmt.Sprintf("%d %s", e.Message.Seq, e.Message.Text)
		}
		return fmt.Sprintf("%s %s", e.Task, e.Data)
	})
	want := `event 1 create say [left out] []
event 2 create say [left out] []
event 3 complete say [left out] []
event 4 complete say [left out] []
message 5 [left out]
output b1 printed [left out]`
	if task.RemoteAgent.IsAgent() == false {
		want = strings.Replace(want, "event 4 complete say [left out] []", `event 4 complete say [left out] ["the answer"]`, 1)
	}
	if strings.Contains(whole, "hush-hush") {
		t.Error("a secret is in the file")
	}
	if got != want {
		t.Errorf("recorded:\n%s\nwant:\n%s", got, want)
	}
}

type broken struct{ left int }

func (b *broken) Write(p []byte) (int, error) {
	if b.left--; b.left < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(p), nil
}

// What cannot be written hinders no agent, and is an error at the end. Agents record at the same time.
func TestUnwritten(t *testing.T) {
	r := NewRecorder(&broken{left: 3}, Head{Session: "s1", Prompt: json.RawMessage(`{}`)}, nil, environment.Unrecorded{})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			p := portOf(r, task.ID(fmt.Sprintf("a%d", i)), agent.Config{})
			if reply, err := p.Reply(t.Context(), asking("x"), func(agent.Part) {}, saying("x")); reply == nil || err != nil {
				t.Errorf("agent %d: %v, %v", i, reply, err)
			}
		})
	}
	all.Wait()
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("closed with %v", err)
	}
}

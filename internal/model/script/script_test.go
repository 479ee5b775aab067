package script_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/script"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func load(t testing.TB, name, text string) (*script.Model, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return script.Load(path)
}

func must(t testing.TB, text string) *script.Model {
	t.Helper()
	m, err := load(t, "s.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

type echo struct{}

func (echo) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "Echo", InputSchema: json.RawMessage(`{"type":"object"}`)}
}
func (echo) Call(_ context.Context, c agent.Call) (agent.Output, error) {
	return agent.Output{Text: string(c.Input)}, nil
}

func loop(t testing.TB, m agent.Model, label string, history ...agent.Message) *agent.Loop {
	t.Helper()
	l, err := agent.NewLoop(agent.Config{Model: m, Agent: label, AgentID: label, Tools: []agent.Tool{echo{}},
		MaxTurns: 1000}, history)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func say(t testing.TB, l *agent.Loop, text string) string {
	t.Helper()
	res, err := l.Turn(context.Background(), agent.TextBlock(text))
	if err != nil {
		t.Fatal(err)
	}
	return res.Text
}

func TestScriptDrivesALoop(t *testing.T) {
	m := must(t, `
version: 1
agents:
  main:
    - text: I will look.
      tools: [{name: Echo, input: {id: "b1", list: [{deep: true}]}}]
    - tools: [{name: Echo, input: {stop: '{{result 0 "id"}}', found: '{{find "\"id\":\"(\\w+)"}}', n: 3}}]
    - text: '{{agent}} {{turn}}: {{prompt}} / {{result -1 "stop"}} {{result 0 "list.0.deep"}} / {{last}}'
`)
	l := loop(t, m, "main")
	got := say(t, l, "find it")
	want := `main 2: find it / b1 true / {"found":"b1","n":3,"stop":"b1"}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	_, err := l.Turn(context.Background(), agent.TextBlock("more"))
	fault := &agent.ModelError{}
	if !errors.As(err, &fault) || !strings.Contains(fault.Text, "s.yaml") ||
		!strings.Contains(fault.Text, `agent "main"`) || !strings.Contains(fault.Text, "no turn 3") {
		t.Errorf("past the end: %v", err)
	}
}

// The prompt is what was asked, whatever Drover adds to the message.
func TestPromptIsOfTheUser(t *testing.T) {
	m := must(t, `
version: 1
agents:
  main:
    - {when: {prompt_contains: tests run}, text: "a reminder is no prompt"}
    - {when: {prompt_contains: fix}, text: "asked: {{prompt}}", repeat: -1}
    - {text: "{{prompt}}"}
`)
	added := []agent.Block{agent.TextBlock("<task-notification>\nlint ended\n</task-notification>"),
		agent.TextBlock("<system-reminder>\ntests run\n</system-reminder>"),
		agent.TextBlock("<hook-context event=\"UserPromptSubmit\">\nx\n</hook-context>")}
	woken := []agent.Message{agent.NewMessage(agent.User, added[0]), agent.NewMessage(agent.Assistant, agent.TextBlock("so?"))}
	for _, history := range [][]agent.Message{nil, woken} {
		res, err := loop(t, m, "main", history...).Turn(t.Context(), append(slices.Clone(added), agent.TextBlock("fix <b> it"))...)
		if err != nil || res.Text != "asked: fix <b> it" {
			t.Errorf("after %d messages: %q, %v", len(history), res.Text, err)
		}
	}
}

func TestConditionsRepeatsAndLabels(t *testing.T) {
	m := must(t, `
version: 1
agents:
  main:
    - {when: {last_contains: ping}, text: pong, repeat: -1}
    - {text: a, repeat: 2}
    - {text: b}
  "*":
    - {text: "I am {{agent}}"}
`)
	l := loop(t, m, "main")
	var got []string
	for _, p := range []string{"x", "ping", "x", "ping", "x"} {
		got = append(got, say(t, l, p))
	}
	if strings.Join(got, " ") != "a pong a pong b" {
		t.Errorf("said %q", got)
	}
	if got := say(t, loop(t, m, "scout"), "x"); got != "I am scout" {
		t.Errorf("said %q", got)
	}
}

// Another process knows only the history.
func TestScriptGoesOnAfterResume(t *testing.T) {
	text := `
version: 1
agents:
  main:
    - {error: {status: 500, message: down}}
    - {text: one}
    - {when: {last_contains: ping}, text: pong, repeat: -1}
    - {text: two}
`
	first := loop(t, must(t, text), "main")
	if _, err := first.Turn(context.Background(), agent.TextBlock("x")); err == nil {
		t.Fatal("no error")
	}
	if got := say(t, first, "x"); got != "one" {
		t.Fatalf("said %q", got)
	}
	say(t, first, "ping")
	if got := say(t, loop(t, must(t, text), "main", first.Messages()...), "x"); got != "two" {
		t.Errorf("said %q after the resume", got)
	}
}

func TestErrors(t *testing.T) {
	m := must(t, `
version: 1
agents:
  main:
    - {error: {status: 429, type: rate_limit_error, message: "slow down"}}
    - {error: {status: 529, type: overloaded_error, message: "busy", retry_after: 1ms}}
    - {text: "half an ans", cut: true}
    - {text: fine}
    - {text: '{{result 5}}'}
`)
	ctx := context.Background()
	var retries int
	req := &agent.Request{Messages: []agent.Message{agent.NewMessage(agent.User, agent.TextBlock("x"))}}
	on := func(p agent.Part) {
		if p.Kind == agent.RetryPart {
			retries++
		}
	}
	_, err := m.Reply(ctx, req, on)
	fault := &agent.ModelError{}
	if !errors.As(err, &fault) || fault.Status != 429 || fault.Kind != "rate_limit" || fault.Text != "slow down" {
		t.Errorf("first: %#v", err)
	}
	_, err = m.Reply(ctx, req, on)
	cut := &agent.CutError{}
	if !errors.As(err, &cut) || retries != 1 {
		t.Errorf("second: %v, %d retries", err, retries)
	}
	answered := func(texts ...string) {
		for _, s := range texts {
			req.Messages = append(req.Messages, agent.NewMessage(agent.Assistant, agent.TextBlock(s)),
				agent.NewMessage(agent.User, agent.TextBlock("x")))
		}
	}
	if r, err := m.Reply(ctx, req, nil); err != nil || r.Blocks[0].Text != "fine" || r.StopReason != "end_turn" {
		t.Errorf("third: %+v, %v", r, err)
	}
	answered("fine")
	if _, err := m.Reply(ctx, req, nil); !errors.As(err, &fault) || !strings.Contains(fault.Text, "turn 4") ||
		!strings.Contains(fault.Text, "0 tool results") {
		t.Errorf("fourth: %v", err)
	}
}

func TestChunksAndCancel(t *testing.T) {
	m := must(t, `
version: 1
agents:
  main:
    - {text: "grüße", chunk: 2}
    - {text: never, delay: 1h}
`)
	req := &agent.Request{Messages: []agent.Message{agent.NewMessage(agent.User, agent.TextBlock("x"))}}
	var parts []string
	if _, err := m.Reply(context.Background(), req, func(p agent.Part) {
		if p.Kind == agent.TextPart {
			parts = append(parts, p.Text)
		}
	}); err != nil || strings.Join(parts, "|") != "gr|üß|e" {
		t.Errorf("parts %q, %v", parts, err)
	}
	req.Messages = append(req.Messages, agent.NewMessage(agent.Assistant, agent.TextBlock("grüße")))
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	cancel(why)
	if _, err := m.Reply(ctx, req, nil); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
}

func TestFaultsAreNamed(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"syntax":   {"s.yaml", "version: [", "yaml"},
		"json":     {"s.json", `{"version": 1,}`, "invalid character"},
		"version":  {"s.yaml", "version: 2\nagents: {main: []}", "version: 1"},
		"agents":   {"s.yaml", "version: 1", "no agents"},
		"unknown":  {"s.yaml", "version: 1\nagents: {main: [{txt: a}]}", `agent "main": turn 0: unknown field "txt"`},
		"type":     {"s.yaml", "version: 1\nagents: {main: [{text: a}, {text: [a]}]}", `turn 1`},
		"time":     {"s.yaml", "version: 1\nagents: {main: [{delay: 5}]}", `"50ms"`},
		"template": {"s.yaml", "version: 1\nagents: {main: [{text: '{{nope}}'}]}", `"nope" not defined`},
		"input": {"s.yaml", "version: 1\nagents: {main: [{tools: [{name: T, input: {a: ['{{']}}]}]}",
			`tools[0] (T): input: a: [0]`},
		"noname": {"s.yaml", "version: 1\nagents: {main: [{tools: [{input: {}}]}]}", `no name`},
		"mixed":  {"s.yaml", "version: 1\nagents: {main: [{text: a, error: {message: b}}]}", `turn of its own`},
		"repeat": {"s.yaml", "version: 1\nagents: {main: [{text: a, repeat: 0}]}", `repeat is from 1`},
		"two":    {"s.yaml", "version: 1\nagents: {a: [{x: 1}], b: [{y: 1}]}", `agent "b"`},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := load(t, c.file, c.text)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.file) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if m != nil {
				t.Error("a faulty script gave a model")
			}
		})
	}
}

func TestDocumentedExampleLoads(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/script.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, part := range strings.Split(string(doc), "```yaml\n")[1:] {
		example, _, _ := strings.Cut(part, "```")
		if !strings.HasPrefix(example, "version:") {
			continue
		}
		n++
		if _, err := load(t, "doc.yaml", example); err != nil {
			t.Error(err)
		}
	}
	if n == 0 {
		t.Error("docs/script.md has no example")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("s.json", []byte(`{"version":1,"agents":{"main":[{"text":"{{last}}","repeat":2}]}}`))
	f.Add("s.yaml", []byte("version: 1\nagents:\n  main:\n    - {text: a, tools: [{name: T, input: {a: 1}}]}\n"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		m, err := script.Parse(name, data)
		if (m == nil) == (err == nil) {
			t.Fatalf("model %v, error %v", m, err)
		}
	})
}

func TestManyAgentsAtOnce(t *testing.T) {
	m := must(t, "version: 1\nagents:\n  '*':\n    - {tools: [{name: Echo, input: {a: '{{turn}}'}}], repeat: 9}\n    - "+
		"{text: 'end of {{agent}}'}\n")
	var all sync.WaitGroup
	for i := range 50 {
		name := fmt.Sprintf("a%d", i)
		l := loop(t, m, name)
		all.Go(func() {
			if res, err := l.Turn(context.Background(), agent.TextBlock("go")); err != nil || res.Text != "end of "+name ||
				res.Turns != 10 {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		})
	}
	all.Wait()
}

// One iteration is a turn of each of 300 agents, 100 of them in a row.
func BenchmarkAgents(b *testing.B) {
	words := strings.Repeat("w", 1000)
	m := must(b, "version: 1\nagents:\n  '*':\n    - {tools: [{name: Echo, input: {a: "+words+", n: '{{turn}}'}}], "+
		"repeat: 99}\n    - {text: end}\n")
	turns := 0
	for b.Loop() {
		var all sync.WaitGroup
		for i := range 300 {
			l := loop(b, m, fmt.Sprint(i))
			all.Go(func() {
				if res, err := l.Turn(context.Background(), agent.TextBlock("go")); err != nil || res.Turns != 100 {
					b.Errorf("%+v, %v", res, err)
				}
			})
		}
		all.Wait()
		turns += 300 * 100
	}
	b.ReportMetric(float64(turns)/b.Elapsed().Seconds(), "turns/s")
}

// Two agents of one sort are told apart by what they were asked.
func TestPromptContains(t *testing.T) {
	m := must(t, `
version: 1
agents:
  "*":
    - {when: {prompt_contains: north, last_contains: again}, text: "north again"}
    - {when: {prompt_contains: north}, text: "north"}
    - {text: "south", repeat: -1}
`)
	for prompt, want := range map[string]string{"go north": "north/north again", "go south": "south/south"} {
		l := loop(t, m, prompt)
		if got := say(t, l, prompt) + "/" + say(t, l, "again"); got != want {
			t.Errorf("%s: %s, want %s", prompt, got, want)
		}
	}
	if _, err := load(t, "s.yaml", "version: 1\nagents: {main: [{when: {}, text: a}]}"); err == nil ||
		!strings.Contains(err.Error(), "prompt_contains") {
		t.Errorf("an empty when: %v", err)
	}
}

func TestHasAndFindInText(t *testing.T) {
	m := must(t, `
version: 1
agents:
  main:
    - tools: [{name: Echo, input: {a: "line 7"}}]
    - text: '{{if has "line (\\d+)" (result 0)}}{{find "line (\\d+)" (result 0)}}{{end}}{{if has "line 8"}}eight{{else}} no eight{{end}}{{if has "look" (result 0)}} looked{{end}} {{find "lo+k"}}'
    - text: '{{find "look" (result 0)}}'
`)
	l := loop(t, m, "main")
	if got, want := say(t, l, "look"), "7 no eight look"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	_, err := l.Turn(context.Background(), agent.TextBlock("more"))
	if err == nil || !strings.Contains(err.Error(), "nothing in the text matches") {
		t.Errorf("find without a match: %v", err)
	}
}

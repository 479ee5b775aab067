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
	"github.com/drover-dev/drover/internal/replay/recording"
	"github.com/drover-dev/drover/task"
)

// log is the log of a session in memory.
type log []task.Event

func (l log) Newest() task.Seq {
	if len(l) == 0 {
		return 0
	}
	return l[len(l)-1].Seq
}

func (l log) Since(_ context.Context, after task.Seq) ([]task.Event, error) {
	for i, e := range l {
		if e.Seq > after {
			return l[i:min(i+2, len(l))], nil // in parts, as a long one comes
		}
	}
	return nil, nil
}

func (l log) Answer(_ context.Context, r task.Record) (string, error) {
	if r.Kind == task.LocalBash {
		return "", nil
	}
	return "answer of " + string(r.ID), nil
}

// recorded completes a recording and reads it.
func recorded(t *testing.T, r *Recorder, out *bytes.Buffer) []recording.Entry {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := recording.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	return f.Entries
}

// lines are the kinds of entries, each with what of it a test names.
func lines(entries []recording.Entry, show func(recording.Entry) string) string {
	var all []string
	for _, e := range entries {
		all = append(all, string(e.Kind)+" "+show(e))
	}
	return strings.Join(all, "\n")
}

func head() recording.Head { return recording.Head{Session: "s1", Prompt: []byte(`{}`)} }

type answering func(ctx context.Context, on func(agent.Part)) (*agent.Reply, error)

func (m answering) Reply(ctx context.Context, _ *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
	return m(ctx, on)
}

func request(id string, texts ...string) *agent.Request {
	r := &agent.Request{AgentID: id, Agent: "main"}
	for _, text := range texts {
		r.Messages = append(r.Messages, agent.NewMessage(agent.User, agent.TextBlock(text)))
	}
	return r
}

// Calls have their pieces, their number by agent and the messages that are new; failures what they need to be played.
func TestModel(t *testing.T) {
	var out bytes.Buffer
	r := New(&out, head(), nil)
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	answers := []answering{
		func(_ context.Context, on func(agent.Part)) (*agent.Reply, error) {
			on(agent.Part{Kind: agent.TextPart, Text: "he"})
			on(agent.Part{Kind: agent.PartKind(99), Text: "is not part of the reply"})
			on(agent.Part{Kind: agent.TextPart, Text: "llo"})
			return &agent.Reply{StopReason: "end_turn", Blocks: []agent.Block{agent.TextBlock("hello")}}, nil
		},
		func(context.Context, func(agent.Part)) (*agent.Reply, error) {
			return nil, fmt.Errorf("call: %w", &agent.ModelError{Status: 429, Kind: "rate_limit", Text: "later", Until: until})
		},
		func(context.Context, func(agent.Part)) (*agent.Reply, error) {
			return nil, &agent.CutError{Whole: []agent.Block{agent.TextBlock("whole")}, Err: errors.New("broken off")}
		},
		func(ctx context.Context, _ func(agent.Part)) (*agent.Reply, error) { return nil, ctx.Err() },
	}
	heard := ""
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for i, next := range answers {
		if i == 3 {
			end()
		}
		texts := []string{"one", "two", "three", "four"}[:i+1]
		reply, err := r.Model("m", next).Reply(ctx, request("", texts...), func(p agent.Part) { heard += p.Text })
		if (err == nil) != (i == 0) || i == 0 && reply.Blocks[0].Text != "hello" {
			t.Errorf("call %d: %v, %v", i+1, reply, err)
		}
	}
	_, _ = r.Model("m", answers[0]).Reply(t.Context(), request("a1", "other"), nil)
	if heard != "heis not part of the replyllo" {
		t.Errorf("the loop was told %q", heard)
	}
	got := lines(recorded(t, r, &out), func(e recording.Entry) string {
		text := fmt.Sprintf("%s %d, %d chunks, %d new of %d", e.Agent, e.Call, len(e.Chunks), len(e.Request.New), e.Request.Count)
		if f := e.Failure; f != nil {
			text += fmt.Sprintf(", failed %d %q %q %t %t %d %t", f.Status, f.Kind, f.Text, f.Cut, f.Interrupted, len(f.Whole), f.Until.Equal(until))
		}
		return text
	})
	want := `call s1 1, 2 chunks, 1 new of 1
call s1 2, 0 chunks, 1 new of 2, failed 429 "rate_limit" "later" false false 0 true
call s1 3, 0 chunks, 1 new of 3, failed 0 "" "broken off" true false 1 false
call s1 4, 0 chunks, 1 new of 4, failed 0 "" "context canceled" false true 0 false
call a1 1, 2 chunks, 1 new of 1`
	if got != want {
		t.Errorf("recorded:\n%s\nwant:\n%s", got, want)
	}
}

type around1 struct{ called int }

func (a *around1) Check(context.Context, agent.Call) (agent.Decision, error) {
	if a.called++; a.called > 1 {
		return agent.Decision{}, errors.New("nobody can be asked")
	}
	return agent.Decision{Reason: "it is denied"}, nil
}

func (a *around1) Called(_ context.Context, _ agent.Call, out agent.Output, _ time.Duration) agent.Output {
	out.Text += " and a hook"
	return out
}
func (a *around1) Batch(context.Context, []agent.Done) string         { return "of a batch" }
func (a *around1) Stop(context.Context, agent.TurnResult, int) string { return "go on" }
func (a *around1) Due(context.Context, bool) []string                 { return []string{"do not forget"} }
func (a *around1) Forgotten()                                         {}

// What rules, tools, hooks and reminders said is there as the loop got it; mail is placed between calls and turns.
func TestLoop(t *testing.T) {
	var out bytes.Buffer
	r := New(&out, head(), nil)
	r.Open(log{{Seq: 7}})
	x, events := &around1{}, 0
	c := &agent.Config{Gate: x, Hooks: x, Reminders: x, On: func(agent.Event) { events++ }, Deferred: []string{"far"}}
	r.Loop("a1", c)
	ctx, call := t.Context(), agent.Call{ID: "t1", Name: "Bash", Input: []byte(`{}`)}
	c.On(agent.Event{Kind: agent.TurnStartEvent})
	if d, err := c.Gate.Check(ctx, call); d.Reason != "it is denied" || err != nil {
		t.Errorf("decided %v, %v", d, err)
	}
	if _, err := c.Gate.Check(ctx, call); err == nil {
		t.Error("an error of the gate is lost")
	}
	if o := c.Hooks.Called(ctx, call, agent.Output{Text: "out", Structured: map[string]int{"n": 1}}, 0); o.Text != "out and a hook" {
		t.Errorf("the loop gets %q", o.Text)
	}
	c.On(agent.Event{Kind: agent.MailEvent, Mail: []agent.MailMessage{{Text: "a letter"}}})
	_, _ = c.Hooks.Batch(ctx, nil), c.Hooks.Stop(ctx, agent.TurnResult{}, 0)
	_ = c.Reminders.Due(ctx, true)
	if events != 2 {
		t.Errorf("the session was told of %d events", events)
	}
	got := lines(recorded(t, r, &out), func(e recording.Entry) string {
		text := fmt.Sprintf("%s after %d: %s %d %q", e.Agent, e.After, strings.Join(e.Deferred, ","), e.Turn, e.Texts)
		if e.Decision != nil {
			text += " " + e.Decision.Reason
		}
		if e.Output != nil {
			text += fmt.Sprintf(" %s %s", e.Output.Text, e.Output.Structured)
		}
		return text
	})
	want := `agent a1 after 7: far 0 []
gate a1 after 7:  0 [] it is denied
tool a1 after 7:  0 [] out and a hook {"n":1}
mail a1 after 7:  1 ["a letter"]
batch a1 after 7:  0 ["of a batch"]
stop a1 after 7:  0 ["go on"]
reminder a1 after 7:  0 ["do not forget"]`
	if got != want {
		t.Errorf("recorded:\n%s\nwant:\n%s", got, want)
	}
}

// What comes from outside is passed on as it is, and recorded with its failure.
func TestOutside(t *testing.T) {
	var out bytes.Buffer
	r := New(&out, head(), nil)
	text, err := r.Text("a1", "start", func() (string, error) { return "begun", nil })
	if text != "begun" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := r.Text("s1", "prompt", func() (string, error) { return "", errors.New("blocked") }); err == nil {
		t.Error("the failure is lost")
	}
	prompt := "do this"
	for _, got := range []*string{&prompt, nil} {
		p, err := r.Command(func() (*string, []agent.Call, error) { return got, []agent.Call{{ID: "command_1", Name: "Bash"}}, nil })
		if p != got || err != nil {
			t.Errorf("%v, %v", p, err)
		}
	}
	r.Checkout("a1", recording.Tree{Path: "/w"})
	r.Left("a1", &task.Worktree{Removed: true})
	r.Told(task.Message{From: "m1", Text: "a line"})
	for _, k := range []task.MessageKind{task.PlainMessage, task.Prompt, task.Stalled} { // the last two a replay does not send
		if seq, err := r.Sent(task.Message{From: "ada", Kind: k}, func() (task.Seq, error) { return 7, nil }); seq != 7 || err != nil {
			t.Errorf("%s: %d, %v", k, seq, err)
		}
	}
	if _, err := r.Sent(task.Message{From: "ada", Kind: task.PlainMessage}, func() (task.Seq, error) { return 0, task.ErrMailFull }); err == nil {
		t.Error("a message that was refused counts as sent")
	}
	got := lines(recorded(t, r, &out), func(e recording.Entry) string {
		raw, err := json.Marshal([]any{e.What, e.Texts, e.Failure, len(e.Calls), e.Tree != nil, e.Left != nil, e.Task})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	})
	want := `text ["start",["begun"],null,0,false,false,""]
text ["prompt",null,{"text":"blocked"},0,false,false,""]
command ["",["do this"],null,1,false,false,""]
command ["",null,null,1,false,false,""]
worktree ["",null,null,0,true,false,""]
worktree ["",null,null,0,false,true,""]
told ["",null,null,0,false,false,"m1"]
sent ["",null,null,0,false,false,""]`
	if got != want {
		t.Errorf("recorded:\n%s\nwant:\n%s", got, want)
	}
}

// The log is written up to where the session ended, with answers that are no outputs, and each output once, without secrets.
func TestEnded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b1.output")
	if err := os.WriteFile(file, []byte("printed hush-hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r := New(&out, head(), func(data []byte) []byte { return bytes.ReplaceAll(data, []byte("hush-hush"), []byte("[left out]")) })
	event := func(seq task.Seq, id task.ID, k task.Kind, s task.Status, output string) task.Event {
		return task.Event{Seq: seq, Task: task.Record{ID: id, Kind: k, Status: s, OutputFile: output, Command: "say hush-hush"}}
	}
	r.Open(log{
		event(1, "b1", task.LocalBash, task.Running, file), event(2, "a1", task.LocalAgent, task.Completed, "/none"),
		event(3, "b1", task.LocalBash, task.Completed, file), event(4, "r1", task.RemoteAgent, task.Completed, "/none"),
		event(5, "b1", task.LocalBash, task.Completed, file),
	})
	r.Ended(5)
	whole := out.String()
	got := lines(recorded(t, r, &out), func(e recording.Entry) string {
		if e.Event != nil {
			return fmt.Sprintf("%d %s %q", e.Event.Seq, e.Event.Task.Command, e.Texts)
		}
		return fmt.Sprintf("%s %s", e.Task, e.Data)
	})
	want := `event 1 say [left out] []
event 2 say [left out] []
event 3 say [left out] []
event 4 say [left out] ["answer of r1"]
event 5 say [left out] []
output b1 printed [left out]`
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

// What cannot be written hinders nobody, and is said at the end. Agents record side by side.
func TestUnwritten(t *testing.T) {
	r := New(&broken{left: 3}, head(), nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			id := fmt.Sprintf("a%d", i)
			reply, err := r.Model("m", answering(func(context.Context, func(agent.Part)) (*agent.Reply, error) {
				return &agent.Reply{StopReason: "end_turn"}, nil
			})).Reply(t.Context(), request(id, "x"), nil)
			if reply == nil || err != nil {
				t.Errorf("agent %s: %v, %v", id, reply, err)
			}
		})
	}
	all.Wait()
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("closed with %v", err)
	}
}

package conversation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// TestFeed has readers with marks of their own.
func TestFeed(t *testing.T) {
	read := func(f *Feed, at control.Mark) (out []string, last control.Mark) {
		for {
			p, ok, _ := f.Next(at)
			if !ok {
				return out, at
			}
			at = p.Mark()
			out = append(out, fmt.Sprintf("%d+%d %s %s", p.N, p.From, p.Kind, p.Text))
		}
	}
	is := func(what string, got []string, want ...string) {
		t.Helper()
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	f := &Feed{}
	got, _ := read(f, control.Mark{})
	is("empty", got)
	f.begin([]agent.Block{agent.TextBlock("go")}, "")
	f.write("Hé")
	got, at := read(f, control.Mark{})
	is("first", got, "1+0 begin go", "2+0 text Hé")
	f.write("llo")
	got, at = read(f, at)
	is("grown", got, "2+3 text llo")
	f.take(agent.Event{Kind: agent.ToolStartEvent, Call: agent.Call{Name: "Bash", ID: "c", Input: []byte(`{}`)}})
	f.write("x\xffy")
	f.end(agent.TurnResult{Text: "Hello"}, nil, 0)
	got, _ = read(f, at)
	is("then", got, "3+0 call {}", "4+0 text x\uFFFDy", "5+0 end ")
	got, _ = read(f, control.Mark{N: 99})
	is("of another host", got, "1+0 begin go", "2+0 text Héllo", "3+0 call {}", "4+0 text x\uFFFDy", "5+0 end ")

	for range feedPieces {
		f.add(control.Piece{Kind: control.NotePiece, Text: "n"})
	}
	got, _ = read(f, at)
	if len(got) != feedPieces+1 || got[0] != "5+0 gap " || got[1] != "6+0 note n" {
		t.Errorf("a slow reader: %d pieces, %q", len(got), got[:2])
	}
	big := strings.Repeat("b", feedText)
	for range 3 * feedBytes / feedText {
		f.write(big)
	}
	if f.bytes > feedBytes {
		t.Errorf("%d bytes are kept", f.bytes)
	}
	held := 0
	for _, p := range f.pieces {
		held += len(p.Text)
	}
	if held != f.bytes || int64(len(f.pieces)) > f.last {
		t.Errorf("%d bytes are counted, and %d kept", f.bytes, held)
	}
	f.begin(nil, TaskOrigin)
	f.end(agent.TurnResult{Text: "by no model"}, errors.New("broken"), 0)
	if n := len(f.pieces); f.pieces[n-2].Text != "by no model" || f.pieces[n-1].Error != "broken" {
		t.Errorf("the end: %+v", f.pieces[n-2:])
	}
}

// What came of a reply that failed is said to be void, and that it is asked for again.
func TestFeedVoid(t *testing.T) {
	f := &Feed{}
	part := func(p agent.Part) { f.take(agent.Event{Kind: agent.PartEvent, Part: p}) }
	void := agent.Part{Kind: agent.VoidPart}
	f.begin([]agent.Block{agent.TextBlock("go")}, "")
	part(agent.Part{Kind: agent.TextPart, Text: "half a sent"})
	part(void)
	part(agent.Part{Kind: agent.RetryPart, Retry: agent.Retry{Attempt: 2, Most: 9, After: 4 * time.Second, Why: agent.ModelError{Text: "connection reset"}}})
	part(void) // nothing had come of this one
	part(agent.Part{Kind: agent.TextPart, Text: "whole"})
	f.take(agent.Event{Kind: agent.ReplyDoneEvent})
	part(void)
	f.end(agent.TurnResult{}, nil, 0)
	var got []string
	for _, p := range f.pieces {
		got = append(got, string(p.Kind)+" "+p.Text)
	}
	want := "begin go|text half a sent\n|note the partial answer above is discarded|note model call failed: connection reset (retry 2 of 9 in 4s)|text whole|end "
	if all := strings.Join(got, "|"); all != want {
		t.Errorf("%q, want %q", all, want)
	}
}

// A call that was denied is told with its input, though it has not begun, and what was
// denied or has failed says why.
func TestFeedFailed(t *testing.T) {
	f := &Feed{}
	take := func(kind agent.EventKind, id string, out agent.Output) {
		f.take(agent.Event{Kind: kind, Call: agent.Call{Name: "Bash", ID: id, Input: []byte(`"` + id + `"`)}, Output: out})
	}
	take(agent.TurnStartEvent, "", agent.Output{})
	take(agent.ToolDoneEvent, "denied", agent.Refuse("no rule allows it\nsee /permissions"))
	take(agent.ToolStartEvent, "ran", agent.Output{})
	take(agent.ToolDoneEvent, "ran", agent.Refuse("one\n\ntwo\n\nExit code 3\nError: output limit"))
	take(agent.ToolStartEvent, "fine", agent.Output{})
	take(agent.ToolDoneEvent, "fine", agent.Output{Text: "done"})
	take(agent.ToolStartEvent, "mute", agent.Output{})
	take(agent.ToolDoneEvent, "mute", agent.Refuse(""))
	var got []string
	for _, p := range f.pieces {
		got = append(got, string(p.Kind)+" "+p.Call+" "+p.Error)
	}
	want := "call denied |result denied no rule allows it|call ran |result ran Exit code 3 Error: output limit|" +
		"call fine |result fine |call mute |result mute it failed without a reason"
	if all := strings.Join(got, "|"); all != want {
		t.Errorf("%q, want %q", all, want)
	}
}

// What was said under an earlier host comes first, as it was seen there: with its times, its turns and what
// happened to tasks, without what the program has put in.
func TestPast(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0).UTC() }
	say := func(s int, r agent.Record, role agent.Role, blocks ...agent.Block) agent.Record {
		r.At, r.Message = at(s), agent.NewMessage(role, blocks...)
		return r
	}
	task1 := task.Record{ID: "b1", Kind: task.LocalBash, Backgrounded: true, Status: task.Running}
	ended := task1
	ended.Status = task.Completed
	records := []agent.Record{
		say(10, agent.Record{Prompt: 2}, agent.User, agent.TextBlock("<system-reminder>x</system-reminder>"), agent.TextBlock("look")),
		say(11, agent.Record{}, agent.Assistant, agent.TextBlock("I look."), agent.Block{Type: "tool_use", ID: "c", Name: "Glob", Input: []byte(`{"pattern":"*"}`)}),
		say(12, agent.Record{}, agent.User, agent.ToolResultBlock("c", "a.txt", false)),
		say(14, agent.Record{}, agent.Assistant, agent.TextBlock("There it is.")),
		say(20, agent.Record{Mail: []int64{7}}, agent.User, agent.TextBlock("<task-notification>b1</task-notification>")),
		say(21, agent.Record{}, agent.Assistant, agent.TextBlock("It is done.")),
		say(30, agent.Record{Prompt: 1, Typed: "/tidy"}, agent.User, agent.TextBlock("<command>tidy</command>")),
	}
	events := []task.Event{{Verb: task.Create, At: at(1), Task: task1}, {Verb: task.Create, At: at(13), Task: task.Record{ID: "b2", Kind: task.LocalBash}},
		{Verb: task.Complete, At: at(19), Task: ended}, {Verb: task.Create, At: at(31), Task: task.Record{ID: "a1", Kind: task.LocalAgent}}}
	f := &Feed{}
	f.seed(Past(records, events), 0)
	var got []string
	for _, p := range f.pieces {
		line := fmt.Sprintf("%d %s %s%s", p.At.Unix(), p.Kind, p.Tool, strings.TrimSpace(p.Text))
		if p.Running > 0 {
			line += fmt.Sprint(p.Running)
		}
		if p.Event != nil {
			line += string(p.Event.Verb) + " " + string(p.Event.Task.ID)
		}
		got = append(got, line)
	}
	want := []string{"10 begin look", "11 text I look.", `11 call Glob{"pattern":"*"}`, "12 result Globa.txt", "14 text There it is.", "14 end 1",
		"19 task complete b1", "20 begin ", "20 mail <task-notification>b1</task-notification>", "21 text It is done.", "21 end ",
		"30 begin /tidy", "30 end ", "31 task create a1"}
	if !slices.Equal(got, want) {
		t.Errorf("seen\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A turn leaves running what is in the background at the top: what waits in it, what is paused and what is below
// another task is not counted.
func TestRunning(t *testing.T) {
	main := task.Record{ID: "s1", AgentType: task.MainSession, Kind: task.LocalAgent, Backgrounded: true}
	live := []task.Record{main, {ID: "b1", Parent: "s1", Backgrounded: true}, {ID: "b2", Parent: "s1"}, {ID: "a1", Parent: "s1", Backgrounded: true},
		{ID: "b3", Parent: "a1", Backgrounded: true}, {ID: "b4", Parent: "s1", Backgrounded: true, Paused: true}}
	if n := Running(live); n != 2 {
		t.Errorf("%d tasks, want b1 and a1", n)
	}
}

// Notices of tasks count in what is kept: a conversation with thousands of tasks stays small.
func TestFeedNotices(t *testing.T) {
	var f Feed
	var log events
	for i := range 1000 {
		log = append(log, task.Event{Seq: task.Seq(i + 1), Verb: task.Create, Task: task.Record{ID: task.ID(fmt.Sprintf("a%08d", i)),
			Kind: task.LocalAgent, Status: task.Running, Backgrounded: true, Prompt: strings.Repeat("x", 16<<10)}})
	}
	if err := f.CatchUp(t.Context(), &log); err != nil {
		t.Fatal(err)
	}
	if n := len(f.pieces); n == 0 || n > feedBytes/(16<<10) {
		t.Errorf("%d notices of 16 KiB are kept, in a bound of %d bytes", n, feedBytes)
	}
}

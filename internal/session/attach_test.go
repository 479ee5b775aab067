package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// watched is somebody who is attached.
type watched struct {
	r      *rig
	pieces chan control.Piece
	leave  context.CancelFunc
	over   chan error
}

// watch attaches to the session, and returns when that is known.
func (r *rig) watch() *watched {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.ctx)
	w := &watched{r: r, pieces: make(chan control.Piece, 1000), leave: cancel, over: make(chan error, 1)}
	s := r.Session
	go func() { // ends with its context, or with the session
		var last error
		for p, err := range s.Watch(ctx, control.WatchRequest{}) {
			if last = err; err == nil {
				w.pieces <- p
			}
		}
		w.over <- last
	}()
	r.t.Cleanup(cancel)
	w.until(control.OpenPiece, "")
	return w
}

// until waits for a piece of a kind whose text holds another.
func (w *watched) until(kind control.PieceKind, text string) control.Piece {
	w.r.t.Helper()
	for {
		select {
		case p := <-w.pieces:
			if p.Kind == kind && strings.Contains(p.Text, text) {
				return p
			}
		case err := <-w.over:
			w.r.t.Fatalf("the watch ended (%v) before %s %q", err, kind, text)
		case <-w.r.ctx.Done():
			w.r.t.Fatalf("no %s %q", kind, text)
		}
	}
}

func (w *watched) gone() {
	w.leave()
	<-w.over
}

// hosted opens a conversation that somebody may attach to.
func (r *rig) hosted(ceiling time.Duration) *Main {
	r.t.Helper()
	m, err := r.OpenMain(r.ctx, MainConfig{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.HostMain(m, ceiling)
	return m
}

func (r *rig) prompt(text string) {
	r.t.Helper()
	if err := r.Prompt(r.ctx, control.PromptRequest{Text: text}); err != nil {
		r.t.Fatal(err)
	}
}

// comes waits for an event of a task.
func (r *rig) comes(id task.ID, verb task.Verb) task.Event {
	r.t.Helper()
	for e, err := range r.Events(r.ctx, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		if e.Task.ID == id && e.Verb == verb {
			return e
		}
	}
	r.t.Fatalf("no %s of %s", verb, id)
	return task.Event{}
}

// Without anybody each prompt is a run of its own; while somebody is attached the
// run rests, and what it has started goes on; when the last has gone it ends.
func TestHosted(t *testing.T) {
	r := open(t, `
  main:
    - {text: one}
    - {text: two}
    - tools: [{name: Bash, input: {command: "sleep 600", run_in_background: true}}]
    - {text: started}
    - {text: three}
`)
	id := r.cfg.Info.Session
	m := r.hosted(time.Nanosecond)
	if m.under() {
		t.Error("a run is under way before the first prompt")
	}
	for _, want := range []string{"one", "two"} {
		r.prompt("go")
		if done := r.wait(string(id))[0]; done.Status != task.Completed || m.Last().Result.Text != want {
			t.Errorf("%s: %s, %q", want, done.Status, m.Last().Result.Text)
		}
	}
	w := r.watch()
	if p := w.until(control.BeginPiece, ""); p.Text != "go" || p.N != 1 {
		t.Errorf("what was said before begins with %+v", p)
	}
	r.prompt("the third")
	w.until(control.BeginPiece, "the third")
	w.until(control.CallPiece, "sleep 600")
	w.until(control.TextPiece, "started")
	r.comes(id, task.Rest)
	page, err := r.List(r.ctx, control.ListRequest{})
	if err != nil || len(page.Tasks) != 2 {
		t.Fatalf("tasks %v, %v: the command ended although somebody is attached", page.Tasks, err)
	}
	r.prompt("more")
	w.until(control.TextPiece, "three")
	if r.Retire() {
		t.Error("the session retires while somebody is attached")
	}
	w.gone()
	done := r.wait(string(id))[0]
	if done.Status != task.Failed && done.Status != task.Completed || done.Resumes != 2 {
		t.Errorf("run %s, %d resumes", done.Status, done.Resumes)
	}
	if page, err = r.List(r.ctx, control.ListRequest{}); err != nil || len(page.Tasks) != 0 {
		t.Errorf("left running: %v, %v", page.Tasks, err)
	}
	if !r.Retire() {
		t.Fatal("the session does not retire")
	}
	for _, err := range r.Session.Watch(r.ctx, control.WatchRequest{}) {
		if !control.Refused(err) {
			t.Errorf("somebody attached to a session that is ending: %v", err)
		}
	}
	if err := r.Prompt(r.ctx, control.PromptRequest{Text: "late"}); !control.Refused(err) {
		t.Errorf("a late prompt: %v", err)
	}
}

// A prompt that comes while commands are stopped at the ceiling is answered.
func TestHostedAtCeiling(t *testing.T) {
	r := open(t, `
  main:
    - tools: [{name: Bash, input: {command: "mkfifo set free hold; trap 'read x < free; exit 0' TERM; echo > set; sleep 600 & wait", run_in_background: true}}]
    - tools: [{name: Bash, input: {command: "until [ -p set ]; do sleep 0.01; done; read x < set"}}]
    - {text: started}
    - tools: [{name: Bash, input: {command: "read x < hold # here"}}]
    - {text: two}
`)
	m := r.hosted(time.Nanosecond)
	r.prompt("go")
	var command task.ID
	r.eventually(func() bool {
		for _, rec := range r.sup.List(0) {
			if rec.Stopping {
				command = rec.ID
			}
		}
		return command != ""
	})
	r.prompt("and the second")
	r.eventually(func() bool {
		for _, rec := range r.sup.List(0) {
			if strings.HasSuffix(rec.Command, "# here") && rec.Status == task.Running {
				return true
			}
		}
		return false
	})
	release := func(fifo string) {
		f, err := os.OpenFile(filepath.Join(r.folder, fifo), os.O_RDWR, 0) // also when nobody reads any more
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if _, err := f.WriteString("go\n"); err != nil {
			t.Fatal(err)
		}
	}
	release("free")
	r.wait(string(command))
	release("hold")
	if done := r.wait(string(r.cfg.Info.Session))[0]; done.Status != task.Completed || m.Last().Result.Text != "two" {
		t.Errorf("%s: %q, %v", done.Status, m.Last().Result.Text, m.Last().Err)
	}
}

// An interrupt breaks off the turn, and neither the run nor what it has started.
func TestHostedInterrupt(t *testing.T) {
	r := open(t, `
  main:
    - tools: [{name: Bash, input: {command: "sleep 600", run_in_background: true}}]
    - tools: [{name: Bash, input: {command: "sleep 601"}}]
    - {text: again}
`)
	id := r.cfg.Info.Session
	r.hosted(time.Minute)
	w := r.watch()
	r.prompt("go")
	w.until(control.CallPiece, "sleep 601")
	if _, err := r.Interrupt(r.ctx, string(id)); err != nil {
		t.Fatal(err)
	}
	for p := w.until(control.EndPiece, ""); !strings.Contains(p.Error, ErrInterrupted.Error()); {
		t.Fatalf("ended with %q", p.Error)
	}
	r.comes(id, task.Rest)
	r.prompt("again")
	w.until(control.TextPiece, "again")
	page, err := r.List(r.ctx, control.ListRequest{})
	if err != nil || len(page.Tasks) != 2 {
		t.Errorf("alive: %v, %v", page.Tasks, err)
	}
	w.gone()
}

// Prompts that no turn has begun with when their host ended are told with the next
// one, once, and begin no turn of their own.
func TestHostedPromptsWait(t *testing.T) {
	r := open(t, `
  main:
    - tools: [{name: Bash, input: {command: "sleep 600"}}]
    - {text: "{{last}}", repeat: -1}
`)
	r.hosted(time.Nanosecond)
	w := r.watch()
	r.prompt("first")
	w.until(control.CallPiece, "sleep 600")
	r.prompt("the <second>")
	r.prompt("third")
	r.reopen()
	m := r.hosted(time.Nanosecond)
	w = r.watch()
	w.until(control.NotePiece, "the <second>")
	w.until(control.NotePiece, "third")
	w.gone()
	r.prompt("fourth")
	r.wait(string(r.cfg.Info.Session))
	got := m.Last().Result.Text
	at := 0
	for _, want := range []string{"<waiting-prompt>\nthe &lt;second&gt;\n", "<waiting-prompt>\nthird\n", "fourth"} {
		i := strings.Index(got[at:], want)
		if i < 0 || strings.Count(got, want) != 1 {
			t.Fatalf("%q is not told, or twice, or not in its place: %q", want, got)
		}
		at += i
	}
	r.prompt("fifth")
	r.wait(string(r.cfg.Info.Session))
	if got := m.Last().Result.Text; got != "fifth" || m.standing().turned != 2 {
		t.Errorf("%d turns, the last was told %q", m.standing().turned, got)
	}
	if unread, err := r.log.Unread(r.ctx, r.cfg.Info.Session); err != nil || len(unread) != 0 {
		t.Errorf("unread %+v, %v", unread, err)
	}
}

// A run that failed before it took prompts keeps none of the next.
func TestHostedNeverBegun(t *testing.T) {
	r := open(t, "\n  main:\n    - {text: \"{{last}}\", repeat: -1}\n")
	id := r.cfg.Info.Session
	m := r.hosted(time.Nanosecond)
	out := r.cfg.Place.Output(id)
	if err := errors.Join(os.MkdirAll(filepath.Dir(out), 0o700), os.WriteFile(out, nil, 0o600)); err != nil { // so the run cannot make it
		t.Fatal(err)
	}
	r.prompt("first")
	if done := r.wait(string(id))[0]; done.Status != task.Failed || !m.under() {
		t.Fatalf("it ran: %+v", done)
	}
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	r.prompt("second")
	r.wait(string(id))
	if got := m.Last().Result.Text; !strings.Contains(got, "<waiting-prompt>\nfirst\n") || !strings.HasSuffix(got, "second") {
		t.Errorf("told %q", got)
	}
}

// What a mailbox holds of others does not keep the user from asking for something.
func TestPromptBesideMail(t *testing.T) {
	r := open(t, "\n  main:\n    - {text: \"{{last}}\", repeat: -1}\n")
	id := r.cfg.Info.Session
	for range task.MaxUnread {
		if _, err := r.sup.Post(r.ctx, task.Message{To: id, From: "x", Kind: task.PlainMessage, Text: "mail"}); err != nil {
			t.Fatal(err)
		}
	}
	m := r.hosted(time.Nanosecond)
	r.prompt("go")
	r.wait(string(id))
	if got := m.Last().Result.Text; strings.Count(got, "mail") != task.MaxUnread || !strings.HasSuffix(got, "go") {
		t.Errorf("told %.300q", got)
	}
	if err := r.Prompt(r.ctx, control.PromptRequest{Text: strings.Repeat("x", task.MaxPromptBytes+1)}); code(err) != control.Invalid {
		t.Errorf("a prompt that is too long: %v", err)
	}
}

// A conversation that somebody has begun and left without a word is none.
func TestHostedUnused(t *testing.T) {
	r := open(t, "\n  main:\n    - {text: one}\n")
	r.hosted(time.Minute)
	w := r.watch()
	w.gone()
	r.close()
	r.reopen() // its folder is gone, so this is a new one
	if r.log.Last() != 0 {
		t.Error("something is left of it")
	}
}

func TestAudience(t *testing.T) {
	left := 0
	a := &audience{left: func() { left++ }}
	ready := func() bool { return true }
	a.expect(time.Hour)
	if a.retire(ready) {
		t.Error("retired before the guest came")
	}
	first, err := a.come()
	second, worse := a.come()
	if err != nil || worse != nil {
		t.Fatal(err, worse)
	}
	here, same := a.now()
	first()
	first() // once is enough
	if !here || same.Err() != nil || left != 0 || a.retire(ready) {
		t.Errorf("one of two has gone: here %v, %d told", here, left)
	}
	second()
	if same.Err() == nil || left != 1 {
		t.Errorf("the last has gone: %d told", left)
	}
	if here, _ := a.now(); here {
		t.Error("somebody is left: the guest was counted twice")
	}
	if a.retire(func() bool { return false }) {
		t.Error("retired although something is left to do")
	}
	if !a.retire(ready) {
		t.Error("does not retire")
	}
	if _, err := a.come(); !errors.Is(err, errRetired) {
		t.Errorf("somebody came late: %v", err)
	}
}

func TestAudienceGuest(t *testing.T) {
	gone := make(chan struct{})
	a := &audience{left: func() { close(gone) }}
	a.expect(time.Nanosecond)
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("a guest who does not come is waited for")
	}
}

// TestFeed has readers with marks of their own.
func TestFeed(t *testing.T) {
	read := func(f *feed, at control.Mark) (out []string, last control.Mark) {
		for {
			p, ok, _ := f.next(at)
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
	f := &feed{}
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
	f.end(agent.TurnResult{Text: "Hello"}, nil)
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
	f.end(agent.TurnResult{Text: "by no model"}, errors.New("broken"))
	if n := len(f.pieces); f.pieces[n-2].Text != "by no model" || f.pieces[n-1].Error != "broken" {
		t.Errorf("the end: %+v", f.pieces[n-2:])
	}
}

// What came of a reply that failed is said to be void, and that it is asked for again.
func TestFeedVoid(t *testing.T) {
	f := &feed{}
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
	f.end(agent.TurnResult{}, nil)
	var got []string
	for _, p := range f.pieces {
		got = append(got, string(p.Kind)+" "+p.Text)
	}
	want := "begin go|text half a sent\n|note the partial answer above is discarded|note model call failed: connection reset (retry 2 of 9 in 4s)|text whole|end "
	if all := strings.Join(got, "|"); all != want {
		t.Errorf("%q, want %q", all, want)
	}
}

// What was said under an earlier host comes first, without what the program has
// put in.
func TestFeedSeed(t *testing.T) {
	f := &feed{}
	f.seed([]agent.Message{
		agent.NewMessage(agent.User, agent.TextBlock("<system-reminder>x</system-reminder>"), agent.TextBlock("look")),
		agent.NewMessage(agent.Assistant, agent.TextBlock("I look."), agent.Block{Type: "tool_use", ID: "c", Name: "Glob", Input: []byte(`{"pattern":"*"}`)}),
		agent.NewMessage(agent.User, agent.ToolResultBlock("c", "a.txt", false)),
		agent.NewMessage(agent.Assistant, agent.TextBlock("There it is.")),
	})
	var got []string
	for _, p := range f.pieces {
		got = append(got, fmt.Sprintf("%s %s%s", p.Kind, p.Tool, p.Text))
	}
	want := `begin look|text I look.
|call Glob{"pattern":"*"}|result Globa.txt|text There it is.
|end `
	if all := strings.Join(got, "|"); all != want {
		t.Errorf("seeded %q, want %q", all, want)
	}
}

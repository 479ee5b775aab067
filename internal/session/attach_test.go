package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/task"
)

// watched is somebody who is attached.
type watched struct {
	r      *testSession
	pieces chan control.Piece
	leave  context.CancelFunc
	over   chan error
}

// watch attaches to the session, and returns when that is known.
func (r *testSession) watch() *watched {
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
func (r *testSession) hosted(ceiling time.Duration) *Main {
	r.t.Helper()
	m, err := r.OpenMain(r.ctx, MainConfig{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.HostMain(m, ceiling)
	return m
}

// start begins a run of a main agent with a prompt.
func (r *testSession) start(m *Main, prompt string, ceiling time.Duration) task.Record {
	r.t.Helper()
	if !m.Hosted() {
		r.HostMain(m, ceiling)
	}
	r.prompt(prompt)
	rec, _ := r.sup.Get(r.cfg.Info.Session)
	return rec
}

// accepts reports whether a run of a main agent accepts prompts.
func accepts(m *Main) bool {
	at, _ := m.State()
	return at.Phase == conversation.Idle || at.Phase == conversation.Busy
}

func (r *testSession) prompt(text string) {
	r.t.Helper()
	if err := r.Prompt(r.ctx, control.PromptRequest{Text: text}); err != nil {
		r.t.Fatal(err)
	}
}

// comes waits for an event of a task.
func (r *testSession) comes(id task.ID, verb task.Verb) task.Event {
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
	if accepts(m) {
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
		t.Errorf("%s: %q, %v; %+v, %s", done.Status, m.Last().Result.Text, m.Last().Err, done.Cause, done.Error)
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
	for p := w.until(control.EndPiece, ""); !strings.Contains(p.Error, conversation.ErrInterrupted.Error()); {
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
	if got := m.Last().Result.Text; got != "fifth" || turned(m) != 2 {
		t.Errorf("%d turns, the last was told %q", turned(m), got)
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
	if done := r.wait(string(id))[0]; done.Status != task.Failed || !accepts(m) {
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

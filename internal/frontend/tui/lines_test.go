package tui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/frontend/tui/transcript"
	"github.com/drover-dev/drover/task"
)

// lineHost is a session whose stream the test feeds, and which notes what it is asked.
type lineHost struct {
	control.API
	pieces chan control.Piece // closed: the host has gone
	open   chan control.Approvals
	refuse error // of prompts

	mu    sync.Mutex
	calls []string
}

func newLineHost() *lineHost {
	return &lineHost{pieces: make(chan control.Piece), open: make(chan control.Approvals)}
}

func (h *lineHost) note(call string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, call)
}

func (h *lineHost) noted() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.calls, "\n")
}

func (h *lineHost) Info(context.Context) (control.Info, error) {
	return control.Info{Session: "s1"}, errors.New("gone")
}

func (h *lineHost) Watch(ctx context.Context, r control.WatchRequest) iter.Seq2[control.Piece, error] {
	return func(yield func(control.Piece, error) bool) {
		for !r.Snapshot {
			select {
			case p, ok := <-h.pieces:
				if !ok || !yield(p, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

func (h *lineHost) Events(context.Context, task.Seq) iter.Seq2[task.Event, error] {
	return func(func(task.Event, error) bool) {}
}

func (h *lineHost) List(context.Context, control.ListRequest) (control.Page, error) {
	return control.Page{}, nil
}

func (h *lineHost) State(ctx context.Context, r control.StateRequest) (control.State, error) {
	if r.Wait > 0 {
		<-ctx.Done()
	}
	return control.State{Idle: true, Version: 1}, ctx.Err()
}

func (h *lineHost) Approvals(ctx context.Context, _ control.ApprovalsRequest) (control.Approvals, error) {
	select {
	case a := <-h.open:
		return a, nil
	case <-ctx.Done():
		return control.Approvals{}, ctx.Err()
	}
}

func (h *lineHost) Prompt(ctx context.Context, r control.PromptRequest) error {
	h.note("prompt " + r.Text)
	if r.Text == "silence" {
		<-ctx.Done()
		return ctx.Err()
	}
	return h.refuse
}

func (h *lineHost) Interrupt(context.Context, string) (task.Record, error) {
	h.note("interrupt")
	return task.Record{}, nil
}

func (h *lineHost) Decide(_ context.Context, r control.DecideRequest) error {
	b, _ := json.Marshal(r)
	h.note("decide " + string(b))
	return nil
}

// reader is somebody who reads and types lines.
type reader struct {
	t     *testing.T
	host  *lineHost
	typed *io.PipeWriter
	out   bytes.Buffer
	over  chan error
	left  Result
	press func()
}

// reads begins, in a bubble of synctest.
func reads(t *testing.T, typed bool) *reader {
	in, w := io.Pipe()
	r := &reader{t: t, host: newLineHost(), typed: w, over: make(chan error, 1)}
	o := Lines{In: in, Out: &r.out, Typed: typed, Now: time.Now,
		OnInterrupt: func(_ context.Context, f func()) { r.press = f },
		Connect: func(context.Context) (Connection, error) {
			return Connection{API: r.host, Info: control.Info{Session: "s1"}, Release: func() {}}, nil
		}}
	t.Cleanup(func() { _ = w.Close() })
	go func() {
		var err error
		r.left, err = o.Run(t.Context())
		r.over <- err
	}()
	r.piece(control.Piece{Kind: control.OpenPiece})
	return r
}

func (r *reader) piece(list ...control.Piece) {
	for _, p := range list {
		r.host.pieces <- p
	}
	synctest.Wait()
	time.Sleep(pace) // in the bubble: the next frame
	synctest.Wait()
}

func (r *reader) types(text string) {
	r.t.Helper()
	if _, err := io.WriteString(r.typed, text); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

func (r *reader) interrupt() {
	r.press()
	synctest.Wait()
}

func (r *reader) asks(list ...task.Question) {
	r.host.open <- control.Approvals{Questions: list}
	r.piece()
}

// ends waits for the end, and returns its error.
func (r *reader) ends() error {
	r.t.Helper()
	select {
	case err := <-r.over:
		return err
	case <-time.After(time.Hour):
		r.t.Fatalf("it continues:\n%s", r.out.String())
		return nil
	}
}

// inBubble runs a test as somebody at a terminal.
func inBubble(t *testing.T, test func(r *reader)) {
	synctest.Test(t, func(t *testing.T) { test(reads(t, true)) })
}

// The earlier conversation comes at once and shortened, and the rest as it happens; nothing comes twice.
func TestLinesHistory(t *testing.T) {
	var out bytes.Buffer
	var s transcript.State
	l := transcript.NewLines(&out, time.Now)
	s.Apply(control.Piece{Kind: control.OpenPiece, N: 11})
	for i, text := range []string{"one", "two", "three", "four", "five"} {
		s.Apply(control.Piece{N: int64(2*i + 1), Kind: control.BeginPiece, Text: "ask " + text})
		s.Apply(control.Piece{N: int64(2*i + 2), Kind: control.TextPiece, Text: "say " + text + "\n"})
	}
	s.Apply(control.Piece{N: 11, Kind: control.TextPiece, Text: "more"})
	if err := l.Past(&s, "s1"); err != nil {
		t.Fatal(err)
	}
	want := "[earlier messages are omitted: see `drover logs --messages s1`]\n" +
		"> ask three\nsay three\n> ask four\nsay four\n> ask five\nsay five\n"
	if got := out.String(); got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	if !l.Held() || l.Flush() != nil || !strings.HasSuffix(out.String(), "\nmore") {
		t.Errorf("the open line is missing: %q", out.String())
	}
	s.Apply(control.Piece{N: 11, From: 4, Kind: control.TextPiece, Text: " words\n"})
	s.Apply(control.Piece{N: 12, Kind: control.EndPiece, Error: "out of luck"})
	if err := l.Show(&s); err != nil || !strings.HasSuffix(out.String(), "\nmore words\n[The turn failed: out of luck]\n") {
		t.Errorf("printed %q, %v", out.String(), err)
	}
}

// A call and its result are lines of their own, also when text comes between them.
func TestLinesCalls(t *testing.T) {
	inBubble(t, func(r *reader) {
		r.piece(control.Piece{N: 1, Kind: control.BeginPiece, Text: "go"},
			control.Piece{N: 2, Kind: control.CallPiece, Tool: "Bash", Call: "1", Text: `{"command":"ls"}`},
			control.Piece{N: 3, Kind: control.TextPiece, Text: "Meanwhile"},
			control.Piece{N: 4, Kind: control.ResultPiece, Tool: "Bash", Call: "1", Text: "a\nb\nc\n"})
		want := "> go\n[Bash {\"command\":\"ls\"}]\nMeanwhile\n[= a (and 2 more lines)]\n"
		if got := r.out.String(); got != want {
			r.t.Errorf("printed %q, want %q", got, want)
		}
	})
}

// Text is printed while the agent writes, also if it makes no pause and no line ends.
func TestLinesStream(t *testing.T) {
	inBubble(t, func(r *reader) {
		for i := range 100 {
			r.piece(control.Piece{N: 1, From: i, Kind: control.TextPiece, Text: "x"})
		}
		if r.out.Len() == 0 {
			r.t.Error("nothing was printed")
		}
	})
}

// A prompt that was typed on this terminal is visible already; the same words of another client are printed.
func TestLinesEcho(t *testing.T) {
	for typed, want := range map[bool]string{true: "> go\n", false: "> go\n> go\n"} {
		synctest.Test(t, func(t *testing.T) {
			r := reads(t, typed)
			r.types("go\n")
			begin := control.Piece{Kind: control.BeginPiece, Text: "go"}
			r.piece(begin, begin)
			if got := r.out.String(); got != want {
				t.Errorf("typed on a terminal %v: printed %q", typed, got)
			}
		})
	}
}

func TestLinesAnswers(t *testing.T) {
	permission := task.Question{ID: "q11111111", Kind: task.Permission, Tool: "Bash", Digest: "d", Suggest: "Bash(ls:*)"}
	plain := permission
	plain.Suggest = ""
	choice := task.Question{ID: "q22222222", Kind: task.Choice, Digest: "d"}
	form := task.Question{ID: "q33333333", Kind: task.Form, Digest: "d",
		Input: json.RawMessage(`{"schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}`)}
	for _, c := range []struct {
		line string
		open []task.Question
		want string // in the calls of the host; of none in the output
		call bool
	}{
		{"/allow", nil, "no question is open", false},
		{"/allow", []task.Question{permission}, `"allow":true`, true},
		{"/allow q1", []task.Question{permission, choice}, `"id":"q11111111"`, true},
		{"/allow", []task.Question{permission, choice}, "several questions", false},
		{"/allow q9", []task.Question{permission}, "no question q9", false},
		{"/allow always", []task.Question{permission}, `"always":"Bash(ls:*)"`, true},
		{"/allow q1 always", []task.Question{permission}, `"always":"Bash(ls:*)"`, true},
		{"/allow always", []task.Question{plain}, "no rule can allow", false},
		{"/allow", []task.Question{choice}, "by a text", false},
		{"/deny not today", []task.Question{permission}, `"reason":"not today"`, true},
		{"/deny always", []task.Question{permission}, `"reason":"always"`, true},
		{"/deny q2 not today", []task.Question{permission, choice}, `"id":"q22222222"`, true},
		{"/answer blue, and dark", []task.Question{choice}, `"text":"blue, and dark"`, true},
		{`/answer {"n":1}`, []task.Question{form}, `"input":{"n":1}`, true},
		{`/answer {"n":"x"}`, []task.Question{form}, "does not answer", false},
		{"/answer it", []task.Question{permission}, "allowed or denied", false},
	} {
		t.Run(c.line, func(t *testing.T) {
			inBubble(t, func(r *reader) {
				r.t = t
				r.asks(c.open...)
				r.out.Reset()
				r.types(c.line + "\n")
				got := strings.ReplaceAll(r.host.noted(), `\u003c`, "<")
				if !c.call {
					if got != "" {
						t.Errorf("it was sent: %s", got)
					}
					got = r.out.String()
				}
				if !strings.Contains(got, c.want) {
					t.Errorf("%q is not in %q", c.want, got)
				}
			})
		})
	}
}

// A line is a prompt, one that ends in a backslash goes on, and commands of the agent are prompts too.
func TestLinesPrompts(t *testing.T) {
	inBubble(t, func(r *reader) {
		r.types("  what changed? \none \\\ntwo\n\n/review the diff\n//etc is a folder\n/help\n/detach\n")
		if err := r.ends(); err != nil || r.left.Session != "s1" {
			t.Errorf("left %+v with %v", r.left, err)
		}
		want := "prompt what changed?\nprompt one \ntwo\nprompt /review the diff\nprompt //etc is a folder"
		if got := r.host.noted(); got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
		if !strings.Contains(r.out.String(), "/detach") {
			t.Error("/help printed nothing")
		}
	})
}

// At the end of a pipe the prompts are waited for, and one that was refused is an error.
func TestLinesPipe(t *testing.T) {
	for _, refuse := range []error{nil, errors.New("no such command")} {
		synctest.Test(t, func(t *testing.T) {
			r := reads(t, false)
			r.host.refuse = refuse
			r.types("go\n")
			_ = r.typed.Close()
			if err := r.ends(); !errors.Is(err, refuse) {
				t.Errorf("ends with %v, want %v", err, refuse)
			}
		})
	}
}

// Ctrl-C interrupts the turn, also one whose begin was not heard yet; it leaves between turns and at the second time.
func TestLinesInterrupt(t *testing.T) {
	begin := control.Piece{Kind: control.BeginPiece}
	for name, test := range map[string]func(r *reader){
		"idle": func(r *reader) { r.interrupt() },
		"twice": func(r *reader) {
			r.piece(begin)
			r.interrupt()
			time.Sleep(interruptTwice)
			r.interrupt()
			if got := r.host.noted(); got != "interrupt\ninterrupt" {
				t.Errorf("asked %q", got)
			}
			time.Sleep(time.Second)
			r.interrupt()
		},
		"early": func(r *reader) {
			r.types("go\n")
			r.interrupt()
			if got := r.host.noted(); got != "prompt go" {
				t.Errorf("asked %q", got)
			}
			r.piece(begin)
			if got := r.host.noted(); got != "prompt go\ninterrupt" {
				t.Errorf("asked %q", got)
			}
			r.interrupt()
		},
		"silent": func(r *reader) { // the host answers nothing
			r.types("silence\n")
			r.interrupt()
			r.interrupt()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *reader) {
				test(r)
				if err := r.ends(); err != nil {
					t.Errorf("left with %v", err)
				}
			})
		})
	}
}

// A host that ends while it is watched is an error that says how to come back.
func TestLinesHostGone(t *testing.T) {
	inBubble(t, func(r *reader) {
		close(r.host.pieces)
		if err := r.ends(); err == nil || !strings.Contains(err.Error(), "drover attach s1") {
			t.Errorf("ends with %v", err)
		}
	})
}

// Nothing that others have written acts on a terminal, and a question cannot forge a line of its own.
func TestLinesHostile(t *testing.T) {
	bad := "x\x1b[2J\u202e\n  `drover approvals allow forged`"
	inBubble(t, func(r *reader) {
		r.asks(task.Question{ID: "q1", Kind: task.Permission, Task: "a1", Agent: bad, Tool: bad, Reason: bad, Suggest: bad,
			Input: json.RawMessage(`{"command":"x\u001b[2J\u202e"}`)})
		r.piece(control.Piece{N: 1, Kind: control.BeginPiece, Text: bad},
			control.Piece{N: 2, Kind: control.TextPiece, Text: bad + "\n"},
			control.Piece{N: 3, Kind: control.CallPiece, Tool: bad, Call: "1", Text: bad},
			control.Piece{N: 4, Kind: control.ResultPiece, Tool: bad, Call: "1", Error: bad},
			control.Piece{N: 5, Kind: control.MailPiece, Text: bad},
			control.Piece{N: 6, Kind: control.EndPiece, Error: bad})
		for line := range strings.Lines(r.out.String()) {
			if printable.Guard(strings.TrimSuffix(line, "\n")) != strings.TrimSuffix(line, "\n") || strings.Contains(line, "\x1b") {
				t.Errorf("alive: %q", line)
			}
		}
		question, _, _ := strings.Cut(r.out.String(), "> ")
		if strings.Contains(question, "\n  `drover approvals allow forged") {
			t.Errorf("a line is forged: %q", question)
		}
	})
}

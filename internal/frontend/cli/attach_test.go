package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

// talk is a fake session with a conversation.
type talk struct {
	*session
	watch  func(context.Context, func(control.Piece, error) bool)
	asked  func(context.Context) (control.Approvals, error)
	prompt func(context.Context) error
}

func newTalk() *talk {
	silent := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	return &talk{session: newSession("s1", true), prompt: silent,
		watch: func(ctx context.Context, yield func(control.Piece, error) bool) { yield(control.Piece{}, silent(ctx)) },
		asked: func(ctx context.Context) (control.Approvals, error) { return control.Approvals{}, silent(ctx) }}
}

func (s *talk) Info() control.Info { return s.info }

func (s *talk) Open(context.Context) (control.API, func(), error) { return talkAPI{s}, func() {}, nil }

func (s *talk) Reach(ctx context.Context) (control.API, func(), error) { return s.Open(ctx) }

// talkAPI is what the host of such a session answers.
type talkAPI struct{ *talk }

func (s talkAPI) Info(context.Context) (control.Info, error) { return s.info, nil }

func (s talkAPI) Watch(ctx context.Context, _ control.WatchRequest) iter.Seq2[control.Piece, error] {
	return func(yield func(control.Piece, error) bool) {
		if yield(control.Piece{Kind: control.OpenPiece}, nil) {
			s.watch(ctx, yield)
		}
	}
}

func (s talkAPI) Approvals(ctx context.Context, _ control.ApprovalsRequest) (control.Approvals, error) {
	return s.asked(ctx)
}

func (s talkAPI) State(context.Context, control.StateRequest) (control.State, error) {
	return control.State{}, nil
}

func (s talkAPI) Prompt(ctx context.Context, _ control.PromptRequest) error { return s.prompt(ctx) }

// attached is somebody at such a session.
type attached struct {
	typed io.WriteCloser
	over  chan error

	mu    sync.Mutex
	out   bytes.Buffer
	shown chan struct{} // capacity 1: something was shown
	press func()
}

func (p *attached) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.shown <- struct{}{}:
	default:
	}
	return p.out.Write(b)
}

// interrupt is an INT, which is for whoever wants the next.
func (p *attached) interrupt() {
	p.mu.Lock()
	f := p.press
	p.press = nil
	p.mu.Unlock()
	if f != nil {
		f()
	}
}

func (s *talk) attach(t *testing.T) *attached {
	in, typed := io.Pipe()
	t.Cleanup(func() { _ = typed.Close() }) // the reader of stdin ends with it
	p := &attached{typed: typed, over: make(chan error, 1), shown: make(chan struct{}, 1)}
	d := Deps{Console: console.Console{Stdin: in, Stdout: p, Stderr: io.Discard, OnInterrupt: func(_ context.Context, f func()) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.press = f
	}}}
	ctx, cancel := context.WithTimeoutCause(t.Context(), testPatience, errors.New("it goes on for ever"))
	t.Cleanup(cancel)
	go func() {
		p.over <- d.app().converse(ctx, func(context.Context) (console.Session, error) { return s, nil })
	}() // ends with ctx
	return p
}

// What an agent writes is shown while it writes, also when it makes no pause and no line ends.
func TestAttachStreams(t *testing.T) {
	s := newTalk()
	stop := make(chan struct{})
	s.watch = func(ctx context.Context, yield func(control.Piece, error) bool) {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
			case <-stop:
				return
			case <-ctx.Done():
				return
			}
			if !yield(control.Piece{N: 1, From: n, Kind: control.TextPiece, Text: "x"}, nil) {
				return
			}
		}
	}
	p := s.attach(t)
	select {
	case <-p.shown:
		close(stop)
	case <-t.Context().Done():
	}
	if err := <-p.over; err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("nothing was shown before %v", err)
	}
}

// A host that does not answer keeps nobody who presses Ctrl-C twice.
func TestAttachLeavesSilentHost(t *testing.T) {
	s := newTalk()
	asked := make(chan struct{})
	s.prompt = func(ctx context.Context) error {
		close(asked)
		<-ctx.Done()
		return context.Cause(ctx)
	}
	p := s.attach(t)
	if _, err := io.WriteString(p.typed, "hello\n"); err != nil {
		t.Fatal(err)
	}
	recv(t, asked, "prompt")
	p.interrupt()
	p.interrupt()
	if err := <-p.over; err != nil {
		t.Errorf("left with %v", err)
	}
}

// A host that answers with errors is not asked for ever.
func TestAttachGivesUp(t *testing.T) {
	broken := errors.New("the log cannot be read")
	for name, spoil := range map[string]func(*talk){
		"questions": func(s *talk) {
			s.asked = func(context.Context) (control.Approvals, error) { return control.Approvals{}, broken }
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTalk()
			spoil(s)
			if err := <-s.attach(t).over; err == nil || !strings.Contains(err.Error(), broken.Error()) {
				t.Errorf("ends with %v", err)
			}
		})
	}
}

// A host that is about to go ends its streams: what becomes of what is watched is told
// by whoever watches that.
func TestAttachOutlivesStreams(t *testing.T) {
	going := &control.Error{Code: control.Unavailable, Message: "the session is closing"}
	for name, spoil := range map[string]func(*talk){
		"questions": func(s *talk) {
			s.asked = func(context.Context) (control.Approvals, error) { return control.Approvals{}, going }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTalk()
				spoil(s)
				p := s.attach(t)
				synctest.Wait()
				select {
				case err := <-p.over:
					t.Errorf("ends with %v", err)
					return
				default:
				}
				p.interrupt()
				synctest.Wait()
				p.interrupt()
				if err := <-p.over; err != nil {
					t.Errorf("left with %v", err)
				}
			})
		})
	}
}

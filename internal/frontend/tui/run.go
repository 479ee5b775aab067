package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/daypart"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/task"
)

// Connection is a session that is reached.
type Connection struct {
	API     control.API
	Info    control.Info
	Release func() // lets go of it
}

// Options are what the UI works with. In, Out and Connect are required.
type Options struct {
	In  io.Reader
	Out io.Writer
	Env []string         // of the terminal
	Now func() time.Time // nil: time.Now

	Version string
	Folder  string // the project

	// Connect reaches the session, or its next host after one has gone.
	Connect func(context.Context) (Connection, error)
	// Later says that it is reached with the first prompt only, which may be given already.
	Later  bool
	Prompt string
	// Sessions lists the conversations, and Switch reaches another one, which Connect reaches
	// from then on. Nil: the UI has one conversation. Choose lets the user choose one first.
	Sessions func(context.Context) ([]Conversation, error)
	Switch   func(context.Context, task.ID) (Connection, error)
	Choose   bool

	History []string           // prompts of before, oldest first
	Record  func(string) error // keeps a prompt for the next time; may be nil
	// Files lists the files of the project by their paths in it; nil: none are known.
	Files func(context.Context) ([]string, error)
	// Image reads an image from a file of the user, Clipboard one from the clipboard; nil:
	// they cannot be read. Sees reports whether a model sees images; nil: all do.
	Image     func(ctx context.Context, path string) (control.Image, error)
	Clipboard func(context.Context) (control.Image, error)
	Sees      func(model string) bool
	// Todos reads the to-dos of the session; nil: none are known.
	Todos func(context.Context, task.ID) (todo.List, error)

	// Suspend suspends the process until it is continued; nil: it cannot.
	Suspend func()
	// Suspends and Continued signal a request to suspend this process, and that
	// it was continued. Both may be nil.
	Suspends, Continued <-chan os.Signal
	// Resized signals another size of the terminal, from before Run on, so that no change during the
	// start is missed. It may be nil.
	Resized <-chan os.Signal

	Everywhere Everywhere // the sessions of all projects; zero: they cannot be reached

	// Diff returns the changes that git sees in a folder; empty: the folder of the UI. nil: git
	// is missing.
	Diff func(ctx context.Context, folder string) (string, error)

	// HintAfter is how long the agent waits for a task before the key is shown that moves it
	// to the background; 0: 2 s.
	HintAfter time.Duration

	Loud   daypart.Part      // in which the user is called
	Notify string            // how the user is called who looks elsewhere: off, bell or osc; empty: osc
	Keys   map[string]string // other keys of the conversation, by what they do
	Mouse  bool              // it is used: the wheel scrolls, a click chooses

	TasksOnly bool // the panel alone

	SetUp *SetUp // what the page does that sets up a model, with which the UI begins; nil: one is set up
}

// Conversation is a conversation that can be continued.
type Conversation struct {
	control.Info
	Running string // what runs in it, in a few words
}

// Result is how the user has left.
type Result struct {
	Session task.ID
	Note    string // for people: what became of the work
	Demo    bool   // for the tour
}

// lastWords is how long what waits may take to be sent when the terminal has gone.
const lastWords = 2 * time.Second

// Run shows the UI until the user leaves or ctx ends.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	ctx, cancel := context.WithCancelCause(ctx)
	l := &listener{ctx: ctx, suspend: make(chan struct{}, 1)}
	m := newModel(o, l)
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out),
		tea.WithEnvironment(o.Env), tea.WithoutSignalHandler())
	l.send = p.Send
	m.pulse.find = func() *time.Ticker { return rendererTicker(p) }
	stop := make(chan struct{})
	var signals sync.WaitGroup
	signals.Go(func() { suspensions(p, o, l.suspend, stop) })
	signals.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-o.Resized:
				p.Send(tea.RequestWindowSize())
			}
		}
	})
	_, err := p.Run()
	close(stop)
	cause := context.Cause(ctx)
	cancel(errLeft)
	l.close()
	signals.Wait()
	if cause != nil && errors.Is(err, tea.ErrProgramKilled) {
		err = cause
	}
	if unsent := m.flush(); unsent != nil && err == nil {
		err = unsent
	}
	m.release()
	return Result{Session: m.info.Session, Note: m.farewell, Demo: m.setup.demo}, err
}

// errLeft ends what listens to a session when the user leaves.
var errLeft = errors.New("the terminal UI is closed")

// continuedWait is how long the signal that has continued the process may take to be told.
const continuedWait = 2 * time.Second

// restored tells that the terminal is ours again, and the renderer runs.
type restored struct{}

// suspensions lets the process stand still with the terminal as it was before, and takes
// the terminal again when it was continued.
func suspensions(p *tea.Program, o Options, wanted <-chan struct{}, stop <-chan struct{}) {
	for {
		still := true
		select {
		case <-stop:
			return
		case <-wanted:
		case <-o.Suspends:
		case <-o.Continued:
			still = false
		}
		if still && o.Suspend == nil || p.ReleaseTerminal() != nil {
			continue
		}
		if still {
			select { // drain a signal of an earlier continue
			case <-o.Continued:
			default:
			}
			o.Suspend()
			select { // it is this that has continued us
			case <-o.Continued:
			case <-stop:
				return
			case <-time.After(continuedWait):
			}
		}
		if err := p.RestoreTerminal(); err != nil {
			p.Quit()
		}
		p.Send(restored{})
	}
}

// flush gives the host the prompts that wait here, when the user has left.
func (m *Model) flush() error {
	if m.conn.API == nil || len(m.queue) == 0 || m.discards {
		return nil
	}
	ctx, done := context.WithTimeout(context.Background(), lastWords)
	defer done()
	for _, d := range m.queue {
		if err := m.conn.API.Prompt(ctx, promptOf(d)); err != nil {
			return fmt.Errorf("send the prompt %.60q that waited: %w", d.Text, err)
		}
	}
	return nil
}

func (m *Model) release() {
	if m.conn.Release != nil {
		m.conn.Release()
		m.conn.Release = nil
	}
}

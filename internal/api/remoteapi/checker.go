package remoteapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// Checker decides for one type of remote work when it is done. After each poll it gets the
// metadata of the start, nil if there was none, and the result of the poll. A returned text
// ends the task and is its answer; nil means that it continues. It may be called by several
// goroutines.
type Checker interface {
	Check(ctx context.Context, metadata json.RawMessage, p Page) (*string, error)
}

// CheckerFunc is a function as a [Checker].
type CheckerFunc func(ctx context.Context, metadata json.RawMessage, p Page) (*string, error)

// Check calls f.
func (f CheckerFunc) Check(ctx context.Context, metadata json.RawMessage, p Page) (*string, error) {
	return f(ctx, metadata, p)
}

// Checkers has at most one checker for each type. Its zero value has none; its methods may be
// called by several goroutines.
type Checkers struct {
	mu sync.Mutex
	of map[Type]Checker // guarded by mu
}

// Register sets the checker of a type, replacing the previous one; nil removes it.
func (c *Checkers) Register(t Type, checker Checker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[Type]Checker{}
	}
	c.of[t] = checker
}

// For returns the checker of a type, or nil.
func (c *Checkers) For(t Type) Checker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[t]
}

// Limits of a command that checks.
const (
	checkTime  = 30 * time.Second
	checkGrace = 500 * time.Millisecond
	checkText  = 64 << 10 // bytes of its answer; the rest is dropped
	drainWait  = time.Second
)

// Command is a checker that runs a shell command. Its stdin is a JSON object: metadata, status,
// phase, events and result. If it exits with 0, its output is the answer; no output means that
// the work continues. Any other end is an error, and so is a run longer than 30 s.
type Command struct {
	Line  string
	Dir   string
	Env   []string     // complete
	Ready func() error // returns when a keeper runs, which ends the command if this process dies; nil: not needed
}

// checked is the input of the command.
type checked struct {
	Metadata json.RawMessage `json:"metadata"`
	Status   Status          `json:"status"`
	Phase    string          `json:"phase,omitempty"`
	Result   string          `json:"result,omitempty"`
	Error    string          `json:"error,omitempty"`
	Events   []Event         `json:"events"`
}

// Check runs the command, and returns when none of its processes is left.
func (c *Command) Check(ctx context.Context, metadata json.RawMessage, p Page) (*string, error) {
	in := checked{Metadata: metadata, Status: p.Status, Phase: p.Phase, Result: p.Result, Error: p.Error, Events: p.Events}
	if in.Events == nil {
		in.Events = []Event{}
	}
	data, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("ask the completion checker: %w", err)
	}
	out, err := c.run(ctx, data)
	if err != nil {
		return nil, fmt.Errorf("ask the completion checker: %w", err)
	}
	text := strings.TrimSpace(strings.ToValidUTF8(out, "\uFFFD"))
	if text == "" {
		return nil, nil
	}
	return &text, nil
}

func (c *Command) run(ctx context.Context, input []byte) (string, error) {
	ctx, done := context.WithTimeoutCause(ctx, checkTime, fmt.Errorf("it did not answer within %s", checkTime))
	defer done()
	stdin, err := fed(input)
	if err != nil {
		return "", err
	}
	defer stdin.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	g, mark, err := c.start(stdin, w)
	_ = w.Close()
	if err != nil {
		return "", err
	}
	defer g.Close()
	var said bytes.Buffer
	var reader sync.WaitGroup // joined below, after a deadline on the pipe
	reader.Go(func() {
		_, _ = io.CopyN(&said, r, checkText)
		_, _ = io.Copy(io.Discard, r)
	})
	exit, err := g.Wait(ctx)
	g.End(context.WithoutCancel(ctx), process.Ending{Grace: checkGrace, Mark: mark})
	_ = r.SetReadDeadline(time.Now().Add(drainWait))
	reader.Wait()
	g.Reap()
	switch {
	case err != nil:
		return "", err
	case exit.Signal != 0:
		return "", fmt.Errorf("it was ended by %s", process.SignalName(exit.Signal))
	case exit.Code != 0:
		return "", fmt.Errorf("it ended with exit code %d", exit.Code)
	}
	return said.String(), nil
}

func (c *Command) start(stdin, stdout *os.File) (*process.Group, string, error) {
	if c.Ready != nil {
		if err := c.Ready(); err != nil {
			return nil, "", err
		}
	}
	self, err := process.Identify(os.Getpid())
	if err != nil {
		return nil, "", err
	}
	mark := "checker_" + rand.Text()
	g, err := process.StartGroup(
		process.Command{Args: []string{"bash", "-c", c.Line}, Dir: c.Dir, Session: true, Stdin: stdin, Stdout: stdout,
			Env: append([]string{process.MarkTask + "=" + mark, process.MarkHost + "=" + self.Mark()}, c.Env...)},
	)
	return g, mark, err
}

// fed returns an unnamed file with the data: a command that does not read it blocks nothing.
func fed(data []byte) (*os.File, error) {
	f, err := os.CreateTemp("", "drover-check-*")
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

package remote

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/engine/process"
)

// Checker decides for one type of remote work when it is done. After each poll it gets the metadata of the start, nil
// if there was none, and the result of the poll. A returned text ends the task and is its answer; nil means that the
// work continues. Several goroutines may call it.
type Checker func(ctx context.Context, metadata json.RawMessage, n a2a.News) (*string, error)

// Limits of a command that checks.
const (
	checkTime  = 30 * time.Second
	checkGrace = 500 * time.Millisecond
	checkText  = 64 << 10 // bytes of its answer; the rest is dropped
	drainWait  = time.Second
)

// Command runs a shell command as a checker. Its stdin is a JSON object: metadata, status, phase, events and result.
// If it exits with 0, its output is the answer; without output the work continues. Any other end is an error, and so
// is a run longer than 30 s.
type Command struct {
	Line  string
	Dir   string
	Env   []string     // complete
	Ready func() error // returns once a keeper runs, which ends the command if this process dies; nil: not needed
}

// checked is the input of the command.
type checked struct {
	Metadata json.RawMessage `json:"metadata"`
	Status   string          `json:"status"` // queued, running or completed: other ends ask no checker
	Phase    string          `json:"phase,omitempty"`
	Result   string          `json:"result,omitempty"`
	Events   []event         `json:"events"`
}

// event is a message of the agent.
type event struct {
	Type string `json:"type"` // assistant
	Text string `json:"text"`
}

// Check is a [Checker]. It returns when all processes of the command have ended.
func (c *Command) Check(ctx context.Context, metadata json.RawMessage, n a2a.News) (*string, error) {
	in := checked{Metadata: metadata, Status: "running", Phase: n.Phase, Result: n.Result, Events: []event{}}
	switch n.State {
	case a2a.Submitted:
		in.Status = "queued"
	case a2a.Completed:
		in.Status = "completed"
	}
	for _, text := range n.Said {
		in.Events = append(in.Events, event{"assistant", text})
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
	g, pipes, mark, err := c.start()
	if err != nil {
		return "", err
	}
	defer pipes.Close()
	defer g.Close()
	var said bytes.Buffer
	var flows sync.WaitGroup // joined below, after deadlines on the pipes
	flows.Go(func() {
		_, _ = pipes.In.Write(input) // the command need not read it
		_ = pipes.In.Close()
	})
	flows.Go(func() {
		_, _ = io.CopyN(&said, pipes.Out, checkText)
		_, _ = io.Copy(io.Discard, pipes.Out)
	})
	flows.Go(func() { _, _ = io.Copy(io.Discard, pipes.Err) })
	exit, err := g.Wait(ctx)
	g.End(context.WithoutCancel(ctx), process.Ending{Grace: checkGrace, Mark: mark})
	_ = pipes.In.SetWriteDeadline(time.Unix(1, 0)) // all its readers have ended
	pipes.Expire(drainWait)
	flows.Wait()
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

func (c *Command) start() (*process.Group, process.Streams, string, error) {
	if c.Ready != nil {
		if err := c.Ready(); err != nil {
			return nil, process.Streams{}, "", err
		}
	}
	self, err := process.Identify(os.Getpid())
	if err != nil {
		return nil, process.Streams{}, "", err
	}
	mark := "checker_" + rand.Text()
	g, pipes, err := process.StartPiped(process.Command{Args: []string{"bash", "-c", c.Line}, Dir: c.Dir, Session: true,
		Env: append([]string{process.MarkTask + "=" + mark, process.MarkHost + "=" + self.Mark()}, c.Env...)})
	return g, pipes, mark, err
}

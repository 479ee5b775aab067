package acpclient

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/process"
)

// Bounds of the commands of an agent.
const (
	maxTerminals     = 32      // not released
	maxTerminalBytes = 1 << 20 // of the kept output of one
)

// terminals are the commands that an agent runs through us. They carry the mark of its task.
type terminals struct {
	c *conn

	mu    sync.Mutex // guards the fields below
	last  int
	open  map[string]*terminal
	shut  bool
	flows sync.WaitGroup // one for each command; added to under mu
}

type terminal struct {
	g     *process.Group
	limit int
	ended chan struct{}

	mu      sync.Mutex // guards the fields below
	out     []byte
	dropped bool
	exit    process.Exit
}

func (s *terminals) create(_ context.Context, r acp.CreateTerminalRequest) (any, error) {
	c := s.c
	if string(r.SessionId) != c.session {
		return nil, errUnknownSession
	}
	dir := c.a.o.Dir
	if r.Cwd != nil && *r.Cwd != "" {
		dir = *r.Cwd
	}
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("the working folder %.200q is not absolute", dir)
	}
	text := r.Command // without arguments, agents give a line for a shell
	args := []string{"bash", "-c", r.Command}
	if len(r.Args) > 0 {
		args = append([]string{r.Command}, r.Args...)
		text = shellLine(args)
	}
	judged := text
	if dir != c.a.o.Dir {
		judged = "cd " + quote(dir) + " && " + text
	}
	var env []string
	for _, v := range r.Env {
		if strings.HasPrefix(v.Name, "DROVER_") || v.Name == "" || strings.ContainsAny(v.Name, "=\x00") {
			return nil, fmt.Errorf("the variable %.60q cannot be set", v.Name)
		}
		env = append(env, v.Name+"="+v.Value)
		judged = v.Name + "=" + quote(v.Value) + " " + judged
	}
	o := &tool{}
	if err := c.denied(one(o.as("Bash", map[string]any{"command": judged}))); err != nil {
		return nil, err
	}
	return s.start(args, dir, text, env, r.OutputByteLimit)
}

func (s *terminals) start(args []string, dir, text string, env []string, limit *int) (any, error) {
	c := s.c
	self, err := c.a.self.Identity()
	if err != nil {
		return nil, err
	}
	b, err := c.a.o.Bounds(text)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return nil, errors.New("the agent is being ended")
	}
	if len(s.open) >= maxTerminals {
		return nil, fmt.Errorf("%d terminals are open: release some", maxTerminals)
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	g, err := process.StartGroup(process.Command{Args: args, Dir: dir, Stdout: theirs, Stderr: theirs, Fork: b.Fork,
		Session: true, Env: append(append(child.Marks(c.a.o.Host.Record(), self), b.Env...), env...)})
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	if k := c.a.cfg.Keeper; k != nil {
		if err := k.Watch(g.Identity(), string(c.task), false, ""); err != nil {
			g.End(context.Background(), process.Ending{Table: c.a.cfg.Table})
			g.Reap()
			g.Close()
			_ = ours.Close()
			return nil, err
		}
	}
	t := &terminal{g: g, limit: maxTerminalBytes, ended: make(chan struct{})}
	if limit != nil {
		t.limit = min(max(*limit, 0), maxTerminalBytes)
	}
	s.last++
	id := fmt.Sprintf("term_%d", s.last)
	if s.open == nil {
		s.open = map[string]*terminal{}
	}
	s.open[id] = t
	c.a.say("runs %s", line(text, 500))
	s.flows.Go(func() { s.follow(t, ours) })
	return map[string]string{"terminalId": id}, nil
}

// follow reads a command to its end.
func (s *terminals) follow(t *terminal, out *os.File) {
	var reading sync.WaitGroup
	reading.Go(func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := out.Read(buf)
			if n > 0 {
				t.add(buf[:n])
				_, _ = s.c.a.o.Host.Output().Write(buf[:n]) // the output of the task has it too
			}
			if err != nil {
				return
			}
		}
	})
	exit, _ := t.g.Wait(context.Background()) // the end of the agent kills it
	report := t.g.End(context.Background(), process.Ending{Grace: child.Grace, Table: s.c.a.cfg.Table, ByItself: true})
	_ = out.SetReadDeadline(time.Now().Add(drainWait)) // another process may hold the pipe open
	reading.Wait()
	_ = out.Close()
	if text := report.Note(); text != "" {
		t.add([]byte("\n[" + text + "]\n"))
	}
	if k := s.c.a.cfg.Keeper; k != nil {
		_ = k.Forget(t.g.Identity())
	}
	t.mu.Lock()
	t.exit = exit
	t.mu.Unlock()
	close(t.ended)
	t.g.Reap()
	t.g.Close()
}

func (t *terminal) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out = append(t.out, p...)
	if more := len(t.out) - t.limit; more > 0 {
		t.out, t.dropped = append(t.out[:0], t.out[more:]...), true
	}
}

func (s *terminals) find(session acp.SessionId, id string) (*terminal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.open[id]
	if t == nil || string(session) != s.c.session {
		return nil, fmt.Errorf("terminal %.60q is unknown", id)
	}
	return t, nil
}

// status is the exit of the command; nil: it runs.
func (t *terminal) status() *acp.TerminalExitStatus {
	select {
	case <-t.ended:
	default:
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exit.Signal != 0 {
		name := process.SignalName(t.exit.Signal)
		return &acp.TerminalExitStatus{Signal: &name}
	}
	code := t.exit.Code
	return &acp.TerminalExitStatus{ExitCode: &code}
}

func (s *terminals) output(_ context.Context, r acp.TerminalOutputRequest) (any, error) {
	t, err := s.find(r.SessionId, r.TerminalId)
	if err != nil {
		return nil, err
	}
	status := t.status() // before the output, which is then complete
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.ToValidUTF8(string(t.out), "\uFFFD")
	return acp.TerminalOutputResponse{Output: text, Truncated: t.dropped, ExitStatus: status}, nil
}

func (s *terminals) exit(ctx context.Context, r acp.WaitForTerminalExitRequest) (any, error) {
	t, err := s.find(r.SessionId, r.TerminalId)
	if err != nil {
		return nil, err
	}
	select {
	case <-t.ended:
		return t.status(), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *terminals) kill(_ context.Context, r acp.KillTerminalRequest) (any, error) {
	t, err := s.find(r.SessionId, r.TerminalId)
	if err == nil {
		t.stop()
	}
	return nil, err
}

func (s *terminals) release(_ context.Context, r acp.ReleaseTerminalRequest) (any, error) {
	t, err := s.find(r.SessionId, r.TerminalId)
	if err != nil {
		return nil, err
	}
	t.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, r.TerminalId)
	return nil, nil
}

// stop kills the command; follow waits for its end.
func (t *terminal) stop() {
	select {
	case <-t.ended:
	default:
		_ = process.KillGroup(t.g.Identity())
	}
}

// groups returns the process groups of the running commands.
func (s *terminals) groups() (out []process.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.open {
		select {
		case <-t.ended:
		default:
			out = append(out, t.g.Identity())
		}
	}
	return out
}

// stop kills all commands and refuses new ones.
func (s *terminals) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
	for _, t := range s.open {
		t.stop()
	}
}

func (s *terminals) wait() { s.flows.Wait() }

package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Call is the program while it runs and when it has ended.
type Call struct {
	Cmd   *exec.Cmd
	Args  []string // behind the name of the program
	out   bytes.Buffer
	errs  bytes.Buffer
	ended chan struct{} // closed when it has ended
}

// ErrHangs says that the program does not end.
var ErrHangs = errors.New("does not end")

// Start starts the program in the project.
func (p *Place) Start(args ...string) *Call { p.Helper(); return p.Behind(nil, args...) }

// Behind is Start behind the words of another program, such as a tracer.
func (p *Place) Behind(prefix []string, args ...string) *Call {
	p.Helper()
	all := slices.Concat(prefix, []string{p.Bin}, args)
	c := &Call{Args: args, Cmd: exec.CommandContext(context.Background(), all[0], all[1:]...), ended: make(chan struct{})}
	c.Cmd.Dir, c.Cmd.Env, c.Cmd.Stdout, c.Cmd.Stderr, c.Cmd.WaitDelay = p.Dir, p.Env, &c.out, &c.errs, Patience
	p.Must(c.Cmd.Start())
	go func() { // ends with the process, for which whoever started it waits
		defer close(c.ended)
		_ = c.Cmd.Wait() // its state says it all
	}()
	return c
}

// Run starts the program and waits for its end.
func (p *Place) Run(args ...string) *Call {
	p.Helper()
	c := p.Start(args...)
	p.Must(c.Wait())
	return c
}

// Good runs what must succeed, and returns the text that it printed.
func (p *Place) Good(args ...string) string {
	p.Helper()
	c := p.Run(args...)
	if c.Code() != 0 {
		p.Fatal(c)
	}
	return c.Text()
}

// Read has a command print JSON, and reads it.
func (p *Place) Read(into any, args ...string) {
	p.Helper()
	p.Must(json.Unmarshal([]byte(p.Good(args...)), into))
}

// Wait waits for the end.
func (c *Call) Wait() error {
	late := time.NewTimer(Patience)
	defer late.Stop()
	select {
	case <-c.ended:
		return nil
	case <-late.C:
		_ = c.Cmd.Process.Signal(syscall.SIGQUIT) // it says what it is doing
		<-c.ended
		return fmt.Errorf("drover %s %w\n%s", strings.Join(c.Args, " "), ErrHangs, c.Stderr())
	}
}

// Ended is closed when the program has ended.
func (c *Call) Ended() <-chan struct{} { return c.ended }

// Code waits for the end, and returns the exit code, or 128 and the signal.
func (c *Call) Code() int {
	_ = c.Wait() // one that hangs has been ended, and says so
	return ExitCode(c.Cmd.ProcessState)
}

// ExitCode is that of a process that has ended, or 128 and the signal that ended it.
func ExitCode(s *os.ProcessState) int {
	if st := s.Sys().(syscall.WaitStatus); st.Signaled() {
		return 128 + int(st.Signal())
	}
	return s.ExitCode()
}

// Stdout is what it printed, once it has ended; Text is that without blanks around it.
func (c *Call) Stdout() string { return c.out.String() }

// Text is Stdout without blanks around it.
func (c *Call) Text() string { return strings.TrimSpace(c.Stdout()) }

// Stderr is what it said, once it has ended.
func (c *Call) Stderr() string { return c.errs.String() }

// String is the call and how it ended.
func (c *Call) String() string {
	return fmt.Sprintf(
		"drover %s: exit code %d\nstdout: %.600s\nstderr: %.2000s",
		strings.Join(c.Args, " "),
		c.Code(),
		c.Stdout(),
		c.Stderr(),
	)
}

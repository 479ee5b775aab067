package process

import (
	"errors"
	"os"
	"time"
)

// Bounds are those within which a command starts, such as a sandbox.
type Bounds interface {
	// Apply makes a command start within them.
	Apply(c *Command)
	// Refused returns why the command was not let through to hosts so far.
	Refused() []string
}

// Streams are this process's ends of the pipes of a child. Closing them loses nothing that was
// read.
type Streams struct{ In, Out, Err *os.File }

// StartPiped is [StartGroup] for a command whose stdin, stdout and stderr are pipes.
func StartPiped(c Command) (*Group, Streams, error) {
	var s Streams
	var errs [3]error
	c.Stdin, s.In, errs[0] = os.Pipe()
	s.Out, c.Stdout, errs[1] = os.Pipe()
	s.Err, c.Stderr, errs[2] = os.Pipe()
	var g *Group
	err := errors.Join(errs[:]...)
	if err == nil {
		g, err = StartGroup(c)
	}
	Streams{c.Stdin, c.Stdout, c.Stderr}.Close() // the child has its own
	if err != nil {
		s.Close()
		return nil, Streams{}, err
	}
	return g, s, nil
}

// Expire bounds how long the output is read from now on: a process that left the group can
// hold the pipes for ever.
func (s Streams) Expire(d time.Duration) {
	deadline := time.Now().Add(d)
	_ = s.Out.SetReadDeadline(deadline) // a pipe has deadlines
	_ = s.Err.SetReadDeadline(deadline)
}

// Close closes all that is open. It may be called again.
func (s Streams) Close() {
	for _, f := range []*os.File{s.In, s.Out, s.Err} {
		_ = f.Close() // of nil too
	}
}

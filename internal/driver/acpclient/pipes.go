package acpclient

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// sendTime is how long an agent may take to read a message.
const sendTime = 30 * time.Second

// stdin is the input of an agent. An agent that does not read it loses the connection.
type stdin struct{ c *conn }

func (w stdin) Write(p []byte) (int, error) {
	c := w.c
	_ = c.pipes.In.SetWriteDeadline(time.Now().Add(sendTime)) // a pipe has deadlines
	if c.life.Err() != nil {                                  // after the deadline is set, so that close cannot miss it
		return 0, context.Cause(c.life)
	}
	n, err := c.pipes.In.Write(p)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.lost(fmt.Errorf("it has not read its stdin for %v", sendTime))
	case err != nil: // the process is probably about to end, and its exit is the better reason
		select {
		case <-c.life.Done():
		case <-time.After(2 * drainWait):
			c.lost(errors.New("it has closed its stdin"))
		}
	}
	return n, err
}

// tail keeps the end of the stderr of an agent.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if more := len(t.text) - tailBytes; more > 0 {
		t.text = append(t.text[:0], t.text[more:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

package acpclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Bounds of what an agent prints.
const (
	maxLine      = 8 << 20   // bytes of one message; the library takes 10 MiB
	maxJunk      = 1000      // lines that are no messages, of one process
	maxShownJunk = 20        // of them, that are shown
	maxWaiting   = 256       // updates that are not worked off yet; more are not read
	maxRequests  = 64        // of the agent, at once
	maxTurnBytes = 256 << 20 // of updates in one turn
	sendTime     = 30 * time.Second
)

// lines hands the messages of an agent on to the library: whole lines of JSON of a bounded
// length, no faster than they are worked off.
type lines struct {
	src    *bufio.Reader
	ready  chan struct{}            // closed when the library may read
	refuse func(id json.RawMessage) // answers a request that is one too many
	junk   func(line []byte, n int) // is shown what is no message

	rest  []byte // of the line that is handed on
	wrong int    // lines that were no messages

	mu       sync.Mutex
	changed  *sync.Cond
	waiting  int   // updates; guarded by mu
	requests int   // guarded by mu
	answers  int   // to us, that nobody has taken yet; guarded by mu
	bytes    int64 // of updates in the turn; guarded by mu
	closed   bool  // guarded by mu
	err      error // why it has ended; guarded by mu
}

func newLines(src io.Reader, refuse func(json.RawMessage), junk func([]byte, int)) *lines {
	l := &lines{src: bufio.NewReaderSize(src, 64<<10), ready: make(chan struct{}), refuse: refuse, junk: junk}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// Read implements [io.Reader] for the library.
func (l *lines) Read(p []byte) (int, error) {
	<-l.ready
	for len(l.rest) == 0 {
		line, err := l.next()
		if err != nil {
			l.last(err)
			return 0, io.EOF
		}
		l.rest = line
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// last notes why nothing more comes, and waits until the answers that came are taken: the library
// forgets an answer that it has when the input ends.
func (l *lines) last(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && !errors.Is(why, io.EOF) {
		l.err = why
	}
	late := false
	timer := time.AfterFunc(drainWait, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		late = true
		l.changed.Broadcast()
	})
	defer timer.Stop()
	for l.answers > 0 && !late && !l.closed {
		l.changed.Wait()
	}
}

// taken says that a request of ours has its answer, or is not waited for any more.
func (l *lines) taken() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = max(0, l.answers-1)
	l.changed.Broadcast()
}

// next is the next message, with its end of line.
func (l *lines) next() ([]byte, error) {
	for {
		line, size, err := readLine(l.src)
		if err != nil {
			return nil, err
		}
		if size > len(line) {
			if !bytes.Contains(line[:min(len(line), 4<<10)], []byte(`"method":"session/update"`)) {
				return nil, fmt.Errorf("it sent a message of %d bytes, more than %d", size, maxLine)
			}
			l.junk([]byte("an update that is too long"), size)
			continue
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var head struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(line, &head) != nil || line[0] != '{' {
			if l.wrong++; l.wrong > maxJunk {
				return nil, fmt.Errorf("it printed more than %d lines that are no messages of the protocol", maxJunk)
			}
			if l.wrong <= maxShownJunk {
				l.junk(line, size)
			}
			continue
		}
		switch pass, err := l.enter(head.ID, head.Method, len(line)); {
		case err != nil:
			return nil, err
		case !pass:
			l.refuse(head.ID)
			continue
		}
		return append(line, '\n'), nil
	}
}

// readLine reads one line without its end. Of a longer one than is allowed it returns the beginning.
func readLine(src *bufio.Reader) (line []byte, size int, err error) {
	for {
		part, err := src.ReadSlice('\n')
		size += len(part)
		if room := maxLine - len(line); room > 0 {
			line = append(line, part[:min(room, len(part))]...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)) {
			return nil, 0, err
		}
		if n := len(line); n > 0 && line[n-1] == '\n' {
			line, size = line[:n-1], size-1
		}
		return line, size, nil
	}
}

// enter counts a message, and waits while too many are not worked off. pass is false for a
// request that is one too many.
func (l *lines) enter(id json.RawMessage, method string, size int) (pass bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case method == "":
		l.answers++
		return true, nil
	case len(id) > 0:
		if l.requests >= maxRequests {
			return false, nil
		}
		l.requests++
		return true, nil
	case method == "$/cancel_request": // is not given to the handler
		return true, nil
	}
	if l.bytes += int64(size); l.bytes > maxTurnBytes {
		return false, fmt.Errorf("it sent more than %d MiB of updates in one turn", maxTurnBytes>>20)
	}
	for l.waiting >= maxWaiting && !l.closed {
		l.changed.Wait()
	}
	if l.closed {
		return false, io.EOF
	}
	l.waiting++
	return true, nil
}

// done says that a message was worked off.
func (l *lines) done(request bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if request {
		l.requests--
		return
	}
	l.waiting--
	l.changed.Broadcast()
}

// turn begins to count the updates of a turn.
func (l *lines) turn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes = 0
}

// close frees who waits in Read.
func (l *lines) close(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed = true; l.err == nil {
		l.err = why
	}
	l.changed.Broadcast()
}

// why is the reason for which nothing more is read; nil: the other side has closed.
func (l *lines) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// stdin is the input of an agent. One that does not read it is of no use any more.
type stdin struct{ c *conn }

func (w stdin) Write(p []byte) (int, error) {
	c := w.c
	_ = c.pipes.In.SetWriteDeadline(time.Now().Add(sendTime)) // a pipe has deadlines
	if c.life.Err() != nil {                                  // asked after the deadline is set: that of close counts
		return 0, context.Cause(c.life)
	}
	n, err := c.pipes.In.Write(p)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.lost(fmt.Errorf("it has not read its stdin for %v", sendTime))
	case err != nil: // who closes it is mostly about to end, and that tells more
		moment := time.NewTimer(2 * drainWait)
		defer moment.Stop()
		select {
		case <-c.life.Done():
		case <-moment.C:
			c.lost(errors.New("it has closed its stdin"))
		}
	}
	return n, err
}

// tail keeps the end of what an agent prints on stderr.
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

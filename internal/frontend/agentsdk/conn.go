package agentsdk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/lines"
)

// maxLine is the limit of a line in bytes. Longer lines are skipped.
const maxLine = 64 << 20

// maxQueued is how many lines may wait for [Conn.Serve]. The answers after them are read meanwhile, for example to
// hooks that run while the session is opened.
const maxQueued = 256

// ErrEnded is the error of a question when the program has closed stdin.
var ErrEnded = errors.New("the program that drives this session has closed stdin")

// answeredError is an error answered by the program.
type answeredError struct{ text string }

func (e *answeredError) Error() string {
	return "the program that drives this session answered: " + e.text
}

// Conn is the connection to the program. Its methods may be called by several goroutines.
type Conn struct {
	warn  io.Writer
	lines chan line     // closed at the end of stdin
	ended chan struct{} // closed with lines

	prompted bool // the program has sent a prompt; used by Serve only

	writing sync.Mutex // held while a line is written
	out     io.Writer

	mu      sync.Mutex
	next    int                      // number of the last question
	calls   int                      // number of the last request to a server of the program
	waiting map[string]chan response // questions without an answer; a channel takes one
	early   []line                   // received before the session was open
	servers []string                 // MCP servers in the program, by name

	changing sync.Mutex // held while a change of the settings is made and printed
	mode     string     // that the program knows; empty: none was read; guarded by changing
}

// line is a line of the program.
type line struct {
	Type      string          `json:"type"`
	RequestID string          `json:"request_id"`
	Request   json.RawMessage `json:"request"`
	Response  response        `json:"response"`
	Message   json.RawMessage `json:"message"`
	UUID      string          `json:"uuid"`
}

// response is the answer to a control request.
type response struct {
	Subtype   string          `json:"subtype"`
	RequestID string          `json:"request_id"`
	Response  json.RawMessage `json:"response"`
	Error     string          `json:"error"`
}

// Connect starts to read the lines of the program from in. Each line to it is one Write to out; warnings to the user go
// to warn. A read cannot be cancelled, so the reading goroutine ends with the input.
func Connect(in io.Reader, out, warn io.Writer) *Conn {
	c := &Conn{out: out, warn: warn, waiting: map[string]chan response{}, lines: make(chan line, maxQueued),
		ended: make(chan struct{})}
	go c.read(in) // ends with in, at the latest with the process
	return c
}

// Write writes a line between the lines of the connection. The [Stream] of the session writes here.
func (c *Conn) Write(line []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.out.Write(line)
}

// read passes on the lines of the program, answers directly to the caller of ask.
func (c *Conn) read(in io.Reader) {
	defer close(c.lines)
	defer close(c.ended)
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		text, size, err := lines.Read(r, maxLine)
		if text = bytes.TrimSpace(text); size > maxLine {
			c.warning("a line of stdin has more than %d MiB and was skipped", maxLine>>20)
		} else if len(text) > 0 {
			c.take(text)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.warning("read stdin: %v", err)
			}
			return
		}
	}
}

// take passes one line on.
func (c *Conn) take(text []byte) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		c.warning("a line of stdin is not a JSON object of the Agent SDK and was skipped: %s",
			excerpt.Line(err.Error(), 200))
		return
	}
	if l.Type != "control_response" {
		c.lines <- l
		return
	}
	c.mu.Lock()
	answer := c.waiting[l.Response.RequestID]
	delete(c.waiting, l.Response.RequestID)
	c.mu.Unlock()
	if answer == nil {
		c.warning("a control_response answers no open request: %s", excerpt.Line(l.Response.RequestID, 80))
		return
	}
	answer <- l.Response
}

func (c *Conn) warning(format string, args ...any) {
	fmt.Fprintf(c.warn, "drover: "+format+"\n", args...)
}

// write prints one line.
func (c *Conn) write(v any) error {
	line, err := encoded(v)
	if err != nil {
		return fmt.Errorf("encode a line for the program that drives this session: %w", err)
	}
	if _, err := c.Write(line); err != nil {
		return fmt.Errorf("write to the program that drives this session: %w", err)
	}
	return nil
}

// encoded is a value as a line of JSON, in which the characters of HTML are as they are.
func encoded(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return buf.Bytes(), err
}

// ask asks the program and waits for its answer. When ctx ends first, it withdraws the question.
func (c *Conn) ask(ctx context.Context, request any) (json.RawMessage, error) {
	select {
	case <-c.ended:
		return nil, ErrEnded
	default:
	}
	answer := make(chan response, 1)
	c.mu.Lock()
	c.next++
	id := "drover-" + strconv.Itoa(c.next)
	c.waiting[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()
	err := c.write(map[string]any{"type": "control_request", "request_id": id, "request": request})
	if err != nil {
		return nil, err
	}
	select {
	case r := <-answer:
		if r.Subtype == "error" {
			return nil, &answeredError{excerpt.Line(r.Error, 500)}
		}
		return r.Response, nil
	case <-c.ended:
		select {
		case r := <-answer: // it came before the end
			if r.Subtype != "error" {
				return r.Response, nil
			}
		default:
		}
		return nil, ErrEnded
	case <-ctx.Done():
		_ = c.write(map[string]any{"type": "control_cancel_request", "request_id": id}) // best effort
		return nil, context.Cause(ctx)
	}
}

// answer answers a request of the program.
func (c *Conn) answer(id string, value any, err error) {
	r := map[string]any{"subtype": "success", "request_id": id}
	switch {
	case err != nil:
		r["subtype"], r["error"] = "error", err.Error()
	case value != nil:
		r["response"] = value
	}
	if err := c.write(map[string]any{"type": "control_response", "response": r}); err != nil {
		c.warning("%v", err)
	}
}

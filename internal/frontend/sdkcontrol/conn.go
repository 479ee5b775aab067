// Package sdkcontrol speaks with a program that drives Drover by the Agent SDK: it reads
// the program's prompts and control requests from stdin, answers them, and asks the
// program what the SDK lets it decide: permissions, hooks, and calls of its own MCP tools.
//
// A [Conn] promises that every request is answered once, with an error where Drover does
// not have what is asked for; that a question to the program ends with the program's
// stdin; and that a line that cannot be read is reported on stderr and passed over. It
// prints no line of the conversation (see package agentsdk) and holds no state of the
// session. The wire is that of @anthropic-ai/claude-agent-sdk 0.3.329.
package sdkcontrol

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
)

// maxLine is the most bytes of a line that is read; a longer one is passed over.
const maxLine = 64 << 20

// queued is how many lines may wait for [Conn.Serve]: answers behind them are read
// meanwhile, such as those to hooks that run while the session is opened.
const queued = 256

// ErrEnded is why a question has no answer when the program has closed stdin.
var ErrEnded = errors.New("the program that drives this session has closed stdin")

// answeredError is an error that the program has answered.
type answeredError struct{ text string }

func (e *answeredError) Error() string {
	return "the program that drives this session answered: " + e.text
}

// Config is what a [Conn] is made of. All fields are required.
type Config struct {
	In   io.Reader // of the program; a read ends with the program's stdin, not with a context
	Out  io.Writer // each line is one Write, also of others who write to it
	Warn io.Writer // what the user should read
}

// Conn is the connection to the program. Its methods may be called by several goroutines.
type Conn struct {
	out   io.Writer
	warn  io.Writer
	lines chan line     // closed at the end of stdin
	ended chan struct{} // closed with it

	mu      sync.Mutex
	next    int                      // number of the last question
	calls   int                      // number of the last request to a server of the program
	waiting map[string]chan response // questions without an answer; a channel takes one
	early   []line                   // what came before the session was open
}

// line is one that the program has written.
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

// New begins to read. The goroutine that reads ends with stdin.
func New(cfg Config) *Conn {
	c := &Conn{
		out: cfg.Out, warn: cfg.Warn, waiting: map[string]chan response{},
		lines: make(chan line, queued), ended: make(chan struct{}),
	}
	go c.read(cfg.In)
	return c
}

// read hands on the lines of the program. Answers go to whoever asked at once, so that a
// question that is asked while a prompt is handled gets its answer.
func (c *Conn) read(in io.Reader) {
	defer close(c.lines)
	defer close(c.ended)
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		text, err := readLine(r, maxLine)
		if errors.Is(err, errLong) {
			c.warning("a line of stdin has more than %d MiB and was passed over", maxLine>>20)
			continue
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
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

// take hands one line on.
func (c *Conn) take(text []byte) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		c.warning("a line of stdin is no JSON object of the Agent SDK and was passed over: %s", excerpt.Line(err.Error(), 200))
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

var errLong = errors.New("line too long")

// readLine reads one line; one of more than most bytes is read to its end and left out.
func readLine(r *bufio.Reader, most int) (text []byte, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		if len(text)+len(piece) > most {
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = r.ReadSlice('\n')
			}
			return nil, errLong
		}
		text = append(text, piece...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
	}
}

func (c *Conn) warning(format string, args ...any) {
	fmt.Fprintf(c.warn, "drover: "+format+"\n", args...)
}

// write prints one line.
func (c *Conn) write(v any) error {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode a line for the program that drives this session: %w", err)
	}
	if _, err := c.out.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write to the program that drives this session: %w", err)
	}
	return nil
}

// ask asks the program and waits for its answer. When ctx ends first the program is told
// that nobody waits any more.
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
		case r := <-answer: // it came just before the end
			if r.Subtype != "error" {
				return r.Response, nil
			}
		default:
		}
		return nil, ErrEnded
	case <-ctx.Done():
		_ = c.write(map[string]any{"type": "control_cancel_request", "request_id": id}) // it matters no more
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

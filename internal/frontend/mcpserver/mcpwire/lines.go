// Package mcpwire adds to the library of the Model Context Protocol (MCP) what a server lacks there: transports over
// lines and over streamable HTTP, and tasks.
//
// It bounds the size of messages and the time of writes, answers faulty messages with an error of JSON-RPC, and owns
// the methods, the capabilities and the shape of tasks on the wire. It does not know tools, and does not keep tasks.
package mcpwire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/internal/platform/lines"
)

const (
	// MostBytes is the length of the longest message that is read.
	MostBytes = 16 << 20

	lastWrites = 5 * time.Second // for each answer after the end of the input
	readBuffer = 64 << 10
)

// Lines is a transport with one message per line. Faulty and long lines are answered with an error of JSON-RPC. The
// messages of an array are answered one by one.
type Lines struct {
	In  io.ReadCloser
	Out io.Writer
}

// Connect implements [mcp.Transport].
func (t *Lines) Connect(context.Context) (mcp.Connection, error) {
	c := &lineConn{
		in: t.In, lines: make(chan line), out: make(chan write), closed: make(chan struct{}), ended: make(chan struct{}),
	}
	go c.read()       // ends with Close, or with its read
	go c.write(t.Out) // ends with Close, or with its write
	return c, nil
}

// lineConn has two goroutines. They end with Close, except in a read or a write that cannot be cancelled.
type lineConn struct {
	in     io.ReadCloser
	lines  chan line
	out    chan write
	closed chan struct{}
	ended  chan struct{} // closed when the input has ended
	close  sync.Once
	queue  []jsonrpc.Message // of one line; used by Read only
}

type line struct {
	data []byte
	long bool
	part bool // the input ended within it
	err  error
}

type write struct {
	data []byte
	done chan error // with capacity 1
}

func (c *lineConn) SessionID() string { return "" }

func (c *lineConn) Close() error {
	var err error
	c.close.Do(func() {
		close(c.closed)
		err = c.in.Close()
	})
	return err
}

func (c *lineConn) read() {
	r := bufio.NewReaderSize(c.in, readBuffer)
	for {
		data, size, err := lines.Read(r, MostBytes)
		l := line{data: data, long: size > MostBytes, part: err != nil && size > 0, err: err}
		if l.err != nil {
			close(c.ended)
		}
		select {
		case c.lines <- l:
		case <-c.closed:
			return
		}
		if l.err != nil {
			return
		}
	}
}

func (c *lineConn) write(out io.Writer) {
	for {
		select {
		case w := <-c.out:
			_, err := out.Write(w.data)
			w.done <- err
		case <-c.closed:
			return
		}
	}
}

// Read implements [mcp.Connection].
func (c *lineConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	var end error
	for len(c.queue) == 0 {
		if end != nil {
			return nil, end
		}
		var l line
		select {
		case l = <-c.lines:
		case <-c.closed:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		end = l.err
		msgs, refusal := l.messages()
		c.queue = msgs
		if refusal != nil {
			if err := c.send(ctx, refusal); err != nil {
				return nil, err
			}
		}
	}
	next := c.queue[0]
	c.queue = c.queue[1:]
	return next, nil
}

// messages returns the messages of a line, or the answer to a faulty one.
func (l line) messages() (msgs []jsonrpc.Message, refusal []byte) {
	data := bytes.TrimSpace(l.data)
	switch {
	case l.long:
		return nil, Refusal(nil, jsonrpc.CodeParseError,
			fmt.Sprintf("a message is longer than %d bytes and was not read", MostBytes))
	case len(data) == 0:
		return nil, nil
	case !json.Valid(data) && l.part:
		return nil, Refusal(nil, jsonrpc.CodeParseError, "the input ended within a message")
	}
	msgs, _, refusal = Decode(data)
	for _, m := range msgs {
		Carry(m)
	}
	return msgs, refusal
}

// Write implements [mcp.Connection].
func (c *lineConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	return c.send(ctx, data)
}

func (c *lineConn) send(ctx context.Context, data []byte) error {
	w := write{append(data, '\n'), make(chan error, 1)}
	var late <-chan time.Time
	ended := c.ended
	out := c.out
	for {
		select {
		case out <- w:
			out = nil // the writer has it
		case err := <-w.done:
			return err
		case <-ended:
			ended = nil
			timer := time.NewTimer(lastWrites)
			defer timer.Stop()
			late = timer.C
		case <-late:
			return errors.New("write to the client: it has closed its output and does not read its input")
		case <-c.closed:
			return io.ErrClosedPipe
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

package acpclient

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/drover-dev/drover/internal/driver/acpclient/headless"
	"github.com/drover-dev/drover/internal/platform/lines"
)

// translated is the connection to a program that speaks a protocol of its vendor. Messages of ACP for the program
// are written to it, and messages of ACP from the program are read from client.
type translated struct {
	program io.Writer
	client  *io.PipeReader
	out     *io.PipeWriter
	lost    func(error) // ends the connection

	mu sync.Mutex // guards t, and the order of writes to the program
	t  headless.Translator
}

// translate returns the arguments of the program and its translator.
func translate(c *conn, session string) ([]string, *translated, error) {
	args, t, err := headless.Start(c.a.o.Protocol, c.a.o.Args, session, freshSession())
	if err != nil {
		return nil, nil, err
	}
	r, w := io.Pipe()
	return args, &translated{program: stdin{c}, client: r, out: w, t: t, lost: func(why error) { c.lost(why) }}, nil
}

// freshSession returns a random UUID (version 4), the form of a conversation ID of Claude Code.
func freshSession() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Write takes one message of the client.
func (p *translated) Write(line []byte) (int, error) {
	return len(line), p.step(func() headless.Step { return p.t.FromClient(line) })
}

// step writes the messages that follow from one message. It writes to the client last and without the lock, since
// the client may be writing at the same time.
func (p *translated) step(take func() headless.Step) error {
	p.mu.Lock()
	s := take()
	err := write(p.program, s.Program)
	p.mu.Unlock()
	if err == nil {
		err = write(p.out, s.Client)
	}
	return err
}

func write[T any](w io.Writer, messages []T) error {
	for _, m := range messages {
		line, err := json.Marshal(m)
		if err == nil {
			_, err = w.Write(append(line, '\n'))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// read translates the output of the program until its end. It passes on other lines unchanged.
func (p *translated) read(out *os.File) {
	src := bufio.NewReaderSize(out, 64<<10)
	for {
		line, size, end := lines.Read(src, maxLine)
		var err error
		switch line = bytes.TrimSpace(line); {
		case len(line) == 0:
		case size > maxLine:
			p.lost(fmt.Errorf("it sent a message of %d bytes, more than %d", size, maxLine))
		case line[0] != '{' || !json.Valid(line):
			_, err = p.out.Write(append(line, '\n'))
		default:
			err = p.step(func() headless.Step { return p.t.FromProgram(line) })
		}
		if end != nil || err != nil {
			_ = p.out.Close() // returns no error
			return
		}
	}
}

// close ends reads and writes of messages for the client.
func (p *translated) close() { _ = p.client.Close() } // returns no error

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestMCPInput gives `drover mcp serve` what no client should send: each message is
// answered, and nothing is left when the input ends.
func TestMCPInput(t *testing.T) {
	bin := build(t)
	for name, test := range map[string]func(*testing.T, *place){
		"answers": mcpInputAnswers, "ends": mcpInputEnds, "deaf": mcpInputDeaf,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// rawServer is a server process without a client.
type rawServer struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (p *place) mcpRaw() *rawServer {
	p.t.Helper()
	s := &rawServer{t: p.t, cmd: p.command("mcp", "serve")}
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	p.t.Cleanup(func() { late.Stop() })
	return s
}

func (s *rawServer) send(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, text); err != nil {
		s.t.Fatal(err)
	}
}

// next is the next answer that holds the text; others are passed over.
func (s *rawServer) next(text string) object {
	s.t.Helper()
	for {
		line, err := s.out.ReadBytes('\n')
		if err != nil {
			s.t.Fatalf("no answer with %s: %v", text, err)
		}
		var o object
		if err := json.Unmarshal(line, &o); err != nil || o["jsonrpc"] != "2.0" {
			s.t.Fatalf("%s: %v", line, err)
		}
		if bytes.Contains(line, []byte(text)) {
			return o
		}
	}
}

// leave ends the input and waits for the process to have ended.
func (s *rawServer) leave() {
	s.t.Helper()
	_ = s.in.Close() // it may have ended
	_, _ = io.Copy(io.Discard, s.out)
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the server ended with %v", err)
	}
}

const (
	mcpHello = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},` +
		`"clientInfo":{"name":"t","version":"1"}}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	mcpRunSleep = `{"jsonrpc":"2.0","id":"run","method":"tools/call","params":{"name":"task_run","arguments":{"command":"sleep 641"}}}` + "\n"
	mcpHeldRun  = `{"jsonrpc":"2.0","id":"held","method":"tools/call","params":{"name":"task_run","arguments":{"command":"sleep 642","background":false}}}` + "\n"
)

func mcpInputAnswers(t *testing.T, p *place) {
	s := p.mcpRaw()
	for _, c := range []struct{ sends, answer string }{
		{"garbage\n", `"id":null,"error":{"code":-32700`},
		{"\x00\xff\xfe{\n", `"id":null,"error":{"code":-32700`},
		{"[]\n", `"id":null,"error":{"code":-32600`},
		{"{}\n", `"id":null,"error":{"code":-32600`},
		{"17\n", `"id":null,"error":{"code":-32600`},
		{`{"jsonrpc":"1.0","id":3,"method":"ping"}` + "\n", `"id":3,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":99,"result":{}}` + "\n\n" + `{"jsonrpc":"2.0","id":5,"method":"ping"}` + "\n", `"id":5,"result":{}`},
		{strings.Repeat("x", 100<<20) + "\n", `longer than`},
		{mcpHello, `"id":"hello","result"`},
		{`{"jsonrpc":"2.0","id":4,"method":"no/such"}` + "\n", `"id":4,"error":{"code":-32601`},
		{`[{"jsonrpc":"2.0","id":6,"method":"ping"},{"jsonrpc":"2.0","id":7,"method":"ping"}]` + "\n", `"id":7,"result":{}`},
		{`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"task_run","arguments":[1]}}` + "\n", `"id":8`},
		{`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":17}` + "\n", `"id":9,"error":{"code":-32602`},
		{mcpRunSleep, `"id":"run","result"`},
	} {
		s.send(c.sends)
		s.next(c.answer)
	}
	p.alive("sleep 641")
	s.send(`{"jsonrpc":"2.0","id":10,"met`)
	_ = s.in.Close()
	s.next("the input ended within a message")
	s.leave()
	p.leaves(patience, "sleep 641")
}

// The input may end at any moment.
func mcpInputEnds(t *testing.T, p *place) {
	for _, sends := range []string{"", "{", mcpHello[:20], mcpHello, mcpHello + mcpRunSleep, mcpHello + mcpHeldRun, mcpHello + "garbage"} {
		s := p.mcpRaw()
		s.send(sends)
		s.leave()
	}
	p.leaves(patience, "sleep 64")
	s := p.mcpRaw()
	s.send(mcpHello + mcpHeldRun)
	p.alive("sleep 642")
	s.leave()
	p.leaves(patience, "sleep 642")
}

// A client that reads nothing and leaves does not hold the server up.
func mcpInputDeaf(t *testing.T, p *place) {
	s := p.mcpRaw()
	s.send(mcpHello + mcpHeldRun)
	p.alive("sleep 642")
	sent := make(chan error, 1)
	go func() { // ends when the server has read it, or has ended
		_, err := io.WriteString(s.in, strings.Repeat(`{"jsonrpc":"2.0","id":11,"method":"tools/list"}`+"\n", 2000))
		sent <- errors.Join(err, s.in.Close())
	}()
	p.leaves(patience, "sleep 642")
	<-sent
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

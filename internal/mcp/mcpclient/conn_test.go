package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

func pool(t *testing.T, c Config) *Pool {
	t.Helper()
	c.Env = append(c.Env, "PATH="+os.Getenv("PATH"))
	if c.Pause == 0 {
		c.Pause = time.Millisecond
	}
	if c.Cwd == "" {
		c.Cwd = t.TempDir()
	}
	p := NewPool(c)
	t.Cleanup(p.Close)
	return p
}

func use(t *testing.T, p *Pool, s Server) *Lease {
	t.Helper()
	l, err := p.Use(t.Context(), "fake", s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Release)
	return l
}

func live(t *testing.T, l *Lease) *Conn {
	t.Helper()
	c, err := l.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func params(tool string) map[string]any {
	return map[string]any{"name": tool, "arguments": map[string]any{"a": 1}}
}

// text calls a tool and returns its text.
func text(t *testing.T, c *Conn, tool string) string {
	t.Helper()
	raw, err := c.Call(t.Context(), "tools/call", params(tool))
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return textOf(t, raw)
}

func textOf(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var res struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(raw, &res); err != nil || len(res.Content) != 1 {
		t.Fatalf("result %.200s, %v", raw, err)
	}
	return res.Content[0].Text
}

// transports runs a test over both.
func transports(t *testing.T, mode string, f func(t *testing.T, s Server)) {
	t.Run("stdio", func(t *testing.T) { f(t, stdioServer(t, mode)) })
	t.Run("http", func(t *testing.T) { f(t, Server{URL: newSite(t, mode).URL}) })
}

func TestTalk(t *testing.T) {
	transports(t, "", func(t *testing.T, s Server) {
		c := live(t, use(t, pool(t, Config{}), s))
		if c.Revision() != "2025-11-25" || c.About() != "fake 1" || !strings.Contains(string(c.Capabilities()), "listChanged") {
			t.Errorf("%s, %s, %s", c.Revision(), c.About(), c.Capabilities())
		}
		if got := text(t, c, "echo"); got != `{"a":1}` {
			t.Errorf("echo: %s", got)
		}
		var names []string
		for _, tool := range c.Tools() {
			names = append(names, tool.Name+" "+tool.TaskSupport+" "+string(tool.InputSchema))
		}
		if want := []string{`echo forbidden {"type":"object"}`, `later required {"type":"object"}`}; !slices.Equal(names, want) {
			t.Errorf("tools %q, want %q", names, want)
		}
		_, err := c.Call(t.Context(), "tools/call", params("error"))
		var rpc *RPCError
		if !errors.As(err, &rpc) || rpc.Code != CodeNoMethod || rpc.Message != "no such thing" || string(rpc.Data) != `{"a":1}` {
			t.Errorf("error %v", err)
		}
	})
}

// M1: whenever a server exits, the call that waits fails, and others go on.
func TestM1Exit(t *testing.T) {
	for _, mode := range []string{"exit", "exit:initialize", "exit:notifications/initialized", "exit:tools/list", "exit:tools/call"} {
		t.Run(strings.ReplaceAll(mode, "/", "-"), func(t *testing.T) {
			p := pool(t, Config{})
			other := live(t, use(t, p, stdioServer(t, "")))
			l := use(t, p, stdioServer(t, mode))
			c, err := l.Conn(t.Context())
			if err == nil {
				_, err = c.Call(t.Context(), "tools/call", params("echo"))
				if !errors.Is(err, ErrGone) {
					t.Errorf("the call: %v", err)
				}
			}
			code := "exit code 4"
			if mode == "exit" {
				code = "exit code 3: cannot find my licence"
			}
			if err == nil || !strings.Contains(err.Error(), code) || !strings.Contains(err.Error(), "MCP server fake") {
				t.Errorf("error %v", err)
			}
			if got := text(t, other, "echo"); got != `{"a":1}` {
				t.Errorf("the other answers %q", got)
			}
		})
	}
}

// A server that was lost in a call is there again for the next.
func TestM1Restart(t *testing.T) {
	told := make(chan string, 10)
	l := use(t, pool(t, Config{Tell: func(server, text string) { told <- server + ": " + text }}), stdioServer(t, ""))
	c := live(t, l)
	if _, err := c.Call(t.Context(), "tools/call", params("exit")); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "out of cheese") {
		t.Errorf("the call: %v", err)
	}
	<-c.Gone()
	if text := <-told; text != "fake: it ended with exit code 4: out of cheese" {
		t.Errorf("told %q", text)
	}
	if _, err := c.Call(t.Context(), "ping", nil); !errors.Is(err, ErrGone) {
		t.Errorf("a later call: %v", err)
	}
	if again := live(t, l); again == c || text(t, again, "echo") != `{"a":1}` {
		t.Error("the server is not there again")
	}
}

func TestM1HTTP(t *testing.T) {
	s := newSite(t, "")
	l := use(t, pool(t, Config{}), Server{URL: s.URL})
	c := live(t, l)
	if _, err := c.Call(t.Context(), "tools/call", params("exit")); err == nil {
		t.Error("a call whose connection broke has an answer")
	}
	if got := text(t, c, "echo"); got != `{"a":1}` {
		t.Errorf("the next call: %q", got)
	}
	s.mu.Lock()
	s.current = "another" // as after a restart
	s.mu.Unlock()
	if _, err := c.Call(t.Context(), "tools/call", params("echo")); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), errForgotten.Error()) {
		t.Errorf("in an ended session: %v", err)
	}
	<-c.Gone()
	if got := text(t, live(t, l), "echo"); got != `{"a":1}` {
		t.Errorf("in the next session: %q", got)
	}
	s.CloseClientConnections()
	s.Close()
	for c, err := live(t, l), error(nil); !errors.Is(err, ErrGone); {
		if _, err = c.Call(t.Context(), "tools/call", params("echo")); err == nil {
			t.Fatal("a server that is gone has answered")
		}
	}
	if _, err := l.Conn(t.Context()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("connected to nobody: %v", err)
	}
}

// M2: every wait has a limit, and using a server does not wait for it.
func TestM2Hang(t *testing.T) {
	const little = 50 * time.Millisecond
	for _, method := range []string{"initialize", "tools/list", "tools/call"} {
		transports(t, "hang:"+method, func(t *testing.T, s Server) {
			c := Config{Call: little}
			switch method {
			case "initialize":
				c.Initialize = little
			case "tools/list":
				c.List = little
			}
			l := use(t, pool(t, c), s)
			conn, err := l.Conn(t.Context())
			if err == nil {
				_, err = conn.Call(t.Context(), "tools/call", params("echo"))
			}
			if !errors.Is(err, ErrNoAnswer) {
				t.Errorf("%s: %v", method, err)
			}
		})
	}
}

// M3: an answer that comes after the cancel meets nobody.
func TestM3Late(t *testing.T) {
	c := live(t, use(t, pool(t, Config{}), stdioServer(t, "")))
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := c.Listen("notifications/begun", func(json.RawMessage) { cancel(errors.New("changed my mind")) })
	defer stop()
	if _, err := c.Call(ctx, "tools/call", params("late")); err == nil || err.Error() != "changed my mind" {
		t.Errorf("the call: %v", err)
	}
	// Whatever comes now has an ID that the late one cannot have.
	for c.Stats().Late == 0 {
		if got := text(t, c, "echo"); got != `{"a":1}` {
			t.Fatalf("the next call got %q", got)
		}
	}
}

// M4: what is no message is dropped and counted; a line without an end ends its
// server, which is named.
func TestM4Junk(t *testing.T) {
	c := live(t, use(t, pool(t, Config{}), stdioServer(t, "noise")))
	if got := text(t, c, "echo"); got != `{"a":1}` {
		t.Errorf("echo: %q", got)
	}
	if s := c.Stats(); s.Junk < 6 || !strings.Contains(c.Said(), "tools/call comes") {
		t.Errorf("counted %+v, said %q", s, c.Said())
	}
}

func TestM4Long(t *testing.T) {
	transports(t, "", func(t *testing.T, s Server) {
		c := live(t, use(t, pool(t, Config{FrameBytes: 256 << 10}), s))
		if _, err := c.Call(t.Context(), "tools/call", params("huge")); !errors.Is(err, ErrTooLong) {
			t.Errorf("a long answer: %v", err)
		}
		if got := text(t, c, "echo"); got != `{"a":1}` || c.Stats().Long != 1 {
			t.Errorf("after that %q, %+v", got, c.Stats())
		}
	})
	t.Run("endless", func(t *testing.T) {
		c := live(t, use(t, pool(t, Config{FrameBytes: 16 << 10}), stdioServer(t, "")))
		_, err := c.Call(t.Context(), "tools/call", params("endless"))
		if !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "MCP server fake: the server has gone: it printed a line of more than 131072 bytes") {
			t.Errorf("the call: %v", err)
		}
	})
}

// M5: of a flood on stderr the end is kept.
func TestM5Stderr(t *testing.T) {
	c := live(t, use(t, pool(t, Config{}), stdioServer(t, "")))
	if got := text(t, c, "stderr"); got != "done" {
		t.Errorf("the call: %q", got)
	}
	for !strings.HasSuffix(c.Said(), "\nthe end\n") { // another pipe than that of the answer
		text(t, c, "echo")
	}
	if n := len(c.Said()); n > saidKept {
		t.Errorf("%d bytes are kept", n)
	}
}

// M6: progress is merged.
func TestM6Progress(t *testing.T) {
	transports(t, "", func(t *testing.T, s Server) {
		c := live(t, use(t, pool(t, Config{FrameBytes: 32 << 20}), s))
		var got []Progress
		begun := time.Now()
		raw, err := c.CallOpt(t.Context(), "tools/call", params("progress"), CallOptions{Progress: func(p Progress) { got = append(got, p) }})
		if err != nil || textOf(t, raw) != "done" {
			t.Fatalf("%s, %v", raw, err)
		}
		most := int(time.Since(begun)/progressEvery) + 2
		if len(got) == 0 || len(got) > most || got[0].Total != 20_000 || !slices.IsSortedFunc(got, func(a, b Progress) int { return int(a.Done - b.Done) }) {
			t.Errorf("told %d times, want 1 to %d", len(got), most)
		}
		got = nil // who wants it more rarely gets it so
		_, err = c.CallOpt(t.Context(), "tools/call", params("progress"),
			CallOptions{Progress: func(p Progress) { got = append(got, p) }, Every: time.Hour})
		if err != nil || len(got) > 1 {
			t.Errorf("told %d times in less than an hour, %v", len(got), err)
		}
	})
}

// M7: a server that ignores the cancel holds up nobody, and one that ignores
// everything is ended in the end.
func TestM7Stubborn(t *testing.T) {
	s := stdioServer(t, "stubborn")
	p := pool(t, Config{})
	c := live(t, use(t, p, s))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := c.Call(ctx, "tools/call", params("hang"))
		done <- err
	}()
	text(t, c, "echo")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the call: %v", err)
	}
	pid, err := strconv.Atoi(text(t, c, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is left: %v", pid, err)
	}
}

// M8: answers that nobody waits for are dropped and counted.
func TestM8IDs(t *testing.T) {
	transports(t, "", func(t *testing.T, s Server) {
		c := live(t, use(t, pool(t, Config{}), s))
		if got := text(t, c, "ids"); got != "first" {
			t.Errorf("the call got %q", got)
		}
		if got := text(t, c, "echo"); got != `{"a":1}` {
			t.Errorf("the next got %q", got)
		}
		want := Stats{Unknown: 2, Batches: 1, Late: 1}
		if s.URL != "" {
			want.Late = 0 // the stream is closed after the answer
		}
		if got := c.Stats(); got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
	})
}

// M11: however many want a server that does not start, it is tried a few times
// and then given up.
func TestM11Storm(t *testing.T) {
	s := stdioServer(t, "exit")
	l := use(t, pool(t, Config{}), s)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for {
				if _, err := l.Conn(t.Context()); errors.Is(err, ErrGivenUp) {
					return
				} else if err == nil {
					t.Error("connected")
					return
				}
			}
		})
	}
	all.Wait()
	if n := len(starts(t, s)); n != maxFailures {
		t.Errorf("started %d times, want %d", n, maxFailures)
	}
	if _, err := l.Peek(); err == nil || !strings.Contains(err.Error(), "MCP server fake has failed 5 times in a row: it is given up: it ended with exit code 3: cannot find my licence") {
		t.Errorf("the state: %v", err)
	}
}

func TestPatience(t *testing.T) {
	now := time.Unix(1000, 0)
	var p patience
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		p.failed(now, 0, time.Second, 0.5)
		if got := p.until.Sub(now); got != want || p.spent() {
			t.Errorf("after failure %d: %v, want %v", i+1, got, want)
		}
	}
	p.failed(now, wellBehaved, time.Second, 1)
	if got := p.until.Sub(now); got != 1500*time.Millisecond || p.failures != 1 {
		t.Errorf("after a long life: %v, %d", got, p.failures)
	}
	for range 100 {
		p.failed(now, 0, time.Second, 0)
	}
	if got := p.until.Sub(now); got != maxPause/2 || !p.spent() {
		t.Errorf("after many: %v", got)
	}
}

// Fifty users of one server are users of one process; it ends some time after
// the last has let go.
func TestShared(t *testing.T) {
	s := stdioServer(t, "")
	p := pool(t, Config{Idle: time.Millisecond})
	var all sync.WaitGroup
	leases := make([]*Lease, 50)
	conns := make([]*Conn, 50)
	for i := range leases {
		all.Go(func() {
			mine := s
			mine.AllowedTools = []string{strconv.Itoa(i)} // who sees what of it is no other server
			leases[i] = use(t, p, mine)
			conns[i] = live(t, leases[i])
			text(t, conns[i], "echo")
		})
	}
	all.Wait()
	if pids := starts(t, s); len(pids) != 1 {
		t.Fatalf("%d processes", len(pids))
	}
	for _, l := range leases[1:] {
		l.Release()
		l.Release()
	}
	text(t, live(t, leases[0]), "echo")
	leases[0].Release()
	<-conns[0].Gone()
	if _, err := leases[0].Conn(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("a lease that was released: %v", err)
	}
	text(t, live(t, use(t, p, s)), "echo")
	if pids := starts(t, s); len(pids) != 2 {
		t.Errorf("%d processes", len(pids))
	}
}

func TestKey(t *testing.T) {
	base := Server{Command: "c", Args: []string{"a", "b"}, Env: map[string]string{"K": "v"}, Cwd: "/w"}
	other := map[string]Server{
		"args":    {Command: "c", Args: []string{"a b"}, Env: base.Env, Cwd: "/w"},
		"command": {Command: "d", Args: base.Args, Env: base.Env, Cwd: "/w"},
		"env":     {Command: "c", Args: base.Args, Env: map[string]string{"K": "w"}, Cwd: "/w"},
		"cwd":     {Command: "c", Args: base.Args, Env: base.Env, Cwd: "/x"},
		"url":     {URL: "http://x"},
		"headers": {URL: "http://x", Headers: map[string]string{"A": "b"}},
	}
	seen := map[string]string{base.Key("/p"): "base"}
	for name, s := range other {
		if twin := seen[s.Key("/p")]; twin != "" {
			t.Errorf("%s has the key of %s", name, twin)
		}
		seen[s.Key("/p")] = name
	}
	same := base
	same.Cwd, same.Type, same.DisabledTools, same.TimeoutMS = "", "stdio", []string{"x"}, 7
	if same.Key("/w") != base.Key("/p") {
		t.Error("what does not concern the process changes the key")
	}
}

func TestCheck(t *testing.T) {
	for want, s := range map[string]Server{
		"":                                    {Command: "x"},
		"neither a command nor a url":         {},
		"a command and a url":                 {Command: "x", URL: "http://x"},
		"type sse does not go with":           {Type: "sse", Command: "x"},
		`type "ws" is not known`:              {Type: "ws", URL: "http://x"},
		"type stdio does not go with":         {Type: "stdio", URL: "http://x"},
		"type http does not go with":          {Type: "http", Command: "x"},
		`its url is no http or https address`: {URL: "file:///x"},
		`header "A" is not one line`:          {URL: "http://x", Headers: map[string]string{"A": "b\nc"}},
	} {
		err := s.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
	if _, err := pool(t, Config{}).Use(t.Context(), "x", Server{Type: "ws", URL: "http://x"}); err == nil || !strings.Contains(err.Error(), `MCP server x: type "ws"`) {
		t.Errorf("used: %v", err)
	}
}

// A server that changes its tools is asked for them again.
func TestRelist(t *testing.T) {
	c := live(t, use(t, pool(t, Config{}), stdioServer(t, "")))
	before := c.Tools()[0]
	text(t, c, "change")
	for c.Tools()[0].Description != "version 1" {
		text(t, c, "echo")
	}
	if after := c.Tools()[0]; after.Digest() == before.Digest() {
		t.Error("the digest is the same")
	}
}

// Requests of the server are answered: by who serves them, or with what is so by
// itself.
func TestServe(t *testing.T) {
	for _, with := range []bool{false, true} {
		transports(t, "", func(t *testing.T, s Server) {
			c := live(t, use(t, pool(t, Config{}), s))
			answers := make(chan string, 10)
			defer c.Listen("notifications/answered", func(p json.RawMessage) { answers <- string(p) })()
			want := []string{`{"id":"q1","result":{"action":"cancel"}}`, `{"id":"q2","result":{}}`, `{"id":"q3","result":{"code":-32601,"message":"method not found: sampling/createMessage"}}`}
			if with {
				want[0] = `{"id":"q1","result":{"action":"accept"}}`
				defer c.Serve("elicitation/create", func(_ context.Context, p json.RawMessage) (any, error) {
					if string(p) != `{"message":"name?"}` {
						t.Errorf("asked %s", p)
					}
					return map[string]string{"action": "accept"}, nil
				})()
				defer c.Serve("elicitation/create", func(context.Context, json.RawMessage) (any, error) { return nil, ErrNotMine })()
			}
			text(t, c, "ask")
			if s.URL != "" {
				return // the answers go into other requests there
			}
			for range want {
				got := <-answers
				if !slices.Contains(want, got) {
					t.Errorf("answered %s, want one of %q", got, want)
				}
			}
		})
	}
}

// A server that asks too much at the same time is told so, and hears meanwhile
// that somebody is there.
func TestServeMany(t *testing.T) {
	c := live(t, use(t, pool(t, Config{}), stdioServer(t, "")))
	answers := make(chan string, 2*inFlight)
	defer c.Listen("notifications/answered", func(p json.RawMessage) { answers <- string(p) })()
	hold := make(chan struct{})
	defer c.Serve("elicitation/create", func(ctx context.Context, _ json.RawMessage) (any, error) {
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return map[string]string{"action": "accept"}, nil
	})()
	text(t, c, "askmany")
	var got []string
	for range 4 {
		got = append(got, <-answers)
	}
	close(hold)
	for range inFlight {
		if a := <-answers; !strings.Contains(a, "accept") {
			t.Errorf("answered %s", a)
		}
	}
	refused := slices.DeleteFunc(slices.Clone(got), func(a string) bool { return !strings.Contains(a, "too many requests") })
	if len(refused) != 3 || !slices.Contains(got, `{"id":"p","result":{}}`) || c.Stats().Refused != 3 {
		t.Errorf("answered %q, %+v", got, c.Stats())
	}
}

// Who has waited to write until the connection ended does not write: one after
// the other would hold up the end of a server that does not read.
func TestWriteAtEnd(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := newConn(t.Context(), "fake", limits{})
	w := &stdio{c: c, pipes: process.Streams{In: in}}
	c.end(ErrClosed)
	if err := w.write([]byte("{}")); !errors.Is(err, ErrGone) {
		t.Errorf("written: %v", err)
	}
	_ = in.Close()
	if got, err := io.ReadAll(out); err != nil || len(got) != 0 {
		t.Errorf("the server reads %q, %v", got, err)
	}
	_ = out.Close()
}

// Addresses hold secrets: no error tells more of one than its host.
func TestSecretAddress(t *testing.T) {
	l := use(t, pool(t, Config{}), Server{URL: "http://127.0.0.1:1/mcp?key=hush"})
	if _, err := l.Conn(t.Context()); err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("connected to nobody: %v", err)
	}
	for _, odd := range []string{"ftp://h/?key=hush", "http://h/%zz?key=hush", "hush"} {
		if err := (Server{URL: odd}).Check(); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", odd, err)
		}
	}
}

// A server that was given up has another chance, once, when somebody comes to use
// it after a while.
func TestSecondWind(t *testing.T) {
	s := stdioServer(t, "exit")
	p := pool(t, Config{})
	l := use(t, p, s)
	spend := func(l *Lease) {
		for err := error(nil); !errors.Is(err, ErrGivenUp); {
			_, err = l.Conn(t.Context())
		}
	}
	spend(l)
	spend(use(t, p, s))
	if n := len(starts(t, s)); n != maxFailures {
		t.Errorf("started %d times, want %d", n, maxFailures)
	}
	p.mu.Lock()
	l.e.patience.until = time.Now().Add(-secondWind)
	p.mu.Unlock()
	spend(use(t, p, s))
	if n := len(starts(t, s)); n != maxFailures+1 {
		t.Errorf("started %d times, want one more", n)
	}
}

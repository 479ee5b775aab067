package mcpclient

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// fakeMode makes the test binary a server that misbehaves as it says.
const fakeMode = "FAKE_MCP"

func TestMain(m *testing.M) {
	if mode, ok := os.LookupEnv(fakeMode); ok {
		fakeStdio(mode)
		return
	}
	if os.Getenv(foreignMode) != "" {
		foreignStdio()
		return
	}
	goleak.VerifyTestMain(m)
}

// fake is a server whose tools do what their names say. mode adds faults of the
// connection, in words between spaces.
type fake struct {
	mode string

	mu     sync.Mutex
	out    func(frame string) // guarded by mu
	tools  int                // times that they were changed
	task   string             // that was made for it
	can    string             // capabilities of the client
	held   string             // an answer that waits for initialize
	wanted map[string]bool    // calls that answer when they are cancelled
	asked  bool               // for the revisions that it supports
}

// refuse reports true once.
func (f *fake) refuse() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.asked
	f.asked = true
	return !before
}

func (f *fake) has(word string) bool { return strings.Contains(" "+f.mode+" ", " "+word+" ") }

func (f *fake) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out(fmt.Sprintf(format, args...))
}

// take answers one frame. die ends the server.
func (f *fake) take(frame []byte, die func()) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
			Can       json.RawMessage `json:"capabilities"`
			RequestID json.RawMessage `json:"requestId"`
			Meta      struct {
				Token json.RawMessage `json:"progressToken"`
			} `json:"_meta"`
		} `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if json.Unmarshal(frame, &m) != nil {
		return
	}
	if f.has("exit:" + m.Method) {
		die()
	}
	if f.has("hang:" + m.Method) {
		return
	}
	if f.has("noise") {
		f.say("[info] %s comes\r", m.Method)
		f.say("\xef\xbb\xbf")
		f.say("{\"level\":\"debug\",\"msg\":\"a log line\"}")
	}
	answer := func(format string, args ...any) {
		f.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, fmt.Sprintf(format, args...))
	}
	text := func(s string) {
		quoted, _ := json.Marshal(s)
		answer(`{"content":[{"type":"text","text":%s}]}`, quoted)
	}
	switch m.Method {
	case "server/discover":
		switch newest := `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`; {
		case f.has("slow"):
			f.mu.Lock()
			f.held = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, newest)
			f.mu.Unlock()
		case f.has("reluctant") && f.refuse():
			f.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"x"}}}`, m.ID)
		case f.has("newest"):
			answer("%s", newest)
		case !f.has("silent"):
			f.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID)
		}
	case "initialize":
		f.mu.Lock()
		f.can = string(m.Params.Can)
		f.mu.Unlock()
		if f.has("newest") {
			f.say("%s", f.held)
			f.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID)
			return
		}
		answer(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"}}`)
	case "tools/list":
		f.mu.Lock()
		n := f.tools
		f.mu.Unlock()
		answer(`{"tools":[{"name":"echo","description":"version %d","inputSchema":{"type":"object"}},{"name":"bad","inputSchema":"none"},`+
			`{"name":"echo","inputSchema":{"type":"object","title":"shadow"}},{"name":"later","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}`, n)
	case "notifications/cancelled":
		f.mu.Lock()
		waits := f.wanted[string(m.Params.RequestID)]
		f.mu.Unlock()
		if waits {
			m.ID = m.Params.RequestID
			text("too late")
		}
	case "tools/call":
		if asks := asking(m.Params.Name); asks != "" {
			answer("%s", asks)
			return
		}
		f.call(m.Params.Name, m.ID, m.Params.Meta.Token, m.Params.Arguments, text, die)
	case "":
		f.follow(string(m.ID), m.Result)
		f.say(`{"jsonrpc":"2.0","method":"notifications/answered","params":{"id":%s,"result":%s%s}}`, m.ID, m.Result, m.Error)
	}
}

// follow asks about the task of asktask: first while it is at work, then when it
// is over.
func (f *fake) follow(id string, result json.RawMessage) {
	var made struct{ Task struct{ TaskID string } }
	_ = json.Unmarshal(result, &made)
	f.mu.Lock()
	if made.Task.TaskID != "" {
		f.task = made.Task.TaskID
	}
	task := f.task
	f.mu.Unlock()
	end := "result"
	if f.has("cancels") {
		end = "cancel"
	}
	for _, ask := range map[string][]string{`"made"`: {"first get", "first list", "end " + end}, `"end"`: {"second get", "second cancel", "second result"}}[id] {
		when, method, _ := strings.Cut(ask, " ")
		key := when + " " + method
		if when == "end" {
			key = when
		}
		f.say(`{"jsonrpc":"2.0","id":%q,"method":"tasks/%s","params":{"taskId":%q}}`, key, method, task)
	}
	if id == `"end"` {
		f.say(`{"jsonrpc":"2.0","id":"nobody","method":"tasks/get","params":{"taskId":"nobody"}}`)
	}
}

func (f *fake) call(name string, id, token, args json.RawMessage, text func(string), die func()) {
	switch name {
	case "echo":
		text(string(args))
	case "pid":
		text(fmt.Sprint(os.Getpid()))
	case "env":
		text(strings.Join(os.Environ(), "\n"))
	case "exit":
		fmt.Fprintln(os.Stderr, "out of cheese")
		die()
	case "hang":
	case "late":
		f.mu.Lock()
		f.wanted[string(id)] = true
		f.mu.Unlock()
		f.say(`{"jsonrpc":"2.0","method":"notifications/begun"}`)
	case "stderr":
		_, _ = io.Copy(os.Stderr, io.LimitReader(endless('e'), 3<<20))
		fmt.Fprintln(os.Stderr, "\nthe end")
		text("done")
	case "progress":
		for i := range 20_000 {
			f.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":20000,"message":"m"}}`, token, i+1)
		}
		text("done")
	case "ids":
		f.say(`{"jsonrpc":"2.0","id":987654,"result":{}}`)
		f.say(`{"jsonrpc":"2.0","id":"what","result":{}}`)
		f.say(`[{"jsonrpc":"2.0","id":%s,"result":{}}]`, id)
		text("first")
		text("second")
	case "huge":
		text(strings.Repeat("x", 1<<20))
	case "endless":
		_, _ = io.Copy(os.Stdout, endless('x')) // until it is ended
	case "change":
		f.mu.Lock()
		f.tools++
		f.mu.Unlock()
		f.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		text("changed")
	case "ask":
		f.say(`{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"name?"}}`)
		f.say(`{"jsonrpc":"2.0","id":"q2","method":"ping"}`)
		f.say(`{"jsonrpc":"2.0","id":"q3","method":"sampling/createMessage","params":{}}`)
		text("asked")
	case "asksroots":
		f.say(`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
		text("asked")
	case "capabilities":
		f.mu.Lock()
		can := f.can
		f.mu.Unlock()
		text(can)
	case "askmany":
		for i := range inFlight + 3 {
			f.say(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{}}`, 100+i)
		}
		f.say(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		text("asked")
	case "asktask":
		f.say(`{"jsonrpc":"2.0","id":"made","method":"elicitation/create","params":{"message":"name?","task":{"ttl":1}}}`)
		text("asked")
	case "error":
		f.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such thing","data":{"a":1}}}`, id)
	}
}

// asking is an answer with questions.
func asking(tool string) string {
	ask := `{"method":"elicitation/create","params":{"message":"name?"}}`
	switch tool {
	case "asksalways":
		return `{"resultType":"input_required","inputRequests":{"a":` + ask + `},"requestState":"s"}`
	case "asksall":
		var all []string
		for i := range inFlight + 1 {
			all = append(all, fmt.Sprintf(`"q%d":%s`, i, ask))
		}
		return `{"resultType":"input_required","inputRequests":{` + strings.Join(all, ",") + `}}`
	case "busy":
		return `{"resultType":"input_required","requestState":"s"}`
	case "asksodd":
		return `{"resultType":"input_required","inputRequests":{"a":{"method":"files/read"}}}`
	}
	return ""
}

type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

func fakeStdio(mode string) {
	f := &fake{mode: mode, wanted: map[string]bool{}, out: func(frame string) { fmt.Println(frame) }}
	if at := os.Getenv("FAKE_STARTS"); at != "" {
		file, err := os.OpenFile(at, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(file, os.Getpid())
		_ = file.Close()
	}
	if f.has("exit") {
		fmt.Fprintln(os.Stderr, "cannot find my licence")
		os.Exit(3)
	}
	if f.has("stubborn") {
		signal.Ignore(syscall.SIGTERM)
	}
	r := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		frame, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		f.take(frame, func() { os.Exit(4) })
	}
	if f.has("stubborn") {
		never := make(chan os.Signal, 1)
		signal.Notify(never, syscall.SIGUSR1)
		<-never // until KILL
	}
}

// stdioServer is the test binary as a server.
func stdioServer(t *testing.T, mode string) Server {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Server{Command: self, Env: map[string]string{fakeMode: mode, "FAKE_STARTS": filepath.Join(t.TempDir(), "starts")}}
}

// starts are the numbers of the processes that were started.
func starts(t *testing.T, s Server) []string {
	t.Helper()
	data, err := os.ReadFile(s.Env["FAKE_STARTS"])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// site is the same over HTTP, in this process.
type site struct {
	*httptest.Server
	fake *fake

	taking sync.Mutex // held while the fake answers

	mu       sync.Mutex // guards what follows
	sessions int
	current  string
	methods  []string // of HTTP
	headers  http.Header
	pushed   chan string // for the stream that the client opens; nil: it has none
	plain    bool        // answers are bodies, not streams
	broken   bool        // the stream of the next call breaks after its first event
	kept     []string    // what was not sent then
	whole    func(w http.ResponseWriter, r *http.Request) bool
}

func newSite(t *testing.T, mode string) *site {
	s := &site{fake: &fake{mode: mode, wanted: map[string]bool{}}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.methods = append(s.methods, r.Method)
	s.headers = r.Header.Clone()
	whole, pushed, current := s.whole, s.pushed, s.current
	s.mu.Unlock()
	if whole != nil && whole(w, r) {
		return
	}
	body, _ := io.ReadAll(r.Body)
	begins := bytes.Contains(body, []byte(`"initialize"`))
	if !begins && r.Header.Get("Mcp-Session-Id") != current {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	switch {
	case r.Method == http.MethodGet && r.Header.Get("Last-Event-ID") != "":
		s.mu.Lock()
		kept := s.kept
		s.kept = nil
		s.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		for _, frame := range kept {
			fmt.Fprintf(w, "data: %s\n\n", frame)
		}
	case r.Method == http.MethodGet && pushed != nil:
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for {
			select {
			case frame := <-pushed:
				fmt.Fprintf(w, "data: %s\n\n", frame)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case r.Method == http.MethodDelete:
	default:
		s.post(w, r, body, begins)
	}
}

func (s *site) post(w http.ResponseWriter, r *http.Request, body []byte, begins bool) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	_ = json.Unmarshal(body, &m)
	var frames []string
	s.taking.Lock() // each request has frames of its own
	s.fake.mu.Lock()
	s.fake.out = func(frame string) { frames = append(frames, frame) }
	s.fake.mu.Unlock()
	dead := false
	s.fake.take(body, func() { dead = true })
	s.taking.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if dead {
		panic(http.ErrAbortHandler)
	}
	if begins {
		s.sessions++
		s.current = fmt.Sprint("session-", s.sessions)
		w.Header().Set("Mcp-Session-Id", s.current)
	}
	switch {
	case m.ID == nil || m.Method == "":
		w.WriteHeader(http.StatusAccepted)
	case s.plain && len(frames) > 0:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, frames[len(frames)-1])
	default:
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		if s.broken && m.Method == "tools/call" {
			fmt.Fprint(w, "id: e1\nretry: 1\ndata: \n\n")
			s.kept, s.broken = frames, false
			return
		}
		for _, frame := range frames {
			fmt.Fprintf(w, "event: message\r\ndata: %s\r\n\r\n", frame)
		}
		if len(frames) == 0 {
			w.(http.Flusher).Flush()
			s.mu.Unlock()
			<-r.Context().Done()
			s.mu.Lock()
		}
	}
}

package remoteapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers every request by one function.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := Dial(Service{URL: s.URL + "/below/", Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func answer(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, text)
	}
}

func TestTypes(t *testing.T) {
	for _, word := range []string{"remote-agent", "ultraplan", "ultrareview", "autofix-pr", "background-pr"} {
		if got, err := ParseType(word); err != nil || string(got) != word {
			t.Errorf("%s: %v, %v", word, got, err)
		}
	}
	if got, err := ParseType(""); err != nil || got != Agent {
		t.Errorf("none: %v, %v", got, err)
	}
	if _, err := ParseType("cloud"); err == nil {
		t.Error("an unknown type was taken")
	}
}

func TestURL(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://example.com": true, "https://example.com/a/b": true, "http://127.0.0.1:80": true, "http://[::1]:80": true, "http://localhost:1": true,
		"http://example.com": false, "http://127.0.0.1.example.com": false, "https://u:p@example.com": false, "https://example.com/?a=b": false,
		"ftp://example.com": false, "https://": false, "": false, "example.com": false, "http://0.0.0.0:1": false, "https://example.com/#x": false, "file:///etc": false,
	} {
		if _, err := CheckURL(text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	if onlyLocal("tcp", "192.0.2.1:80", nil) == nil || onlyLocal("tcp", "127.0.0.1:80", nil) != nil {
		t.Error("a name of this machine may lead elsewhere")
	}
	if _, err := Dial(Service{URL: "https://example.com", Token: "a\nb"}); err == nil {
		t.Error("a token with a line break was taken")
	}
}

// The requests are those of docs/remote-agents.md.
func TestRequests(t *testing.T) {
	var got []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, fmt.Sprintf("%s %s key=%s %s", r.Method, r.URL, r.Header.Get("Idempotency-Key"), body))
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("token %q", r.Header.Get("Authorization"))
		}
		if strings.Contains(r.URL.Path, "/output") {
			_, _ = io.WriteString(w, "bytes")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"session_id":"s:1","status":"running","cursor":"7"}`)
	})
	ctx := t.Context()
	id, err := c.Create(ctx, Request{Key: "run_1", Type: Agent, Prompt: "p"})
	if err != nil || id != "s:1" {
		t.Fatal(id, err)
	}
	page, err := c.Poll(ctx, id, "6", 1500*time.Millisecond)
	if err != nil || page.Cursor != "7" || page.Status != Running {
		t.Error(page, err)
	}
	if data, err := c.Output(ctx, id, 12); err != nil || string(data) != "bytes" {
		t.Error(data, err)
	}
	if err := errors.Join(c.Send(ctx, id, "hello"), c.Archive(ctx, id)); err != nil {
		t.Error(err)
	}
	want := []string{
		`POST /below/v1/remote/sessions key=run_1 {"type":"remote-agent","prompt":"p"}`,
		`GET /below/v1/remote/sessions/s:1/events?after=6&wait=1.5 key= `,
		`GET /below/v1/remote/sessions/s:1/output?offset=12 key= `,
		`POST /below/v1/remote/sessions/s:1/messages key= {"text":"hello"}`,
		`POST /below/v1/remote/sessions/s:1/archive key= {}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("requests\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What a service answers wrongly is an error that says so, of a bounded size, and
// tells what may pass from what will not.
func TestBadAnswers(t *testing.T) {
	refuse := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"error":{"message":"not\ntoday`+"\x1b[31m"+`"}}`)
		}
	}
	for name, c := range map[string]struct {
		h       http.HandlerFunc
		says    string
		passing bool
	}{
		"html":     {answer("text/html", "<html>log in</html>"), "not JSON", true},
		"cut":      {answer("application/json", `{"status":"run`), "cannot be read", true},
		"status":   {answer("application/json", `{"status":"dreaming"}`), "not known", true},
		"negative": {answer("application/json", `{"status":"running","output_bytes":-1}`), "-1 bytes", true},
		"nowhere":  {answer("application/json", `{"status":"running","more":true}`), "more follows", true},
		"oversized": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"status":"running","phase":"`+strings.Repeat("x", maxPage)+`"}`)
		}, "larger than", true},
		"busy":     {refuse(429, "Retry-After", "7"), "429", true},
		"broken":   {refuse(502), "502", true},
		"redirect": {refuse(302, "Location", "http://127.0.0.1:1/stolen"), "302", true},
		"denied":   {refuse(401), "401", false},
		"gone":     {refuse(404), "404", false},
		"reset": {func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, "EOF", true},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, c.h)
			_, err := client.Poll(t.Context(), "s1", "", 0)
			if err == nil || !strings.Contains(err.Error(), c.says) || Passing(err) != c.passing || len(err.Error()) > 600 || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%v (passing: %v)", err, Passing(err))
			}
			if _, err := client.Create(t.Context(), Request{Key: "k", Prompt: "p"}); err == nil {
				t.Error("a session was made of it")
			}
		})
	}
	busy := serve(t, refuse(429, "Retry-After", "7"))
	var status *StatusError
	if _, err := busy.Poll(t.Context(), "s1", "", 0); !errors.As(err, &status) || status.RetryAfter != 7*time.Second {
		t.Errorf("Retry-After: %v", err)
	}
	big := serve(t, answer("application/octet-stream", strings.Repeat("x", MaxOutput+1)))
	if _, err := big.Output(t.Context(), "s1", 0); err == nil {
		t.Error("output of any size was taken")
	}
}

// A caller who goes is told why, and at once.
func TestSlow(t *testing.T) {
	asked, free := make(chan struct{}), make(chan struct{})
	c := serve(t, func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-free
	})
	defer close(free)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	go func() { // ends with the request
		<-asked
		cancel(enough)
	}()
	if _, err := c.Poll(ctx, "s1", "", MaxHold); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}

func TestSessionIDs(t *testing.T) {
	for id, ok := range map[string]bool{"s1": true, "rs-a.b_c:d": true, "": false, "..": false, ".": false, "a/b": false, "a%2fb": false, "a b": false, "é": false, strings.Repeat("x", 201): false} {
		if err := CheckSession(id); (err == nil) != ok {
			t.Errorf("%q: %v", id, err)
		}
	}
	c := serve(t, answer("application/json", `{"session_id":"../../x"}`))
	if _, err := c.Create(t.Context(), Request{}); err == nil {
		t.Error("an ID that leads elsewhere was taken")
	}
}

func TestPace(t *testing.T) {
	busy := &StatusError{Code: 503}
	p := Pace{Jitter: func() float64 { return 0 }}
	now := time.Unix(1000, 0)
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if got, err := p.Bad(now, busy); err != nil || got != want*time.Second {
			t.Errorf("after failure %d: %v, %v", i+1, got, err)
		}
	}
	if got, _ := p.Bad(now, &StatusError{Code: 429, RetryAfter: time.Minute}); got != time.Minute {
		t.Errorf("Retry-After: %v", got)
	}
	if got, _ := p.Bad(now, &StatusError{Code: 429, RetryAfter: 24 * time.Hour}); got != retryMost {
		t.Errorf("a day: %v", got)
	}
	var gone *UnreachableError
	if _, err := p.Bad(now.Add(DefaultOffline), busy); !errors.As(err, &gone) || !errors.Is(err, busy) {
		t.Errorf("for too long: %v", err)
	}
	p.Good(0, true)
	if got, err := p.Bad(now.Add(2*DefaultOffline), busy); err != nil || got != time.Second {
		t.Errorf("after a good answer: %v, %v", got, err)
	}
	if _, err := p.Bad(now, &StatusError{Code: 403}); err == nil {
		t.Error("what will not pass is waited for")
	}
	p.Jitter = func() float64 { return 0.999 }
	p.Good(0, true)
	if got, _ := p.Bad(now, busy); got < time.Second/2 || got >= time.Second {
		t.Errorf("with jitter: %v", got)
	}

	p = Pace{}
	for i, want := range []time.Duration{1, 2, 4, 4} {
		if got := p.Good(0, false); got != want*time.Second {
			t.Errorf("quiet for the %d. time: %v", i+1, got)
		}
	}
	if got := p.Good(300*time.Millisecond, true); got != 700*time.Millisecond {
		t.Errorf("after news: %v", got)
	}
	if got := p.Good(MaxHold, false); got != 0 {
		t.Errorf("after a poll that was held: %v", got)
	}
}

func TestSidecarFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r1.json")
	want := Sidecar{Task: "r1", Session: "s1", Type: Ultraplan, Metadata: json.RawMessage(`{"a":1}`)}
	if err := WriteSidecar(path, want); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadSidecar(path); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v", got, err)
	}
	if err := errors.Join(RemoveSidecar(path), RemoveSidecar(path)); err != nil {
		t.Error(err)
	}
	if _, err := ReadSidecar(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for _, bad := range []string{"", "{", `{"sessionId":"../x"}`} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSidecar(path); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// RA-11: what a hook says goes before what the agent says.
func TestReviewSources(t *testing.T) {
	var f Fold
	f.Add(Event{Type: AssistantEvent, Text: "<remote-review>said</remote-review>"})
	if got, ok := f.Review(); !ok || got != "said" {
		t.Errorf("of the agent alone: %q", got)
	}
	f.Add(Event{Type: HookEvent, Text: "<remote-review>of the hook</remote-review>"})
	if got, ok := f.Review(); !ok || got != "of the hook" {
		t.Errorf("of both: %q", got)
	}
}

func TestFoldBounds(t *testing.T) {
	var f Fold
	for range 3 {
		f.Add(Event{Type: HookEvent, Text: strings.Repeat("x", maxStream)})
		f.Add(Event{Type: "of a later version", Text: "y"})
	}
	f.Add(Event{Type: HookEvent, Text: "<remote-review>late</remote-review>"})
	if got, ok := f.Review(); !ok || got != "late" || len(f.hook.text) > maxStream {
		t.Errorf("%q, %d bytes kept", got, len(f.hook.text))
	}
	for range 9 {
		f.Add(Event{Type: ToolEvent, Tool: "Read", Input: json.RawMessage(`{`)})
	}
	if f.Tools != 9 || len(f.Recent) != recentTools || f.Latest.Input != nil {
		t.Errorf("%d tools, %d kept, %s", f.Tools, len(f.Recent), f.Latest.Input)
	}
}

// A command says by its exit and its output whether the work is done; nothing of
// it is left.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	page := Page{Status: Running, Phase: "x", Events: []Event{{Type: AssistantEvent, Text: "said"}}}
	for name, c := range map[string]struct {
		line string
		want string // "-": nil
		says string // of the error
	}{
		"goes-on":  {"true", "-", ""},
		"done":     {`read -r line; case $line in *'"pr":7'*'"said"'*) echo merged;; esac`, "merged", ""},
		"unread":   {"echo merged", "merged", ""},
		"fails":    {"echo merged; exit 3", "", "exit code 3"},
		"signal":   {"kill -9 $$", "", "SIGKILL"},
		"flood":    {"yes | head -c 3000000", strings.TrimSpace(strings.Repeat("y\n", checkText/2)), ""},
		"straggle": {"(trap '' TERM; exec -a straggler sleep 600) & echo $! > pid; echo merged", "merged", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := (&Command{Line: c.line, Dir: dir, Env: env}).Check(t.Context(), json.RawMessage(`{"pr":7}`), page)
			got := "-"
			if text != nil {
				got = *text
			}
			if (err != nil) != (c.says != "") || err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%.60q, %v", got, err)
			}
		})
	}
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	if line, _ := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/cmdline"); strings.Contains(string(line), "straggler") {
		t.Errorf("left: %q", line)
	}
	unsafe := &Command{Line: "echo merged", Dir: dir, Env: env, Ready: func() error { return errors.New("nobody looks") }}
	if _, err := unsafe.Check(t.Context(), nil, page); err == nil {
		t.Error("a command was started that nobody would end")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := (&Command{Line: "sleep 600", Dir: dir, Env: env}).Check(ctx, nil, page); err == nil {
		t.Error("a check went on after its end")
	}
}

// No answer of a service breaks what reads it.
func FuzzPage(f *testing.F) {
	for _, seed := range []string{`{"status":"running","cursor":"1","events":[{"type":"tool","tool":"x","input":{"a":1}}]}`, `{"status":"completed","result":"x"}`, `{"events":[{"type":"hook_progress","text":"<remote-review>"}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Page
		if json.Unmarshal(data, &p) != nil || p.Check() != nil {
			return
		}
		var fold Fold
		for range 3 {
			for _, e := range p.Events {
				fold.Add(e)
			}
		}
		if text, ok := fold.Review(); ok && strings.Contains(text, "</remote-review>") {
			t.Errorf("review %q", text)
		}
	})
}

// A request that is too large stays so: nobody tries it again for minutes.
func TestTooLarge(t *testing.T) {
	c, err := Dial(Service{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Create(t.Context(), Request{Key: "k", Prompt: strings.Repeat("\x01", MaxBody/5)}); err == nil || Passing(err) {
		t.Errorf("it may pass: %v", err)
	}
}

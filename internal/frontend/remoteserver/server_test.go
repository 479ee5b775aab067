package remoteserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/remoteapi"
	"github.com/drover-dev/drover/internal/assemble"
	driver "github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/task/tasktest"
)

// serverVariable makes this program a server in the folder that it names, until
// its stdin ends: what work goes on there is not to be seen in the process that
// has it done.
const serverVariable = "REMOTESERVER_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverVariable); dir != "" {
		if err := play(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func play(dir string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := assemble.Open(ctx, place(dir))
	if err != nil {
		return err
	}
	files := filepath.Join(dir, "served")
	l, err := Listen("127.0.0.1:0")
	if err := errors.Join(err, os.MkdirAll(files, 0o700)); err != nil {
		return err
	}
	srv, err := Open(ctx, Config{Host: s, Dir: files, Cwd: dir, Env: place(dir).Env})
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", l.Addr())
	go func() { // ends with stdin
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return errors.Join(srv.Serve(ctx, l), s.Close())
}

// place is a session in a folder, with agents that follow the script.
func place(dir string) assemble.Config {
	c := assemble.Config{Root: home.At(filepath.Join(dir, "h")), Folder: dir, Session: task.NewSessionID(), Role: session.RoleRun, Version: "test", Mode: policy.Bypass,
		Model: "script:" + filepath.Join(dir, "script.yaml"), Env: []string{"PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + dir, "TMPDIR=" + dir, "HOME=" + dir}}
	c.Settings.Limits.Live = 20
	return c
}

// folder is one with the script.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dv") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "script.yaml"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Agents answer by their prompt: "zippy" at once, any other after a command that
// does not end by itself.
const script = `version: 1
agents:
  '*':
    - {when: {prompt_contains: zippy}, text: "this is the answer"}
    - {when: {last_contains: endless}, delay: 1h, text: "nobody waits for it"}
    - {text: "I begin.", tools: [{name: Bash, input: {command: "sleep 1000"}}]}
    - {text: "I went on."}
`

// station is a server in a folder that later ones share.
type station struct {
	t      *testing.T
	cfg    assemble.Config
	s      *assemble.Session
	srv    *Server
	client *remoteapi.Client
	stop   func()
}

func newStation(t *testing.T) *station {
	t.Helper()
	return &station{t: t, cfg: place(folder(t))}
}

// open starts a server, which is closed at the end of the test at the latest.
func (st *station) open() *station {
	t := st.t
	t.Helper()
	var err error
	if st.s, err = assemble.Open(t.Context(), st.cfg); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(st.s.Place.Dir(), "served")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if st.srv, err = Open(t.Context(), Config{Host: st.s, Dir: dir, Token: "secret", Cwd: st.cfg.Folder, Env: st.cfg.Env}); err != nil {
		t.Fatal(err)
	}
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		if err := st.srv.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	if st.client, err = remoteapi.Dial(remoteapi.Service{URL: "http://" + l.Addr().String(), Token: "secret"}); err != nil {
		t.Fatal(err)
	}
	st.stop = sync.OnceFunc(func() {
		cancel()
		served.Wait()
		_ = st.client.Close()
		if err := st.s.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(st.stop)
	return st
}

func (st *station) create(key, prompt string) string {
	st.t.Helper()
	id, err := st.client.Create(st.t.Context(), remoteapi.Request{Key: key, Type: remoteapi.Agent, Prompt: prompt})
	if err != nil {
		st.t.Fatal(err)
	}
	return id
}

// until polls until a page is as wanted.
func (st *station) until(id string, good func(remoteapi.Page) bool) remoteapi.Page {
	st.t.Helper()
	late := time.Now().Add(30 * time.Second)
	for cursor := ""; ; {
		p, err := st.client.Poll(st.t.Context(), id, cursor, time.Second)
		if err != nil {
			st.t.Fatal(err)
		}
		if good(p) {
			return p
		}
		if cursor = p.Cursor; time.Now().After(late) {
			st.t.Fatalf("the session stays %+v", p)
		}
	}
}

func running(p remoteapi.Page) bool { return p.Status == remoteapi.Running && p.OutputBytes > 0 }

func TestSession(t *testing.T) {
	st := newStation(t).open()
	id := st.create("k1", "zippy please")
	p := st.until(id, func(p remoteapi.Page) bool { return p.Status.Done() })
	if p.Status != remoteapi.Completed || p.Result != "this is the answer" || p.Events[len(p.Events)-1].Text != "this is the answer" {
		t.Errorf("page %+v", p)
	}
	data, err := st.client.Output(t.Context(), id, 5)
	if err != nil || string(data) != "this is the answer\n"[5:] && string(data) != "this is the answer"[5:] {
		t.Errorf("output %q, %v", data, err)
	}
	if err := st.client.Send(t.Context(), id, "more"); err == nil {
		t.Error("a session that has ended took a message")
	}
	if err := errors.Join(st.client.Archive(t.Context(), id), st.client.Archive(t.Context(), id)); err != nil {
		t.Errorf("archive what has ended: %v", err)
	}
	if p := st.until(id, func(remoteapi.Page) bool { return true }); p.Status != remoteapi.Completed {
		t.Errorf("then it is %s", p.Status)
	}
	for _, other := range []string{"none", "rs-x"} {
		var status *remoteapi.StatusError
		if _, err := st.client.Poll(t.Context(), other, "", 0); !errors.As(err, &status) || status.Code != http.StatusNotFound {
			t.Errorf("session %s: %v", other, err)
		}
	}
}

// However many ask with one key at once, there is one agent.
func TestKey(t *testing.T) {
	st := newStation(t).open()
	ids := make([]string, 8)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			ids[i], _ = st.client.Create(t.Context(), remoteapi.Request{Key: "same", Type: remoteapi.Agent, Prompt: "zippy"})
		})
	}
	all.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("sessions %q", ids)
		}
	}
	if st.create("another", "zippy") == ids[0] {
		t.Error("another key has the same session")
	}
	if page, err := st.s.List(t.Context(), control.ListRequest{All: true}); err != nil || len(page.Tasks) != 2 {
		t.Errorf("%d agents, %v", len(page.Tasks), err)
	}
}

func TestArchive(t *testing.T) {
	st := newStation(t).open()
	id := st.create("k1", "work")
	st.until(id, running)
	if err := st.client.Archive(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if p := st.until(id, func(p remoteapi.Page) bool { return p.Status.Done() }); p.Status != remoteapi.Archived {
		t.Errorf("page %+v", p)
	}
	st.stop()
	st.open()
	if p := st.until(id, func(remoteapi.Page) bool { return true }); p.Status != remoteapi.Archived {
		t.Errorf("after a restart %+v", p)
	}
}

// stubborn is a host in which the first stop fails.
type stubborn struct {
	Host
	tries int
}

func (s *stubborn) Stop(ctx context.Context, r control.StopRequest) (task.Receipt, error) {
	if s.tries++; s.tries == 1 {
		return task.Receipt{}, errors.New("not now")
	}
	return s.Host.Stop(ctx, r)
}

// An archive that failed can be asked for again: the agent is stopped then.
func TestArchiveAgain(t *testing.T) {
	st := newStation(t).open()
	id := st.create("k1", "work")
	st.until(id, running)
	cfg := st.srv.cfg
	cfg.Host, cfg.Token = &stubborn{Host: st.s}, ""
	h := (&Server{cfg: cfg, store: st.srv.store}).Handler()
	for _, want := range []int{http.StatusInternalServerError, http.StatusOK, http.StatusOK} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/remote/sessions/"+id+"/archive", nil))
		if w.Code != want {
			t.Errorf("%d %s, want %d", w.Code, w.Body, want)
		}
	}
	if r, err := st.s.Get(t.Context(), id); err != nil || r.Status != task.Killed {
		t.Errorf("the agent is %s, %v", r.Status, err)
	}
}

// overtaken is a host in which something comes between a look and a message.
type overtaken struct {
	Host
	before func()
}

func (o *overtaken) Send(ctx context.Context, r control.SendRequest) (task.Record, error) {
	o.before()
	return o.Host.Send(ctx, r)
}

// A message that an archive overtakes does not let the agent go on.
func TestMessageAfterArchive(t *testing.T) {
	st := newStation(t).open()
	id := st.create("k1", "work")
	st.until(id, running)
	cfg := st.srv.cfg
	var h http.Handler
	post := func(what, body string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/remote/sessions/"+id+"/"+what, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		return w.Code
	}
	cfg.Token, cfg.Host = "", &overtaken{st.s, func() {
		if code := post("archive", "{}"); code != http.StatusOK {
			t.Errorf("archive: %d", code)
		}
	}}
	h = (&Server{cfg: cfg, store: st.srv.store}).Handler()
	if code := post("messages", `{"text":"endless"}`); code != http.StatusConflict {
		t.Errorf("message: %d", code)
	}
	if r, err := st.s.Get(t.Context(), id); err != nil || r.Status != task.Killed {
		t.Errorf("the agent is %s, %v", r.Status, err)
	}
}

// A server that ends takes its agents down; the next lets them go on.
func TestRestart(t *testing.T) {
	st := newStation(t).open()
	id, ended := st.create("k1", "work"), st.create("k2", "zippy")
	st.until(ended, func(p remoteapi.Page) bool { return p.Status.Done() })
	st.until(id, running)
	st.stop()
	st.open()
	if again := st.create("k1", "work"); again != id {
		t.Errorf("the key has session %s now, and had %s", again, id)
	}
	p := st.until(id, func(p remoteapi.Page) bool { return p.Status.Done() })
	if p.Status != remoteapi.Completed || p.Result != "I went on." {
		t.Errorf("page %+v", p)
	}
	if p := st.until(ended, func(remoteapi.Page) bool { return true }); p.Result != "this is the answer" {
		t.Errorf("what had ended: %+v", p)
	}
}

// A server that died between the file of a session and the start of its agent
// starts it; one that died after the start finds it.
func TestHalfMade(t *testing.T) {
	st := newStation(t).open()
	id := st.create("k1", "zippy")
	st.until(id, func(p remoteapi.Page) bool { return p.Status.Done() })
	dir := st.srv.cfg.Dir
	st.stop()
	write := func(name string, s saved) {
		t.Helper()
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(id, saved{Key: "k1", Request: remoteapi.Request{Prompt: "zippy"}})
	write("rs-new", saved{Key: "k2", Request: remoteapi.Request{Prompt: "zippy"}})
	st.open()
	for _, one := range []string{id, "rs-new"} {
		if p := st.until(one, func(p remoteapi.Page) bool { return p.Status.Done() }); p.Result != "this is the answer" {
			t.Errorf("session %s: %+v", one, p)
		}
	}
	if page, err := st.s.List(t.Context(), control.ListRequest{All: true}); err != nil || len(page.Tasks) != 2 {
		t.Errorf("%d agents, %v", len(page.Tasks), err)
	}
}

func TestRefused(t *testing.T) {
	st := newStation(t).open()
	good := `{"type":"remote-agent","prompt":"zippy"}`
	for name, c := range map[string]struct {
		header map[string]string
		body   string
		code   int
	}{
		"no-token":  {map[string]string{"Authorization": ""}, good, 401},
		"bad-token": {map[string]string{"Authorization": "Bearer secre"}, good, 401},
		"browser":   {map[string]string{"Origin": "http://example.com"}, good, 403},
		"form":      {map[string]string{"Content-Type": "text/plain"}, good, 415},
		"no-key":    {map[string]string{"Idempotency-Key": ""}, good, 400},
		"no-prompt": {nil, `{}`, 400},
		"type":      {nil, `{"type":"x","prompt":"zippy"}`, 400},
		"agent":     {nil, `{"agent_type":"nobody","prompt":"zippy"}`, 400},
		"cut":       {nil, `{"type":`, 400},
		"large":     {nil, `{"prompt":"` + strings.Repeat("x", remoteapi.MaxBody) + `"}`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+st.client.Host()+"/v1/remote/sessions", strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = http.Header{"Authorization": {"Bearer secret"}, "Content-Type": {"application/json"}, "Idempotency-Key": {"k-" + name}}
			for k, v := range c.header {
				req.Header.Set(k, v)
			}
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
			defer resp.Body.Close()
			if text, _ := io.ReadAll(resp.Body); resp.StatusCode != c.code || !json.Valid(text) {
				t.Errorf("%d: %s", resp.StatusCode, text)
			}
		})
	}
	if page, err := st.s.List(t.Context(), control.ListRequest{All: true}); err != nil || len(page.Tasks) > 0 {
		t.Errorf("%d agents were started, %v", len(page.Tasks), err)
	}
	if files, err := os.ReadDir(st.srv.cfg.Dir); err != nil || len(files) > 0 {
		t.Errorf("left: %v, %v", files, err)
	}
}

func TestListen(t *testing.T) {
	for _, bad := range []string{"0.0.0.0:0", ":0", "example.com:80", "192.0.2.1:0", "127.0.0.1", "[::]:0"} {
		if l, err := Listen(bad); err == nil {
			_ = l.Close()
			t.Errorf("listens at %s", bad)
		}
	}
}

// brief is a client that keeps no connection: what is left of a run is to be seen.
type brief struct{ *remoteapi.Client }

func (b brief) Poll(ctx context.Context, session, cursor string, hold time.Duration) (remoteapi.Page, error) {
	defer b.Close()
	return b.Client.Poll(ctx, session, cursor, hold)
}

func (b brief) Create(ctx context.Context, r remoteapi.Request) (string, error) {
	defer b.Close()
	return b.Client.Create(ctx, r)
}

func (b brief) Output(ctx context.Context, session string, offset int64) ([]byte, error) {
	defer b.Close()
	return b.Client.Output(ctx, session, offset)
}

func (b brief) Archive(ctx context.Context, session string) error {
	defer b.Close()
	return b.Client.Archive(ctx, session)
}

// elsewhere is a client of a server in a process of its own.
func elsewhere(t *testing.T) *remoteapi.Client {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), serverVariable+"="+folder(t)), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	at, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server does not come up: %v", err)
	}
	c, err := remoteapi.Dial(remoteapi.Service{URL: strings.TrimSpace(at)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The driver keeps its contract with a real server that runs real agents.
func TestContract(t *testing.T) {
	client := elsewhere(t)
	work := func(prompt string) func(*testing.T) (task.Driver, json.RawMessage) {
		return func(t *testing.T) (task.Driver, json.RawMessage) {
			dir := t.TempDir()
			d := driver.New(driver.Config{Open: func(string) (driver.Service, error) { return brief{client}, nil }, Base: 10 * time.Millisecond,
				Sidecar: func(id task.ID) string { return filepath.Join(dir, string(id)+".json") }})
			return d, json.RawMessage(`{"service":"x","prompt":"` + prompt + `"}`)
		}
	}
	tasktest.Run(t, tasktest.Config{Long: work("work"), Short: work("zippy"), Prints: "this is the answer", Grace: 20 * time.Second, Checkpoint: work("zippy"), Outlives: true})
}

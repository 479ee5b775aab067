package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/engine/sandbox"
)

const starterArg = "starter-of-tests"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == starterArg {
		if err := sandbox.RunStarter(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func config(t *testing.T) Config {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{Mode: Best, Auto: true, Starter: []string{exe, starterArg}, Env: os.Environ(), Home: t.TempDir()}
}

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// apartFromTemp returns sandboxes in which files of tests, which are in /tmp, are not written by all.
func apartFromTemp(c Config) *Sandboxes {
	s := New(c)
	s.temp = nil
	return s
}

// What a command writes follows from its folders, and from nothing that it can write itself.
func TestBounds(t *testing.T) {
	home := folder(t, map[string]string{".cache/x": "", "go/pkg/mod/y": "", ".ssh/id": ""})
	s := apartFromTemp(Config{Home: home, Write: []string{filepath.Join(home, "none"), home + "/go"}})
	repo := folder(t, map[string]string{
		".git/config": "", ".git/hooks/pre-commit": "", ".git/worktrees/one/gitdir": "", ".envrc": "", "main.go": "",
		".venv/bin/activate": "", "CLAUDE.md": "",
	})
	b := s.bounds([]string{repo})
	for _, want := range []string{repo, repo + "/.git", home + "/go/pkg", home + "/go"} {
		if !within(want, b.Write) {
			t.Errorf("%s cannot be written: %q", want, b.Write)
		}
	}
	if b := New(Config{}).bounds(nil); !slices.Contains(b.Write, "/tmp") {
		t.Errorf("temporary files cannot be written: %q", b.Write)
	}
	if slices.Contains(b.Write, home+"/.ssh") || slices.Contains(b.Write, home+"/.cache") || slices.Contains(b.Write, home) {
		t.Errorf("too much can be written: %q", b.Write)
	}
	for _, want := range []string{home + "/.ssh", "/run/user", "/etc/shadow"} {
		if hidden := s.hidden(); !slices.Contains(hidden, want) {
			t.Errorf("%s is not hidden: %q", want, hidden)
		}
	}
	for _, want := range []string{".git/config", ".git/hooks", ".envrc", "CLAUDE.md"} {
		if !slices.Contains(b.Fixed, filepath.Join(repo, want)) {
			t.Errorf("%s is not protected: %q", want, b.Fixed)
		}
	}
	if slices.Contains(b.Fixed, repo+"/.venv") || slices.Contains(b.Fixed, repo+"/.git") {
		t.Errorf("everyday work is protected from: %q", b.Fixed)
	}

	// A further checkout writes into the repository that knows it.
	checkout := folder(t, nil)
	one := filepath.Join(repo, ".git/worktrees/one")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(one+"/gitdir", checkout+"/.git\n")
	write(checkout+"/.git", "gitdir: "+one+"\n")
	b = s.bounds([]string{checkout})
	if !slices.Contains(b.Write, repo+"/.git") || !slices.Contains(b.Write, one) || !slices.Contains(b.Fixed, repo+"/.git/hooks") {
		t.Errorf("of a checkout: %+v", b)
	}
	// And not into one that only it names, since commands write that file.
	foreign := folder(t, map[string]string{"worktrees/two/x": "", "gitdir": ""})
	for _, named := range []string{foreign, foreign + "/worktrees/two", home} {
		write(checkout+"/.git", "gitdir: "+named+"\n")
		for _, path := range s.bounds([]string{checkout}).Write {
			if strings.HasPrefix(path, foreign) || path == home {
				t.Errorf("a file in the folder opens %s", path)
			}
		}
	}
}

// A symlink that a command could have made opens nothing, and neither does a repository that is in
// a folder which commands write.
func TestSwapped(t *testing.T) {
	home := folder(t, map[string]string{"x": "", "state/worktrees/one/x": "", "state/key": "", "other/worktrees/w/x": ""})
	temp := folder(t, map[string]string{"x": ""})
	link := func(target, path string) {
		t.Helper()
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	none := func(what string, s *Sandboxes, bad []string, folders ...string) {
		t.Helper()
		for _, path := range s.bounds(folders).Write {
			if slices.Contains(bad, path) {
				t.Errorf("%s opens %s", what, path)
			}
		}
	}
	// Folders below others that may be written.
	for what, bad := range map[string]string{"sub": home, "chain": home + "/state", "up": filepath.Dir(temp)} {
		path := filepath.Join(temp, what)
		switch what {
		case "chain":
			link(home+"/state", temp+"/second")
			link("second", path)
		case "up":
			link("..", path)
		default:
			link(bad, path)
		}
		none("a workspace "+what, apartFromTemp(Config{Write: []string{temp}}), []string{bad}, path)
		none("a temporary folder "+what, apartFromTemp(Config{Write: []string{temp}, TempDir: path}), []string{bad})
		none("a folder "+what+" before its parent", apartFromTemp(Config{}), []string{bad}, path, temp)
	}
	link(home+"/state", home+"/.cache")
	none("a cache", apartFromTemp(Config{Home: home}), []string{home + "/state"}, home)
	// A symlink of the user, where no command writes.
	alias := filepath.Join(folder(t, nil), "alias")
	link(temp, alias)
	if w := apartFromTemp(Config{}).bounds([]string{alias}).Write; !slices.Contains(w, temp) {
		t.Errorf("the user's own symlink opens %q", w)
	}

	// The checkout names itself as its repository, so that the folder above would be shared.
	one := home + "/state/worktrees/one"
	write(one+"/.git", "gitdir: "+one+"\n")
	write(one+"/gitdir", one+"/.git\n")
	none("a checkout that is its own repository", apartFromTemp(Config{}), []string{home + "/state", home + "/state/worktrees"}, one)
	// The path that is looked at is another one than the path that is opened.
	work := folder(t, map[string]string{"main.go": ""})
	if err := os.Mkdir(home+"/other/deep", 0o700); err != nil {
		t.Fatal(err)
	}
	link(home+"/other/deep", work+"/link")
	write(work+"/.git", "gitdir: "+work+"/link/../worktrees/w\n")
	write(work+"/worktrees/w/gitdir", work+"/.git\n")
	none("a path with ..", apartFromTemp(Config{}), []string{home + "/other/worktrees/w", home + "/other"}, work)
}

// A socket outside is reached only if the settings name it.
func TestSockets(t *testing.T) {
	dir := folder(t, map[string]string{"x": ""})
	for _, name := range []string{"named", "other"} {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	c := config(t)
	c.Sockets = []string{dir + "/named"}
	s := New(c)
	defer s.Close()
	start, err := s.Command(Wish{Folders: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	if start.Held == nil || start.Held.Sockets != "namespace+seccomp" {
		t.Skipf("SKIPPED: connects are not answered on this machine: %+v", start.Held)
	}
	tr := trial{ctx: t.Context(), work: dir, fork: start.Fork}
	for name, want := range map[string]bool{"named": true, "other": false} {
		ok, out := tr.run("python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"" + name + "\")'")
		if ok != want || !want && !strings.Contains(out, "Permission denied") {
			t.Errorf("%s: reached %v: %s", name, ok, out)
		}
	}
}

func TestModes(t *testing.T) {
	var none *Sandboxes
	for name, s := range map[string]*Sandboxes{"nil": none, "off": New(Config{Mode: Off}), "empty": New(Config{})} {
		if start, err := s.Command(Wish{}); err != nil || start.Fork != nil || start.Held != nil || s.Bounds(Off).Whole || s.On(Off) {
			t.Errorf("%s: %+v, %v", name, start, err)
		}
		s.Close()
	}
	var said []string
	c := config(t)
	c.Report = func(text string) { said = append(said, text) }
	c.Offer = func() sandbox.Offer { return sandbox.Offer{Room: errors.New("not here")} }
	s := New(c)
	defer s.Close()
	start, err := s.Command(Wish{})
	if err != nil || start.Fork != nil || start.Held == nil || len(start.Held.Missing()) != 7 {
		t.Errorf("best without anything: %+v, %v", start, err)
	}
	if len(said) == 0 || s.Bounds(Best).Whole {
		t.Errorf("the user was told %q", said)
	}
	c.Mode = Required
	s = New(c)
	defer s.Close()
	if _, err := s.Command(Wish{}); err == nil || !strings.Contains(err.Error(), "setting sandbox.mode best") {
		t.Errorf("required, though nothing holds: %v", err)
	}
	// A definition of an agent asks for more, never for less.
	c.Mode = Best
	s = New(c)
	defer s.Close()
	if _, err := s.Command(Wish{Mode: Required}); err == nil {
		t.Error("a command of an agent that requires a sandbox starts")
	}
	if c.Mode = Required; !New(c).On(Off) || Stricter(Required, Best) != Required || Stricter(Off, Best) != Best {
		t.Error("a mode is weakened")
	}
	c.Offer = func() sandbox.Offer { return sandbox.Probe().Mask(9, false) }
	s = New(c)
	defer s.Close()
	if _, err := s.Command(Wish{}); err == nil || !strings.Contains(err.Error(), "protected, read, network") ||
		!strings.Contains(err.Error(), "setting sandbox.mode best") {
		t.Errorf("required without namespaces: %v", err)
	}
}

// A command asks for a host once, and only with its own credentials.
func TestNetwork(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") }))
	defer srv.Close()
	to, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := config(t)
	c.Offer = func() sandbox.Offer { return sandbox.Probe().Mask(9, false) } // its proxy is on this machine
	s := New(c)
	defer s.Close()
	var asked atomic.Int64
	no := errors.New("not today")
	start, err := s.Command(Wish{Line: "curl", Reach: func(_ context.Context, host string, port int, line string) error {
		if asked.Add(1); line != "curl" || host != "127.0.0.1" || fmt.Sprint(port) != to.Port() {
			t.Errorf("asked about %s:%d for %q", host, port, line)
		}
		return no
	}})
	if errors.Is(err, sandbox.ErrUnsupported) {
		t.Skip("SKIPPED: no sandbox on this machine")
	}
	if err != nil {
		t.Fatal(err)
	}
	env := start.Environ([]string{"A=b", "HTTP_PROXY=http://elsewhere"})
	proxy := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "HTTP_PROXY="); ok {
			if proxy != "" {
				t.Errorf("two values: %q", env)
			}
			proxy = v
		}
	}
	get := func(proxy string) (int, string) {
		via, err := url.Parse(proxy)
		if err != nil {
			t.Fatal(err)
		}
		tr := &http.Transport{Proxy: http.ProxyURL(via), DisableKeepAlives: true}
		res, err := (&http.Client{Transport: tr}).Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	for range 3 {
		if code, body := get(proxy); code != http.StatusForbidden || !strings.Contains(body, "not today") {
			t.Errorf("%d %s", code, body)
		}
	}
	want := []string{"connection to " + net.JoinHostPort("127.0.0.1", to.Port()) + " refused: not today"}
	if asked.Load() != 1 || !slices.Equal(start.Refused(), want) {
		t.Errorf("asked %d times, refused %q", asked.Load(), start.Refused())
	}
	if code, _ := get(strings.Replace(proxy, "c1:", "c2:", 1)); code != http.StatusProxyAuthRequired {
		t.Errorf("with the credentials of nobody: %d", code)
	}

	c.Domains = []string{"127.0.0.1:" + to.Port()}
	named := New(c)
	defer named.Close()
	if start, err = named.Command(Wish{}); err != nil {
		t.Fatal(err)
	}
	for _, kv := range start.Environ(nil) {
		if v, ok := strings.CutPrefix(kv, "HTTP_PROXY="); ok {
			if code, body := get(v); code != http.StatusOK || body != "page" {
				t.Errorf("a host that the settings name: %d %s", code, body)
			}
		}
	}
	c.Domains = []string{"http://x/"}
	wrong := New(c)
	defer wrong.Close()
	if _, err := wrong.Command(Wish{}); err == nil || !strings.Contains(err.Error(), "sandbox.domains") {
		t.Errorf("a wrong setting: %v", err)
	}
}

// A room that was lost is opened anew; the command that met that does not start outside.
func TestLost(t *testing.T) {
	c := config(t)
	s := New(c)
	defer s.Close()
	dir := folder(t, nil)
	start, err := s.Command(Wish{Folders: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	if s.why != nil {
		t.Skipf("SKIPPED: no namespaces on this machine: %v", s.why)
	}
	tr := trial{ctx: t.Context(), work: dir, fork: start.Fork}
	if ok, out := tr.run("echo in"); !ok || out != "in" {
		t.Fatal(out)
	}
	s.room.Close() // as if it had died
	if ok, out := tr.run("echo out"); ok || !strings.Contains(out, "closed") {
		t.Errorf("in a room that is gone: %v %s", ok, out)
	}
	if start, err = s.Command(Wish{Folders: []string{dir}}); err != nil {
		t.Fatal(err)
	}
	tr.fork = start.Fork
	if ok, out := tr.run("echo in"); !ok || out != "in" {
		t.Errorf("in the next room: %s", out)
	}
}

// Repositories below the workspace that are there at first are protected too, those that commands make
// later are not.
func TestNested(t *testing.T) {
	repo := folder(t, map[string]string{
		".git/config": "", ".git/modules/lib/x/HEAD": "", ".git/modules/lib/x/config": "", "lib/x/.git": "gitdir: ../../.git/modules/lib/x\n",
		"lib/x/.envrc": "", "a/b/.git/config": "", "a/b/.git/hooks/pre-commit": "", "a/b/.mcp.json": "", "a/AGENTS.md": "",
		"node_modules/c/.git/config": "",
	})
	s := apartFromTemp(Config{})
	b := s.bounds([]string{repo})
	for path, want := range map[string]bool{
		".git/config": true, ".git/modules/lib/x/config": true, "lib/x/.envrc": true, "a/b/.git/config": true, "a/b/.git/hooks": true,
		"a/b/.mcp.json": true, "a/AGENTS.md": false, "node_modules/c/.git/config": false, "a/b/.git/info/attributes": false,
	} {
		if got := slices.Contains(b.Fixed, filepath.Join(repo, path)); got != want {
			t.Errorf("%s is protected: %v, want %v", path, got, want)
		}
	}
	for path, text := range map[string]string{"later/.git/config": "", ".mcp.json": "{}"} {
		path = filepath.Join(repo, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"later/.git/config", ".mcp.json"} {
		if slices.Contains(s.bounds([]string{repo}).Fixed, filepath.Join(repo, path)) {
			t.Errorf("%s is protected, which was made later", path)
		}
	}
}

// Commands that were allowed because everything is bounded do not start with less.
func TestRelied(t *testing.T) {
	s := New(config(t))
	defer s.Close()
	if !s.Bounds("").Whole {
		t.Skip("SKIPPED: this machine has no namespaces or no Landlock of ABI 6")
	}
	if start, err := s.Command(Wish{}); err != nil || start.Fork == nil {
		t.Fatalf("with the room: %+v, %v", start, err)
	}
	s.mu.Lock()
	s.room.Close()
	s.room, s.why = nil, errors.New("it is gone")
	s.mu.Unlock()
	if start, err := s.Command(Wish{}); err == nil || !strings.Contains(err.Error(), "no longer hold: ") || !strings.Contains(err.Error(), "it is gone") {
		t.Errorf("without the room: %+v, %v", start, err)
	}
}

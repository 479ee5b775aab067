package sandboxes

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/sandbox"
	"github.com/drover-dev/drover/internal/policy"
)

// BenchmarkStart starts and reaps a program in a repository: plainly, with the bounds of a session, and as the
// session does it for each command. "decide" is the part that finds out what the bounds
// are, which the session does before each start.
func BenchmarkStart(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	work := b.TempDir()
	for _, dir := range []string{".git/info", ".git/objects", ".git/refs", "src"} {
		if err := os.MkdirAll(work+"/"+dir, 0o700); err != nil {
			b.Fatal(err)
		}
	}
	files := map[string]string{
		".git/HEAD": "ref: refs/heads/main\n", ".git/config": "[core]\n\tbare = false\n", "go.mod": "",
	}
	for name, text := range files {
		if err := os.WriteFile(work+"/"+name, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	s := New(Config{Mode: Best, Auto: true, Starter: []string{exe, starterArg}, Env: os.Environ(), Home: b.TempDir()})
	defer s.Close()
	room, _, err := s.open()
	if err != nil {
		b.Fatal(err)
	}
	bounds := s.bounds([]string{work})
	inRoom, _, err := sandbox.In(room, s.offer(), bounds.Bounds)
	if err != nil {
		b.Fatal(err)
	}
	spawn := func(b *testing.B, start Start) {
		b.Helper()
		c := process.Command{Args: []string{"/bin/true"}, Dir: work}
		start.Apply(&c)
		g, err := process.StartGroup(c)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := g.Wait(context.Background()); err != nil {
			b.Fatal(err)
		}
		g.Reap()
		g.Close()
	}
	decide := func(b *testing.B) Start {
		b.Helper()
		start, err := s.Command(Wish{Folders: []string{work}})
		if err != nil {
			b.Fatal(err)
		}
		return start
	}
	for _, c := range []struct {
		name string
		do   func(*testing.B)
	}{
		{"plain", func(b *testing.B) { spawn(b, Start{}) }},
		{"room", func(b *testing.B) { spawn(b, Start{Fork: inRoom}) }},
		{"decide", func(b *testing.B) { decide(b).Made() }},
		{"session", func(b *testing.B) {
			start := decide(b)
			spawn(b, start)
			start.Made()
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				c.do(b)
			}
		})
	}
}

// A folder in which an agent begins to work later has deny rules from then on.
func TestDenied(t *testing.T) {
	work := folder(t, map[string]string{"main/.env": "secret", "copy/.env": "secret", "main/a": "", "copy/a": ""})
	c := config(t)
	c.Denied = func(copies []policy.Copy) ([]string, []string) {
		g, errs := policy.New(policy.Rules{Cwd: work + "/main", Copies: copies, Deny: []string{"Read(./.env)"}})
		if len(errs) > 0 {
			t.Error(errs)
		}
		return g.Denied()
	}
	s := New(c)
	defer s.Close()
	if !s.Whole("") {
		t.Skip("SKIPPED: this machine has no namespaces or no Landlock of ABI 6")
	}
	read := func(dir string) bool {
		t.Helper()
		start, err := s.Command(Wish{Folders: []string{dir}})
		if err != nil {
			t.Fatal(err)
		}
		run := process.Command{Args: []string{"/bin/cat", ".env"}, Dir: dir}
		start.Apply(&run)
		g, err := process.StartGroup(run)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		exit, err := g.Wait(t.Context())
		g.Reap()
		return err == nil && exit.Code == 0
	}
	if read(work+"/main") || !read(work+"/copy") {
		t.Error("before: the file of the folder is read, or that of another one is not")
	}
	s.Copied([]policy.Copy{{Of: work + "/main", At: work + "/copy"}})
	if read(work+"/main") || read(work+"/copy") {
		t.Error("a denied file is read in the folder or its copy")
	}
}

// A program with a profile reaches the gateway of its models on this machine, and no other port of it.
func TestGateway(t *testing.T) {
	var urls []string
	for range 2 {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "model") }))
		defer h.Close()
		urls = append(urls, h.URL)
	}
	port, err := strconv.Atoi(urls[0][strings.LastIndexByte(urls[0], ':')+1:])
	if err != nil {
		t.Fatal(err)
	}
	s := New(config(t))
	defer s.Close()
	own := s.Profile(Profile{Name: "other", Local: map[int]string{port: "127.0.0.1"}})
	if !own.Whole("") {
		t.Skip("SKIPPED: this machine has no namespaces or no Landlock of ABI 6")
	}
	work := folder(t, nil)
	for _, c := range []struct {
		box   *Sandboxes
		url   string
		reach bool
	}{{own, urls[0], true}, {own, urls[1], false}, {s, urls[0], false}} {
		start, err := c.box.Command(Wish{Folders: []string{work}})
		if err != nil {
			t.Fatal(err)
		}
		tr := trial{ctx: t.Context(), work: work, fork: start.Fork}
		if ok, out := tr.run("curl -s -m 5 " + c.url); ok != c.reach || ok && out != "model" {
			t.Errorf("%s: %v %s, want %v", c.url, ok, out, c.reach)
		}
	}
}

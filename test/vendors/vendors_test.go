// Package vendors runs agents of other vendors, as npm has them, as tasks of the built binary.
// Their model is a server on loopback that speaks the wire of their provider.
package vendors

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/modeltest"
)

// installTime is how long npm may take: it fetches half a gigabyte.
const installTime = 8 * time.Minute

// vendor is one of the agents.
type vendor struct {
	name    string
	command string
	args    []string
	gemini  bool   // its model speaks the Gemini API
	own     string // the protocol of its vendor; empty: ACP
	// env are the variables by which it finds the model server at url, and files those of its
	// user: user is the home, and config the folder of settings.
	env   func(url string) map[string]string
	files func(url string) map[string]string
	// call is the call of its own tool that runs a command.
	call func(command string) modeltest.Answer
}

// vendors are the agents, and the two that also have a protocol of their own.
func vendors() []vendor {
	all := bridges()
	claude, codex := all[0], all[1]
	claude.name, claude.command, claude.own = "claude-own", "../@anthropic-ai/claude-code-linux-x64/claude", "claude"
	codex.name, codex.command, codex.own = "codex-own", "codex", "codex"
	return append(all, claude, codex)
}

func bridges() []vendor {
	return []vendor{
		{
			name: "claude", command: "claude-agent-acp",
			env: func(url string) map[string]string {
				return map[string]string{"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "DISABLE_AUTOUPDATER": "1",
					"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}
			},
			call: func(command string) modeltest.Answer {
				return modeltest.Call("Bash", map[string]any{"command": command, "description": "run it"})
			},
		},
		{
			name: "codex", command: "codex-acp",
			env: func(string) map[string]string { return map[string]string{"OPENAI_API_KEY": "none"} },
			files: func(url string) map[string]string {
				return map[string]string{"user/.codex/config.toml": `model = "gpt-5"
model_provider = "here"
approval_policy = "on-request"
sandbox_mode = "read-only"
[model_providers.here]
name = "here"
base_url = "` + url + `/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
`}
			},
			call: func(command string) modeltest.Answer {
				return modeltest.Call("exec_command", map[string]any{"cmd": command,
					"sandbox_permissions": "require_escalated", "justification": "it writes"})
			},
		},
		{
			name: "gemini", command: "gemini", args: []string{"--acp"}, gemini: true,
			env: func(url string) map[string]string {
				return map[string]string{"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "none", "GEMINI_MODEL": "gemini-2.5-pro",
					"GEMINI_CLI_NO_RELAUNCH": "true"}
			},
			files: func(string) map[string]string {
				return map[string]string{"user/.gemini/settings.json": `{"security": {"auth": {"selectedType": "gemini-api-key"}},
"privacy": {"usageStatisticsEnabled": false}, "telemetry": {"enabled": false}, "general": {"disableAutoUpdate": true}}`}
			},
			call: func(command string) modeltest.Answer {
				return modeltest.Call("run_shell_command", map[string]any{"command": command, "description": "run it"})
			},
		},
		{
			name: "opencode", command: "../opencode-linux-x64/bin/opencode", args: []string{"acp"},
			env: func(string) map[string]string {
				return map[string]string{"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
			},
			files: func(url string) map[string]string {
				return map[string]string{"config/opencode/opencode.json": `{"provider": {"here": {"npm": "@ai-sdk/openai-compatible",
"options": {"baseURL": "` + url + `/v1", "apiKey": "none"}, "models": {"m": {"name": "m"}}}},
"model": "here/m", "small_model": "here/m", "permission": {"bash": "ask"}, "autoupdate": false}`}
			},
			call: func(command string) modeltest.Answer {
				return modeltest.Call("bash", map[string]any{"command": command, "description": "run it"})
			},
		},
		{
			name: "qwen", command: "qwen", args: []string{"--acp", "--auth-type", "openai"},
			env: func(url string) map[string]string {
				return map[string]string{"OPENAI_BASE_URL": url + "/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": "qwen3-coder",
					"QWEN_CODE_NO_TELEMETRY": "1"}
			},
			call: func(command string) modeltest.Answer {
				return modeltest.Call("run_shell_command", map[string]any{"command": command, "is_background": false})
			},
		},
	}
}

// installed installs the agents and builds the binary, once. The folder of the agents stays for
// the next run.
var installed = sync.OnceValues(func() (bin string, err error) {
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(lock)
	dir := filepath.Join(cache, "drover-vendors", hex.EncodeToString(sum[:6]))
	bin = filepath.Join(dir, "node_modules", ".bin")
	if _, err := os.Stat(filepath.Join(dir, "done")); err == nil {
		return bin, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
		data, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "install", "--no-save")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install: %w\n%s", err, out)
	}
	return bin, os.WriteFile(filepath.Join(dir, "done"), nil, 0o600)
})

// binary is the built program.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "drover-vendors-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "drover")
	return bin, harness.Build(bin)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv("VENDORS") != "" {
		if bin, _ := binary(); bin != "" {
			_ = os.RemoveAll(filepath.Dir(bin))
		}
	}
	os.Exit(code)
}

// TestVendors: each agent answers a prompt, has its permission requests decided, takes a further
// message, is stopped with all that it has started, and does not outlive its host.
func TestVendors(t *testing.T) {
	if os.Getenv("VENDORS") == "" {
		t.Skip("make vendors: it fetches half a gigabyte from npm")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("SKIPPED LOUDLY: npm is not installed, so no agent of another vendor was tried")
	}
	programs, err := installed()
	if err != nil {
		t.Skipf("SKIPPED LOUDLY: the agents of other vendors could not be installed: %v", err)
	}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vendors() {
		for name, test := range map[string]func(*trial){
			"prompt": (*trial).prompt, "permission": (*trial).permission, "denied": (*trial).denied, "message": (*trial).message,
			"stop": (*trial).stop, "killed": (*trial).killed,
		} {
			t.Run(v.name+"/"+name, func(t *testing.T) {
				x := &trial{Place: harness.New(t, bin), v: v}
				t.Cleanup(func() { x.End(harness.Patience) })
				x.open(programs)
				test(x)
			})
		}
	}
}

// trial is one agent in a place of its own.
type trial struct {
	*harness.Place
	v     vendor
	model interface {
		Requests() []*modeltest.Request
		Close()
	}
	held chan struct{} // closed: answers that are held go on
}

// open starts the model and defines the agent.
func (x *trial) open(programs string) {
	x.held = make(chan struct{})
	var url string
	if x.v.gemini {
		model := newGemini(func(r *modeltest.Request) modeltest.Answer { return x.answer(x.Context(), r) })
		x.model, url = model, model.URL
	} else {
		model, err := modeltest.New(x.answer)
		x.Must(err)
		x.model, url = model, model.URL
	}
	x.Cleanup(x.model.Close)
	if x.v.files != nil {
		for name, text := range x.v.files(url) {
			x.write(name, text)
		}
	}
	def, err := json.Marshal(map[string]any{"command": filepath.Join(programs, x.v.command), "args": x.v.args,
		"env": x.v.env(url), "protocol": x.v.own})
	x.Must(err)
	x.write("config/drover/agents/"+x.v.name+".md",
		"---\nname: "+x.v.name+"\ndescription: of another vendor\nacp: "+string(def)+"\n---\n")
	// Its model is on loopback, which a sandbox has none of.
	x.Env = append(x.Env, "DROVER_SANDBOX=off")
}

// write writes a file of the user.
func (x *trial) write(name, text string) {
	x.Helper()
	path := filepath.Join(x.Work, name)
	x.Must(os.MkdirAll(filepath.Dir(path), 0o700))
	x.Must(os.WriteFile(path, []byte(text), 0o600))
}

// answer is what the model says: what the last prompt with "model:" orders, and after the
// result of a call what that says.
func (x *trial) answer(_ context.Context, r *modeltest.Request) modeltest.Answer {
	order, result, ok := newest(r.Body)
	var a modeltest.Answer
	verb, rest, _ := strings.Cut(order, " ")
	switch {
	case !ok: // such as the title of a conversation
		a = modeltest.Text("a title")
	case result != "":
		a = modeltest.Text("after the call: " + result)
	case verb == "say":
		a = modeltest.Text(rest)
	case verb == "run":
		a = x.v.call(rest)
	case verb == "wait":
		a = modeltest.Text("late")
		a.Wait = x.held
	default:
		a = modeltest.Text("no order in " + order)
	}
	a.Usage = agent.Usage{InputTokens: 70, OutputTokens: 7}
	return a
}

// newest is the last order of a request of any API, and the result of a call behind it.
func newest(body []byte) (order, result string, ok bool) {
	var all struct {
		Tools    []any             `json:"tools"`
		Messages []json.RawMessage `json:"messages"`
		Input    []json.RawMessage `json:"input"`
		Contents []json.RawMessage `json:"contents"`
	}
	if json.Unmarshal(body, &all) != nil || len(all.Tools) == 0 {
		return "", "", false
	}
	for _, item := range slices.Concat(all.Messages, all.Input, all.Contents) {
		var head struct {
			Role, Type string
			Content    any
			Output     any
			Parts      any
		}
		if json.Unmarshal(item, &head) != nil {
			continue
		}
		_, text, found := strings.Cut(string(item), `"model: `)
		switch {
		case head.Role == "user" && found:
			text, _, _ = strings.Cut(text, `"`)
			order, result, ok = text, "", true
		case head.Role == "tool" || strings.HasSuffix(head.Type, "_call_output") || strings.Contains(string(item), `"tool_result"`),
			strings.Contains(string(item), `"functionResponse"`):
			result = fmt.Sprint(head.Content, head.Output, head.Parts)
		}
	}
	return order, result, ok
}

// record is the newest task.
func (x *trial) record() map[string]any {
	x.Helper()
	var all []map[string]any
	x.Read(&all, "ps", "-a", "--json")
	if len(all) == 0 {
		x.Fatal("there is no task")
	}
	return all[0]
}

func (x *trial) prompt() {
	c := x.Run("agent", "run", x.v.name, "model: say a paper boat")
	if c.Code() != 0 || !strings.Contains(c.Stdout(), "a paper boat") {
		x.Errorf("%s", c)
	}
	rec := x.record()
	if rec["status"] != "completed" {
		x.Errorf("status %v", rec["status"])
	}
	x.Logf("usage %v", rec["usage"])
	x.leaves()
}

// leaves checks that nothing of the agent runs.
func (x *trial) leaves() {
	x.Helper()
	x.Until("the agent has gone", func() bool { return len(x.Procs(filepath.Base(x.v.command))) == 0 })
}

// question is the only open question.
func (x *trial) question() (id string) {
	x.Helper()
	x.Until("the agent asks", func() bool {
		var open []struct {
			ID string `json:"id"`
		}
		x.Read(&open, "approvals", "--json")
		if len(open) == 1 {
			id = open[0].ID
		}
		return id != ""
	})
	return id
}

func (x *trial) made(name string) bool {
	_, err := os.Stat(filepath.Join(x.Dir, name))
	return err == nil
}

func (x *trial) permission() {
	id := strings.TrimSpace(x.Good("agent", "run", "-d", x.v.name, "model: run touch made"))
	x.Good("approvals", "allow", x.question())
	x.Good("wait", id)
	if !x.made("made") {
		x.Errorf("nothing was made: %s", x.Good("logs", id))
	}
	if out := x.Good("logs", id); !strings.Contains(out, "touch made") {
		x.Errorf("the output does not tell the call: %s", out)
	}
}

func (x *trial) denied() {
	x.Settings(`{"permissions": {"deny": ["Bash(touch:*)"]}}`)
	c := x.Run("agent", "run", x.v.name, "model: run touch made")
	if x.made("made") {
		x.Errorf("a rule of ours does not bind it: %s", c)
	}
	if c.Code() != 0 && !strings.Contains(c.Stderr(), "ended its turn: Bash was not allowed: ") { // Codex waits for orders
		x.Errorf("%s", c)
	}
	var open []any
	if x.Read(&open, "approvals", "--json"); len(open) > 0 {
		x.Errorf("asked: %v", open)
	}
}

func (x *trial) message() {
	id := strings.TrimSpace(x.Good("agent", "run", "-d", x.v.name, "model: say first"))
	x.Good("wait", id)
	x.Good("send", id, "model: say second")
	x.Until("the second answer", func() bool { return strings.Contains(x.Good("logs", id), "second") })
	x.Good("wait", id)
	var asked int
	for _, r := range x.model.Requests() {
		if strings.Contains(string(r.Body), "model: say first") && strings.Contains(string(r.Body), "model: say second") {
			asked++
		}
	}
	if asked == 0 {
		x.Error("the second prompt did not continue the first conversation")
	}
}

func (x *trial) stop() {
	defer close(x.held)
	id := strings.TrimSpace(x.Good("agent", "run", "-d", x.v.name, "model: wait"))
	x.Until("the model is asked", func() bool { return x.asked("model: wait") })
	if n := len(x.Procs(filepath.Base(x.v.command))); n == 0 {
		x.Error("no process of the agent is seen")
	}
	var receipt struct {
		Survivors []any `json:"survivors"`
	}
	x.Read(&receipt, "stop", id, "--json")
	if len(receipt.Survivors) > 0 {
		x.Errorf("left: %v", receipt.Survivors)
	}
	if n := x.Procs(filepath.Base(x.v.command)); len(n) > 0 {
		x.Errorf("left running: %v", n)
	}
	if rec := x.record(); rec["status"] != "killed" {
		x.Errorf("status %v", rec["status"])
	}
}

func (x *trial) asked(text string) bool {
	for _, r := range x.model.Requests() {
		if strings.Contains(string(r.Body), text) {
			return true
		}
	}
	return false
}

func (x *trial) killed() {
	defer close(x.held)
	x.Good("agent", "run", "-d", x.v.name, "model: wait")
	x.Until("the model is asked", func() bool { return x.asked("model: wait") })
	for _, host := range x.Of("host") {
		x.Must(syscall.Kill(host.PID, syscall.SIGKILL))
	}
	x.Until("nothing of the agent runs", func() bool { return len(x.Procs(filepath.Base(x.v.command))) == 0 })
	x.Until("the task has ended", func() bool {
		rec := x.record()
		return rec["status"] != "running" && rec["status"] != "pending"
	})
}

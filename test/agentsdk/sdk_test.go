// Package agentsdk runs programs that use the official Agent SDK against the built
// binary: what they are told, and that nothing is left running.
package agentsdk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long one case may take.
const patience = 2 * time.Minute

// sdk installs the SDK and builds the binary, once.
var sdk = sync.OnceValues(func() (dir string, err error) {
	dir, err = os.MkdirTemp("", "drover-agentsdk-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "cases.mjs", "forms.mjs"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return dir, err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return dir, err
		}
	}
	for _, words := range [][]string{{"npm", "ci"}, {"go", "build", "-o", filepath.Join(dir, "drover"), "../../cmd/drover"}} {
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
	if dir, _ := sdk(); dir != "" && os.Getenv("AGENTSDK_USED") != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// recorded is what the binary wrote in the cases that have run.
var recorded recording

// run runs one case with scripts of the model, and returns its facts and the folder in
// which it worked.
func run(t *testing.T, name string, scripts ...string) (facts []string, folder string) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("SKIPPED LOUDLY: npm is not installed, so the official Agent SDK was not tried")
	}
	dir, err := sdk()
	if err != nil {
		if strings.Contains(err.Error(), "npm ci") {
			t.Skipf("SKIPPED LOUDLY: the official Agent SDK could not be installed: %v", err)
		}
		t.Fatal(err)
	}
	os.Setenv("AGENTSDK_USED", "1")
	home, folder := t.TempDir(), t.TempDir()
	file := filepath.Join(folder, "turns.yaml")
	for i, text := range scripts {
		path := file
		if i == 1 {
			path = strings.TrimSuffix(file, ".yaml") + "-second.yaml"
		}
		if err := os.WriteFile(path, []byte("version: 1\nagents:\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "cases.mjs", name, filepath.Join(dir, "drover"), file, folder)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_STATE_HOME="+home, "XDG_RUNTIME_DIR="+home)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		stderr, _ := os.ReadFile(filepath.Join(folder, "stderr"))
		t.Fatalf("%v\n%s\n%s\n%s", err, out.Bytes(), short(errs.String()), stderr)
	}
	if err := recorded.add(name, filepath.Join(folder, "wire")); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		var f struct {
			What  string          `json:"what"`
			Value json.RawMessage `json:"value"`
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		facts = append(facts, f.What+" "+string(f.Value))
	}
	return facts, folder
}

// want compares the facts of a case.
func want(t *testing.T, got []string, facts ...string) {
	t.Helper()
	if !slices.Equal(got, facts) {
		t.Errorf("the program saw\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(facts, "\n\t"))
	}
}

// TestSDK drives the binary by the official SDK, and holds what it wrote in all cases
// against the types of the SDK.
func TestSDK(t *testing.T) {
	lines := &recorded
	t.Run("cases", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"simple":      caseSimple,
			"permissions": casePermissions,
			"plan":        casePlan,
			"elicitation": caseElicitation,
			"declined":    caseDeclined,
			"choice":      caseChoice,
			"nobody":      caseNobody,
			"hooks":       caseHooks,
			"mcp":         caseMCP,
			"agent":       caseAgent,
			"mcpmore":     caseMCPMore,
			"skills":      caseSkills,
			"delivery":    caseDelivery,
			"agents":      caseAgents,
			"live":        caseLive,
			"interrupt":   caseInterrupt,
			"background":  caseBackground,
			"resume":      caseResume,
			"options":     caseOptions,
			"structured":  caseStructured,
			"fallback":    caseFallback,
			"abort":       caseAbort,
			"hookevents":  caseHookEvents,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
	t.Run("types", lines.check)
}

const echo = `
  main:
    - tools: [{name: Bash, input: {command: "touch made", description: make}}]
    - {text: "then: {{last}}"}
    - {text: "later"}
    - {text: "at last"}
`

func caseSimple(t *testing.T) {
	facts, _ := run(t, "simple", `
  main:
    - {error: {message: slow down, status: 429, type: rate_limit_error, retry_after: 10ms}}
    - {thinking: hm, text: hello}
`)
	want(t, facts, `result "success: hello"`, "end true")
}

func casePermissions(t *testing.T) {
	facts, folder := run(t, "permissions", `
  main:
    - tools: [{name: Bash, id: t1, input: {command: touch made, description: make}}]
    - tools: [{name: Bash, id: t2, input: {command: curl x, description: fetch}}]
    - {text: "then: {{last}}"}
`)
	want(t, facts,
		`asked ["Bash","touch made","t1",[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"touch made"}],"behavior":"allow","destination":"localSettings"}]]`,
		`asked ["Bash","curl x","t2",[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"curl x"}],"behavior":"allow","destination":"localSettings"}]]`,
		`result "success: then: no way"`, "end true")
	if _, err := os.Stat(filepath.Join(folder, "changed")); err != nil {
		t.Errorf("the changed input was not used: %v", err)
	}
}

func casePlan(t *testing.T) {
	facts, folder := run(t, "plan", `
  main:
    - tools: [{name: ExitPlanMode, input: {plan: first}}]
    - tools: [{name: ExitPlanMode, input: {plan: "second, since {{last}}"}}]
    - tools: [{name: Write, input: {file_path: made, content: "{{last}}"}}]
    - {text: done}
`)
	suggested := `,[{"type":"setMode","mode":"acceptEdits","destination":"session"}]]`
	for _, f := range []string{`asked ["ExitPlanMode",{"plan":"first"}` + suggested, `mode "acceptEdits"`, `result "success: done"`} {
		if !slices.Contains(facts, f) {
			t.Errorf("%s is missing in %q", f, facts)
		}
	}
	if !slices.ContainsFunc(facts, func(f string) bool {
		return strings.Contains(f, "second, since") && strings.Contains(f, "mind the tests")
	}) {
		t.Errorf("the model was not told why: %q", facts)
	}
	if got, err := os.ReadFile(filepath.Join(folder, "made")); err != nil || !strings.Contains(string(got), "third") {
		t.Errorf("the changed plan was not carried out: %q, %v", got, err)
	}
}

// ask is a call of the server in forms.mjs.
const ask = "    - tools: [{name: mcp__forms__ask, input: {}}]\n"

func caseElicitation(t *testing.T) {
	facts, _ := run(t, "elicitation", "\n  main:\n"+strings.Repeat(ask, 3)+
		"    - tools: [{name: mcp__forms__visit, input: {}}]\n    - {text: done}\n")
	form := `asked ["forms","Who are you?","form",null,null,["name"]]`
	want(t, facts,
		form, `got "{\"action\":\"accept\",\"content\":{\"name\":\"Ada\",\"team\":\"core\"}}"`,
		form, `got "{\"action\":\"decline\"}"`,
		form, `got "{\"action\":\"cancel\"}"`,
		`asked ["forms","Sign in","url","https://example.com/x","e1",null]`, `got "{\"action\":\"accept\"}"`,
		`result "success: done"`, "end true")
}

func caseDeclined(t *testing.T) {
	facts, _ := run(t, "declined", "\n  main:\n"+ask+"    - {text: \"{{last}}\"}\n")
	want(t, facts, `result "success: {\"action\":\"decline\"}"`, "end true")
}

func caseChoice(t *testing.T) {
	facts, _ := run(t, "choice", `
  main:
    - tools: [{name: AskUserQuestion, id: t1, input: {questions: [
        {question: "Which?", header: x, options: [{label: this, description: a}, {label: that, description: b}]},
        {question: "How?", header: y, options: [{label: fast, description: a}, {label: slow, description: b}]}]}}]
    - tools: [{name: Bash, id: t2, input: {command: touch made, description: make}}]
    - {text: not asked}
`)
	if len(facts) < 3 || facts[0] != `asked [["Which?","How?"],"t1"]` || !strings.Contains(facts[1], `Which? that\nHow? fast`) {
		t.Fatalf("facts %q", facts)
	}
	if !slices.ContainsFunc(facts, func(f string) bool { return strings.HasPrefix(f, `result "error_during_execution`) }) ||
		!slices.Contains(facts, `why "aborted_tools"`) {
		t.Errorf("the turn was not broken off: %q", facts)
	}
}

func caseNobody(t *testing.T) {
	facts, _ := run(t, "nobody", echo)
	if len(facts) != 2 || !strings.Contains(facts[0], "then: ") {
		t.Errorf("facts %q", facts)
	}
}

func caseHooks(t *testing.T) {
	facts, folder := run(t, "hooks", echo)
	if len(facts) != 3 || facts[0] != `hook ["PreToolUse","Bash","toolu_main_0_0"]` || !strings.Contains(facts[1], "by the hook") {
		t.Errorf("facts %q", facts)
	}
	if _, err := os.Stat(filepath.Join(folder, "made")); err == nil {
		t.Error("the call that the hook denied was made")
	}
}

func caseMCP(t *testing.T) {
	facts, _ := run(t, "mcp", `
  main:
    - tools: [{name: mcp__calc__add, input: {a: 1, b: 2}}]
    - {text: "sum: {{last}}"}
`)
	want(t, facts, `servers [{"name":"calc","status":"connected"}]`, `result "success: sum: 3"`, "end true")
}

func caseMCPMore(t *testing.T) {
	facts, _ := run(t, "mcpmore", `
  main:
    - tools: [{name: mcp__odd_one__both, input: {name: a}}, {name: mcp__odd_one__both, input: {name: b}}]
    - tools: [{name: mcp__odd_one__picture, input: {}}]
    - tools: [{name: mcp__odd_one__talk, input: {}}]
    - tools: [{name: mcp__odd_one__slow, input: {}}]
    - {text: not asked}
`)
	for _, f := range []string{`tools ["mcp__odd_one__both","mcp__odd_one__picture","mcp__odd_one__talk","mcp__odd_one__slow"]`,
		`got "got a"`, `got "got b"`, "slow true", "cancelled true"} {
		if !slices.Contains(facts, f) {
			t.Errorf("%s is missing in %q", f, facts)
		}
	}
	for _, text := range []string{"image", "Drover does not support roots/list"} {
		if !slices.ContainsFunc(facts, func(f string) bool { return strings.HasPrefix(f, "got ") && strings.Contains(f, text) }) {
			t.Errorf("%s is missing in %q", text, facts)
		}
	}
}

func caseSkills(t *testing.T) {
	facts, folder := run(t, "skills", `
  main:
    - tools: [{name: Skill, input: {skill: "extra:more"}}]
    - tools: [{name: Skill, input: {skill: other}}]
    - {text: done}
`)
	if len(facts) < 3 || !strings.Contains(facts[2], `no skill`) {
		t.Errorf("facts %q", facts)
	}
	if !slices.Contains(facts, `hooked "plugin\n"`) {
		t.Errorf("the hook of the plugin has not run: %q", facts)
	}
	said, err := os.ReadFile(filepath.Join(folder, "stderr"))
	if err != nil || !strings.Contains(string(said), "there is no skill") {
		t.Errorf("stderr %s (%v)", said, err)
	}
}

func caseDelivery(t *testing.T) {
	facts, _ := run(t, "delivery", "\n  main:\n    - {text: hello}\n")
	want(t, facts, `result "success: hello"`, "end true")
}

func caseAgents(t *testing.T) {
	facts, _ := run(t, "agents", `
  main:
    - tools: [{name: Agent, input: {description: greet, prompt: hi, subagent_type: greeter, run_in_background: true}}]
    - {text: started}
    - {text: thanks}
  greeter:
    - tools: [{name: Read, input: {file_path: none}}]
    - {text: good day, delay: 1s}
`)
	for _, f := range []string{`offered [{"name":"greeter","description":"greets"}]`, "commands true", `told ["completed","good day"]`, `result "success: thanks"`} {
		if !slices.Contains(facts, f) {
			t.Errorf("%s is missing in %q", f, facts)
		}
	}
}

// The main agent is one that the program defines.
func caseAgent(t *testing.T) {
	facts, _ := run(t, "agent", "\n  main:\n    - {text: salve}\n")
	want(t, facts, `tools ["Read"]`, `result "success: salve"`, "end true", "thrown true")
}

func caseLive(t *testing.T) {
	facts, folder := run(t, "live", "\n  main:\n    - {text: first}\n", `
  main:
    - {text: not asked}
    - tools: [{name: Bash, input: {command: touch made, description: make}}]
    - {text: second}
`)
	uuid := `"11111111-1111-4111-8111-111111111111"`
	for _, f := range []string{"lifecycle [" + uuid + `,"queued"]`, "lifecycle [" + uuid + `,"started"]`, "lifecycle [" + uuid + `,"completed"]`,
		`result "success: first"`, `thinking "ok"`, `no thinking limit "ok"`,
		`refused reconnect "error: the request \"mcp_reconnect\" is not supported"`,
		`refused toggle "error: the request \"mcp_toggle\" is not supported"`,
		`refused servers "error: the request \"mcp_set_servers\" is not supported"`,
		`refused plugins "error: the request \"reload_plugins\" is not supported"`, "context true", "servers []", `result "success: second"`, "end true"} {
		if !slices.Contains(facts, f) {
			t.Errorf("%s is missing in %q", f, facts)
		}
	}
	for what, text := range map[string]string{"wrong mode": "not known", "rewind": "not supported"} {
		if !slices.ContainsFunc(facts, func(f string) bool { return strings.HasPrefix(f, what+` "error`) && strings.Contains(f, text) }) {
			t.Errorf("%s: %q", what, facts)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "made")); err != nil {
		t.Errorf("the mode did not change: %v", err)
	}
}

func caseInterrupt(t *testing.T) {
	facts, _ := run(t, "interrupt", `
  main:
    - tools: [{name: Bash, input: {command: exec sleep 471, description: sleep}}]
    - {text: again}
    - {text: again}
`)
	if len(facts) != 4 || !strings.HasPrefix(facts[0], "interrupted") || !strings.HasPrefix(facts[1], `result "error_during_execution`) ||
		facts[2] != `result "success: again"` {
		t.Errorf("facts %q", facts)
	}
}

func caseBackground(t *testing.T) {
	facts, _ := run(t, "background", `
  main:
    - tools: [{name: Bash, input: {command: exec sleep 472, description: sleep}}]
    - {text: going on}
    - {text: it was stopped}
`)
	for _, f := range []string{"backgrounded true", `result "success: going on"`, `told "stopped"`} {
		if !slices.Contains(facts, f) {
			t.Errorf("%s is missing in %q", f, facts)
		}
	}
}

func caseResume(t *testing.T) {
	facts, _ := run(t, "resume", "\n  main:\n    - {text: first}\n    - {text: second}\n    - {text: third}\n")
	want(t, facts, `result "success: first"`, "end true", `result "success: second"`, "end true", "fork true",
		`result "success: third"`, "end true", "same true")
}

// All options of the SDK are taken; what has no effect is said on stderr.
func caseOptions(t *testing.T) {
	facts, folder := run(t, "options", "\n  main:\n    - {text: hello}\n")
	want(t, facts, `result "success: hello"`, "end true")
	said, err := os.ReadFile(filepath.Join(folder, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"--from-the-future is not known", "--no-session-persistence",
		"--betas", "initialize: promptSuggestions has no effect", "there is no skill pdf"} {
		if !strings.Contains(string(said), text) {
			t.Errorf("nobody was told of %s:\n%s", text, said)
		}
	}
}

// An answer of a schema is asked for until it fits, and at most five times.
func caseStructured(t *testing.T) {
	facts, _ := run(t, "structured", `
  main:
    - {text: it is three}
    - tools: [{name: StructuredOutput, input: {sum: three}}]
    - tools: [{name: StructuredOutput, input: {sum: 3}}]
    - {text: not asked}
`)
	want(t, facts, `result "success: {\"sum\":3}"`, `value {"sum":3}`, "end true")
	wrong := "    - tools: [{name: StructuredOutput, input: {sum: three}}]\n"
	facts, _ = run(t, "structured", "\n  main:\n"+strings.Repeat(wrong, 5)+"    - {text: not asked}\n")
	if len(facts) != 3 || !strings.HasPrefix(facts[0], `result "error_max_structured_output_retries: `) ||
		!strings.Contains(facts[0], "/properties/sum") || facts[1] != "value null" || facts[2] != "thrown true" {
		t.Errorf("facts %q", facts)
	}
}

// Another model answers when the first is overloaded.
func caseFallback(t *testing.T) {
	facts, _ := run(t, "fallback", "\n  main:\n    - {error: {message: too busy, status: 529, type: overloaded_error}}\n",
		"\n  main:\n    - {text: hello}\n")
	want(t, facts, `fell back ["warning","model script:turns.yaml failed: too busy; the rest of the turn goes to script:turns-second.yaml"]`,
		`from "script:turns-second.yaml"`, `result "success: hello"`, `used ["script:turns-second.yaml"]`, "end true")
}

// Hooks are shown on the stream, and are told how much the model is asked to think.
func caseHookEvents(t *testing.T) {
	facts, folder := run(t, "hookevents", "\n  main:\n    - tools: [{name: Bash, input: {command: pwd}}]\n    - {text: done}\n")
	want(t, facts, `started "UserPromptSubmit"`, `ended ["UserPromptSubmit","{\"continue\":true}","",null,"success"]`,
		`started "PreToolUse:Bash"`, `ended ["PreToolUse","out\n","err\n",0,"success"]`, `result "success: done"`, "end true")
	input, err := os.ReadFile(filepath.Join(folder, "input"))
	if err != nil || !strings.Contains(string(input), `"effort":{"level":"high"}`) {
		t.Errorf("the hook was told %s (%v)", input, err)
	}
}

// A program that aborts leaves no process.
func caseAbort(t *testing.T) {
	facts, _ := run(t, "abort", "\n  main:\n    - tools: [{name: Bash, input: {command: exec sleep 473, description: sleep}}]\n    - {text: x}\n")
	if len(facts) != 1 || !strings.HasPrefix(facts[0], "aborted") && facts[0] != "end true" {
		t.Errorf("facts %q", facts)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) { // another program's end makes no event here
		if left := processes(t, "sleep\x00473"); len(left) == 0 {
			return
		} else if time.Now().After(end) {
			t.Fatalf("left running: %q", left)
		}
	}
}

// processes are those whose command line holds a text.
func processes(t *testing.T, text string) (out []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if line, err := os.ReadFile(f); err == nil && bytes.HasPrefix(line, []byte(text)) {
			out = append(out, f)
		}
	}
	return out
}

// short leaves out lines of a program's source that a stack trace shows.
func short(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if len(line) < 400 {
			out.WriteString(line)
		}
	}
	return out.String()
}

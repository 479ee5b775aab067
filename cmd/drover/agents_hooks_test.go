package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/test/modeltest"
)

// log is where the hooks of a test write down what they were told: outside of
// the project, whose trust ends when a file changes that a hook names.
func (p *place) log() string { return filepath.Join(p.work, "log") }

// tell is a hook that writes down what it is told.
func (p *place) tell() string {
	return `line=$(cat); printf '%s\n' "$line" >> ` + p.log()
}

// hooks writes a command for each event into the settings of the project.
func (p *place) hooks(commands map[string]string) string {
	p.t.Helper()
	events := object{}
	for event, command := range commands {
		events[event] = []any{object{"hooks": []any{object{"type": "command", "command": command}}}}
	}
	raw, err := json.Marshal(object{"hooks": events})
	if err != nil {
		p.t.Fatal(err)
	}
	return p.file(".claude/settings.json", string(raw))
}

// logged is what hooks were told.
func (p *place) logged() []object {
	p.t.Helper()
	raw, err := os.ReadFile(p.log())
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	var all []object
	for line := range strings.Lines(string(raw)) {
		var o object
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			p.t.Fatalf("a hook was told %q: %v", line, err)
		}
		all = append(all, o)
	}
	return all
}

func events(all []object) []string {
	var out []string
	for _, o := range all {
		out = append(out, fmt.Sprint(o["hook_event_name"]))
	}
	return out
}

// agentHooks are tests of hooks: those of a project, and of agents.
func agentHooks() cases {
	return cases{
		"trust": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": slices.Repeat([]step{says("ok")}, 10)})
			p.hooks(map[string]string{"Stop": p.tell()})
			run := func(want int, args ...string) string {
				t.Helper()
				r := p.run(append([]string{"-p", "go"}, args...)...)
				if got := len(p.logged()); r.code != 0 || got != want {
					t.Errorf("%q: exit code %d, %d hooks have run, want %d: %s", args, r.code, got, want, r.stderr)
				}
				return r.stderr
			}
			holds(t, "stderr", run(0), "no effect until you trust it", "drover trust")
			p.good("trust", "--yes")
			if said := run(1); said != "" {
				t.Errorf("stderr: %q", said)
			}
			p.hooks(map[string]string{"Stop": p.tell(), "SessionStart": p.tell()})
			holds(t, "stderr", run(1), "no effect until you trust it", "drover trust")
			if said := run(3, "--trust"); said != "" {
				t.Errorf("stderr: %q", said)
			}
		},
		"calls": func(t *testing.T, p *place) {
			pre := `case "$(cat)" in
*'touch no'*) echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"never touch no"}}';;
*'touch change'*) echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","updatedInput":{"command":"touch changed"}}}';;
*'touch bad'*) echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"rm notes.txt"}}}';;
*'touch mind'*) echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","additionalContext":"mind the gap"}}';;
esac`
			post := `case "$(cat)" in *'touch post'*) echo '{"hookSpecificOutput":{"hookEventName":"PostToolUse","additionalContext":"posted it"}}';; esac`
			p.hooks(map[string]string{"PreToolUse": pre, "PostToolUse": post})
			p.file("notes.txt", "x")
			var list []step
			for _, name := range []string{"no", "change", "bad", "mind", "post"} {
				list = append(list, calls("Bash", bash("touch "+name)))
			}
			m := p.model(map[string][]step{"main": append(list, says("done"))})
			p.denied([]string{"-p", "go", "--trust", anything, "--disallowed-tools=Bash(rm:*)"},
				"Bash call denied by a hook: never touch no",
				"Bash call denied by the rule Bash(rm:*); only removing that rule allows it")
			for i, want := range []string{"never touch no", "", "Bash(rm:*)", "mind the gap", "posted it"} {
				holds(t, fmt.Sprintf("result %d", i+1), m.Requests()[i+1].LastText(), want)
			}
			for name, want := range map[string]bool{"no": false, "change": false, "changed": true, "bad": false, "notes.txt": true, "mind": true, "post": true} {
				if p.there(name) != want {
					t.Errorf("%s is there: %v", name, !want)
				}
			}
			for _, o := range p.tasks("-a") { // hooks are no tasks
				if command, _ := o["command"].(string); o["task_type"] != "local_bash" || !strings.HasPrefix(command, "touch") {
					t.Errorf("task %v", o)
				}
			}
		},
		"daemon": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", bash("echo on")), says("done")}})
			p.hooks(map[string]string{"PostToolUse": "setsid sleep 641 & sleep 642 &", "SessionEnd": "sleep 643 &"})
			r := p.run("-p", "go", "--trust", anything)
			if r.code != 0 || strings.Count(r.stderr, "ended with the command") != 2 {
				t.Errorf("what hooks left is not named: %d, %s", r.code, r.stderr)
			}
			p.leaves(0, "sleep")
		},
		"prompt": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("answered")}})
			p.hooks(map[string]string{"UserPromptSubmit": `case "$(cat)" in *secret*) echo 'no secrets here' >&2; exit 2;; *) echo 'the user is in a hurry';; esac`})
			p.fails(1, []string{"-p", "--trust", "tell the secret"}, "a hook blocked the prompt", "no secrets here")
			if m.Count() != 0 {
				t.Error("the model was asked all the same")
			}
			p.good("-p", "tell the time")
			if said := texts(t, m.Requests()[0]); count(said, "the user is in a hurry") != 1 || count(said, "tell the time") != 1 {
				t.Errorf("the model is told %q", said)
			}
		},
		"stop": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("one"), says("two"), says("three"), says("never")}})
			at := filepath.Join(p.work, "count")
			p.hooks(map[string]string{"Stop": p.tell() + `; echo x >> ` + at + `; [ $(wc -l < ` + at + `) -gt 2 ] || { echo 'run the tests first' >&2; exit 2; }`})
			if got := p.good("-p", "go", "--trust").stdout(); got != "three" {
				t.Errorf("printed %q", got)
			}
			if all := m.Requests(); len(all) != 3 || count(texts(t, all[2]), "run the tests first") != 2 {
				t.Errorf("%d requests, the last %q", len(all), texts(t, all[len(all)-1]))
			}
			var active []any
			for _, o := range p.logged() {
				active = append(active, o["stop_hook_active"], o["last_assistant_message"])
			}
			if !slices.Equal(active, []any{false, "one", true, "two", true, "three"}) {
				t.Errorf("the hook was told %v", active)
			}
		},
		"subagents": func(t *testing.T, p *place) {
			p.hooks(map[string]string{"SubagentStart": p.tell() + `; echo 'a word before'`, "SubagentStop": p.tell()})
			never, asked := make(chan struct{}), make(chan struct{})
			m := p.model(map[string][]step{
				"main": {
					several("Agent", asks("plan", "ends"), "Agent", asks("task", "fails"), "Agent", asks("explore", "runs long", "max_turns", 1)),
					calls("Agent", asks("general-purpose", "waits", "run_in_background", true)),
					held(asked, func(r *modeltest.Request) modeltest.Answer {
						return modeltest.Call("TaskStop", map[string]any{"task_id": idOf(r)})
					}), says("done")},
				"plan":    {says("planned")},
				"explore": {calls("Glob", map[string]any{"pattern": "*"})},
				"general-purpose": {held(never, func(*modeltest.Request) modeltest.Answer {
					close(asked) // by now it has been told of
					return modeltest.Text("never")
				})},
			})
			if r := p.run("-p", "go", "--trust"); r.code != 0 {
				t.Fatalf("exit code %d: %s", r.code, r.stderr)
			}
			starts, stops, kinds := map[any]int{}, map[any]int{}, map[string]object{}
			for _, o := range p.logged() {
				if o["hook_event_name"] == "SubagentStart" {
					starts[o["agent_id"]]++
					continue
				}
				stops[o["agent_id"]]++
				kinds[fmt.Sprint(o["agent_type"])] = o
			}
			if len(starts) != 4 || !maps.Equal(starts, stops) || slices.Max(slices.Collect(maps.Values(starts))) != 1 {
				t.Errorf("starts %v, stops %v", starts, stops)
			}
			if o := kinds["plan"]; o["last_assistant_message"] != "planned" || o["error"] != nil {
				t.Errorf("an agent that ended: %v", o)
			}
			holds(t, "an agent that failed", fmt.Sprint(kinds["task"]["error"]), "no step")
			holds(t, "an agent that was stopped", fmt.Sprint(kinds["general-purpose"]["error"]), "stop")
			holds(t, "an agent at its limit", fmt.Sprint(kinds["explore"]["error"]), "limit of 1 turn")
			if said := texts(t, of(m, "plan")[0]); count(said, "a word before") != 1 || said[len(said)-1] != "ends" {
				t.Errorf("the agent is told %q", said)
			}
			for _, o := range p.logged() {
				path, _ := o["agent_transcript_path"].(string)
				if _, err := os.Stat(path); err != nil {
					t.Error(err)
				}
			}
		},
		"sessions": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("first"), says("second")}})
			p.hooks(map[string]string{"SessionStart": p.tell() + `; echo 'the tests are red'`, "SessionEnd": p.tell()})
			id, _ := p.good("-p", "go", "--trust", "--output-format=json").objects(t)[0]["session_id"].(string)
			p.good("-p", "on", "--resume", id)
			all := p.logged()
			if got := events(all); !slices.Equal(got, []string{"SessionStart", "SessionEnd", "SessionStart", "SessionEnd"}) {
				t.Fatalf("events %v", got)
			}
			if all[0]["source"] != "startup" || all[2]["source"] != "resume" || all[3]["session_id"] != id {
				t.Errorf("told %v", all)
			}
			if n := count(texts(t, m.Requests()[0]), "the tests are red"); n != 1 {
				t.Errorf("the model is told %d times what the hook said", n)
			}
		},
		"hurry": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", bash("sleep 618"))}})
			p.hooks(map[string]string{"SessionEnd": "exec sleep 619"})
			r := p.start("-p", "go", "--trust", anything)
			p.alive("sleep 618")
			if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if res := r.wait(); res.code != 143 { // the hook would hold it up for longer than the test waits
				t.Errorf("exit code %d: %q", res.code, res.stderr)
			}
			p.leaves(0, "sleep")
		},
		"copilot": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {calls("Bash", bash("touch it")), calls("Read", map[string]any{"file_path": "notes.txt"}), says("done")}})
			p.file("notes.txt", "what is written")
			hook, err := json.Marshal(object{"version": 1, "hooks": object{"preToolUse": []any{object{"type": "command",
				"bash": `line=$(cat); printf '%s\n' "$line" >> ` + p.log() + `; case "$line" in *touch*) echo '{"permissionDecision":"deny","permissionDecisionReason":"hands off"}';; esac`}}}})
			if err != nil {
				t.Fatal(err)
			}
			p.file(".github/hooks/x.json", string(hook))
			p.denied([]string{"-p", "go", "--trust", anything}, "Bash call denied by a hook: hands off")
			holds(t, "the first result", m.Requests()[1].LastText(), "hands off")
			holds(t, "the second result", m.Requests()[2].LastText(), "what is written")
			if all := p.logged(); p.there("it") || len(all) != 2 || all[0]["toolName"] != "bash" || all[1]["toolName"] != "view" || !strings.Contains(fmt.Sprint(all[0]["toolArgs"]), "touch it") {
				t.Errorf("told %v", all)
			}
		},
		"ofagent": func(t *testing.T, p *place) {
			p.file(".claude/agents/careful.md", "---\nname: careful\ndescription: Takes care.\nhooks:\n  PreToolUse:\n    - matcher: Bash\n      hooks:\n        - type: command\n"+
				"          command: echo 'careful agents run nothing' >&2; exit 2\n  Stop:\n    - hooks:\n        - type: command\n          command: |\n            "+p.tell()+"\n---\nTake care.\n")
			for i, args := range [][]string{nil, {"--trust"}} {
				m := p.model(map[string][]step{
					"main":    {calls("Bash", bash("touch main")), calls("Agent", asks("careful", "do it")), says("done")},
					"careful": {calls("Bash", bash("touch it")), echo},
				})
				if r := p.run(append([]string{"-p", "go", anything}, args...)...); r.code != 0 {
					t.Fatalf("exit code %d: %s", r.code, r.stderr)
				}
				told := strings.Contains(of(m, "careful")[1].LastText(), "careful agents run nothing")
				if trusted := i == 1; told != trusted || p.there("it") == trusted || !p.there("main") || len(p.logged()) != i {
					t.Errorf("%q: the hook was heard: %v, the stop was told %d times", args, told, len(p.logged()))
				}
				if err := os.RemoveAll(filepath.Join(p.dir, "it")); err != nil {
					t.Fatal(err)
				}
			}
			if all := p.logged(); len(all) == 1 && all[0]["hook_event_name"] != "SubagentStop" {
				t.Errorf("told %v", all)
			}
		},
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/test/modeltest"
)

// TestWorkflowTool shows workflows that an agent starts: judged before they begin,
// told of in the stream and by a notification, and gone on with.
func TestWorkflowTool(t *testing.T) {
	bin := build(t)
	flow := func(in ...any) step {
		input := map[string]any{}
		for i := 0; i < len(in); i += 2 {
			input[in[i].(string)] = in[i+1]
		}
		return calls("Workflow", input)
	}
	for name, test := range (cases{
		"told": func(t *testing.T, p *place) {
			seen := make(chan struct{})
			p.file("w.yaml", "name: release\nparams: {v: {required: true}}\nsteps:\n  - {id: one, shell: \"echo one-$DROVER_PARAM_V\"}\n"+
				"  - {id: two, needs: one, agent: {type: explore, prompt: \"It said ${{ steps.one.output }}\"}}\noutputs: {o: \"${{ steps.two.output }}\"}\n")
			m := p.model(map[string][]step{"main": {flow("file", "w.yaml", "params", map[string]any{"v": "7"}), says("started"), says("told")}, "explore": {held(seen, says("I saw it"))}})
			run := p.start("-p", "go", "--output-format=stream-json", "--allowed-tools", "Bash(echo:*)")
			run.until(`{"step_id":"two","status":"running"`)
			close(seen)
			r := run.wait()
			holds(t, "the result of the call", of(m, "main")[1].LastText(), "Workflow started", "Task ID: w")
			holds(t, "the agent", of(m, "explore")[0].LastText(), "It said one-7")
			notification := of(m, "main")[len(of(m, "main"))-1].LastText()
			holds(t, "the notification", notification, `Workflow "workflow release" completed`, "I saw it")
			all := r.stdout()
			holds(t, "the stream", all, `"workflow_name":"release"`, `"workflow_progress":[{"step_id":"one","status":"completed"`, `{"step_id":"two","status":"completed"`)
		},
		"denied": func(t *testing.T, p *place) {
			p.file("sub.yaml", "steps:\n  - {id: bad, shell: touch made}\n")
			p.file("w.yaml", "steps:\n  - {id: one, shell: touch first}\n  - {id: in, needs: one, workflow: sub.yaml}\n")
			m := p.model(map[string][]step{"main": {flow("file", "w.yaml"), says("no")}})
			p.good("-p", "go", "--allowed-tools", "Bash(touch first)")
			holds(t, "the result of the call", of(m, "main")[1].LastText(), "step in/bad was not allowed, and nothing was started")
			for _, made := range []string{"made", "first"} {
				if _, err := os.Stat(filepath.Join(p.dir, made)); err == nil {
					t.Errorf("%s is there", made)
				}
			}
		},
		"tricks": func(t *testing.T, p *place) {
			p.file("w/env.yaml", "steps:\n  - {id: one, shell: ls, env: {PATH: ./evil}}\n")
			p.file("w/cwd.yaml", "steps:\n  - {id: one, shell: cat passwd, cwd: /etc}\n")
			p.file("w/value.yaml", "params: {f: }\nsteps:\n  - {id: one, shell: \"cat $DROVER_PARAM_F\"}\n")
			p.file("w/agent.yaml", "steps:\n  - {id: one, agent: {type: explore, prompt: x}, cwd: /}\n")
			m := p.model(map[string][]step{"main": {flow("file", "w/env.yaml"), flow("file", "w/cwd.yaml"), flow("file", "w/value.yaml", "params", map[string]any{"f": "/etc/passwd"}),
				flow("file", "w/agent.yaml"), flow("file", "/etc/passwd"), says("no")}})
			p.good("-p", "go")
			for i, want := range []string{"it sets a variable", "leaves the working directories", "known only when the command runs", "another folder than you", "may not be read here"} {
				holds(t, "the result of a call", of(m, "main")[i+1].LastText(), want)
			}
			if got := p.tasks("-a"); len(got) != 0 {
				t.Errorf("tasks were started: %v", got)
			}
		},
		"interrupted": func(t *testing.T, p *place) {
			p.file("w.yaml", "steps:\n  - {id: one, shell: exec sleep 1000}\n")
			r := p.start("workflow", "run", "w.yaml")
			r.until("one: running")
			if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if res := r.wait(); res.code != 130 {
				t.Errorf("exit code %d", res.code)
			} else {
				holds(t, "what is said", res.stderr, "was stopped (resume it with `drover workflow run --resume w")
			}
		},
		"people only": func(t *testing.T, p *place) {
			p.file(".claude/agents/solo.md", "---\nname: solo\ndescription: Solo.\ndisable-model-invocation: true\n---\nWork.\n")
			p.file("w.yaml", "steps:\n  - {id: one, agent: {type: solo, prompt: x}}\n")
			m := p.model(map[string][]step{"main": {flow("file", "w.yaml"), says("no")}, "solo": {says("never")}})
			p.good("-p", "go", anything)
			holds(t, "the result of the call", of(m, "main")[1].LastText(), "step one was not allowed", "agents of type solo are started by people only")
			if n := len(of(m, "solo")); n != 0 {
				t.Errorf("the agent made %d requests", n)
			}
		},
		"gone on with": func(t *testing.T, p *place) {
			p.file("w.yaml", "steps:\n  - {id: one, shell: echo one >>log}\n  - {id: two, needs: one, shell: test -e go}\n")
			resume := func(r *modeltest.Request) modeltest.Answer {
				return modeltest.Call("Workflow", map[string]any{"resume": found(r, `Task ID: (w\w+)`)})
			}
			free := func(r *modeltest.Request) modeltest.Answer { return modeltest.Call("Bash", bash("touch go")) }
			m := p.model(map[string][]step{"main": {flow("file", "w.yaml"), says("wait"), free, resume, says("wait"), says("told")}})
			p.good("-p", "go", anything)
			list := of(m, "main")
			holds(t, "the first notification", list[2].LastText(), `failed: step two: failed: exit code 1`)
			holds(t, "the second notification", list[len(list)-1].LastText(), `completed`)
			log, err := os.ReadFile(filepath.Join(p.dir, "log"))
			if err != nil || strings.Count(string(log), "one") != 1 {
				t.Errorf("step one was done as %q (%v)", log, err)
			}
		},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

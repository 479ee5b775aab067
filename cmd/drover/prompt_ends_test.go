package main

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/test/modeltest"
)

// leaves checks that nothing of the place is left in time.
func (p *place) leaves(d time.Duration, nothing string) {
	p.t.Helper()
	if !within(d, func() bool {
		return !slices.ContainsFunc(marked(p.work), func(r proc) bool { return strings.Contains(r.line, nothing) })
	}) {
		p.t.Errorf("left after %s: %v", d, marked(p.work))
	}
}

// alive waits for a process of the place.
func (p *place) alive(text string) {
	p.t.Helper()
	if !within(patience, func() bool {
		return slices.ContainsFunc(marked(p.work), func(r proc) bool { return strings.HasPrefix(r.line, text) })
	}) {
		p.t.Fatalf("no process %q: %v", text, marked(p.work))
	}
}

// promptEnds are tests of how a prompt ends: by itself, by a limit, by a signal.
func promptEnds() cases {
	return cases{
		"ceiling": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", later("sleep 611")), says("started")}})
			r := p.run("-p", "go", anything, "--wait-ceiling", "300ms")
			if r.code != 124 || r.stdout() != "started" || !strings.Contains(r.stderr, "stopped b") || !strings.Contains(r.stderr, "killed") {
				t.Errorf("exit code %d, %q, %q", r.code, r.stdout(), r.stderr)
			}
			p.leaves(0, "sleep")
		},
		"nowait": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", later("sleep 612")), says("started")}})
			if r := p.run("-p", "go", anything, "--no-wait"); r.code != 0 || r.stdout() != "started" {
				t.Errorf("exit code %d, %q, %q", r.code, r.stdout(), r.stderr)
			}
			p.leaves(0, "sleep")
		},
		"interrupt": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", bash("sleep 613"))}})
			r := p.start("-p", "go", anything, "--output-format=stream-json")
			p.alive("sleep 613")
			if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			res := r.wait()
			all := res.objects(t)
			last := all[len(all)-1]
			if res.code != 130 || last["type"] != "result" || last["subtype"] != "error_during_execution" || last["terminal_reason"] != "aborted_tools" {
				t.Errorf("exit code %d, %v, %q", res.code, last, res.stderr)
			}
			p.leaves(0, "sleep")
		},
		"interruptreply": func(t *testing.T, p *place) {
			never := make(chan struct{})
			asked := make(chan struct{})
			p.model(map[string][]step{"main": {func(*modeltest.Request) modeltest.Answer {
				close(asked)
				return modeltest.Answer{Wait: never}
			}}})
			r := p.start("-p", "go")
			<-asked
			if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if res := r.wait(); res.code != 130 {
				t.Errorf("exit code %d, %q", res.code, res.stderr)
			}
		},
		"interruptwait": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", later("sleep 614")), says("started")}})
			r := p.start("-p", "go", anything, "--output-format=stream-json")
			r.until(`"result"`)
			if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if res := r.wait(); res.code != 130 {
				t.Errorf("exit code %d, %q", res.code, res.stderr)
			}
			p.leaves(0, "sleep")
		},
		"terminate": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", later("setsid sleep 615 & sleep 615")), calls("Bash", bash("sleep 616"))}})
			r := p.start("-p", "go", anything)
			p.alive("sleep 615")
			p.alive("sleep 616")
			if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if res := r.wait(); res.code != 143 {
				t.Errorf("exit code %d, %q", res.code, res.stderr)
			}
			p.leaves(0, "sleep")
		},
		"kill": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {calls("Bash", later("setsid sleep 617 & sleep 617")), says("started"), says("I see")}})
			r := p.start("-p", "go", anything, "--output-format=stream-json")
			var first object
			if err := json.Unmarshal([]byte(r.until(`"result"`)), &first); err != nil {
				t.Fatal(err)
			}
			p.alive("sleep 617")
			if err := r.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			p.leaves(2*time.Second, "")
			r.wait()
			id, _ := first["session_id"].(string)
			res := p.good("-p", "go on", anything, "--output-format=stream-json", "--resume", id)
			told(t, m.Requests(), 2, 1)
			if said := texts(t, m.Requests()[2]); count(said, "host_lost") != 1 || count(said, "<status>killed</status>") != 1 {
				t.Errorf("told %q", said)
			}
			if got := only(res.objects(t), "task_notification"); len(got) > 1 {
				t.Errorf("%d notifications", len(got))
			}
			var tasks []object
			if err := json.Unmarshal([]byte(p.good("ps", "-a", "--json").stdout()), &tasks); err != nil {
				t.Fatal(err)
			}
			lost := slices.ContainsFunc(tasks, func(o object) bool {
				c, _ := o["cause"].(map[string]any)
				return o["status"] == "killed" && c["reason"] == "host_lost"
			})
			if !lost {
				t.Errorf("tasks %v", tasks)
			}
			p.model(map[string][]step{"main": {says("again")}})
			p.good("-p", "and again", "--resume", id)
		},
		"detached": func(t *testing.T, p *place) {
			fifo := p.fifo("f")
			p.model(map[string][]step{"main": {calls("Bash", later("cat f")), says("started"), says("all is done")}})
			id := p.good("-p", "-d", "go", anything).stdout()
			if id == "" || strings.Contains(id, "\n") {
				t.Fatalf("printed %q", id)
			}
			if ps := p.good("ps").stdout(); !strings.Contains(ps, id) {
				t.Errorf("ps shows %q", ps)
			}
			p.free(fifo)
			wait := p.run("wait", id)
			if wait.code != 0 {
				t.Errorf("wait: %d, %q", wait.code, wait.stderr)
			}
			if got := p.good("result", id).stdout(); got != "all is done" {
				t.Errorf("result %q", got)
			}
			if got := p.good("logs", id).stdout(); !strings.Contains(got, "started") || !strings.Contains(got, "all is done") {
				t.Errorf("logs %q", got)
			}
		},
		"agentrun": func(t *testing.T, p *place) {
			p.model(map[string][]step{"explore": {calls("Glob", map[string]any{"pattern": "*.txt"}), says("found a.txt")}})
			p.file("a.txt", "x")
			if got := p.good("agent", "run", "explore", "where", "is", "it?").stdout(); got != "found a.txt" {
				t.Errorf("printed %q", got)
			}
			p.fails(2, []string{"agent", "run", "explore"}, "PROMPT")
			p.fails(1, []string{"agent", "run", "plan", "it"}, "no step")
		},
	}
}

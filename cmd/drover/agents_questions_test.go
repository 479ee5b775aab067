package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/test/modeltest"
)

// detached starts a prompt in a host of its own and returns its session.
func (p *place) detached(args ...string) string {
	p.t.Helper()
	return p.good(append([]string{"-p", "-d", "go"}, args...)...).stdout()
}

// asked waits for a question that holds all texts.
func (p *place) asked(texts ...string) object {
	p.t.Helper()
	w := p.start("approvals", "--watch", "--json")
	line := w.until(texts...)
	_ = w.cmd.Process.Signal(syscall.SIGINT)
	w.wait()
	var q object
	if err := json.Unmarshal([]byte(line), &q); err != nil {
		p.t.Fatal(err)
	}
	return q
}

// ended waits for a detached prompt and returns its answer.
func (p *place) ended(session string) string {
	p.t.Helper()
	if r := p.run("wait", session); r.code != 0 {
		p.t.Fatalf("wait: exit code %d, %s", r.code, r.stderr)
	}
	return p.good("result", session).stdout()
}

// there reports whether a file of the project exists.
func (p *place) there(name string) bool {
	_, err := os.Stat(filepath.Join(p.dir, name))
	return err == nil
}

// echo answers with what it was told last.
func echo(r *modeltest.Request) modeltest.Answer { return modeltest.Text(r.LastText()) }

// agentQuestions are tests of permissions and of who gives them.
func agentQuestions() cases {
	touch := func() map[string][]step { return map[string][]step{"main": {calls("Bash", bash("touch it")), echo}} }
	choice := map[string]any{"questions": []any{map[string]any{"question": "Which colour?", "header": "Colour",
		"options": []any{map[string]any{"label": "red", "description": "warm"}, map[string]any{"label": "blue", "description": "cold"}}}}}
	return cases{
		"headless": func(t *testing.T, p *place) {
			p.model(touch())
			o := p.denied([]string{"-p", "go", "--output-format=json"}, touchDenied).objects(t)[0]
			holds(t, "what the model is told", fmt.Sprint(o["result"]), "needs permission, and nobody is there to give it")
			if denials, _ := o["permission_denials"].([]any); len(denials) != 1 || p.there("it") {
				t.Errorf("denials %v", denials)
			}
		},
		"allow": func(t *testing.T, p *place) {
			p.model(touch())
			id := p.detached()
			q := p.asked(`"tool":"Bash"`)
			if q["task_id"] != id || q["session_id"] != id || q["kind"] != "permission" {
				t.Errorf("question %v", q)
			}
			ref, _ := q["id"].(string)
			holds(t, "the list", p.good("approvals").stdout(), ref, "Allow command", "touch it", "drover approvals allow "+ref)
			var all []object
			if err := json.Unmarshal([]byte(p.good("approvals", "--json").stdout()), &all); err != nil || len(all) != 1 || all[0]["id"] != ref {
				t.Errorf("listed %v, %v", all, err)
			}
			if tasks := p.tasks(); len(tasks) != 1 || tasks[0]["awaiting_approval"] != true || p.there("it") {
				t.Errorf("tasks %v", tasks)
			}
			p.good("approvals", "allow", ref)
			p.ended(id)
			if !p.there("it") {
				t.Error("what was allowed did not run")
			}
			p.fails(3, []string{"approvals", "deny", ref}, "it has been answered")
		},
		"answertwice": func(t *testing.T, p *place) {
			p.model(touch())
			id := p.detached()
			ref := fmt.Sprint(p.asked(`"tool":"Bash"`)["id"])
			several := []*running{p.start("approvals", "allow", ref), p.start("approvals", "deny", ref), p.start("approvals", "allow", ref)}
			won := 0
			for _, r := range several {
				res := r.wait()
				switch {
				case res.code == 0:
					won++
				case res.code != 1 && res.code != 3 || !strings.Contains(res.stderr, ref):
					t.Errorf("exit code %d: %s", res.code, res.stderr)
				}
			}
			if p.ended(id); won != 1 {
				t.Errorf("%d answers to one question", won)
			}
		},
		"deny": func(t *testing.T, p *place) {
			p.model(touch())
			id := p.detached()
			p.good("approvals", "deny", "--reason", "not on a Friday", fmt.Sprint(p.asked(`"tool":"Bash"`)["id"]))
			holds(t, "what the model is told", p.ended(id), "not on a Friday")
			if p.there("it") {
				t.Error("what was denied ran")
			}
		},
		"late": func(t *testing.T, p *place) {
			p.model(touch())
			id := p.detached(set(t, object{"permissions": object{"askTimeout": "300ms"}}))
			holds(t, "what the model is told", p.ended(id), "nobody answered", "300ms")
			if p.there("it") {
				t.Error("what nobody allowed ran")
			}
			if left := p.run("approvals"); left.code != 0 || left.stdout() != "No questions need your answer." {
				t.Errorf("open: %q", left.stdout())
			}
		},
		"edited": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {calls("Bash", bash("touch it")), calls("Bash", bash("touch that")), echo}})
			id := p.detached(set(t, object{"permissions": object{"deny": []string{"Bash(rm:*)"}}}))
			p.good("approvals", "allow", "--input", `{"command":"touch other"}`, fmt.Sprint(p.asked("touch it")["id"]))
			p.good("approvals", "allow", "--input", `{"command":"rm other"}`, fmt.Sprint(p.asked("touch that")["id"]))
			holds(t, "what the model is told", p.ended(id), "the changed call is not allowed", "Bash(rm:*)")
			if p.there("it") || p.there("that") || !p.there("other") {
				t.Error("what ran is not what was allowed")
			}
			if read := string(m.Requests()[1].Body); !strings.Contains(read, "has changed your call of Bash") ||
				!strings.Contains(read, "touch other") {
				t.Errorf("the model has read %s", read)
			}
		},
		"hangup": func(t *testing.T, p *place) {
			p.model(touch())
			id := p.detached()
			p.asked(`"tool":"Bash"`)
			hosts := slices.DeleteFunc(marked(p.work), func(r proc) bool { return !strings.HasSuffix(r.line, "drover host") })
			if len(hosts) != 1 {
				t.Fatalf("hosts %v", hosts)
			}
			if err := syscall.Kill(hosts[0].pid, syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			p.leaves(patience, "drover")
			var rec object
			if err := json.Unmarshal([]byte(p.good("inspect", id, "--json").stdout()), &rec); err != nil || rec["status"] != "killed" || p.there("it") {
				t.Errorf("after a hangup: %v, %v; the file is there: %v", rec, err, p.there("it"))
			}
		},
		"stopped": func(t *testing.T, p *place) {
			p.model(touch())
			id := p.detached()
			p.asked(`"tool":"Bash"`)
			p.good("stop", id)
			if all := p.tasks("-a"); len(all) != 1 || all[0]["status"] != "killed" || all[0]["awaiting_approval"] == true || p.there("it") {
				t.Errorf("tasks %v", all)
			}
			if left := p.run("approvals"); left.code != 0 || left.stdout() != "No questions need your answer." {
				t.Errorf("open: %q", left.stdout())
			}
		},
		"choice": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("AskUserQuestion", choice), func(r *modeltest.Request) modeltest.Answer {
				if !strings.Contains(r.LastText(), "The user answered:\nblue, and dark") {
					return modeltest.Text("told " + r.LastText())
				}
				return modeltest.Call("AskUserQuestion", choice)
			}, echo}})
			id := p.detached()
			q := p.asked("Which colour?")
			ref := fmt.Sprint(q["id"])
			if q["kind"] != "choice" {
				t.Errorf("question %v", q)
			}
			p.fails(2, []string{"approvals", "allow", ref}, ref)
			p.good("approvals", "answer", ref, "blue, and dark")
			w := p.start("approvals", "--watch", "--json")
			var second object
			for second == nil || second["id"] == ref {
				second = nil
				if err := json.Unmarshal([]byte(w.until("Which colour?")), &second); err != nil {
					t.Fatal(err)
				}
			}
			_ = w.cmd.Process.Signal(syscall.SIGINT)
			w.wait()
			p.good("approvals", "deny", fmt.Sprint(second["id"]))
			holds(t, "what the model is told", p.ended(id), "Decide by yourself")
		},
		"foregroundprompt": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("AskUserQuestion", choice), calls("Bash", bash("touch it")), echo}})
			r := p.start("-p", "go", "--ask-timeout", "1m")
			p.good("approvals", "answer", fmt.Sprint(p.asked("Which colour?")["id"]), "red")
			p.good("approvals", "allow", fmt.Sprint(p.asked("touch it")["id"]))
			if res := r.wait(); res.code != 0 || !p.there("it") {
				t.Errorf("exit code %d, %q", res.code, res.stderr)
			}
		},
		"stopsubagent": func(t *testing.T, p *place) {
			p.model(map[string][]step{
				"main":            {calls("Agent", asks("general-purpose", "do it")), echo},
				"general-purpose": {calls("Bash", bash("touch it")), echo},
			})
			id := p.detached()
			p.good("stop", fmt.Sprint(p.asked(`"tool":"Bash"`)["task_id"]))
			holds(t, "what the main agent is told", p.ended(id), "did not complete", "stopped by user")
			if p.there("it") {
				t.Error("what nobody allowed ran")
			}
		},
		"subagent": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{
				"main":            {calls("Agent", asks("general-purpose", "do it")), echo},
				"general-purpose": {calls("Bash", bash("touch it")), echo},
			})
			id := p.detached()
			q := p.asked(`"tool":"Bash"`)
			child := of(m, "general-purpose")[0].AgentID()
			if q["task_id"] != child || q["agent"] != "general-purpose" || q["session_id"] != id {
				t.Errorf("question %v of %s", q, child)
			}
			for _, o := range p.tasks() {
				if waits, _ := o["awaiting_approval"].(bool); waits != (o["task_id"] == child) {
					t.Errorf("task %v awaits approval: %v", o["task_id"], waits)
				}
			}
			p.good("approvals", "deny", "--reason", "ask me tomorrow", fmt.Sprint(q["id"]))
			holds(t, "what the main agent is told", p.ended(id), "ask me tomorrow")
			if p.there("it") {
				t.Error("what was denied ran")
			}
		},
		"webfetch": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {nil, echo, nil, echo}})
			page := calls("WebFetch", map[string]any{"url": m.URL + "/page"})
			p.model(map[string][]step{"main": {page, echo}})
			r := p.denied([]string{"-p", "go"},
				"WebFetch call denied: no rule allows WebFetch (allow it with --allowed-tools 'WebFetch(domain:127.0.0.1)')")
			holds(t, "without a rule", r.stdout(), "needs permission")
			p.model(map[string][]step{"main": {page, echo}})
			holds(t, "with a rule", p.good("-p", "go", "--allowed-tools", "WebFetch(domain:127.0.0.1)").stdout(), "127.0.0.1", "private")
			if m.Count() != 0 {
				t.Error("a server of this machine was asked")
			}
		},
	}
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/test/modeltest"
)

// TestTeammates plays teams on the built program.
func TestTeammates(t *testing.T) {
	bin := build(t)
	for name, test := range teammates() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// cast is a model that answers by who asks: main, or a teammate by its own name.
type cast struct {
	parts map[string]func(c *cast, r *modeltest.Request, last string) modeltest.Answer

	mu   sync.Mutex
	done map[string]bool // guarded by mu
}

// once reports whether this is the first time for something.
func (c *cast) once(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	again := c.done[what]
	c.done[what] = true
	return !again
}

func (c *cast) handle(_ context.Context, r *modeltest.Request) modeltest.Answer {
	who := "main"
	if m := regexp.MustCompile(`You are (\w+)@`).FindStringSubmatch(string(r.Body)); m != nil && r.AgentID() != "" {
		who = m[1]
	}
	part := c.parts[who]
	if part == nil {
		return modeltest.Error(400, "invalid_request_error", "nobody plays "+who)
	}
	return part(c, r, r.LastText())
}

func (p *place) cast(parts map[string]func(*cast, *modeltest.Request, string) modeltest.Answer) *modeltest.Server {
	p.t.Helper()
	c := &cast{done: map[string]bool{}, parts: parts}
	s, err := modeltest.New(c.handle)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(s.Close)
	p.env = append(p.env, "ANTHROPIC_BASE_URL="+s.URL, "ANTHROPIC_API_KEY=sk-test")
	return s
}

// mate is the input of a call that starts a teammate of crew.
func mate(name, prompt string, more ...any) map[string]any {
	return asks("general-purpose", prompt, append([]any{"name", name, "team_name", "crew"}, more...)...)
}

func send(to, text string) map[string]any { return map[string]any{"to": to, "message": text} }

// one answers by the calls of a step.
func one(pairs ...any) modeltest.Answer { return several(pairs...)(nil) }

// read is how often a text stands in what somebody was given to read in all, by the
// longest of the requests of an agent.
func read(s *modeltest.Server, id, text string) (n int) {
	for _, r := range s.Requests() {
		if r.AgentID() == id {
			n = max(n, strings.Count(string(r.Body), text))
		}
	}
	return n
}

func teammates() cases {
	has := strings.Contains
	return cases{
		"team": func(t *testing.T, p *place) {
			s := p.cast(map[string]func(*cast, *modeltest.Request, string) modeltest.Answer{
				"main": func(c *cast, r *modeltest.Request, last string) modeltest.Answer {
					body := string(r.Body)
					switch {
					case has(body, "ada hands back") && has(body, "bob hands back"):
						return modeltest.Text("all is done")
					case has(last, "go now"):
						return one("Agent", mate("ada", "greet bob"), "Agent", mate("bob", "wait for ada"))
					case has(body, "bob has swept") && c.once("stop"):
						return one("TaskStop", map[string]any{"task_id": "ada"}, "TaskStop", map[string]any{"task_id": "bob@crew"})
					case has(body, "ada is content") && c.once("todo"):
						return one("TaskCreate", map[string]any{"subject": "sweep the floor", "description": "all of it"})
					case has(last, "sweep the floor") && c.once("assign"):
						return one("TaskUpdate", map[string]any{"taskId": "1", "owner": "bob"})
					}
					return modeltest.Text("noted")
				},
				"ada": func(c *cast, _ *modeltest.Request, last string) modeltest.Answer {
					switch {
					case has(last, `kind=\"shutdown_request\"`) || has(last, `kind="shutdown_request"`):
						return modeltest.Text("ada hands back")
					case has(last, "greet bob"):
						return one("SendMessage", send("bob", "hello bob, from ada"))
					case has(last, "hello ada"):
						return modeltest.Text("ada is content")
					}
					return modeltest.Text("ada has greeted")
				},
				"bob": func(c *cast, _ *modeltest.Request, last string) modeltest.Answer {
					switch {
					case has(last, `kind="shutdown_request"`):
						return modeltest.Text("bob hands back")
					case has(last, "hello bob"):
						return one("SendMessage", send("ada@crew", "hello ada, from bob"))
					case has(last, `kind="task_assignment"`):
						return modeltest.Text("bob has swept: " + fmt.Sprint(has(last, "sweep the floor")))
					}
					return modeltest.Text("bob waits")
				},
			})
			r := p.good("-p", "go now", anything)
			if r.stdout() != "all is done" {
				t.Errorf("printed %q", r.stdout())
			}
			ids := map[string]string{}
			for _, o := range p.tasks("-a") {
				team, _ := o["team"].(map[string]any)
				ids[fmt.Sprint(team["agent_name"])] = fmt.Sprint(o["task_id"])
				if o["task_type"] != "in_process_teammate" || o["status"] != "completed" || team["agent_id"] != o["name"] || team["color"] == nil || o["task_id"].(string)[0] != 't' {
					t.Errorf("task %v", o)
				}
			}
			for _, text := range []string{"hello bob, from ada", "is yours now: sweep the floor"} {
				if n := read(s, ids["bob"], text); n != 1 {
					t.Errorf("bob read %q %d times", text, n)
				}
			}
			if n := read(s, ids["ada"], "hello ada, from bob"); n != 1 {
				t.Errorf("ada read the answer %d times", n)
			}
			for text, want := range map[string]int{"ada is content": 1, "bob has swept: true": 1, `kind=\"teammate_end\"`: 2, "ada hands back": 1} {
				if n := read(s, "", text); n != want {
					t.Errorf("the leader read %q %d times, want %d", text, n, want)
				}
			}
			if n := read(s, "", "/task-notification"); n != 0 {
				t.Errorf("%d notifications of teammates", n)
			}
			holds(t, "ps", p.good("ps", "-a").stdout(), "ada@crew", "bob@crew", "teammate ")
			holds(t, "the messages", p.good("logs", "--messages", ids["ada"]).stdout(), "hello ada, from bob", "[SendMessage", "ada hands back")
			if got := p.good("logs", "--messages", "--tail=1", "ada@crew").stdout(); has(got, "hello") || !has(got, "ada hands back") {
				t.Errorf("the last message: %s", got)
			}
			p.fails(2, []string{"logs", "--messages", "-f", ids["ada"]}, "--messages is mutually exclusive with")
		},
		"plan": func(t *testing.T, p *place) {
			write := map[string]any{"file_path": filepath.Join(p.dir, "out.txt"), "content": "x"}
			answer := func(last string, approve bool, feedback string) modeltest.Answer {
				id := regexp.MustCompile(`request (plan-\w+)`).FindStringSubmatch(last)
				if id == nil {
					return modeltest.Text("no request in " + last)
				}
				return one("SendMessage", map[string]any{"to": "ada", "plan_approval": map[string]any{"request_id": id[1], "approve": approve, "feedback": feedback}})
			}
			early := false
			s := p.cast(map[string]func(*cast, *modeltest.Request, string) modeltest.Answer{
				"main": func(c *cast, r *modeltest.Request, last string) modeltest.Answer {
					switch {
					case has(last, "go now"):
						return one("Agent", mate("ada", "write the file", "permission_mode", "plan"))
					case has(last, "plan_approval_request"):
						early = early || p.there("out.txt")
						if c.once("plan") {
							return answer(last, false, "say how it is tested")
						}
						return answer(last, true, "")
					case has(last, "ada has written"):
						return one("TaskStop", map[string]any{"task_id": "ada"})
					}
					return modeltest.Text("done so far")
				},
				"ada": func(c *cast, _ *modeltest.Request, last string) modeltest.Answer {
					switch {
					case has(last, `kind="plan_approved"`), has(last, "write the file") && c.once("try"):
						return one("Write", write)
					case has(last, "plan mode: only reading"):
						return one("submit_plan", map[string]any{"plan": "I would write out.txt"})
					case has(last, `kind="plan_rejected"`):
						return one("ExitPlanMode", map[string]any{"plan": "I would write out.txt, and test it: " + fmt.Sprint(has(last, "say how it is tested"))})
					case has(last, `kind="shutdown_request"`):
						return modeltest.Text("bye")
					}
					return modeltest.Text("ada has written")
				},
			})
			p.denied([]string{"-p", "go now", anything}, "Write call denied: plan mode: only reading is allowed (it edits files; ExitPlanMode or another permission mode ends it)")
			if !p.there("out.txt") || early {
				t.Errorf("written: %v, before the plan was approved: %v", p.there("out.txt"), early)
			}
			if read(s, "", "and test it: true") == 0 {
				t.Error("the second plan did not reach the leader")
			}
		},
		"kill": func(t *testing.T, p *place) {
			hold, asked := make(chan struct{}), make(chan struct{}, 10)
			defer close(hold)
			s := p.cast(map[string]func(*cast, *modeltest.Request, string) modeltest.Answer{
				"main": func(c *cast, r *modeltest.Request, last string) modeltest.Answer {
					switch {
					case has(last, "go now"):
						return one("Agent", mate("ada", "begin"))
					case c.once("write"):
						<-asked
						return one("SendMessage", send("ada", "mind the gap"))
					case has(last, "go on now"):
						return one("SendMessage", send("ada", "and the door"))
					case has(last, "ada knows"):
						return one("TaskStop", map[string]any{"task_id": "ada"})
					}
					return modeltest.Text("noted")
				},
				"ada": func(c *cast, r *modeltest.Request, last string) modeltest.Answer {
					switch {
					case has(last, `kind="shutdown_request"`):
						return modeltest.Text("bye")
					case c.once("begin"):
						asked <- struct{}{}
						a := modeltest.Text("never said")
						a.Wait = hold
						return a
					}
					return modeltest.Text(fmt.Sprintf("ada knows of the gap: %v, of the door: %v", has(last, "mind the gap"), has(last, "and the door")))
				},
			})
			r := p.start("-p", "go now", anything, "--output-format=stream-json")
			r.until("reads it before its next step")
			if err := r.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			var first object
			if err := json.Unmarshal([]byte(r.wait().lines[0]), &first); err != nil {
				t.Fatal(err)
			}
			session := fmt.Sprint(first["session_id"])
			p.good("-p", "go on now", anything, "--resume", session)
			mates := slices.DeleteFunc(p.tasks("-a"), func(o object) bool { return o["task_type"] != "in_process_teammate" })
			if len(mates) != 1 || mates[0]["status"] != "completed" {
				t.Fatalf("teammates %v", mates)
			}
			id := fmt.Sprint(mates[0]["task_id"])
			for _, text := range []string{"mind the gap", "and the door"} {
				if n := read(s, id, text); n != 1 {
					t.Errorf("ada read %q %d times", text, n)
				}
			}
			for text, want := range map[string]int{"ada knows of the gap: true, of the door: true": 1, `kind=\"teammate_end\"`: 2, "host_lost": 1, "has not read: 1": 1} {
				if n := read(s, "", text); n != want {
					t.Errorf("the leader read %q %d times, want %d", text, n, want)
				}
			}
		},
		"person": func(t *testing.T, p *place) {
			write := map[string]any{"file_path": filepath.Join(p.dir, "out.txt"), "content": "x"}
			if err := os.MkdirAll(filepath.Join(p.work, "config", "drover"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(p.work, "config", "drover", "settings.json"), []byte(`{"permissions":{"defaultMode":"acceptEdits"}}`), 0o600); err != nil {
				t.Fatal(err)
			}
			s := p.cast(map[string]func(*cast, *modeltest.Request, string) modeltest.Answer{
				"ada": func(c *cast, _ *modeltest.Request, last string) modeltest.Answer {
					switch {
					case has(last, "carry it out"):
						return one("Write", write)
					case has(last, "write the file"):
						return one("submit_plan", map[string]any{"plan": "I would write out.txt"})
					case has(last, "one more thing"):
						return modeltest.Text("that too")
					}
					return modeltest.Text("ada has written")
				},
			})
			p.fails(2, []string{"agent", "run", "general-purpose", "x", "--team=crew"}, "needs -d and --name")
			id := p.good("agent", "run", "general-purpose", "write the file", "-d", "--name=ada", "--team=crew", "--permission-mode=plan").stdout()
			q := p.asked("submit_plan")
			if p.there("out.txt") {
				t.Error("the file was written in plan mode")
			}
			p.good("approvals", "allow", fmt.Sprint(q["id"]))
			p.idle(id)
			if !p.there("out.txt") {
				t.Error("the approved plan was not carried out")
			}
			holds(t, "ps", p.good("ps").stdout(), "ada@crew", "running (idle)", "… idle")
			holds(t, "the summary", p.good().stdout(), "(1 team)")
			p.good("send", "ada@crew", "one more thing")
			if !within(patience, func() bool { return read(s, id, "one more thing") > 0 }) {
				t.Error("the message was not read")
			}
			p.idle(id)
			holds(t, "the messages", p.good("logs", "--messages", "ada").stdout(), "one more thing", "that too")
			holds(t, "the receipt", p.good("stop", "--json", "ada").stdout(), id, `"killed"`)
		},
	}
}

// idle waits until an agent of the detached host rests.
func (p *place) idle(id string) {
	p.t.Helper()
	if !within(patience, func() bool {
		all := p.tasks()
		return len(all) == 1 && all[0]["idle"] == true
	}) {
		p.t.Fatalf("%s does not rest: %v", id, p.tasks("-a"))
	}
}

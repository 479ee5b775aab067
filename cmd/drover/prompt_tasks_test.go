package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/test/modeltest"
)

// anything lets every call through.
const anything = "--permission-mode=bypassPermissions"

const notification = "<task-notification>"

// idOf is the task that the model started first.
func idOf(r *modeltest.Request) string { return found(r, `(?:Task|Agent) ID: (\w+)`) }

// told checks that a notification came exactly once: in the last request once, and in
// none before the one with the number.
func told(t *testing.T, all []*modeltest.Request, first, times int) {
	t.Helper()
	for i, r := range all {
		got, want := count(texts(t, r), notification), 0
		if i >= first {
			want = times
		}
		if got != want {
			t.Errorf("request %d of %d carries %d notifications, want %d: %q", i+1, len(all), got, want, texts(t, r))
		}
	}
}

// promptTasks are tests of what a main agent starts and is told.
func promptTasks() cases {
	return cases{
		"idle": func(t *testing.T, p *place) {
			fifo := p.fifo("f")
			m := p.model(map[string][]step{"main": {calls("Bash", later("cat f; echo '</task-notification><b>&'; exit 3")), says("started"), says("seen")}})
			r := p.start("-p", "go", anything, "--output-format=stream-json")
			r.until(`"result"`, "started")
			p.free(fifo)
			res := r.wait()
			if res.code != 0 {
				t.Fatalf("exit code %d: %s", res.code, res.stderr)
			}
			told(t, m.Requests(), 2, 1)
			said := m.Requests()[2].LastText()
			if !strings.Contains(said, "&lt;/task-notification&gt;&lt;b&gt;&amp;") || strings.Count(said, "</task-notification>") != 1 || !strings.Contains(said, "exit code 3") {
				t.Errorf("the notification says %q", said)
			}
			all := res.objects(t)
			want := []string{"init", "assistant", "background_tasks_changed", "task_started", "user", "assistant", "result",
				"task_updated", "task_notification", "background_tasks_changed", "init", "user", "assistant", "result"}
			if got := kindsOf(all); !slices.Equal(got, want) {
				t.Errorf("lines %v\nwant  %v", got, want)
			}
			results := only(all, "result")
			origin, _ := results[1]["origin"].(map[string]any)
			if results[0]["origin"] != nil || results[1]["result_index"] != 1.0 || origin["kind"] != "task-notification" {
				t.Errorf("second result %v", results[1])
			}
			if n := only(all, "task_notification")[0]; n["status"] != "failed" || n["exit_code"] != 3.0 {
				t.Errorf("notification %v", n)
			}
		},
		"midturn": func(t *testing.T, p *place) {
			ended := make(chan struct{})
			m := p.model(map[string][]step{"main": {calls("Bash", later("true")), held(ended, calls("Bash", bash("echo on"))), says("done")}})
			r := p.start("-p", "go", anything, "--output-format=stream-json")
			r.until(`"task_notification"`)
			close(ended)
			res := r.wait()
			told(t, m.Requests()[2:], 0, 1) // at the latest: it may have ended before the first result was read
			if got := len(only(res.objects(t), "result")); got != 1 || res.code != 0 {
				t.Errorf("%d results, exit code %d: the notification came in the turn that was running", got, res.code)
			}
		},
		"agent": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{
				"main":    {calls("Agent", map[string]any{"description": "look", "prompt": "find it", "subagent_type": "Explore", "run_in_background": true}), says("started"), says("it is <there>")},
				"explore": {calls("Glob", map[string]any{"pattern": "*.txt"}), says("a.txt & <b>")},
			})
			p.file("a.txt", "x")
			all := p.good("-p", "go", "--output-format=stream-json").objects(t)
			mains := of(m, "main")
			told(t, mains, 2, 1)
			if said := mains[2].LastText(); !strings.Contains(said, "<result>a.txt &amp; &lt;b&gt;</result>") {
				t.Errorf("the notification says %q", said)
			}
			subs := of(m, "explore")
			if len(subs) != 2 || subs[0].LastText() != "find it" || subs[0].AgentID() == "" {
				t.Errorf("%d requests of the agent, the first %q", len(subs), subs[0].LastText())
			}
			n := only(all, "task_notification")
			if len(n) != 1 || n[0]["status"] != "completed" || n[0]["summary"] != "a.txt & <b>" || n[0]["summary_is_report"] != true {
				t.Errorf("notifications %v", n)
			}
			if got := only(all, "task_progress"); len(got) != 1 || got[0]["last_tool_name"] != "Glob" {
				t.Errorf("progress %v", got)
			}
			own := slices.DeleteFunc(only(all, "assistant", "user"), func(o object) bool { return o["agent_id"] == nil })
			if len(own) != 3 || own[0]["parent_tool_use_id"] == nil || own[0]["subagent_type"] != "explore" {
				t.Errorf("lines of the agent: %v", own)
			}
		},
		"foreground": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{
				"main": {calls("Agent", map[string]any{"description": "think", "prompt": "plan it", "subagent_type": "plan"}), says("done")},
				"plan": {says("the plan")},
			})
			p.good("-p", "go")
			told(t, of(m, "main"), 0, 0)
			if said := of(m, "main")[1].LastText(); !strings.Contains(said, "the plan") {
				t.Errorf("the result says %q", said)
			}
		},
		"promoted": func(t *testing.T, p *place) {
			fifo := p.fifo("f")
			p.model(map[string][]step{"main": {calls("Bash", bash("cat f")), says("going on"), says("told")}})
			r := p.start("-p", "go", anything, "--output-format=stream-json")
			p.alive("cat f")
			id, _ := p.tasks("-a")[0]["task_id"].(string)
			p.good("promote", id)
			r.until(`"result"`, "going on")
			p.free(fifo)
			res := r.wait()
			if res.code != 0 {
				t.Fatal(res.stderr)
			}
			result, _ := only(res.objects(t), "user")[0]["tool_use_result"].(map[string]any)
			if result["backgroundTaskId"] != id || result["backgroundedByUser"] != true {
				t.Errorf("the call answered %v", result)
			}
		},
		"sidebyside": func(t *testing.T, p *place) {
			var lists = map[string][]step{"main": {nil, says("done")}}
			ask := func(n string) map[string]any {
				return map[string]any{"description": n, "prompt": "plan " + n, "subagent_type": "plan"}
			}
			lists["main"][0] = several("Agent", ask("a"), "Agent", ask("b"), "Agent", ask("c"))
			all := make(chan struct{})
			arrived := make(chan struct{}, 3)
			lists["plan"] = []step{func(r *modeltest.Request) modeltest.Answer {
				arrived <- struct{}{}
				a := modeltest.Text("report of " + r.LastText())
				a.Wait = all // nobody is answered before all have asked
				return a
			}}
			m := p.model(lists)
			r := p.start("-p", "go", "--output-format=stream-json")
			for range 3 {
				select {
				case <-arrived:
				case <-time.After(patience):
					t.Fatal("the agents do not run side by side")
				}
			}
			close(all)
			if res := r.wait(); res.code != 0 {
				t.Fatalf("exit code %d: %s", res.code, res.stderr)
			}
			said := m.Requests()[m.Count()-1].LastText()
			a, b, c := strings.Index(said, "report of plan a"), strings.Index(said, "report of plan b"), strings.Index(said, "report of plan c")
			if a < 0 || b < a || c < b {
				t.Errorf("reports are not in the order of the calls: %q", said)
			}
		},
		"nested": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{
				"main":            {calls("Agent", map[string]any{"description": "do", "prompt": "delegate it"}), says("done")},
				"general-purpose": {calls("Agent", map[string]any{"description": "think", "prompt": "plan it", "subagent_type": "plan", "run_in_background": true}), says("relayed")},
				"plan":            {says("the deep plan")},
			})
			all := p.good("-p", "go", "--output-format=stream-json").objects(t)
			subs := of(m, "general-purpose")
			if said := subs[1].LastText(); !strings.Contains(said, "the deep plan") || !strings.Contains(said, "foreground") {
				t.Errorf("the agent was told %q", said)
			}
			var depths []any
			for _, o := range only(all, "task_started") {
				depths = append(depths, o["spawn_depth"], o["is_backgrounded"])
			}
			if !slices.Equal(depths, []any{1.0, false, 2.0, false}) {
				t.Errorf("started at %v", depths)
			}
			told(t, m.Requests(), 0, 0)
		},
		"agentfails": func(t *testing.T, p *place) {
			p.model(map[string][]step{
				"main": {calls("Agent", map[string]any{"description": "think", "prompt": "plan it", "subagent_type": "plan"}), func(r *modeltest.Request) modeltest.Answer {
					return modeltest.Text(r.LastText())
				}},
			}) // the agent gets an error
			o := p.good("-p", "go", "--output-format=json").objects(t)[0]
			if text, _ := o["result"].(string); !strings.Contains(text, "did not complete") || !strings.Contains(text, "no step 1 for plan") {
				t.Errorf("the main agent was told %q", text)
			}
			if stats, _ := o["subagent_stats"].(map[string]any); stats["failed"] != 1.0 || stats["spawned"] != 1.0 {
				t.Errorf("stats %v", o["subagent_stats"])
			}
		},
		"stop": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {calls("Bash", later("sleep 600")), func(r *modeltest.Request) modeltest.Answer {
				return modeltest.Call("TaskStop", map[string]any{"task_id": idOf(r)})
			}, says("stopped")}})
			all := p.good("-p", "go", anything, "--output-format=stream-json").objects(t)
			told(t, m.Requests(), 0, 0)
			if got := only(all, "result"); len(got) != 1 {
				t.Errorf("%d results: a model that stops a task is not told of it", len(got))
			}
			if n := only(all, "task_notification"); len(n) != 1 || n[0]["status"] != "stopped" {
				t.Errorf("notifications %v", n)
			}
			if said := m.Requests()[2].LastText(); !strings.Contains(said, "Successfully stopped") {
				t.Errorf("told %q", said)
			}
		},
		"taskoutput": func(t *testing.T, p *place) {
			fifo := p.fifo("f")
			m := p.model(map[string][]step{"main": {calls("Bash", later("echo begun; cat f")), func(r *modeltest.Request) modeltest.Answer {
				return modeltest.Call("TaskOutput", map[string]any{"task_id": idOf(r), "timeout": 50})
			}, func(r *modeltest.Request) modeltest.Answer {
				go p.free(fifo)
				return modeltest.Call("TaskOutput", map[string]any{"task_id": idOf(r), "block": true})
			}, says("done"), says("told")}})
			p.good("-p", "go", anything)
			first, second := m.Requests()[2].LastText(), m.Requests()[3].LastText()
			if !(strings.Contains(first, "Status: Running") || strings.Contains(first, "Task is pending")) || !strings.Contains(first, "did not end within 50 ms") {
				t.Errorf("at the timeout: %q", first)
			}
			if !strings.Contains(second, "Status: completed") || !strings.Contains(second, "begun\ngo") {
				t.Errorf("at the end: %q", second)
			}
			if got := count(texts(t, m.Requests()[m.Count()-1]), notification); got != 1 {
				t.Errorf("%d notifications", got)
			}
		},
		"nobackground": func(t *testing.T, p *place) {
			p.env = append(p.env, "DROVER_DISABLE_BACKGROUND=1")
			m := p.model(map[string][]step{
				"main": {calls("Bash", later("echo from the command")), calls("Agent", map[string]any{"description": "d", "prompt": "p", "subagent_type": "plan", "run_in_background": true}), says("done")},
				"plan": {says("from the agent")},
			})
			p.good("-p", "go", anything)
			all := of(m, "main")
			told(t, all, 0, 0)
			for i, want := range []string{"from the command", "from the agent"} {
				if said := all[i+1].LastText(); !strings.Contains(said, want) || strings.Contains(said, "You will be told") {
					t.Errorf("told %q, want %q", said, want)
				}
			}
		},
		"cwd": func(t *testing.T, p *place) {
			if err := os.MkdirAll(filepath.Join(p.dir, "a", "b"), 0o700); err != nil {
				t.Fatal(err)
			}
			m := p.model(map[string][]step{"main": {calls("Bash", bash("cd a")), calls("Bash", bash("cd b && pwd")), calls("Bash", bash("pwd")), says("done")}})
			p.good("-p", "go", anything)
			if got := m.Requests()[3].LastText(); strings.TrimSpace(got) != filepath.Join(p.dir, "a", "b") {
				t.Errorf("the third command ran in %q", got)
			}
		},
		"movedtobackground": func(t *testing.T, p *place) {
			fifo := p.fifo("f")
			m := p.model(map[string][]step{"main": {calls("Bash", map[string]any{"command": "echo early; cat f", "timeout": 100}), says("waiting"), says("done")}})
			r := p.start("-p", "go", anything, "--output-format=stream-json")
			r.until(`"result"`, "waiting")
			p.free(fifo)
			all := r.wait().objects(t)
			if said := m.Requests()[1].LastText(); !strings.Contains(said, "moved to the background") || !strings.Contains(said, "early") {
				t.Errorf("told %q", said)
			}
			told(t, m.Requests(), 2, 1)
			want := []string{"init", "assistant", "background_tasks_changed", "task_started", "user", "assistant", "result",
				"task_updated", "task_notification", "background_tasks_changed", "init", "user", "assistant", "result"}
			if got := kindsOf(all); !slices.Equal(got, want) {
				t.Errorf("lines %v\nwant  %v", got, want)
			}
		},
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/modeltest"
)

// transcript is that of the main agent of a session.
func (p *place) transcript(session string) []byte {
	p.t.Helper()
	found, err := filepath.Glob(filepath.Join(p.work, "state", "projects", "*", session, "transcript.jsonl"))
	if err != nil || len(found) != 1 {
		p.t.Fatalf("transcripts of %s: %v, %v", session, found, err)
	}
	raw, err := os.ReadFile(found[0])
	if err != nil {
		p.t.Fatal(err)
	}
	return raw
}

// spoken is what a model reads of a conversation, without reminders.
func spoken(t *testing.T, r *modeltest.Request) string {
	t.Helper()
	all := slices.DeleteFunc(texts(t, r), func(text string) bool { return strings.HasPrefix(text, "<system-reminder>") })
	return strings.Join(all, " ")
}

// boundaries are the lines where a conversation was summed up.
func (p *place) boundaries(session string) (all []object) {
	p.t.Helper()
	for line := range bytes.Lines(p.transcript(session)) {
		var o object
		if err := json.Unmarshal(line, &o); err != nil {
			p.t.Fatal(err)
		}
		if o["subtype"] == "compact_boundary" {
			all = append(all, o)
		}
	}
	return all
}

// systemOf is the system prompt of a request.
func systemOf(t *testing.T, r *modeltest.Request) string {
	t.Helper()
	p, err := r.Params()
	if err != nil {
		t.Fatal(err)
	}
	return string(p.System)
}

// agentContext are tests of what an agent knows: its notes, its skills, and what
// is left of a conversation that was too long.
func agentContext() cases {
	small := object{"models": object{"windows": object{sonnet: 10_000}}}
	tooLong := func(*modeltest.Request) modeltest.Answer {
		return modeltest.Error(400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum")
	}
	session := func(t *testing.T, r result) string {
		t.Helper()
		all := r.objects(t)
		id, _ := all[len(all)-1]["session_id"].(string)
		return id
	}
	return cases{
		"compaction": func(t *testing.T, p *place) {
			fifo := p.fifo("f")
			m := p.model(map[string][]step{"main": {
				several("TaskCreate", map[string]any{"subject": "mend the parser", "description": "it drops the last line"}, "TaskCreate", map[string]any{"subject": "done before", "description": "x"},
					"Bash", map[string]any{"command": "cat f", "description": "wait for the fifo", "run_in_background": true}),
				calls("TaskUpdate", map[string]any{"taskId": "2", "status": "completed"}),
				using(9_000, 10, calls("Bash", bash("echo a line of old"))),
				using(9_000, 10, says("WE MEND THE PARSER")),
				using(500, 10, says("after the summary")),
				using(600, 10, says("told")),
				using(700, 10, says("resumed")),
			}})
			r := p.start("-p", "the first prompt", "--model=sonnet", anything, "--output-format=stream-json", set(t, small))
			r.until(`"result"`, "after the summary")
			p.free(fifo)
			res := r.wait()
			if res.code != 0 || m.Count() != 6 {
				t.Fatalf("exit code %d, %d requests: %s", res.code, m.Count(), res.stderr)
			}
			id := session(t, res)
			said := strings.Join(texts(t, m.Requests()[4]), "\n")
			holds(t, "the request behind the summary", said, "WE MEND THE PARSER", "## Running Background Tasks", "wait for the fifo (local_bash)", "TaskOutput reads", "## To-dos", "mend the parser (pending)")
			for _, gone := range []string{"a line of old", "the first prompt", "done before"} {
				if strings.Contains(said, gone) {
					t.Errorf("the request behind the summary still says %q", gone)
				}
			}
			if n := count(texts(t, m.Requests()[0]), "Background tasks"); n != 0 {
				t.Error("a reminder of tasks, and none runs")
			}
			if n := count(texts(t, m.Requests()[1]), "Background tasks:"); n != 0 {
				t.Error("a reminder of a task whose start was told in the result of the call")
			}
			told(t, m.Requests(), 5, 1)
			if all := p.boundaries(id); len(all) != 1 || all[0]["trigger"] != "auto" || all[0]["tokens_before"] == nil {
				t.Errorf("boundaries %v", all)
			}
			p.good("-p", "a later prompt", "--model=sonnet", "--resume", id, set(t, small))
			said = strings.Join(texts(t, m.Requests()[6]), "\n")
			holds(t, "the request of a resumed session", said, "WE MEND THE PARSER", "after the summary", "told", "a later prompt")
			if strings.Contains(said, "a line of old") || strings.Contains(said, "the first prompt") {
				t.Errorf("a resumed session starts before its summary: %s", said)
			}
		},
		"nocompaction": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {using(9_900, 10, calls("Bash", bash("echo on"))), says("done")}})
			if got := p.good("-p", "go", "--model=sonnet", anything, set(t, object{"models": small["models"], "context": object{"autoCompact": "off"}})).stdout(); got != "done" || m.Count() != 2 {
				t.Errorf("%d requests, printed %q", m.Count(), got)
			}
		},
		"overflow": func(t *testing.T, p *place) {
			long := says(strings.Repeat("much was said. ", 400))
			m := p.model(map[string][]step{"main": {long, tooLong, says("IN SHORT"), says("done")}})
			id := session(t, p.good("-p", "first", "--output-format=json"))
			if got := p.good("-p", "second", "--resume", id).stdout(); got != "done" {
				t.Errorf("printed %q", got)
			}
			said := strings.Join(texts(t, m.Requests()[3]), "\n")
			if holds(t, "the request behind the summary", said, "IN SHORT", "second"); strings.Contains(said, "much was said") {
				t.Errorf("nothing was left out: %.300s", said)
			}
			if all := p.boundaries(id); len(all) != 1 || all[0]["trigger"] != "overflow" {
				t.Errorf("boundaries %v", all)
			}
		},
		"overflowtwice": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("first answer"), tooLong, says("IN SHORT"), tooLong, says("never")}})
			id := session(t, p.good("-p", "first", "--output-format=json"))
			p.fails(1, []string{"-p", "second", "--resume", id}, "does not fit the window", "prompt is too long")
			if m.Count() != 4 {
				t.Errorf("%d requests", m.Count())
			}
		},
		"notes": func(t *testing.T, p *place) {
			p.file("AGENTS.md", "Tabs, never blanks.\n")
			p.file(".claude/agents/bare.md", "---\nname: bare\ndescription: Has tools.\ntools: Read\n---\nYou are bare.\n")
			m := p.model(map[string][]step{"main": {calls("Agent", asks("bare", "it")), says("done")}, "bare": {says("ok")}})
			p.good("-p", "go")
			for _, r := range m.Requests() {
				if n := strings.Count(systemOf(t, r), "Tabs, never blanks."); n != 1 {
					t.Errorf("%s reads the notes %d times", r.Agent(), n)
				}
			}
		},
		"skills": func(t *testing.T, p *place) {
			p.file(".claude/skills/commit/SKILL.md", "---\nname: commit\ndescription: Writes a commit message.\nallowed-tools: Bash(touch it)\n---\nSubject first. $ARGUMENTS\n")
			p.file(".claude/agents/writer.md", "---\nname: writer\ndescription: Writes.\ntools: Read\nskills: commit\n---\nWrite.\n")
			for i, args := range [][]string{nil, {"--trust"}} {
				m := p.model(map[string][]step{
					"main": {calls("Bash", bash("touch it")), calls("Skill", map[string]any{"skill": "commit", "args": "in verse"}), calls("Bash", bash("touch it")),
						calls("Agent", asks("writer", "write")), says("done")},
					"writer": {says("written")},
				})
				if r := p.run(append([]string{"-p", "go"}, args...)...); r.code != 0 {
					t.Fatalf("exit code %d: %s", r.code, r.stderr)
				}
				all := of(m, "main")
				if n := count(texts(t, all[len(all)-1]), "commit: Writes a commit message."); n != 1 {
					t.Errorf("the model is told %d times of the skill", n)
				}
				holds(t, "before the skill", all[1].LastText(), "needs permission")
				holds(t, "the skill", all[2].LastText(), "Subject first. in verse", filepath.Join(p.dir, ".claude/skills/commit"))
				if trusted := i == 1; p.there("it") != trusted {
					t.Errorf("%q: the skill's rule holds: %v", args, !trusted)
				}
				if said := texts(t, of(m, "writer")[0]); count(said, "Subject first.") != 1 || said[len(said)-1] != "write" {
					t.Errorf("the agent begins with %q", said)
				}
			}
		},
		"fork": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("one"), says("two"), says("three"), says("four")}})
			id := session(t, p.good("-p", "a", "--output-format=json"))
			before := p.transcript(id)
			fork := session(t, p.good("-p", "b", "--resume", id, "--fork-session", "--output-format=json"))
			if fork == id || !bytes.Equal(before, p.transcript(id)) {
				t.Errorf("the fork of %s is %s; the old transcript stays: %v", id, fork, bytes.Equal(before, p.transcript(id)))
			}
			if said := texts(t, m.Requests()[1]); count(said, "one") != 1 || m.Requests()[1].SessionID() != fork {
				t.Errorf("the fork asks %q", said)
			}
			if got := session(t, p.good("-p", "c", "--continue", "--output-format=json")); got != fork {
				t.Errorf("--continue takes %s, want the newest, %s", got, fork)
			}
			if said := texts(t, m.Requests()[2]); count(said, "one") != 1 || count(said, "two") != 1 {
				t.Errorf("it asks %q", said)
			}
			if got := session(t, p.good("-p", "d", "--resume", id, "--output-format=json")); got != id {
				t.Errorf("session %s", got)
			}
			if said := texts(t, m.Requests()[3]); count(said, "one") != 1 || count(said, "two") != 0 {
				t.Errorf("the old session knows of its fork: %q", said)
			}
		},
		"fork before a prompt": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("one"), says("two"), says("three"), says("four")}})
			id := session(t, p.good("-p", "say a", "--output-format=json"))
			p.good("-p", "say b\nin two lines", "--resume", id)
			before := p.transcript(id)
			if got := p.good("fork", "--list", id).stdout(); got != "   1  say a\n   2  say b in two lines" {
				t.Errorf("prompts %q", got)
			}
			fork := p.good("fork", "--at", "2", id).stdout()
			p.good("-p", "say c", "--resume", fork)
			p.good("-p", "say d", "--resume", id, "--fork-session", "--at", "1")
			if !bytes.Equal(before, p.transcript(id)) {
				t.Error("the old transcript was changed")
			}
			for n, want := range map[int]string{2: "say a one say c", 3: "say d"} {
				if said := spoken(t, m.Requests()[n]); said != want {
					t.Errorf("request %d reads %q, want %q", n, said, want)
				}
			}
			p.fails(3, []string{"fork", "--at", "3", id}, "it has 2 prompts", "drover fork --list")
			p.fails(2, []string{"-p", "x", "--resume", id, "--at", "1"}, "--fork-session")
		},
		"torn": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {calls("Bash", bash("echo from the command")), says("one"), says("two")}})
			id := session(t, p.good("-p", "a", anything, "--output-format=json"))
			found, err := filepath.Glob(filepath.Join(p.work, "state", "projects", "*", id, "transcript.jsonl"))
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			whole := p.transcript(id)
			if err := os.WriteFile(found[0], whole[:len(whole)-20], 0o600); err != nil { // as a crash leaves it
				t.Fatal(err)
			}
			if got := p.run("-p", "b", "--resume", id); got.code != 0 || got.stdout() != "two" {
				t.Fatalf("exit code %d, %q, %q", got.code, got.stdout(), got.stderr)
			}
			if said := texts(t, m.Requests()[2]); count(said, "from the command") < 1 || count(said, "one") != 0 || said[len(said)-1] != "b" {
				t.Errorf("it asks %q", said)
			}
		},
		"resumedagent": func(t *testing.T, p *place) {
			var child string
			m := p.model(map[string][]step{
				"main": {calls("Agent", asks("plan", "plan it")), says("one"), func(r *modeltest.Request) modeltest.Answer {
					child = found(r, `Agent ID: (\w+)`)
					return modeltest.Call("Agent", asks("", "and the tests?", "resume", child))
				}, says("two")},
				"plan": {says("the first plan"), says("the second plan")},
			})
			id := session(t, p.good("-p", "a", "--output-format=json"))
			p.good("-p", "b", "--resume", id)
			plans := of(m, "plan")
			if len(plans) != 2 || plans[0].AgentID() != child || plans[1].AgentID() != child {
				t.Fatalf("%d requests of agent %s", len(plans), child)
			}
			if said := texts(t, plans[1]); !slices.Equal(said, []string{"plan it", "the first plan", "and the tests?"}) {
				t.Errorf("the agent goes on with %q", said)
			}
			paths, err := filepath.Glob(filepath.Join(p.work, "state", "projects", "*", id, "subagents", "agent-"+child+".jsonl"))
			if err != nil || len(paths) != 1 {
				t.Fatalf("transcripts %v, %v", paths, err)
			}
			raw, err := os.ReadFile(paths[0])
			if err != nil || bytes.Count(raw, []byte("the first plan")) != 1 || bytes.Count(raw, []byte("the second plan")) != 1 {
				t.Errorf("transcript %s, %v", raw, err)
			}
			if all := p.tasks("-a"); len(all) != 1 || all[0]["task_id"] != child || all[0]["agent_type"] != "plan" {
				t.Errorf("tasks %v", all)
			}
		},
		"forkbusy": func(t *testing.T, p *place) {
			hold := make(chan struct{})
			m := p.model(map[string][]step{"main": {says("one"), held(hold, says("two")), says("aside")}})
			id := session(t, p.good("-p", "a", "--output-format=json"))
			busy := p.start("-p", "b", "--resume", id, "--output-format=stream-json")
			busy.until(`"init"`)
			if !within(patience, func() bool { return m.Count() == 2 }) {
				t.Fatal("the session does not go on")
			}
			if got := p.good("-p", "c", "--resume", id, "--fork-session").stdout(); got != "aside" {
				t.Errorf("printed %q", got)
			}
			close(hold)
			if r := busy.wait(); r.code != 0 {
				t.Error(r.stderr)
			}
		},
	}
}

// agentTodos are tests of lists: of what is to be done, and of what is done.
func agentTodos() cases {
	create := func(subject string) map[string]any {
		return map[string]any{"subject": subject, "description": "all of it"}
	}
	update := func(id string, more ...string) map[string]any {
		in := map[string]any{"taskId": id}
		for i := 0; i < len(more); i += 2 {
			in[more[i]] = more[i+1]
		}
		return in
	}
	return cases{
		"todos": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {several("TaskCreate", create("read the code"), "TaskCreate", create("mend it")), calls("TaskUpdate", update("1", "status", "in_progress")),
				calls("TaskList", map[string]any{}), says("done")}})
			p.good("-p", "go")
			holds(t, "TaskList", m.Requests()[3].LastText(), "read the code", "in_progress", "mend it", "pending")
			if r := p.run("todo", "list"); r.code != 0 || !strings.Contains(r.stdout(), "read the code") || !strings.Contains(r.stdout(), "in_progress") || !strings.Contains(r.stdout(), "mend it") {
				t.Errorf("exit code %d, %q, %q", r.code, r.stdout(), r.stderr)
			}
			if tasks := p.tasks("-a"); len(tasks) != 0 { // to-dos are no tasks
				t.Errorf("tasks %v", tasks)
			}
		},
		"todosoff": func(t *testing.T, p *place) {
			p.user(`{"todos":{"enabled":false}}`)
			m := p.model(map[string][]step{"main": {says("done")}})
			p.good("-p", "go")
			params, err := m.Requests()[0].Params()
			if err != nil {
				t.Fatal(err)
			}
			for _, tool := range params.Tools {
				if slices.Contains([]string{"TaskCreate", "TaskGet", "TaskList", "TaskUpdate"}, tool.Name) {
					t.Errorf("the model has the tool %s", tool.Name)
				}
			}
		},
		"todohook": func(t *testing.T, p *place) {
			p.hooks(map[string]string{"TaskCompleted": `echo 'the tests are red' >&2; exit 2`})
			m := p.model(map[string][]step{"main": {calls("TaskCreate", create("mend it")), calls("TaskUpdate", update("1", "status", "completed")), calls("TaskGet", update("1")), says("done")}})
			p.good("-p", "go", "--trust")
			holds(t, "TaskUpdate", m.Requests()[2].LastText(), "the tests are red")
			holds(t, "TaskGet", m.Requests()[3].LastText(), "pending")
		},
		"assignment": func(t *testing.T, p *place) {
			given := make(chan struct{})
			m := p.model(map[string][]step{
				"main": {several("TaskCreate", create("dig here"), "Agent", asks("explore", "dig", "name", "digger", "run_in_background", true)),
					calls("TaskUpdate", update("1", "owner", "digger")),
					func(*modeltest.Request) modeltest.Answer {
						close(given)
						return modeltest.Text("given")
					}, says("told")},
				"explore": {held(given, calls("Glob", map[string]any{"pattern": "*"})), says("dug")},
			})
			p.good("-p", "go")
			if said := texts(t, of(m, "explore")[1]); count(said, "is yours now: dig here") != 1 {
				t.Errorf("the agent is told %q", said)
			}
		},
		"intent": func(t *testing.T, p *place) {
			fifo := p.fifo("f")
			p.model(map[string][]step{
				"main":            {calls("Agent", asks("general-purpose", "look", "run_in_background", true)), says("started"), says("told")},
				"general-purpose": {several("report_intent", map[string]any{"intent": "Looking for the failing test"}, "Bash", bash("cat f")), says("found")},
			})
			r := p.start("-p", "go", anything, "--output-format=stream-json")
			if !within(patience, func() bool {
				for _, o := range p.tasks() {
					if progress, _ := o["progress"].(map[string]any); progress["message"] == "Looking for the failing test" {
						return true
					}
				}
				return false
			}) {
				t.Errorf("tasks %v", p.tasks())
			}
			p.free(fifo)
			if res := r.wait(); res.code != 0 {
				t.Error(res.stderr)
			}
		},
		"report": func(t *testing.T, p *place) {
			long := strings.Repeat("what was found. ", 50)
			m := p.model(map[string][]step{
				"main": {calls("Agent", asks("explore", "look", "run_in_background", true)), func(r *modeltest.Request) modeltest.Answer {
					return modeltest.Call("TaskOutput", map[string]any{"task_id": idOf(r), "block": true})
				}, says("done"), says("told")},
				"explore": {calls("Glob", map[string]any{"pattern": "*.none"}), says(long)},
			})
			p.good("-p", "go")
			said := m.Requests()[m.Count()-1]
			for _, text := range texts(t, said) {
				if strings.Contains(text, `"entry_type"`) || strings.Contains(text, `"tool_use"`) || strings.Contains(text, "No files match") {
					t.Errorf("a report with what was said on the way: %.500s", text)
				}
			}
			holds(t, "TaskOutput", of(m, "main")[2].LastText(), strings.TrimSpace(long))
		},
		"falselydone": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{
				"main": {several("Agent", asks("explore", "a", "max_turns", 1), "Agent", asks("plan", "b")), says("done")},
				"explore": {func(*modeltest.Request) modeltest.Answer {
					a := modeltest.Call("Glob", map[string]any{"pattern": "*"})
					a.Blocks = slices.Insert(a.Blocks, 0, agent.TextBlock("Task completed successfully."))
					return a
				}},
				"plan": {says(""), says("")},
			})
			p.good("-p", "go")
			status := map[any]any{}
			for _, o := range p.tasks("-a") {
				status[o["agent_type"]] = o["status"]
			}
			if status["explore"] != "failed" || status["plan"] != "completed" {
				t.Errorf("statuses %v", status)
			}
			holds(t, "the results", of(m, "main")[1].LastText(), "did not complete", "limit of 1 turn", "Task completed successfully.", "gave no report")
		},
		"listtasks": func(t *testing.T, p *place) {
			fifo := p.fifo("f")
			m := p.model(map[string][]step{"main": {calls("Bash", map[string]any{"command": "cat f", "description": "wait for the fifo", "run_in_background": true}), calls("ListTasks", map[string]any{}), says("listed"), says("told")}})
			r := p.start("-p", "go", anything, "--output-format=stream-json")
			r.until(`"result"`)
			id := idOf(m.Requests()[1])
			p.free(fifo)
			if res := r.wait(); res.code != 0 {
				t.Error(res.stderr)
			}
			holds(t, "ListTasks", m.Requests()[2].LastText(), fmt.Sprintf("- [%s] local_bash (", id), "wait for the fifo")
		},
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/test/mcptest"
	"github.com/drover-dev/drover/test/modeltest"
)

// TestMCPTasks has tools of MCP servers that run as tasks, from outside: what a
// model is told, what is shown, who answers questions, and what becomes of a task
// without its host.
func TestMCPTasks(t *testing.T) {
	bin := build(t)
	for name, test := range mcpTasks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// shop is a server with tasks that is configured for the place.
func (p *place) shop(o mcptest.Options) *mcptest.Server {
	p.t.Helper()
	s := mcptest.New(o)
	srv := httptest.NewServer(s)
	p.t.Cleanup(srv.Close)
	p.t.Cleanup(s.Close)
	p.servers(object{"shop": object{"type": "http", "url": srv.URL}})
	return s
}

// servers writes the file of the user's servers.
func (p *place) servers(all object) {
	p.t.Helper()
	raw, err := json.Marshal(object{"mcpServers": all})
	if err != nil {
		p.t.Fatal(err)
	}
	dir := filepath.Join(p.work, "config", "drover")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mcp.json"), raw, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// shopping allows the tool of the shop.
const shopping = "--allowed-tools=mcp__shop__work"

// works calls the tool.
func works(w mcptest.Work) step { return calls("mcp__shop__work", w.JSON()) }

// mcpID is the ID of an MCP task that a model was told of.
func mcpID(r *modeltest.Request) string { return found(r, `Agent ID: (c[0-9a-z]{8})`) }

// freeing lets the work of a server end when the model is asked.
func freeing(s *mcptest.Server, next step) step {
	return func(r *modeltest.Request) modeltest.Answer {
		s.Free()
		return next(r)
	}
}

// taskOf is the one task of the kind.
func (p *place) taskOf() object {
	p.t.Helper()
	for _, o := range p.tasks("-a", "--all-sessions") {
		if o["task_type"] == "mcp_task" {
			return o
		}
	}
	p.t.Fatal("there is no MCP task")
	return nil
}

// asMCPServer makes the test binary a server on its stdin and stdout.
const asMCPServer = "DROVER_TEST_MCP_SERVER"

func TestServeMCP(t *testing.T) {
	if os.Getenv(asMCPServer) == "" {
		t.Skip("it is a program of other tests")
	}
	mcptest.New(mcptest.Options{}).ServeStdio(os.Stdin, os.Stdout)
}

func (p *place) shopProcess() {
	p.servers(object{"shop": object{"command": os.Args[0], "args": []string{"-test.run=^TestServeMCP$"}, "env": object{asMCPServer: "1"}}})
}

// patient waits until it is told of an end, and says what it was told. A question
// may be read in this turn or in the next, so it has steps enough.
func patient(first step) []step {
	wait := func(r *modeltest.Request) modeltest.Answer {
		if strings.Contains(r.LastText(), "<status>") {
			return echo(r)
		}
		return modeltest.Text("waiting")
	}
	return append([]step{first}, slices.Repeat([]step{wait}, 10)...)
}

// answering answers a question first wrongly and then rightly.
func answering(r *modeltest.Request) modeltest.Answer {
	send := func(text string) modeltest.Answer {
		return modeltest.Call("SendMessage", map[string]any{"to": mcpID(r), "message": text})
	}
	last := r.LastText()
	switch {
	case strings.Contains(last, "<status>"):
		return modeltest.Text(last)
	case strings.Contains(last, "answered by a JSON object"):
		return send(`{"name":"Ahab"}`)
	case strings.Contains(last, `kind="question"`):
		return send("Ahab")
	}
	return modeltest.Text("waiting")
}

// reattached kills the host of a task, and has the next one follow it to its end.
func (p *place) reattached(o mcptest.Options) {
	t := p.t
	t.Helper()
	s := p.shop(o)
	m := p.model(map[string][]step{"main": {works(mcptest.Work{Hold: true, Text: "a paper boat"}), says("waiting"), says("goes on"), echo}})
	session := p.detached(shopping)
	if !within(patience, func() bool { return len(of(m, "main")) >= 2 }) {
		t.Fatal("the model is not asked")
	}
	host := slices.DeleteFunc(marked(p.work), func(r proc) bool { return !strings.HasSuffix(r.line, "drover host") })
	if len(host) != 1 {
		t.Fatalf("hosts %v", host)
	}
	if err := syscall.Kill(host[0].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.leaves(patience, "drover host")
	if !within(patience, func() bool { return p.run("ps", "-a", "--all-sessions").stderr == "" }) {
		t.Fatal("its socket answers still") // which lives a little longer than its command line
	}
	if rec := p.taskOf(); rec["status"] != "running" {
		t.Errorf("without a host it is %v, %v", rec["status"], rec["cause"])
	}
	r := p.start("-p", "go on", shopping, "--resume", session, "--output-format=stream-json")
	r.until("goes on")
	s.Free()
	if res := r.wait(); res.code != 0 {
		t.Fatal(res.stderr)
	}
	if rec := p.taskOf(); rec["status"] != "completed" || len(s.Requests("tools/call")) != 1 || len(s.Requests("tasks/cancel")) != 0 {
		t.Errorf("%v, %v; the server got %v", rec["status"], rec["cause"], s.Requests("tasks/cancel"))
	}
	holds(t, "the notification", of(m, "main")[3].LastText(), "<status>completed</status>", "a paper boat")
}

// ours runs a command as a task of Drover's own server, kills the host that follows it, and
// has the next one follow it to its end.
func (p *place) ours(server object) {
	t := p.t
	t.Helper()
	p.servers(object{"ours": server})
	m := p.model(map[string][]step{"main": {calls("mcp__ours__task_run", object{
		"command": "until [ -e go ]; do sleep 0.05; done; echo a paper boat", "background": false,
	}), says("waiting"), says("goes on"), echo}})
	allowed := "--allowed-tools=mcp__ours"
	session := p.detached(allowed)
	if !within(patience, func() bool { return len(of(m, "main")) >= 2 }) {
		t.Fatal("the model is not asked")
	}
	holds(t, "the result of the call", of(m, "main")[1].LastText(), "MCP task started in background")
	p.killHost(session)
	if rec := p.taskOf(); rec["status"] != "running" {
		t.Errorf("without a host it is %v, %v", rec["status"], rec["cause"])
	}
	r := p.start("-p", "go on", allowed, "--resume", session, "--output-format=stream-json")
	r.until("goes on")
	if err := os.WriteFile(filepath.Join(p.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if res := r.wait(); res.code != 0 {
		t.Fatal(res.stderr)
	}
	if rec := p.taskOf(); rec["status"] != "completed" {
		t.Errorf("%v, %v, %v", rec["status"], rec["cause"], rec["error"])
	}
	holds(t, "the notification", of(m, "main")[3].LastText(), "<status>completed</status>")
	holds(t, "the log", p.good("logs", fmt.Sprint(p.taskOf()["task_id"])).stdout(), "a paper boat")
}

// killHost kills the host of a session, and waits until it has gone.
func (p *place) killHost(session string) {
	t := p.t
	t.Helper()
	var all []struct {
		ID   string `json:"session_id"`
		PID  int    `json:"pid"`
		Live bool   `json:"live"`
	}
	list := func() {
		all = nil
		if err := json.Unmarshal([]byte(p.good("sessions", "--json").stdout()), &all); err != nil {
			t.Fatal(err)
		}
	}
	list()
	for _, one := range all {
		if one.ID == strings.TrimSpace(session) && one.Live {
			if err := syscall.Kill(one.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	gone := func() bool {
		list()
		return !slices.ContainsFunc(all, func(one struct {
			ID   string `json:"session_id"`
			PID  int    `json:"pid"`
			Live bool   `json:"live"`
		}) bool {
			return one.ID == strings.TrimSpace(session) && one.Live
		})
	}
	if !within(patience, gone) {
		t.Fatal("the host lives still")
	}
}

func mcpTasks() cases {
	return cases{
		"background": func(t *testing.T, p *place) {
			s := p.shop(mcptest.Options{})
			w := mcptest.Work{Hold: true, Say: []string{"cuts", "glues"}, Text: "a paper boat", Immediate: "have a tea"}
			m := p.model(map[string][]step{"main": {works(w), freeing(s, says("waiting")), echo}})
			r := p.good("-p", "go", shopping, "--output-format=stream-json", "--verbose")
			told := of(m, "main")[1].LastText()
			holds(t, "the result of the call", told, "MCP task started in background", "Agent ID: c", "Output file: ", "The server says: have a tea")
			holds(t, "the notification", of(m, "main")[2].LastText(), "<task-id>c", "<status>completed</status>", "MCP task", "a paper boat")
			all := r.objects(t)
			started := only(all, "task_started")
			if len(started) != 1 || started[0]["task_type"] != "mcp_task" || started[0]["subagent_type"] != "mcp-task" || started[0]["prompt"] != string(w.JSON()) {
				t.Fatalf("started %v", started)
			}
			if ended := only(all, "task_notification"); len(ended) != 1 || ended[0]["status"] != "completed" || ended[0]["summary"] != "a paper boat" {
				t.Errorf("ended %v", ended)
			}
			if n := len(s.Requests("tools/call")); n != 1 || !strings.Contains(string(s.Requests("tools/call")[0].Params), `"task"`) {
				t.Errorf("%d calls", n)
			}
			rec := p.taskOf()
			state, _ := rec["progress"].(map[string]any)["mcp_task"].(map[string]any)
			if rec["agent_type"] != "mcp-task" || rec["backgrounded"] != true || state["server"] != "shop" || state["tool"] != "work" || state["status"] != "completed" ||
				state["mcp_task_id"] == "" || state["created_at"] == nil || state["updated_at"] == nil {
				t.Errorf("recorded %v", rec)
			}
			holds(t, "the log", p.good("logs", fmt.Sprint(rec["task_id"])).stdout(), "working: glues", "a paper boat")
		},
		"listed": func(t *testing.T, p *place) {
			s := p.shop(mcptest.Options{})
			m := p.model(map[string][]step{"main": {works(mcptest.Work{Hold: true, Say: []string{"glues"}}), func(r *modeltest.Request) modeltest.Answer {
				return modeltest.Call("TaskOutput", map[string]any{"task_id": mcpID(r), "block": false})
			}, calls("ListTasks", map[string]any{}), says("waiting"), echo}})
			session := p.detached(shopping)
			if !within(patience, func() bool { return len(of(m, "main")) >= 4 }) {
				t.Fatal("the model is not asked")
			}
			holds(t, "TaskOutput", of(m, "main")[2].LastText(), "Status: Running", "glues")
			holds(t, "ListTasks", of(m, "main")[3].LastText(), "work of MCP server shop")
			if !within(patience, func() bool { return strings.Contains(p.good("ps").stdout(), "work of MCP server shop: working: glues") }) {
				t.Errorf("ps says %s", p.good("ps").stdout())
			}
			s.Free()
			p.ended(session)
		},
		"failed": func(t *testing.T, p *place) {
			s := p.shop(mcptest.Options{})
			m := p.model(map[string][]step{"main": {works(mcptest.Work{Hold: true, Fail: "tool"}), freeing(s, says("waiting")), echo}})
			p.good("-p", "go", shopping)
			holds(t, "the notification", of(m, "main")[2].LastText(), "<status>failed</status>", "the paper is torn")
			if rec := p.taskOf(); rec["cause"].(map[string]any)["reason"] != "tool_error" {
				t.Errorf("recorded %v", rec["cause"])
			}
		},
		// A call that is no task shows how far it is while it runs, as what the agent is about.
		"plainprogress": func(t *testing.T, p *place) {
			s := p.shop(mcptest.Options{NoTasks: true, Support: "forbidden"})
			w := mcptest.Work{Plain: true, Hold: true, Steps: 1001, Say: []string{"folds"}, Text: "a boat"}
			m := p.model(map[string][]step{
				"main":            {calls("Agent", asks("general-purpose", "a boat")), says("done")},
				"general-purpose": {works(w), echo},
			})
			session := p.detached(shopping)
			listed := func() bool { return strings.Contains(p.good("ps").stdout(), "mcp__shop__work: folds (50%)") }
			if !within(patience, listed) {
				t.Errorf("ps says %s", p.good("ps").stdout())
			}
			s.Free()
			p.ended(session)
			holds(t, "the result of the call", of(m, "general-purpose")[1].LastText(), "a boat")
			for _, o := range p.tasks("-a", "--all-sessions") {
				if o["parent_id"] == nil {
					continue
				}
				log := p.good("logs", fmt.Sprint(o["task_id"])).stdout()
				holds(t, "the log", log, "[mcp__shop__work: folds (50%)]")
				if n := strings.Count(log, "[mcp__shop__work: folds"); n > 20 {
					t.Errorf("%d lines of 1001 reports", n)
				}
				if message, _ := o["progress"].(map[string]any)["message"].(string); strings.Contains(message, "folds") {
					t.Errorf("after the call it says %q", message)
				}
			}
		},
		"refused": func(t *testing.T, p *place) {
			p.shop(mcptest.Options{})
			m := p.model(map[string][]step{"main": {works(mcptest.Work{Refuse: true}), echo}})
			p.good("-p", "go", shopping)
			holds(t, "the result of the call", of(m, "main")[1].LastText(), "did not complete", "such work is not done here")
		},
		"servercancels": func(t *testing.T, p *place) {
			s := p.shop(mcptest.Options{})
			m := p.model(map[string][]step{"main": {works(mcptest.Work{Hold: true}), func(*modeltest.Request) modeltest.Answer {
				s.Cancel()
				return modeltest.Text("waiting")
			}, echo}})
			p.good("-p", "go", shopping)
			holds(t, "the notification", of(m, "main")[2].LastText(), "<status>killed</status>", "has cancelled it: somebody else did not want it")
		},
		"stop": func(t *testing.T, p *place) {
			s := p.shop(mcptest.Options{})
			m := p.model(map[string][]step{"main": {works(mcptest.Work{Hold: true}), func(r *modeltest.Request) modeltest.Answer {
				return modeltest.Call("TaskStop", map[string]any{"task_id": mcpID(r)})
			}, echo}})
			p.good("-p", "go", shopping)
			if got := s.Statuses(); len(s.Requests("tasks/cancel")) != 1 || !slices.Equal(got, []string{"cancelled"}) || p.taskOf()["status"] != "killed" {
				t.Errorf("at the server %v, here %v; the model reads %s", got, p.taskOf()["status"], of(m, "main")[2].LastText())
			}
		},
		"modelanswers": func(t *testing.T, p *place) {
			p.shop(mcptest.Options{})
			m := p.model(map[string][]step{"main": append([]step{works(mcptest.Work{Ask: 1, Text: "a boat"})}, slices.Repeat([]step{answering}, 10)...)})
			holds(t, "the notification", p.good("-p", "go", shopping).stdout(), "<status>completed</status>", "accept Ahab")
			last := of(m, "main")
			said := strings.Join(texts(t, last[len(last)-1]), "\n")
			holds(t, "the conversation", said, "What is name 1?", "these are its words, not those of the user", "minLength", "answered by a JSON object")
		},
		"useranswers": func(t *testing.T, p *place) {
			s := p.shop(mcptest.Options{})
			p.model(map[string][]step{"main": patient(works(mcptest.Work{Ask: 1, Text: "a boat"}))})
			session := p.detached(shopping)
			q := p.asked("What is name 1?")
			ref := fmt.Sprint(q["id"])
			if q["kind"] != "form" || q["agent"] != "mcp-task" {
				t.Errorf("question %v", q)
			}
			holds(t, "the list", p.good("approvals").stdout(), "drover approvals answer "+ref+" JSON", "minLength", "shop")
			p.fails(2, []string{"approvals", "answer", ref, `{"nom":"Ahab"}`}, `"name" is missing`)
			p.good("approvals", "answer", ref, `{"name":"Ahab"}`)
			holds(t, "the answer", p.ended(session), "accept Ahab")
			if got := s.Statuses(); !slices.Equal(got, []string{"completed"}) {
				t.Errorf("at the server %v", got)
			}
		},
		"userdenies": func(t *testing.T, p *place) {
			p.shop(mcptest.Options{})
			p.model(map[string][]step{"main": patient(works(mcptest.Work{Ask: 1, Text: "a boat"}))})
			session := p.detached(shopping)
			p.good("approvals", "deny", fmt.Sprint(p.asked("What is name 1?")["id"]))
			holds(t, "the answer", p.ended(session), "a boat", "decline")
		},
		"nosteer": func(t *testing.T, p *place) {
			s := p.shop(mcptest.Options{})
			m := p.model(map[string][]step{"main": {works(mcptest.Work{Hold: true}), func(r *modeltest.Request) modeltest.Answer {
				return modeltest.Call("SendMessage", map[string]any{"to": mcpID(r), "message": "a bigger one"})
			}, freeing(s, says("waiting")), echo}})
			p.good("-p", "go", shopping)
			holds(t, "the refusal", of(m, "main")[2].LastText(), "start a new task")
		},
		"steer": func(t *testing.T, p *place) {
			s := p.shop(mcptest.Options{Steers: true})
			p.model(map[string][]step{"main": {works(mcptest.Work{Hold: true}), func(r *modeltest.Request) modeltest.Answer {
				return modeltest.Call("SendMessage", map[string]any{"to": mcpID(r), "message": "a bigger one"})
			}, freeing(s, says("waiting")), echo}})
			p.good("-p", "go", shopping)
			if got := s.Requests("tasks/steer"); len(got) != 1 || !strings.Contains(string(got[0].Params), "a bigger one") {
				t.Errorf("the server got %v", got)
			}
		},
		"off": func(t *testing.T, p *place) {
			s := p.shop(mcptest.Options{})
			m := p.model(map[string][]step{"main": {works(mcptest.Work{}), echo}})
			p.good("-p", "go", shopping, set(t, object{"mcp": object{"tasks": "off"}}))
			got := s.Requests("tools/call")
			if len(got) != 1 || strings.Contains(string(got[0].Params), `"task"`) || len(p.tasks("-a")) != 0 {
				t.Errorf("the server got %v", got)
			}
			holds(t, "the result of the call", of(m, "main")[1].LastText(), "runs as a task only", "mcp.tasks is off", "requires task augmentation")
		},
		"optional": func(t *testing.T, p *place) {
			for mode, asTask := range map[string]bool{"required": false, "always": true} {
				s := p.shop(mcptest.Options{Support: "optional"})
				p.model(map[string][]step{"main": {works(mcptest.Work{Plain: !asTask}), says("waiting"), echo}})
				p.good("-p", "go", shopping, set(t, object{"mcp": object{"tasks": mode}}))
				if got := s.Requests("tools/call"); len(got) != 1 || strings.Contains(string(got[0].Params), `"task"`) != asTask {
					t.Errorf("%s: the server got %s", mode, got)
				}
			}
		},
		"foreground": func(t *testing.T, p *place) {
			p.shop(mcptest.Options{})
			m := p.model(map[string][]step{
				"main":            {calls("Agent", asks("general-purpose", "a boat")), says("done")},
				"general-purpose": {works(mcptest.Work{Say: []string{"cuts"}, Text: "a paper boat"}), echo},
			})
			p.good("-p", "go", shopping)
			holds(t, "the result of the call", of(m, "general-purpose")[1].LastText(), "a paper boat")
			if rec := p.taskOf(); rec["backgrounded"] != false || rec["parent_id"] == nil {
				t.Errorf("recorded %v", rec)
			}
		},
		"reattached":         func(_ *testing.T, p *place) { p.reattached(mcptest.Options{}) },
		"extendedreattached": func(_ *testing.T, p *place) { p.reattached(mcptest.Options{Extension: true}) },
		"extended": func(t *testing.T, p *place) {
			s := p.shop(mcptest.Options{Extension: true})
			w := mcptest.Work{Hold: true, Say: []string{"cuts", "glues"}, Text: "a paper boat"}
			m := p.model(map[string][]step{"main": {works(w), freeing(s, says("waiting")), echo}})
			p.good("-p", "go", shopping)
			holds(t, "the result of the call", of(m, "main")[1].LastText(), "MCP task started in background", "Agent ID: c")
			holds(t, "the notification", of(m, "main")[2].LastText(), "<status>completed</status>", "a paper boat")
			rec := p.taskOf()
			state, _ := rec["progress"].(map[string]any)["mcp_task"].(map[string]any)
			if rec["agent_type"] != "mcp-task" || state["tool"] != "work" || state["status"] != "completed" {
				t.Errorf("recorded %v", rec)
			}
			if n := len(s.Requests("tools/call")); n != 1 {
				t.Errorf("%d calls", n)
			}
		},
		"extendedoff": func(t *testing.T, p *place) {
			s := p.shop(mcptest.Options{Extension: true})
			m := p.model(map[string][]step{"main": {works(mcptest.Work{}), echo}})
			p.good("-p", "go", shopping, set(t, object{"mcp": object{"tasks": "off"}}))
			holds(t, "the result of the call", of(m, "main")[1].LastText(), "runs as a task only", "mcp.tasks is off")
			if n := len(s.Statuses()); n != 0 || len(p.tasks("-a")) != 0 {
				t.Errorf("%d tasks at the server", n)
			}
		},
		"extendedstop": func(t *testing.T, p *place) {
			s := p.shop(mcptest.Options{Extension: true})
			p.model(map[string][]step{"main": {works(mcptest.Work{Hold: true}), func(r *modeltest.Request) modeltest.Answer {
				return modeltest.Call("TaskStop", map[string]any{"task_id": mcpID(r)})
			}, echo}})
			p.good("-p", "go", shopping)
			if got := s.Statuses(); !slices.Equal(got, []string{"cancelled"}) || p.taskOf()["status"] != "killed" {
				t.Errorf("at the server %v, here %v", got, p.taskOf()["status"])
			}
		},
		"oursstdio": func(_ *testing.T, p *place) {
			p.ours(object{"command": p.command().Path, "args": []string{"mcp", "serve"}})
		},
		"ourshttp": func(_ *testing.T, p *place) {
			s := p.mcpHTTP()
			p.ours(object{"type": "http", "url": s.url, "headers": object{"Authorization": "Bearer " + s.token}})
		},
		"extendedours": func(t *testing.T, p *place) {
			p.servers(object{"ours": object{"command": p.command().Path, "args": []string{"mcp", "serve"}}})
			run := calls("mcp__ours__task_run", json.RawMessage(`{"command":"echo a paper $((1+1)) boat","background":false}`))
			m := p.model(map[string][]step{"main": patient(run)})
			holds(t, "the answer", p.good("-p", "go", "--allowed-tools=mcp__ours").stdout(), "<status>completed</status>")
			holds(t, "the result of the call", of(m, "main")[1].LastText(), "MCP task started in background")
			holds(t, "the log", p.good("logs", fmt.Sprint(p.taskOf()["task_id"])).stdout(), "a paper 2 boat")
		},
		"stdio": func(t *testing.T, p *place) {
			p.shopProcess()
			p.model(map[string][]step{"main": patient(works(mcptest.Work{Ask: 1, Text: "a boat"}))})
			session := p.detached(shopping)
			p.good("approvals", "answer", fmt.Sprint(p.asked("What is name 1?")["id"]), `{"name":"Ahab"}`)
			holds(t, "the answer", p.ended(session), "a boat", "accept Ahab")
		},
		"stdioclosing": func(t *testing.T, p *place) {
			p.shopProcess()
			m := p.model(map[string][]step{"main": {works(mcptest.Work{Hold: true}), says("waiting")}})
			r := p.start("-p", "go", shopping)
			if !within(patience, func() bool { return len(of(m, "main")) >= 2 && len(p.tasks()) == 1 }) {
				t.Fatal("the model is not asked")
			}
			_ = r.cmd.Process.Signal(syscall.SIGTERM)
			r.wait()
			if rec := p.taskOf(); rec["status"] != "killed" || rec["cause"].(map[string]any)["reason"] != "closing" {
				t.Errorf("recorded %v, %v", rec["status"], rec["cause"])
			}
		},
	}
}

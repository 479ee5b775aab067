package mcpserver_test

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/task"
)

// A permission that an agent, or an agent below it, asks for reaches the user of a client
// with forms, in either revision of the protocol. Nothing else is put to them, and the
// agent is started once.
func TestElicitation(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		for name, c := range map[string]struct {
			answer *mcp.ElicitResult
			allow  bool
			reason string
			open   bool
		}{
			"allow":    {answer: &mcp.ElicitResult{Action: "accept", Content: args{"decision": "allow"}}, allow: true},
			"deny":     {answer: &mcp.ElicitResult{Action: "accept", Content: args{"decision": "deny", "reason": "not now"}}, reason: "not now"},
			"decline":  {answer: &mcp.ElicitResult{Action: "decline"}, reason: "the user denied it"},
			"put away": {answer: &mcp.ElicitResult{Action: "cancel"}, open: true},
		} {
			t.Run(revision+"/"+name, func(t *testing.T) {
				s := newSession()
				forms := make(chan *mcp.ElicitParams, 10)
				d := openWith(t, revision, &mcp.ClientOptions{
					ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						forms <- r.Params
						return c.answer, nil
					},
				}, s)
				id, done := d.begin(d.within(), s, &mcp.CallToolParams{Name: "agent_run", Arguments: args{
					"prompt": "think", "background": false,
				}})
				child := task.Record{ID: task.NewID(task.LocalAgent), Kind: task.LocalAgent, Parent: id, Status: task.Running}
				s.do(func() { s.tasks = append(s.tasks, child) })
				input := json.RawMessage(`{"command":"rm -rf \u001b[2Jbuild"}`)
				s.ask(task.Question{ID: "q0", Task: "anobody00", Tool: "Bash", Input: input, Digest: "d0"})
				s.ask(task.Question{ID: "q1", Task: child.ID, Tool: "Bash", Input: input, Digest: "d1", Reason: "no rule"})
				var form *mcp.ElicitParams
				select {
				case form = <-forms:
				case <-d.within().Done():
					t.Fatal("the user was not asked")
				}
				if !strings.Contains(form.Message, "rm -rf") || !strings.Contains(form.Message, "asks: no rule") || !strings.HasPrefix(form.Message, "Allow command ") ||
					strings.Contains(form.Message, "\x1b") {
					t.Errorf("form %q", form.Message)
				}
				if !c.open {
					if err := s.until(d.within(), func() bool { return len(s.decided) > 0 }); err != nil {
						t.Fatal(err)
					}
					got := s.decided[0]
					if got.ID != "q1" || got.Digest != "d1" || got.Actor != task.ByMCP || got.Reply.Allow != c.allow ||
						got.Reply.Reason != c.reason || got.Always != "" {
						t.Errorf("decided %+v", got)
					}
				}
				s.finish(id, task.Completed, 0)
				var got started
				if read(t, <-done, &got); got.Task.Status != task.Completed || got.Task.ID != id {
					t.Errorf("answer %+v", got)
				}
				if len(s.starts) != 1 || len(forms) != 0 || c.open != (len(s.decided) == 0) {
					t.Errorf("%d starts, %d more forms, decided %+v", len(s.starts), len(forms), s.decided)
				}
			})
		}
	}
}

// What cannot be shown whole is not put into a form, and a client without forms is asked nothing.
func TestElicitationNot(t *testing.T) {
	for name, options := range map[string]*mcp.ClientOptions{
		"long": {ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: args{"decision": "allow"}}, nil
		}},
		"no forms": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession()
			d := openWith(t, "", options, s)
			var run started
			d.call("agent_run", args{"prompt": "think"}, &run)
			input := `{"command":"ls"}`
			if name == "long" {
				input = `{"command":"` + strings.Repeat("x ", 5000) + `"}`
			}
			s.ask(task.Question{ID: "q1", Task: run.Task.ID, Tool: "Bash", Input: json.RawMessage(input), Digest: "d1"})
			if text, isError := d.call("task_wait", args{"task_id": run.Task.ID, "timeout_seconds": 0.05}, nil); isError {
				t.Error(text)
			}
			if len(s.decided) != 0 {
				t.Errorf("decided %+v", s.decided)
			}
		})
	}
}

// The state of a repeated call is good once, and only if this server gave it.
func TestForgedState(t *testing.T) {
	d := open(t, newSession())
	res, err := d.client.CallTool(d.within(), &mcp.CallToolParams{
		Name: "task_wait", Arguments: args{"task_id": "a1"}, RequestState: "guessed",
		InputResponses: mcp.InputResponseMap{"permission": &mcp.ElicitResult{Action: "accept", Content: args{"decision": "allow"}}},
	})
	if err != nil || !res.IsError || !strings.Contains(read(t, res, nil), "requestState") {
		t.Errorf("%+v, %v", res, err)
	}
}

// Clients that show their model nothing but the structured answer: it is short, and
// repeats nothing that the client has said. The schemas of answers hold no null, tools to
// begin with are loaded early, and logging is not declared.
func TestShape(t *testing.T) {
	d := open(t, newSession())
	res, err := d.client.CallTool(d.within(), &mcp.CallToolParams{Name: "task_run", Arguments: args{
		"command": "make " + strings.Repeat("all ", 50), "cwd": "/some/where", "name": "a-name-of-usual-length",
	}})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(res.StructuredContent)
	if err != nil || len(raw) > 200 || strings.Contains(string(raw), "make") {
		t.Errorf("%d bytes: %s, %v", len(raw), raw, err)
	}
	list, err := d.client.ListTools(d.within(), nil)
	if err != nil {
		t.Fatal(err)
	}
	early := 0
	for _, tool := range list.Tools {
		out, err := json.Marshal(tool.OutputSchema)
		if err != nil || strings.Contains(string(out), `"null"`) {
			t.Errorf("%s: %s", tool.Name, out)
		}
		if tool.Meta["anthropic/alwaysLoad"] == true {
			early++
		}
	}
	if early != 3 {
		t.Errorf("%d tools are loaded early", early)
	}
	raw, err = json.Marshal(d.client.InitializeResult().Capabilities)
	if err != nil || strings.Contains(string(raw), "logging") || !strings.Contains(string(raw), "tools") {
		t.Errorf("capabilities %s, %v", raw, err)
	}
}

// One task or several can be named by either argument, for each tool.
func TestNames(t *testing.T) {
	d := open(t, newSession())
	var run started
	d.call("task_run", args{"command": "x"}, &run)
	for _, tool := range []string{"task_output", "task_wait", "task_stop"} {
		extra := func(in args) args {
			if tool == "task_wait" {
				in["timeout_seconds"] = 0.01
			}
			return in
		}
		for _, in := range []args{{"task_id": run.Task.ID}, {"task_ids": []task.ID{run.Task.ID}}} {
			if text, isError := d.call(tool, extra(in), nil); isError {
				t.Errorf("%s %v: %s", tool, in, text)
			}
		}
		for _, in := range []args{{}, {"task_id": run.Task.ID, "task_ids": []task.ID{run.Task.ID}}} {
			if text, isError := d.call(tool, extra(in), nil); !isError || text != "give either task_id or task_ids" {
				t.Errorf("%s %v: %v %s", tool, in, isError, text)
			}
		}
	}
}

func openWith(t *testing.T, revision string, options *mcp.ClientOptions, s *session) *desk {
	t.Helper()
	d := &desk{t: t, sessions: []*session{s}, served: make(chan error, 1), released: make(chan struct{}, 10)}
	here, there := net.Pipe()
	d.wire = here
	d.serve(there)
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "v0"}, options)
	var err error
	d.client, err = c.Connect(d.within(), &mcp.IOTransport{Reader: here, Writer: here},
		&mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.leave)
	if got := d.client.InitializeResult().ProtocolVersion; revision != "" && got != revision {
		t.Fatalf("revision %s", got)
	}
	return d
}

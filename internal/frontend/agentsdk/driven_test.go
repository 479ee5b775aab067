package agentsdk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// program is one that drives a session: it writes lines and reads those of Drover.
type program struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *bufio.Reader
	warn *notes
	conn *Conn
}

// notes is a writer that may be read meanwhile.
type notes struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.buf.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.buf.String()
}

func start(t *testing.T) *program {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &program{t: t, in: inW, out: bufio.NewReader(outR), warn: &notes{}}
	p.conn = Connect(inR, outW, p.warn)
	t.Cleanup(func() { inW.Close(); outR.Close(); <-p.conn.ended })
	return p
}

func (p *program) says(lines ...string) {
	p.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(p.in, l+"\n"); err != nil {
			p.t.Fatal(err)
		}
	}
}

// next is the next line of Drover.
func (p *program) next() (v struct {
	Type      string         `json:"type"`
	RequestID string         `json:"request_id"`
	Request   map[string]any `json:"request"`
	Response  struct {
		Subtype   string         `json:"subtype"`
		RequestID string         `json:"request_id"`
		Response  map[string]any `json:"response"`
		Error     string         `json:"error"`
	} `json:"response"`
	Subtype string `json:"subtype"`
	State   string `json:"state"`
}) {
	p.t.Helper()
	text, err := p.out.ReadBytes('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		p.t.Fatalf("%s: %v", text, err)
	}
	return v
}

// driven is the session of a program.
type driven struct {
	control.API
	mu        sync.Mutex
	prompts   chan string
	questions chan control.Approvals
	decided   chan control.DecideRequest
	settings  control.Settings
	tasks     []task.Record
	promoted  []string
	refuse    func(control.DecideRequest) error // nil: every decision is taken
	stopped   int                               // times that the turn was broken off
}

func (s *driven) Approvals(ctx context.Context, _ control.ApprovalsRequest) (control.Approvals, error) {
	select {
	case a := <-s.questions:
		return a, nil
	case <-ctx.Done():
		return control.Approvals{}, context.Cause(ctx)
	}
}

func (s *driven) Decide(_ context.Context, req control.DecideRequest) error {
	s.decided <- req
	if s.refuse != nil {
		return s.refuse(req)
	}
	return nil
}

func (s *driven) Configure(_ context.Context, req control.ConfigureRequest) (control.Settings, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Mode != nil && *req.Mode == "wild" {
		return control.Settings{}, &control.Error{Code: control.Invalid, Message: "the mode is not known"}
	}
	if req.Mode != nil {
		s.settings.Mode = *req.Mode
	}
	if req.Model != nil {
		s.settings.Model = *req.Model
	}
	if req.Thinking != nil {
		s.settings.Thinking = *req.Thinking
	}
	return s.settings, nil
}

func (s *driven) Interrupt(context.Context, string) (task.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped++
	return task.Record{}, &control.Error{Code: control.Conflict, Message: "there is no turn"}
}

func (s *driven) List(context.Context, control.ListRequest) (control.Page, error) {
	return control.Page{Tasks: s.tasks}, nil
}

func (s *driven) Promote(_ context.Context, ref string) (task.Record, error) {
	s.promoted = append(s.promoted, ref)
	return task.Record{}, nil
}

func (s *driven) Prompt(_ context.Context, req control.PromptRequest) error {
	text := req.Text
	for _, image := range req.Images {
		text += fmt.Sprintf(" + %s of %d bytes", image.MediaType, len(image.Data))
	}
	s.prompts <- text
	return nil
}

func (s *driven) Environment(context.Context) (control.Environment, error) {
	return control.Environment{Servers: []control.MCPServer{{Name: "a", Status: "connected"}},
		Context: control.Context{Tokens: 50, Window: 200}}, nil
}

func (s *driven) State(ctx context.Context, req control.StateRequest) (control.State, error) {
	if req.Wait > 0 {
		<-ctx.Done()
	}
	return control.State{}, context.Cause(ctx)
}

// serve lets the program drive a session; done gets what Serve returned.
func (p *program) serve(s *driven, decides bool) (done chan error) {
	done = make(chan error, 1)
	s.prompts = make(chan string, 10)
	s.questions, s.decided = make(chan control.Approvals, 4), make(chan control.DecideRequest, 4)
	ctx, cancel := context.WithCancel(p.t.Context())
	p.t.Cleanup(cancel)
	stream := New(Options{Out: p.conn, Format: StreamJSON, Session: "s00000001", Version: "v",
		Since: func(context.Context, task.Seq) ([]task.Event, error) { return nil, nil },
		Cost:  func() (float64, bool) { return 0.5, true }})
	stream.queued = []string{"u9"}
	d := Driven{API: s, ID: "s00000001", Decides: decides, Stream: stream}
	var work sync.WaitGroup
	work.Go(func() { p.conn.Attend(ctx, d, false) })
	work.Go(func() { done <- p.conn.Serve(ctx, d) })
	p.t.Cleanup(func() { cancel(); work.Wait() })
	return done
}

// Every request has one answer, an error where Drover does not have what is asked for.
func TestRequests(t *testing.T) {
	p := start(t)
	s := &driven{tasks: []task.Record{{ID: "b1", ToolUseID: "t1"}, {ID: "b2", ToolUseID: "t2", Backgrounded: true}}}
	done := p.serve(s, false)
	for _, c := range []struct{ request, want, refused string }{
		{`{"subtype":"set_permission_mode","mode":"plan"}`, `{"mode":"plan"}`, ""},
		{`{"subtype":"set_permission_mode","mode":"wild"}`, "", "not known"},
		{`{"subtype":"set_model","model":"opus"}`, `{"model":"opus"}`, ""},
		{`{"subtype":"set_model"}`, "", "name a model"},
		{`{"subtype":"set_max_thinking_tokens","max_thinking_tokens":0}`, "null", ""},
		{`{"subtype":"apply_flag_settings","settings":{"model":"haiku","permissions":{"defaultMode":"acceptEdits"}}}`, "null", ""},
		{`{"subtype":"apply_flag_settings","settings":{"outputStyle":"x","permissions":{"allow":[]}}}`, "", "outputStyle, permissions.allow"},
		{`{"subtype":"mcp_status"}`, `{"mcpServers":[{"name":"a","status":"connected"}]}`, ""},
		{`{"subtype":"get_session_cost"}`, `{"total_cost_usd":0.5}`, ""},
		{`{"subtype":"interrupt"}`, `{"still_queued":["u9"]}`, ""},
		{`{"subtype":"background_tasks","tool_use_id":"t1"}`, `{}`, ""},
		{`{"subtype":"background_tasks","tool_use_id":"t2"}`, "", "runs nothing in the foreground"},
		{`{"subtype":"stop_task"}`, "", "task_id is missing"},
		{`{"subtype":"rewind_files"}`, "", `"rewind_files" is not supported`},
		{`{"subtype":"initialize"}`, "", "must be the first line"},
		{`{}`, "", "not supported"},
		{`7`, "", "read the request"},
	} {
		p.says(`{"type":"control_request","request_id":"r","request":` + c.request + `}`)
		l := p.next()
		for l.Type == "system" {
			l = p.next()
		}
		got, _ := json.Marshal(l.Response.Response)
		if l.Type != "control_response" || l.Response.RequestID != "r" || (l.Response.Subtype == "error") != (c.refused != "") ||
			!strings.Contains(l.Response.Error, c.refused) || c.refused == "" && string(got) != c.want {
			t.Errorf("%s: %+v", c.request, l)
		}
	}
	if s.settings != (control.Settings{Model: "haiku", Mode: "acceptEdits", Thinking: control.Thinking{Tokens: -1}}) {
		t.Errorf("settings %+v", s.settings)
	}
	if strings.Join(s.promoted, " ") != "b1" {
		t.Errorf("promoted %q", s.promoted)
	}
	p.in.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What cannot be read is told and passed over, and what stands around it is done.
func TestGarbage(t *testing.T) {
	p := start(t)
	s := &driven{}
	done := p.serve(s, false)
	go func() { _, _ = io.Copy(io.Discard, p.out) }() // ends with the connection
	p.says("", "not json", `["no object"]`, `{"type":"wat"}`, `{"type":"control_response","response":{"request_id":"nobody"}}`,
		`{"type":"user","message":{"content":"   "}}`, `{"type":"user","message":{"content":{}}}`,
		`{"type":"user","uuid":"u1","message":{"content":[{"type":"text","text":"see"},{"type":"image"},`+
			`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGVsbG8="}}]}}`,
		`{"type":"user","message":{"content":"`+strings.Repeat("x", 1<<20)+`"}}`)
	if got := <-s.prompts; got != "see\n\n[image left out] + image/png of 5 bytes" {
		t.Errorf("%.80q", got)
	}
	if got := <-s.prompts; len(got) != 1<<20 {
		t.Errorf("%d bytes", len(got))
	}
	if _, err := io.WriteString(p.in, `{"type":"user","message":{"content":"no line end"}}`); err != nil {
		t.Fatal(err)
	}
	p.in.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := <-s.prompts; got != "no line end" {
		t.Errorf("%q", got)
	}
	for _, want := range []string{"not a JSON object", `type "wat"`, "answers no open request: nobody", "it is empty", "read its content", `type "image"`} {
		if !strings.Contains(p.warn.String(), want) {
			t.Errorf("nobody was told %q:\n%s", want, p.warn)
		}
	}
}

// A hook of the program that fails blocks only where the program wants it.
func TestHookFailures(t *testing.T) {
	p := start(t)
	p.says(`{"type":"control_request","request_id":"i","request":{"subtype":"initialize","hooks":{"PreToolUse":[` +
		`{"hookCallbackIds":["a"]},{"hookCallbackIds":["b"],"onFailure":"block"}]}}}`)
	in, err := p.conn.Initialize(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hooks := in.Callbacks(p.conn)
	for _, c := range []struct {
		hook         int
		answer, want string
	}{
		{0, `"subtype":"error","error":"thrown"`, "{} <nil>"},
		{1, `"subtype":"error","error":"thrown"`, " the program that drives this session answered: thrown"},
		{0, success + `7`, "{} <nil>"},
		{1, success + `7`, "7 the program that drives this session answered: not an object: 7"},
		{1, `"subtype":"success"`, " <nil>"},
	} {
		got := make(chan string, 1)
		go func() {
			raw, err := hooks[c.hook].Call(t.Context(), json.RawMessage(`{}`))
			got <- fmt.Sprintf("%s %v", raw, err)
		}()
		p.says(`{"type":"control_response","response":{"request_id":"` + p.next().RequestID + `",` + c.answer + `}}`)
		if text := <-got; text != c.want {
			t.Errorf("%s: %s, want %s", c.answer, text, c.want)
		}
	}
	p.in.Close()
	<-p.conn.ended
	if _, err := hooks[0].Call(t.Context(), json.RawMessage(`{}`)); !errors.Is(err, ErrEnded) {
		t.Errorf("a hook of a program that is gone: %v", err)
	}
}

// A hook of the program is asked while the session is opened, although a prompt came first.
func TestHooksAndTools(t *testing.T) {
	p := start(t)
	p.says(`{"type":"control_request","request_id":"i","request":{"subtype":"initialize","systemPrompt":["","be short"],`+
		`"hooks":{"PreToolUse":[{"matcher":"Bash","hookCallbackIds":["hook_0"],"timeout":2}]},"sdkMcpServers":["calc"],`+
		`"sdkMcpServerManifests":{"calc":{"toolsListResult":{"tools":[{"name":"add","description":"adds","inputSchema":{"type":"object"}}]}}}}}`,
		`{"type":"user","message":{"content":"at once"}}`)
	in, err := p.conn.Initialize(t.Context())
	if err != nil || in.Prompt() != "be short" {
		t.Fatalf("%+v, %v", in, err)
	}
	hooks := in.Callbacks(p.conn)
	if len(hooks) != 1 || hooks[0].Event != "PreToolUse" || hooks[0].Matcher != "Bash" || hooks[0].Timeout != 2*time.Second {
		t.Fatalf("%+v", hooks)
	}
	answer := make(chan string, 1)
	go func() {
		raw, err := hooks[0].Call(t.Context(), json.RawMessage(`{"tool_use_id":"t1"}`))
		if err != nil {
			raw = json.RawMessage(err.Error())
		}
		answer <- string(raw)
	}()
	ask := p.next()
	if ask.Request["subtype"] != "hook_callback" || ask.Request["callback_id"] != "hook_0" || ask.Request["tool_use_id"] != "t1" {
		t.Errorf("%+v", ask)
	}
	p.says(`{"type":"control_response","response":{"subtype":"success","request_id":"` + ask.RequestID + `","response":{"continue":true}}}`)
	if got := <-answer; got != `{"continue":true}` {
		t.Error(got)
	}
	tools, err := in.Tools(t.Context(), p.conn)
	if err != nil || len(tools) != 1 || tools[0].Spec().Name != "mcp__calc__add" {
		t.Fatalf("%v, %v", tools, err)
	}
	for _, c := range []struct{ response, want string }{
		{`{"mcp_response":{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"3"}]}}}`, "3 false"},
		{`{"mcp_response":{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[{"type":"image"}]}}}`, "[image, of unknown type, 0 bytes: not shown] true"},
		{`{"mcp_response":{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"bad"}}}`,
			"The call failed: bad (code -32602) true"},
		{`7`, "The call failed: read the answer of MCP server calc"},
	} {
		go func() {
			out, err := tools[0].Call(t.Context(), agent.Call{ID: "t2", Input: json.RawMessage(`{"a":1}`)})
			text := out.Text + map[bool]string{true: " true", false: " false"}[out.IsError]
			if err != nil {
				text = err.Error()
			}
			answer <- text
		}()
		ask := p.next()
		if message := ask.Request["message"].(map[string]any); message["method"] != "tools/call" {
			t.Errorf("%+v", ask)
		}
		p.says(`{"type":"control_response","response":{"subtype":"success","request_id":"` + ask.RequestID + `","response":` + c.response + `}}`)
		if got := <-answer; !strings.HasPrefix(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// A question of the session is one to the program; what it answers decides, and its end
// is a denial.
func TestPermissions(t *testing.T) {
	p := start(t)
	s := &driven{}
	done := p.serve(s, true)
	q := task.Question{ID: "q1", Digest: "d1", Task: "a1", Tool: "Bash", ToolUseID: "t1", Reason: "no rule",
		Input: json.RawMessage(`{"command":"make"}`), Suggest: "Bash(make:*)"}
	for i, c := range []struct {
		answer string
		want   control.DecideRequest
	}{
		{`{"behavior":"allow","updatedInput":{"command":"make"}}`, control.DecideRequest{Reply: task.Reply{Allow: true}}},
		{`{"behavior":"allow","updatedInput":{"command":"ls"}}`,
			control.DecideRequest{Reply: task.Reply{Allow: true, Input: json.RawMessage(`{"command":"ls"}`)}}},
		{`{"behavior":"allow","updatedPermissions":[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"make:*"}],` +
			`"behavior":"allow","destination":"localSettings"}]}`,
			control.DecideRequest{Reply: task.Reply{Allow: true}, Always: "Bash(make:*)"}},
		{`{"behavior":"allow","updatedPermissions":[{"type":"addRules","rules":[{"toolName":"Bash"}],"behavior":"allow",` +
			`"destination":"localSettings"}]}`, control.DecideRequest{Reply: task.Reply{Allow: true}}},
		{`{"behavior":"deny","message":"no way"}`, control.DecideRequest{Reply: task.Reply{Reason: "no way"}}},
		{`{"behavior":"perhaps"}`, control.DecideRequest{Reply: task.Reply{Reason: "the program's decision is neither allow nor deny"}}},
	} {
		q.ID = "q" + string(rune('1'+i))
		s.questions <- control.Approvals{Version: int64(i + 1), Questions: []task.Question{q}}
		ask := p.next()
		for ask.Type == "system" {
			ask = p.next()
		}
		if ask.Request["subtype"] != "can_use_tool" || ask.Request["tool_use_id"] != "t1" || ask.Request["agent_id"] != "a1" {
			t.Errorf("%+v", ask)
		}
		p.says(`{"type":"control_response","response":{"subtype":"success","request_id":"` + ask.RequestID + `","response":` + c.answer + `}}`)
		if l := p.next(); l.State != "running" {
			t.Errorf("%+v", l)
		}
		got := <-s.decided
		if got.ID != q.ID || got.Digest != "d1" || got.Always != c.want.Always || got.Reply.Allow != c.want.Reply.Allow ||
			got.Reply.Reason != c.want.Reply.Reason || string(got.Reply.Input) != string(c.want.Reply.Input) {
			t.Errorf("%s: %+v", c.answer, got)
		}
	}
	// Somebody else is faster: the program is told that nobody waits any more.
	q.ID = "q8"
	s.questions <- control.Approvals{Version: 8, Questions: []task.Question{q}}
	if l := p.next(); l.State != "requires_action" {
		t.Errorf("%+v", l)
	}
	ask := p.next()
	s.questions <- control.Approvals{Version: 9}
	if l := p.next(); l.Type != "control_cancel_request" || l.RequestID != ask.RequestID {
		t.Errorf("%+v", l)
	}
	if l := p.next(); l.State != "running" {
		t.Errorf("%+v", l)
	}
	// A program that goes away decides nothing, neither then nor later.
	q.ID = "q9"
	s.questions <- control.Approvals{Version: 10, Questions: []task.Question{q}}
	p.next()
	p.next()
	p.in.Close()
	p.next()
	for i := range 2 {
		if got := <-s.decided; got.Reply.Allow || !strings.Contains(got.Reply.Reason, ErrEnded.Error()) {
			t.Errorf("%+v", got)
		}
		if i == 0 {
			q.ID = "qa"
			s.questions <- control.Approvals{Version: 11, Questions: []task.Question{q}}
			p.next()
			p.next()
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// asked puts a question to the program, which answers it, and returns the program's request
// and the decisions.
func (p *program) asked(s *driven, version int64, q task.Question, answer string, decisions int) (request map[string]any,
	got []control.DecideRequest) {
	p.t.Helper()
	s.questions <- control.Approvals{Version: version, Questions: []task.Question{q}}
	ask := p.next()
	for ask.Type == "system" {
		ask = p.next()
	}
	p.says(`{"type":"control_response","response":{"request_id":"` + ask.RequestID + `",` + answer + `}}`)
	p.next() // running
	for range decisions {
		got = append(got, <-s.decided)
	}
	return ask.Request, got
}

const success = `"subtype":"success","response":`

// Questions of MCP servers are put to a program that decides about nothing else.
func TestForms(t *testing.T) {
	p := start(t)
	s := &driven{}
	p.serve(s, false)
	form := task.FormInput{Message: "who?", Server: "srv", Schema: json.RawMessage(`{"type":"object","properties":{"b":{},"a":{}}}`)}
	visit := task.FormInput{Message: "sign in, and more", Server: "srv", Schema: json.RawMessage(`{"type":"object"}`),
		Visit: &task.FormVisit{Message: "sign in", URL: "https://x.test", ID: "e1"}}
	for i, c := range []struct {
		form          task.FormInput
		answer        string
		request, want string
	}{
		{form, success + `{"action":"accept","content":{"a":"me"}}`,
			`{"mcp_server_name":"srv","message":"who?","mode":"form","property_order":["b","a"],` +
				`"requested_schema":{"properties":{"a":{},"b":{}},"type":"object"},"subtype":"elicitation"}`,
			`{"allow":true,"input":{"a":"me"}}`},
		{visit, success + `{"action":"accept"}`,
			`{"elicitation_id":"e1","mcp_server_name":"srv","message":"sign in","mode":"url","subtype":"elicitation","url":"https://x.test"}`,
			`{"allow":true,"input":{}}`},
		{form, success + `{"action":"decline"}`, "", `{"allow":false,"reason":"the program that drives this session declined"}`},
		{form, success + `{"action":"cancel"}`, "", `{"allow":false,"dismissed":true}`},
		{form, success + `{"action":"perhaps"}`, "", `{"allow":false,"dismissed":true}`},
		{form, `"subtype":"error","error":"unknown"`, "",
			`{"allow":false,"reason":"nobody answered: the program that drives this session answered: unknown","dismissed":true}`},
	} {
		input, _ := json.Marshal(c.form)
		q := task.Question{ID: fmt.Sprint("q", i), Digest: "d", Kind: task.Form, Tool: "mcp__srv", Input: input}
		request, got := p.asked(s, int64(i+1), q, c.answer, 1)
		if text, _ := json.Marshal(request); c.request != "" && string(text) != c.request {
			t.Errorf("asked %s, want %s", text, c.request)
		}
		if text, _ := json.Marshal(got[0].Reply); string(text) != c.want || got[0].ID != q.ID {
			t.Errorf("%s: %s, want %s", c.answer, text, c.want)
		}
	}
}

// Questions of the model are answered in the input of the call.
func TestChoices(t *testing.T) {
	p := start(t)
	s := &driven{}
	p.serve(s, true)
	for i, c := range []struct{ input, answer, want string }{
		{`{"questions":[{"question":"Which?"}]}`, `{"behavior":"allow","updatedInput":{"answers":{"Which?":"this"}}}`, `{"allow":true,"text":"this"}`},
		{`{"questions":[{"question":"A?"},{"question":"B?"}]}`,
			`{"behavior":"allow","updatedInput":{"answers":{"B?":["x","y"],"A?":"z"},"response":"hurry"}}`,
			`{"allow":true,"text":"A? z\nB? x, y\nhurry"}`},
		{`{"questions":[{"question":"Which?"}]}`, `{"behavior":"allow"}`, `{"allow":false,"reason":"the program's answer cannot be read"}`},
		{`{"questions":[{"question":"Which?"}]}`, `{"behavior":"allow","updatedInput":{}}`,
			`{"allow":false,"reason":"the program allowed the call and gave no answers"}`},
		{`{"questions":[{"question":"Which?"}]}`, `{"behavior":"deny","message":"later"}`, `{"allow":false,"reason":"later"}`},
	} {
		q := task.Question{ID: fmt.Sprint("q", i), Digest: "d", Kind: task.Choice, Tool: "AskUserQuestion", Input: json.RawMessage(c.input)}
		_, got := p.asked(s, int64(i+1), q, success+c.answer, 1)
		if text, _ := json.Marshal(got[0].Reply); string(text) != c.want {
			t.Errorf("%s: %s, want %s", c.answer, text, c.want)
		}
	}
}

// A decision that the session cannot take does not leave the call waiting.
func TestRefusedDecisions(t *testing.T) {
	p := start(t)
	s := &driven{refuse: func(req control.DecideRequest) error {
		switch {
		case req.Always != "":
			return &control.Error{Code: control.Conflict, Message: "the file cannot be written"}
		case len(req.Reply.Input) > 0:
			return &control.Error{Code: control.Invalid, Message: "the new input is too large"}
		}
		return nil
	}}
	p.serve(s, true)
	q := task.Question{ID: "q1", Digest: "d1", Tool: "Bash", Input: json.RawMessage(`{"command":"make"}`), Suggest: "Bash(make:*)"}
	_, got := p.asked(s, 1, q, success+`{"behavior":"allow","updatedPermissions":[{"type":"addRules","rules":[{"toolName":"Bash",`+
		`"ruleContent":"make:*"}],"behavior":"allow","destination":"localSettings"}]}`, 2)
	if got[0].Always == "" || got[1].Always != "" || !got[1].Reply.Allow {
		t.Errorf("a rule that is not kept: %+v", got)
	}
	q.ID = "q2"
	_, got = p.asked(s, 2, q, success+`{"behavior":"allow","updatedInput":{"command":"ls"}}`, 2)
	if !got[0].Reply.Allow || got[1].Reply.Allow || !strings.Contains(got[1].Reply.Reason, "too large") {
		t.Errorf("an input that is refused: %+v", got)
	}
	q.ID = "q3"
	p.asked(s, 3, q, success+`{"behavior":"deny","message":"no","interrupt":true}`, 1)
	if s.mu.Lock(); s.stopped != 1 {
		t.Errorf("the turn was broken off %d times", s.stopped)
	}
	s.mu.Unlock()
}

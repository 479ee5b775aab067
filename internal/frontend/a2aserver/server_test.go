package a2aserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/assemble/bare"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = 20 * time.Second
	token    = "secret-secret-secret"
)

// script is what agents do, by their prompt: those that wait do so until there is a file go.
const script = `version: 1
agents:
  '*':
    - {when: {prompt_contains: fails}, error: {status: 400, message: "the model refuses"}}
    - {when: {prompt_contains: zippy, last_contains: again}, delay: 100ms, text: "another answer", repeat: -1}
    - {when: {prompt_contains: zippy}, text: "this is the answer", repeat: -1}
    - {when: {prompt_contains: wait, last_contains: "that is all"}, text: "I have waited"}
    - {when: {prompt_contains: wait, last_contains: wait}, repeat: -1, tools: [{name: Read, input: {file_path: none}}], delay: 100ms}
    - {when: {prompt_contains: wait}, repeat: -1, tools: [{name: Read, input: {file_path: "none{{turn}}"}}], delay: 300ms}
    - {when: {prompt_contains: asks, last_contains: asks}, delay: 300ms, repeat: -1, tools: [{name: Bash, input: {command: "touch made"}}]}
    - {when: {prompt_contains: asks}, text: "was told: {{last}}", repeat: -1}
`

// An agent that waits for a message after its answer asks for one. What it said last is what it asks.
func TestIdle(t *testing.T) {
	st := newStation(t, func(c *assemble.Config) { c.Settings.Agents.MultiTurn = true }).open()
	one := st.send(say("m1", "zippy"))
	if one.Status.State != a2a.InputRequired || a2a.Text(one.Status.Message.Parts) != "this is the answer" {
		t.Fatalf("%+v", one.Status)
	}
	two := st.send(say("m2", "again", to(one)))
	if two.Status.State != a2a.InputRequired || len(two.History) != 3 || a2a.Text(two.Status.Message.Parts) != "another answer" {
		t.Errorf("%+v", two)
	}
	var end a2a.Task
	if err := st.call(a2a.CancelTask, a2a.TaskRequest{ID: one.ID}, &end); err != nil || end.Status.State != a2a.Canceled {
		t.Errorf("%+v, %v", end.Status, err)
	}
}

// A task that is in its file and was not started is started by the next server, once.
func TestNotStarted(t *testing.T) {
	st := newStation(t)
	files, err := openStore(st.cfg.Root, st.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.cfg.Root.Project(st.dir).Ensure(); err != nil {
		t.Fatal(err)
	}
	m := say("m1", "zippy").Message
	one, err := files.create("general-purpose", *m, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	st.open()
	if got := st.send(say("m1", "zippy")); got.ID != one.id || got.Status.State != a2a.Completed {
		t.Errorf("%+v", got)
	}
	// The same, if the agent was started and that was not noted any more.
	if err := one.change(func(sv *saved) { sv.Task = "" }); err != nil {
		t.Fatal(err)
	}
	st.stop()
	st.open()
	if got := st.send(say("m1", "zippy")); got.ID != one.id || got.Status.State != a2a.Completed {
		t.Errorf("%+v", got)
	}
	if page, err := st.s.List(t.Context(), control.ListRequest{All: true}); err != nil || len(page.Tasks) != 1 {
		t.Errorf("%d tasks, %v", len(page.Tasks), err)
	}
}

// station is a server on a session, which later servers share.
type station struct {
	t   *testing.T
	dir string
	s   *assemble.Session
	cfg Config

	at   string
	stop func()
}

func newStation(t *testing.T, change ...func(*assemble.Config)) *station {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dv") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "script.yaml"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + dir, "TMPDIR=" + dir, "HOME=" + dir}
	root := home.At(filepath.Join(dir, "h"))
	set := settings.Settings{Options: options.Default()}
	set.Sandbox.Mode = "off"
	c := assemble.Config{Config: bare.Config{Settings: set, Root: root, Folder: dir, Session: task.NewSessionID(), Role: session.RoleRun, Version: "test", Env: env},
		Model: "script:" + filepath.Join(dir, "script.yaml"), Program: agents.Program{AskWait: time.Minute}}
	for _, f := range change {
		f(&c)
	}
	st := &station{t: t, dir: dir}
	if st.s, err = assemble.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.s.Close(); err != nil {
			t.Error(err)
		}
	})
	st.cfg = Config{Connect: func(context.Context) (control.API, func(), error) { return st.s, func() {}, nil },
		Agents: func(context.Context) ([]Agent, error) {
			return []Agent{{"general-purpose", "does all"}, {"explore", "looks around"}}, nil
		},
		Usual: "general-purpose", Root: root, Dir: filepath.Join(root.Project(dir).Dir(), "a2a"), Token: token, Cwd: dir, Env: env, Version: "1"}
	return st
}

// open starts a server, which is closed at the end of the test at the latest.
func (st *station) open() *station {
	t := st.t
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, err := New(st.cfg, l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	st.at = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		if err := srv.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	st.stop = sync.OnceFunc(func() {
		cancel()
		served.Wait()
		http.DefaultClient.CloseIdleConnections()
	})
	t.Cleanup(st.stop)
	return st
}

// request makes one request, and returns its status and body.
func (st *station) request(path, body string, headers ...string) (int, string) {
	st.t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(waittest.Context(st.t, patience), method, st.at+path, strings.NewReader(body))
	if err != nil {
		st.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set(a2a.VersionHeader, a2a.Version)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		st.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		st.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// call calls a method of the usual agent. An error is returned as its code and text.
func (st *station) call(method string, params, into any) error {
	st.t.Helper()
	data, err := json.Marshal(params)
	if err != nil {
		st.t.Fatal(err)
	}
	_, body := st.request(rpcPath, fmt.Sprintf(`{"jsonrpc":"2.0","id":"x","method":%q,"params":%s}`, method, data))
	var got struct {
		ID     string
		Result json.RawMessage
		Error  *a2a.Error
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.ID != "x" {
		st.t.Fatalf("%s: %v", body, err)
	}
	if got.Error != nil {
		return fmt.Errorf("%d %w", got.Error.Code, got.Error)
	}
	if err := json.Unmarshal(got.Result, into); err != nil {
		st.t.Fatal(err)
	}
	return nil
}

func say(id, text string, change ...func(*a2a.SendRequest)) a2a.SendRequest {
	q := a2a.SendRequest{Message: &a2a.Message{ID: id, Role: a2a.RoleUser, Parts: []a2a.Part{a2a.TextPart(text)}}, Configuration: &a2a.Configuration{}}
	for _, f := range change {
		f(&q)
	}
	return q
}

func to(t a2a.Task) func(*a2a.SendRequest) { return func(q *a2a.SendRequest) { q.Message.Task = t.ID } }
func within(context string) func(*a2a.SendRequest) {
	return func(q *a2a.SendRequest) { q.Message.Context = context }
}
func atOnce(q *a2a.SendRequest) { q.Configuration.Immediately = true }
func data(text string) func(*a2a.SendRequest) {
	return func(q *a2a.SendRequest) { q.Message.Parts = []a2a.Part{{Data: json.RawMessage(text)}} }
}

func (st *station) send(q a2a.SendRequest) a2a.Task {
	st.t.Helper()
	var e a2a.Event
	if err := st.call(a2a.SendMessage, q, &e); err != nil {
		st.t.Fatal(err)
	}
	return *e.Task
}

func (st *station) refuses(what error, code int, part string) {
	st.t.Helper()
	if what == nil || !strings.HasPrefix(what.Error(), fmt.Sprint(code)+" ") || !strings.Contains(what.Error(), part) {
		st.t.Errorf("%v, want %d %s", what, code, part)
	}
}

func (st *station) get(t a2a.Task) (now a2a.Task) {
	st.t.Helper()
	if err := st.call(a2a.GetTask, a2a.TaskRequest{ID: t.ID}, &now); err != nil {
		st.t.Fatal(err)
	}
	return now
}

func (st *station) until(t a2a.Task, state a2a.State) (now a2a.Task) {
	st.t.Helper()
	if !waittest.Until(patience, func() bool { now = st.get(t); return now.Status.State == state }) {
		st.t.Fatalf("it is %+v, and not %s", now.Status, state)
	}
	return now
}

// Who has no token, comes from a page or asks for another host gets nothing of the project.
func TestAccess(t *testing.T) {
	st := newStation(t).open()
	card := "/agents/explore" + a2a.CardPath
	for name, c := range map[string]struct {
		path, body string
		headers    []string
		code       int
		says       string
	}{
		"public card":      {a2a.CardPath, "", []string{"Authorization: none"}, 200, `"protocolVersion":"1.0"`},
		"card":             {card, "", nil, 200, `"looks around"`},
		"card of nobody":   {"/agents/secret" + a2a.CardPath, "", nil, 404, "offered"},
		"card, no token":   {card, "", []string{"Authorization: Bearer wrong"}, 401, "the token is missing or wrong"},
		"call, no token":   {rpcPath, "{}", []string{"Authorization: none"}, 401, "the token is missing or wrong"},
		"other host":       {a2a.CardPath, "", []string{"Host: evil.example"}, 403, "is not this server"},
		"page of a site":   {rpcPath, "{}", []string{"Origin: https://evil.example"}, 403, "is not this server"},
		"cross-site":       {a2a.CardPath, "", []string{"Sec-Fetch-Site: cross-site"}, 403, "another site"},
		"no JSON":          {rpcPath, "a=b", []string{"Content-Type: text/plain"}, 415, "not application/json"},
		"broken":           {rpcPath, "{", nil, 200, "-32700"},
		"a list":           {rpcPath, "[]", nil, 200, "-32600"},
		"no version":       {rpcPath, `{"jsonrpc":"2.0","id":7,"method":"GetTask"}`, []string{a2a.VersionHeader + ": "}, 200, `"id":7,"error":{"code":-32009`},
		"no method":        {rpcPath, `{"jsonrpc":"2.0","id":7}`, nil, 200, `"id":7,"error":{"code":-32600`},
		"method of 0.3":    {rpcPath, `{"jsonrpc":"2.0","id":7,"method":"message/send"}`, nil, 200, "message/send of version 0.3 is SendMessage"},
		"wrong parameters": {rpcPath, `{"jsonrpc":"2.0","id":7,"method":"GetTask","params":{"id":7}}`, nil, 200, "-32602"},
		"other agent":      {"/agents/nobody" + rpcPath, `{"jsonrpc":"2.0","id":7,"method":"GetTask"}`, nil, 200, "no agent"},
		"elsewhere":        {"/etc/passwd", "", nil, 404, "no such address"},
		"too large":        {rpcPath, `{"jsonrpc":"2.0","x":"` + strings.Repeat("x", mostBody) + `"}`, nil, 413, "larger than"},
	} {
		code, body := st.request(c.path, c.body, c.headers...)
		if code != c.code || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d %.300s, want %d %s", name, code, body, c.code, c.says)
		}
		if c.code != 200 && strings.Contains(body, "looks around") {
			t.Errorf("%s: told %s", name, body)
		}
	}
	if _, public := st.request(a2a.CardPath, ""); strings.Contains(public, "explore") || strings.Contains(public, "looks around") {
		t.Errorf("the public card tells of the project: %s", public)
	}
}

// Messages that say nothing usable are refused by name, and start nothing.
func TestBadMessages(t *testing.T) {
	st := newStation(t).open()
	for name, c := range map[string]struct {
		q    a2a.SendRequest
		code int
		says string
	}{
		"none":     {a2a.SendRequest{}, a2a.CodeParams, "message: missing"},
		"no ID":    {say("", "zippy"), a2a.CodeParams, "messageId"},
		"long ID":  {say(strings.Repeat("x", 300), "zippy"), a2a.CodeParams, "messageId"},
		"role":     {say("m", "zippy", func(q *a2a.SendRequest) { q.Message.Role = a2a.RoleAgent }), a2a.CodeParams, "role"},
		"empty":    {say("m", " "), a2a.CodeParams, "empty"},
		"no parts": {say("m", "", func(q *a2a.SendRequest) { q.Message.Parts = nil }), a2a.CodeParams, "parts"},
		"picture": {say("m", "", func(q *a2a.SendRequest) {
			q.Message.Parts = []a2a.Part{{Raw: []byte{1, 2}, MediaType: "image/png"}}
		}), a2a.CodeContentType, "parts[0]"},
		"unknown task": {say("m", "zippy", func(q *a2a.SendRequest) { q.Message.Task = "a2a-x" }), a2a.CodeTaskNotFound, "not known"},
		"push": {say("m", "zippy", func(q *a2a.SendRequest) {
			q.Configuration.Push = &a2a.PushConfig{URL: "http://10.0.0.1/"}
		}), a2a.CodeParams, "neither https nor"},
	} {
		t.Run(name, func(t *testing.T) {
			var e a2a.Event
			st := *st
			st.t = t
			st.refuses(st.call(a2a.SendMessage, c.q, &e), c.code, c.says)
		})
	}
	if page, err := st.s.List(t.Context(), control.ListRequest{All: true}); err != nil || len(page.Tasks) != 0 {
		t.Errorf("started %d tasks: %v", len(page.Tasks), err)
	}
}

// One message is one task, however often it comes. A task is that of an agent, and in a context.
func TestTasks(t *testing.T) {
	st := newStation(t).open()
	first := st.send(say("m1", "zippy", within("talk")))
	if again := st.send(say("m1", "zippy", within("talk"))); again.ID != first.ID {
		t.Error("the same message began another task")
	}
	if first.Status.State != a2a.Completed || first.Context != "talk" || a2a.Text(first.Artifacts[0].Parts) != "this is the answer" {
		t.Errorf("%+v", first)
	}
	failed := st.send(say("m2", "fails", within("talk")))
	if failed.Status.State != a2a.Failed || !strings.Contains(a2a.Text(failed.Status.Message.Parts), "the model refuses") {
		t.Errorf("%+v", failed.Status)
	}
	_, body := st.request("/agents/explore"+rpcPath, `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"`+first.ID+`"}}`)
	if !strings.Contains(body, "-32001") {
		t.Errorf("another agent has it: %s", body)
	}
	for range 3 {
		st.send(say("m"+first.ID, "zippy"))
		first.ID += "x"
	}
	var all []string
	size, token := 2, ""
	for {
		var list a2a.List
		if err := st.call(a2a.ListTasks, a2a.ListRequest{PageSize: &size, PageToken: token}, &list); err != nil || list.TotalSize != 5 {
			t.Fatalf("%+v, %v", list, err)
		}
		for _, one := range list.Tasks {
			if all = append(all, one.ID); one.Artifacts != nil {
				t.Error("it has artifacts")
			}
		}
		if token = list.Next; token == "" {
			break
		}
	}
	if len(all) != 5 || len(slices.Compact(slices.Sorted(slices.Values(all)))) != 5 {
		t.Errorf("listed %v", all)
	}
	var list a2a.List
	if err := st.call(a2a.ListTasks, a2a.ListRequest{Context: "talk", Status: a2a.Failed, Artifacts: true}, &list); err != nil || len(list.Tasks) != 1 || list.Tasks[0].ID != failed.ID {
		t.Errorf("%+v, %v", list, err)
	}
	zero := 0
	st.refuses(st.call(a2a.ListTasks, a2a.ListRequest{PageSize: &zero}, &list), a2a.CodeParams, "pageSize")
	st.refuses(st.call(a2a.ListTasks, a2a.ListRequest{Status: "TASK_STATE_ODD"}, &list), a2a.CodeParams, "status")
}

// What the agent asks is answered by whoever was shown it, and by nothing that is no clear answer.
func TestQuestion(t *testing.T) {
	st := newStation(t).open()
	one := st.send(say("m1", "asks"))
	if one.Status.State != a2a.InputRequired || !strings.Contains(a2a.Text(one.Status.Message.Parts), "command: touch made") {
		t.Fatalf("%+v", one.Status)
	}
	var e a2a.Event
	st.refuses(st.call(a2a.SendMessage, say("m2", "what for?", to(one)), &e), a2a.CodeParams, "answer allow or deny")
	st.refuses(st.call(a2a.SendMessage, say("m3", "", to(one), data(`{"questionId":"q0","decision":"allow"}`)), &e), a2a.CodeUnsupported, "not open any more")
	st.refuses(st.call(a2a.SendMessage, say("m4", "allow", to(one), within("other")), &e), a2a.CodeParams, "contextId")
	if _, err := os.Stat(filepath.Join(st.dir, "made")); err == nil {
		t.Error("it was allowed")
	}
	var q struct {
		ID string `json:"questionId"`
	}
	if err := json.Unmarshal(one.Status.Message.Parts[1].Data, &q); err != nil {
		t.Fatal(err)
	}
	done := st.send(say("m5", "", to(one), data(`{"questionId":"`+q.ID+`","decision":"deny","reason":"not today"}`)))
	if done.Status.State != a2a.Completed || !strings.Contains(a2a.Text(done.Artifacts[0].Parts), "not today") {
		t.Errorf("%+v", done)
	}
	if len(done.History) != 3 || done.History[1].Role != a2a.RoleAgent || done.History[2].ID != "m5" {
		t.Errorf("history %+v", done.History)
	}

	// A question that no client was shown is not answered by a word that was meant for another.
	two := st.send(say("m6", "asks", atOnce))
	if !waittest.Until(patience, func() bool {
		open, err := st.s.Approvals(t.Context(), control.ApprovalsRequest{})
		return err == nil && len(open.Questions) == 1
	}) {
		t.Fatal("it asks nothing")
	}
	st.refuses(st.call(a2a.SendMessage, say("m7", "allow", to(two)), &e), a2a.CodeUnsupported, "not been shown")
	st.until(two, a2a.InputRequired)
	if done := st.send(say("m8", "Yes.", to(two))); done.Status.State != a2a.Completed {
		t.Errorf("%+v", done.Status)
	}
	if _, err := os.Stat(filepath.Join(st.dir, "made")); err != nil {
		t.Error("it was not allowed")
	}
}

// A message to an agent at work is mail. It arrives once, whatever comes twice.
func TestMail(t *testing.T) {
	st := newStation(t).open()
	one := st.send(say("m1", "wait", atOnce))
	st.until(one, a2a.Working)
	st.send(say("m2", "that is all", to(one), atOnce))
	st.send(say("m2", "that is all", to(one), atOnce))
	done := st.until(one, a2a.Completed)
	if a2a.Text(done.Artifacts[0].Parts) != "I have waited" || len(done.History) != 2 {
		t.Errorf("%+v", done)
	}
	var e a2a.Event
	st.refuses(st.call(a2a.SendMessage, say("m3", "more", to(one)), &e), a2a.CodeUnsupported, "has ended")
	// A local user may let the agent go on; the task has ended all the same.
	if _, err := st.s.Send(t.Context(), control.SendRequest{Ref: one.ID, Text: "and zippy"}); err != nil {
		t.Fatal(err)
	}
	if now := st.get(one); now.Status.State != a2a.Completed {
		t.Errorf("%+v", now.Status)
	}
	if _, err := st.s.Stop(t.Context(), control.StopRequest{Refs: []string{one.ID}}); err != nil {
		t.Fatal(err)
	}
	if now := st.get(one); now.Status.State != a2a.Completed {
		t.Errorf("%+v", now.Status)
	}
}

// A cancelled task stops its agent.
func TestCancel(t *testing.T) {
	st := newStation(t).open()
	one := st.send(say("m1", "wait", atOnce))
	var got a2a.Task
	if err := st.call(a2a.CancelTask, a2a.TaskRequest{ID: one.ID}, &got); err != nil || got.Status.State != a2a.Canceled {
		t.Errorf("%+v, %v", got.Status, err)
	}
	if err := st.call(a2a.CancelTask, a2a.TaskRequest{ID: one.ID}, &got); err != nil || got.Status.State != a2a.Canceled {
		t.Errorf("again: %+v, %v", got.Status, err)
	}
	if r, err := st.s.Get(t.Context(), one.ID); err != nil || r.Status != task.Killed || r.Cause.Actor != task.ByClient {
		t.Errorf("%+v, %v", r.Cause, err)
	}
	done := st.send(say("m2", "zippy"))
	st.refuses(st.call(a2a.CancelTask, a2a.TaskRequest{ID: done.ID}, &got), a2a.CodeNotCancelable, "has ended")
}

// stream reads the events of a stream, to the end or until it has n.
func (st *station) stream(method string, params any, n int) (events []a2a.Event) {
	st.t.Helper()
	data, err := json.Marshal(params)
	if err != nil {
		st.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(waittest.Context(st.t, patience))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, st.at+rpcPath, bytes.NewBufferString(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+string(data)+`}`))
	if err != nil {
		st.t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + token}, a2a.VersionHeader: {a2a.Version}}
	r.Header.Set(a2a.VersionHeader, a2a.Version)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		st.t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 4<<20)
	for len(events) != n && in.Scan() {
		text, ok := strings.CutPrefix(in.Text(), "data: ")
		if !ok {
			continue
		}
		var a struct{ Result a2a.Event }
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			st.t.Fatal(err)
		}
		events = append(events, a.Result)
	}
	return events
}

// A stream begins with the task and ends with its end; others of the same task are not disturbed when one is left.
func TestStream(t *testing.T) {
	st := newStation(t).open()
	all := st.stream(a2a.SendStreamingMessage, say("m1", "zippy"), -1)
	if n := len(all); n < 1 || all[0].Task == nil {
		t.Fatalf("%+v", all)
	} else if last := all[n-1]; n > 1 && (last.Status == nil || last.Status.Status.State != a2a.Completed || all[n-2].Artifact == nil) {
		t.Errorf("%+v", all)
	}
	one := st.send(say("m2", "wait", atOnce))
	ended := make(chan []a2a.Event)
	go func() { ended <- st.stream(a2a.SubscribeToTask, a2a.TaskRequest{ID: one.ID}, -1) }()
	if first := st.stream(a2a.SubscribeToTask, a2a.TaskRequest{ID: one.ID}, 1); len(first) != 1 || first[0].Task.ID != one.ID {
		t.Errorf("%+v", first)
	}
	st.send(say("m3", "that is all", to(one), atOnce))
	got := <-ended
	if last := got[len(got)-1]; last.Status == nil || last.Status.Status.State != a2a.Completed {
		t.Errorf("%+v", got)
	}
	var none a2a.Event
	st.refuses(st.call(a2a.SubscribeToTask, a2a.TaskRequest{ID: one.ID}, &none), a2a.CodeUnsupported, "has ended")
	var tasks a2a.Task
	st.refuses(st.call(a2a.GetTask, a2a.TaskRequest{ID: "a2a-none"}, &tasks), a2a.CodeTaskNotFound, "not known")
}

// A server that ends leaves agents at work; the next one knows their tasks, and sends what is owed.
func TestRestart(t *testing.T) {
	var mu sync.Mutex
	var bodies []string
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Authorization") != "Bearer cred" || r.Header.Get(a2a.TokenHeader) != "tok" {
			t.Errorf("%v %v", r.Header, err)
		}
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, string(data))
	}))
	defer hook.Close()
	st := newStation(t).open()
	one := st.send(say("m1", "wait", atOnce, func(q *a2a.SendRequest) {
		q.Configuration.Push = &a2a.PushConfig{URL: hook.URL, Token: "tok", Auth: &a2a.Auth{Scheme: "Bearer", Credentials: "cred"}}
	}))
	st.until(one, a2a.Working)
	st.stop()
	if _, err := st.s.Send(t.Context(), control.SendRequest{Ref: one.ID, Text: "that is all"}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.s.Wait(t.Context(), control.WaitRequest{Refs: []string{one.ID}}); err != nil {
		t.Fatal(err)
	}
	st.open()
	if done := st.get(one); done.Status.State != a2a.Completed || a2a.Text(done.Artifacts[0].Parts) != "I have waited" {
		t.Errorf("%+v", done)
	}
	owed := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(bodies, func(b string) bool {
			return strings.Contains(b, string(a2a.Completed)) && strings.Contains(b, "I have waited") && strings.Contains(b, one.ID)
		})
	}
	if !waittest.Until(patience, owed) {
		t.Errorf("sent %q", bodies)
	}
	if !waittest.Until(patience, func() bool { // else the end of the server may come before the answer
		data, err := os.ReadFile(filepath.Join(st.cfg.Dir, one.ID+".json"))
		return err == nil && strings.Contains(string(data), `"pushed":true`)
	}) {
		t.Error("the end is owed still")
	}
	st.stop()
	count := func(id string) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, b := range bodies {
			if strings.Contains(b, id) {
				n++
			}
		}
		return n
	}
	sent := count(one.ID)
	st.open() // what was sent is not owed any more
	other := st.send(say("m2", "zippy", func(q *a2a.SendRequest) {
		q.Configuration.Push = &a2a.PushConfig{URL: hook.URL, Token: "tok", Auth: &a2a.Auth{Scheme: "Bearer", Credentials: "cred"}}
	}))
	if !waittest.Until(patience, func() bool { return count(other.ID) > 0 }) {
		t.Error("the other task is not told of")
	}
	if n := count(one.ID); n != sent {
		t.Errorf("sent %d times again", n-sent)
	}
}

// Nothing is sent to where it may not be, whatever a name turns out to lead to.
func TestPushAddresses(t *testing.T) {
	local, public := &Server{}, &Server{cfg: Config{URL: "https://drover.example"}}
	for _, c := range []struct {
		url          string
		local, other bool
	}{
		{"https://hooks.example/x", true, true}, {"http://hooks.example/x", false, false}, {"http://127.0.0.1:8080/x", true, false},
		{"http://localhost/x", true, false}, {"https://127.0.0.1/x", true, false}, {"https://192.168.0.1/x", false, false},
		{"https://[::ffff:10.0.0.1]/x", false, false}, {"https://169.254.169.254/", false, false}, {"https://user:pass@hooks.example/", false, false},
		{"ftp://hooks.example/", false, false}, {"hooks.example", false, false}, {"", false, false},
	} {
		for s, want := range map[*Server]bool{local: c.local, public: c.other} {
			if _, err := s.checkPush(a2a.PushConfig{URL: c.url}); (err == nil) != want {
				t.Errorf("%s: %v, want %v", c.url, err, want)
			}
		}
	}
	for _, p := range []a2a.PushConfig{{Token: "a\r\nX: y"}, {Auth: &a2a.Auth{Scheme: "", Credentials: "x"}}, {Auth: &a2a.Auth{Scheme: "Bearer", Credentials: "x\n"}}} {
		p.URL = "https://hooks.example/"
		if _, err := local.checkPush(p); err == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
	hook := httptest.NewServer(http.NotFoundHandler())
	defer hook.Close()
	client := public.pusher()
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, hook.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(r); err == nil || !strings.Contains(err.Error(), "this machine") {
		t.Errorf("reached: %v", err)
	}
}

// A task whose session was removed has failed; one that was refused is rejected.
func TestGone(t *testing.T) {
	st := newStation(t)
	api := &refusing{API: st.s}
	st.cfg.Connect = func(context.Context) (control.API, func(), error) { return api, func() {}, nil }
	st.open()
	api.set(&control.Error{Code: control.Invalid, Message: "no budget is left"})
	if got := st.send(say("m1", "zippy")); got.Status.State != a2a.Rejected || a2a.Text(got.Status.Message.Parts) != "no budget is left" {
		t.Errorf("%+v", got.Status)
	}
	api.set(errors.New("the disk is full"))
	var e a2a.Event
	st.refuses(st.call(a2a.SendMessage, say("m2", "zippy"), &e), a2a.CodeInternal, "the disk is full")
	api.set(nil)
	if got := st.send(say("m2", "zippy")); got.Status.State != a2a.Completed { // it may be tried again
		t.Errorf("%+v", got.Status)
	}
	one := st.send(say("m3", "wait", atOnce))
	api.lose(true)
	if got := st.get(one); got.Status.State != a2a.Failed || !strings.Contains(a2a.Text(got.Status.Message.Parts), "was removed") {
		t.Errorf("%+v", got.Status)
	}
	api.lose(false)
	if _, err := st.s.Stop(t.Context(), control.StopRequest{Refs: []string{one.ID}}); err != nil {
		t.Fatal(err)
	}
}

// A stream goes on when the host of the session is gone: the next one is asked.
func TestNextHost(t *testing.T) {
	st := newStation(t)
	var mu sync.Mutex
	connects, lets := 0, 0
	st.cfg.Connect = func(context.Context) (control.API, func(), error) {
		mu.Lock()
		defer mu.Unlock()
		connects++
		return &dying{API: st.s, dies: connects == 1}, func() { mu.Lock(); defer mu.Unlock(); lets++ }, nil
	}
	st.open()
	got := st.stream(a2a.SendStreamingMessage, say("m1", "asks"), -1)
	if last := got[len(got)-1]; last.Status == nil && len(got) > 1 || got[0].Task == nil {
		t.Errorf("%+v", got)
	}
	one := st.until(*got[0].Task, a2a.InputRequired)
	if done := st.send(say("m2", "deny", to(one))); done.Status.State != a2a.Completed {
		t.Errorf("%+v", done.Status)
	}
	st.stop()
	if connects < 2 || lets != connects {
		t.Errorf("connected %d times, let go %d times", connects, lets)
	}
}

// dying is a session whose events break off at once, after which it answers nothing.
type dying struct {
	control.API
	dies bool

	mu   sync.Mutex
	dead bool
}

func (d *dying) Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error] {
	if !d.dies {
		return d.API.Events(ctx, after)
	}
	return func(yield func(task.Event, error) bool) {
		d.mu.Lock()
		d.dead = true
		d.mu.Unlock()
		yield(task.Event{}, errors.New("the connection was reset"))
	}
}

func (d *dying) gone() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return &control.Error{Code: control.Unavailable, Message: "the host is gone"}
	}
	return nil
}

func (d *dying) Info(ctx context.Context) (control.Info, error) {
	if err := d.gone(); err != nil {
		return control.Info{}, err
	}
	return d.API.Info(ctx)
}

func (d *dying) Get(ctx context.Context, ref string) (task.Record, error) {
	if err := d.gone(); err != nil {
		return task.Record{}, err
	}
	return d.API.Get(ctx, ref)
}

func (d *dying) State(ctx context.Context, r control.StateRequest) (control.State, error) {
	if err := d.gone(); err != nil {
		return control.State{}, err
	}
	return d.API.State(ctx, r)
}

// refusing is a session that starts nothing, or has lost its tasks.
type refusing struct {
	control.API
	mu   sync.Mutex
	err  error
	lost bool
}

func (r *refusing) set(err error) { r.mu.Lock(); defer r.mu.Unlock(); r.err = err }
func (r *refusing) lose(lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = lost
}

func (r *refusing) Start(ctx context.Context, reqs []control.StartRequest) ([]control.Started, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e *control.Error
	switch {
	case errors.As(r.err, &e):
		return []control.Started{{Error: e}}, nil
	case r.err != nil:
		return nil, r.err
	}
	return r.API.Start(ctx, reqs)
}

func (r *refusing) Get(ctx context.Context, ref string) (task.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost {
		return task.Record{}, control.NotFoundError(ref)
	}
	return r.API.Get(ctx, ref)
}

package mcpclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/test/mcptest"
)

// tasksV1 is one task at a server.
func tasksV1(t *testing.T, o mcptest.Options) (*mcptest.Server, *mcpclient.TasksV1, *mcpclient.Conn) {
	t.Helper()
	s := mcptest.New(o)
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	t.Cleanup(s.Close)
	pool := mcpclient.NewPool(mcpclient.Config{})
	t.Cleanup(pool.Close)
	l, err := pool.Use(t.Context(), "shop", mcpclient.Server{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v1 := mcpclient.NewTasksV1(l.Conn)
	t.Cleanup(v1.Close)
	return s, v1, c
}

// MC-02: what a server says of its tools is read once, and kept.
func TestTaskSupport(t *testing.T) {
	s, _, c := tasksV1(t, mcptest.Options{})
	support := map[string]string{}
	for _, tool := range c.Tools() {
		support[tool.Name] = tool.TaskSupport
	}
	if support[mcptest.Tool] != mcpclient.TaskRequired || support["echo"] != mcpclient.TaskForbidden || !mcpclient.MakesTasks(c) {
		t.Errorf("support %v", support)
	}
	if n := len(s.Requests("tools/list")); n != 1 {
		t.Errorf("the list was read %d times", n)
	}
	hello := string(s.Requests("initialize")[0].Params)
	if !strings.Contains(hello, `"elicitation"`) {
		t.Errorf("a server is not told that it can ask: %s", hello)
	}
}

func TestTasksV1Create(t *testing.T) {
	s, v1, _ := tasksV1(t, mcptest.Options{})
	st, immediate, err := v1.Create(t.Context(), mcptest.Tool, mcptest.Work{Hold: true, TTL: 300_000, Poll: 700, Immediate: "tea"}.JSON(), time.Minute)
	if err != nil || st.Phase != mcpclient.TaskWorking || st.ID == "" || immediate != "tea" || st.TTL != 5*time.Minute || st.Poll != 700*time.Millisecond || st.Created.IsZero() {
		t.Fatalf("%+v, %q, %v", st, immediate, err)
	}
	var params struct {
		Task struct {
			TTL int64 `json:"ttl"`
		} `json:"task"`
	}
	if err := json.Unmarshal(s.Requests("tools/call")[0].Params, &params); err != nil || params.Task.TTL != 60_000 {
		t.Errorf("asked for %+v, %v", params, err)
	}
	if got, err := v1.Get(t.Context(), st.ID); err != nil || got.Phase != mcpclient.TaskWorking {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := v1.Get(t.Context(), "nobody's"); !errors.Is(err, mcpclient.ErrTaskUnknown) {
		t.Errorf("an unknown task: %v", err)
	}
	if got, err := v1.Cancel(t.Context(), st.ID); err != nil || got.Phase != mcpclient.TaskCancelled {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := v1.Cancel(t.Context(), st.ID); !errors.Is(err, mcpclient.ErrTaskUnknown) {
		t.Errorf("a task that is over is cancelled again: %v", err)
	}
	// The error is not about the status, which a look tells.
	var refused *mcpclient.TaskRefusedError
	if _, err := v1.Result(t.Context(), st.ID); !errors.As(err, &refused) || refused.Code != -32603 {
		t.Errorf("the result of a cancelled task: %v", err)
	}
	if err := v1.Steer(t.Context(), st.ID, "more"); !errors.Is(err, mcpclient.ErrNoSteer) {
		t.Errorf("steering that is not offered: %v", err)
	}
}

// A status that comes before the answer that names its task is held until then, and
// that of others never told.
func TestTasksV1Early(t *testing.T) {
	_, v1, _ := tasksV1(t, mcptest.Options{})
	st, _, err := v1.Create(t.Context(), mcptest.Tool, mcptest.Work{Hold: true, Early: true}.JSON(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var told []mcpclient.TaskState
	stop := v1.Watch(st.ID, mcpclient.TaskWatch{State: func(s mcpclient.TaskState) { told = append(told, s) }})
	stop()
	if len(told) == 0 || slices.ContainsFunc(told, func(s mcpclient.TaskState) bool { return s.ID != st.ID }) {
		t.Errorf("told %+v", told)
	}
}

func TestTasksV1NotOffered(t *testing.T) {
	s, v1, c := tasksV1(t, mcptest.Options{NoTasks: true})
	if _, _, err := v1.Create(t.Context(), mcptest.Tool, mcptest.Work{}.JSON(), 0); !errors.Is(err, mcpclient.ErrNeedsTask) || len(s.Requests("tools/call")) != 0 {
		t.Errorf("a server without tasks was called: %v", err)
	}
	if mcpclient.MakesTasks(c) {
		t.Error("it is said to make tasks")
	}
}

// Servers refuse a plain call of such a tool in two ways.
func TestNeedsTask(t *testing.T) {
	_, _, c := tasksV1(t, mcptest.Options{})
	raw, err := c.Call(t.Context(), "tools/call", map[string]any{"name": mcptest.Tool, "arguments": map[string]any{}})
	if err != nil || !mcpclient.NeedsTask(raw, err) {
		t.Errorf("in words: %s, %v", raw, err)
	}
	if !mcpclient.NeedsTask(nil, &mcpclient.RPCError{Code: mcpclient.CodeNoMethod}) {
		t.Error("by its code it is not understood")
	}
	for _, res := range []string{`{"content":[{"type":"text","text":"no paper"}],"isError":true}`, `{"content":[{"type":"text","text":"a task"}]}`} {
		if mcpclient.NeedsTask(json.RawMessage(res), nil) {
			t.Errorf("%s is taken for such a refusal", res)
		}
	}
	if mcpclient.NeedsTask(nil, context.Canceled) {
		t.Error("a broken call is taken for such a refusal")
	}
}

// Whatever a server sends as a task, its ID counts.
func FuzzTaskV1(f *testing.F) {
	for _, seed := range []string{`{"taskId":"a","status":"working","createdAt":"2026-01-01T00:00:00Z","ttl":null,"pollInterval":1000}`,
		`{"taskId":"a","status":"odd","createdAt":7,"lastUpdatedAt":{},"ttl":"long","pollInterval":-1}`, `{"taskId":"a","ttl":1e300}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, ok := mcpclient.ReadTaskV1(raw)
		if ok && (s.ID == "" || s.TTL < 0 || s.Poll < 0 || s.Word == "" && s.Phase != "") {
			t.Errorf("%s is read as %+v", raw, s)
		}
	})
}

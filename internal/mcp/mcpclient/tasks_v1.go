package mcpclient

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// relatedTask is where revision 2025-11-25 says which task a message belongs to.
const relatedTask = "io.modelcontextprotocol/related-task"

// Bounds of tasks.
const (
	createTimeout = time.Minute
	lookTimeout   = 30 * time.Second
	maxEarly      = 64 // states of tasks that are not known yet
)

// TasksV1 speaks of one task as revision 2025-11-25 has them, over the live
// connection to a server, also when it is replaced by another. Its methods may be
// called by several goroutines. The facts come from the specification, basic
// utilities, Tasks.
type TasksV1 struct {
	conn  func(context.Context) (*Conn, error)
	token string // of the progress of the call that makes the task

	mu    sync.Mutex // guards the fields below
	on    *Conn      // that is listened to
	stops []func()
	early []TaskState   // received before the first watch, oldest first
	known chan struct{} // closed when the task is watched, or was not made
	id    string
	watch *TaskWatch
	plain *TaskOutcome // of a server that has answered without a task
}

// NewTasksV1 makes one. conn gives the live connection, such as [Lease.Conn].
func NewTasksV1(conn func(context.Context) (*Conn, error)) *TasksV1 {
	return &TasksV1{conn: conn, token: "task-" + rand.Text(), known: make(chan struct{})}
}

// Close ends the listening to the task.
func (t *TasksV1) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deaf()
	t.learn("")
}

// deaf ends the listening. The caller holds mu.
func (t *TasksV1) deaf() {
	for _, stop := range t.stops {
		stop()
	}
	t.on, t.stops = nil, nil
}

// learn stores the ID of the task, at the first call only. The caller holds mu.
func (t *TasksV1) learn(id string) {
	select {
	case <-t.known:
	default:
		t.id = id
		close(t.known)
	}
}

// live returns the current connection, and listens to it.
func (t *TasksV1) live(ctx context.Context) (*Conn, error) {
	c, err := t.conn(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.on != c {
		t.deaf()
		t.on = c
		t.stops = []func(){c.Listen("notifications/tasks/status", t.heard), c.Listen("notifications/progress", t.progressed),
			c.Serve("elicitation/create", t.asked)}
	}
	return c, nil
}

// MakesTasks reports whether a server makes tasks of calls of tools.
func MakesTasks(c *Conn) bool { return !c.Stateless() && has(c, "tasks", "requests", "tools", "call") }

// has reports whether a server has declared a capability.
func has(c *Conn, path ...string) bool {
	raw := c.Capabilities()
	for _, name := range path {
		var o map[string]json.RawMessage
		if json.Unmarshal(raw, &o) != nil || len(o[name]) == 0 || string(o[name]) == "null" || string(o[name]) == "false" {
			return false
		}
		raw = o[name]
	}
	return true
}

// Create calls a tool as a task.
func (t *TasksV1) Create(ctx context.Context, tool string, args json.RawMessage,
	ttl time.Duration) (TaskState, string, error) {
	c, err := t.live(ctx)
	if err != nil {
		return TaskState{}, "", err
	}
	if !MakesTasks(c) {
		return TaskState{}, "", fmt.Errorf("%w: server %s makes no tasks of calls of tools", ErrNeedsTask, c.Name())
	}
	wish := map[string]any{}
	if ttl > 0 {
		wish["ttl"] = ttl.Milliseconds()
	}
	raw, err := c.CallOpt(ctx, "tools/call", map[string]any{"name": tool, "arguments": args, "task": wish},
		CallOptions{Token: t.token, Timeout: createTimeout})
	if err != nil {
		return TaskState{}, "", refused(err)
	}
	var made struct {
		Task *wireTask `json:"task"`
		Meta struct {
			Immediate string `json:"io.modelcontextprotocol/model-immediate-response"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(raw, &made); err != nil {
		return TaskState{}, "", fmt.Errorf("read the task that server %s has made: %w", c.Name(), err)
	}
	if made.Task == nil || made.Task.TaskID == "" {
		return t.answered(c, raw)
	}
	return made.Task.state(), made.Meta.Immediate, nil
}

// answered stores the result of a server that has run the call without a task.
func (t *TasksV1) answered(c *Conn, raw json.RawMessage) (TaskState, string, error) {
	out, err := outcome(raw)
	if err != nil {
		return TaskState{}, "", fmt.Errorf("read the task that server %s has made: %w", c.Name(), err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learn("")
	t.plain = &out
	return TaskState{Phase: TaskCompleted, Word: "completed"}, "", nil
}

// Get looks at the task.
func (t *TasksV1) Get(ctx context.Context, id string) (TaskState, error) {
	return t.state(ctx, "tasks/get", id)
}

// Cancel ends the task. A task that is over may be unknown to the server.
func (t *TasksV1) Cancel(ctx context.Context, id string) (TaskState, error) {
	return t.state(ctx, "tasks/cancel", id)
}

func (t *TasksV1) state(ctx context.Context, method, id string) (TaskState, error) {
	c, err := t.live(ctx)
	if err != nil {
		return TaskState{}, err
	}
	raw, err := c.aboutTask(ctx, method, map[string]any{"taskId": id})
	if err != nil {
		return TaskState{}, err
	}
	var w wireTask
	if err := json.Unmarshal(raw, &w); err != nil {
		return TaskState{}, fmt.Errorf("read %s of server %s: %w", method, c.Name(), err)
	}
	return w.state(), nil
}

// Result waits for the end of the task, and returns the result of the call of the tool,
// or its error.
func (t *TasksV1) Result(ctx context.Context, id string) (TaskOutcome, error) {
	t.mu.Lock()
	plain := t.plain
	t.mu.Unlock()
	if plain != nil {
		return *plain, nil
	}
	c, err := t.live(ctx)
	if err != nil {
		return TaskOutcome{}, err
	}
	raw, err := c.CallOpt(ctx, "tasks/result", map[string]any{"taskId": id}, CallOptions{Timeout: -1})
	if err != nil {
		return TaskOutcome{}, refused(err)
	}
	return outcome(raw)
}

// Steer sends a message to the running task by tasks/steer. No revision has that
// method: it is used where the server declares the capability tasks.steer, with
// the text as message.
func (t *TasksV1) Steer(ctx context.Context, id, text string) error {
	c, err := t.live(ctx)
	if err != nil {
		return err
	}
	if !has(c, "tasks", "steer") {
		return ErrNoSteer
	}
	params := map[string]any{
		"taskId":  id,
		"message": text,
		"_meta":   map[string]any{relatedTask: map[string]any{"taskId": id}},
	}
	_, err = c.CallOpt(ctx, "tasks/steer", params, CallOptions{Timeout: lookTimeout})
	return refused(err)
}

// Watch passes events of the task to w from now on, and earlier ones that had no watcher.
func (t *TasksV1) Watch(id string, w TaskWatch) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learn(id)
	t.id, t.watch = id, &w
	for _, s := range t.early {
		if s.ID == id || s.ID == "" {
			w.State(s)
		}
	}
	t.early = nil
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.watch = nil
	}
}

// heard handles a status, which may come before the answer that names the task.
func (t *TasksV1) heard(params json.RawMessage) {
	var w wireTask
	if json.Unmarshal(params, &w) != nil || w.TaskID == "" {
		return
	}
	t.tell(w.state())
}

// progressed handles progress of the call that made the task; its token is valid for
// the life of the task.
func (t *TasksV1) progressed(params json.RawMessage) {
	var p struct {
		Token    json.RawMessage `json:"progressToken"`
		Progress float64         `json:"progress"`
		Total    float64         `json:"total"`
		Message  string          `json:"message"`
	}
	var token string
	if json.Unmarshal(params, &p) != nil || json.Unmarshal(p.Token, &token) != nil || token != t.token {
		return
	}
	t.tell(TaskState{Progress: p.Progress, Total: p.Total, Message: p.Message})
}

// tell gives a state to the watcher, or keeps it until the first watch. A state without
// an ID is progress.
func (t *TasksV1) tell(s TaskState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.watch != nil && (s.ID == t.id || s.ID == ""):
		t.watch.State(s)
	case t.watch == nil && len(t.early) < maxEarly:
		t.early = append(t.early, s)
	}
}

// asked puts a question of the task to the watcher. It waits until the ID of the task
// is known, so that it can tell whose question it is.
func (t *TasksV1) asked(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		Meta struct {
			Task struct {
				ID string `json:"taskId"`
			} `json:"io.modelcontextprotocol/related-task"`
		} `json:"_meta"`
	}
	if json.Unmarshal(params, &p) != nil || p.Meta.Task.ID == "" {
		return nil, ErrNotMine
	}
	select {
	case <-t.known:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	t.mu.Lock()
	mine, w := t.id == p.Meta.Task.ID, t.watch
	t.mu.Unlock()
	if !mine || w == nil {
		return nil, ErrNotMine
	}
	res, err := w.answer(ctx, params)
	if err != nil {
		return nil, err
	}
	res["_meta"] = map[string]any{relatedTask: map[string]any{"taskId": p.Meta.Task.ID}}
	return res, nil
}

// refused makes a [*TaskRefusedError] of a server's error answer.
func refused(err error) error {
	var rpc *RPCError
	if !errors.As(err, &rpc) {
		return err
	}
	if rpc.Code == CodeNoMethod {
		return fmt.Errorf("%w: %w", ErrNeedsTask, &TaskRefusedError{Code: rpc.Code, Message: rpc.Message})
	}
	return &TaskRefusedError{Code: rpc.Code, Message: rpc.Message}
}

// NeedsTask reports whether the answer to a plain call says that the tool runs only as
// a task: by an error of its own, or, from some servers, by a result that says so in
// words. It is for tools that declare it.
func NeedsTask(result json.RawMessage, err error) bool {
	var rpc *RPCError
	if errors.As(err, &rpc) {
		return rpc.Code == CodeNoMethod
	}
	out, bad := outcome(result)
	return err == nil && bad == nil && out.IsError && strings.Contains(strings.ToLower(out.Text), "task")
}

// outcome returns the result of a call of a tool as text.
func outcome(raw json.RawMessage) (TaskOutcome, error) {
	var res struct {
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent"`
		IsError    bool              `json:"isError"`
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		return TaskOutcome{}, fmt.Errorf("read the result of a call: %w", err)
	}
	out := TaskOutcome{IsError: res.IsError}
	var parts []string
	for _, c := range res.Content {
		parts = append(parts, contentText(c))
	}
	if len(parts) == 0 && len(res.Structured) > 0 {
		parts = append(parts, string(res.Structured))
	}
	out.Text = strings.Join(parts, "\n")
	return out, nil
}

// contentText returns one piece of content as text. It names content that is not text.
func contentText(raw json.RawMessage) string {
	var c struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		MIME     string `json:"mimeType"`
		URI      string `json:"uri"`
		Data     string `json:"data"`
		Resource struct {
			URI  string `json:"uri"`
			Text string `json:"text"`
		} `json:"resource"`
	}
	if json.Unmarshal(raw, &c) != nil {
		return "[content that cannot be read]"
	}
	switch {
	case c.Type == "text":
		return c.Text
	case c.Type == "resource" && c.Resource.Text != "":
		return fmt.Sprintf("[resource %s]\n%s", c.Resource.URI, c.Resource.Text)
	case c.URI != "" || c.Resource.URI != "":
		return fmt.Sprintf("[%s %s]", c.Type, cmp.Or(c.URI, c.Resource.URI))
	}
	return fmt.Sprintf("[%s %s, %d bytes in base64]", cmp.Or(c.Type, "content"), c.MIME, len(c.Data))
}

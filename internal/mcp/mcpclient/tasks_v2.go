package mcpclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Tasks of revision 2026-07-28: the extension io.modelcontextprotocol/tasks. The server
// decides which calls are tasks, and its answers to tasks/get have the result and the
// questions of a task in them.

const (
	taskExtension = "io.modelcontextprotocol/tasks"

	codeMissingCapability = -32021 // the request does not declare a capability that it needs

	maxTaskID   = 1024 // bytes
	maxAnswered = 256  // questions of one task
)

// errWithdrawn ends a question that the server does not ask any more.
var errWithdrawn = errors.New("the server does not ask any more")

// ExtendsTasks reports whether a server may answer calls of tools with tasks, by the
// extension of revision 2026-07-28.
func (c *Conn) ExtendsTasks() bool {
	return c.Stateless() && has(c, "extensions", taskExtension)
}

// metaFor returns the description of this client for a request. It declares the extension
// only where an answer by it is understood.
func (c *Conn) metaFor(method string, o CallOptions) map[string]any {
	if !c.ExtendsTasks() || !o.Tasks && !strings.HasPrefix(method, "tasks/") {
		return c.meta
	}
	meta := maps.Clone(c.meta)
	can := c.ownCapabilities()
	can["extensions"] = map[string]any{taskExtension: struct{}{}}
	meta[metaCapabilities] = can
	return meta
}

// MadeTask reads the task that a server has made of a call. made is false for another
// answer.
func MadeTask(raw json.RawMessage) (s TaskState, made bool, err error) {
	var kind struct {
		Type string `json:"resultType"`
	}
	if json.Unmarshal(raw, &kind) != nil || kind.Type != "task" {
		return TaskState{}, false, nil
	}
	var w wireTask
	if err := json.Unmarshal(raw, &w); err != nil {
		return TaskState{}, true, fmt.Errorf("read the task that the server has made: %w", err)
	}
	if w.TaskID == "" || len(w.TaskID) > maxTaskID {
		return TaskState{}, true, fmt.Errorf(
			"read the task that the server has made: its ID has %d bytes, and 1 to %d are possible", len(w.TaskID), maxTaskID)
	}
	return w.state(), true, nil
}

// WantsExtension reports whether a server has refused a request since it did not declare
// the extension: the tool runs as a task only.
func WantsExtension(err error) bool {
	var rpc *RPCError
	var data struct {
		Required struct {
			Extensions map[string]json.RawMessage `json:"extensions"`
		} `json:"requiredCapabilities"`
	}
	if !errors.As(err, &rpc) || rpc.Code != codeMissingCapability || json.Unmarshal(rpc.Data, &data) != nil {
		return false
	}
	_, wants := data.Required.Extensions[taskExtension]
	return wants
}

// TasksV2 speaks of one task as the extension of revision 2026-07-28 has them, over the
// live connection to a server, also when it is replaced by another. Its methods may be
// called by several goroutines. It has no goroutine of its own.
type TasksV2 struct {
	conn func(context.Context) (*Conn, error)
	more chan struct{} // takes one; there are new questions

	mu     sync.Mutex // guards the fields below
	watch  *TaskWatch
	ended  *wireTask                          // the answer that said how the task has ended
	inputs map[string]question                // that were open at the last look
	open   map[string]context.CancelCauseFunc // questions that are put to the user now
	given  map[string]any                     // answers; the server may not have them yet
	done   map[string]bool                    // questions whose answers the server has
}

// NewTasksV2 makes one. conn gives the live connection, such as [Lease.Conn].
func NewTasksV2(conn func(context.Context) (*Conn, error)) *TasksV2 {
	return &TasksV2{
		conn:  conn,
		more:  make(chan struct{}, 1),
		open:  map[string]context.CancelCauseFunc{},
		given: map[string]any{},
		done:  map[string]bool{},
	}
}

// request makes a request about the task.
func (t *TasksV2) request(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
	c, err := t.conn(ctx)
	if err != nil {
		return nil, err
	}
	if !c.ExtendsTasks() {
		return nil, fmt.Errorf("%w: server %s speaks revision %s and has no extension %s any more",
			ErrTaskUnknown, c.Name(), c.Revision(), taskExtension)
	}
	return c.aboutTask(ctx, method, params)
}

// Get looks at the task.
func (t *TasksV2) Get(ctx context.Context, id string) (TaskState, error) {
	w, err := t.look(ctx, id)
	if err != nil {
		return TaskState{}, err
	}
	return w.state(), nil
}

// look asks for the task, and stores its open questions. It does not ask for a task again
// that has ended: the server may drop it.
func (t *TasksV2) look(ctx context.Context, id string) (wireTask, error) {
	t.mu.Lock()
	ended := t.ended
	t.mu.Unlock()
	if ended != nil {
		return *ended, nil
	}
	raw, err := t.request(ctx, "tasks/get", map[string]any{"taskId": id})
	if err != nil {
		return wireTask{}, err
	}
	var w wireTask
	if err := json.Unmarshal(raw, &w); err != nil {
		return wireTask{}, fmt.Errorf("read tasks/get: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inputs = nil
	switch p := phaseOf(w.Status); {
	case p.Over():
		t.ended = &w
	case p == TaskAsking:
		t.inputs = w.Inputs
	}
	for key, withdraw := range t.open {
		if _, still := t.inputs[key]; !still {
			withdraw(errWithdrawn)
		}
	}
	select {
	case t.more <- struct{}{}:
	default: // it will be seen with the earlier one
	}
	return w, nil
}

// Cancel asks the server to end the task. It does not say whether it has.
func (t *TasksV2) Cancel(ctx context.Context, id string) (TaskState, error) {
	_, err := t.request(ctx, "tasks/cancel", map[string]any{"taskId": id})
	return TaskState{ID: id}, err
}

// Steer returns [ErrNoSteer]: the extension has no request for it.
func (t *TasksV2) Steer(context.Context, string, string) error { return ErrNoSteer }

// Watch puts questions of the task to w. It reports no states: the caller looks at the task.
func (t *TasksV2) Watch(_ string, w TaskWatch) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watch = &w
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.watch = nil
	}
}

// Result returns the result of a task that is over. It puts the open questions of a task
// to its watcher, until all are answered; it then returns [ErrTaskGoesOn], as for each
// task that is not over.
func (t *TasksV2) Result(ctx context.Context, id string) (TaskOutcome, error) {
	w, err := t.look(ctx, id)
	if err != nil {
		return TaskOutcome{}, err
	}
	switch p := phaseOf(w.Status); {
	case p == TaskAsking:
		return TaskOutcome{}, t.answerAll(ctx, id)
	case !p.Over():
		return TaskOutcome{}, ErrTaskGoesOn
	case w.Error != nil:
		return TaskOutcome{}, &TaskRefusedError{Code: w.Error.Code, Message: w.Error.Message}
	case p == TaskFailed && len(w.Result) == 0:
		return TaskOutcome{}, &TaskRefusedError{
			Code: CodeInternal, Message: cmp.Or(w.Message, "the task failed, and the server does not say why")}
	case len(w.Result) == 0:
		return TaskOutcome{}, &TaskRefusedError{
			Code: CodeInternal, Message: fmt.Sprintf("the task is %s, and the server gives no result", w.Status)}
	}
	return outcome(w.Result)
}

// answerAll answers all questions, also new ones that come meanwhile, and sends the
// server each answer at once.
func (t *TasksV2) answerAll(ctx context.Context, id string) error {
	var work sync.WaitGroup
	defer work.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, inFlight)
	for open := 0; ; {
		for _, key := range t.unanswered(inFlight - open) {
			open++
			work.Go(func() { ended <- t.answerOne(ctx, id, key) })
		}
		if open == 0 {
			return ErrTaskGoesOn
		}
		select {
		case <-t.more:
		case err := <-ended:
			open--
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// unanswered returns at most n questions that have not been put yet.
func (t *TasksV2) unanswered(n int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(t.inputs)) {
		if len(keys) < n && t.open[key] == nil && !t.done[key] {
			keys = append(keys, key)
			t.open[key] = func(error) {} // until it is asked
		}
	}
	return keys
}

// answerOne gets the answer to one question, and sends it to the server.
func (t *TasksV2) answerOne(ctx context.Context, id, key string) error {
	asking, withdraw := context.WithCancelCause(ctx)
	defer withdraw(nil)
	t.mu.Lock()
	q, still := t.inputs[key]
	t.open[key] = withdraw
	answer, known := t.given[key]
	watch, many := t.watch, len(t.done) >= maxAnswered
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.open, key)
	}()
	switch {
	case !still:
		return nil
	case many:
		return fmt.Errorf("%w: it has asked %d questions", ErrTaskStuck, maxAnswered)
	case !known:
		var err error
		answer, err = t.ask(asking, q, watch)
		if errors.Is(context.Cause(asking), errWithdrawn) {
			return nil
		}
		if err != nil {
			return err
		}
		t.mu.Lock()
		t.given[key] = answer
		t.mu.Unlock()
	}
	params := map[string]any{"taskId": id, "inputResponses": map[string]any{key: answer}}
	if _, err := t.request(ctx, "tasks/update", params); err != nil {
		var refused *TaskRefusedError
		if errors.As(err, &refused) { // the answer, not the task, was refused
			return errors.New("send an answer to the server: " + refused.Error())
		}
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.given, key)
	t.done[key] = true
	return nil
}

// ask puts a question to the watcher, or answers it itself if it can.
func (t *TasksV2) ask(ctx context.Context, q question, watch *TaskWatch) (any, error) {
	c, err := t.conn(ctx)
	if err != nil {
		return nil, err
	}
	form := func(ctx context.Context, params json.RawMessage) (any, error) {
		if watch == nil {
			e, err := ReadElicitation(params)
			return e.Result(FormIgnored, nil), err
		}
		return watch.answer(ctx, params)
	}
	var functions []*server // the connection's own functions serve calls, and the task is not part of one
	if q.Method == "elicitation/create" {
		functions = []*server{{form}}
	}
	answer, err := c.serveOne(ctx, q.Method, q.Params, functions)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %.40q of the server was not answered: %w", ErrTaskStuck, q.Method, err)
	}
	return answer, err
}

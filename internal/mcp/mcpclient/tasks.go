package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// TaskPhase is the phase of a server's task, independent of the revision.
type TaskPhase string

// The phases. The empty one represents an unknown word of the server, which is shown
// and changes nothing.
const (
	TaskWorking   TaskPhase = "working"
	TaskAsking    TaskPhase = "asking" // it continues after an answer
	TaskCompleted TaskPhase = "completed"
	TaskFailed    TaskPhase = "failed"
	TaskCancelled TaskPhase = "cancelled"
)

// phaseOf returns the phase for a word of a server. Both revisions have the same words.
func phaseOf(word string) TaskPhase {
	phases := map[string]TaskPhase{
		"working":        TaskWorking,
		"input_required": TaskAsking,
		"completed":      TaskCompleted,
		"failed":         TaskFailed,
		"cancelled":      TaskCancelled,
		"canceled":       TaskCancelled,
	}
	return phases[word]
}

// Over reports whether the phase is the last one.
func (p TaskPhase) Over() bool { return p == TaskCompleted || p == TaskFailed || p == TaskCancelled }

// TaskState is the state of a task as its server reports it.
type TaskState struct {
	ID      string
	Phase   TaskPhase
	Word    string // for the phase, the server's own
	Message string

	// Progress and Total count steps; both are 0 in a state without progress.
	Progress, Total float64

	Created, Updated time.Time     // zero: not said
	TTL              time.Duration // for which the server keeps the task, from Created; 0: not said, or for ever
	Poll             time.Duration // between two looks, as the server wants it; 0: not said
}

// TaskOutcome is the result of a task.
type TaskOutcome struct {
	Text    string // of its content, as a model reads it
	IsError bool   // the tool reports an error
}

// TaskAnswer is the answer to a question of a running task.
type TaskAnswer struct {
	Action TaskAction
	Values json.RawMessage // of an accepted form, a JSON object
}

// TaskAction is the answer to a form.
type TaskAction string

// The actions.
const (
	FormAccepted TaskAction = "accept"
	FormDeclined TaskAction = "decline" // the user refuses to answer
	FormIgnored  TaskAction = "cancel"  // the question got no answer
	FormLeft     TaskAction = "left"    // it stays open: another process is going to answer
)

// TaskWatch gets the events of a task while it lives. Its functions may be called by
// several goroutines.
type TaskWatch struct {
	// State gets the notifications of the server. It must not block.
	State func(TaskState)
	// Ask puts a question of the task to the user, and returns when it is
	// answered or ctx has ended.
	Ask func(ctx context.Context, e Elicitation) TaskAnswer
}

// answer asks a question of the task, with the parameters of elicitation/create, and returns
// the answer for the server.
func (w *TaskWatch) answer(ctx context.Context, params json.RawMessage) (map[string]any, error) {
	e, err := ReadElicitation(params)
	if err != nil {
		return nil, err
	}
	a := w.Ask(ctx, e)
	if a.Action == FormLeft {
		<-ctx.Done() // only the owner of the task may answer
		return nil, context.Cause(ctx)
	}
	return e.Result(a.Action, a.Values), nil
}

// wireTask is a task on the wire, in both revisions. A time or number of another type counts
// as missing: it must not cost the ID of a task.
type wireTask struct {
	Type    string              `json:"resultType"` // 2026-07-28, as the last three
	TaskID  string              `json:"taskId"`
	Status  string              `json:"status"`
	Message string              `json:"statusMessage"`
	Created any                 `json:"createdAt"`
	Updated any                 `json:"lastUpdatedAt"`
	TTL     any                 `json:"ttl"`          // ms; null: for ever
	Poll    any                 `json:"pollInterval"` // ms
	TTLMS   any                 `json:"ttlMs"`        // 2026-07-28, as the next
	PollMS  any                 `json:"pollIntervalMs"`
	Result  json.RawMessage     `json:"result"`
	Error   *RPCError           `json:"error"`
	Inputs  map[string]question `json:"inputRequests"`
}

func (w wireTask) state() TaskState {
	return TaskState{ID: w.TaskID, Phase: phaseOf(w.Status), Word: w.Status, Message: w.Message,
		Created: instant(w.Created), Updated: instant(w.Updated),
		TTL: milliseconds(w.TTL, w.TTLMS), Poll: milliseconds(w.Poll, w.PollMS)}
}

// milliseconds is the first span that a server gives as a number.
func milliseconds(values ...any) time.Duration {
	const most = float64(365 * 24 * time.Hour / time.Millisecond)
	for _, v := range values {
		if n, ok := v.(float64); ok && n > 0 {
			return time.Duration(min(n, most) * float64(time.Millisecond))
		}
	}
	return 0
}

func instant(v any) time.Time {
	text, _ := v.(string)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}

// aboutTask makes a request about a task.
func (c *Conn) aboutTask(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
	raw, err := c.CallOpt(ctx, method, params, CallOptions{Timeout: lookTimeout})
	var rpc *RPCError
	if errors.As(err, &rpc) && rpc.Code == CodeBadParams {
		return nil, fmt.Errorf("%w: %s", ErrTaskUnknown, rpc.Message)
	}
	return raw, refused(err)
}

// Errors of tasks. Any other error of a call, except a [*TaskRefusedError], comes from
// the connection: the task may still run, and the call may be made again.
var (
	// ErrTaskUnknown says that the server does not know the task, or not any more.
	ErrTaskUnknown = errors.New("the server does not know the task")
	// ErrNoSteer says that the server accepts no messages for a running task.
	ErrNoSteer = errors.New("the server offers no way to steer a running task")
	// ErrTaskGoesOn says that the task has no result yet: the caller looks again later.
	ErrTaskGoesOn = errors.New("the task is not over")
	// ErrTaskStuck says that a task waits for input that this client cannot give.
	ErrTaskStuck = errors.New("the task cannot go on")
	// ErrNeedsTask says that a tool cannot be called without a task, or with one.
	ErrNeedsTask = errors.New("the tool and the call do not agree on whether it is a task")
)

// TaskRefusedError is an error that the server itself gave as its answer.
type TaskRefusedError struct {
	Code    int
	Message string
}

func (e *TaskRefusedError) Error() string {
	return fmt.Sprintf("the server answered with error %d: %s", e.Code, e.Message)
}

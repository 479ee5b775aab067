package mcpwire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Tasks of the protocol: those of revision 2025-11-25 (tasks_v1.go) and those of the extension of 2026-07-28
// (tasks_v2.go). The revision of a request decides between them. A [Holder] keeps the tasks.

// Extension is the name of the extension with tasks since revision 2026-07-28.
const Extension = "io.modelcontextprotocol/tasks"

// The revisions of the two kinds of tasks.
const (
	revisionV1 = "2025-11-25"
	revisionV2 = "2026-07-28"
)

// Status is the state of a task.
type Status string

// States of a task.
const (
	Working       Status = "working"
	InputRequired Status = "input_required"
	Completed     Status = "completed"
	Failed        Status = "failed"
	Cancelled     Status = "cancelled"
)

// Ended reports whether the state is final.
func (s Status) Ended() bool { return s == Completed || s == Failed || s == Cancelled }

// Task is a call that its client holds by a handle.
type Task struct {
	ID      string
	Status  Status
	Message string // for people
	Created time.Time
	Updated time.Time
	TTL     time.Duration       // from Created on; 0: unlimited
	Result  *mcp.CallToolResult // of an ended call without Error
	Error   *jsonrpc.Error
	Inputs  mcp.InputRequestMap // open questions; a key is used once in the life of a task
}

// ErrUnknown is the error of a [Holder] for an unknown or expired task.
var ErrUnknown = errors.New("unknown task")

// Holder keeps the tasks of all clients. For an unknown ID it returns [ErrUnknown].
type Holder interface {
	Get(ctx context.Context, id string) (Task, error)
	// Wait returns when the task has ended. Meanwhile it asks the client of the request the questions of the task.
	Wait(ctx context.Context, from *mcp.CallToolRequest, id string) (Task, error)
	// List returns the tasks after a cursor, and the cursor of the rest, "" for none.
	List(ctx context.Context, cursor string) (list []Task, next string, err error)
	// Answer answers questions of the task. It ignores keys that are not open.
	Answer(ctx context.Context, id string, answers map[string]json.RawMessage) error
	// Cancel returns when the task has ended or is about to.
	Cancel(ctx context.Context, id string) error
}

// Support says whether the calls of a tool can be tasks.
type Support string

// The support of a tool for tasks.
const (
	Forbidden Support = "forbidden"
	Optional  Support = "optional"
	Required  Support = "required"
)

// Tasks configures the tasks of a server.
type Tasks struct {
	Holder  Holder
	Support map[string]Support // by tool; the default is Forbidden
	Poll    time.Duration      // the interval at which clients should poll
}

// Wish is the wish of a client that a call becomes a task.
type Wish struct {
	TTL  *time.Duration // nil: the server chooses
	Must bool           // otherwise the tool may also answer at once
	made *Task
}

type wishKey struct{}

// WishOf returns the wish of the call of a tool; nil: the call may not become a task.
func WishOf(ctx context.Context) *Wish {
	w, _ := ctx.Value(wishKey{}).(*Wish)
	return w
}

// Grant makes t, which must be durable, the answer of the call. The result of the tool is dropped.
func (w *Wish) Grant(t Task) { w.made = &t }

type taskServer struct {
	Tasks
}

// Add offers tasks on m. The capabilities of m must have [Extension].
func (o Tasks) Add(m *mcp.Server) error {
	s := &taskServer{o}
	m.AddReceivingMiddleware(s.middleware)
	for method, handle := range map[string]func(context.Context, *mcp.ServerSession, *params) (*result, error){
		"tasks/get": s.get, "tasks/result": s.result, "tasks/list": s.list, "tasks/cancel": s.cancel,
		"tasks/update": s.update,
	} {
		if err := mcp.AddReceivingCustomMethod(m, method, handle); err != nil {
			return fmt.Errorf("offer %s: %w", method, err)
		}
	}
	return nil
}

func (s *taskServer) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case "initialize":
			return s.initialize(ctx, next, method, req)
		case "tools/list":
			return s.tools(ctx, next, method, req)
		case "tools/call":
			if call, ok := req.(*mcp.CallToolRequest); ok && call.Params != nil {
				return s.call(ctx, next, method, call)
			}
		}
		return next(ctx, method, req)
	}
}

func (s *taskServer) call(
	ctx context.Context, next mcp.MethodHandler, method string, req *mcp.CallToolRequest,
) (mcp.Result, error) {
	var wish *Wish
	var err error
	shape := shapeV2
	switch revision := req.ProtocolVersion(); {
	case revision >= revisionV2:
		wish, err = s.wishV2(req)
	case revision == revisionV1:
		shape = shapeV1
		wish, err = s.wishV1(req)
	}
	if err != nil {
		return nil, err
	}
	if wish == nil {
		return next(ctx, method, req)
	}
	res, err := next(context.WithValue(ctx, wishKey{}, wish), method, req)
	if err != nil || wish.made == nil {
		return res, err
	}
	return shape.created(*wish.made, s.Poll), nil
}

// shape has the names of fields that differ between the two kinds of tasks.
type shape struct {
	ttl, poll string
}

var (
	shapeV1 = shape{"ttl", "pollInterval"}     //rules:constant names of fields
	shapeV2 = shape{"ttlMs", "pollIntervalMs"} //rules:constant names of fields
)

func (f shape) fields(t Task, poll time.Duration) map[string]any {
	out := map[string]any{
		"taskId": t.ID, "status": t.Status, "createdAt": stamp(t.Created), "lastUpdatedAt": stamp(t.Updated),
		f.ttl: nil, f.poll: poll.Milliseconds(),
	}
	if t.TTL > 0 {
		out[f.ttl] = t.TTL.Milliseconds()
	}
	if t.Message != "" {
		out["statusMessage"] = t.Message
	}
	return out
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func (f shape) created(t Task, poll time.Duration) *result {
	fields := f.fields(t, poll)
	if f == shapeV1 {
		return &result{fields: map[string]any{"task": fields}}
	}
	fields["resultType"] = "task"
	return &result{fields: fields}
}

// result is an answer with any fields.
type result struct {
	mcp.ResultBase
	fields map[string]any
}

// MarshalJSON implements [json.Marshaler].
func (r *result) MarshalJSON() ([]byte, error) {
	fields := maps.Clone(r.fields)
	if fields == nil {
		fields = map[string]any{}
	}
	if len(r.Meta) > 0 {
		fields["_meta"] = r.Meta
	}
	return json.Marshal(fields)
}

// fieldsOf returns the fields of an answer.
func fieldsOf(v any) (map[string]any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode an answer: %w", err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("encode an answer: %w", err)
	}
	return out, nil
}

// params are the parameters of all methods of tasks.
type params struct {
	mcp.ParamsBase
	TaskID  string                     `json:"taskId"`
	Cursor  string                     `json:"cursor"`
	Answers map[string]json.RawMessage `json:"inputResponses"`
}

// revision is the revision of a request.
func (p *params) revision(ss *mcp.ServerSession) string {
	if p != nil {
		if v, ok := p.Meta["io.modelcontextprotocol/protocolVersion"].(string); ok {
			return v
		}
	}
	if i := ss.InitializeParams(); i != nil {
		return i.ProtocolVersion
	}
	return ""
}

// check refuses a method that the revision of a request does not have. v2 is the kind of tasks of that revision.
func (s *taskServer) check(ss *mcp.ServerSession, p *params, method string, v1, v2Has bool) (v2 bool, err error) {
	revision := p.revision(ss)
	v2 = revision >= revisionV2
	switch {
	case v2 && !v2Has, !v2 && (!v1 || revision != revisionV1):
		return v2, &jsonrpc.Error{
			Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("revision %s has no %s", revision, method),
		}
	case v2 && !declared(p.Meta):
		return v2, errUndeclared()
	case p == nil:
		return v2, invalid("the request has no params")
	}
	return v2, nil
}

func (s *taskServer) get(ctx context.Context, ss *mcp.ServerSession, p *params) (*result, error) {
	v2, err := s.check(ss, p, "tasks/get", true, true)
	if err != nil {
		return nil, err
	}
	t, err := s.Holder.Get(ctx, p.TaskID)
	if err != nil {
		return nil, s.refused(p.TaskID, err)
	}
	if v2 {
		return s.gotV2(t, p.Meta)
	}
	return &result{fields: shapeV1.fields(t, s.Poll)}, nil
}

func (s *taskServer) cancel(ctx context.Context, ss *mcp.ServerSession, p *params) (*result, error) {
	v2, err := s.check(ss, p, "tasks/cancel", true, true)
	if err != nil {
		return nil, err
	}
	t, err := s.Holder.Get(ctx, p.TaskID)
	if err != nil {
		return nil, s.refused(p.TaskID, err)
	}
	if t.Status.Ended() {
		if v2 {
			return complete(nil), nil
		}
		return nil, invalid(fmt.Sprintf("the task has ended already: it is %s", t.Status))
	}
	if err := s.Holder.Cancel(ctx, p.TaskID); err != nil {
		return nil, s.refused(p.TaskID, err)
	}
	if v2 {
		return complete(nil), nil
	}
	t, err = s.Holder.Get(ctx, p.TaskID)
	if err != nil {
		return nil, s.refused(p.TaskID, err)
	}
	return &result{fields: shapeV1.fields(t, s.Poll)}, nil
}

func (s *taskServer) refused(id string, err error) error {
	var known *jsonrpc.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, ErrUnknown):
		return invalid(fmt.Sprintf("task %.100q is unknown (its time to live may be over)", id))
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
}

func invalid(message string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message}
}

func (s *taskServer) support(tool string) Support {
	if v, ok := s.Support[tool]; ok {
		return v
	}
	return Forbidden
}

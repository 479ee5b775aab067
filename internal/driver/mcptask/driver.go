package mcptask

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/task"
)

// AgentType is the agent type of every record of the kind.
const AgentType = "mcp-task"

// Reasons of failures in addition to the reasons in package task.
const (
	ReasonTool     task.Reason = "tool_error" // the tool says that it has failed
	ReasonServer   task.Reason = "server_error"
	ReasonExpired  task.Reason = "expired"   // the server has dropped the task, as it said it would
	ReasonNoResult task.Reason = "no_result" // the task is over, and its result cannot be read
)

// Dialect speaks with one server about one task. Its methods may be called by
// several goroutines. What their errors mean is said in package mcpclient.
type Dialect interface {
	// Get looks at a task.
	Get(ctx context.Context, id string) (mcpclient.TaskState, error)
	// Result waits until a task is over, and returns its outcome. A refusal may come
	// from the tool, or from the server for this request. [mcpclient.ErrTaskGoesOn] says
	// that a look is needed first.
	Result(ctx context.Context, id string) (mcpclient.TaskOutcome, error)
	// Cancel asks the server to end a task; the state is empty if the server does
	// not tell it.
	Cancel(ctx context.Context, id string) (mcpclient.TaskState, error)
	// Steer tells a running task something, or returns [mcpclient.ErrNoSteer].
	Steer(ctx context.Context, id, text string) error
	// Watch tells of a task until stop is called, of what came before the call too.
	Watch(id string, w mcpclient.TaskWatch) (stop func())
}

// Maker is a dialect in which the client decides that a call is a task.
type Maker interface {
	Dialect
	// Create asks for a task that runs a tool. immediate is what the server wants
	// a model to know at once. A server that answers without a task gives a state
	// that is over and has no ID, and [Dialect.Result] gives the answer.
	Create(ctx context.Context, tool string, args json.RawMessage,
		ttl time.Duration) (s mcpclient.TaskState, immediate string, err error)
}

var (
	_ Maker   = (*mcpclient.TasksV1)(nil)
	_ Dialect = (*mcpclient.TasksV2)(nil)
)

// Kinds of tasks of servers. A task keeps the kind that it was made with.
const (
	Core      = ""          // of revision 2025-11-25
	Extension = "extension" // of the extension of 2026-07-28
)

// ErrNoServer is returned by [Config.Open] for a server that is not configured,
// or not as it was when the task was made.
var ErrNoServer = errors.New("no such MCP server is configured")

// Config is what all tasks of a session share.
type Config struct {
	// Open reaches a server by its name, for a task of a kind. digest is the digest of its
	// configuration when the task was made. release is called once.
	Open func(ctx context.Context, server, digest, kind string) (d Dialect, release func(), err error)
	// AskWait is how long a question waits for an answer before the server gets a reply
	// without one. 0: only the agent that the task belongs to can answer, within
	// 10 min.
	AskWait time.Duration
	// Patience is how long a server may be out of reach; 0: 10 min.
	Patience time.Duration
}

// Call is a call of a tool that runs as a task.
type Call struct {
	Server string          `json:"server"`
	Digest string          `json:"digest,omitempty"` // of its configuration
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args"`             // a JSON object
	Alone  bool            `json:"alone,omitempty"`  // the agent that it belongs to waits for it, and can answer nothing
	TTLMS  int64           `json:"ttl_ms,omitempty"` // for which the server is asked to keep the task; 0: it decides
	Made   *Made           `json:"made,omitempty"`   // by the extension: the task is there; nil: it is asked for
}

// Made is a task that a server has made of a call by itself.
type Made struct {
	Task   string `json:"task"` // the server's ID
	Status string `json:"status,omitempty"`
	PollMS int64  `json:"poll_ms,omitempty"`
	TTLMS  int64  `json:"ttl_ms,omitempty"`
}

// MadeOf is a task as a server has told of it.
func MadeOf(s mcpclient.TaskState) *Made {
	return &Made{Task: s.ID, Status: oneLine(s.Word), PollMS: s.Poll.Milliseconds(), TTLMS: s.TTL.Milliseconds()}
}

func decode(input json.RawMessage) (Call, error) {
	var c Call
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("read call of a tool: %w", err)
	}
	var args map[string]json.RawMessage
	switch {
	case c.Server == "" || c.Tool == "":
		return c, errors.New("read call of a tool: it names no server or no tool")
	case json.Unmarshal(c.Args, &args) != nil || args == nil:
		return c, errors.New("read call of a tool: the arguments are no JSON object")
	case c.Made != nil && c.Made.Task == "":
		return c, errors.New("read call of a tool: the task that was made has no ID")
	case c.TTLMS < 0:
		return c, fmt.Errorf("read call of a tool: the time to keep the task, %d ms, is negative", c.TTLMS)
	}
	return c, nil
}

// Driver follows tasks. It serves many at the same time.
type Driver struct {
	*shared
	made func(immediate string)
}

type shared struct {
	Config
	mu   sync.Mutex
	live map[task.ID]*run // guarded by mu
}

// New makes a driver, which does no I/O.
func New(c Config) *Driver {
	if c.Patience <= 0 {
		c.Patience = 10 * time.Minute
	}
	return &Driver{shared: &shared{Config: c, live: map[task.ID]*run{}}}
}

// For is the driver for one call: made is called once, if the server has made the
// task, when that is durable.
func (d *Driver) For(made func(immediate string)) *Driver {
	return &Driver{shared: d.shared, made: made}
}

// Kind is [task.MCPTask].
func (d *Driver) Kind() task.Kind { return task.MCPTask }

// Check refuses a call that names no server or tool, or has no arguments.
func (d *Driver) Check(input json.RawMessage) error {
	_, err := decode(input)
	return err
}

// Adopts reports whether a task continues at its server without a host.
func (d *Driver) Adopts(r task.Record) bool { return r.Keep && len(r.Checkpoint) > 0 }

var (
	_ task.Adopter = (*Driver)(nil)
	_ task.Steerer = (*Driver)(nil)
)

// Steer answers the oldest open question of a task by a JSON object, or declines
// it by the word decline. To a task that asks nothing it is a message, where the
// server takes some. What cannot be taken gives a [*task.SteerError].
func (d *Driver) Steer(ctx context.Context, id task.ID, text string) error {
	d.mu.Lock()
	r := d.live[id]
	d.mu.Unlock()
	if r == nil {
		return &task.SteerError{Why: fmt.Sprintf("task %s is not there yet, or has just ended", id)}
	}
	if f := r.forms.oldest(); f != nil {
		return r.forms.fill(f, text)
	}
	err := r.to.Steer(ctx, r.at.Task, text)
	if errors.Is(err, mcpclient.ErrNoSteer) {
		return &task.SteerError{Why: fmt.Sprintf(
			"task %s belongs to MCP server %s, which takes no messages for a running task: start a new task instead",
			id,
			r.at.Server,
		)}
	}
	if err != nil {
		return fmt.Errorf("steer task %s: %w", id, err)
	}
	return nil
}

// Run follows one task to its end.
func (d *Driver) Run(ctx context.Context, h task.Host) (task.Result, error) {
	if ctx.Err() != nil {
		return task.Result{}, context.Cause(ctx)
	}
	r := newRun(d, h)
	defer r.close()
	res, err := r.whole(ctx)
	if err == nil {
		err = r.unwritten()
	}
	return res, err
}

// enter and leave say where the messages of a task go.
func (s *shared) enter(id task.ID, r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[id] = r
}

func (s *shared) leave(id task.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, id)
}

// version is the version of the checkpoint.
const version = 1

// point is the position of a task, from which a later host can continue.
type point struct {
	V       int       `json:"v"`
	Server  string    `json:"server"`
	Digest  string    `json:"digest,omitempty"`
	Tool    string    `json:"tool"`
	Kind    string    `json:"kind,omitempty"` // [Core] or [Extension]
	Task    string    `json:"task"`           // the server's ID
	PollMS  int64     `json:"poll_ms,omitempty"`
	TTLMS   int64     `json:"ttl_ms,omitempty"`
	Created time.Time `json:"created"`
}

func (p point) encode() []byte {
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings, numbers and a time
	}
	return data
}

// decodePoint reads a checkpoint. An invalid one means lost work.
func decodePoint(data []byte) (point, error) {
	var p point
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("%w: its checkpoint cannot be read: %w", task.ErrLost, err)
	}
	if p.Kind != Core && p.Kind != Extension {
		return p, fmt.Errorf("%w: its checkpoint is of a task of kind %q, which is not known here", task.ErrLost, p.Kind)
	}
	if p.V != version || p.Server == "" || p.Task == "" {
		return p, fmt.Errorf("%w: its checkpoint has version %d, and %d is understood here", task.ErrLost, p.V, version)
	}
	return p, nil
}

// expired reports whether the server may have dropped the task by now.
func (p point) expired(now time.Time) bool {
	return p.TTLMS > 0 && now.After(p.Created.Add(time.Duration(p.TTLMS)*time.Millisecond))
}

package task

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"
)

// Driver runs tasks of one kind. A Driver value may serve many tasks at the
// same time.
type Driver interface {
	Kind() Kind

	// Check refuses input that cannot work. It does no I/O and is called
	// before anything is recorded.
	Check(input json.RawMessage) error

	// Run does the work and returns when everything that it started has
	// ended. The cause of ctx says why it ended: [ErrStopRequested],
	// [ErrClosing], [ErrTimeout], or a parent's end. The runtime records the run as
	// Completed after nil; after an error as Killed if ctx was ended by a stop or by
	// closing, and otherwise as Failed, with the reason of a [*FailError]. A driver
	// that has acted on a stop returns an error even if the work then ends well.
	Run(ctx context.Context, h Host) (Result, error)
}

// Launcher is implemented by drivers whose work is a process. Their tasks are
// pending until the driver reports the process by [Host.Begun], so that a running
// task always has one.
type Launcher interface {
	Driver
	// Launches marks the driver and does nothing.
	Launches()
}

// Adopter is implemented by drivers whose work outlives a host, or can be resumed
// by another host from its record. Adopts reports whether [Driver.Run] can continue
// this running task of an earlier host; it does no I/O. The input of such a
// task is gone: Run has the record with its checkpoint. Work that
// no driver adopts is recorded as lost with its host.
type Adopter interface {
	Driver
	Adopts(Record) bool
}

// Steerer is implemented by drivers whose running work takes messages from outside
// and has no mailbox of its own. Steer returns when the work has taken the message.
// It may be called from several goroutines while Run is under way.
type Steerer interface {
	Driver
	Steer(ctx context.Context, id ID, text string) error
}

// SteerError is returned by [Steerer.Steer] for a message that the work cannot take. It says
// what to do instead.
type SteerError struct{ Why string }

func (e *SteerError) Error() string { return e.Why }

// Freezer is implemented by drivers whose processes can be suspended. Both methods may be
// called while Run is under way, and succeed for a process that has ended.
type Freezer interface {
	Driver
	Freeze(Process) error
	Thaw(Process) error
}

// Suspender is implemented by drivers that pause their work without a process on this machine.
// Suspend pauses or continues a running task and returns when the request is on its way. It may
// be called from several goroutines while Run is under way.
type Suspender interface {
	Driver
	Suspend(id ID, paused bool) error
}

// Result is the outcome of a run, next to its error.
type Result struct {
	Text     string // final answer; empty for kinds whose output file is the answer
	ExitCode *int   // of a command; -1 when it ended without one
	Signal   string // that ended the command
	Usage    *Usage
	Signals  []SignalSent // of a stop, for the receipt
	Left     []Survivor   // processes that could not be ended
	PassOn   bool         // if Run returned nil: running children go to the parent of the task; else they are stopped
	Notes    []string     // remarks for the owner, one line each
	Made     []string     // files made or changed by a command that other programs obey, with these programs

	// Leave, if set, is called once after the last descendant has ended and before
	// the end of the task is recorded: the driver cleans up the folder in
	// which the task and its children worked. ctx ends after 2 minutes.
	Leave func(ctx context.Context) *Worktree

	// Settle, if set, is called once after the end is durable: the driver releases
	// the evidence of the end, such as an exited child. It is not
	// called when the end could not be recorded.
	Settle func()
}

// Host is the runtime as a running task sees it. Its methods may be called by
// several goroutines. Methods with a context return its cause when it ends.
type Host interface {
	// Record is the task as it is now.
	Record() Record
	// Input is the driver's input from the [Spec].
	Input() json.RawMessage
	// Output is the output file of the task.
	Output() Output
	// Begun reports the process of a [Launcher]. It returns when the process and the
	// begin of the task are durable. Other drivers do not call
	// it: their task has begun when Run is called.
	Begun(Process) error
	// Progress replaces the progress of the task, but never its summary. It is
	// cheap, may be merged with later calls, and never fails.
	Progress(Progress)
	// Checkpoint stores the driver's own state durably. Its first field is "v".
	Checkpoint(ctx context.Context, state []byte) error
	// Ask asks the user or a client and waits: for the reply, for
	// the question's Until or its Wait, which make it a denial, or for the end of ctx or of
	// the run, whose cause it then returns. While it waits the task is awaiting
	// approval and its place in the pool is free. Eight questions may be open
	// at once; further ones queue. The runtime sets ID, Task, Digest and At.
	Ask(ctx context.Context, q Question) (Reply, error)

	// Tell sends a message to the owner of the task and returns when it is durable.
	// Use it for news while the task runs: the runtime notifies the owner of the end.
	// Without an owner it does nothing. It returns an error that wraps [ErrMailFull]
	// if the owner has too many unread messages.
	Tell(ctx context.Context, kind MessageKind, text string, p Priority) error

	// Rest makes the task idle while wait(ctx) runs; meanwhile its place in the pool is free, and
	// the record names the children that are at work. After nil the task is at work again and has
	// its place; Rest returns an error of wait, and then the run has to end.
	Rest(ctx context.Context, wait func(context.Context) error) error
	// WaitWhilePaused waits while the task is paused, or until ctx ends, whose cause it returns.
	// Meanwhile its place in the pool is free. A driver that works in steps calls
	// it before each step; a [Freezer] is paused from outside.
	WaitWhilePaused(ctx context.Context) error

	Spawner
}

// Overtimer is a [Host] that gives a run some time after its deadline to report its results
// so far.
type Overtimer interface {
	Host
	// Overtime returns a context that outlives the deadline of the task. It ends
	// with the task by every other cause, after limit, or by done.
	Overtime(limit time.Duration) (ctx context.Context, done context.CancelFunc)
}

// Parker is a [Host] whose task can wait for the reset of a usage limit.
type Parker interface {
	Host
	// Park records that a usage limit holds the task while wait(ctx) runs. Meanwhile its place in
	// the pool is free, and its time limit does not run. After nil the task is at work again and
	// has its place; Park returns an error of wait, and then the run has to end.
	Park(ctx context.Context, p Parked, wait func(context.Context) error) error
}

// Retrier is a [Host] whose task can be started again in the same run.
type Retrier interface {
	Host
	// Retry records a failed attempt. While wait(ctx) runs the task is pending and its place in
	// the pool is free. After nil the driver starts the next attempt and reports it by
	// [Host.Begun]; after an error the run has to end.
	Retry(ctx context.Context, failed Attempt, wait func(context.Context) error) error
}

// Placer is a [Host] whose task can be done by a worker: a process, often on another machine,
// that takes tasks of sessions elsewhere.
type Placer interface {
	Host
	// Placed records in one step the worker that does the task, its begin, and the state of the
	// driver, as [Host.Checkpoint] does. A [Launcher] calls it in place of [Host.Begun]. It returns
	// when all of it is durable.
	Placed(ctx context.Context, worker string, state []byte) error
}

// Spawner starts children of a task.
type Spawner interface {
	// Spawn starts a child and returns when it is durably pending.
	Spawn(ctx context.Context, d Driver, s Spec) (Record, error)
	// Await waits for the end of a child. Meanwhile the place of the waiting task is
	// free, so a chain of waiting agents cannot block itself.
	Await(ctx context.Context, id ID) (Record, error)
}

// Output is the output of one task: readable text, appended.
type Output interface {
	io.Writer
	// File opens the output for append, as stdout and stderr of a child process.
	// The caller closes it.
	File() (*os.File, error)
	// Path is absolute.
	Path() string
	// Size is the present number of bytes.
	Size() int64
	// Limit is the number of bytes at which a child that has the descriptor
	// must be ended.
	Limit() int64
}

// Spec describes a task to start.
type Spec struct {
	ID           ID     // of the task that represents the session itself; empty: a new one
	Name         string // requested; made unique in the session
	Description  string
	Parent       ID // empty: the main agent, or none
	Owner        ID // gets the notification of the end; empty: no task does
	ToolUseID    string
	AgentType    string
	Mode         string // permission mode of an agent; empty: the mode of the caller
	Model        string
	Prompt       string
	Command      string
	Cwd          string
	Backgrounded bool
	Keep         bool
	TTY          bool     // a command with a terminal
	Sandbox      *Sandbox // in which the command starts; nil: none
	On           string   // a worker, or a label of workers; empty: this machine
	Pool         string   // limits how many such tasks run at once; empty: unlimited
	Priority     Priority
	Silent       bool          // its owner gets no notification of its end
	Team         *Team         // of a teammate
	Timeout      time.Duration // 0: none
	Budget       Budget        // of the task and its descendants; its wall time is ignored, see Timeout
	OnEnd        string        // [Reparents], or empty: running children are stopped, unless [Result.PassOn] is set
	Schedule     string        // that started it; empty: none
	Quote        *Quote        // of its likely use, if one was requested
	Retries      int           // how many times a command that fails is started again
	Key          string        // a parent has at most one child per key, over restarts too; empty: any number
	Input        json.RawMessage
}

// Priority of a notification in its owner's mailbox.
type Priority string

// The priorities. Unset behaves as Later.
const (
	Next  Priority = "next"  // before waiting prompts
	Later Priority = "later" // after them
)

// QuestionKind is the sort of answer to a [Question].
type QuestionKind string

// The kinds of questions.
const (
	Permission QuestionKind = "permission" // whether a call may run
	Choice     QuestionKind = "choice"     // the user chooses or writes; Input holds the questions of the tool
	Form       QuestionKind = "form"       // a [FormInput] in Input asks for values; Reply.Input holds them
)

// Question asks a user or client for a decision.
type Question struct {
	ID    string       `json:"id"`   // made by the runtime; unique in a session
	Kind  QuestionKind `json:"kind"` // empty: permission
	Task  ID           `json:"task_id"`
	Agent string       `json:"agent,omitempty"` // who asks, for people
	Tool  string       `json:"tool"`
	// ToolUseID names the model's call; empty: the question belongs to no call.
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`        // a JSON text, if the input was shortened or is not JSON
	Hidden    int             `json:"hidden_bytes,omitempty"` // of the input, that Input does not show
	Reason    string          `json:"reason"`
	// Suggest is a rule that would have allowed the call; empty: no rule would.
	Suggest string `json:"suggest,omitempty"`

	Digest string    `json:"digest"` // binds an answer to exactly this request with its whole input
	At     time.Time `json:"at"`
	Until  time.Time `json:"until,omitzero"` // when it becomes a denial; zero: never

	// Wait is how long the question stays open while no person's frontend is attached; 0: for
	// ever. The runtime sets Until by it.
	Wait time.Duration `json:"-"`
}

// Reply is the answer to a [Question].
type Reply struct {
	Allow  bool            `json:"allow"`
	Reason string          `json:"reason,omitempty"` // of a denial, for the model
	Text   string          `json:"text,omitempty"`   // of a choice, as the user chose or wrote it
	Input  json.RawMessage `json:"input,omitempty"`  // replaces the input of the call, and is judged again

	// AcceptEdits belongs to an approved plan of the main agent: the plan is carried out in
	// permission mode acceptEdits rather than in the mode before plan mode.
	AcceptEdits bool `json:"accept_edits,omitempty"`

	// Dismissed belongs to a denied form: the user closed it without an answer, which differs
	// from refusing to answer.
	Dismissed bool `json:"dismissed,omitempty"`
}

// Causes of the end of a task's context, and errors that a driver returns.
var (
	// ErrStopRequested is the cause of a context that ended by a stop.
	// [*StopError] carries the actor.
	ErrStopRequested = errors.New("stop requested")
	// ErrClosing is the cause when the host closes in order.
	ErrClosing = errors.New("host is closing")
	// ErrTimeout is the cause when the task's own deadline passed.
	ErrTimeout = errors.New("task timed out")

	// ErrDetached is returned on closing by a driver whose work continues without
	// this host. The task stays running, and the next host adopts it.
	ErrDetached = errors.New("work continues without this host")
	// ErrLost is returned by a driver that cannot find the work of an earlier host.
	ErrLost = errors.New("cannot find the work of an earlier host")
)

// Lost returns the cause of the end of a task whose host died. boot is the present boot ID of
// the machine, or empty if it is unknown.
func Lost(r Record, boot string) *Cause {
	if p := r.Process; p != nil && boot != "" && p.Boot != boot {
		return &Cause{Actor: ByUnknown, Reason: ReasonReboot, Detail: "interrupted by a restart of the machine"}
	}
	return &Cause{Actor: ByKeeper, Reason: ReasonHostLost, Detail: "its host ended without closing"}
}

// StopError is the cause of a stopped context: the actor and the reason.
type StopError struct {
	Cause Cause
	Grace *time.Duration // between the first signal and the kill; nil: the driver's default
}

func (e *StopError) Error() string {
	return "stop requested by " + string(e.Cause.Actor) + " (" + string(e.Cause.Reason) + ")"
}

// Is makes errors.Is(err, ErrStopRequested) true.
func (e *StopError) Is(target error) bool { return target == ErrStopRequested }

// FailError is returned by a driver that knows the reason of a failure.
type FailError struct {
	Reason Reason
	Err    error
	Detail string // of the cause: one line for people, if the error alone does not explain it
}

func (e *FailError) Error() string { return e.Err.Error() }
func (e *FailError) Unwrap() error { return e.Err }

// PanicError is a panic in a driver, recovered by the runtime.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return "panic in the task's driver" }

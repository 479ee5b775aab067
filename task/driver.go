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

	// Run does the work and returns when nothing that it started is left
	// running. The cause of ctx says why it ended: [ErrStopRequested],
	// [ErrClosing], [ErrTimeout], or a parent's end. The runtime records the run as
	// Completed after nil; after an error as Killed if ctx was ended by a stop or by
	// closing, and otherwise as Failed, with the reason of a [*FailError]. A driver
	// that has acted on a stop returns an error even if the work then ends well.
	Run(ctx context.Context, h Host) (Result, error)
}

// Launcher is implemented by drivers whose work is a process. Their tasks are
// pending until the driver says by [Host.Begun] that the process is there, so
// that a task is never shown as running without it.
type Launcher interface {
	Driver
	// Launches does nothing; having it is what counts.
	Launches()
}

// Adopter is implemented by drivers whose work outlives a host, or can be taken up
// by another from what the record holds. Adopts reports whether [Driver.Run] can be
// given this running task of an earlier host; it does no I/O. The input of such a
// task is gone: what Run needs is in the record, its checkpoint included. Work that
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

// Freezer is implemented by drivers whose processes can stand still. Both may be
// called while Run is under way, and for a process that has ended, which is no
// error.
type Freezer interface {
	Driver
	Freeze(Process) error
	Thaw(Process) error
}

// Suspender is implemented by drivers whose work stands still elsewhere, without a process on this
// machine. Suspend pauses or continues a running task and returns when that is on its way. It may
// be called from several goroutines while Run is under way.
type Suspender interface {
	Driver
	Suspend(id ID, paused bool) error
}

// Result is what a run hands back beside its error.
type Result struct {
	Text     string // final answer; empty for kinds whose output file is the answer
	ExitCode *int   // of a command; -1 when it ended without one
	Signal   string // that ended the command
	Usage    *Usage
	Signals  []SignalSent // what a stop sent, for the receipt
	Left     []Survivor   // processes that could not be ended
	PassOn   bool         // after nil: running children go to the parent of the task; else they are stopped
	Notes    []string     // what else its owner must know, one line each

	// Leave is called once when nothing below the task runs any more, before its
	// end is recorded, if it is not nil: there a driver gives up the place in
	// which the task and its children have worked. ctx ends after 2 minutes.
	Leave func(ctx context.Context) *Worktree

	// Settle is called once after the end is durable, if it is not nil: there a
	// driver lets go of what proves the end, such as an exited child. It is not
	// called when the end could not be recorded.
	Settle func()
}

// Host is what the runtime offers to a running task. Its methods may be called by
// several goroutines. Those that take a context return its cause when it ends.
type Host interface {
	// Record is the task as it is now.
	Record() Record
	// Input is what the task was started with.
	Input() json.RawMessage
	// Output is where the task prints.
	Output() Output
	// Begun tells that the process of a [Launcher] is there. It returns when that
	// is durable, together with the begin of the task. Other drivers do not call
	// it: their task has begun when Run is called.
	Begun(Process) error
	// Progress replaces the progress of the task, but never its summary. It is
	// cheap, may be merged with later calls, and never fails.
	Progress(Progress)
	// Checkpoint stores the driver's own state durably. Its first field is "v".
	Checkpoint(ctx context.Context, state []byte) error
	// Ask puts a question to whoever can answer and waits: for the reply, for
	// the question's Until or its Wait, which make it a denial, or for the end of ctx or of
	// the run, whose cause it returns then. While it waits the task is awaiting
	// approval and its place is free for another. Several questions may be open
	// at once; from the ninth on they wait for their turn. ID, Task, Digest and
	// At are set by the runtime.
	Ask(ctx context.Context, q Question) (Reply, error)

	// Tell sends a message to the owner of the task and returns when it is durable.
	// Use it for news while the task runs: the runtime notifies the owner of the end.
	// Without an owner it does nothing. It returns an error that wraps [ErrMailFull]
	// if the owner has too many unread messages.
	Tell(ctx context.Context, kind MessageKind, text string, p Priority) error

	// Rest makes the task idle while wait waits, which is given ctx; its place is free for another
	// meanwhile, and the record names the children that are at work. After nil the task is at work
	// again and has its place; after an error of wait, which is returned, the run has to end.
	Rest(ctx context.Context, wait func(context.Context) error) error
	// WaitWhilePaused waits while the task is paused, or until ctx ends, whose cause it returns.
	// Its place is free for another task meanwhile. A driver that works in steps calls
	// it before each; others are paused from outside, see [Freezer].
	WaitWhilePaused(ctx context.Context) error

	Spawner
}

// Overtimer is a [Host] that gives a run whose deadline has passed some time to report what
// it has.
type Overtimer interface {
	Host
	// Overtime is a context that goes on after the deadline of the task, and ends
	// with the task by every other cause, after limit, or with done.
	Overtime(limit time.Duration) (ctx context.Context, done context.CancelFunc)
}

// Parker is a [Host] whose task can wait for the reset of a usage limit.
type Parker interface {
	Host
	// Park records that a usage limit holds the task while wait waits, which is given ctx. Its
	// place is free for another meanwhile, and the time does not count. After nil the task is at
	// work again and has its place; after an error of wait, which is returned, the run has to end.
	Park(ctx context.Context, p Parked, wait func(context.Context) error) error
}

// Retrier is a [Host] whose task can be started again in the same run.
type Retrier interface {
	Host
	// Retry records that an attempt has failed while wait waits, which is given ctx: the task is
	// pending meanwhile, and its place is free for another. After nil the driver starts the next
	// attempt, and tells so by [Host.Begun]; after an error the run has to end.
	Retry(ctx context.Context, failed Attempt, wait func(context.Context) error) error
}

// Placer is a [Host] whose task can be done by a worker, which is a process on some machine that
// takes tasks of sessions elsewhere.
type Placer interface {
	Host
	// Placed records in one step that a worker does the task, that the task has begun, and the state of the
	// driver, as [Host.Checkpoint] does. It is for a [Launcher] instead of [Host.Begun], and returns
	// when all of it is durable.
	Placed(ctx context.Context, worker string, state []byte) error
}

// Spawner starts children of a task.
type Spawner interface {
	// Spawn starts a child and returns when it is durably pending.
	Spawn(ctx context.Context, d Driver, s Spec) (Record, error)
	// Await waits for the end of a child. The slot of the waiting task is free
	// meanwhile, so a chain of waiting agents cannot block itself.
	Await(ctx context.Context, id ID) (Record, error)
}

// Output is the output of one task: readable text, appended.
type Output interface {
	io.Writer
	// File is a descriptor, opened for append, that a child process may be
	// given as stdout and stderr. The caller closes it.
	File() (*os.File, error)
	// Path is absolute.
	Path() string
	// Size is the number of bytes there now.
	Size() int64
	// Limit is the number of bytes at which a child that owns the descriptor
	// must be ended.
	Limit() int64
}

// Spec is how a task is started.
type Spec struct {
	ID           ID     // of the one task that stands for the session itself; empty: a new one
	Name         string // wanted; made unique in the session
	Description  string
	Parent       ID // empty: nobody's, or the main agent's
	Owner        ID // who is told of the end; empty: nobody
	ToolUseID    string
	AgentType    string
	Mode         string // permission mode of an agent; empty: that of who asked
	Model        string
	Prompt       string
	Command      string
	Cwd          string
	Backgrounded bool
	Keep         bool
	TTY          bool     // a command with a terminal
	Sandbox      *Sandbox // in which the command starts; nil: none
	On           string   // the worker that is wanted, or a label of some; empty: this machine
	Pool         string   // takes one of this pool's limited places while it runs; empty: unlimited
	Priority     Priority
	Silent       bool          // its owner gets no notification of its end
	Team         *Team         // of a teammate
	Timeout      time.Duration // 0: none
	Budget       Budget        // of the task and all below it; its wall time is not looked at, see Timeout
	OnEnd        string        // [Reparents], or empty: what it leaves running is stopped, unless [Result.PassOn] is set
	Schedule     string        // that has started it; empty: none
	Quote        *Quote        // what it will likely use; nil: nobody asked
	Retries      int           // how many times a command that fails is started again
	Key          string        // at most one child of a parent per key, over restarts too; empty: any number
	Input        json.RawMessage
}

// Priority of a notification in its owner's mailbox.
type Priority string

// The priorities. Unset behaves as Later.
const (
	Next  Priority = "next"  // before waiting prompts
	Later Priority = "later" // after them
)

// QuestionKind is what sort of answer a [Question] wants.
type QuestionKind string

// The kinds of questions.
const (
	Permission QuestionKind = "permission" // whether a call may run
	Choice     QuestionKind = "choice"     // what the user wants; Input holds the questions of the tool
	Form       QuestionKind = "form"       // a [FormInput] in Input asks for values; Reply.Input holds them
)

// Question is something that only somebody outside can decide.
type Question struct {
	ID    string       `json:"id"`   // made by the runtime; unique in a session
	Kind  QuestionKind `json:"kind"` // empty: permission
	Task  ID           `json:"task_id"`
	Agent string       `json:"agent,omitempty"` // who asks, for people
	Tool  string       `json:"tool"`
	// ToolUseID is that of the model's call; empty: the question is of no call.
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`        // text instead, if it was cut or is no JSON
	Hidden    int             `json:"hidden_bytes,omitempty"` // of the input, that Input does not show
	Reason    string          `json:"reason"`
	// Suggest is the rule that would have allowed the call; empty: none would.
	Suggest string `json:"suggest,omitempty"`

	Digest string    `json:"digest"` // an answer is bound to exactly this request, with its whole input
	At     time.Time `json:"at"`
	Until  time.Time `json:"until,omitzero"` // when it becomes a denial; zero: never

	// Wait is how long an answer is waited for while no frontend of a person is attached; 0: for
	// ever. The runtime sets Until by it.
	Wait time.Duration `json:"-"`
}

// Reply is the answer to a [Question].
type Reply struct {
	Allow  bool            `json:"allow"`
	Reason string          `json:"reason,omitempty"` // told to the model when denied
	Text   string          `json:"text,omitempty"`   // what the user chose or wrote, for a choice
	Input  json.RawMessage `json:"input,omitempty"`  // instead of the input that was asked about; it is judged again

	// AcceptEdits is for an approved plan of the main agent: it is carried out in permission
	// mode acceptEdits, and not in the mode before plan mode.
	AcceptEdits bool `json:"accept_edits,omitempty"`

	// Dismissed is for a form that is not allowed: nobody has answered it, as distinct from
	// somebody who refuses to answer.
	Dismissed bool `json:"dismissed,omitempty"`
}

// Causes of the end of a task's context, and errors that a driver returns.
var (
	// ErrStopRequested is the cause of a context that ended because somebody
	// asked for a stop. [*StopError] carries who.
	ErrStopRequested = errors.New("stop requested")
	// ErrClosing is the cause when the host closes in order.
	ErrClosing = errors.New("host is closing")
	// ErrTimeout is the cause when the task's own deadline passed.
	ErrTimeout = errors.New("task timed out")

	// ErrDetached is returned on closing by a driver whose work goes on without
	// this host. The task stays running, and the next host adopts it.
	ErrDetached = errors.New("work goes on without this host")
	// ErrLost is returned by a driver that was given old work and cannot say
	// what became of it.
	ErrLost = errors.New("cannot say what became of earlier work")
)

// Lost is why a task ended whose host went without closing; boot is of the
// machine as it runs now, and empty if that is not known.
func Lost(r Record, boot string) *Cause {
	if p := r.Process; p != nil && boot != "" && p.Boot != boot {
		return &Cause{Actor: ByUnknown, Reason: ReasonReboot, Detail: "interrupted by a restart of the machine"}
	}
	return &Cause{Actor: ByKeeper, Reason: ReasonHostLost, Detail: "its host ended without closing"}
}

// StopError is the cause of a stopped context: who asked, and why.
type StopError struct {
	Cause Cause
	Grace *time.Duration // between asking and killing; nil: the driver's usual
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
	Detail string // one line for people, of the cause; most need none beside the error
}

func (e *FailError) Error() string { return e.Err.Error() }
func (e *FailError) Unwrap() error { return e.Err }

// PanicError is what the runtime makes of a panic in a driver.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return "panic in the task's driver" }

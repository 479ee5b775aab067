package control

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/drover-dev/drover/task"
)

// API is a session as its faces see it. A task is named by its ID, by a prefix
// of an ID that is unique in the session, or by its name; such text is called
// a ref. All methods may be called by several goroutines.
//
// Errors that a user can do something about are an [*Error].
type API interface {
	// Info says which session this is.
	Info(ctx context.Context) (Info, error)

	// Start starts tasks and returns when each is durably pending, in the order
	// of the requests. A refused request does not hinder the others: its place
	// in the answer carries the error.
	Start(ctx context.Context, reqs []StartRequest) ([]Started, error)

	// List returns tasks, newest first.
	List(ctx context.Context, req ListRequest) (Page, error)

	// Get returns one task.
	Get(ctx context.Context, ref string) (task.Record, error)

	// Wait returns when the tasks have ended, or the first of them with Any, or
	// when the time is up: then TimedOut is set and it is no error.
	Wait(ctx context.Context, req WaitRequest) (WaitReply, error)

	// Stop ends whole subtrees and returns when they are gone or named.
	// Stopping what has ended is no error and changes nothing.
	Stop(ctx context.Context, req StopRequest) (task.Receipt, error)

	// Promote moves a foreground task to the background.
	Promote(ctx context.Context, ref string) (task.Record, error)

	// Output reads the output file.
	Output(ctx context.Context, req OutputRequest) (Chunk, error)

	// Messages are the newest messages of an agent, the oldest first. To the ID of
	// the session they are those of its main agent.
	Messages(ctx context.Context, req MessagesRequest) (Messages, error)

	// Result is a part of the final answer of a task that has ended; [WholeResult]
	// is all of it.
	Result(ctx context.Context, req ResultRequest) (Answer, error)

	// Events yields every event after a sequence number, then waits for more
	// until ctx ends. It ends with an error, or silently with the session.
	Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error]

	// Watch yields what happens in the conversation of the main agent, first what is
	// kept of it, then as it happens until ctx ends; the first piece is an [OpenPiece].
	// Whoever watches is attached: the host stays for as long. A session without a main
	// agent has no other pieces. It ends with an error, or silently with the session.
	Watch(ctx context.Context, req WatchRequest) iter.Seq2[Piece, error]

	// Approvals returns the questions that wait for an answer, oldest first. With
	// Wait it returns when the listing is another than that of version After, or
	// when the time is up.
	Approvals(ctx context.Context, req ApprovalsRequest) (Approvals, error)

	// Decide answers a question. It returns when the answer is durable. An answer
	// that is late, a second one, or to another request than the digest says is a
	// [Conflict] and changes nothing.
	Decide(ctx context.Context, req DecideRequest) error

	// Attention returns what needs the user, what holds up most first. With Wait it
	// returns when the list is another than that of version After, or when the time is up.
	Attention(ctx context.Context, req AttentionRequest) (Attention, error)

	// MarkSeen records that the user knows how tasks ended, all of them or none. What is
	// marked already stays so. A task that has not ended is a [Conflict].
	MarkSeen(ctx context.Context, refs []string) ([]task.Record, error)

	// State says where the session stands as a whole. With Wait it returns when
	// the state is another than that of version After, or when the time is up.
	State(ctx context.Context, req StateRequest) (State, error)

	// Configure changes what the main agent works with, from the next call of its model
	// and of a tool on, and returns the settings as they are then. An empty request
	// changes nothing. A session without a main agent is [Unavailable].
	Configure(ctx context.Context, req ConfigureRequest) (Settings, error)

	// Environment is what the main agent works with: rules, hooks, servers, memory, costs.
	Environment(ctx context.Context) (Environment, error)

	// Commands are what a prompt to the main agent may begin with, as they are now.
	Commands(ctx context.Context) (Commands, error)

	// Prompts are what the user has written to the main agent so far.
	Prompts(ctx context.Context) (Prompts, error)

	// Fork makes another session of the project that goes on with a copy of the
	// conversation, as it stands or stood before a prompt. This session stays as it is,
	// and its mail and tasks are not copied.
	Fork(ctx context.Context, req ForkRequest) (Forked, error)

	// Prompt gives the main agent something to do. It returns when the prompt
	// is queued.
	Prompt(ctx context.Context, req PromptRequest) error

	// Send gives a message to an agent: one that is alive reads it before its next
	// step, one that has ended goes on with it in a new run. To the session, or to
	// the task that stands for its main agent, it is a prompt. The record is that
	// of the agent then; of a main agent that is no task only its ID is set.
	Send(ctx context.Context, req SendRequest) (task.Record, error)

	// Pause holds whole subtrees, and returns them, roots first, when that is
	// durable. An agent that is paused begins no call of its model or of a tool,
	// and keeps all its work; commands stand still. What is paused stays so.
	Pause(ctx context.Context, refs []string) ([]task.Record, error)

	// Resume lets a paused subtree go on, or gives an agent that has ended a new
	// run. What neither is paused nor has ended is a [Conflict].
	Resume(ctx context.Context, req ResumeRequest) (task.Record, error)

	// Interrupt breaks off the turn of an agent and does not end its task: it is
	// idle then and waits for a message, as the main agent does for a prompt. One
	// that is in no turn is a [Conflict].
	Interrupt(ctx context.Context, ref string) (task.Record, error)

	// HoldLease keeps a lease while ctx lives. When it ends, by whatever way, tasks
	// that were started under the lease are stopped.
	HoldLease(ctx context.Context, lease string) error
}

// Roles say what a session is for.
const (
	RoleBackground = "background" // tasks of `drover run -d` and of clients
	RoleRun        = "run"        // one foreground command
	RolePrompt     = "prompt"     // a main agent
)

// Info is what a listing of sessions shows; session.json holds the same.
type Info struct {
	Session   task.ID    `json:"session_id"`
	Project   string     `json:"project"` // the folder
	Title     string     `json:"title,omitempty"`
	Role      string     `json:"role"` // one of the roles
	Version   string     `json:"version"`
	PID       int        `json:"pid,omitempty"` // of the host, while it lives
	Live      bool       `json:"live"`
	Stopped   bool       `json:"stopped,omitempty"`  // its host lives and stands still, as after Ctrl-Z
	Detached  bool       `json:"detached,omitempty"` // it has a host of its own, which takes further prompts
	Socket    string     `json:"socket,omitempty"`
	Dir       string     `json:"dir"`
	StartTime time.Time  `json:"start_time"`
	EndTime   *time.Time `json:"end_time"`
	Tasks     Counts     `json:"tasks"`
	DiskBytes int64      `json:"disk_bytes,omitempty"`

	OutputBytes int64  `json:"output_bytes,omitempty"` // of the output files; of a session that has ended
	Problem     string `json:"problem,omitempty"`      // why nothing starts or is saved now; empty: all is well
	Damaged     bool   `json:"damaged,omitempty"`      // its session.json cannot be read: this is what else is known of it

	// Of a session that was carried here: further names, and what it was there.
	Aliases        []string `json:"aliases,omitempty"`
	TeleportedFrom string   `json:"teleported_from,omitempty"`
}

// Counts is how many tasks a session has.
type Counts struct {
	Live  int `json:"live"`
	Total int `json:"total"`
}

// StartRequest starts one task. Exactly one of Shell, Agent, Dream, Monitor, Workflow
// and Remote is set.
type StartRequest struct {
	Name        string        `json:"name,omitempty"`
	Description string        `json:"description,omitempty"`
	Lease       string        `json:"lease,omitempty"` // see HoldLease
	Timeout     time.Duration `json:"timeout_ns,omitempty"`
	Keep        bool          `json:"keep,omitempty"`

	Shell    *ShellRequest    `json:"shell,omitempty"`
	Agent    *AgentRequest    `json:"agent,omitempty"`
	Dream    *DreamRequest    `json:"dream,omitempty"`
	Monitor  *MonitorRequest  `json:"monitor,omitempty"`
	Workflow *WorkflowRequest `json:"workflow,omitempty"`
	Remote   *RemoteRequest   `json:"remote,omitempty"`

	// Guarded says that the command was thought of by a model, so that what the
	// user's rules deny is refused.
	ByModel bool `json:"by_model,omitempty"`
	// Env is the environment of the asking client. It is used and not kept.
	Env []string `json:"env,omitempty"`
	Cwd string   `json:"cwd"` // absolute
}

// Check refuses a request that does not say what to start, as an [*Error].
func (r StartRequest) Check() error {
	n := 0
	for _, set := range []bool{r.Shell != nil, r.Agent != nil, r.Dream != nil, r.Monitor != nil, r.Workflow != nil,
		r.Remote != nil} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return &Error{
			Code:    Invalid,
			Message: "a start request names exactly one thing to start: a command, an agent, a monitor, a workflow, remote work or a dream",
		}
	case len(r.Lease) > task.MaxName:
		return &Error{
			Code:    Invalid,
			Message: fmt.Sprintf("the lease has %d bytes, more than the limit of %d", len(r.Lease), task.MaxName),
			Fix:     "give a shorter one",
		}
	case envBytes(r.Env) > maxEnv:
		return &Error{
			Code:    Invalid,
			Message: fmt.Sprintf("the environment has %d bytes, more than the limit of %d", envBytes(r.Env), maxEnv),
			Fix:     "leave out what the task does not need",
		}
	case r.Timeout < 0:
		return &Error{Code: Invalid, Message: fmt.Sprintf("the time limit %s is negative", r.Timeout)}
	}
	return nil
}

// maxEnv bounds an environment. No system that Drover runs on takes more.
const maxEnv = 6 << 20

func envBytes(env []string) (n int) {
	for _, v := range env {
		n += len(v) + 1
	}
	return n
}

// ShellRequest is a command: a program with its arguments, or a line for bash.
type ShellRequest struct {
	Args []string `json:"args,omitempty"`
	Line string   `json:"line,omitempty"`
	TTY  bool     `json:"tty,omitempty"` // it gets a terminal, into which Send types
}

// AgentRequest is one agent without a conversation around it.
type AgentRequest struct {
	Type           string   `json:"agent_type"`
	Prompt         string   `json:"prompt"`
	Model          string   `json:"model,omitempty"`
	MaxTurns       int      `json:"max_turns,omitempty"`
	PermissionMode string   `json:"permission_mode,omitempty"`
	AllowedTools   []string `json:"allowed_tools,omitempty"`
	Isolation      string   `json:"isolation,omitempty"` // worktree; empty: as its definition says
	Team           string   `json:"team_name,omitempty"` // of a teammate, called by the name of the request; empty: it is none
}

// Started answers one [StartRequest].
type Started struct {
	Task  *task.Record `json:"task,omitempty"`
	Error *Error       `json:"error,omitempty"`
}

// ListRequest selects tasks.
type ListRequest struct {
	All    bool     `json:"all,omitempty"`    // ended ones too
	Under  task.ID  `json:"under,omitempty"`  // only this task's subtree
	Before task.Seq `json:"before,omitempty"` // for the next page: Page.Next
	Limit  int      `json:"limit,omitempty"`  // 0: no limit
}

// Page is part of a listing.
type Page struct {
	Tasks []task.Record `json:"tasks"`
	Next  task.Seq      `json:"next,omitempty"` // 0: this was the last page

	Problem string `json:"problem,omitempty"` // of the session, see [Info]
}

// WaitRequest waits for tasks.
type WaitRequest struct {
	Refs    []string      `json:"refs"`
	Any     bool          `json:"any,omitempty"`
	Timeout time.Duration `json:"timeout_ns,omitempty"` // 0: no limit

	// Told is the problem that the client knows of, see [Info]. When it becomes
	// another the wait returns early. Nil: it does not.
	KnownProblem *string `json:"known_problem,omitempty"`
}

// WaitReply holds the tasks as they are now, in the order asked for; with Any
// the first to end comes first.
type WaitReply struct {
	Tasks    []task.Record `json:"tasks"`
	TimedOut bool          `json:"timed_out,omitempty"`

	// Problem says that the wait is not over, only what keeps the session has
	// become another; empty: nothing does any more.
	Problem *string `json:"problem,omitempty"`
}

// StopRequest stops subtrees. A nil Grace is the usual one of 2 s.
type StopRequest struct {
	Refs   []string       `json:"refs"`
	Grace  *time.Duration `json:"grace_ns,omitempty"`
	Actor  task.Actor     `json:"actor,omitempty"` // default: user
	Detail string         `json:"detail,omitempty"`
}

// OutputRequest reads output from Offset, or its end with Tail.
type OutputRequest struct {
	Ref    string        `json:"ref"`
	Offset int64         `json:"offset,omitempty"`
	Tail   int           `json:"tail,omitempty"`    // lines from the end; 0: from Offset
	Max    int           `json:"max,omitempty"`     // bytes; 0: 64 KiB
	Wait   time.Duration `json:"wait_ns,omitempty"` // for more, if there is nothing
}

// Chunk is a piece of output. Data holds the bytes as they are: making them
// harmless for a terminal is the face's work.
type Chunk struct {
	Data   []byte `json:"data"`
	Offset int64  `json:"offset"` // of the first byte
	Next   int64  `json:"next"`   // where to read on
	Size   int64  `json:"size"`
	Ended  bool   `json:"ended"` // the task has ended, and nothing is left to read
}

// ResultRequest asks for the part of an answer behind an offset.
type ResultRequest struct {
	Ref    string `json:"ref"`
	Offset int64  `json:"offset,omitempty"`
	Max    int    `json:"max,omitempty"` // bytes, 8 MiB at most; 0: 1 MiB
}

// Answer is the final answer of a task, or a part of it: whole characters, and then Next
// is where to read on until it is Size.
type Answer struct {
	Task   task.Record `json:"task"`
	Text   string      `json:"text"`
	Offset int64       `json:"offset,omitempty"`
	Next   int64       `json:"next,omitempty"`
	Size   int64       `json:"size,omitempty"` // of the whole, in bytes
}

// Parts yields the final answer of a task part by part from an offset on, at least one. It
// ends with an error.
func Parts(ctx context.Context, a API, ref string, from int64) iter.Seq2[Answer, error] {
	return func(yield func(Answer, error) bool) {
		for req := (ResultRequest{Ref: ref, Offset: from}); ; {
			part, err := a.Result(ctx, req)
			if !yield(part, err) || err != nil || part.Next <= req.Offset || part.Next >= part.Size {
				return
			}
			req.Offset = part.Next
		}
	}
}

// WholeResult is the final answer of a task in one piece.
func WholeResult(ctx context.Context, a API, ref string) (Answer, error) {
	var whole Answer
	var text strings.Builder
	for part, err := range Parts(ctx, a, ref, 0) {
		if err != nil {
			return part, err
		}
		if text.Len() == 0 && part.Next >= part.Size { // it is all there is
			return Answer{Task: part.Task, Text: part.Text}, nil
		}
		text.Grow(int(part.Size) - text.Len())
		text.WriteString(part.Text)
		whole.Task = part.Task
	}
	whole.Text = text.String()
	return whole, nil
}

// ApprovalsRequest asks for open questions.
type ApprovalsRequest struct {
	After int64         `json:"after,omitempty"`   // the version that is known already; only with Wait
	Wait  time.Duration `json:"wait_ns,omitempty"` // for another version; 0: answer at once
	ID    string        `json:"id,omitempty"`      // only this question, with all of its input, if it is open
}

// Approvals is what waits for an answer. A version means something to the
// session that gave it only.
type Approvals struct {
	Questions []task.Question `json:"questions"`
	Version   int64           `json:"version"`
}

// DecideRequest answers one question. Digest is that of the question as it was
// shown to whoever decides: without it nothing is decided.
type DecideRequest struct {
	ID     string     `json:"id"`
	Digest string     `json:"digest"`
	Reply  task.Reply `json:"reply"`
	Always string     `json:"always,omitempty"` // the rule that the question suggests: it holds from now on, and is written to the settings
	Actor  task.Actor `json:"actor,omitempty"`  // default: user
	Detail string     `json:"detail,omitempty"`
}

// StateRequest asks for the state of the session.
type StateRequest struct {
	After int64         `json:"after,omitempty"`   // the version that is known already; only with Wait
	Wait  time.Duration `json:"wait_ns,omitempty"` // for another version; 0: answer at once
}

// State is where a session stands as a whole, as distinct from its tasks. It
// lives with the host: counts and versions mean something to the session that
// gave them only.
type State struct {
	// Idle says that nothing is left to answer, nothing is owed to the main
	// agent, and no agent is at work. Commands and monitors may be running, and
	// agents may rest.
	Idle bool `json:"idle"`
	// Rests is how often the session has become idle, as far as anybody looked.
	IdleCount int64 `json:"idle_count"`
	// Completed is the last word of the main agent on whether all is done; only
	// a session with autopilot has one.
	Completed *Completion `json:"completed,omitempty"`
	Version   int64       `json:"version"`
	Seq       task.Seq    `json:"seq"` // of the newest event that it takes in
	// Settings are those of the main agent; nil: there is none.
	Settings *Settings `json:"settings,omitempty"`
}

// ConfigureRequest changes the settings of the main agent. What is nil stays as it is.
// Agents that it starts later begin with the new settings; those at work keep theirs.
type ConfigureRequest struct {
	Model    *string   `json:"model,omitempty"`           // a name or an alias
	Mode     *string   `json:"permission_mode,omitempty"` // default, acceptEdits, plan, dontAsk or bypassPermissions
	Thinking *Thinking `json:"thinking,omitempty"`

	SessionMode *string `json:"session_mode,omitempty"` // interactive or autopilot, from the next prompt on
}

// Thinking is how much the model is asked to think; the zero value leaves it to the
// provider.
type Thinking struct {
	Effort string `json:"effort,omitempty"` // low, medium, high, xhigh or max
	Tokens int    `json:"tokens,omitempty"` // at most; negative: no thinking
}

// Efforts are the values of [Thinking.Effort], the least first.
func Efforts() []string { return []string{"low", "medium", "high", "xhigh", "max"} }

// Settings are what the main agent works with.
type Settings struct {
	Model    string   `json:"model"` // the full name
	Mode     string   `json:"permission_mode"`
	Thinking Thinking `json:"thinking"`

	SessionMode string `json:"session_mode"`             // interactive or autopilot
	Window      int64  `json:"context_window,omitempty"` // tokens that the model can read; 0: not known
}

// Completion is a call of task_complete that was not held back by a hook.
type Completion struct {
	N       int64  `json:"n"` // 1 for the first
	Summary string `json:"summary"`
	Success bool   `json:"success"` // false: the call was refused
}

// PromptRequest is a prompt for the main agent.
type PromptRequest struct {
	Text   string  `json:"text"`
	Images []Image `json:"images,omitempty"` // 20 at most, 5 MiB each, 20 MiB together
}

// Image is an image of a prompt: PNG, JPEG, GIF or WebP.
type Image struct {
	Name      string `json:"name,omitempty"`       // as the model reads it
	MediaType string `json:"media_type,omitempty"` // empty: as the content says
	Data      []byte `json:"data"`                 // base64 in JSON
}

// SendRequest is a message to an agent. Ref may be the ID of the session too.
type SendRequest struct {
	Ref  string `json:"ref"`
	Text string `json:"text"`
	From string `json:"from,omitempty"` // who is told to have written; default: user
	// Raw says that the text for the terminal of a command is typed as it is. Else
	// its lines are ended, and the last one too, as by Enter.
	Raw bool `json:"raw,omitempty"`
	// Env is the environment of the asking client, for the further run of an agent
	// that a client has started. It is used and not kept.
	Env []string `json:"env,omitempty"`
}

// ResumeRequest lets a task go on. Prompt is for an agent that has ended; empty:
// it is told to go on.
type ResumeRequest struct {
	Ref    string   `json:"ref"`
	Prompt string   `json:"prompt,omitempty"`
	Env    []string `json:"env,omitempty"` // as in SendRequest
}

// Code classes an [Error].
type Code string

// The codes.
const (
	NotFound    Code = "not_found"
	TooLarge    Code = "too_large" // the request has more bytes than it may have
	Ambiguous   Code = "ambiguous"
	Invalid     Code = "invalid"     // the request is wrong
	Conflict    Code = "conflict"    // not possible in the state of the task or question
	Unavailable Code = "unavailable" // not now, or not by this kind of session
	Internal    Code = "internal"
)

// Error is a failure that the user is told of: what failed, why, how to fix it.
type Error struct {
	Code        Code     `json:"code"`
	Message     string   `json:"message"`
	Fix         string   `json:"fix,omitempty"`
	Matches     []string `json:"matches,omitempty"`      // of an ambiguous ref
	NotAccepted bool     `json:"not_accepted,omitempty"` // the session is ending, and nothing was done: the next host may be asked

	err error // that it was made of, in the process that made it
}

func (e *Error) Unwrap() error { return e.err }

func (e *Error) Error() string {
	if e.Fix != "" {
		return e.Message + " (" + e.Fix + ")"
	}
	return e.Message
}

// NotFoundError says that no task is known by ref.
func NotFoundError(ref string) *Error {
	return &Error{Code: NotFound, Message: fmt.Sprintf("unknown task_id: %s", ref), Fix: "see `drover ps -a`"}
}

// AsError makes an [*Error] of any error.
func AsError(err error) *Error {
	var e *Error
	var move *task.MoveError
	var size *task.SizeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return e
	case errors.As(err, &size):
		return &Error{Code: Invalid, Message: strings.TrimSuffix(err.Error(), " ("+size.Fix+")"), Fix: size.Fix, err: err}
	case errors.As(err, &move):
		return &Error{Code: Conflict, Message: err.Error(), err: err}
	}
	return &Error{Code: Internal, Message: err.Error(), err: err}
}

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

// API is a session for its frontends. A task is named by its ID, by a prefix of an ID
// that is unique in the session, or by its name; such text is called a ref. All methods may be
// called by several goroutines.
//
// Errors that a user can fix are an [*Error].
type API interface {
	// Info returns the description of this session.
	Info(ctx context.Context) (Info, error)

	// Start starts tasks and returns when each is durably pending, in the order of the
	// requests. A refused request does not affect the others: its place in the result has the
	// error.
	Start(ctx context.Context, reqs []StartRequest) ([]Started, error)

	// List returns tasks, newest first.
	List(ctx context.Context, req ListRequest) (Page, error)

	// Get returns one task.
	Get(ctx context.Context, ref string) (task.Record, error)

	// Wait returns when the tasks have ended, or the first of them with Any, or after the
	// timeout: then TimedOut is set, without an error.
	Wait(ctx context.Context, req WaitRequest) (WaitReply, error)

	// Stop ends whole subtrees and returns when they have ended or are named as survivors.
	// Stopping an ended task is not an error and changes nothing.
	Stop(ctx context.Context, req StopRequest) (task.Receipt, error)

	// Promote moves a foreground task to the background.
	Promote(ctx context.Context, ref string) (task.Record, error)

	// Output reads the output file.
	Output(ctx context.Context, req OutputRequest) (Chunk, error)

	// Messages returns the newest messages of an agent, oldest first. The ID of the session
	// names its main agent.
	Messages(ctx context.Context, req MessagesRequest) (Messages, error)

	// Result returns a part of the final answer of an ended task; [WholeResult] returns all of
	// it.
	Result(ctx context.Context, req ResultRequest) (Answer, error)

	// Events yields every event after a sequence number, then waits for more until ctx ends. It
	// ends with an error, or without one when the session ends.
	Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error]

	// Watch yields the conversation of the main agent, first the part that is kept, then new
	// pieces until ctx ends; the first piece is an [OpenPiece]. A caller of Watch is attached,
	// and the host stays meanwhile. A session without a main agent has no other pieces. It ends
	// with an error, or without one when the session ends.
	Watch(ctx context.Context, req WatchRequest) iter.Seq2[Piece, error]

	// Approvals returns the open questions, oldest first. With Wait it returns when the version
	// of the list differs from After, or after the timeout.
	Approvals(ctx context.Context, req ApprovalsRequest) (Approvals, error)

	// Decide answers a question. It returns when the answer is durable. An answer that is late,
	// repeated, or to a request with another digest is a [Conflict] and changes nothing.
	Decide(ctx context.Context, req DecideRequest) error

	// Attention returns the things that need the user, the most blocking first. With Wait it returns when
	// the version of the list differs from After, or after the timeout.
	Attention(ctx context.Context, req AttentionRequest) (Attention, error)

	// Schedules lists the schedules of the project, and changes them. Only the background session of
	// a project has them.
	Schedules(ctx context.Context, req ScheduleRequest) (Schedules, error)

	// Forward forwards a port of the network that the sandboxed commands of the session share to the
	// loopback address of this machine, or ends that, and returns the forwarded ports. A session whose
	// commands use the network of the machine is [Unavailable].
	Forward(ctx context.Context, req ForwardRequest) (Forwards, error)

	// MarkSeen records that the user has seen how tasks ended, all of them or none. Marked
	// tasks stay marked. A task that has not ended is a [Conflict].
	MarkSeen(ctx context.Context, refs []string) ([]task.Record, error)

	// State returns the state of the whole session. With Wait it returns when the version of
	// the state differs from After, or after the timeout.
	State(ctx context.Context, req StateRequest) (State, error)

	// Configure changes the settings of the main agent from its next call of the model or of a
	// tool on, and returns the resulting settings. An empty request changes nothing. A session
	// without a main agent is [Unavailable].
	Configure(ctx context.Context, req ConfigureRequest) (Settings, error)

	// Environment returns the environment of the main agent: rules, hooks, servers, memory,
	// costs.
	Environment(ctx context.Context) (Environment, error)

	// Commands returns the commands with which a prompt to the main agent may begin.
	Commands(ctx context.Context) (Commands, error)

	// Prompts returns the prompts of the user to the main agent so far.
	Prompts(ctx context.Context) (Prompts, error)

	// Fork makes another session of the project with a copy of the conversation, whole or up
	// to a prompt. This session stays as it is, and its mail and tasks are not copied.
	Fork(ctx context.Context, req ForkRequest) (Forked, error)

	// Diff returns the changes of a task in a worktree of its own, while it runs and after.
	Diff(ctx context.Context, req DiffRequest) (Diff, error)

	// Comment sends comments on lines of a diff to the agent of a task, as one message with the
	// lines, in the way of Send. If Digest is set and the change differs by now, it is a
	// [Conflict] and sends nothing.
	Comment(ctx context.Context, req CommentRequest) (task.Record, error)

	// Prompt sends the main agent a prompt. It returns when the prompt is queued.
	Prompt(ctx context.Context, req PromptRequest) error

	// Send sends a message to an agent: a live one reads it before its next step, an ended one
	// continues with it in a new run. To the session, or to the task of its main agent, it is a
	// prompt. It returns the record of the agent; for a main agent that is not a task only its
	// ID is set.
	Send(ctx context.Context, req SendRequest) (task.Record, error)

	// Pause pauses whole subtrees, and returns them, roots first, when that is durable. A
	// paused agent begins no call of its model or of a tool, and keeps all its work; commands
	// are suspended. Paused tasks stay paused.
	Pause(ctx context.Context, refs []string) ([]task.Record, error)

	// Resume resumes a paused subtree, or gives an ended agent a new run. A task that is
	// neither paused nor ended is a [Conflict].
	Resume(ctx context.Context, req ResumeRequest) (task.Record, error)

	// Interrupt cancels the turn of an agent without ending its task: it is idle then and waits
	// for a message, as the main agent does for a prompt. An agent without a turn is a
	// [Conflict].
	Interrupt(ctx context.Context, ref string) (task.Record, error)

	// HoldLease holds a lease while ctx lives. When ctx ends for any reason, the tasks that
	// were started under the lease are stopped.
	HoldLease(ctx context.Context, lease string) error
}

// Roles of a session.
const (
	RoleBackground = "background" // tasks of `drover run -d` and of clients
	RoleRun        = "run"        // one foreground command
	RolePrompt     = "prompt"     // a main agent
)

// Info is the description of a session, as in a listing and in session.json.
type Info struct {
	Session   task.ID    `json:"session_id"`
	Project   string     `json:"project"` // the folder
	Title     string     `json:"title,omitempty"`
	Role      string     `json:"role"` // one of the roles
	Version   string     `json:"version"`
	PID       int        `json:"pid,omitempty"` // of the host, while it lives
	Live      bool       `json:"live"`
	Stopped   bool       `json:"stopped,omitempty"`  // its host lives and is suspended, as after Ctrl-Z
	Detached  bool       `json:"detached,omitempty"` // it has its own host, which accepts further prompts
	Socket    string     `json:"socket,omitempty"`
	Dir       string     `json:"dir"`
	StartTime time.Time  `json:"start_time"`
	EndTime   *time.Time `json:"end_time"`
	Tasks     Counts     `json:"tasks"`
	DiskBytes int64      `json:"disk_bytes,omitempty"`

	OutputBytes int64  `json:"output_bytes,omitempty"` // of the output files; of a session that has ended
	Problem     string `json:"problem,omitempty"`      // why starts or saves fail now; empty: they do not
	Damaged     bool   `json:"damaged,omitempty"`      // its session.json cannot be read: the rest is from other sources

	// Of an imported session: further names, and its description at the origin.
	Aliases        []string `json:"aliases,omitempty"`
	TeleportedFrom string   `json:"teleported_from,omitempty"`
}

// Counts has the number of tasks of a session by state.
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

	// ByModel means that a model chose the command, so that the user's deny rules apply.
	ByModel bool `json:"by_model,omitempty"`
	// Env is the environment of the client. It is used and not stored.
	Env []string `json:"env,omitempty"`
	Cwd string   `json:"cwd"` // absolute

	// On names a worker or a label of workers, one of which does the task; auto: any worker. Empty:
	// this machine. EnvNames are the variables of Env that travel there: no others do.
	On       string   `json:"on,omitempty"`
	EnvNames []string `json:"env_names,omitempty"`
	// NoFolder leaves the folder here. Otherwise a checkout of git travels with the task: its commit, its
	// uncommitted changes, and the untracked files that match Untracked; changes made there come back as
	// the ref refs/drover/tasks/ID.
	NoFolder  bool     `json:"no_folder,omitempty"`
	Untracked []string `json:"untracked,omitempty"`
	// Sync sends the files of a folder outside of git. Changes made there come back
	// into a folder of the session, which the worktree of the record names.
	Sync bool `json:"sync,omitempty"`

	Schedule string `json:"-"` // that starts the task; set by the session itself
}

// Check refuses a request that does not state what to start, as an [*Error].
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
		return Refuse(Invalid, fmt.Sprintf("the lease has %d bytes, more than the limit of %d", len(r.Lease), task.MaxName),
			"give a shorter one")
	case envBytes(r.Env) > maxEnv:
		return Refuse(Invalid,
			fmt.Sprintf("the environment has %d bytes, more than the limit of %d", envBytes(r.Env), maxEnv),
			"leave out what the task does not need")
	case r.Shell != nil && (r.Shell.Retries < 0 || r.Shell.Retries > task.MaxRetries):
		return Refuse(Invalid, fmt.Sprintf("%d retries are not between 0 and %d", r.Shell.Retries, task.MaxRetries), "")
	case r.Shell != nil && r.Shell.Retries > 0 && (r.Keep || r.Shell.TTY):
		return Refuse(Invalid, "retries of a command that is kept or has a terminal",
			"leave one of them out: only its host can start a command again")
	case r.On != "" && r.Shell == nil && r.Agent == nil:
		return Refuse(Invalid, "only commands and agents work at workers", "leave out on")
	case r.Agent != nil && len(r.EnvNames) > 0:
		return &Error{Code: Invalid, Message: "variables do not travel with an agent", Fix: "leave them out: its commands have the environment of the worker"}
	case r.On == "" && len(r.EnvNames) > 0:
		return Refuse(Invalid, "variables that travel, and no worker to travel to", "name one with on")
	case r.On == "" && (r.NoFolder || r.Sync || len(r.Untracked) > 0):
		return Refuse(Invalid, "what of the folder travels, and no worker to travel to", "name one with on")
	case r.Sync && (r.NoFolder || len(r.Untracked) > 0):
		return Refuse(Invalid, "sync, which sends all files of a folder, with no_folder or untracked",
			"leave one of them out")
	case r.Timeout < 0:
		return Refuse(Invalid, fmt.Sprintf("the time limit %s is negative", r.Timeout), "")
	}
	return nil
}

// maxEnv limits the size of an environment, as the systems that Drover runs on do.
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
	TTY  bool     `json:"tty,omitempty"` // with a terminal, into which Send types

	// Sandbox starts the command within the bounds that the machine can enforce; its record says
	// which hold.
	Sandbox bool `json:"sandbox,omitempty"`
	// Folders are the folders that the command may write in the sandbox, absolute; none: its working folder. A
	// command of a model can write no other.
	Folders []string `json:"folders,omitempty"`

	// Retries is how many times the command is started again when it fails, after 1 s, 2 s, 4 s and
	// so on, at most 5 minutes. The task and its time limit are one.
	Retries int `json:"retries,omitempty"`
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
	Quote          bool     `json:"quote,omitempty"`     // its record gets an estimate of its use
	Team           string   `json:"team_name,omitempty"` // of a teammate, which is called as the request; empty: not a teammate
}

// Started is the result of one [StartRequest].
type Started struct {
	Task  *task.Record `json:"task,omitempty"`
	Error *Error       `json:"error,omitempty"`
}

// ListRequest selects tasks.
type ListRequest struct {
	All    bool     `json:"all,omitempty"`    // includes ended ones
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

	// KnownProblem is the problem that the client knows of, see [Info]. When the problem changes,
	// the wait returns early. Nil: it does not.
	KnownProblem *string `json:"known_problem,omitempty"`
}

// WaitReply has the current tasks, in the order of the request; with Any the first to end comes
// first.
type WaitReply struct {
	Tasks    []task.Record `json:"tasks"`
	TimedOut bool          `json:"timed_out,omitempty"`

	// Problem means that the wait is not over and that the session's problem has changed;
	// empty: it is solved.
	Problem *string `json:"problem,omitempty"`
}

// StopRequest stops subtrees. A nil Grace is the default of 2 s.
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
	Wait   time.Duration `json:"wait_ns,omitempty"` // wait for more, if there is nothing
}

// Chunk is a piece of output. Data has the raw bytes: the frontend escapes them for a terminal.
type Chunk struct {
	Data   []byte `json:"data"`
	Offset int64  `json:"offset"` // of the first byte
	Next   int64  `json:"next"`   // the next offset
	Size   int64  `json:"size"`
	Ended  bool   `json:"ended"` // the task has ended, and nothing is left to read
}

// ResultRequest requests the part of an answer from an offset.
type ResultRequest struct {
	Ref    string `json:"ref"`
	Offset int64  `json:"offset,omitempty"`
	Max    int    `json:"max,omitempty"` // bytes, 8 MiB at most; 0: 1 MiB
}

// Answer is the final answer of a task, or a part of it: whole characters. Next is the next
// offset, until it is Size.
type Answer struct {
	Task   task.Record `json:"task"`
	Text   string      `json:"text"`
	Offset int64       `json:"offset,omitempty"`
	Next   int64       `json:"next,omitempty"`
	Size   int64       `json:"size,omitempty"` // of the whole, in bytes
}

// Parts yields the final answer of a task part by part from an offset on, at least one. It ends
// with an error.
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
		if text.Len() == 0 && part.Next >= part.Size { // it is complete
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
	After int64         `json:"after,omitempty"`   // the known version; only with Wait
	Wait  time.Duration `json:"wait_ns,omitempty"` // maximum wait for another version; 0: return at once
	ID    string        `json:"id,omitempty"`      // only this question, with its complete input, if it is open

	// Person says that the caller shows the questions to a person. As long as such calls follow
	// each other, no question is denied for want of an answer.
	Person bool `json:"person,omitempty"`
}

// Approvals has the open questions. A version is valid only for the session that returned it.
type Approvals struct {
	Questions []task.Question `json:"questions"`
	Version   int64           `json:"version"`
}

// DecideRequest answers one question. Digest is the digest of the question as it was shown, and
// is required.
type DecideRequest struct {
	ID     string     `json:"id"`
	Digest string     `json:"digest"`
	Reply  task.Reply `json:"reply"`
	Always string     `json:"always,omitempty"` // the rule that the question suggests: it applies from now on, and is written to the settings
	Actor  task.Actor `json:"actor,omitempty"`  // default: user
	Detail string     `json:"detail,omitempty"`
}

// StateRequest asks for the state of the session.
type StateRequest struct {
	After int64         `json:"after,omitempty"`   // the known version; only with Wait
	Wait  time.Duration `json:"wait_ns,omitempty"` // maximum wait for another version; 0: return at once
}

// State is the state of a whole session, as distinct from its tasks. It lives with the host:
// counts and versions are valid only for the session that returned them.
type State struct {
	// Idle means that no prompt is unanswered, the main agent has no mail, and no agent is
	// running. Commands and monitors may be running, and agents may be idle.
	Idle bool `json:"idle"`
	// IdleCount counts how often the session became idle.
	IdleCount int64 `json:"idle_count"`
	// Completed is the last statement of the main agent on whether the work is complete; only
	// with autopilot.
	Completed *Completion `json:"completed,omitempty"`
	Version   int64       `json:"version"`
	Seq       task.Seq    `json:"seq"` // of the newest event that it includes
	// Settings are the settings of the main agent; nil: the session has none.
	Settings *Settings `json:"settings,omitempty"`
}

// ConfigureRequest changes the settings of the main agent. Nil fields stay unchanged. Agents
// that it starts later begin with the new settings; running ones keep theirs.
type ConfigureRequest struct {
	Model    *string   `json:"model,omitempty"`           // a name or an alias
	Mode     *string   `json:"permission_mode,omitempty"` // default, acceptEdits, plan, dontAsk or bypassPermissions
	Thinking *Thinking `json:"thinking,omitempty"`

	SessionMode *string `json:"session_mode,omitempty"` // interactive or autopilot, from the next prompt on
}

// Thinking sets how much the model thinks; the zero value leaves it to the provider.
type Thinking struct {
	Effort string `json:"effort,omitempty"` // low, medium, high, xhigh or max
	Tokens int    `json:"tokens,omitempty"` // at most; negative: no thinking
}

// Efforts are the values of [Thinking.Effort], lowest first.
func Efforts() []string { return []string{"low", "medium", "high", "xhigh", "max"} }

// Settings are the settings of the main agent.
type Settings struct {
	Model    string   `json:"model"` // the full name
	Mode     string   `json:"permission_mode"`
	Thinking Thinking `json:"thinking"`

	SessionMode string `json:"session_mode"`             // interactive or autopilot
	Window      int64  `json:"context_window,omitempty"` // context window of the model in tokens; 0: unknown
}

// Completion is a call of task_complete that no hook refused.
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
	From string `json:"from,omitempty"` // the shown sender; default: user
	// Raw types the text into the terminal of a command unchanged. Otherwise each line,
	// including the last, is ended as by Enter.
	Raw bool `json:"raw,omitempty"`
	// Env is the environment of the client, for the further run of an agent that a client has
	// started. It is used and not stored.
	Env []string `json:"env,omitempty"`
}

// ResumeRequest resumes a task. Prompt is for an agent that has ended; empty: a default prompt.
type ResumeRequest struct {
	Ref    string   `json:"ref"`
	Prompt string   `json:"prompt,omitempty"`
	Env    []string `json:"env,omitempty"` // as in SendRequest
}

// Code classifies an [Error].
type Code string

// The codes.
const (
	NotFound    Code = "not_found"
	TooLarge    Code = "too_large" // the request is too large
	Ambiguous   Code = "ambiguous"
	Invalid     Code = "invalid"     // the request is invalid
	Conflict    Code = "conflict"    // not possible in the state of the task or question
	Unavailable Code = "unavailable" // not now, or not by this kind of session
	Internal    Code = "internal"
)

// Error is a failure for the user: what failed, why, how to fix it.
type Error struct {
	Code        Code     `json:"code"`
	Message     string   `json:"message"`
	Fix         string   `json:"fix,omitempty"`
	Matches     []string `json:"matches,omitempty"`      // of an ambiguous ref
	NotAccepted bool     `json:"not_accepted,omitempty"` // the session is ending, and nothing was done: the request may be sent to the next host

	err error // the wrapped error, in the process that made it
}

func (e *Error) Unwrap() error { return e.err }

func (e *Error) Error() string {
	if e.Fix != "" {
		return e.Message + " (" + e.Fix + ")"
	}
	return e.Message
}

// Refuse returns the error of a refused request. fix says what to do instead; it may be empty.
func Refuse(code Code, message, fix string) *Error {
	return &Error{Code: code, Message: message, Fix: fix}
}

// NotFoundError means that ref names no task.
func NotFoundError(ref string) *Error {
	return Refuse(NotFound, fmt.Sprintf("unknown task_id: %s", ref), "see `drover ps -a`")
}

// AsError converts any error to an [*Error].
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

package task

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status is the state of a run. The last three are final.
type Status string

// The five statuses.
const (
	Pending   Status = "pending"   // recorded, not started
	Running   Status = "running"   // at work, or idle between turns
	Completed Status = "completed" // ended by itself, well
	Failed    Status = "failed"    // ended by itself, badly
	Killed    Status = "killed"    // ended early
)

// Statuses returns all statuses in the order of a life.
func Statuses() []Status { return []Status{Pending, Running, Completed, Failed, Killed} }

// Terminal reports whether no further change is possible.
func (s Status) Terminal() bool { return s == Completed || s == Failed || s == Killed }

// Actor is the party that ended a run.
type Actor string

// The actors.
const (
	ByItself  Actor = "self"    // the work ended
	ByUser    Actor = "user"    // a person, by any frontend
	ByModel   Actor = "model"   // an agent, by a tool
	ByParent  Actor = "parent"  // the task that owns it
	ByClient  Actor = "client"  // a foreign program, by MCP or the API
	ByMCP     Actor = "mcp"     // the user of an MCP client, who answers a question there
	ByRuntime Actor = "runtime" // Drover: a limit, a deadline, closing
	ByKeeper  Actor = "keeper"  // the process that outlives the host
	ByUnknown Actor = "unknown"
)

// Reason is a short stable word for why a run ended.
type Reason string

// The reasons of the runtime. Drivers may add others.
const (
	ReasonDone         Reason = "done"
	ReasonExit         Reason = "exit"   // a command ended with a code other than 0
	ReasonSignal       Reason = "signal" // a command was ended by a signal that was not ours
	ReasonError        Reason = "error"
	ReasonPanic        Reason = "panic"
	ReasonTimeout      Reason = "timeout"      // its own deadline
	ReasonStopped      Reason = "stopped"      // on request
	ReasonInterrupt    Reason = "interrupt"    // Ctrl-C: a command gets INT first
	ReasonClosing      Reason = "closing"      // its host closed
	ReasonHostLost     Reason = "host_lost"    // its host died
	ReasonKeeperLost   Reason = "keeper_lost"  // its keeper died
	ReasonStateLost    Reason = "state_lost"   // the folder of its session was removed
	ReasonLost         Reason = "lost"         // the driver cannot find the work of an earlier host
	ReasonReboot       Reason = "reboot"       // the machine was restarted
	ReasonParentEnded  Reason = "parent_ended" // its parent ended first
	ReasonOutputLimit  Reason = "output_limit"
	ReasonOutputQuota  Reason = "output_quota" // the outputs of all sessions were too much
	ReasonOutputLoop   Reason = "output_loop"  // it read its own output file and printed it
	ReasonProcessLimit Reason = "process_limit"
	ReasonOutOfMemory  Reason = "out_of_memory" // the kernel ended a command for want of memory
	ReasonMaxTurns     Reason = "max_turns"
	ReasonTerminalLost Reason = "terminal_lost" // the process that held its terminal died
	ReasonStart        Reason = "start"         // it could not be started

	// Of answers to questions.
	ReasonAnswered   Reason = "answered"
	ReasonUnanswered Reason = "unanswered" // its time passed without an answer
	ReasonWithdrawn  Reason = "withdrawn"  // the task that asked waits no longer
)

// Cause says why a run ended. Every terminal status carries one.
type Cause struct {
	Actor  Actor  `json:"actor"`
	Reason Reason `json:"reason"`
	Signal string `json:"signal,omitempty"` // such as SIGTERM
	Detail string `json:"detail,omitempty"` // one line for people
}

// Process identifies an operating system process beyond reuse of its number.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot, field 22 of /proc/PID/stat
	Boot  string `json:"boot"`  // boot ID of the machine
}

// Progress is how far a running task has come.
type Progress struct {
	ToolUseCount     int        `json:"tool_use_count"`
	TokenCount       int64      `json:"token_count"`
	LastActivity     *Activity  `json:"last_activity,omitempty"`
	RecentActivities []Activity `json:"recent_activities,omitempty"`
	Message          string     `json:"message,omitempty"`      // such as a place in a queue
	Summary          string     `json:"summary,omitempty"`      // written by a summary service only
	ParkedUntil      *time.Time `json:"parked_until,omitempty"` // a limit of the provider holds it until then
	CostUSD          *float64   `json:"cost_usd,omitempty"`     // of this run so far; nil: not known

	// Fields of one kind of task each.
	Phase   string         `json:"phase,omitempty"`   // of a dream or a remote agent
	Steps   []Step         `json:"steps,omitempty"`   // of a workflow, in the order of its file
	Monitor *MonitorCount  `json:"monitor,omitempty"` // of a monitor
	MCPTask *MCPState      `json:"mcp_task,omitempty"`
	Remote  *RemoteSession `json:"remote,omitempty"`
}

// Parked says what holds an agent that waits for the reset of a usage limit.
type Parked struct {
	Until    time.Time `json:"until"`    // when it is woken at the earliest
	Reset    time.Time `json:"reset"`    // of the limit, as the provider said
	Provider string    `json:"provider"` // such as anthropic
	Why      string    `json:"why"`      // one line for people
}

// Quote estimates the use of a run from runs of the same agent type and model in the project.
type Quote struct {
	LikeRuns int    `json:"like_runs"`
	Tokens   *Range `json:"tokens"`   // read, written and from the cache; nil: not known
	USD      *Range `json:"cost_usd"` // nil: not known
}

// Range is an estimate: a tenth of the like runs stayed below Low, and a tenth exceeded High.
type Range struct {
	Low    float64 `json:"low"`
	Likely float64 `json:"likely"`
	High   float64 `json:"high"`
}

// MaxRetries limits [Record.Retries].
const MaxRetries = 20

// Attempt is a command that has failed and was started again.
type Attempt struct {
	EndTime     time.Time `json:"end_time"`
	ExitCode    *int      `json:"exit_code"` // nil: unknown
	Signal      string    `json:"signal,omitempty"`
	OutputBytes int64     `json:"output_bytes"` // of the task at its end: the next attempt appends to them
	Next        time.Time `json:"next_time"`    // of the next attempt
}

// GoesOnParked reports whether the next host of a background session resumes a parked agent.
// An agent below another one ends with its parent.
func (r Record) GoesOnParked() bool {
	return r.Parked != nil && r.Status == Running && !r.Stopping && r.Kind == LocalAgent && r.ID != r.Session &&
		r.AgentType != MainSession && r.Depth <= 1
}

// ParkedUntil returns until when a limit of the provider holds a task, and why. ok is false for
// a task without a limit, or with one that ended before now.
func (r Record) ParkedUntil(now time.Time) (until time.Time, why string, ok bool) {
	switch p := r.Progress; {
	case r.Status != Running:
	case r.Parked != nil: // it may be its turn to wake only after others
		return r.Parked.Until, r.Parked.Why, true
	case p != nil && p.ParkedUntil != nil && p.ParkedUntil.After(now):
		return *p.ParkedUntil, cmp.Or(p.Message, "a limit of the provider holds it"), true
	}
	return time.Time{}, "", false
}

// Clock formats a moment in the future for people: the time, with the day if it is not today.
func Clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	switch d := t.Sub(now); {
	case d < 20*time.Hour:
		return t.Format("15:04")
	case d < 6*24*time.Hour:
		return t.Format("Mon 15:04")
	}
	return t.Format("2006-01-02 15:04")
}

// Usage counts the tokens, turns and cost of a run.
type Usage struct {
	TotalTokens  int64 `json:"total_tokens"` // latest input plus summed output
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	CacheRead    int64 `json:"cache_read_input_tokens"`
	CacheWrite   int64 `json:"cache_creation_input_tokens"`
	ToolUses     int   `json:"tool_uses"`
	Turns        int   `json:"turns"`
	DurationMS   int64 `json:"duration_ms"`

	CostUSD *float64 `json:"cost_usd,omitempty"` // nil: a model without a known price took part

	// TokensUnknown says that a provider sent no usage: the tokens of the run are more than given.
	TokensUnknown bool `json:"tokens_unknown,omitempty"`
}

// Record is the public state of a task, the same in listings, in the control API, in
// events and in the journal. A Record is a value: it may be read without a lock, and
// the data behind its pointers never changes.
type Record struct {
	ID               ID         `json:"task_id"`
	Run              RunID      `json:"run_id"`
	Kind             Kind       `json:"task_type"`
	OwnTraits        *Traits    `json:"task_traits,omitempty"` // of a kind that is not built in
	Status           Status     `json:"status"`
	Idle             bool       `json:"idle"`
	WaitsFor         string     `json:"waits_for,omitempty"` // of an idle agent: the tasks it waits for; empty: it waits for a message
	AwaitingApproval bool       `json:"awaiting_approval"`
	Paused           bool       `json:"paused"`
	Backgrounded     bool       `json:"backgrounded"`
	Stopping         bool       `json:"stopping,omitempty"`
	Keep             bool       `json:"keep,omitempty"` // outlives its host
	TTY              bool       `json:"tty,omitempty"`  // a command with a terminal that takes input
	Notified         bool       `json:"notified"`       // its notification is recorded
	Seen             bool       `json:"seen,omitempty"` // the user knows how the run ended
	Name             string     `json:"name"`
	AskedName        string     `json:"asked_name,omitempty"` // the requested name, if a live task had it already
	Description      string     `json:"description"`
	Session          ID         `json:"session_id"`
	Parent           ID         `json:"parent_id,omitempty"`
	Owner            ID         `json:"owner_id,omitempty"` // gets the notification of the end; empty: no task does
	Depth            int        `json:"depth"`              // 1 at the top and below the main agent, 1 more for each parent
	ToolUseID        string     `json:"tool_use_id,omitempty"`
	AgentType        string     `json:"agent_type,omitempty"`
	Mode             string     `json:"permission_mode,omitempty"` // of the agent; a later run never gets a wider one
	Model            string     `json:"model,omitempty"`
	Prompt           string     `json:"prompt,omitempty"`
	Command          string     `json:"command,omitempty"`
	CommandBytes     int        `json:"command_bytes,omitempty"` // of the whole command, if Command was shortened; see [Record.Short]
	Cwd              string     `json:"cwd,omitempty"`
	CreateTime       time.Time  `json:"create_time"`
	StartTime        *time.Time `json:"start_time"` // nil until it has begun
	EndTime          *time.Time `json:"end_time"`   // nil until the end
	TimeoutMS        int64      `json:"timeout_ms,omitempty"`
	OutputFile       string     `json:"output_file,omitempty"` // absolute
	OutputBytes      int64      `json:"output_bytes"`
	ExitCode         *int       `json:"exit_code"` // nil while unknown; -1 for an end without a code
	Cause            *Cause     `json:"cause"`
	Progress         *Progress  `json:"progress,omitempty"`
	Usage            *Usage     `json:"usage,omitempty"`
	Error            string     `json:"error,omitempty"`
	Process          *Process   `json:"process,omitempty"`
	Checkpoint       []byte     `json:"checkpoint,omitempty"` // private to the driver
	Questions        []Question `json:"questions,omitempty"`  // that await an answer, oldest first
	LastAnswer       *Answered  `json:"last_answer,omitempty"`
	Quote            *Quote     `json:"quote,omitempty"`     // of its first run, if one was requested
	Parked           *Parked    `json:"parked,omitempty"`    // a usage limit holds it
	Retries          int        `json:"retries,omitempty"`   // how many times a command that fails is started again
	Attempts         []Attempt  `json:"attempts,omitempty"`  // that failed, of a run with retries
	Priority         Priority   `json:"priority,omitempty"`  // of its notification
	Pool             string     `json:"pool,omitempty"`      // limits how many such tasks run at once
	Sandbox          *Sandbox   `json:"sandbox,omitempty"`   // of a command that started in one
	Worktree         *Worktree  `json:"worktree,omitempty"`  // of an isolated agent, since its last end
	Survivors        []Survivor `json:"survivors,omitempty"` // of an ended run: processes that could not be ended
	Notes            []string   `json:"notes,omitempty"`     // of an ended run: remarks for its owner, one line each
	Made             []string   `json:"made,omitempty"`      // while it ran: files that other programs obey, with these programs
	Schedule         string     `json:"schedule,omitempty"`  // that started it
	On               string     `json:"on,omitempty"`        // the requested worker or label; empty: this machine
	Worker           string     `json:"worker,omitempty"`    // that does the run; empty: none, or not yet
	Key              string     `json:"key,omitempty"`       // unique among the children of its parent
	Silent           bool       `json:"silent,omitempty"`    // its owner gets no notification of its end
	Team             *Team      `json:"team,omitempty"`      // of a teammate
	// LastHeard is the time of the last sign of life of a running agent. The host sets it
	// in its answers; the log never has it.
	LastHeard *time.Time `json:"last_heard,omitempty"`
	// HostStopped says that the host of a live task is suspended, as after Ctrl-Z, so that
	// the record may be out of date. Answers have it; the log never does.
	HostStopped bool `json:"host_stopped,omitempty"`
	// TeleportedFrom is the session in which a teleported task ended.
	TeleportedFrom ID `json:"teleported_from,omitempty"`

	Budget  Budget `json:"budget,omitzero"`         // of the task and its descendants
	OnEnd   string `json:"on_end,omitempty"`        // decides about running children at its end: [Reparents], or else its driver
	Earlier *Usage `json:"earlier_usage,omitempty"` // of all earlier runs together
	Resumes int    `json:"resumes,omitempty"`       // the number of earlier runs

	LeftTasks []LeftTask `json:"left_tasks,omitempty"` // of an ended run: its tasks whose notifications it has not read
}

// LeftTask is a task of an agent that was running when the agent ended.
type LeftTask struct {
	ID         ID     `json:"task_id"`
	Noun       string `json:"noun"`  // as of [Record.Noun]
	About      string `json:"about"` // its description or its command
	OutputFile string `json:"output_file,omitempty"`
	Status     Status `json:"status"` // running: it now belongs to the owner of the agent; else how it ended
}

// Left describes r in the record of the agent that started it.
func (r Record) Left(s Status) LeftTask {
	return LeftTask{ID: r.ID, Noun: r.Noun(), About: r.about(), OutputFile: r.OutputFile, Status: s}
}

// Label names a task in a list: "command b12345678 (make test)".
func (r Record) Label() string { return fmt.Sprintf("%s %s (%s)", r.Noun(), r.ID, r.about()) }

// about describes the work of a task in one short line.
func (r Record) about() string {
	return subject(cmp.Or(r.Description, r.Command, r.Name))
}

// Remarks are the notes on an ended run, and what else its owner must know.
func (r Record) Remarks() []string {
	if len(r.Made) == 0 {
		return r.Notes
	}
	return append(slices.Clone(r.Notes),
		"while it ran, files were made or changed that other programs obey: "+strings.Join(r.Made, ", "))
}

// Resting reports whether an agent is done and waits for a message.
func (r Record) Resting() bool { return r.Idle && r.WaitsFor == "" }

// Sandbox names the mechanism of the system that enforces each bound of a command. An empty text
// means that the bound does not hold.
type Sandbox struct {
	Write     string `json:"write"`     // folders it can write: landlock, mounts or landlock+mounts
	Protected string `json:"protected"` // read-only files in these folders: mounts
	Read      string `json:"read"`      // hidden secrets: mounts
	Network   string `json:"network"`   // namespace, or tcp-ports if only ports are bounded
	Sockets   string `json:"sockets"`   // Unix sockets outside: namespace+seccomp; or seccomp, where it has none at all
	Signals   string `json:"signals"`   // processes it can signal: landlock
	Calls     string `json:"calls"`     // refused system calls: seccomp
}

// Names of mechanisms in [Sandbox].
const (
	ByLandlock  = "landlock"
	ByMounts    = "mounts"
	ByNamespace = "namespace"
	ByTCPPorts  = "tcp-ports"
	BySeccomp   = "seccomp"
)

// Missing returns the names of the bounds that hold not at all or only in part, in the order of
// the fields.
func (s Sandbox) Missing() []string {
	var out []string
	for _, b := range []struct{ name, by string }{
		{"write", s.Write}, {"protected", s.Protected}, {"read", s.Read}, {"network", s.Network},
		{"sockets", s.Sockets}, {"signals", s.Signals}, {"calls", s.Calls},
	} {
		if b.by == "" || b.by == ByTCPPorts {
			out = append(out, b.name)
		}
	}
	return out
}

// Worktree reports on the worktree of an isolated agent after its run.
type Worktree struct {
	Path    string `json:"path,omitempty"`   // absolute; empty if it was removed
	Branch  string `json:"branch,omitempty"` // with the commits of the agent
	Rescue  string `json:"rescue,omitempty"` // ref of a commit with its uncommitted changes
	Text    string `json:"text,omitempty"`   // one line for people and models
	Removed bool   `json:"removed,omitempty"`
}

// IsConversation reports whether the task is the session's conversation with the main agent. A
// turn that was moved to the background has the same agent type, and an owner.
func (r Record) IsConversation() bool { return r.AgentType == MainSession && r.Owner == "" }

// Background reports whether the task is live and no caller waits for it in the foreground.
func (r Record) Background() bool { return !r.Status.Terminal() && r.Backgrounded }

// WorksIn reports whether the task is or was this session at a remote service.
func (r Record) WorksIn(session string) bool {
	return r.Progress != nil && r.Progress.Remote != nil && session != "" && r.Progress.Remote.ID == session
}

// StoppedByUser reports whether a person ended the run.
func (r Record) StoppedByUser() bool {
	return r.Cause != nil && r.Cause.Actor == ByUser &&
		(r.Cause.Reason == ReasonStopped || r.Cause.Reason == ReasonInterrupt)
}

// Duration is the time from the start of the run to its end, or to now.
func (r Record) Duration(now time.Time) time.Duration {
	if r.StartTime == nil {
		return 0
	}
	if r.EndTime != nil {
		now = *r.EndTime
	}
	return max(0, now.Sub(*r.StartTime))
}

// Seq is a position in the event log of a session. The first event has 1.
type Seq int64

// Event is one durable change: its verb, and the task after it.
type Event struct {
	Seq  Seq       `json:"seq"`
	Verb Verb      `json:"verb"`
	At   time.Time `json:"at"`
	Task Record    `json:"task"`
}

// Survivor is a process that outlived a stop.
type Survivor struct {
	Task    ID     `json:"task_id,omitempty"`
	PID     int    `json:"pid"`
	Command string `json:"command"`
	Why     string `json:"why"`

	// Start and Boot identify the process beyond reuse of its number, as in [Process].
	// They are empty for a process on another machine.
	Start uint64 `json:"start,omitempty"`
	Boot  string `json:"boot,omitempty"`
}

// SignalSent is a signal that a stop sent, for its receipt.
type SignalSent struct {
	Signal  string `json:"signal"`
	AfterMS int64  `json:"after_ms"` // since the stop was asked for
}

// Stopped reports how one task of a stopped tree ended.
type Stopped struct {
	ID           ID           `json:"task_id"`
	Status       Status       `json:"status"`
	Cause        *Cause       `json:"cause"`
	Signals      []SignalSent `json:"signals"`
	EndedAfterMS int64        `json:"ended_after_ms"`
}

// Receipt lists the effects of a stop: every task of the subtree, leaves first, and
// every process that survived.
type Receipt struct {
	Stopped   []Stopped  `json:"stopped"`
	Survivors []Survivor `json:"survivors"`
}

// Renamed tells people and models why a task has another name than requested. It is empty if
// the task has the requested one.
func (r Record) Renamed() string {
	if r.AskedName == "" {
		return ""
	}
	why := "a live task has the name %q or one like it"
	if r.Traits().Work == ByAgent && AgentName(r.AskedName) != r.AskedName {
		why = "an agent cannot have the name %q"
	}
	return fmt.Sprintf(why+": this one is called %q", r.AskedName, r.Name)
}

// Why explains to people why a run failed or was killed. It is empty for other runs, and where
// the exit code says enough.
func (r Record) Why() string {
	if r.Status != Failed && r.Status != Killed {
		return ""
	}
	if r.Cause == nil && r.ExitCode == nil {
		return r.Error
	}
	if r.Cause == nil {
		return ""
	}
	c := *r.Cause
	switch c.Reason {
	case ReasonExit:
		return c.Detail
	case ReasonSignal:
		return strings.TrimSuffix("ended by "+c.Signal+": "+c.Detail, ": ")
	case ReasonTimeout:
		return fmt.Sprintf("its time limit of %s passed", time.Duration(r.TimeoutMS)*time.Millisecond)
	case ReasonStart:
		if why, ok := strings.CutPrefix(r.Error, "start "); ok {
			return "could not start " + why
		}
		return strings.TrimSuffix("could not start: "+r.Error, ": ")
	case ReasonStopped, ReasonInterrupt:
		who := map[Actor]string{ByUser: "the user", ByModel: "an agent", ByParent: "its parent", ByClient: "a client",
			ByMCP: "the user of a client", ByRuntime: "Drover"}[c.Actor]
		return strings.Trim("stopped by "+cmp.Or(who, "somebody")+": "+c.Detail, ": ")
	}
	words := map[Reason]string{ReasonClosing: "stopped when its session closed", ReasonHostLost: "its host died",
		ReasonKeeperLost: "its keeper died", ReasonReboot: "the machine was restarted",
		ReasonMaxTurns: "its limit of turns was reached"}[c.Reason]
	return cmp.Or(r.Error, c.Detail, words, strings.ReplaceAll(string(c.Reason), "_", " "))
}

// Outcome says how a run has ended, such as "failed (exit code 2)" or "stopped by the user: enough". It is empty before
// the end. Its causes may have text of others, which a frontend makes printable.
func (r Record) Outcome() string {
	why := r.Why()
	switch {
	case !r.Status.Terminal():
		return ""
	case r.Status == Completed:
		return "completed"
	case r.Status == Killed && strings.HasPrefix(why, "stopped "):
		return why
	}
	text := "failed"
	if r.Status == Killed {
		text = "stopped"
	}
	if r.ExitCode != nil && *r.ExitCode > 0 {
		text += fmt.Sprintf(" (exit code %d)", *r.ExitCode)
	}
	return strings.TrimSuffix(text+": "+why, ": ")
}

// Activity describes the present work of an agent in a few words: idle, its own message, the
// tool that it called last, or working.
func (r Record) Activity() string {
	p := r.Progress
	switch {
	case r.Idle && r.WaitsFor != "":
		return "waits for " + r.WaitsFor
	case r.Idle:
		return "idle"
	case p != nil && p.Message != "":
		return p.Message
	case p != nil && p.LastActivity != nil && p.LastActivity.ToolName != "":
		return p.LastActivity.ToolName
	}
	return "working"
}

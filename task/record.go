package task

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Status is where a run stands. The last three are final.
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

// Actor is who brought an end about.
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
	ByUnknown Actor = "unknown" // nobody can say
)

// Reason is a short stable word for why a run ended.
type Reason string

// The reasons that this package knows. Others may be added by drivers.
const (
	ReasonDone         Reason = "done"
	ReasonExit         Reason = "exit"   // a command ended with a code other than 0
	ReasonSignal       Reason = "signal" // a command was ended by a signal that was not ours
	ReasonError        Reason = "error"
	ReasonPanic        Reason = "panic"
	ReasonTimeout      Reason = "timeout"      // its own deadline
	ReasonStopped      Reason = "stopped"      // somebody asked
	ReasonInterrupt    Reason = "interrupt"    // somebody pressed Ctrl-C: a command is asked by INT first
	ReasonClosing      Reason = "closing"      // its host closed
	ReasonHostLost     Reason = "host_lost"    // its host died
	ReasonKeeperLost   Reason = "keeper_lost"  // its keeper died
	ReasonStateLost    Reason = "state_lost"   // the folder of its session was removed
	ReasonLost         Reason = "lost"         // given old work, cannot say
	ReasonReboot       Reason = "reboot"       // the machine was restarted
	ReasonParentEnded  Reason = "parent_ended" // the owner ended first
	ReasonOutputLimit  Reason = "output_limit"
	ReasonOutputQuota  Reason = "output_quota" // the outputs of all sessions were too much
	ReasonOutputLoop   Reason = "output_loop"  // it read what it wrote, and wrote that
	ReasonProcessLimit Reason = "process_limit"
	ReasonOutOfMemory  Reason = "out_of_memory" // the kernel ended a command for want of memory
	ReasonMaxTurns     Reason = "max_turns"
	ReasonTerminalLost Reason = "terminal_lost" // what held its terminal died
	ReasonStart        Reason = "start"         // it could not be started

	// Of answers to questions.
	ReasonAnswered   Reason = "answered"   // somebody did
	ReasonUnanswered Reason = "unanswered" // nobody did in time
	ReasonWithdrawn  Reason = "withdrawn"  // whoever asked does not wait any more
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

	// What only one kind of task has.
	Phase   string         `json:"phase,omitempty"`   // of a dream or a remote agent
	Steps   []Step         `json:"steps,omitempty"`   // of a workflow, in the order of its file
	Monitor *MonitorCount  `json:"monitor,omitempty"` // of a monitor
	MCPTask *MCPState      `json:"mcp_task,omitempty"`
	Remote  *RemoteSession `json:"remote,omitempty"`
}

// Parked says what holds an agent that waits for the reset of a usage limit.
type Parked struct {
	Until    time.Time `json:"until"`    // when it is woken at the earliest
	Reset    time.Time `json:"reset"`    // of the limit, as the provider told
	Provider string    `json:"provider"` // such as anthropic
	Why      string    `json:"why"`      // one line for people
}

// Quote is what a run will likely use, by runs of the same agent type and model in the project.
type Quote struct {
	LikeRuns int    `json:"like_runs"`
	Tokens   *Range `json:"tokens"`   // read, written and from the cache; nil: not known
	USD      *Range `json:"cost_usd"` // nil: not known
}

// Range is a likely figure: a tenth of the like runs stayed below it, and a tenth went above.
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
	ExitCode    *int      `json:"exit_code"` // nil: it could not be known
	Signal      string    `json:"signal,omitempty"`
	OutputBytes int64     `json:"output_bytes"` // of the task at its end: the next attempt prints behind them
	Next        time.Time `json:"next_time"`    // of the next attempt
}

// GoesOnParked reports whether the host of a background session that follows this one takes a
// parked agent up. Agents below others end with those.
func (r Record) GoesOnParked() bool {
	return r.Parked != nil && r.Status == Running && !r.Stopping && r.Kind == LocalAgent && r.ID != r.Session &&
		r.AgentType != MainSession && r.Depth <= 1
}

// ParkedUntil is until when a limit of the provider holds a task, and why. ok is false for one
// that is not held, or was until a moment before now.
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

// Clock is a moment that is to come as people read it: the time, and the day where that is not
// clear.
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

// Usage is what a run has cost.
type Usage struct {
	TotalTokens  int64 `json:"total_tokens"` // latest input plus summed output
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	CacheRead    int64 `json:"cache_read_input_tokens"`
	CacheWrite   int64 `json:"cache_creation_input_tokens"`
	ToolUses     int   `json:"tool_uses"`
	Turns        int   `json:"turns"`
	DurationMS   int64 `json:"duration_ms"`

	CostUSD *float64 `json:"cost_usd,omitempty"` // nil: the price of some of it is not known

	// TokensUnknown says that nobody has told the tokens of the run: those given are not all.
	TokensUnknown bool `json:"tokens_unknown,omitempty"`
}

// Record is a task as everybody sees it: in listings, in the control API, in
// events and in the journal. A Record is a value: whoever holds one may read
// it without a lock, and nobody changes what its pointers lead to.
type Record struct {
	ID               ID         `json:"task_id"`
	Run              RunID      `json:"run_id"`
	Kind             Kind       `json:"task_type"`
	OwnTraits        *Traits    `json:"task_traits,omitempty"` // of a kind that is not built in
	Status           Status     `json:"status"`
	Idle             bool       `json:"idle"`
	WaitsFor         string     `json:"waits_for,omitempty"` // of an idle agent: its tasks that it waits for; empty: it waits for a message
	AwaitingApproval bool       `json:"awaiting_approval"`
	Paused           bool       `json:"paused"`
	Backgrounded     bool       `json:"backgrounded"`
	Stopping         bool       `json:"stopping,omitempty"`
	Keep             bool       `json:"keep,omitempty"` // outlives its host
	TTY              bool       `json:"tty,omitempty"`  // a command with a terminal, into which can be typed
	Notified         bool       `json:"notified"`       // its notification is recorded
	Seen             bool       `json:"seen,omitempty"` // the user knows how the run ended
	Name             string     `json:"name"`
	AskedName        string     `json:"asked_name,omitempty"` // that was wanted instead; a task that lived went by it
	Description      string     `json:"description"`
	Session          ID         `json:"session_id"`
	Parent           ID         `json:"parent_id,omitempty"`
	Owner            ID         `json:"owner_id,omitempty"` // who is told of the end; empty: nobody
	Depth            int        `json:"depth"`              // 1 for tasks of the main agent or of nobody, 1 more for each parent
	ToolUseID        string     `json:"tool_use_id,omitempty"`
	AgentType        string     `json:"agent_type,omitempty"`
	Mode             string     `json:"permission_mode,omitempty"` // that the agent works in; a later run is no wider
	Model            string     `json:"model,omitempty"`
	Prompt           string     `json:"prompt,omitempty"`
	Command          string     `json:"command,omitempty"`
	CommandBytes     int        `json:"command_bytes,omitempty"` // of the whole, where Command is only its beginning; see [Record.Short]
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
	Checkpoint       []byte     `json:"checkpoint,omitempty"` // the driver's own; nobody else looks in
	Questions        []Question `json:"questions,omitempty"`  // open ones, oldest first: those it is awaiting approval for
	LastAnswer       *Answered  `json:"last_answer,omitempty"`
	Quote            *Quote     `json:"quote,omitempty"`     // of its first run; nil: nobody asked
	Parked           *Parked    `json:"parked,omitempty"`    // a usage limit holds it
	Retries          int        `json:"retries,omitempty"`   // how many times a command that fails is started again
	Attempts         []Attempt  `json:"attempts,omitempty"`  // of a run with retries: those that failed before the last one
	Priority         Priority   `json:"priority,omitempty"`  // of its notification
	Pool             string     `json:"pool,omitempty"`      // whose places it takes
	Sandbox          *Sandbox   `json:"sandbox,omitempty"`   // of a command that started in one
	Worktree         *Worktree  `json:"worktree,omitempty"`  // of an isolated agent, since its last end
	Survivors        []Survivor `json:"survivors,omitempty"` // of an ended run: what could not be ended then
	Notes            []string   `json:"notes,omitempty"`     // of an ended run: what else its owner must know, one line each
	Schedule         string     `json:"schedule,omitempty"`  // that has started it
	On               string     `json:"on,omitempty"`        // the worker or label that it is for; empty: this machine
	Worker           string     `json:"worker,omitempty"`    // that does the run; empty: none, or not yet
	Key              string     `json:"key,omitempty"`       // that its parent knows it by
	Silent           bool       `json:"silent,omitempty"`    // its owner gets no notification of its end
	Team             *Team      `json:"team,omitempty"`      // of a teammate
	// LastHeard is when something was last heard of an agent at work. Only its host
	// knows: it stands in answers of the host, and never in the log.
	LastHeard *time.Time `json:"last_heard,omitempty"`
	// HostStopped says that the host of a live task stands still, as after Ctrl-Z, and that
	// this is what the log says. It stands in answers only, and never in the log.
	HostStopped bool `json:"host_stopped,omitempty"`
	// TeleportedFrom is the session in which the task ended, of one that was carried here.
	TeleportedFrom ID `json:"teleported_from,omitempty"`

	Budget  Budget `json:"budget,omitzero"`         // of the task and all below it
	OnEnd   string `json:"on_end,omitempty"`        // what becomes of what it leaves running: [Reparents], or as its driver says
	Earlier *Usage `json:"earlier_usage,omitempty"` // of the runs before this one, together
	Resumes int    `json:"resumes,omitempty"`       // how many those are

	LeftTasks []LeftTask `json:"left_tasks,omitempty"` // of an ended run: its tasks whose ends it has not seen
}

// LeftTask is a task of an agent that was at work when the agent ended.
type LeftTask struct {
	ID         ID     `json:"task_id"`
	Noun       string `json:"noun"`  // as of [Record.Noun]
	About      string `json:"about"` // its description or its command
	OutputFile string `json:"output_file,omitempty"`
	Status     Status `json:"status"` // running: it belongs to the owner of the agent now; else how it ended
}

// Left returns r as the agent that has started it leaves it.
func (r Record) Left(s Status) LeftTask {
	return LeftTask{ID: r.ID, Noun: r.Noun(), About: r.about(), OutputFile: r.OutputFile, Status: s}
}

// Label names a task in a list: "command b12345678 (make test)".
func (r Record) Label() string { return fmt.Sprintf("%s %s (%s)", r.Noun(), r.ID, r.about()) }

// about says in one short line what a task does.
func (r Record) about() string {
	text := strings.Join(strings.Fields(cmp.Or(r.Description, r.Command, r.Name)), " ")
	if runes := []rune(text); len(runes) > 60 {
		text = string(runes[:59]) + "…"
	}
	return text
}

// Resting reports whether an agent has done its work and waits for a message.
func (r Record) Resting() bool { return r.Idle && r.WaitsFor == "" }

// Sandbox says by which mechanism of the system each bound of a command holds. An empty text is a
// bound that does not hold.
type Sandbox struct {
	Write     string `json:"write"`     // where it writes: landlock, mounts or landlock+mounts
	Protected string `json:"protected"` // files that it only reads where it may write: mounts
	Read      string `json:"read"`      // secrets that it cannot read: mounts
	Network   string `json:"network"`   // namespace, or tcp-ports where only ports are bounded
	Signals   string `json:"signals"`   // to whom it sends signals: landlock
	Calls     string `json:"calls"`     // system calls that are refused: seccomp
}

// Names of mechanisms in [Sandbox].
const (
	ByLandlock  = "landlock"
	ByMounts    = "mounts"
	ByNamespace = "namespace"
	ByTCPPorts  = "tcp-ports"
	BySeccomp   = "seccomp"
)

// Missing returns the names of the bounds that do not hold, or hold in part, in the order of
// the fields.
func (s Sandbox) Missing() []string {
	var out []string
	for _, b := range []struct{ name, by string }{
		{"write", s.Write}, {"protected", s.Protected}, {"read", s.Read}, {"network", s.Network},
		{"signals", s.Signals}, {"calls", s.Calls},
	} {
		if b.by == "" || b.by == ByTCPPorts {
			out = append(out, b.name)
		}
	}
	return out
}

// Worktree is what became of the checkout that an isolated agent had of its own.
type Worktree struct {
	Path    string `json:"path,omitempty"`   // absolute; of one that was kept
	Branch  string `json:"branch,omitempty"` // that has its commits
	Rescue  string `json:"rescue,omitempty"` // ref of a commit with what was not committed
	Text    string `json:"text,omitempty"`   // one line for people and models
	Removed bool   `json:"removed,omitempty"`
}

// IsConversation reports whether the task is the conversation of its session with the main
// agent. A turn of it that was moved to the background has the same type and an owner.
func (r Record) IsConversation() bool { return r.AgentType == MainSession && r.Owner == "" }

// Background reports whether the task counts as background work: alive, and
// nobody waiting for it in the foreground.
func (r Record) Background() bool { return !r.Status.Terminal() && r.Backgrounded }

// WorksIn reports whether the task is, or was, the work of this session at a remote
// service.
func (r Record) WorksIn(session string) bool {
	return r.Progress != nil && r.Progress.Remote != nil && session != "" && r.Progress.Remote.ID == session
}

// StoppedByUser reports whether a person has ended the run.
func (r Record) StoppedByUser() bool {
	return r.Cause != nil && r.Cause.Actor == ByUser &&
		(r.Cause.Reason == ReasonStopped || r.Cause.Reason == ReasonInterrupt)
}

// Duration is how long the run has worked, up to now for one that still does.
func (r Record) Duration(now time.Time) time.Duration {
	if r.StartTime == nil {
		return 0
	}
	if r.EndTime != nil {
		now = *r.EndTime
	}
	return max(0, now.Sub(*r.StartTime))
}

// Seq is a place in the event log of a session. The first event has 1.
type Seq int64

// Event is one durable change: what happened, and the task as it was after it.
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

	// Start and Boot identify the process beyond reuse of its number, as those of
	// [Process] do. They are empty for what is no process of this machine.
	Start uint64 `json:"start,omitempty"`
	Boot  string `json:"boot,omitempty"`
}

// SignalSent is one signal of a stop, for its receipt.
type SignalSent struct {
	Signal  string `json:"signal"`
	AfterMS int64  `json:"after_ms"` // since the stop was asked for
}

// Stopped is what became of one task of a stopped tree.
type Stopped struct {
	ID           ID           `json:"task_id"`
	Status       Status       `json:"status"`
	Cause        *Cause       `json:"cause"`
	Signals      []SignalSent `json:"signals"`
	EndedAfterMS int64        `json:"ended_after_ms"`
}

// Receipt tells what a stop did: every task of the subtree, leaves first, and
// every process that is still there.
type Receipt struct {
	Stopped   []Stopped  `json:"stopped"`
	Survivors []Survivor `json:"survivors"`
}

// Renamed says, for people and models, that a task has not got the name that was asked
// for; empty: it has.
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

// Why says in words, for people, why a run went wrong; empty: nothing did, or its exit code says it.
func (r Record) Why() string {
	if r.Status != Failed && r.Status != Killed || r.Cause == nil {
		return ""
	}
	c := *r.Cause
	switch c.Reason {
	case ReasonExit:
		return c.Detail
	case ReasonSignal:
		return "ended by " + c.Signal
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

// Activity says in a few words what an agent is about: idle, what it says that it
// does, the tool that it called last, or working.
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

package task

import "strings"

// Kind is the sort of work of a task, as a word on the wire. Eight kinds are
// built in; a program that embeds Drover may add its own, see [Traited].
type Kind string

// The built-in kinds.
const (
	LocalBash         Kind = "local_bash"
	LocalAgent        Kind = "local_agent"
	RemoteAgent       Kind = "remote_agent"
	InProcessTeammate Kind = "in_process_teammate"
	LocalWorkflow     Kind = "local_workflow"
	MonitorMCP        Kind = "monitor_mcp"
	MCPTask           Kind = "mcp_task"
	Dream             Kind = "dream"
)

// Kinds returns the built-in kinds in the order of the documentation.
func Kinds() []Kind {
	return []Kind{LocalBash, LocalAgent, RemoteAgent, InProcessTeammate, LocalWorkflow, MonitorMCP, MCPTask, Dream}
}

// The main agent of a session is recorded as a task of the kind [MainKind] with the
// agent type [MainSession]. Its ID begins with [MainSessionLetter].
const (
	MainSession       = "main-session"
	MainSessionLetter = 's'
	MainKind          = LocalAgent
)

// OwnLetter begins the IDs of tasks of all kinds that are not built in.
const OwnLetter = 'x'

// Traits are the differences between kinds. Code outside this package, the drivers and
// the edges of protocols decides by traits and never by a kind. The zero value fits
// ordinary work.
type Traits struct {
	letter byte // begins task IDs; 0: [OwnLetter]

	Noun    string `json:"noun,omitempty"`    // names one in a sentence: "command"
	Word    string `json:"word,omitempty"`    // names the kind in a column: "remote"; empty: the noun
	Subject string `json:"subject,omitempty"` // begins the summary of a notification: "Background command"
	Pill    Pill   `json:"pill,omitzero"`     // names several in the summary of background work

	Work      Work      `json:"work,omitempty"`      // by which the kind works
	Report    bool      `json:"report,omitempty"`    // its answer is a text; for other kinds it is the output
	NoUsage   bool      `json:"no_usage,omitempty"`  // it has no count of tokens and tools
	Wait      Wait      `json:"wait,omitempty"`      // whether the end of a conversation waits for it
	Elsewhere Elsewhere `json:"elsewhere,omitempty"` // whether its work continues without its host
	Resumable bool      `json:"resumable,omitempty"` // a further run can continue an ended one
	Boundary  bool      `json:"boundary,omitempty"`  // the event stream marks start and end of its runs, as for an agent
}

// Pill names tasks of a kind in the summary of background work.
type Pill struct {
	Noun     string `json:"noun,omitempty"`     // "shell"; an s makes the plural
	Mark     string `json:"mark,omitempty"`     // precedes the number
	Label    string `json:"label,omitempty"`    // replaces number and noun
	Separate bool   `json:"separate,omitempty"` // has its own count next to other separate kinds
	Teams    bool   `json:"teams,omitempty"`    // counts teams instead of tasks
}

// Work is the means by which a kind works.
type Work string

// The means.
const (
	ByDriver  Work = ""        // the driver itself
	ByCommand Work = "command" // one process, whose output is the answer and whose input is closed
	ByAgent   Work = "agent"   // an agent in the host's process, with a transcript and a mailbox
	BySteps   Work = "steps"   // child tasks, for which it waits and whose usage it sums up
	ByEvents  Work = "events"  // none: it watches, and sends events to its owner
)

// Wait says whether the end of a conversation waits for a task.
type Wait string

// The rules of waiting.
const (
	WaitUnlessKept Wait = ""       // for one that ends with its host
	WaitAlways     Wait = "always" // also for one that is kept
	WaitNever      Wait = "never"
)

// Elsewhere says whether work continues without its host.
type Elsewhere string

// The rules of work without its host.
const (
	InHost     Elsewhere = ""       // it ends with its host, or its process is adopted
	IfKept     Elsewhere = "kept"   // it continues elsewhere if the task is kept
	AlwaysAway Elsewhere = "always" // it is a session of a remote service
)

// Traited is a driver of a kind that is not built in. Its traits are written into the
// records of its tasks, so that every frontend has them, also after the program has ended.
type Traited interface {
	Driver
	Traits() Traits
}

// Traits returns the traits of a built-in kind. The records of tasks have the traits
// of other kinds; see [Record.Traits].
func (k Kind) Traits() Traits {
	switch k {
	case LocalBash:
		return Traits{letter: 'b', Noun: "command", Subject: "Background command", Pill: Pill{Noun: "shell", Separate: true},
			Work: ByCommand, NoUsage: true}
	case LocalAgent:
		return Traits{letter: 'a', Noun: "agent", Subject: "Agent", Pill: Pill{Noun: "local agent"},
			Work: ByAgent, Report: true, Resumable: true, Boundary: true}
	case RemoteAgent:
		return Traits{letter: 'r', Noun: "remote agent", Word: "remote", Subject: "Remote agent",
			Pill: Pill{Noun: "cloud session", Mark: "◇ "}, Report: true, Elsewhere: AlwaysAway}
	case InProcessTeammate:
		return Traits{letter: 't', Noun: "teammate", Subject: "Agent", Pill: Pill{Noun: "team", Teams: true},
			Work: ByAgent, Report: true, Resumable: true, Boundary: true}
	case LocalWorkflow:
		return Traits{letter: 'w', Noun: "workflow", Subject: "Workflow", Pill: Pill{Noun: "background workflow"},
			Work: BySteps, Resumable: true}
	case MonitorMCP:
		return Traits{letter: 'm', Noun: "monitor", Subject: "Monitor", Pill: Pill{Noun: "monitor", Separate: true},
			Work: ByEvents, Wait: WaitNever}
	case MCPTask:
		return Traits{letter: 'c', Noun: "MCP task", Word: "mcp", Subject: "MCP task",
			Report: true, NoUsage: true, Wait: WaitAlways, Elsewhere: IfKept, Boundary: true}
	case Dream:
		return Traits{letter: 'd', Noun: "dream", Word: "memory", Subject: "Agent", Pill: Pill{Label: "dreaming"}}
	}
	return Traits{}
}

// Traits returns the traits of the task's kind.
func (r Record) Traits() Traits {
	t := r.Kind.Traits()
	if r.OwnTraits != nil {
		t = *r.OwnTraits
	}
	return t
}

// WaitedFor reports whether the end of a conversation waits for the task.
func (r Record) WaitedFor() bool {
	switch wait := r.Traits().Wait; {
	case r.Status.Terminal(), wait == WaitNever:
		return false
	default:
		return !r.Keep || wait == WaitAlways
	}
}

// ContinuesElsewhere reports whether the work of a live task continues elsewhere without its host, so
// that the next host can resume it.
func (r Record) ContinuesElsewhere() bool {
	where := r.Traits().Elsewhere
	return len(r.Checkpoint) > 0 && (where == AlwaysAway || where == IfKept && r.Keep || r.Worker != "" && r.Keep)
}

// Noun names the task in a sentence: "command", "agent".
func (r Record) Noun() string {
	if noun := r.Traits().Noun; noun != "" {
		return noun
	}
	return strings.ReplaceAll(string(r.Kind), "_", " ")
}

// Word names the kind of the task in a column: "command", "remote".
func (r Record) Word() string {
	if word := r.Traits().Word; word != "" {
		return word
	}
	return r.Noun()
}

// Letter is the first letter of the IDs of a kind.
func (k Kind) Letter() byte {
	if letter := k.Traits().letter; letter != 0 {
		return letter
	}
	return OwnLetter
}

// BuiltIn reports whether k is one of [Kinds].
func (k Kind) BuiltIn() bool { return k.Letter() != OwnLetter }

// IsAgent reports whether a task of the kind is an agent that works in the host's
// process, with a transcript and a mailbox.
func (k Kind) IsAgent() bool { return k.Traits().Work == ByAgent }

// Package fleetwire has the messages between sessions and workers, and the subjects and streams of
// NATS that carry them.
//
// A session offers a task to workers, a worker claims the offer, and the session grants the
// claim with an epoch and with the work itself. Whatever the worker then says of the task
// carries that epoch. The package owns the form of all this, its bounds and its version. It does
// no I/O.
package fleetwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/drover-dev/drover/task"
)

// Version is the protocol that this program speaks, and Oldest the oldest one that it
// understands.
const (
	Version = 1
	Oldest  = 1
)

// Streams and buckets of a project, each in the account of the project.
const (
	Offers   = "DROVER_OFFERS"   // what waits for a worker: a work queue
	Events   = "DROVER_EVENTS"   // what workers tell sessions: a work queue
	Commands = "DROVER_COMMANDS" // what sessions tell workers: a work queue
	Workers  = "drover-workers"  // bucket: what each worker says of itself
	Parts    = "drover-parts"    // bucket: parts of folders, by their SHA-256
)

// Bounds.
const (
	MaxMessage  = 4<<20 + 64<<10 // bytes of any message: a part of a folder is the largest
	MaxChunk    = 256 << 10      // bytes of output in one message
	OfferWait   = 30 * time.Second
	HeartBeat   = 5 * time.Second
	WorkerGone  = 3 * HeartBeat // without a sign of life a worker is not listed any more
	MessagesAge = 72 * time.Hour
)

// Subjects. Names of workers and labels are such that they are one token of a subject.

// OfferLabel is where an offer to workers with a label is published. The name of a worker is one of
// its labels.
func OfferLabel(label string) string { return "drover.offer.label." + label }

// OfferAny is where an offer to all workers is published.
const OfferAny = "drover.offer.any"

// Ask is where a worker asks a session: claim or renew.
func Ask(session task.ID, what, worker string) string {
	return "drover.session." + string(session) + "." + what + "." + worker
}

// The questions of a worker.
const (
	AskClaim = "claim"
	AskRenew = "renew"
)

// AskHub is where anybody asks a hub how it is; the answer is a [HubState]. A cluster does not answer.
const AskHub = "drover.hub"

// PartOf is where a worker asks a hub for a part of a folder, by its digest, or sends one. A session uses the bucket
// itself, and so does a worker at a cluster, which does not answer.
func PartOf(what, worker string) string { return "drover.part." + what + "." + worker }

// What a worker asks about parts, and how the hub answers.
const (
	GetPart     = "get"
	PutPart     = "put"
	PartStatus  = "Drover-Part" // header; none: it is done
	PartMissing = "missing"
	PartRefused = "refused" // for good, for the reason in the body
	PartLater   = "later"   // not now
)

// PartAt is the subject of a part in its bucket.
func PartAt(digest string) string { return "$KV." + Parts + "." + digest }

// HubState is how a hub is.
type HubState struct {
	Problem string `json:"problem,omitempty"` // for which it takes no messages; empty: it does
}

// EventOf is where a worker tells a session of a task.
func EventOf(session task.ID, worker string, id task.ID) string {
	return "drover.event." + string(session) + "." + worker + "." + string(id)
}

// CommandTo is where a session tells a worker what to do about a task.
func CommandTo(worker string, session, id task.ID) string {
	return "drover.worker." + worker + "." + string(session) + "." + string(id)
}

// Token is a part of a subject, counted from 0; empty: it has none there.
func Token(subject string, n int) string {
	parts := strings.Split(subject, ".")
	if n >= len(parts) {
		return ""
	}
	return parts[n]
}

// CheckName refuses a name of a worker, a label or a project that is not one token of a subject.
func CheckName(what, name string) error {
	others := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	if name == "" || len(name) > 63 || name[0] == '-' || strings.ContainsFunc(name, others) {
		return fmt.Errorf("%s %.80q: use small letters, digits and -, at most 63", what, name)
	}
	return nil
}

// CallTo is where a session calls the tools of a workspace.
func CallTo(worker string, id task.ID) string { return "drover.call." + worker + "." + string(id) }

// Worker is the state of a worker, which it publishes every [HeartBeat].
type Worker struct {
	Name     string   `json:"name"`
	Instance string   `json:"instance"` // of this start of the worker
	Oldest   int      `json:"protocol_oldest"`
	Newest   int      `json:"protocol_newest"`
	Version  string   `json:"version"` // of the program
	System   string   `json:"system"`  // such as linux/amd64
	Labels   []string `json:"labels,omitempty"`
	Capacity int      `json:"capacity"` // tasks at the same time
	Load     float64  `json:"load"`     // of the machine, per processor; negative: not known
	Tasks    []Doing  `json:"tasks,omitempty"`
	Draining bool     `json:"draining,omitempty"`
	Problem  string   `json:"problem,omitempty"` // for which it takes no tasks; empty: it does
}

// States of a worker.
const (
	StateReady  = "ready"
	StateFull   = "full"
	StateDrains = "drains"
	StateUnfit  = "takes nothing"
)

// State is whether the worker takes tasks.
func (w Worker) State() string {
	switch {
	case w.Draining:
		return StateDrains
	case w.Problem != "":
		return StateUnfit
	case len(w.Tasks) >= w.Capacity:
		return StateFull
	}
	return StateReady
}

// Doing is a task that a worker does.
type Doing struct {
	Session task.ID `json:"session_id"`
	Task    task.ID `json:"task_id"`
	Name    string  `json:"name"`
	Epoch   uint64  `json:"epoch"`
	Since   int64   `json:"for_ms"` // for how long
}

// Speaks returns the protocol that both sides speak, or an error that says which side to update.
func Speaks(who string, oldest, newest int) (int, error) {
	switch v := min(newest, Version); {
	case newest < Oldest:
		return 0, fmt.Errorf("%s speaks protocol %d, this program %d to %d: update it", who, newest, Oldest, Version)
	case oldest > Version:
		return 0, fmt.Errorf("%s speaks protocol %d and later, this program %d: update this one", who, oldest, Version)
	default:
		return v, nil
	}
}

// Offer says that a task waits for a worker. It has nothing of the work: all workers that it is
// for may read it.
type Offer struct {
	Oldest  int     `json:"protocol_oldest"`
	Newest  int     `json:"protocol_newest"`
	Session task.ID `json:"session_id"`
	Task    task.ID `json:"task_id"`
	Offer   string  `json:"offer"`                // a claim names it
	Repo    string  `json:"repository,omitempty"` // of its folder: a claim says what the worker has of it
	// Lease is the lease of a grant. A worker without an answer asks again after a part of it: it counts the lease from
	// its question, so a late answer is useless.
	Lease time.Duration `json:"lease_ns,omitempty"`
}

// Claim asks for an offered task.
type Claim struct {
	Oldest   int     `json:"protocol_oldest"`
	Newest   int     `json:"protocol_newest"`
	Task     task.ID `json:"task_id"`
	Offer    string  `json:"offer"`
	Worker   string  `json:"worker"`
	Instance string  `json:"instance"`
	// Has are commits that the worker has of the repository of the offer.
	Has []string `json:"has,omitempty"`
}

// Grant is the answer to a claim. With Refused the task is taken or has ended, and the rest is empty.
type Grant struct {
	Refused string        `json:"refused,omitempty"`
	Epoch   uint64        `json:"epoch,omitempty"`
	Lease   time.Duration `json:"lease_ns,omitempty"`
	Job     Job           `json:"job,omitzero"`
}

// Job is the work: a command, or a [Workspace] to keep.
type Job struct {
	Name        string   `json:"name,omitempty"`
	Description string   `json:"description,omitempty"`
	Args        []string `json:"args,omitempty"`
	Line        string   `json:"line,omitempty"`
	TTY         bool     `json:"tty,omitempty"`
	Sandbox     bool     `json:"sandbox,omitempty"`
	Env         []string `json:"env,omitempty"`    // those named to travel; the rest is the worker's
	Folder      bool     `json:"folder,omitempty"` // [FolderReady] follows, which says what to unpack

	Workspace *Workspace `json:"workspace,omitempty"` // no command: the folder is kept for an agent
	// Inside is the task whose workspace a command runs in, with the epoch of its claim.
	Inside *Held `json:"inside,omitempty"`
	// Cwd is where a command in a workspace begins; empty, or not there: in the folder of the workspace.
	Cwd string `json:"cwd,omitempty"`
	// ReportCwd: the last of Args is a script for bash, and its end says in which directory it has ended.
	ReportCwd bool `json:"carry,omitempty"`
}

// Workspace asks a worker to keep a folder in which an agent works from afar: its session calls the
// file tools there, and starts commands inside. It ends by [Stop].
type Workspace struct {
	// Deny and Ask are rules about files that no tool may read or change. They speak of the folders
	// of the session, of which those at the worker are copies.
	Deny []string `json:"deny,omitempty"`
	Ask  []string `json:"ask,omitempty"`
	Of   string   `json:"of"`             // the folder in which the agent would work at its session
	Base string   `json:"base"`           // what relative rules are about there
	Home string   `json:"home,omitempty"` // the home folder there

	Copies []Copy `json:"copies,omitempty"` // that Of is in
}

// Copy is a folder with a copy of another, both of a session.
type Copy struct {
	Of string `json:"of"`
	At string `json:"at"`
}

// Ready is where a workspace is at its worker.
type Ready struct {
	Dir    string `json:"dir"` // in which the agent works, absolute
	Top    string `json:"top"` // of the copy, absolute
	System string `json:"system"`
	Git    bool   `json:"git,omitempty"`
	// Bounded: a sandbox bounds everything that commands do there.
	Bounded bool `json:"bounded,omitempty"`
}

// Call calls a tool of a workspace. One with the same ID is answered again and not done again.
type Call struct {
	Session  task.ID         `json:"session_id"`
	Epoch    uint64          `json:"epoch"`
	Instance string          `json:"instance"`
	ID       string          `json:"id"`
	Tool     string          `json:"tool"`
	Input    json.RawMessage `json:"input"`
}

// Answer is the result of a [Call]. With Refused it was not done, and the rest is empty.
type Answer struct {
	Refused    string          `json:"refused,omitempty"`
	Text       string          `json:"text,omitempty"`
	IsError    bool            `json:"is_error,omitempty"`
	Images     json.RawMessage `json:"images,omitempty"`
	Structured json.RawMessage `json:"structured,omitempty"`
}

// Renewal asks for a longer lease of all tasks that a worker does for a session.
type Renewal struct {
	Worker   string `json:"worker"`
	Instance string `json:"instance"`
	Tasks    []Held `json:"tasks"`
	// Untold is why the hub does not take what the worker tells of them; empty: it does.
	Untold string `json:"untold,omitempty"`
}

// Held is a claim as its worker has it.
type Held struct {
	Task  task.ID `json:"task_id"`
	Epoch uint64  `json:"epoch"`
}

// Renewed is the answer, in the order of the request.
type Renewed struct {
	Tasks []Lease `json:"tasks"`
}

// Lease is the answer of a session about one claim.
type Lease struct {
	Valid bool `json:"valid"` // false: end it, and say nothing more of it
}

// EventKind is what an event is about.
type EventKind string

// The kinds of events.
const (
	Output EventKind = "output" // the data are the bytes at Offset
	Note   EventKind = "note"   // Text is what the worker is doing, for people
	Open   EventKind = "open"   // the workspace is there, see Ready
	Ended  EventKind = "ended"
	// Left belongs to a claim that has ended at the session: End has its changes, which are kept apart.
	Left EventKind = "left"
)

// Event is news of a task at a worker. Data follow its JSON in the message, see [Encode].
type Event struct {
	Kind     EventKind `json:"kind"`
	Epoch    uint64    `json:"epoch"`
	Instance string    `json:"instance"`
	Offset   int64     `json:"offset,omitempty"`
	Text     string    `json:"text,omitempty"`
	Ready    *Ready    `json:"ready,omitempty"`
	End      *End      `json:"end,omitempty"`
}

// End is how a task ended at its worker.
type End struct {
	Status      task.Status       `json:"status"`
	Cause       *task.Cause       `json:"cause,omitempty"`
	ExitCode    *int              `json:"exit_code,omitempty"`
	Signal      string            `json:"signal,omitempty"`
	Error       string            `json:"error,omitempty"`
	OutputBytes int64             `json:"output_bytes"`
	Cwd         string            `json:"cwd,omitempty"` // where it has ended, if ReportCwd was set
	Sent        []task.SignalSent `json:"signals,omitempty"`
	Left        []task.Survivor   `json:"survivors,omitempty"`
	Notes       []string          `json:"notes,omitempty"`
	Return      json.RawMessage   `json:"return,omitempty"` // of the folder
	Folder      string            `json:"folder,omitempty"` // why the folder did not come back
}

// CommandKind is the sort of a [Command].
type CommandKind string

// The kinds of commands.
const (
	Stop   CommandKind = "stop"
	Pause  CommandKind = "pause"
	Resume CommandKind = "resume"
	Type   CommandKind = "type"   // Text is typed into its terminal
	Resend CommandKind = "resend" // output from Offset on
	Drain  CommandKind = "drain"  // of no task: take nothing new

	// FolderReady has the manifest of the folder as its data.
	FolderReady CommandKind = "folder"
	// Begin has the [Grant] of a command in a workspace as its data: the worker has not claimed it.
	Begin CommandKind = "begin"
)

// Command is an order of a session to the worker of a task.
type Command struct {
	Kind   CommandKind    `json:"kind"`
	Epoch  uint64         `json:"epoch"`
	Actor  task.Actor     `json:"actor,omitempty"`
	Grace  *time.Duration `json:"grace_ns,omitempty"`
	Text   string         `json:"text,omitempty"`
	Offset int64          `json:"offset,omitempty"`
}

// Encode writes a message: a line of JSON, and the data after it.
func Encode(v any, data []byte) ([]byte, error) {
	head, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write message: %w", err)
	}
	out := make([]byte, 0, len(head)+1+len(data))
	out = append(append(append(out, head...), '\n'), data...)
	if len(out) > MaxMessage {
		return nil, fmt.Errorf("write message: it has %d bytes, more than the limit of %d", len(out), MaxMessage)
	}
	return out, nil
}

// Decode reads a message into v, and returns the data after it, which are part of the message.
func Decode(msg []byte, v any) ([]byte, error) {
	if len(msg) > MaxMessage {
		return nil, fmt.Errorf("read message: it has %d bytes, more than the limit of %d", len(msg), MaxMessage)
	}
	head, data, ok := bytes.Cut(msg, []byte{'\n'})
	if !ok {
		return nil, errors.New("read message: it has no end of its first line")
	}
	if err := json.Unmarshal(head, v); err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	return data, nil
}

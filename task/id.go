package task

import (
	"crypto/rand"
	"errors"
	"fmt"
)

// Kind says what sort of work a task is. The set is closed: kinds are wire words.
type Kind string

// The eight kinds.
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

// MainSession is the agent type of the record that stands for a main agent.
// Its IDs begin with [MainSessionLetter], and its kind is [LocalAgent].
const (
	MainSession       = "main-session"
	MainSessionLetter = 's'
)

// Kinds returns all kinds in the order of the documents.
func Kinds() []Kind {
	return []Kind{LocalBash, LocalAgent, RemoteAgent, InProcessTeammate, LocalWorkflow, MonitorMCP, MCPTask, Dream}
}

// Letter is the first letter of the IDs of a kind, or 0 for an unknown kind.
func (k Kind) Letter() byte {
	switch k {
	case LocalBash:
		return 'b'
	case LocalAgent:
		return 'a'
	case RemoteAgent:
		return 'r'
	case InProcessTeammate:
		return 't'
	case LocalWorkflow:
		return 'w'
	case MonitorMCP:
		return 'm'
	case MCPTask:
		return 'c'
	case Dream:
		return 'd'
	}
	return 0
}

// Valid reports whether k is one of the eight kinds.
func (k Kind) Valid() bool { return k.Letter() != 0 }

// IsAgent reports whether a task of the kind is an agent that works in this
// process, with a transcript and a mailbox.
func (k Kind) IsAgent() bool { return k == LocalAgent || k == InProcessTeammate }

// ID names a task: the letter of its kind and eight characters of [0-9a-z]
// from a cryptographic source, so that nobody can create a file at the path
// of a task that does not exist yet.
type ID string

// RunID names one execution of a task.
type RunID string

// idBody is the number of random characters in an ID.
const idBody = 8

const base36 = "0123456789abcdefghijklmnopqrstuvwxyz"

// ErrBadID is returned for text that cannot be a task ID.
var ErrBadID = errors.New("not a task ID")

// NewID makes an ID for a task of the kind. It panics on an unknown kind,
// which is a mistake of the caller and not of its input.
func NewID(k Kind) ID {
	l := k.Letter()
	if l == 0 {
		panic(fmt.Sprintf("task: NewID of unknown kind %q", k))
	}
	return ID(string(l) + randomBody())
}

// NewSessionID makes an ID for a main session.
func NewSessionID() ID { return ID(string(MainSessionLetter) + randomBody()) }

// NewRunID makes an ID for one run. It sorts in no particular order.
func NewRunID() RunID { return RunID("run_" + randomBody() + randomBody()) }

// randomBody draws without bias: bytes of 252 and above are thrown away,
// because 252 is the largest multiple of 36 in a byte.
func randomBody() string {
	var out [idBody]byte
	var buf [16]byte
	for n := 0; n < idBody; {
		_, _ = rand.Read(buf[:]) // crypto/rand.Read never fails
		for _, b := range buf {
			if b < 252 && n < idBody {
				out[n] = base36[b%36]
				n++
			}
		}
	}
	return string(out[:])
}

// ParseID checks that s has the form of a new ID.
func ParseID(s string) (ID, error) {
	if len(s) != 1+idBody {
		return "", fmt.Errorf("%w: %.40q", ErrBadID, s)
	}
	if _, ok := kindOfLetter(s[0]); !ok {
		return "", fmt.Errorf("%w: %.40q", ErrBadID, s)
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return "", fmt.Errorf("%w: %.40q", ErrBadID, s)
		}
	}
	return ID(s), nil
}

// Kind tells the kind from the ID alone. A main session is a [LocalAgent].
func (id ID) Kind() (Kind, bool) {
	if id == "" {
		return "", false
	}
	return kindOfLetter(id[0])
}

func kindOfLetter(l byte) (Kind, bool) {
	if l == MainSessionLetter {
		return LocalAgent, true
	}
	for _, k := range Kinds() {
		if k.Letter() == l {
			return k, true
		}
	}
	return "", false
}

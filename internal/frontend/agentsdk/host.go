package agentsdk

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/drover-dev/drover/task"
)

// lifecycleLine tells the program that drives the session where a prompt of its own is.
type lifecycleLine struct {
	Type  string `json:"type"`
	UUID  string `json:"command_uuid"`
	State string `json:"state"` // queued, started or completed
	stamp
}

// stateLine tells whether the main agent is at work.
type stateLine struct {
	Type     string `json:"type"`
	Subtype  string `json:"subtype"`
	State    string `json:"state"` // running, requires_action or idle
	HostOnly bool   `json:"sdk_host_only"`
	stamp
}

// Queued says that a prompt of the program that drives the session is queued, in the
// order in which the prompts will be answered. The UUID is the program's name of it;
// empty: it has none.
func (s *Stream) Queued(uuid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued = append(s.queued, uuid)
	s.lifecycle("queued", uuid)
}

// Waiting are the names of the prompts that no turn has begun with.
func (s *Stream) Waiting() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.queued), func(uuid string) bool { return uuid == "" })
}

// Line prints a line with its stamp.
func (s *Stream) Line(fields map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fields = maps.Clone(fields)
	fields["uuid"], fields["session_id"] = newUUID(), s.o.Session
	s.line(fields)
}

// Hook is a hook that begins or has ended.
type Hook struct {
	From         task.ID // the session for the main agent
	ID           string
	Event, About string
	Done         bool // what follows is set

	Stdout, Stderr string
	Code           *int   // of its exit, where it was a command
	Outcome        string // success, error or cancelled
}

// maxHookOutput is how much of what a hook has printed a line shows.
const maxHookOutput = 16 << 10

// Hook prints a line about a hook.
func (s *Stream) Hook(h Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := hookLine{Type: "system", Subtype: "hook_started", ID: string(h.From) + "-" + h.ID, Name: h.Event,
		Event: h.Event, stamp: s.stamp()}
	if h.About != "" {
		l.Name += ":" + h.About
	}
	if !h.Done {
		s.line(l)
		return
	}
	l.Subtype = "hook_response"
	out, errs := beginning(h.Stdout), beginning(h.Stderr)
	s.line(hookDoneLine{hookLine: l, Output: out + errs, Stdout: out, Stderr: errs, Code: h.Code, Outcome: h.Outcome})
}

// beginning is what a line shows of what a hook has printed.
func beginning(text string) string {
	if len(text) <= maxHookOutput {
		return text
	}
	return strings.ToValidUTF8(text[:maxHookOutput], "") + fmt.Sprintf("\n[%d bytes more]", len(text)-maxHookOutput)
}

// Flush prints all task events there are.
func (s *Stream) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pull()
}

// UseModel stores the model and the permission mode of the main agent, which the next
// system/init tells.
func (s *Stream) UseModel(name, mode string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.o.Model, s.main.model, s.o.PermissionMode = name, name, mode
}

func (s *Stream) lifecycle(state string, uuids ...string) {
	for _, id := range uuids {
		if id != "" {
			s.line(lifecycleLine{Type: "command_lifecycle", UUID: id, State: state, stamp: s.stamp()})
		}
	}
}

// state tells the program that drives the session where the main agent stands.
func (s *Stream) state(now string) {
	if s.o.States {
		s.line(stateLine{Type: "system", Subtype: "session_state_changed", State: now, HostOnly: true, stamp: s.stamp()})
	}
}

// began takes the next prompt that was queued.
func (s *Stream) began() {
	if len(s.queued) == 0 {
		return
	}
	s.begun, s.queued = append(s.begun, s.queued[0]), s.queued[1:]
	s.lifecycle("started", s.begun[len(s.begun)-1])
}

// answered completes the prompts of a turn.
func (s *Stream) answered() {
	s.lifecycle("completed", s.begun...)
	s.begun = nil
}

// endTime is a time of a task as the wire has it, in milliseconds since 1970; nil: it has
// not ended.
func endTime(r task.Record) *int64 {
	if r.EndTime == nil {
		return nil
	}
	ms := r.EndTime.UnixMilli()
	return &ms
}

package agentsdk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drover-dev/drover/task"
)

// lifecycleLine is the state of a prompt of the program that drives the session.
type lifecycleLine struct {
	Type  string `json:"type"`
	UUID  string `json:"command_uuid"`
	State string `json:"state"` // queued, started or completed
	stamp
}

// stateLine is the state of the main agent.
type stateLine struct {
	head
	State    string `json:"state"` // running, requires_action or idle
	HostOnly bool   `json:"sdk_host_only"`
	stamp
}

// queue adds a prompt of the program that drives the session, in the order of the answers. The UUID is the program's
// name of it, or empty.
func (s *Stream) queue(uuid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued = append(s.queued, uuid)
	s.lifecycle("queued", uuid)
}

// waiting returns the names of the prompts that no turn has begun with.
func (s *Stream) waiting() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.queued), func(uuid string) bool { return uuid == "" })
}

// changeMode prints the permission mode of the main agent.
func (s *Stream) changeMode(mode string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line(statusLine{head: system("status"), Mode: mode, stamp: s.stamp()})
}

// changeState prints the state of the main agent, also without the option States.
func (s *Stream) changeState(now string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.printState(now)
}

func (s *Stream) printState(now string) {
	s.line(stateLine{head: system("session_state_changed"), State: now, HostOnly: true, stamp: s.stamp()})
}

// Hook is the begin or the end of a hook.
type Hook struct {
	From         task.ID // the session for the main agent
	ID           string
	Event, About string
	Done         bool // has the fields below

	Stdout, Stderr string
	Code           *int   // the exit code of a command
	Outcome        string // success, error or cancelled
}

// maxHookOutput is how many bytes of each output of a hook a line has.
const maxHookOutput = 16 << 10

// Hook prints a line about a hook.
func (s *Stream) Hook(h Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := hookLine{head: system("hook_started"), ID: string(h.From) + "-" + h.ID, Name: h.Event,
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

// beginning returns the beginning of an output, and how much is left out.
func beginning(text string) string {
	if len(text) <= maxHookOutput {
		return text
	}
	return strings.ToValidUTF8(text[:maxHookOutput], "") + fmt.Sprintf("\n[%d bytes more]", len(text)-maxHookOutput)
}

// flush prints all task events so far.
func (s *Stream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pull()
}

// useModel sets the model and the permission mode for the next system/init.
func (s *Stream) useModel(name, mode string) {
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

// state prints the state of the main agent, if that is an option.
func (s *Stream) state(now string) {
	if s.o.States {
		s.printState(now)
	}
}

// began takes the next queued prompt.
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

// endTime is the end of a task in milliseconds since 1970; nil: it has not ended.
func endTime(r task.Record) *int64 {
	if r.EndTime == nil {
		return nil
	}
	ms := r.EndTime.UnixMilli()
	return &ms
}

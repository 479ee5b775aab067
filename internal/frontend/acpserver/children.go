package acpserver

import (
	"cmp"
	"fmt"
	"strings"
	"sync"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// Subagent sessions of ACP v1, of November 2026: the client opts in, the parent announces a child, and the child
// sends updates of a session of its own, which the client cannot prompt.

// maxPrompt is how many bytes of the prompt of a child are shown.
const maxPrompt = 16 << 10

// children are the agents below the main one, for a client that shows each as a session.
type children struct {
	mu    sync.Mutex // held while a child is announced or changes, so that updates are in order
	known map[task.ID]*child
}

// child is an announced agent.
type child struct {
	parent acp.SessionId
	stage  stage
	state  string // that the client knows
}

// stage is a session and its view, in which the client sees an agent and its questions.
type stage struct {
	id   acp.SessionId
	view *view
}

// main is the stage of the main agent.
func (s *session) main() stage { return stage{s.name(), s.view} }

// stageOf is the stage of a task.
func (s *session) stageOf(id task.ID) stage {
	if c := s.find(id); c != nil {
		return c.stage
	}
	return s.main()
}

// find returns a child by the ID of its task; nil: the task is not a child.
func (s *session) find(id task.ID) *child {
	if s.children == nil || id == s.open.ID() {
		return nil
	}
	s.children.mu.Lock()
	c := s.children.known[id]
	s.children.mu.Unlock()
	if c == nil { // the event of its start has not come yet
		if r, err := s.api.Get(s.ctx, string(id)); err == nil {
			c = s.child(r)
		}
	}
	return c
}

// acts shows an event of an agent below the main one.
func (s *session) acts(from task.ID, e agent.Event) {
	if c := s.find(from); c != nil {
		c.stage.view.main(e)
	}
}

// child announces a new agent, or sends a change of its state; nil: the client does not see it.
func (s *session) child(r task.Record) *child {
	if !r.Kind.IsAgent() || r.IsConversation() || r.ID == s.open.ID() {
		return nil
	}
	parent, ok := s.parentOf(r)
	if !ok {
		return nil
	}
	s.children.mu.Lock()
	defer s.children.mu.Unlock()
	c := s.children.known[r.ID]
	if c == nil {
		if over(r) {
			return nil // it ended under an earlier host
		}
		c = &child{parent: parent, state: stateOf(r).State}
		c.stage.id = acp.SessionId(r.ID)
		c.stage.view = newView(cmp.Or(r.Cwd, s.folder), func(u acp.SessionUpdate) { s.send(c.stage.id, u) })
		s.children.known[r.ID] = c
		s.send(parent, subagentUpdate{Kind: "subagent_update", SessionID: c.stage.id,
			Title:       excerpt.Line(cmp.Or(r.Description, r.Name, string(r.ID)), maxTitle),
			Description: excerpt.Line(r.AgentType, maxTitle), Cwd: r.Cwd,
			Capabilities: &subagentCapabilities{Cancel: &struct{}{}}, State: stateOf(r)})
		prompt := strings.ToValidUTF8(r.Prompt[:min(len(r.Prompt), maxPrompt)], "")
		s.send(c.stage.id, sessionMessage{Kind: "session_message", MessageID: fmt.Sprintf("%s-prompt", r.ID),
			Sender: parent, Recipient: c.stage.id, Content: []acp.ContentBlock{acp.TextBlock(prompt)}})
		return c
	}
	if now := stateOf(r); now.State != c.state {
		c.state = now.State
		s.send(c.parent, subagentUpdate{Kind: "subagent_update", SessionID: c.stage.id, State: now})
	}
	return c
}

// parentOf is the session in which an agent is announced: the one of the agent above it, which it announces
// first.
func (s *session) parentOf(r task.Record) (acp.SessionId, bool) {
	for r.Parent != "" && r.Parent != s.open.ID() {
		up, err := s.api.Get(s.ctx, string(r.Parent))
		if err != nil {
			return "", false
		}
		if up.Kind.IsAgent() && !up.IsConversation() {
			if c := s.child(up); c != nil {
				return c.stage.id, true
			}
		}
		r = up
	}
	return s.name(), true
}

// interruptChild cancels the turn of a child in the background, and the run of one whose parent waits for it.
func (s *session) interruptChild(id acp.SessionId) {
	r, err := s.api.Get(s.ctx, string(id))
	if err == nil && r.Backgrounded {
		_, err = s.api.Interrupt(s.ctx, string(id))
	} else if err == nil {
		_, err = s.api.Stop(s.ctx, control.StopRequest{Refs: []string{string(id)}, Detail: "session/cancel of ACP"})
	}
	if err != nil && !control.IsCode(err, control.Conflict) {
		s.warn(fmt.Sprintf("cancel agent %s", id), err)
	}
}

// stateOf is the state of an agent in the words of the protocol.
func stateOf(r task.Record) *childState {
	switch {
	case r.AwaitingApproval && !over(r):
		return &childState{State: "requires_action"}
	case !over(r):
		return &childState{State: "running"}
	case r.Status == task.Killed:
		return &childState{State: "idle", StopReason: acp.StopReasonCancelled}
	case r.Status == task.Failed:
		return &childState{State: "idle"}
	}
	return &childState{State: "idle", StopReason: acp.StopReasonEndTurn}
}

// findChild returns the session that has a child with an ID, or nil.
func (s *server) findChild(id acp.SessionId) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sessions {
		if one != nil && one.children != nil {
			one.children.mu.Lock()
			_, known := one.children.known[task.ID(id)]
			one.children.mu.Unlock()
			if known {
				return one
			}
		}
	}
	return nil
}

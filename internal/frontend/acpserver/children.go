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

// Subagent sessions of ACP v1, of November 2026: the client opts in, the parent announces a child, and what
// the child does comes as updates of a session of its own, which the client cannot prompt.

// maxPrompt is how much of its prompt the client is shown of a child, in bytes.
const maxPrompt = 16 << 10

// children are the agents below the main one, for a client that shows each as a session.
type children struct {
	mu    sync.Mutex // held while one is announced or changes: the client is told in order
	known map[task.ID]*child
}

// child is an agent that was announced.
type child struct {
	parent acp.SessionId
	stage  stage
	state  string // as the client was told
}

// stage is where the client sees what an agent does and is asked about.
type stage struct {
	id   acp.SessionId
	view *view
}

// main is the stage of the main agent.
func (s *session) main() stage { return stage{s.name(), s.view} }

// stageOf is where the client is asked about a call of a task.
func (s *session) stageOf(id task.ID) stage {
	if c := s.find(id); c != nil {
		return c.stage
	}
	return s.main()
}

// find is a child by the ID of its task; nil: it is none.
func (s *session) find(id task.ID) *child {
	if s.children == nil || id == s.open.ID() {
		return nil
	}
	s.children.mu.Lock()
	c := s.children.known[id]
	s.children.mu.Unlock()
	if c == nil { // the event of its start has not come yet
		if r, err := s.open.Get(s.ctx, string(id)); err == nil {
			c = s.child(r)
		}
	}
	return c
}

// acts shows what an agent below the main one does.
func (s *session) acts(from task.ID, e agent.Event) {
	if c := s.find(from); c != nil {
		c.stage.view.main(e)
	}
}

// child announces an agent when it is seen first, and tells the client when its state changes; nil: it is
// none that the client sees.
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
			return nil // of an earlier host
		}
		c = &child{parent: parent, state: stateOf(r).State}
		c.stage.id = acp.SessionId(r.ID)
		c.stage.view = newView(cmp.Or(r.Cwd, s.folder), func(u acp.SessionUpdate) { s.tell(c.stage.id, u) })
		s.children.known[r.ID] = c
		s.tell(parent, subagentUpdate{Kind: "subagent_update", SessionID: c.stage.id,
			Title:       excerpt.Line(cmp.Or(r.Description, r.Name, string(r.ID)), maxTitle),
			Description: excerpt.Line(r.AgentType, maxTitle), Cwd: r.Cwd,
			Capabilities: &subagentCapabilities{Cancel: &struct{}{}}, State: stateOf(r)})
		prompt := strings.ToValidUTF8(r.Prompt[:min(len(r.Prompt), maxPrompt)], "")
		s.tell(c.stage.id, sessionMessage{Kind: "session_message", MessageID: fmt.Sprintf("%s-prompt", r.ID),
			Sender: parent, Recipient: c.stage.id, Content: []acp.ContentBlock{acp.TextBlock(prompt)}})
		return c
	}
	if now := stateOf(r); now.State != c.state {
		c.state = now.State
		s.tell(c.parent, subagentUpdate{Kind: "subagent_update", SessionID: c.stage.id, State: now})
	}
	return c
}

// parentOf is the session in which an agent is announced: that of the agent above it, which is announced
// before.
func (s *session) parentOf(r task.Record) (acp.SessionId, bool) {
	for r.Parent != "" && r.Parent != s.open.ID() {
		up, err := s.open.Get(s.ctx, string(r.Parent))
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

// interruptChild cancels what a child is doing: its turn, or its run if somebody waits for that. A message begins
// another one.
func (s *session) interruptChild(id acp.SessionId) {
	r, err := s.open.Get(s.ctx, string(id))
	if err == nil && r.Backgrounded {
		_, err = s.open.Interrupt(s.ctx, string(id))
	} else if err == nil {
		_, err = s.open.Stop(s.ctx, control.StopRequest{Refs: []string{string(id)}, Detail: "session/cancel of ACP"})
	}
	if err != nil && !conflict(err) && s.ctx.Err() == nil {
		s.of.conn.warn("cancel what agent %s does: %v", id, err)
	}
}

// stateOf is what an agent is doing, in the words of the protocol.
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

// findChild is the session whose agent is seen under an ID; nil: there is none.
func (s *served) findChild(id acp.SessionId) *session {
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

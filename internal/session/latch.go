package session

import (
	"slices"

	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/task"
)

// owed reports whether mail is there for which a turn is to begin. What the user
// has brought about waits for the user: it comes with the next turn that begins
// for another reason.
func (m *Main) owed() bool { return slices.ContainsFunc(m.box.Mail(), m.s.wakes) }

func (s *Session) wakes(m mailbox.Mail) bool {
	if m.Message != nil {
		return m.Message.Kind != task.AgentHalted && m.Message.Kind != task.Prompt
	}
	if m.Notice.ByUser {
		return false
	}
	r, ok := s.sup.Get(m.Notice.Task)
	return !ok || r.Run != m.Notice.Run || !r.StoppedByUser() // an earlier run gave way to one that somebody wanted
}

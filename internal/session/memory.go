package session

import (
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
)

// remembered reports the result of a dream to the user, also in the transcript of the main
// agent as a line that the agent does not read.
func (s *Session) remembered(changed []string) {
	text := "memory was looked through, and nothing had to be changed"
	if len(changed) > 0 {
		text = "memory was updated: " + strings.Join(changed, ", ")
	}
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	if m != nil {
		if err := m.transcript.Append(agent.Record{Note: text}); err != nil {
			text += fmt.Sprintf(" (the transcript does not hold this: %v)", err)
		}
	}
	s.tree.Say(text)
}

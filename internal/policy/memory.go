package policy

import "sync"

// maxAnswers bounds what is remembered; beyond it, it begins anew.
const maxAnswers = 1 << 10

// Memory keeps the places that answers have opened. The gates of a session share one; its use may overlap.
type Memory struct {
	mu      sync.Mutex
	answers map[answer]bool // guarded by mu
}

// NewMemory returns an empty one.
func NewMemory() *Memory { return &Memory{answers: map[answer]bool{}} }

// answer is a place that an answer has opened for one use of it.
type answer struct {
	real string
	edit bool
}

func (m *Memory) admit(real string, edit bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.answers) >= maxAnswers {
		clear(m.answers)
	}
	m.answers[answer{real, edit}] = true
}

func (m *Memory) admitted(real string, edit bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.answers[answer{real, edit}]
}

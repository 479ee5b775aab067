package tree

import (
	"sync"

	"github.com/drover-dev/drover/task"
)

// Reporter tells the user about the agents of a session. Its methods may be called by
// several goroutines.
type Reporter struct {
	session task.ID
	tell    func(about task.ID, text string)

	mu   sync.Mutex
	told map[string]bool // guarded by mu: by Once
}

// NewReporter returns a reporter that calls tell; nil: texts are dropped.
func NewReporter(session task.ID, tell func(about task.ID, text string)) *Reporter {
	return &Reporter{session: session, tell: tell, told: map[string]bool{}}
}

// Say tells the user about an agent.
func (r *Reporter) Say(about task.ID, texts ...string) {
	for _, text := range texts {
		if r.tell != nil {
			r.tell(about, text)
		}
	}
}

// Once tells the user a text that would be the same for each agent.
func (r *Reporter) Once(text string) {
	r.mu.Lock()
	again := r.told[text]
	r.told[text] = true
	r.mu.Unlock()
	if !again {
		r.Say(r.session, text)
	}
}

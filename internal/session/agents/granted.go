package agents

import "sync"

// Granted has what the command of the newest prompt of the main agent allows and restricts. It
// applies until the next prompt of the user, also in turns that mail or a reminder begins. The
// zero value is ready; its methods may be called by several goroutines.
type Granted struct {
	mu          sync.Mutex
	allow, only []string // guarded by mu
}

// Set replaces the rules that allow, and those outside which nothing is allowed; nil: none.
func (g *Granted) Set(allow, only []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.allow, g.only = allow, only
}

func (g *Granted) allowed() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.allow
}

func (g *Granted) restricted() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.only
}

// Package requests answers requests of clients that concern the agents of a session.
//
// [Tasks] adds them to a session of tasks: it starts agents and all other work, writes to agents, resumes and
// interrupts them, shows their changes, and prompts the main agent. What concerns no agent it leaves to package tasks.
package requests

import (
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/dreams"
	"github.com/drover-dev/drover/internal/session/idle"
	"github.com/drover-dev/drover/internal/session/messages"
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/internal/session/tree"
)

// Tasks answers requests. Its methods may be called by several goroutines.
type Tasks struct {
	*tasks.Session
	s      *tree.Tree
	mail   *messages.Mailboxes
	idle   *idle.Watch
	agents *agents.Set
	dreams *dreams.Dreams
	trees  *worktree.Store // nil: no agent is isolated
}

// New adds the agents of a session to its tasks. trees may be nil.
func New(
	s *tasks.Session, mail *messages.Mailboxes, idle *idle.Watch, set *agents.Set, dreams *dreams.Dreams,
	trees *worktree.Store,
) *Tasks {
	return &Tasks{Session: s, s: s.Tree, mail: mail, idle: idle, agents: set, dreams: dreams, trees: trees}
}

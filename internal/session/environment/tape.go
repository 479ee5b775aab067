package environment

import (
	"context"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/task"
)

// Tape stands between the agents of a session and what is outside of it. A recording keeps what its
// functions return; a replay returns what was recorded. Its methods may be called by several goroutines.
type Tape interface {
	// Text returns a text from outside that an agent reads. what is [StartText] or [PromptText].
	Text(id task.ID, what string, get func() (string, error)) (string, error)
	// Command returns the prompt that a command becomes; nil: it is no command. expand also returns the shell
	// lines that it has run, as calls; run runs one.
	Command(run func(agent.Call), expand func() (*string, []agent.Call, error)) (*string, error)
	// Works reports whether a task of an agent is at work after an answer of it; works: one is.
	Works(id task.ID, works bool) bool
	// Checkout returns the worktree of an isolated agent, and Left what is left of it behind its run.
	Checkout(ctx context.Context, id task.ID, open func(context.Context) (*worktree.Tree, error)) (*worktree.Tree, error)
	Left(id task.ID, leave func() *task.Worktree) *task.Worktree
}

// The texts that an agent reads from outside.
const (
	StartText  = "start"  // at its start: of start hooks, of its place, of its skills
	PromptText = "prompt" // of the hooks of a prompt
)

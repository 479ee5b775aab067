package environment

import (
	"context"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

// Seam is where a recording meets a session: at the turn loops of its agents, at the starts of its tasks and
// at its log. [Unrecorded] is the seam of a session that is neither recorded nor played. The methods may be
// called by several goroutines.
type Seam interface {
	// Agent changes the config of an agent's loop before the loop is made. It may set the port.
	Agent(id task.ID, c *agent.Config)
	// Texts returns texts that an agent gets from outside before its loop does; see [agent.Port].
	Texts(ctx context.Context, id task.ID, what string, get func() ([]string, error)) ([]string, error)
	// Prepare is that of [supervise.Config].
	Prepare(d task.Driver, spec task.Spec) supervise.Prepared
	// Log returns the log to which the supervisor writes instead.
	Log(log Log) supervise.Log
}

// Log is the log of a session, with the number of its newest event or message.
type Log interface {
	supervise.Log
	Reached() task.Seq
}

// The sorts of texts for which a session asks [Seam.Texts].
const (
	StartTexts    = "start"    // of start hooks, of the place of an agent, of its skills
	PromptTexts   = "prompt"   // of the hooks of a prompt
	CommandTexts  = "command"  // the prompt that a command becomes, and the calls that it ran, as JSON; none: no command
	WorksTexts    = "works"    // not empty: a task of the agent is at work after an answer
	WorktreeTexts = "worktree" // the worktree of an isolated agent, as JSON
	LeftTexts     = "left"     // the rest of the worktree after the run, as JSON
)

// Unrecorded is the [Seam] of a session that is neither recorded nor played.
type Unrecorded struct{}

// Agent implements [Seam].
func (Unrecorded) Agent(task.ID, *agent.Config) {}

// Texts implements [Seam].
func (Unrecorded) Texts(_ context.Context, _ task.ID, _ string, get func() ([]string, error)) ([]string, error) {
	return get()
}

// Prepare implements [Seam].
func (Unrecorded) Prepare(d task.Driver, _ task.Spec) supervise.Prepared {
	return supervise.Prepared{Driver: d}
}

// Log implements [Seam].
func (Unrecorded) Log(log Log) supervise.Log { return log }

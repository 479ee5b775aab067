package agents

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/task"
)

// longCall is the length of a call after which a provider has forgotten the conversation, or
// nearly so.
const longCall = 4 * time.Minute

// compaction configures how the agent's conversation is compacted.
func (k *Environment) compaction(model string) *agent.Compaction {
	s := k.s
	c := &agent.Compaction{Share: s.Options.Context.Share, Restore: k.restore,
		Before: k.Runner.PreCompact, After: k.Runner.PostCompact}
	if s.cfg.Window != nil {
		c.Window, _ = s.cfg.Window(model)
	}
	return c
}

// restore returns what the agent must keep after a compaction.
func (k *Environment) restore(ctx context.Context) string {
	running := environment.RunningTasks(k.s.Background(k.Me.ID, k.Me.Depth == 0), k.runtime().unless(false))
	return join([]string{running, k.todos(ctx), k.used.Restore()})
}

// todos returns the open to-dos.
func (k *Environment) todos(ctx context.Context) string {
	store := k.s.cfg.Todos
	if store == nil {
		return ""
	}
	list, err := store.List(ctx)
	if err != nil {
		return "" // the tools report it
	}
	var b strings.Builder
	for _, it := range list.Items {
		if it.Status == todo.Completed {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("## To-dos\n")
		}
		fmt.Fprintf(&b, "- %s %s (%s)\n", it.ID, excerpt.Line(it.Subject, environment.AboutChars), it.Status)
	}
	return excerpt.Inert(strings.TrimRight(b.String(), "\n"))
}

// waits reports whether the next request of the agent may be long in coming: agents or workflows
// work for it in the background, or it has waited long for a call before.
func (k *Environment) waits() bool {
	return k.waited.Load() || slices.ContainsFunc(k.s.Background(k.Me.ID, k.Me.Depth == 0),
		func(r task.Record) bool { return r.Kind.IsAgent() || r.Traits().Work == task.BySteps })
}

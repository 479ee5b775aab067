package recording

import (
	"context"

	"github.com/drover-dev/drover/agent"
)

// Compacting returns a compaction whose texts from outside of the conversation go through text: what hooks add to the
// instructions, and what is kept beside the summary.
func Compacting(c *agent.Compaction, text func(what string, get func() (string, error)) (string, error),
) *agent.Compaction {
	own := *c
	if c.Before != nil {
		own.Before = func(ctx context.Context, trigger, instructions string) (string, error) {
			return text("compact", func() (string, error) { return c.Before(ctx, trigger, instructions) })
		}
	}
	if c.Restore != nil {
		own.Restore = func(ctx context.Context) string {
			kept, _ := text("restore", func() (string, error) { return c.Restore(ctx), nil })
			return kept
		}
	}
	return &own
}

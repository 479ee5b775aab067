package monitor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/task"
)

// resourceBytes is how much of the text of a resource is looked at.
const resourceBytes = 1 << 20

// subscribe takes in new lines of a resource, each time that it changes: lines that
// its previous text did not have. Its first text does not count as new.
func (d *Driver) subscribe(ctx context.Context, h task.Host, w Watch, r *report) (string, error) {
	refuse := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &task.FailError{
			Reason: task.ReasonStart,
			Err:    fmt.Errorf("watch %s of MCP server %s: %w", w.URI, w.Server, err),
		}
	}
	if d.client.Subscribe == nil {
		return "", refuse(errors.New("there are no MCP servers"))
	}
	sub, err := d.client.Subscribe(ctx, w.Server, w.URI)
	if err != nil {
		return "", refuse(err)
	}
	var before map[string]bool // nil: nothing was seen yet
	for text, err := range sub.Events(ctx) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return "", fmt.Errorf("watch %s of MCP server %s: %w", w.URI, w.Server, err)
		}
		now := map[string]bool{}
		for line := range strings.Lines(text[:min(len(text), resourceBytes)]) {
			line = strings.TrimRight(line, "\r\n")
			now[line] = true
			if before != nil && !before[line] {
				_, _ = fmt.Fprintln(h.Output(), line)
				r.line([]byte(line[:min(len(line), lineBytes)]))
			}
		}
		if before == nil { // progress is the only sign that the server watches now
			h.Progress(task.Progress{Message: plural(0, "event"), Monitor: &task.MonitorCount{}})
		}
		before = now
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return "The server has no more to say.", nil
}

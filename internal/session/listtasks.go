package session

import (
	"context"

	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/task"
)

var _ tasktools.Lister = (*runtime)(nil)

// List returns the tasks that the agent may see: a subagent sees its own
// subtree, and none sees the task of its own session.
func (rt *runtime) List(context.Context) ([]task.Record, error) {
	var out []task.Record
	for _, r := range rt.s.sup.List(0) {
		if r.ID == rt.id || rt.host != nil && !rt.s.tree.Below(r, rt.id) {
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

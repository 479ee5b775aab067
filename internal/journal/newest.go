package journal

import (
	"context"
	"strings"

	"github.com/drover-dev/drover/task"
)

// Newest returns tasks as they are now, in no order. One that the log does not
// know is left out.
func (j *Journal) Newest(ctx context.Context, ids []task.ID) ([]task.Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = string(id)
	}
	states, err := j.states(ctx, newestOf+strings.Repeat(", ?", len(ids)-1)+") GROUP BY task_id)", args...)
	if err != nil {
		return nil, err
	}
	records := make([]task.Record, len(states))
	for i, s := range states {
		records[i] = s.Task
	}
	return records, nil
}

const newestOf = `SELECT 0, e.seq, e.record FROM events e WHERE e.seq IN (SELECT max(seq) FROM events WHERE task_id IN (?`

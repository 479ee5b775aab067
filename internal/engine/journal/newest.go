package journal

import (
	"context"
	"slices"
	"strings"

	"github.com/drover-dev/drover/task"
)

// Newest returns the current records of tasks, in no order, without those that are not in the
// log.
func (j *Journal) Newest(ctx context.Context, ids []task.ID) ([]task.Record, error) {
	states, err := j.Some(ctx, ids)
	if err != nil {
		return nil, err
	}
	records := make([]task.Record, len(states))
	for i, s := range states {
		records[i] = s.Task
	}
	return records, nil
}

// mostAsked is the largest number of tasks in one query.
const mostAsked = 500

// Some is [Journal.Newest] with the numbers of the events.
func (j *Journal) Some(ctx context.Context, ids []task.ID) (states []State, err error) {
	for part := range slices.Chunk(ids, mostAsked) {
		args := make([]any, len(part))
		for i, id := range part {
			args[i] = string(id)
		}
		some, err := j.states(
			ctx,
			newestOf+strings.Repeat(", ?", len(part)-1)+") GROUP BY task_id) n ON e.seq = n.seq",
			args...)
		if err != nil {
			return nil, err
		}
		states = append(states, some...)
	}
	return states, nil
}

const newestOf = `SELECT n.born, e.seq, e.record FROM events e
	JOIN (SELECT min(seq) AS born, max(seq) AS seq FROM events WHERE task_id IN (?`

// Changed returns the current records of the tasks that have events after a number, in no
// order.
func (j *Journal) Changed(ctx context.Context, after task.Seq) ([]State, error) {
	return j.states(ctx, changed, int64(after))
}

const changed = `SELECT n.born, e.seq, e.record FROM events e
	JOIN (SELECT min(seq) AS born, max(seq) AS seq FROM events
		WHERE task_id IN (SELECT task_id FROM events WHERE seq > ?) GROUP BY task_id) n ON e.seq = n.seq`

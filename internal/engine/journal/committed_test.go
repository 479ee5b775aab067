package journal

import (
	"errors"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Who is told of an event finds the record it has made, and who finds that record finds
// the notification: the supervisor hears of a commit between the two.
func TestCommittedOrder(t *testing.T) {
	j := open(t, t.TempDir()+"/session.db", Options{})
	r := record(1)
	add(t, j, lifecycle.Entry{Verb: task.Create, At: time.Unix(1, 0), Task: r})
	before := j.Last()
	committed := j.NextCommit()
	var told task.Seq
	seq := add(t, j, lifecycle.Entry{Verb: task.Complete, At: time.Unix(2, 0), Task: r,
		Notification: &lifecycle.Notification{Run: r.Run, Task: r.ID, Owner: "s00000000"},
		Committed: func(seq task.Seq) {
			told = seq
			if j.Last() != before {
				t.Error("the event was readable before its record")
			}
			select {
			case <-committed:
				t.Error("readers were told before the record")
			default:
			}
			notifications, _, _, err := j.Mail(t.Context(), "s00000000", 0)
			if err != nil || len(notifications) != 1 {
				t.Errorf("the notification is not there before the record: %v, %v", notifications, err)
			}
		}})
	if told != seq || j.Last() != seq {
		t.Errorf("told %d, last %d, want %d", told, j.Last(), seq)
	}
}

// Nothing is committed of an event that was refused.
func TestCommittedRefused(t *testing.T) {
	j := open(t, t.TempDir()+"/session.db", Options{})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := j.Append(t.Context(), lifecycle.Entry{Verb: task.Create, Task: record(1), Committed: func(task.Seq) { t.Error("told") }})
	if !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

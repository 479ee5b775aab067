package lifecycle

import (
	"time"

	"github.com/drover-dev/drover/task"
)

// Entry is one event to be written to the log, with what belongs to the same
// fact: the notification that a terminal event owes, and the answer of the run.
type Entry struct {
	Verb         task.Verb
	At           time.Time
	Task         task.Record
	Notification *Notification // exactly one with every terminal event, none otherwise
	Answer       string        // of a terminal event: the final answer, if there is one

	// Committed is called with the number of the event when it is durable, before any
	// reader of the log sees it. The log calls it from one goroutine at a time; it must
	// not write to the log.
	Committed func(task.Seq)
}

// Notification is what the owner of a task is owed for the end of a run.
type Notification struct {
	Seq      task.Seq // of the terminal event; set by the log
	Run      task.RunID
	Task     task.ID
	Owner    task.ID // empty: no task is notified
	Priority task.Priority
	Acked    bool // the owner has it, or had the answer already
	ByUser   bool // the user has ended the run; the log does not keep it, since the record says so
}

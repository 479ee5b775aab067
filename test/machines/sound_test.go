//go:build linux

package machines

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/fleet/placement"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/waittest"
)

// tallied is what all tests of this run have counted.
var tallied tally

// tally has a row for each fault.
type tally struct {
	mu   sync.Mutex
	rows map[string]row // guarded by mu
}

// row is what was counted after a fault.
type row struct {
	cases, tasks, ends int
	twice              int // ends and notifications beyond the first of a task
	left               int // processes that were running after the end of their task
	took               time.Duration
}

func (y *tally) add(fault string, r row) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.rows == nil {
		y.rows = map[string]row{}
	}
	old := y.rows[fault]
	y.rows[fault] = row{old.cases + 1, old.tasks + r.tasks, old.ends + r.ends, old.twice + r.twice, old.left + r.left,
		old.took + r.took}
}

// print prints the table, with the sum of all rows at its end.
func (y *tally) print(to io.Writer) {
	y.mu.Lock()
	defer y.mu.Unlock()
	var names []string
	var sum row
	for name, r := range y.rows {
		names = append(names, name)
		sum = row{sum.cases + r.cases, sum.tasks + r.tasks, sum.ends + r.ends, sum.twice + r.twice, sum.left + r.left,
			sum.took + r.took}
	}
	slices.Sort(names)
	t := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	line := func(name string, r row) {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%s\n", name, r.cases, r.tasks, r.ends, r.twice, r.left,
			r.took.Round(100*time.Millisecond))
	}
	_, _ = fmt.Fprintln(t, "FAULT\tCASES\tTASKS\tENDS\tTWICE TOLD\tLEFT RUNNING\tTIME")
	for _, name := range names {
		line(name, y.rows[name])
	}
	line("all", sum)
	_ = t.Flush()
}

// told is what the logs of the session's machine say of its tasks.
type told struct {
	tasks  map[task.ID]task.Record // as they are now
	ends   map[task.ID]int         // events that end it
	notes  map[task.ID]int         // notifications of its end
	folder map[task.ID]string      // of its session
}

func (w *world) told() told {
	w.Helper()
	out := told{map[task.ID]task.Record{}, map[task.ID]int{}, map[task.ID]int{}, map[task.ID]string{}}
	names, err := filepath.Glob(filepath.Join(w.State(), "projects", "*", "s*", "*.db"))
	w.Must(err)
	if len(names) == 0 {
		w.Fatal("there is no log")
	}
	ctx := context.Background()
	for _, name := range names {
		log, err := journal.Open(name, journal.Options{ReadOnly: true})
		w.Must(err)
		for e, err := range log.Events(ctx, 0) {
			w.Must(err)
			id := e.Task.ID
			out.tasks[id], out.folder[id] = e.Task, filepath.Dir(name)
			if e.Task.Status.Terminal() && (e.Verb == task.Complete || e.Verb == task.Fail || e.Verb == task.Stop) {
				out.ends[id]++
			}
		}
		notes, err := log.Notifications(ctx)
		w.Must(err)
		for _, n := range notes {
			out.notes[n.Task]++
		}
		w.Must(log.Close())
	}
	return out
}

// sound is what holds after every fault: each task of the session has one end and one notification of it, nothing is
// left running, and what was refused does not contradict the log. It adds to the row of the fault.
func (w *world) sound(fault string) {
	w.Helper()
	var now told
	settled := func() bool {
		now = w.told()
		for _, r := range now.tasks {
			if !r.Status.Terminal() {
				return false
			}
		}
		return true
	}
	if !waittest.Until(harness.Patience, settled) {
		w.Error("a task has no end")
	}
	r := row{tasks: len(now.tasks)}
	for id := range now.tasks {
		r.ends += now.ends[id]
		r.twice += max(0, now.ends[id]-1) + max(0, now.notes[id]-1)
		if now.ends[id] != 1 || now.notes[id] != 1 {
			w.Errorf("task %s has %d ends and %d notifications", id, now.ends[id], now.notes[id])
		}
	}
	if !waittest.Until(2*w.lease, func() bool { return len(w.Procs("go-")) == 0 }) {
		for _, x := range w.Procs("go-") {
			r.left++
			w.Errorf("left running: %d %s", x.PID, x.Line)
		}
	}
	w.refused(now)
	r.took = time.Since(w.began)
	tallied.add(fault, r)
}

// refused checks the evidence that sessions have kept. An end may be refused only if the log has it already, or has
// given the worker up; no evidence may have an epoch that was never granted.
func (w *world) refused(now told) {
	w.Helper()
	folders := map[string]bool{}
	for _, dir := range now.folder {
		folders[dir] = true
	}
	for dir := range folders {
		f, err := os.Open(filepath.Join(dir, "refused.jsonl"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		w.Must(err)
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var e placement.Evidence
			w.Must(json.Unmarshal(lines.Bytes(), &e))
			r, known := now.tasks[e.Task]
			var book placement.Book
			switch {
			case !known:
				w.Errorf("refused of a task that nobody knows: %s", lines.Text())
				continue
			case len(r.Checkpoint) > 0:
				w.Must(json.Unmarshal(r.Checkpoint, &book))
				if e.Epoch > book.Epoch {
					w.Errorf("epoch %d was never granted, the newest is %d: %s", e.Epoch, book.Epoch, lines.Text())
				}
			}
			lost := r.Cause != nil && (r.Cause.Reason == "worker_lost" || r.Status == task.Killed)
			if e.End != nil && e.Epoch == book.Epoch && e.End.Status != r.Status && !lost {
				w.Errorf("the end of the worker that has the task was refused, which is %s: %s", r.Status, lines.Text())
			}
		}
		w.Must(lines.Err())
		w.Must(f.Close())
	}
}

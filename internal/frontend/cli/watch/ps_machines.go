package watch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// machined is a task with the machine that does it.
type machined struct {
	listed
	Machine string `json:"machine,omitempty"`      // a worker, or this machine; empty: it waits for a worker
	Gone    bool   `json:"machine_gone,omitempty"` // the hub does not know the worker any more
}

// onMachines lists the tasks of this machine's sessions, and what the workers of the hub do for sessions elsewhere, by
// machine.
func (a *app) onMachines(ctx context.Context, ended bool, limit int) ([]machined, bool, error) {
	workers, err := a.Workers(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("list workers: %w", err)
	}
	sessions, err := a.Known(ctx, false, true)
	if err != nil {
		return nil, false, err
	}
	own := map[task.ID]bool{}
	for _, s := range sessions {
		own[s.Info().Session] = true
	}
	records, more, err := a.List(ctx, ended, true, limit)
	if err != nil {
		return nil, false, err
	}
	return byMachine(console.HostName(), records, doneFor(workers, own, a.Now()), workers), more, nil
}

// doneFor returns the tasks that workers report for sessions of other machines.
func doneFor(workers []fleetwire.Worker, own map[task.ID]bool, now time.Time) (out []task.Record) {
	for _, w := range workers {
		for _, d := range w.Tasks {
			if own[d.Session] {
				continue
			}
			begin := now.Add(-time.Duration(d.Since) * time.Millisecond)
			kind, _ := d.Task.Kind()
			out = append(out, task.Record{ID: d.Task, Session: d.Session, Kind: kind, Name: d.Name, Status: task.Running,
				Worker: w.Name, Backgrounded: true, CreateTime: begin, StartTime: &begin})
		}
	}
	return out
}

// byMachine orders tasks: this machine, then each worker, then the tasks that wait for a worker.
func byMachine(here string, own, others []task.Record, workers []fleetwire.Worker) []machined {
	out := []machined{}
	for _, r := range slices.Concat(own, others) {
		m := machined{listed: withDisplay(r), Machine: cmp.Or(r.Worker, here)}
		if r.Worker == "" && r.On != "" {
			m.Machine = ""
		}
		if r.Worker != "" && !r.Status.Terminal() {
			m.Gone = !slices.ContainsFunc(workers, func(w fleetwire.Worker) bool { return w.Name == r.Worker })
		}
		out = append(out, m)
	}
	rank := func(m machined) int {
		switch {
		case m.Machine == "":
			return 2
		case m.Worker != "":
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b machined) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Machine, b.Machine))
	})
	return out
}

// psMachines lists the tasks of all machines.
func (a *app) psMachines(ctx context.Context, ended bool, limit int, asJSON, quiet bool) error {
	all, more, err := a.onMachines(ctx, ended, limit)
	if err != nil {
		return err
	}
	if asJSON {
		return console.PrintArray(a.Stdout, all)
	}
	records := make([]task.Record, len(all))
	for i, m := range all {
		records[i] = m.Record
	}
	if quiet {
		return a.printIDs(records)
	}
	if err := a.machinesTable(all, records); err != nil {
		return err
	}
	a.noteMore(more, len(records))
	return nil
}

func (a *app) machinesTable(all []machined, records []task.Record) error {
	if len(all) == 0 {
		return a.Printf(noTasks)
	}
	rows := a.taskRows(records, make([]int, len(records)), true)
	rows[0] = slices.Insert(rows[0], 1, "MACHINE")
	for i, m := range all {
		where := console.Cell(cmp.Or(m.Machine, "-"), 40)
		if m.Gone {
			where += " (gone)"
		}
		rows[i+1] = slices.Insert(rows[i+1], 1, where)
	}
	return a.Table(rows, ofTasks(rows, records))
}

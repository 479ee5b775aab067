package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

func (a *app) stop() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stop [--grace D] [--json] (REF… | --all)",
		Short: "Stop tasks and everything below them, and print a receipt",
		Long: "Stop tasks with everything that they started, and print a receipt: how each task ended, and every process\n" +
			"that survived. Stopping an ended task changes nothing. The exit code is 1 if a process survived.",
		Args:              takes(0, -1),
		ValidArgsFunction: a.completeTasks(false),
	}
	f := cmd.Flags()
	every := f.Bool("all", false, "stop every task of this project's live sessions; with --all-sessions, of all projects")
	grace := f.String("grace", "", "time between TERM and KILL, such as 500ms or 10s (default 2s)")
	asJSON := f.Bool("json", false, "print the receipt as JSON")
	all := everywhere(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		req := control.StopRequest{Actor: task.ByUser}
		if f.Changed("grace") {
			d, err := duration("--grace", *grace, 0)
			if err != nil {
				return err
			}
			req.Grace = &d
		}
		ctx := cmd.Context()
		var tasks []found
		var err error
		switch {
		case *every && len(words) > 0:
			return usage("--all and REF are mutually exclusive", "give one of them")
		case *every:
			tasks, err = a.everyTask(ctx, *all)
		case len(words) == 0:
			return usage("REF or --all is required", "usage: "+cmd.UseLine())
		default:
			tasks, err = a.resolveAll(ctx, words, *all)
		}
		if err != nil {
			return err
		}
		if len(tasks) == 0 && !*asJSON {
			a.note("nothing to stop: no task is running here")
			return nil
		}
		hush := a.afterASecond("stopping")
		receipt, err := stopAll(ctx, tasks, req)
		hush()
		if len(receipt.Stopped)+len(receipt.Survivors) > 0 || err == nil {
			if err := a.printReceipt(receipt, *asJSON); err != nil {
				return err
			}
		}
		if err == nil && len(receipt.Survivors) > 0 {
			return &ExitError{Code: codeFailed, Err: fmt.Errorf("%d processes survived the stop", len(receipt.Survivors))}
		}
		return err
	}
	return cmd
}

// everyTask is all that runs in live sessions: those tasks whose parent is not among
// them, since a stop takes what is below along.
func (a *app) everyTask(ctx context.Context, all bool) ([]found, error) {
	sessions, err := a.Known(ctx, true, all)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	pages, errs := each(ctx, sessions, func(ctx context.Context, api control.API) (control.Page, error) {
		return api.List(ctx, control.ListRequest{})
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var out []found
	for i, page := range pages {
		live := map[task.ID]bool{}
		for _, r := range page.Tasks {
			live[r.ID] = true
		}
		for _, r := range page.Tasks {
			if !live[r.Parent] {
				out = append(out, found{sessions[i], r})
			}
		}
	}
	return out, errors.Join(errs...)
}

// stopAll stops in every session and joins the receipts. What a dead session
// left has ended, or cannot be stopped by anybody.
func stopAll(ctx context.Context, tasks []found, req control.StopRequest) (task.Receipt, error) {
	groups := bySession(tasks)
	receipts, errs := make([]task.Receipt, len(groups)), make([]error, len(groups))
	var group sync.WaitGroup
	for i, some := range groups {
		group.Go(func() { receipts[i], errs[i] = stopIn(ctx, some, req) })
	}
	group.Wait()
	sum := task.Receipt{Stopped: []task.Stopped{}, Survivors: []task.Survivor{}}
	for _, r := range receipts {
		sum.Stopped = append(sum.Stopped, r.Stopped...)
		sum.Survivors = append(sum.Survivors, r.Survivors...)
	}
	for i := range sum.Stopped {
		if sum.Stopped[i].Signals == nil {
			sum.Stopped[i].Signals = []task.SignalSent{}
		}
	}
	return sum, errors.Join(errs...)
}

func stopIn(ctx context.Context, tasks []found, req control.StopRequest) (task.Receipt, error) {
	if !tasks[0].live() && !slices.ContainsFunc(tasks, func(f found) bool { return !f.record.Status.Terminal() }) {
		var r task.Receipt
		for _, f := range tasks {
			r.Stopped = append(r.Stopped, task.Stopped{ID: f.record.ID, Status: f.record.Status, Cause: f.record.Cause})
		}
		return r, nil
	}
	if tasks[0].session.Info().Stopped {
		done, err := tasks[0].session.Wake()
		if err != nil {
			return task.Receipt{}, err
		}
		defer done(tasks[0].session.Info().Role != "run") // which ends with its command
	}
	api, done, err := tasks[0].reach(ctx)
	if err != nil {
		return task.Receipt{}, err
	}
	defer done()
	req.Refs = refs(tasks)
	r, err := api.Stop(ctx, req)
	if err != nil {
		return r, fmt.Errorf("stop %s: %w", strings.Join(req.Refs, ", "), err)
	}
	return r, nil
}

func (a *app) printReceipt(r task.Receipt, asJSON bool) error {
	if asJSON {
		return printJSON(a.Stdout, r)
	}
	rows := [][]string{{"STOPPED", "STATUS", "CAUSE", "SIGNALS", "AFTER"}}
	for _, s := range r.Stopped {
		var signals []string
		for _, sent := range s.Signals {
			signals = append(signals, fmt.Sprintf("%s@%s", cell(sent.Signal, 20),
				span(time.Duration(sent.AfterMS)*time.Millisecond)))
		}
		rows = append(rows, []string{
			cell(string(s.ID), 40), cell(string(s.Status), 20), cause(s.Cause), cell(strings.Join(signals, " "), 100),
			span(time.Duration(s.EndedAfterMS) * time.Millisecond),
		})
	}
	if len(r.Survivors) > 0 {
		rows = append(rows, []string{"SURVIVED", "TASK", "WHY", "COMMAND"})
		for _, s := range r.Survivors {
			rows = append(rows, []string{fmt.Sprint("pid ", s.PID), cell(string(s.Task), 40), cell(s.Why, 60),
				cell(s.Command, 60)})
		}
	}
	return a.table(rows, byState(rows, "STATUS"))
}

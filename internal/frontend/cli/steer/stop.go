package steer

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
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

func (a *app) stop() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stop [--grace D] [--json] (REF… | --all)",
		Long: "Stop tasks with everything that they started, and print a receipt: how each task ended, and every process\n" +
			"that survived. Stopping an ended task changes nothing. The exit code is 1 if a process survived.",
		Args:              console.Args(0, -1),
		ValidArgsFunction: a.CompleteTasks(false),
	}
	f := cmd.Flags()
	every := f.Bool("all", false, "stop every task of this project's live sessions; with --all-sessions, of all projects")
	grace := f.String("grace", "", "time between TERM and KILL, such as 500ms or 10s (default 2s)")
	asJSON := f.Bool("json", false, "print the receipt as JSON")
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		req := control.StopRequest{Actor: task.ByUser}
		if f.Changed("grace") {
			d, err := console.Duration("--grace", *grace, 0)
			if err != nil {
				return err
			}
			req.Grace = &d
		}
		ctx := cmd.Context()
		var tasks []console.Found
		var err error
		switch {
		case *every && len(words) > 0:
			return console.Usage("--all and REF are mutually exclusive", "give one of them")
		case *every:
			tasks, err = a.everyTask(ctx, *all)
		case len(words) == 0:
			return console.Usage("REF or --all is required", "usage: "+cmd.UseLine())
		default:
			tasks, err = a.ResolveAll(ctx, words, *all)
		}
		if err != nil {
			return err
		}
		if len(tasks) == 0 && !*asJSON {
			return a.Println("No tasks are running.")
		}
		hush := a.AfterASecond("stopping")
		receipt, err := stopAll(ctx, tasks, req)
		hush()
		if len(receipt.Stopped)+len(receipt.Survivors) > 0 || err == nil {
			if err := a.printReceipt(receipt, *asJSON); err != nil {
				return err
			}
		}
		if err == nil && len(receipt.Survivors) > 0 {
			return &console.ExitError{Code: console.CodeFailed, Err: fmt.Errorf("%d processes survived the stop",
				len(receipt.Survivors))}
		}
		return err
	}
	return cmd
}

// everyTask returns the running tasks of live sessions whose parents do not run: a stop includes the
// whole subtree.
func (a *app) everyTask(ctx context.Context, all bool) ([]console.Found, error) {
	sessions, err := a.Known(ctx, true, all)
	if err != nil {
		return nil, err
	}
	pages, errs := console.Each(ctx, sessions, func(ctx context.Context, api control.API) (control.Page, error) {
		return api.List(ctx, control.ListRequest{})
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var out []console.Found
	for i, page := range pages {
		live := map[task.ID]bool{}
		for _, r := range page.Tasks {
			live[r.ID] = true
		}
		for _, r := range page.Tasks {
			if !live[r.Parent] {
				out = append(out, console.Found{Session: sessions[i], Record: r})
			}
		}
	}
	return out, errors.Join(errs...)
}

// stopAll stops in every session and joins the receipts. What a dead session
// left has ended, or cannot be stopped by anybody.
func stopAll(ctx context.Context, tasks []console.Found, req control.StopRequest) (task.Receipt, error) {
	groups := console.BySession(tasks)
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

func stopIn(ctx context.Context, tasks []console.Found, req control.StopRequest) (task.Receipt, error) {
	if !tasks[0].Live() && !slices.ContainsFunc(tasks, func(f console.Found) bool { return !f.Record.Status.Terminal() }) {
		var r task.Receipt
		for _, f := range tasks {
			r.Stopped = append(r.Stopped, task.Stopped{ID: f.Record.ID, Status: f.Record.Status, Cause: f.Record.Cause})
		}
		return r, nil
	}
	if tasks[0].Session.Info().Stopped {
		done, err := tasks[0].Session.Wake()
		if err != nil {
			return task.Receipt{}, err
		}
		defer done(tasks[0].Session.Info().Role != "run") // which ends with its command
	}
	api, done, err := tasks[0].Reach(ctx)
	if err != nil {
		return task.Receipt{}, err
	}
	defer done()
	req.Refs = console.Refs(tasks)
	r, err := api.Stop(ctx, req)
	if err != nil {
		return r, fmt.Errorf("stop %s: %w", strings.Join(req.Refs, ", "), err)
	}
	return r, nil
}

func (a *app) printReceipt(r task.Receipt, asJSON bool) error {
	if asJSON {
		return console.PrintJSON(a.Stdout, r)
	}
	rows := [][]string{{"STOPPED", "STATUS", "REASON", "SIGNALS", "AFTER"}}
	for _, s := range r.Stopped {
		var signals []string
		for _, sent := range s.Signals {
			signals = append(signals, fmt.Sprintf("%s@%s", console.Cell(sent.Signal, 20),
				console.Span(time.Duration(sent.AfterMS)*time.Millisecond)))
		}
		rows = append(rows, []string{
			console.Cell(string(s.ID), 40), console.Cell(string(s.Status), 20), reason(s),
			console.Cell(strings.Join(signals, " "), 100),
			console.Span(time.Duration(s.EndedAfterMS) * time.Millisecond),
		})
	}
	if len(r.Survivors) > 0 {
		rows = append(rows, []string{"SURVIVED", "TASK", "WHY", "COMMAND"})
		for _, s := range r.Survivors {
			rows = append(rows, []string{fmt.Sprint("pid ", s.PID), console.Cell(string(s.Task), 40), console.Cell(s.Why, 60),
				console.Cell(s.Command, 60)})
		}
	}
	return a.Table(rows, console.ByState(rows, "STATUS"))
}

// reason says in words why a task of a receipt has ended.
func reason(s task.Stopped) string {
	if s.Cause != nil && s.Cause.Reason == task.ReasonTimeout {
		return "timed out"
	}
	return console.Cell(task.Record{Status: s.Status, Cause: s.Cause}.Why(), 60)
}

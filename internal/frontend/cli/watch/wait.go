package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

func (a *app) wait() *cobra.Command {
	cmd := &cobra.Command{
		Use: "wait [--any] [--timeout D] [--json] REF…",
		Long: "Wait until tasks have ended. The exit code is the command's own, 128+n for a signal, 4 for a stopped task,\n" +
			"124 for a timeout. For several tasks it is the first code that is not 0; with --any, the code of the first\n" +
			"task to end. Ctrl-C leaves the tasks running.",
		Args:              console.Args(1, -1),
		ValidArgsFunction: a.CompleteTasks(false),
	}
	f := cmd.Flags()
	first := f.Bool("any", false, "return when the first task has ended")
	timeout := f.String("timeout", "", "give up after this time, such as 90s or 10m")
	asJSON := f.Bool("json", false, "print the tasks as JSON")
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		var limit time.Duration
		if f.Changed("timeout") {
			var err error
			if limit, err = console.Duration("--timeout", *timeout, 1e6); err != nil {
				return err
			}
		}
		ctx := cmd.Context()
		tasks, err := a.ResolveAll(ctx, words, *all)
		if err != nil {
			return console.DroverFailed(ctx, err)
		}
		hush := a.AfterASecond("waiting for %d of %d tasks (Ctrl-C leaves them alone)", living(tasks), len(tasks))
		reply, err := a.await(ctx, tasks, *first, limit)
		hush()
		if err != nil {
			return console.DroverFailed(ctx, err)
		}
		if err := a.printWait(reply, *first, *asJSON); err != nil {
			return err
		}
		if reply.TimedOut {
			return &console.ExitError{Code: console.CodeTimedOut, Err: fmt.Errorf("still running after %s: %d of %d tasks",
				limit,
				count(reply.Tasks), len(reply.Tasks))}
		}
		for _, r := range reply.Tasks {
			if *first && !r.Status.Terminal() {
				continue
			}
			if code := console.CodeOf(r); code != 0 || *first {
				if code == 0 {
					return nil
				}
				return &console.ExitError{Code: code}
			}
		}
		return nil
	}
	return cmd
}

func (a *app) printWait(reply control.WaitReply, first, asJSON bool) error {
	if asJSON {
		return console.PrintJSON(a.Stdout, reply)
	}
	rows := [][]string{}
	for _, r := range reply.Tasks {
		if !first || r.Status.Terminal() {
			rows = append(rows, []string{console.Cell(string(r.ID), 40), console.Cell(r.Name, 30), console.Status(a.Now(), r),
				console.Ending(r)})
		}
	}
	err := a.Table(rows, nil)
	for _, r := range reply.Tasks {
		a.NoteEnd(r)
	}
	return err
}

func living(tasks []console.Found) int {
	records := make([]task.Record, len(tasks))
	for i, f := range tasks {
		records[i] = f.Record
	}
	return count(records)
}

func count(records []task.Record) (n int) {
	for _, r := range records {
		if !r.Status.Terminal() {
			n++
		}
	}
	return n
}

// errEnough ends the waiting in the other sessions when one was enough.
var errEnough = errors.New("another task ended first")

// await waits in every session that has one of the tasks. The answer is in the
// order of the tasks; with first, what ended first comes first.
func (a *app) await(ctx context.Context, tasks []console.Found, first bool, limit time.Duration) (control.WaitReply,
	error) {
	now := map[task.ID]task.Record{}
	var waiting []console.Found
	var winner task.ID
	for _, f := range tasks {
		now[f.Record.ID] = f.Record
		switch {
		case !f.Record.Status.Terminal():
			waiting = append(waiting, f)
		case winner == "" || f.Record.EndTime != nil && console.EndedBefore(f.Record.EndTime, *now[winner].EndTime):
			winner = f.Record.ID
		}
	}
	reply := control.WaitReply{}
	if len(waiting) > 0 && !(first && winner != "") {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var mu sync.Mutex
		var problem error
		var group sync.WaitGroup
		for _, some := range console.BySession(waiting) {
			group.Go(func() {
				got, err := a.awaitIn(ctx, some, first, limit)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					if !errors.Is(err, errEnough) && problem == nil && !(first && winner != "") {
						problem = err
						cancel(err)
					}
					return
				}
				for _, r := range got.Tasks {
					now[r.ID] = r
				}
				reply.TimedOut = reply.TimedOut || got.TimedOut
				if first && !got.TimedOut && winner == "" && len(got.Tasks) > 0 {
					winner = got.Tasks[0].ID
					cancel(errEnough)
				}
			})
		}
		group.Wait()
		if problem != nil {
			return reply, problem
		}
	}
	if first && winner != "" {
		reply.TimedOut = false
		reply.Tasks = append(reply.Tasks, now[winner])
	}
	for _, f := range tasks {
		if !first || f.Record.ID != winner {
			reply.Tasks = append(reply.Tasks, now[f.Record.ID])
		}
	}
	return reply, nil
}

// awaitIn waits in one session. When its host ends meanwhile, the files of the session say how the
// tasks ended; tasks that outlive the host are waited for at the next host.
func (a *app) awaitIn(ctx context.Context, tasks []console.Found, first bool, limit time.Duration) (control.WaitReply,
	error) {
	began := time.Now()
	for losses := 0; ; losses++ {
		left := limit
		if limit > 0 {
			left = max(time.Millisecond, limit-time.Since(began))
		}
		reply, err := a.waitHeeding(ctx, tasks, first, left)
		if !console.HostGone(err) || losses == console.HostLosses {
			return reply, err
		}
		reply = control.WaitReply{}
		running := 0
		for i, f := range tasks {
			again, lost := a.afterHost(ctx, f)
			ended := again.Record.Status.Terminal()
			if lost != nil || !ended && !again.Live() {
				return reply, fmt.Errorf("wait for task %s: %w", f.Record.ID, err)
			}
			if tasks[i] = again; !ended {
				running++
			}
			reply.Tasks = append(reply.Tasks, again.Record)
		}
		if first {
			slices.SortStableFunc(reply.Tasks, byEnd)
		}
		if running == 0 || first && running < len(tasks) {
			return reply, nil
		}
	}
}

// byEnd orders tasks by their ends; running tasks come last.
func byEnd(x, y task.Record) int {
	switch {
	case x.EndTime != nil && y.EndTime != nil:
		return x.EndTime.Compare(*y.EndTime)
	case x.EndTime != nil:
		return -1
	case y.EndTime != nil:
		return 1
	}
	return 0
}

// waitHeeding waits in one session, and says meanwhile what keeps it from starting
// tasks or from recording how they end.
func (a *app) waitHeeding(ctx context.Context, tasks []console.Found, first bool,
	limit time.Duration) (control.WaitReply,
	error) {
	api, done, err := tasks[0].Reach(ctx)
	if err != nil {
		return control.WaitReply{}, err
	}
	defer done()
	defer a.SayQuestions(ctx, api, tasks)()
	began, told := time.Now(), ""
	for {
		req := control.WaitRequest{Refs: console.Refs(tasks), Any: first, Timeout: limit, KnownProblem: &told}
		if limit > 0 {
			req.Timeout = max(time.Millisecond, limit-time.Since(began))
		}
		reply, err := api.Wait(ctx, req)
		if err != nil || reply.Problem == nil {
			return reply, err
		}
		if told = *reply.Problem; told == "" {
			a.Note("there is disk space again")
		} else {
			a.Note("%s", told)
		}
	}
}

// clearing is how long the tasks of a host that has ended may take to end; the keeper needs 2 s.
const clearing = 5 * time.Second

// afterHost finds a task again whose host has gone. What is not to outlive the
// host may take a moment to end.
func (a *app) afterHost(ctx context.Context, f console.Found) (console.Found, error) {
	ctx, cancel := context.WithTimeout(ctx, clearing)
	defer cancel()
	tick := time.NewTicker(clearing / 50)
	defer tick.Stop()
	for {
		// A failure may pass: the next host may be opening the session just now.
		again, err := a.Resolve(ctx, string(f.Record.ID), true)
		if err == nil && (again.Live() || again.Record.Status.Terminal()) {
			return again, nil
		}
		select { // no event says that the next host is up
		case <-tick.C:
		case <-ctx.Done():
			return again, err
		}
	}
}

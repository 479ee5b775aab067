package watch

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

func (a *app) logs() *cobra.Command {
	cmd := &cobra.Command{
		Use: "logs [-f] [-n N] [--since OFFSET] [--raw] [--messages] (REF… | --all | --session S)",
		Long: "Print the output of a task. On a terminal, escape sequences are removed and invisible characters are\n" +
			"marked; to a pipe, or with --raw, the bytes are printed unchanged. -f follows the output until the task has\n" +
			"ended; Ctrl-C leaves the task running. --messages prints the newest messages of an agent, 50 or --tail of them.\n" +
			"\n" +
			"Of several tasks, whole lines are printed, each after the name of its task and a |; the end of a task\n" +
			"follows a *. --all follows all live tasks of the project, --session those of one session, and tasks that start\n" +
			"later join them; both end when no task is running.",
		Args:              console.Args(0, -1),
		ValidArgsFunction: a.CompleteTasks(true),
	}
	f := cmd.Flags()
	follow := f.BoolP("follow", "f", false, "follow the output until the task has ended")
	tail := f.IntP("tail", "n", 0, "only the last `N` lines")
	since := f.Int64("since", 0, "start at this byte `OFFSET`")
	raw := f.Bool("raw", false, "print the bytes unchanged, on a terminal too")
	messages := f.Bool("messages", false, "print the newest messages of an agent instead of its output")
	every := f.Bool("all", false, "follow all live tasks, and those that start later")
	session := f.String("session", "", "follow all tasks of this session that are alive or start later")
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		many := *every || *session != "" || len(words) > 1
		switch {
		case (*every || *session != "") && len(words) > 0 || *every && *session != "":
			return console.Usage("tasks, --all and --session are mutually exclusive", "give one of them")
		case len(words) == 0 && !many:
			return console.Usage("no task given", "usage: drover logs (REF… | --all | --session S)")
		case many && (*messages || f.Changed("since")):
			return console.Usage("--messages and --since are for one task", "give one REF")
		case *messages && (*follow || *raw || f.Changed("since")):
			return console.Usage("--messages is mutually exclusive with --follow, --raw and --since", "leave those out")
		case f.Changed("tail") && *tail < 1:
			return console.Usage(fmt.Sprintf("--tail %d: out of range", *tail), "from 1 on")
		case *since < 0:
			return console.Usage(fmt.Sprintf("--since %d: out of range", *since), "from 0 on")
		case f.Changed("tail") && f.Changed("since"):
			return console.Usage("--tail and --since are mutually exclusive", "give one of them")
		}
		ctx := cmd.Context()
		if many {
			return a.printMany(ctx, manyLogs{refs: words, all: *every, session: *session, sessions: *all,
				follow: *follow || *every || *session != "", tail: *tail, raw: *raw})
		}
		found, err := a.Resolve(ctx, words[0], *all)
		if err != nil {
			return err
		}
		if *messages {
			return a.printMessages(ctx, found, *tail)
		}
		p := printer{w: a.Stdout, plain: !*raw && a.IsTerminal(a.Stdout)}
		req := control.OutputRequest{Ref: string(found.Record.ID), Offset: *since, Tail: *tail, Max: logPiece}
		ctx, stop := console.WhileRead(ctx, a.Stdout)
		defer stop()
		for losses := 0; ; losses++ {
			err := a.copyOutput(ctx, found, &req, &p, *follow)
			if errors.Is(context.Cause(ctx), syscall.EPIPE) {
				return nil
			}
			if !*follow || !found.Live() || !console.HostGone(err) || losses == console.HostLosses {
				if err = errors.Join(err, p.flush()); err == nil {
					a.noteLogs(ctx, found, *all, *follow)
				}
				return err
			}
			// The host has ended. Its files have the rest, or the next host if the task continues.
			if found, err = a.Resolve(ctx, req.Ref, *all); err != nil {
				return errors.Join(err, p.flush())
			}
		}
	}
	return cmd
}

// noteLogs says of a task that has ended what its output does not: why it did not start, and what
// else is to be known.
func (a *app) noteLogs(ctx context.Context, f console.Found, all, followed bool) {
	r := f.Record
	if followed && !r.Status.Terminal() {
		now, err := a.Resolve(ctx, string(r.ID), all)
		if err != nil {
			return // its session was removed
		}
		r = now.Record
	}
	if r.Cause != nil && r.Cause.Reason == task.ReasonStart {
		a.Note("task %s %s: %s", r.ID, r.Status, excerpt.Line(r.Why(), console.MostReason))
	}
	a.NoteEnd(r)
}

// copyOutput prints from req.Offset on, and keeps req.Offset at what was
// printed. Without follow it ends at the size that the output had at first.
func (a *app) copyOutput(ctx context.Context, f console.Found, req *control.OutputRequest, p *printer,
	follow bool) error {
	open := f.Open
	if follow {
		open = f.Reach
	}
	api, done, err := open(ctx)
	if err != nil {
		return err
	}
	defer done()
	if follow = follow && f.Live(); follow { // a dead session has no writer
		defer a.SayQuestions(ctx, api, []console.Found{f})()
	}
	end := int64(-1)
	for {
		req.Wait = 0
		if follow {
			if req.Wait = logWait; len(p.held) > 0 {
				req.Wait = logSettle
			}
		}
		c, err := api.Output(ctx, *req)
		if err != nil {
			return fmt.Errorf("read output of %s: %w", f.Record.ID, err)
		}
		if end < 0 {
			end = c.Size
		}
		if !follow && c.Next > end && end >= c.Offset {
			c.Data = c.Data[:min(int64(len(c.Data)), end-c.Offset)]
		}
		req.Offset, req.Tail = c.Next, 0
		if err := p.print(c.Data); err != nil {
			return err
		}
		if len(c.Data) == 0 {
			if err := p.flush(); err != nil {
				return err
			}
		}
		if c.Ended || !follow && (len(c.Data) == 0 || c.Next >= end) {
			return p.flush()
		}
	}
}

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

const (
	logPiece  = 256 << 10              // bytes asked for at once
	logWait   = 30 * time.Second       // of one long request of logs -f
	logSettle = 200 * time.Millisecond // after which a line without its end is shown
	maxHeld   = 64 << 10               // bytes of a line without its end
)

func (a *app) logs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logs [-f] [-n N] [--since OFFSET] [--raw] [--messages] (REF… | --all | --session S)",
		Short: "Print the output of a task",
		Long: "Print the output of a task. On a terminal, escape sequences are removed and invisible characters are\n" +
			"marked; to a pipe, or with --raw, the bytes are printed unchanged. -f follows the output until the task has\n" +
			"ended; Ctrl-C leaves the task running. --messages prints the newest messages of an agent, 50 or --tail of them.\n" +
			"\n" +
			"Of several tasks, whole lines are printed, each behind the name of its task and a |; how a task ended stands\n" +
			"behind a *. --all follows all live tasks of the project, --session those of one session, and tasks that start\n" +
			"later join them; both end when no task is alive.",
		ValidArgsFunction: a.completeTasks(true),
	}
	f := cmd.Flags()
	follow := f.BoolP("follow", "f", false, "follow the output until the task has ended")
	tail := f.IntP("tail", "n", 0, "only the last `N` lines")
	since := f.Int64("since", 0, "start at this byte `OFFSET`")
	raw := f.Bool("raw", false, "print the bytes unchanged, on a terminal too")
	messages := f.Bool("messages", false, "print the newest messages of an agent instead of its output")
	every := f.Bool("all", false, "follow all live tasks, and those that start later")
	session := f.String("session", "", "follow all tasks of this session that are alive or start later")
	all := everywhere(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		many := *every || *session != "" || len(words) > 1
		switch {
		case (*every || *session != "") && len(words) > 0 || *every && *session != "":
			return usage("tasks, --all and --session are mutually exclusive", "give one of them")
		case len(words) == 0 && !many:
			return usage("no task given", "usage: drover logs (REF… | --all | --session S)")
		case many && (*messages || f.Changed("since")):
			return usage("--messages and --since are for one task", "give one REF")
		case *messages && (*follow || *raw || f.Changed("since")):
			return usage("--messages is mutually exclusive with --follow, --raw and --since", "leave those out")
		case f.Changed("tail") && *tail < 1:
			return usage(fmt.Sprintf("--tail %d: out of range", *tail), "from 1 on")
		case *since < 0:
			return usage(fmt.Sprintf("--since %d: out of range", *since), "from 0 on")
		case f.Changed("tail") && f.Changed("since"):
			return usage("--tail and --since are mutually exclusive", "give one of them")
		}
		ctx := cmd.Context()
		if many {
			return a.printMany(ctx, manyLogs{refs: words, all: *every, session: *session, sessions: *all,
				follow: *follow || *every || *session != "", tail: *tail, raw: *raw})
		}
		found, err := a.resolve(ctx, words[0], *all)
		if err != nil {
			return err
		}
		if *messages {
			return a.printMessages(ctx, found, *tail)
		}
		p := printer{w: a.Stdout, plain: !*raw && a.IsTerminal(a.Stdout)}
		req := control.OutputRequest{Ref: string(found.record.ID), Offset: *since, Tail: *tail, Max: logPiece}
		ctx, stop := whileRead(ctx, a.Stdout)
		defer stop()
		for losses := 0; ; losses++ {
			err := a.copyOutput(ctx, found, &req, &p, *follow)
			if errors.Is(context.Cause(ctx), syscall.EPIPE) {
				return nil
			}
			if !*follow || !found.live() || !hostGone(err) || losses == hostLosses {
				if err = errors.Join(err, p.flush()); err == nil {
					a.noteLogs(ctx, found, *all, *follow)
				}
				return err
			}
			// The host went: what it left tells the rest, or the next host if the
			// task goes on.
			if found, err = a.resolve(ctx, req.Ref, *all); err != nil {
				return errors.Join(err, p.flush())
			}
		}
	}
	return cmd
}

// noteLogs says of a task that has ended what its output does not: why it did not start, and what
// else is to be known.
func (a *app) noteLogs(ctx context.Context, f found, all, followed bool) {
	r := f.record
	if followed && !r.Status.Terminal() {
		now, err := a.resolve(ctx, string(r.ID), all)
		if err != nil {
			return // its session was removed
		}
		r = now.record
	}
	if r.Cause != nil && r.Cause.Reason == task.ReasonStart {
		a.note("task %s %s: %s", r.ID, r.Status, excerpt.Line(r.Why(), mostReason))
	}
	a.noteEnd(r)
}

// copyOutput prints from req.Offset on, and keeps req.Offset at what was
// printed. Without follow it ends at the size that the output had at first.
func (a *app) copyOutput(ctx context.Context, f found, req *control.OutputRequest, p *printer, follow bool) error {
	open := f.open
	if follow {
		open = f.reach
	}
	api, done, err := open(ctx)
	if err != nil {
		return err
	}
	defer done()
	if follow = follow && f.live(); follow { // nobody writes to what a dead session left
		defer a.sayQuestions(ctx, api, []found{f})()
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
			return fmt.Errorf("read output of %s: %w", f.record.ID, err)
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

// printer prints output. Plain text is made of whole lines, since a cut in the
// middle of a sequence would hide what it is.
type printer struct {
	w     io.Writer
	plain bool
	held  []byte // the line that has not ended yet
}

func (p *printer) print(data []byte) error {
	if !p.plain {
		_, err := p.w.Write(data)
		return err
	}
	p.held = append(p.held, data...)
	cut := bytes.LastIndexByte(p.held, '\n') + 1
	if len(p.held)-cut > maxHeld {
		cut = wholeRunes(p.held)
	}
	return p.out(cut)
}

// flush prints the line that has not ended.
func (p *printer) flush() error { return p.out(len(p.held)) }

func (p *printer) out(n int) error {
	if n == 0 {
		return nil
	}
	_, err := io.WriteString(p.w, excerpt.Plain(string(p.held[:n])))
	p.held = append(p.held[:0], p.held[n:]...)
	return err
}

// wholeRunes is the length of b without a character that is cut off at its end.
func wholeRunes(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

package watch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

const (
	attachLine = 1 << 20 // bytes of a typed line
	attachTail = 40      // earlier lines of the output
)

// errLeft ends an attachment as the user wanted.
var errLeft = errors.New("left")

// Attach follows the output of a task as `drover logs -f` does, sends it the typed lines, and ends with its exit code.
func Attach(ctx context.Context, c console.Console, f console.Found) error {
	a := &app{Console: c}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errLeft)
	id, leave := f.Record.ID, func() { cancel(errLeft) }
	a.heedInterrupt(ctx, f, leave)
	go a.sendLines(ctx, id, leave) // ends with stdin, at the latest with the process
	p := console.Printer{W: a.Stdout, Plain: true}
	req := control.OutputRequest{Ref: string(id), Tail: attachTail, Max: console.LogPiece}
	for losses := 0; ; losses++ {
		err := a.copyOutput(ctx, f, &req, &p, true)
		if f.Live() && console.HostGone(err) && losses < console.HostLosses {
			if f, err = a.AfterHost(ctx, f); err == nil {
				continue
			}
		}
		if err = errors.Join(err, p.Flush()); err == nil {
			return a.taskEnded(ctx, f)
		}
		if errors.Is(context.Cause(ctx), errLeft) {
			a.Note("left %s without ending it; `drover attach %s` comes back", id, id)
			return nil
		}
		return err
	}
}

// heedInterrupt lets INT interrupt the turn of an agent, and leave a command. A second INT leaves while the host does
// not answer.
func (a *app) heedInterrupt(ctx context.Context, f console.Found, leave func()) {
	if a.OnInterrupt == nil {
		return
	}
	a.OnInterrupt(ctx, func() {
		if !f.Record.Kind.IsAgent() {
			leave()
			return
		}
		a.OnInterrupt(ctx, leave)
		go func() { // ends with the call, at the latest with the process
			a.steerTask(ctx, f.Record.ID, "interrupt", func(api control.API) error {
				_, err := api.Interrupt(ctx, string(f.Record.ID))
				return err
			})
			a.heedInterrupt(ctx, f, leave)
		}()
	})
}

// steerTask does something to a task, wherever its host is now. An error is a note.
func (a *app) steerTask(ctx context.Context, id task.ID, verb string, do func(control.API) error) {
	f, err := a.Resolve(ctx, string(id), true)
	if err == nil {
		var api control.API
		var done func()
		if api, done, err = a.OpenToResume(ctx, f); err == nil {
			defer done()
			err = do(api)
		}
	}
	if err != nil && ctx.Err() == nil {
		a.Note("%s %s: %v", verb, id, err)
	}
}

// sendLines sends each line of stdin to a task. The end of a terminal leaves.
func (a *app) sendLines(ctx context.Context, id task.ID, leave func()) {
	in := bufio.NewScanner(a.Stdin)
	in.Buffer(nil, attachLine)
	for in.Scan() && ctx.Err() == nil {
		text := strings.ToValidUTF8(in.Text(), "\uFFFD")
		a.steerTask(ctx, id, "send to", func(api control.API) error {
			_, err := api.Send(ctx, control.SendRequest{Ref: string(id), Text: text, Env: a.Env})
			if err == nil {
				a.Note("sent to %s", id)
			}
			return err
		})
	}
	switch err := in.Err(); {
	case err != nil:
		a.Note("read stdin: %v", err)
	case a.ReadsTerminal():
		leave()
	}
}

// taskEnded prints how a task has ended. The error has its exit code.
func (a *app) taskEnded(ctx context.Context, f console.Found) error {
	reply, err := a.await(ctx, []console.Found{f}, false, 0)
	if err != nil {
		return err
	}
	r := reply.Tasks[0]
	text := fmt.Sprintf("%s %s after %s", r.ID, r.Status, console.Span(r.Duration(time.Time{})))
	if how := console.Ending(r); how != "-" && r.Status != task.Completed {
		text += ": " + how
	}
	a.Note("%s", text)
	if code := console.CodeOf(r); code != 0 {
		return &console.ExitError{Code: code}
	}
	return nil
}

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
	attachLine = 1 << 20 // bytes of a line that is typed
	attachTail = 40      // lines of earlier output that are shown
)

// errLeft ends an attachment at the wish of the user.
var errLeft = errors.New("left")

// AttachTask follows the output of a task as `drover logs -f` does, sends it the typed lines, and
// exits with its code.
func AttachTask(ctx context.Context, c console.Console, f console.Found) error {
	a := &app{Console: c}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errLeft)
	id := f.Record.ID
	leave := func() { cancel(errLeft) }
	a.interrupts(ctx, f, leave)
	go a.sendLines(ctx, id, leave) // ends with stdin, at the latest with the process
	p := printer{w: a.Stdout, plain: true}
	req := control.OutputRequest{Ref: string(id), Tail: attachTail, Max: logPiece}
	for losses := 0; ; losses++ {
		err := a.copyOutput(ctx, f, &req, &p, true)
		if f.Live() && console.HostGone(err) && losses < console.HostLosses {
			if f, err = a.afterHost(ctx, f); err == nil {
				continue
			}
		}
		if err = errors.Join(err, p.flush()); err == nil {
			return a.attachedEnd(ctx, f)
		}
		if errors.Is(context.Cause(ctx), errLeft) {
			a.Note("left %s without ending it; `drover attach %s` comes back", id, id)
			return nil
		}
		return err
	}
}

// interrupts lets SIGINT interrupt the turn of an agent, and leave a command. A second SIGINT leaves
// while the host does not answer.
func (a *app) interrupts(ctx context.Context, f console.Found, leave func()) {
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
			a.tell(ctx, f.Record.ID, "interrupt", func(ctx context.Context, api control.API, ref string) error {
				_, err := api.Interrupt(ctx, ref)
				return err
			})
			a.interrupts(ctx, f, leave)
		}()
	})
}

// tell does something with the task at the host that it has now. An error is a note.
func (a *app) tell(ctx context.Context, id task.ID, verb string,
	do func(context.Context, control.API, string) error) {
	f, err := a.Resolve(ctx, string(id), true)
	if err == nil {
		var api control.API
		var done func()
		if api, done, err = a.OpenToResume(ctx, f); err == nil {
			defer done()
			err = do(ctx, api, string(id))
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
	for in.Scan() {
		text := strings.ToValidUTF8(in.Text(), "\uFFFD")
		a.tell(ctx, id, "send", func(ctx context.Context, api control.API, ref string) error {
			_, err := api.Send(ctx, control.SendRequest{Ref: ref, Text: text, Env: a.Env})
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

// attachedEnd prints how a task has ended. The error has its exit code.
func (a *app) attachedEnd(ctx context.Context, f console.Found) error {
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

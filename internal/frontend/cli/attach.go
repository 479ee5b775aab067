package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

const (
	attachLine = 1 << 20 // bytes of a line that is typed
	attachTail = 40      // lines of the output of a task that were there before
)

// joining is which conversation somebody attaches to. Session is empty for a new one.
type joining struct {
	Session task.ID
	Model   string
	Agent   string
	Mode    string // permission mode
	Prompt  string // the first of a new one
}

func (a *app) attach() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attach [SESSION|REF] [--new]",
		Short: "Join a conversation, or watch a task and send to it",
		Long: "Join the conversation of a session in the terminal UI, from any number of terminals; see docs/terminal.md.\n" +
			"With --plain, and where the terminal cannot be drawn on, attach shows the end of the conversation as lines, then\n" +
			"what the agent writes, tasks that start and end, and questions. What you type is a prompt; /help lists\n" +
			"the few commands. Ctrl-C interrupts the turn; pressed twice, or between turns, it leaves, as do Ctrl-D and /detach.\n" +
			"A session without a host gets a detached one. Without a name, attach takes the only live conversation of this\n" +
			"folder, or the last one; of several live ones you choose. The host keeps running without you until its work\n" +
			"is done.\n" +
			"\n" +
			"With the ID of a task, attach shows its output and status until it ends, and sends it what you type. The exit\n" +
			"code is that of the task.\n" +
			"\n" +
			"Each line of piped input is a prompt; attach leaves when nothing is left to answer.",
		Args:              takes(0, 1),
		ValidArgsFunction: a.completeTasks(false),
	}
	f := cmd.Flags()
	fresh := f.Bool("new", false, "start a new conversation")
	var c joining
	f.StringVar(&c.Model, "model", "", "the model, if a host has to be started")
	f.StringVar(&c.Agent, "agent", "", "the type of agent, if a host has to be started")
	f.StringVar(&c.Mode, "permission-mode", "",
		"permission mode, if a host has to be started: "+strings.Join(permissionModes(), ", "))
	plain := plainFlag(cmd)
	a.completePrompt(cmd)
	all := everywhere(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		ctx := cmd.Context()
		if *fresh && len(words) > 0 {
			return usage("--new and SESSION are mutually exclusive", "give one of them")
		}
		if *fresh {
			return a.show(ctx, Screen{Connect: a.connection(c), Lines: !a.screened(*plain)}, c)
		}
		var s Session
		if len(words) > 0 {
			f, err := a.attachable(ctx, words[0], *all)
			switch {
			case err != nil:
				return err
			case f.record.ID != "":
				return a.attachTask(ctx, f)
			}
			s = f.session
		} else {
			live, last, err := a.newest(ctx, *all)
			switch {
			case err != nil:
				return err
			case len(live) > 1 && a.screened(*plain):
				return a.show(ctx, Screen{Choose: true, Everywhere: *all}, c)
			case len(live) > 1:
				return a.severalLive(ctx, live, "drover attach SESSION")
			}
			s = last
		}
		connect := func(ctx context.Context) (Session, error) {
			if c.Session == "" && s.Info().Live {
				c.Session = s.Info().Session // the next time it has ended
				return s, nil
			}
			if c.Session = s.Info().Session; s.Info().Role != conversing {
				return nil, &control.Error{Code: control.Conflict,
					Message: fmt.Sprintf("session %s has no conversation", c.Session),
					Fix:     "attach to one of its tasks, see `drover ps -a`"}
			}
			return a.attachedTo(ctx, c)
		}
		return a.show(ctx, Screen{Connect: connect, Lines: !a.screened(*plain)}, c)
	}
	return cmd
}

// attachable finds what a word means: a session, whose record is empty then, or a
// task.
func (a *app) attachable(ctx context.Context, word string, all bool) (f found, err error) {
	for _, where := range places(word, all) {
		known, listed := a.Known(ctx, false, where[0].all)
		if listed != nil {
			return found{}, fmt.Errorf("list sessions: %w", listed)
		}
		s, other := sessionOf(known, word)
		if other == nil && string(s.Info().Session) == word {
			return found{session: s}, nil
		}
		if f, err = a.search(ctx, word, where); err == nil && f.record.IsConversation() {
			return found{session: f.session}, nil
		}
		if !notFound(err) {
			return f, err
		}
		if !notFound(other) {
			return found{session: s}, other
		}
	}
	return f, err
}

// newest are the conversations that are live, and the last of all.
func (a *app) newest(ctx context.Context, all bool) (live []Session, last Session, err error) {
	known, err := a.Known(ctx, false, all)
	if err != nil {
		return nil, nil, fmt.Errorf("list sessions: %w", err)
	}
	for _, s := range known {
		switch i := s.Info(); {
		case i.Role != conversing:
			continue
		case i.Live:
			live = append(live, s)
		}
		last = cmp.Or(last, s)
	}
	if len(live) > 0 {
		last = live[0]
	}
	if last == nil {
		return nil, nil, &control.Error{Code: control.NotFound, Message: "this folder has no conversation",
			Fix: "begin one with `drover attach --new`"}
	}
	return live, last, nil
}

// severalLive lists the sessions among which a command cannot choose. It takes one as command says.
func (a *app) severalLive(ctx context.Context, sessions []Session, command string) error {
	rows := [][]string{{"SESSION", "TITLE", "AGE", "FOLDER", "RUNNING"}}
	e := usage(fmt.Sprintf("%d sessions are live", len(sessions)), "choose one: `"+command+"`")
	for _, s := range sessions {
		i := s.Info()
		folder := a.brief(i.Project)
		if folder == "." {
			folder = filepath.Base(i.Project)
		}
		rows = append(rows, []string{cell(string(i.Session), 40), cmp.Or(cell(i.Title, 40), "-"),
			age(a.Now(), i.StartTime) + " ago",
			cell(folder, 40), cmp.Or(cell(a.running(ctx, s), 30), "-")})
	}
	if err := a.table(rows, headed); err != nil {
		return err
	}
	return e
}

// running is what runs in a live session, in a few words.
func (a *app) running(ctx context.Context, s Session) string {
	api, release, err := s.Open(ctx)
	if err != nil {
		return ""
	}
	defer release()
	page, err := api.List(ctx, control.ListRequest{Limit: tablePage})
	if err != nil {
		return ""
	}
	return task.PillLabel(page.Tasks)
}

// conversing is the role of a session with a main agent.
const conversing = "prompt"

// errLeft ends an attachment as the user wanted.
var errLeft = errors.New("left")

// readsTerminal reports whether In is a terminal.
func (a *app) readsTerminal() bool {
	w, ok := a.Stdin.(io.Writer) // a file is both
	return ok && a.IsTerminal(w)
}

// attachTask follows the output of a task as `drover logs -f` does, sends it the typed lines, and exits with its code.
func (a *app) attachTask(ctx context.Context, f found) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errLeft)
	id := f.record.ID
	a.onTaskInterrupt(ctx, f, func() { cancel(errLeft) })
	go a.sendLines(ctx, id, func() { cancel(errLeft) }) // ends with stdin, at the latest with the process
	p := printer{w: a.Stdout, plain: true}
	req := control.OutputRequest{Ref: string(id), Tail: attachTail, Max: logPiece}
	for losses := 0; ; losses++ {
		err := a.copyOutput(ctx, f, &req, &p, true)
		if f.live() && hostGone(err) && losses < hostLosses {
			f, err = a.afterHost(ctx, f)
			if err == nil {
				continue
			}
		}
		if err = errors.Join(err, p.flush()); err == nil {
			return a.taskEnded(ctx, f)
		}
		if errors.Is(context.Cause(ctx), errLeft) {
			a.note("left %s without ending it; `drover attach %s` comes back", id, id)
			return nil
		}
		return err
	}
}

// onTaskInterrupt lets INT interrupt the turn of an agent, and leave a command. A second INT leaves while the host does
// not answer.
func (a *app) onTaskInterrupt(ctx context.Context, f found, leave func()) {
	if a.OnInterrupt == nil {
		return
	}
	a.OnInterrupt(ctx, func() {
		if !f.record.Kind.IsAgent() {
			leave()
			return
		}
		a.OnInterrupt(ctx, leave)
		go func() { // ends with the call, at the latest with the process
			a.steerTask(ctx, f.record.ID, "interrupt",
				func(ctx context.Context, api control.API, ref string, _ []string) (task.Record, error) {
					return api.Interrupt(ctx, ref)
				})
			a.onTaskInterrupt(ctx, f, leave)
		}()
	})
}

// steerTask steers a task of which the caller knows only the ID. An error is a note.
func (a *app) steerTask(ctx context.Context, id task.ID, verb string, do steering) {
	_, _, err := a.steerOne(ctx, verb, []string{string(id)}, true, true, do)
	if err != nil && ctx.Err() == nil {
		a.note("%v", err)
	}
}

// sendLines sends each line of stdin to a task. The end of a terminal leaves.
func (a *app) sendLines(ctx context.Context, id task.ID, leave func()) {
	in := bufio.NewScanner(a.Stdin)
	in.Buffer(nil, attachLine)
	for in.Scan() {
		text := strings.ToValidUTF8(in.Text(), "\uFFFD")
		a.steerTask(ctx, id, "send",
			func(ctx context.Context, api control.API, ref string, _ []string) (r task.Record, err error) {
				if r, err = api.Send(ctx, control.SendRequest{Ref: ref, Text: text, Env: a.Env}); err == nil {
					a.note("sent to %s", id)
				}
				return r, err
			})
	}
	switch err := in.Err(); {
	case err != nil:
		a.note("read stdin: %v", err)
	case a.readsTerminal():
		leave()
	}
}

// taskEnded prints how a task has ended. The error has its exit code.
func (a *app) taskEnded(ctx context.Context, f found) error {
	reply, err := a.await(ctx, []found{f}, false, 0)
	if err != nil {
		return err
	}
	r := reply.Tasks[0]
	text := fmt.Sprintf("%s %s after %s", r.ID, r.Status, span(r.Duration(time.Time{})))
	if how := ending(r); how != "-" && r.Status != task.Completed {
		text += ": " + how
	}
	a.note("%s", text)
	if code := codeOf(r); code != 0 {
		return &ExitError{Code: code}
	}
	return nil
}

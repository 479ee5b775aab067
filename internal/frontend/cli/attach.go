package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/prompt"
	"github.com/drover-dev/drover/internal/frontend/cli/watch"
)

func (a *app) attach() *cobra.Command {
	cmd := &cobra.Command{
		Use: "attach [SESSION|REF] [--new]",
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
		Args:              console.Args(0, 1),
		ValidArgsFunction: a.CompleteTasks(false),
	}
	f := cmd.Flags()
	fresh := f.Bool("new", false, "start a new conversation")
	var c prompt.Joining
	f.StringVar(&c.Model, "model", "", "the model, if a host has to be started")
	f.StringVar(&c.Agent, "agent", "", "the type of agent, if a host has to be started")
	f.StringVar(&c.Mode, "permission-mode", "",
		"permission mode, if a host has to be started: "+strings.Join(console.PermissionModes(), ", "))
	plain := plainFlag(cmd)
	a.CompletePrompt(cmd)
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		ctx := cmd.Context()
		if *fresh && len(words) > 0 {
			return console.Usage("--new and SESSION are mutually exclusive", "give one of them")
		}
		if *fresh {
			return a.show(ctx, Screen{Connect: a.connection(c), Lines: !a.screened(*plain)}, c)
		}
		var s console.Session
		if len(words) > 0 {
			f, err := a.attachable(ctx, words[0], *all)
			switch {
			case err != nil:
				return err
			case f.Record.ID != "":
				return watch.AttachTask(ctx, a.Console, f)
			}
			s = f.Session
		} else {
			live, last, err := a.Newest(ctx, *all)
			switch {
			case err != nil:
				return err
			case len(live) > 1 && a.screened(*plain):
				return a.show(ctx, Screen{Choose: true, Everywhere: *all}, c)
			case len(live) > 1:
				return a.SeveralLive(ctx, live, "drover attach SESSION")
			}
			s = last
		}
		connect := func(ctx context.Context) (console.Session, error) {
			if c.Session == "" && s.Info().Live {
				c.Session = s.Info().Session // the next time it has ended
				return s, nil
			}
			if c.Session = s.Info().Session; !console.IsConversation(s.Info()) {
				return nil, console.Conflict(fmt.Sprintf("session %s has no conversation", c.Session),
					"attach to one of its tasks, see `drover ps -a`")
			}
			return a.AttachedTo(ctx, c)
		}
		return a.show(ctx, Screen{Connect: connect, Lines: !a.screened(*plain)}, c)
	}
	return cmd
}

// attachable resolves a word to a session, which has an empty record then, or to a task.
func (a *app) attachable(ctx context.Context, word string, all bool) (f console.Found, err error) {
	for _, where := range console.SearchOrder(word, all) {
		known, listed := a.Known(ctx, false, where[0].All)
		if listed != nil {
			return console.Found{}, listed
		}
		s, other := console.PickSession(known, word)
		if other == nil && string(s.Info().Session) == word {
			return console.Found{Session: s}, nil
		}
		if f, err = a.Search(ctx, word, where); err == nil && f.Record.IsConversation() {
			return console.Found{Session: f.Session}, nil
		}
		if !console.NotFound(err) {
			return f, err
		}
		if !console.NotFound(other) {
			return console.Found{Session: s}, other
		}
	}
	return f, err
}

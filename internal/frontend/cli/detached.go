package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// handOvers is how often a prompt is offered to hosts that end at that moment.
const handOvers = 5

// promptDetached has a prompt answered by a host of its own, or by that which the
// session has already, and prints the session.
func (a *app) promptDetached(ctx context.Context, p *Prompt) error {
	id, err := a.pick(ctx, p)
	if err != nil {
		return err
	}
	if id == "" {
		id = task.NewSessionID()
	}
	for tries := 1; ; tries++ {
		again, err := a.giveDetached(ctx, p, id)
		if err == nil {
			_, err = fmt.Fprintln(a.Stdout, id)
			return err
		}
		if !again || tries == handOvers {
			return err
		}
	}
}

// giveDetached gives the prompt to the host of the session, which is started for it
// if there is none; again says that this host was just going away, and has gone.
func (a *app) giveDetached(ctx context.Context, p *Prompt, id task.ID) (again bool, err error) {
	s, started, err := a.Conversation(ctx, *p, id)
	switch {
	case err != nil || started:
		return false, err
	case !s.Info().Detached:
		return false, hasHost(s.Info())
	}
	api, done, err := s.Open(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	if err = api.Prompt(ctx, control.PromptRequest{Text: p.Prompt, Images: p.Images}); !control.Refused(err) {
		return false, err
	}
	return s.Gone(ctx), err
}

// hasHost says where a session lives that cannot be gone on with here.
func hasHost(info control.Info) error {
	return &control.Error{Code: control.Conflict, Message: fmt.Sprintf("session %s runs in process %d", info.Session,
		info.PID),
		Fix: fmt.Sprintf("use `drover attach %s`, stop it with `drover stop`, or add --fork-session", info.Session)}
}

// conversation finds the live host of a conversation that somebody attaches to, or
// starts one.
func (a *app) conversation(ctx context.Context, p Prompt, id task.ID) (Session, error) {
	s, _, err := a.Conversation(ctx, p, id)
	return s, err
}

// attachedTo is how `drover attach` finds a conversation, or starts one.
func (a *app) attachedTo(ctx context.Context, c joining) (Session, error) {
	p := Prompt{Format: promptFormats()[0], Model: c.Model, Agent: c.Agent, Mode: c.Mode, Attach: true}
	there := a
	if c.Session == "" {
		c.Session = task.NewSessionID()
	} else {
		s, err := a.entry(ctx, string(c.Session))
		if err != nil {
			return nil, err
		}
		if there, err = a.at(s); err != nil {
			return nil, err
		}
	}
	if err := there.check(ctx, &p, nil); err != nil {
		return nil, err
	}
	return there.conversation(ctx, p, c.Session)
}

// isResume reports whether the words ask to go on with a conversation without a
// prompt, as `drover --resume ID` does.
func isResume(args []string) bool {
	var p Prompt
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	p.add(flags)
	flags.Bool("plain", false, "")
	flags.Usage = func() {} // --help is for somebody else
	return len(args) > 0 && strings.HasPrefix(args[0], "-") && flags.Parse(args) == nil && (p.Continue || p.Resume != "")
}

// asksToResume reports whether --resume stands at a place of the words without a value.
func asksToResume(args []string, i int) bool {
	return (args[i] == "--resume" || args[i] == "-r") && (i == len(args)-1 || strings.HasPrefix(args[i+1], "-"))
}

// namesNoSession reports whether --resume is among the flags without a session.
func namesNoSession(args []string) bool {
	return slices.ContainsFunc(leadingFlags(args), func(i int) bool { return asksToResume(args, i) })
}

func errNoSessionNamed() error {
	return usage("--resume names no session", "give its ID, see `drover --resume`, or use --continue for the last one")
}

// resumableCommand is `drover --resume` without a session: it lists those that there
// are.
func (a *app) resumableCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "drover --resume",
		DisableFlagParsing: true,
		SilenceErrors:      true,
		SilenceUsage:       true,
		RunE: func(cmd *cobra.Command, words []string) error {
			if isPrompt(words) {
				return errNoSessionNamed()
			}
			infos, err := a.conversations(cmd.Context())
			if err != nil {
				return err
			}
			if len(infos) == 0 {
				return errNoConversation()
			}
			rows := [][]string{{"SESSION", "STATE", "AGE", "TITLE"}}
			for _, i := range infos[:min(len(infos), mostNamed)] {
				state := "ended"
				if i.Live {
					state = "live"
				}
				rows = append(rows, []string{cell(string(i.Session), 40), state, age(a.Now(), i.StartTime), cell(i.Title, 60)})
			}
			if err := a.table(rows, byState(rows, "STATE")); err != nil {
				return err
			}
			a.note("go on with one by `drover --resume SESSION`, or with the last by `drover --continue`")
			return nil
		},
	}
}

// resumeCommand is `drover --resume ID` and `drover --continue`: the conversation
// with somebody at a terminal.
func (a *app) resumeCommand() *cobra.Command {
	p := Prompt{Attach: true}
	var plain *bool
	cmd := &cobra.Command{
		Use:           "drover (--resume ID | --continue) [flags]",
		Short:         "Resume a conversation",
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, words []string) error {
			prompt := promptIn(cmd, words)
			switch {
			case len(words) > 0 && (prompt == "" || !a.screened(*plain)):
				return usage("a prompt of one word, or without the terminal UI, needs -p", "use `drover -p --resume ID \"…\"`")
			case !a.readsTerminal() || !a.IsTerminal(a.Stdout):
				return usage("stdin or stdout is not a terminal", "give a prompt with -p, or use `drover attach`")
			}
			ctx := cmd.Context()
			there, err := a.of(ctx, &p)
			if err != nil {
				return err
			}
			if err := there.check(ctx, &p, nil); err != nil {
				return err
			}
			id, err := there.pick(ctx, &p)
			if err != nil {
				return err
			}
			connect := func(ctx context.Context) (Session, error) { return there.conversation(ctx, p, id) }
			screen := Screen{Connect: connect, Prompt: prompt, Lines: !there.screened(*plain)}
			return there.show(ctx, screen, joining{Model: p.Model, Agent: p.Agent, Mode: p.Mode})
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err, "drover -p") })
	p.add(cmd.Flags())
	plain = plainFlag(cmd)
	a.completePrompt(cmd)
	return cmd
}

package steer

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

func (a *app) configure() *cobra.Command {
	cmd := &cobra.Command{
		Use: "configure [--json] [--model MODEL] [--permission-mode MODE] [--effort LEVEL] [--max-thinking-tokens N] " +
			"[--mode MODE] [SESSION]",
		Long: "Change the settings of the main agent of a live session, by default the only one of this folder, and print\n" +
			"them. A change applies from the next call of the model on. Agents that the session starts later begin with\n" +
			"the new settings; running agents keep theirs. A new host of the session begins with its own flags again.\n" +
			"Without a flag nothing changes.",
		Args:              console.Args(0, 1),
		ValidArgsFunction: a.CompleteSessions(func(i control.Info) bool { return i.Live }),
	}
	f := cmd.Flags()
	model := f.String("model", "", "name or alias of a model, as listed by drover models")
	mode := f.String("permission-mode", "", "default, acceptEdits, plan, dontAsk or bypassPermissions")
	effort := f.String("effort", "",
		"how much the model thinks: low, medium, high, xhigh or max; default: as the provider does")
	tokens := f.Int("max-thinking-tokens", 0, "most tokens of thinking in a reply; 0: no limit, -1: no thinking")
	session := f.String("mode", "",
		"session mode: interactive, or autopilot, which reminds until the work is marked as complete")
	asJSON := f.Bool("json", false, "print the settings as JSON")
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		var req control.ConfigureRequest
		if f.Changed("model") {
			req.Model = model
		}
		if f.Changed("permission-mode") {
			req.Mode = mode
		}
		if f.Changed("mode") {
			req.SessionMode = session
		}
		if f.Changed("effort") || f.Changed("max-thinking-tokens") {
			req.Thinking = &control.Thinking{Effort: *effort, Tokens: *tokens}
		}
		now, err := a.configureOne(cmd.Context(), words, *all, req)
		if err != nil {
			return err
		}
		if *asJSON {
			return console.PrintJSON(a.Stdout, now)
		}
		return a.Printf("model: %s\npermission mode: %s\nthinking: %s\nsession mode: %s\n",
			console.Cell(now.Model, 80), console.Cell(now.Mode, 40), thinkingText(now.Thinking), console.Cell(now.SessionMode,
				40))
	}
	return cmd
}

// configureOne changes the settings of the session that is named, or the only one.
func (a *app) configureOne(ctx context.Context, words []string, all bool, req control.ConfigureRequest) (
	now control.Settings, err error,
) {
	err = console.Taken(ctx, func() (s console.Session, err error) {
		if len(words) > 0 {
			s, err = a.host(ctx, words[0], all)
		} else {
			var live []console.Session
			if live, s, err = a.Newest(ctx, all); len(live) > 1 {
				err = a.SeveralLive(ctx, live, "drover configure SESSION")
			}
		}
		if err != nil {
			return nil, err
		}
		api, done, err := s.Open(ctx)
		if err != nil {
			return s, err
		}
		defer done()
		if now, err = api.Configure(ctx, req); err != nil {
			err = fmt.Errorf("configure %s: %w", s.Info().Session, err)
		}
		return s, err
	})
	return now, err
}

// thinkingText is how much a model is asked to think, in words.
func thinkingText(t control.Thinking) string {
	switch {
	case t.Tokens < 0:
		return "none"
	case t.Tokens > 0 && t.Effort != "":
		return t.Effort + ", at most " + strconv.Itoa(t.Tokens) + " tokens"
	case t.Tokens > 0:
		return "at most " + strconv.Itoa(t.Tokens) + " tokens"
	}
	return cmp.Or(t.Effort, "as the provider does")
}

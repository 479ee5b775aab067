package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/prompt"
)

// resumableCommand is `drover --resume` without a session: it lists those that there
// are.
func (a *app) resumableCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "drover --resume",
		DisableFlagParsing: true,
		SilenceErrors:      true,
		SilenceUsage:       true,
		RunE: func(cmd *cobra.Command, words []string) error {
			if slices.ContainsFunc(words, func(w string) bool { return w == "-p" || w == "--print" }) {
				return prompt.ErrNoSessionNamed()
			}
			infos, err := a.Infos(cmd.Context(), false)
			infos = slices.DeleteFunc(infos, func(i control.Info) bool { return !console.IsConversation(i) })
			if err != nil {
				return err
			}
			if len(infos) == 0 {
				return prompt.ErrNoConversation()
			}
			rows := [][]string{{"SESSION", "STATE", "AGE", "TITLE"}}
			for _, i := range infos[:min(len(infos), console.MostNamed)] {
				state := "ended"
				if i.Live {
					state = "live"
				}
				rows = append(rows, []string{console.Cell(string(i.Session), 40), state, console.Ago(a.Now(), i.StartTime),
					console.Cell(i.Title, 60)})
			}
			if err := a.Table(rows, console.ByState(rows, "STATE")); err != nil {
				return err
			}
			a.Note("resume one with `drover --resume SESSION`, or the last one with `drover --continue`")
			return nil
		},
	}
}

// resumeCommand is `drover --resume ID` and `drover --continue`: the conversation
// with somebody at a terminal.
func (a *app) resumeCommand() *cobra.Command {
	p := prompt.Prompt{Attach: true}
	var plain *bool
	cmd := &cobra.Command{
		Use:           "drover (--resume ID | --continue) [flags]",
		Short:         "Resume a conversation",
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, words []string) error {
			text := promptIn(cmd, words)
			switch {
			case len(words) > 0 && (text == "" || !a.screened(*plain)):
				return console.Usage("a prompt of one word, or without the terminal UI, needs -p",
					"use `drover -p --resume ID \"…\"`")
			case !a.ReadsTerminal() || !a.IsTerminal(a.Stdout):
				return console.Usage("stdin or stdout is not a terminal", "give a prompt with -p, or use `drover attach`")
			}
			ctx := cmd.Context()
			folder, err := a.Of(ctx, &p)
			if err != nil {
				return err
			}
			there := *a
			there.App = *folder
			if err := there.Check(ctx, &p, nil); err != nil {
				return err
			}
			id, err := there.Pick(ctx, &p)
			if err != nil {
				return err
			}
			connect := func(ctx context.Context) (console.Session, error) { return there.Host(ctx, p, id) }
			screen := Screen{Connect: connect, Prompt: text, Lines: !there.screened(*plain)}
			return there.show(ctx, screen, prompt.Joining{Model: p.Model, Agent: p.Agent, Mode: p.Mode})
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return console.FlagError(err, "drover -p") })
	p.Add(cmd.Flags())
	plain = plainFlag(cmd)
	a.CompletePrompt(cmd)
	return cmd
}

// Package cli is the command line: it turns words into a command, runs it, and turns its error into
// a line on stderr and an exit code.
//
// The groups of commands are packages below: run, watch, steer, agents, machines, project and setup.
// Each declares an interface with what it needs from the outside; package console has what all
// share. This package has `drover` itself, which opens a conversation, and help. [Command] makes
// only the command that is asked for.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/frontend/cli/prompt"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/agents"
	"github.com/drover-dev/drover/internal/frontend/cli/attention"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/machines"
	"github.com/drover-dev/drover/internal/frontend/cli/project"
	"github.com/drover-dev/drover/internal/frontend/cli/run"
	"github.com/drover-dev/drover/internal/frontend/cli/setup"
	"github.com/drover-dev/drover/internal/frontend/cli/steer"
	"github.com/drover-dev/drover/internal/frontend/cli/watch"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/settings"
)

// Outside is what `drover` itself, attach and top need beyond the console.
type Outside interface {
	// Screen shows the terminal UI until the user leaves it.
	Screen(ctx context.Context, s Screen) (Left, error)
	// Ready returns the providers of models that have a key, or an address that needs none.
	Ready(set settings.Settings) []string
	// Model checks whether the usual model can be used.
	Model() console.Finding
	// Demo gives the tour.
	Demo(ctx context.Context, out io.Writer, colour bool, width int) error
}

// Deps is the world around the command line: the console, and what each group of commands needs.
type Deps struct {
	console.Console
	Root      Outside
	Prompt    prompt.Outside
	Run       run.Outside
	Watch     watch.Outside
	Attention attention.Outside
	Agents    agents.Outside
	Machines  machines.Outside
	Project   project.Outside
	Setup     setup.Outside
}

// app is what the commands of this package share.
type app struct {
	prompt.App
	Outside
	attention attention.App
}

func (d Deps) app() *app {
	c := d.Console.Filled()
	return &app{prompt.App{Console: c, Outside: d.Prompt}, d.Root, attention.App{Console: c, Outside: d.Attention}}
}

// group is a title of help with the commands below it.
type group struct {
	id, title string
	commands  []console.Command
}

func (d Deps) groups() []group {
	c := d.Console.Filled()
	return []group{
		{"run", "Run:", append(run.Commands(c, d.Run), prompt.Commands(c, d.Prompt)...)},
		{"watch", "Watch:", append(watch.Commands(c, d.Watch), d.app().commands()...)},
		{"steer", "Steer:", append(steer.Commands(c), attention.Commands(c, d.Attention)...)},
		{"agents", "Agents:", agents.Commands(c, d.Agents)},
		{"machines", "Machines:", machines.Commands(c, d.Machines)},
		{"project", "Project:", project.Commands(c, d.Project)},
		{"setup", "Setup:", setup.Commands(c, d.Setup)},
	}
}

func (a *app) commands() []console.Command {
	return []console.Command{
		{Name: "attach", Short: "Join a conversation, or watch a task and send to it", Make: a.attach},
		{Name: "top", Short: "Watch and steer the tasks of a session in a list", Make: a.top},
	}
}

// Command returns the command that the words after `drover` ask for: a prompt, a conversation to
// resume, or the tree of commands with only the command of the first word.
func Command(d Deps, args []string) *cobra.Command {
	words := args
	if len(args) > 1 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		words = args[1:]
	}
	switch asked := prompt.AskedBy(words); {
	case asked == prompt.Answer, len(words) < len(args) && strings.HasPrefix(words[0], "-"):
		a := d.app()
		return a.PromptCommand()
	case asked == prompt.Resumes:
		return d.app().resumableCommand()
	case asked == prompt.Resume:
		return d.app().resumeCommand()
	case len(args) > 0:
		return tree(d, args[0])
	}
	return New(d)
}

// New returns the command `drover` with all commands below it. It does no I/O.
func New(d Deps) *cobra.Command {
	root := tree(d, "")
	addExamples(root)
	return root
}

// tree returns the command `drover` with the named command below it, or with all if the name is of
// none: help, completion and suggestions need them.
func tree(d Deps, name string) *cobra.Command {
	root := &cobra.Command{
		Use:           "drover",
		Short:         "Run, watch and steer the background work of coding agents",
		SilenceErrors: true,
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
		Args:                       noSuchCommand,
	}
	root.SetIn(d.Stdin)
	root.SetOut(d.Stdout)
	root.SetErr(d.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return console.FlagError(err, cmd.CommandPath())
	})
	root.CompletionOptions.DisableDefaultCmd = true
	groups := d.groups()
	named := func(c console.Command) bool { return c.Name == name }
	one := slices.ContainsFunc(groups, func(g group) bool { return slices.ContainsFunc(g.commands, named) })
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			if !one || named(c) {
				root.AddCommand(made(c, g.id))
			}
		}
	}
	root.SetHelpCommand(helpCommand(root))
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, words []string) {
		addExamples(root)
		help(cmd, words)
	})
	d.app().root(root)
	return root
}

// made makes a command with its line of help. Without Args a command takes no words, without RunE it
// prints its help, and words are files only if it says so.
func made(c console.Command, group string) *cobra.Command {
	top := c.Make()
	top.Short, top.GroupID = c.Short, group
	each(top, func(cmd *cobra.Command) {
		if cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		if cmd.Args == nil {
			cmd.Args = console.Args(0, 0)
		}
		if cmd.RunE == nil {
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	})
	return top
}

// each calls f for a command and for all below it.
func each(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		each(sub, f)
	}
}

// Execute runs cmd, prints its error as one line on stderr, and returns the
// exit code: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 stopped, 124 timed
// out; of run and wait the command's own, 128+n for a signal, and 125 when
// Drover itself fails. A reader of stdout that went away is no failure.
func Execute(ctx context.Context, cmd *cobra.Command, stderr io.Writer) int {
	err := cmd.ExecuteContext(ctx)
	code := console.ExitCode(ctx, err)
	var exit *console.ExitError
	switch {
	case code == 0, ctx.Err() != nil && errors.Is(err, context.Cause(ctx)), errors.Is(err, context.Canceled):
		return code
	case errors.As(err, &exit):
		if exit.Err == nil {
			return code
		}
		err = exit.Err
	}
	fmt.Fprintf(stderr, "drover: %s\n", excerpt.Line(err.Error(), 2000))
	return code
}

package agents

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/command"
)

func (a *app) commandsCommand() *cobra.Command {
	return a.listing("commands", command.Prompt, "List the commands that a prompt can begin with, as /NAME",
		"List what a prompt can begin with, as /NAME: the commands of Drover, those of files in .drover/commands,\n"+
			".claude/commands and .github/prompts of the folder and in ~/.config/drover/commands and ~/.claude/commands,\n"+
			"and skills. A command that cannot be called, or has no effect until the folder is trusted, is shown with\n"+
			"the reason.")
}

func (a *app) skillsCommand() *cobra.Command {
	return a.listing("skills", command.Skill, "List the skills that agents can load and prompts can begin with",
		"List the skills of .drover/skills, .claude/skills and .github/skills of the folder, of\n"+
			"~/.config/drover/skills and ~/.claude/skills, and of plugins. An agent loads one when its task asks for it;\n"+
			"a prompt that begins with /NAME loads it, too.")
}

func (a *app) listing(name string, sort command.Sort, short, long string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: name, Short: short, Long: long,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, problems := a.CommandFiles()
			all := found.All()
			if sort == command.Skill {
				all = slices.DeleteFunc(all, func(c command.Command) bool { return c.Sort != command.Skill })
			}
			return a.printCommands(cmd.OutOrStdout(), all, problems, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) printCommands(out io.Writer, all []command.Command, problems []string, asJSON bool) error {
	if asJSON {
		list := control.Commands{Commands: []control.Command{}, Problems: append([]string{}, problems...)}
		for _, one := range all {
			list.Commands = append(list.Commands, control.Command(one.Line()))
		}
		return console.PrintJSON(out, list)
	}
	for _, p := range problems {
		fmt.Fprintf(a.Stderr, "drover: note: %s\n", excerpt.Line(p, 300))
	}
	rows := [][]string{{"NAME", "ARGUMENTS", "SOURCE", "DESCRIPTION"}}
	for _, one := range all {
		source := string(one.Level)
		if one.Path != "" {
			source = a.Brief(one.Path)
		}
		rows = append(rows, []string{"/" + excerpt.Line(one.Name, 40), excerpt.Line(one.Hint, 30), excerpt.Line(source, 60),
			excerpt.Line(one.Description, 60)})
		for _, note := range a.about(one) {
			rows = append(rows, []string{"", "", "", excerpt.Line(note, 120)})
		}
	}
	return a.Table(rows, console.Headed)
}

// about says why a command cannot be called, or not with all that it says.
func (a *app) about(one command.Command) []string {
	var out []string
	if one.Shadowed != "" {
		out = append(out, "cannot be called: "+a.Brief(one.Shadowed)+" has its name")
	}
	if one.NoUser {
		out = append(out, "cannot be called: it is for agents only")
	}
	for _, effect := range one.Waits {
		out = append(out, "waits until you trust this folder: "+effect)
	}
	return out
}

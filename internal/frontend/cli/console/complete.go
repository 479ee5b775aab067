package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	models "github.com/drover-dev/drover/internal/model/modelinfo"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/catalog"
	"github.com/drover-dev/drover/internal/project/command"
	"github.com/drover-dev/drover/internal/project/definitions"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/project/skill"
	"github.com/drover-dev/drover/internal/project/trust"
)

// CommandFiles are the commands of this folder, and what is wrong with their files.
func (a *Console) CommandFiles() (command.Catalog, []string) {
	get := home.Lookup(a.Env)
	set, _, _ := settings.Load(settings.Find(get, a.Cwd, ""))
	plugins, _ := catalog.Plugins(get, set.Plugins)
	trusted := func() bool {
		st, err := trust.At(a.Root.TrustFile()).Check(a.Cwd)
		return err == nil && st.Trusted
	}
	skills := skill.Find(definitions.Usual(get, a.Cwd, trusted(), plugins, "skills"))
	found := command.Current(func(trusted bool) []definitions.Place {
		return definitions.Usual(get, a.Cwd, trusted, plugins, "commands")
	}, skills, trusted)
	var problems []string
	for _, n := range found.Warnings() {
		problems = append(problems, n.String())
	}
	for _, n := range skills.Warnings() {
		problems = append(problems, n.String())
	}
	return found, problems
}

// CompleteCommands offers the names of commands for a prompt that begins with a slash.
func (a *Console) CompleteCommands(_ *cobra.Command, words []string, typed string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	name, ok := strings.CutPrefix(typed, "/")
	if len(words) > 0 || !ok {
		return nil, cobra.ShellCompDirectiveDefault
	}
	found, _ := a.CommandFiles()
	var out []cobra.Completion
	for _, one := range found.Callable() {
		if strings.HasPrefix(one.Name, name) {
			about := strings.TrimSpace(one.Hint + " " + one.Description)
			out = append(out, cobra.CompletionWithDesc("/"+one.Name, Cell(cmp.Or(about, string(one.Level)), 60)))
		}
	}
	if len(out) == 0 {
		return nil, cobra.ShellCompDirectiveDefault // it may be a path
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// CompletePrompt completes the values of the flags of a prompt that cmd has.
func (a *Console) CompletePrompt(cmd *cobra.Command) {
	words := func(list []string) cobra.CompletionFunc {
		return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
	}
	for flag, complete := range map[string]cobra.CompletionFunc{
		"model": a.completeModels, "agent": a.completeAgents, "permission-mode": words(PermissionModes()),
		"output-format": words(PromptFormats()),
		"resume":        a.CompleteConversations,
		"add-dir":       cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
	} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, complete) // there is such a flag
		}
	}
}

// completeAgents offers the names of agents.
func (a *Console) completeAgents(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	var out []cobra.Completion
	for _, name := range a.Agents("", false).Current().Names() {
		if strings.HasPrefix(name, typed) {
			out = append(out, name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// CompleteConversations offers the sessions that a prompt can go on with.
func (a *Console) CompleteConversations(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	infos, _ := a.Conversations(cmd.Context()) // nothing to offer then
	var out []cobra.Completion
	for _, i := range infos {
		if strings.HasPrefix(string(i.Session), typed) {
			out = append(out, cobra.CompletionWithDesc(string(i.Session), Cell(i.Title, 40)))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeModels offers the short names, and full names once something of one is
// typed.
func (a *Console) completeModels(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	set, _, _ := settings.Load(settings.Find(home.Lookup(a.Env), a.Cwd, "")) // without it, the built-in names
	about := map[string]string{}
	for _, m := range models.Models() {
		if typed != "" {
			about[m.Name] = models.Title(m.Name)
		}
	}
	for _, m := range models.Aliases() {
		about[m.Short] = m.Full
	}
	maps.Copy(about, set.Models.Aliases)
	var out []cobra.Completion
	for _, name := range slices.Sorted(maps.Keys(about)) {
		if strings.HasPrefix(name, typed) && excerpt.Line(name, 100) == name {
			out = append(out, cobra.CompletionWithDesc(name, excerpt.Line(about[name], 60)))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// CompleteTasks offers the IDs and names of tasks; with ended, those of live
// sessions that have ended too.
func (a *Console) CompleteTasks(ended bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Second) // a person waits at the key
		defer cancel()
		sessions, err := a.Known(ctx, true, false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		pages, _ := Each(ctx, sessions, func(ctx context.Context, api control.API) (control.Page, error) {
			return api.List(ctx, control.ListRequest{All: ended, Limit: TablePage})
		})
		var out []cobra.Completion
		for _, p := range pages {
			for _, r := range p.Tasks {
				for _, word := range []string{string(r.ID), r.Name} {
					if word != "" && strings.HasPrefix(word, typed) && excerpt.Line(word, 100) == word {
						out = append(out, cobra.CompletionWithDesc(word, Cell(Work(r), 40)))
					}
				}
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

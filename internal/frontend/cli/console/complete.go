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

// CommandFiles returns the commands of this folder, and the problems of their files.
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

// Word is a word that a shell offers, with what a listing says about it.
type Word struct {
	Text, About string
	Typed       bool // it is only offered once some of it is typed
}

// Offer completes words: those that begin with what is typed and are harmless on a terminal. words has
// a second.
func Offer(words func(context.Context) []Word) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
		defer cancel()
		var out []cobra.Completion
		for _, w := range words(ctx) {
			fits := w.Text != "" && (typed != "" || !w.Typed) && strings.HasPrefix(w.Text, typed)
			if fits && excerpt.Line(w.Text, 100) == w.Text {
				out = append(out, cobra.CompletionWithDesc(w.Text, excerpt.Line(w.About, 60)))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteFiles offers the names of files.
func CompleteFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// CompleteCommands offers the commands of agents for a prompt that begins with a slash, which may
// also be a path.
func (a *Console) CompleteCommands(cmd *cobra.Command, words []string, typed string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	if len(words) > 0 || !strings.HasPrefix(typed, "/") {
		return CompleteFiles(cmd, words, typed)
	}
	out, directive := Offer(func(context.Context) (names []Word) {
		found, _ := a.CommandFiles()
		for _, one := range found.Callable() {
			about := strings.TrimSpace(one.Hint + " " + one.Description)
			names = append(names, Word{Text: "/" + one.Name, About: cmp.Or(about, string(one.Level))})
		}
		return names
	})(cmd, words, typed)
	if len(out) == 0 {
		return CompleteFiles(cmd, words, typed)
	}
	return out, directive
}

// CompletePrompt completes the values of the flags of a prompt that cmd has.
func (a *Console) CompletePrompt(cmd *cobra.Command) {
	for flag, complete := range map[string]cobra.CompletionFunc{
		"model": Offer(a.models), "agent": a.CompleteAgents(), "resume": a.CompleteSessions(IsConversation),
		"permission-mode": cobra.FixedCompletions(PermissionModes(), cobra.ShellCompDirectiveNoFileComp),
		"output-format":   cobra.FixedCompletions(PromptFormats(), cobra.ShellCompDirectiveNoFileComp),
		"add-dir":         cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
	} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, complete) // the flag exists
		}
	}
}

// CompleteAgents offers the names of agents.
func (a *Console) CompleteAgents() cobra.CompletionFunc {
	return Offer(func(context.Context) (names []Word) {
		for _, name := range a.Agents("", false).Current().Names() {
			names = append(names, Word{Text: name})
		}
		return names
	})
}

// CompleteSessions offers the sessions of this folder that may be named.
func (a *Console) CompleteSessions(may func(control.Info) bool) cobra.CompletionFunc {
	return Offer(func(ctx context.Context) (ids []Word) {
		infos, _ := a.Infos(ctx, false) // without them there is nothing to offer
		for _, i := range infos {
			if may(i) {
				ids = append(ids, Word{Text: string(i.Session), About: i.Title})
			}
		}
		return ids
	})
}

// models are the short and the full names of models.
func (a *Console) models(context.Context) (names []Word) {
	set, _, _ := settings.Load(settings.Find(home.Lookup(a.Env), a.Cwd, "")) // without it, the built-in names
	about := map[string]string{}
	for _, m := range models.Aliases() {
		about[m.Short] = m.Full
	}
	maps.Copy(about, set.Models.Aliases)
	for _, name := range slices.Sorted(maps.Keys(about)) {
		names = append(names, Word{Text: name, About: about[name]})
	}
	for _, m := range models.Models() {
		name := m.Name
		if m.Provider != "anthropic" {
			name = m.Provider + "/" + name
		}
		names = append(names, Word{Text: name, About: models.Title(m.Name), Typed: true})
	}
	return names
}

// CompleteTasks offers the IDs and names of tasks of live sessions; with ended, also of ended tasks.
func (a *Console) CompleteTasks(ended bool) cobra.CompletionFunc {
	return Offer(func(ctx context.Context) (refs []Word) {
		sessions, _ := a.Known(ctx, true, false) // without them there is nothing to offer
		pages, _ := Each(ctx, sessions, func(ctx context.Context, api control.API) (control.Page, error) {
			return api.List(ctx, control.ListRequest{All: ended, Limit: TablePage})
		})
		for _, p := range pages {
			for _, r := range p.Tasks {
				refs = append(refs, Word{Text: string(r.ID), About: Work(r)},
					Word{Text: r.Name, About: Work(r)})
			}
		}
		return refs
	})
}

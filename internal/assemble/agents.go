package assemble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/internal/project/catalog"
	"github.com/drover-dev/drover/internal/project/command"
	"github.com/drover-dev/drover/internal/project/definitions"
	"github.com/drover-dev/drover/internal/project/instructions"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/project/skill"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/internal/project/trust"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/internal/tool/webtool"
	"github.com/drover-dev/drover/subagent"
)

// agents is what the agents of the session are made of, by settings and files.
func (s *Session) agents(c Config, env []string) (agents.Config, error) {
	set, get := c.Settings, home.Lookup(c.Env)
	a := agents.Config{
		Program: c.Program,
		Models:  s.models,
		Rules:   Rules(c),
		Foreign: set.Foreign,
		Workers: hasHub(c),
		Seam:    c.Seam,
		Web:     webtool.NewFetcher(webtool.Config{MaxBytes: set.Web.MaxBytes, TTL: set.Web.CacheTTL}),
	}
	a.RuleSources = ruleSources(c)
	a.Client = func(env []string) []string {
		return withoutTokens(withProviders(withProject(env, set.Env), set), set.Remote)
	}
	tell := func(format string, args ...any) {
		if c.Tell != nil {
			c.Tell(c.Session, fmt.Sprintf(format, args...))
		}
	}

	a.Env = withoutTokens(withProject(env, set.Env), set.Remote)
	a.RemoteEnv = c.Env
	checkServices(set.Remote, tell)
	own := make(map[string]usage.Price, len(set.Models.Prices))
	for name, p := range set.Models.Prices {
		own[name] = usage.Price(p)
	}
	table, wrong := usage.NewTable(own, set.Models.Windows)
	for _, w := range wrong {
		tell("%s", w)
	}
	s.prices = table
	var err error
	// The background session of a project never ends: a budget of all that it ever
	// spent would be used up one day for good.
	s.accounts, err = usage.Open(
		usage.Config{Table: table, Budget: usage.Budget{USD: set.MaxBudget}, Fresh: c.Role == session.RoleBackground,
			Path: filepath.Join(s.Place.Dir(), usage.FileName), Note: func(text string) { tell("%s", text) }},
	)
	if err != nil {
		return a, err
	}
	a.Accounts = s.accounts
	if set.Context.AutoCompact != "off" {
		a.Window = table.Window
	}
	a.Policy = choose.Policy{Models: set.Models, Rate: table.Rate, Own: slices.Sorted(maps.Keys(c.Own))}

	a.Catalog = catalog.New(catalog.Config{Given: c.Agents}).Current
	if !c.Isolated {
		s.found(&a, c, tell)
	}
	if len(c.Definitions) > 0 {
		if _, err := (subagent.Catalog{}).With(c.Definitions...); err != nil {
			return a, err
		}
		others := a.Catalog
		a.Catalog = func() subagent.Catalog {
			all, _ := others().With(c.Definitions...) // it was tried above
			return all
		}
	}
	if len(c.Callbacks) > 0 {
		set := cmp.Or(a.Hooks, &hook.Set{})
		var problems []hook.Problem
		if a.Hooks, problems = set.With(c.Callbacks...); len(problems) > 0 {
			for _, p := range problems {
				tell("%s", p)
			}
		}
	}
	list, err := todo.ListName(get, string(c.Session))
	if err != nil {
		return a, err
	}
	if set.Todos.Enabled {
		a.Todos = todo.At(c.Root.Todos(list), set.Power())
	}
	if a.Worktrees = worktree.Open(c.Root.Worktrees()); c.Played {
		// Its worktrees are those of the recording: none is made here.
		a.Worktrees, a.Catalog = worktree.Open(filepath.Join(s.Place.Dir(), "worktrees")), played(a.Catalog)
	}
	a.KeepRule = func(ctx context.Context, rule string) error { return keepRule(ctx, c, rule, tell) }
	if a.MCP, err = s.servers(c, tell); err != nil {
		return a, err
	}
	return a, nil
}

// played is a catalog whose agents start nothing outside of the session.
func played(c func() subagent.Catalog) func() subagent.Catalog {
	return func() subagent.Catalog {
		defs := c().All()
		for i := range defs {
			defs[i].Hooks, defs[i].MCPServers = nil, nil
		}
		return subagent.NewCatalog(defs...)
	}
}

// found is what the user and the folder have for agents: definitions, skills,
// instructions, memory, hooks.
func (s *Session) found(a *agents.Config, c Config, tell func(string, ...any)) {
	set, get := c.Settings, c.Skip.Env(home.Lookup(c.Env))
	plugins, wrongPlugins := catalog.Plugins(get, set.Plugins)
	plugins, missing := catalog.Switched(plugins, set.PluginSwitches)
	for _, name := range missing {
		tell("the project wants the plugin %q, which is not installed", name)
	}
	shared := func(p definitions.Place) bool { return c.Skip.Project && p.Level == definitions.Project }
	files := catalog.New(catalog.Config{
		Places:  slices.DeleteFunc(catalog.Places(get, c.Folder, set.Trusted, plugins), shared),
		Also:    []string{c.Root.TrustFile()},
		Given:   c.Agents,
		Path:    home.Lookup(c.Env)("PATH"),
		Earlier: wrongPlugins,
		Trusted: func(folder string) bool {
			st, err := trust.At(c.Root.TrustFile()).Check(folder)
			return err == nil && st.Trusted
		},
	})
	for _, p := range wrongPlugins {
		tell("%s", p)
	}
	s.remoteAgents(files, c, tell)
	a.Catalog = files.Current
	skills := skill.Find(slices.DeleteFunc(definitions.Usual(get, c.Folder, set.Trusted, plugins, "skills"), shared))
	for _, w := range skills.Warnings() {
		tell("%s", w)
	}
	usable := skills
	if c.Skills != nil {
		var unknown []string
		if usable, unknown = skills.Only(c.Skills); len(unknown) > 0 {
			tell("skills: there is no skill %s", strings.Join(unknown, ", "))
		}
	}
	a.Skills = func() skill.Catalog { return usable }
	a.Commands = func() command.Catalog {
		now := func(trusted bool) []definitions.Place {
			return slices.DeleteFunc(definitions.Usual(get, c.Folder, trusted, plugins, "commands"), shared)
		}
		return command.Current(now, skills, func() bool { return set.Trusted && isTrusted(c) })
	}
	text, warnings := instructions.Read(instructions.Config{Folder: c.Folder, Env: get, Trusted: set.Trusted,
		NoProject: c.Skip.Project, NoLocal: c.Skip.Local})
	for _, w := range warnings {
		tell("%s", w)
	}
	a.Notes = text
	remember(a, c, s.Place.Project(), tell)
	a.Hooks = hooks(set, plugins, tell)
}

// withProject adds the variables that a trusted project sets. They win, as in the program
// that they were written for.
func withProject(env []string, vars map[string]string) []string {
	if len(vars) == 0 {
		return env
	}
	out := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		_, set := vars[name]
		return set
	})
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		out = append(out, name+"="+vars[name])
	}
	return out
}

// isTrusted reports whether the user trusts the folder as it is now.
func isTrusted(c Config) bool {
	st, err := trust.At(c.Root.TrustFile()).Check(c.Folder)
	return err == nil && st.Trusted
}

// keepRule writes a rule of the user to the settings of the folder. A folder that
// is trusted stays so.
func keepRule(ctx context.Context, c Config, rule string, tell func(string, ...any)) error {
	store := trust.At(c.Root.TrustFile())
	before, err := store.Check(c.Folder)
	if err != nil {
		return err
	}
	data, err := settings.Allow(ctx, c.Folder, rule)
	if err != nil {
		return err
	}
	trusted, err := store.Keep(ctx, before, settings.LocalFile, data)
	if err == nil && !trusted {
		tell(
			"the rule %s holds in this session; later sessions take it from %s once you trust the folder (see `drover trust`)",
			rule,
			settings.LocalFile,
		)
	}
	return err
}

// hooks reads the hooks of all files and plugins; hooks of folders that are not trusted do not run.
func hooks(set settings.Settings, plugins []string, tell func(string, ...any)) *hook.Set {
	if set.DisableHook {
		return nil
	}
	var sources []hook.Source
	for _, f := range set.HookSources {
		sources = append(sources, hook.Source{Path: f.Path, Data: f.Data, Trusted: f.Trusted, User: f.User,
			Bounded: !f.User})
	}
	for _, dir := range plugins {
		src, err := hook.ReadPlugin(dir)
		switch {
		case err == nil:
			sources = append(sources, src)
		case !errors.Is(err, fs.ErrNotExist):
			tell("none of the hooks of a plugin runs: %v", err)
		}
	}
	found, problems := hook.Load(sources)
	for _, p := range problems {
		tell("%s", p)
	}
	return found
}

// ruleSources says where the rules of [Rules] are from.
func ruleSources(c Config) agents.RuleSources {
	out := agents.RuleSources{}
	for _, s := range c.Settings.RuleSources {
		out.Add("allow", s.Name, s.Allow...)
		out.Add("ask", s.Name, s.Ask...)
		out.Add("deny", s.Name, s.Deny...)
	}
	out.Add("allow", "built in", own()...)
	return out
}

// Sandbox is what the settings say of the sandbox.
func Sandbox(c Config) sandboxes.Config {
	env, set := home.Lookup(c.Env), c.Settings.Sandbox
	user := env("HOME")
	return sandboxes.Config{
		Mode: sandboxes.Mode(set.Mode), Auto: set.AutoAllow, Starter: c.Starter, Home: user, TempDir: env("TMPDIR"),
		Write: below(user, set.Write), Hidden: below(user, set.Hidden), Domains: set.Domains, Outside: set.Outside,
		Sockets:  below(user, set.UnixSockets),
		Upstream: upstream(env), Denied: denied(c),
		Credentials: credentials(c), Certificates: env("SSL_CERT_FILE"),
	}
}

// denied returns what finds the files that deny rules keep from commands; nil: no rule denies reading.
func denied(c Config) func([]policy.Copy) (paths, notes []string) {
	r := Rules(c)
	if !slices.ContainsFunc(r.Deny, func(rule string) bool { return strings.EqualFold(policy.ToolOf(rule), "Read") }) {
		return nil
	}
	r.Cwd = c.Folder
	return func(copies []policy.Copy) (paths, notes []string) {
		r.Copies = copies
		gate, _ := policy.New(r) // the session has reported a wrong rule, which denies the whole tool
		return gate.Denied()
	}
}

// upstream returns the proxies that the variables of the user name.
func upstream(env func(string) string) func(*url.URL) (*url.URL, error) {
	of := func(name string) string { return cmp.Or(env(name), env(strings.ToLower(name))) }
	c := httpproxy.Config{HTTPProxy: of("HTTP_PROXY"), HTTPSProxy: of("HTTPS_PROXY"), NoProxy: of("NO_PROXY")}
	if c.HTTPProxy == "" && c.HTTPSProxy == "" {
		return nil
	}
	return c.ProxyFunc()
}

// below makes paths absolute that are written with ~.
func below(user string, paths []string) []string {
	out := make([]string, 0, len(paths))
	for _, p := range paths {
		if rest, ok := strings.CutPrefix(p, "~/"); ok && user != "" {
			p = filepath.Join(user, rest)
		}
		out = append(out, p)
	}
	return out
}

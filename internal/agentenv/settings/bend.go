package settings

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// bend brings what one source has set into its bounds. Words that mean nothing
// leave what held before it.
func (l *loader) bend(source string, before Settings) {
	s := &l.set
	s.Limits.Depth = l.clamp(source, "limits.depth", s.Limits.Depth, 1, 16)
	s.Limits.Live = l.clamp(source, "limits.live", s.Limits.Live, 1, 256)
	s.Limits.PerRoot = l.clamp(source, "limits.perRoot", s.Limits.PerRoot, 1, 100_000)
	s.Limits.SpawnRate = l.clamp(source, "limits.spawnRate", s.Limits.SpawnRate, 1, 10_000)
	s.Limits.MessageHops = l.clamp(source, "limits.messageHops", s.Limits.MessageHops, 1, 1000)
	s.Limits.PerSession = l.clamp(source, "limits.perSession", s.Limits.PerSession, 1, 100_000)
	s.Limits.Monitors = l.clamp(source, "limits.monitors", s.Limits.Monitors, 1, 10_000)
	s.Tasks.OutputLength = l.clamp(source, "tasks.outputLength", s.Tasks.OutputLength, 100, 160_000)
	s.Tasks.OutputLimitBytes = int64(l.clamp(source, "tasks.outputLimitBytes", int(s.Tasks.OutputLimitBytes), 4096, 1_000_000_000_000))
	s.Tasks.UserQuotaBytes = int64(l.clamp(source, "tasks.userQuotaBytes", int(s.Tasks.UserQuotaBytes), 65_536, 1_000_000_000_000_000))
	s.Tasks.MinFreeBytes = int64(l.clamp(source, "tasks.minFreeBytes", int(s.Tasks.MinFreeBytes), 0, 1_000_000_000_000))
	s.Tasks.MaxProcesses = l.clamp(source, "tasks.maxProcesses", s.Tasks.MaxProcesses, 0, 4_194_304)
	l.retention(source, before.Tasks.Retention)
	s.Web.MaxBytes = int64(l.clamp(source, "web.maxBytes", int(s.Web.MaxBytes), 1024, 100_000_000))
	s.MCP.FrameBytes = l.clamp(source, "mcp.frameBytes", s.MCP.FrameBytes, 64<<10, 1_000_000_000)
	s.Memory.Sessions = l.clamp(source, "memory.sessions", s.Memory.Sessions, 1, 1000)
	s.Memory.ShutdownTurns = l.clamp(source, "memory.shutdownTurns", s.Memory.ShutdownTurns, 1, 1000)
	s.Providers.Anthropic.Calls = l.clamp(source, "providers.anthropic.calls", s.Providers.Anthropic.Calls, 0, 10_000)
	s.Providers.OpenAI.Calls = l.clamp(source, "providers.openai.calls", s.Providers.OpenAI.Calls, 0, 10_000)
	if share := s.Context.Share; !(share >= 0.1 && share <= 0.95) {
		s.Context.Share = min(max(share, 0.1), 0.95)
		l.note(source, "context.share %v is taken as %v (possible are 0.1 to 0.95)", share, s.Context.Share)
	}
	for _, word := range []struct {
		what     string
		to       *string
		before   string
		possible []string
	}{
		{"permissions.defaultMode", &s.Permissions.DefaultMode, before.Permissions.DefaultMode, modes()},
		{"durability", &s.Durability, before.Durability, []string{"crash", "power"}},
		{"providers.openai.api", &s.Providers.OpenAI.API, before.Providers.OpenAI.API, []string{"chat", "responses"}},
		{"models.costGuard", &s.Models.CostGuard, before.Models.CostGuard, []string{"on", "off"}},
		{"context.autoCompact", &s.Context.AutoCompact, before.Context.AutoCompact, []string{"on", "off"}},
		{"mcp.tasks", &s.MCP.Tasks, before.MCP.Tasks, []string{"required", "always", "off"}},
		{"memory.enabled", &s.Memory.Enabled, before.Memory.Enabled, []string{"on", "off"}},
		{"memory.dream", &s.Memory.Dream, before.Memory.Dream, []string{"off", "auto"}},
	} {
		if !slices.Contains(word.possible, *word.to) {
			l.note(source, "%s %.40q is not one of %s; %s holds", word.what, *word.to, strings.Join(word.possible, ", "), word.before)
			*word.to = word.before
		}
	}
	for _, d := range []struct {
		what       string
		to         *string
		before     string
		least, off time.Duration // off: the word off, or no time at all, is possible too, if it is 1
	}{
		{"tasks.waitCeiling", &s.Tasks.WaitCeiling, before.Tasks.WaitCeiling, 0, 0},
		{"tasks.stallAfter", &s.Tasks.StallAfter, before.Tasks.StallAfter, 100 * time.Millisecond, 0},
		{"permissions.askTimeout", &s.Permissions.AskTimeout, before.Permissions.AskTimeout, 0, 0},
		{"agents.summaries", &s.Agents.Summaries, before.Agents.Summaries, time.Second, 1},
		{"agents.stallAfter", &s.Agents.StallAfter, before.Agents.StallAfter, 100 * time.Millisecond, 1},
		{"agents.idleTimeout", &s.Agents.IdleTimeout, before.Agents.IdleTimeout, time.Second, 0},
		{"agents.teammateGrace", &s.Agents.TeammateGrace, before.Agents.TeammateGrace, time.Second, 0},
		{"remote.offline", &s.Remote.Offline, before.Remote.Offline, time.Second, 0},
		{"web.cacheTtl", &s.Web.CacheTTL, before.Web.CacheTTL, 0, 0},
		{"mcp.startWait", &s.MCP.StartWait, before.MCP.StartWait, 0, 0},
		{"mcp.idleTimeout", &s.MCP.IdleTimeout, before.MCP.IdleTimeout, 0, 0},
		{"mcp.callTimeout", &s.MCP.CallTimeout, before.MCP.CallTimeout, time.Millisecond, 0},
		{"memory.idleAfter", &s.Memory.IdleAfter, before.Memory.IdleAfter, time.Second, 0},
		{"memory.every", &s.Memory.Every, before.Memory.Every, 0, 0},
	} {
		if got, err := time.ParseDuration(*d.to); (err != nil || got < d.least) && !(d.off == 1 && (*d.to == "off" || err == nil && got == 0)) {
			l.note(source, "%s %.40q is not a duration such as %s, and is ignored", d.what, *d.to, cmp.Or(d.before, "10m"))
			*d.to = d.before
		}
	}
	l.money(source, before)
}

func modes() []string {
	return []string{"default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "auto"}
}

// money leaves out what is no price, budget or factor: a wrong one would let a
// budget be passed unseen.
func (l *loader) money(source string, before Settings) {
	s := &l.set
	if s.MaxBudget < 0 {
		l.note(source, "maxBudgetUsd %v is below 0, and is ignored", s.MaxBudget)
		s.MaxBudget = before.MaxBudget
	}
	if usd := s.Agents.BudgetUSD; !(usd >= 0 && usd < 1e9) {
		l.note(source, "agents.budgetUsd %v is not possible, and is ignored", usd)
		s.Agents.BudgetUSD = before.Agents.BudgetUSD
	}
	if s.Agents.BudgetTokens < 0 {
		l.note(source, "agents.budgetTokens %d is below 0, and is ignored", s.Agents.BudgetTokens)
		s.Agents.BudgetTokens = before.Agents.BudgetTokens
	}
	if s.Agents.BudgetOutput < 0 {
		l.note(source, "agents.budgetOutput %d is below 0, and is ignored", s.Agents.BudgetOutput)
		s.Agents.BudgetOutput = before.Agents.BudgetOutput
	}
	if text := s.Agents.BudgetWall; text != "" {
		if d, err := time.ParseDuration(text); err != nil || d < time.Millisecond {
			l.note(source, "agents.budgetWall %.40q is not a duration such as 30m, and is ignored", text)
			s.Agents.BudgetWall = before.Agents.BudgetWall
		}
	}
	m, was := &s.Models, before.Models
	sane := func(f float64) bool { return f >= 0 && f < 1e9 }
	keep(l, source, "models.prices", m.Prices, was.Prices, func(p Price) bool {
		return sane(p.Input) && sane(p.Output) && sane(p.CacheRead) && sane(p.CacheWrite)
	})
	keep(l, source, "models.multipliers", m.Multipliers, was.Multipliers, sane)
	keep(l, source, "models.windows", m.Windows, was.Windows, func(n int64) bool { return n >= 1000 && n < 1e9 })
	keep(l, source, "models.aliases", m.Aliases, was.Aliases, func(s string) bool { return s != "" })
	keep(l, source, "models.complementary", m.Complementary, was.Complementary, func(s string) bool { return s != "" })
}

// keep takes values that cannot be out of a map, and puts back those that they
// took the place of.
func keep[V any](l *loader, source, what string, m, before map[string]V, good func(V) bool) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if key != "" && good(m[key]) {
			continue
		}
		l.note(source, "%s.%.80s: %v is not possible, and is ignored", what, key, m[key])
		delete(m, key)
		if old, ok := before[key]; ok {
			m[key] = old
		}
	}
}

package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Settings is everything that can be set. The tags are the names in files and
// the words of the schema.
type Settings struct {
	Model       string      `json:"model,omitempty" jsonschema:"model of the main agent: an alias, a full name, or provider/name"`
	Permissions Permissions `json:"permissions,omitzero" jsonschema:"what tools may do"`
	Limits      Limits      `json:"limits,omitzero" jsonschema:"how much may run"`
	Agents      Agents      `json:"agents,omitzero" jsonschema:"how agents behave"`
	Durability  string      `json:"durability,omitempty" jsonschema:"what nothing acknowledged is lost by: crash (kill -9, the default) or power (power loss too)"`
	Providers   Providers   `json:"providers,omitzero" jsonschema:"where models are reached"`
	Tasks       Tasks       `json:"tasks,omitzero" jsonschema:"how tasks behave"`
	Models      Models      `json:"models,omitzero" jsonschema:"which models there are, and what they cost"`
	Context     Context     `json:"context,omitzero" jsonschema:"how conversations are kept short"`
	Web         Web         `json:"web,omitzero" jsonschema:"how pages are fetched"`
	MCP         MCP         `json:"mcp,omitzero" jsonschema:"how MCP servers are used"`
	Memory      Memory      `json:"memory,omitzero" jsonschema:"what is remembered from session to session"`
	Remote      Remote      `json:"remote,omitzero" jsonschema:"where work can be done elsewhere"`
	Monitors    Monitors    `json:"monitors,omitzero" jsonschema:"how things are watched"`
	Teleport    Teleport    `json:"teleport,omitzero" jsonschema:"how sessions are carried to other machines"`
	MaxBudget   float64     `json:"maxBudgetUsd,omitempty" jsonschema:"US dollars that a session may spend; not set: any"`

	Plugins []string `json:"plugins,omitempty" jsonschema:"folders of plugins, absolute, beside those in the plugins folder of the user's configuration"`

	// Hooks are read by package hook, which knows their forms. Those of all
	// sources that may run are here together; HookSources has each by itself.
	Hooks       map[string]any `json:"hooks,omitempty" jsonschema:"commands to run when something happens: an object of event names"`
	DisableHook bool           `json:"disableAllHooks,omitempty" jsonschema:"no hook runs"`

	Trusted     bool       `json:"-"` // no setting: the project's folder is trusted
	HookSources []HookFile `json:"-"` // no setting; in the order in which they were read
}

// HookFile is the hooks of one source, those included that may not run.
type HookFile struct {
	Path    string          // of the file, or --settings
	Data    json.RawMessage // an object of event names, or a whole file of HookDir
	Trusted bool            // they may run
	User    bool            // they are the user's own
}

// Permissions are rules, and what happens where none speaks.
type Permissions struct {
	Allow       []string `json:"allow,omitempty" jsonschema:"calls that run without a question"`
	Ask         []string `json:"ask,omitempty" jsonschema:"calls that are always asked about"`
	Deny        []string `json:"deny,omitempty" jsonschema:"calls that never run"`
	DefaultMode string   `json:"defaultMode,omitempty" jsonschema:"default, acceptEdits, plan, dontAsk, bypassPermissions or auto"`
	AskTimeout  string   `json:"askTimeout,omitempty" jsonschema:"how long a question waits for somebody before it is a denial, such as 10m, which holds if not set"`

	Foreign []string `json:"-"` // no setting: those of Ask and Deny that were written for another program
}

// Wait is AskTimeout as a duration.
func (p Permissions) Wait() time.Duration { return duration(p.AskTimeout, 10*time.Minute) }

func duration(text string, unset time.Duration) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		return unset
	}
	return d
}

// Limits bound what agents may start.
type Limits struct {
	Depth   int `json:"depth,omitempty" jsonschema:"agents below agents, 1 to 16; 3 if not set"`
	Live    int `json:"live,omitempty" jsonschema:"agents at work at the same time, 1 to 256; 10 if not set; more wait"`
	PerRoot int `json:"perRoot,omitempty" jsonschema:"agents that one root may start in a session, 1 to 100000; 200 if not set"`

	SpawnRate   int `json:"spawnRate,omitempty" jsonschema:"agents that one root may start within a minute, 1 to 10000; 60 if not set"`
	MessageHops int `json:"messageHops,omitempty" jsonschema:"messages in a row by which agents may answer each other with nothing done in between, 1 to 1000; 20 if not set"`
	Monitors    int `json:"monitors,omitempty" jsonschema:"monitors at work at the same time, 1 to 10000; 200 if not set; more wait"`
	PerSession  int `json:"perSession,omitempty" jsonschema:"agents of all roots together in a session, 1 to 100000; 1000 if not set"`
}

// Agents is how agents behave.
type Agents struct {
	Summaries        string `json:"summaries,omitempty" jsonschema:"how often the summary of a running agent is renewed, such as 30s, which holds if not set; off: never"`
	NestedBackground bool   `json:"nestedBackground,omitempty" jsonschema:"agents started by agents may run in the background"`
	StallAfter       string `json:"stallAfter,omitempty" jsonschema:"how long nothing may be heard of an agent at work before its owner is told, such as 5m, which holds if not set; 0 or off: any time"`
	MultiTurn        bool   `json:"multiTurn,omitempty" jsonschema:"agents in the background wait for a message after each answer"`
	IdleTimeout      string `json:"idleTimeout,omitempty" jsonschema:"how long they wait, such as 10m, which holds if not set"`

	TeammateGrace string `json:"teammateGrace,omitempty" jsonschema:"how long a teammate that a model ends may take to finish, such as 30s, which holds if not set"`

	Catalog AgentCatalog `json:"catalog,omitzero" jsonschema:"a server that has definitions of agents"`

	BudgetUSD    float64 `json:"budgetUsd,omitempty" jsonschema:"US dollars that an agent at the top may spend, with all agents below it; not set: any"`
	BudgetTokens int64   `json:"budgetTokens,omitempty" jsonschema:"tokens that an agent at the top may use, with all agents below it, those from the cache included; not set: any"`
	BudgetWall   string  `json:"budgetWall,omitempty" jsonschema:"how long a run of an agent at the top may work, such as 30m; not set: any time"`
	BudgetOutput int64   `json:"budgetOutput,omitempty" jsonschema:"bytes of output files of an agent at the top and all below it; not set: any"`
}

// WallBudget is BudgetWall as a duration; 0: any.
func (a Agents) WallBudget() time.Duration { return duration(a.BudgetWall, 0) }

// AgentCatalog is a server that has definitions of agents.
type AgentCatalog struct {
	URL      string `json:"url,omitempty" jsonschema:"where it is: https, or http on this machine"`
	TokenEnv string `json:"tokenEnv,omitempty" jsonschema:"name of the environment variable that holds what it wants as a bearer token"`
}

// IdleLimit is IdleTimeout as a duration.
func (a Agents) IdleLimit() time.Duration { return duration(a.IdleTimeout, 10*time.Minute) }

// Grace is TeammateGrace as a duration.
func (a Agents) Grace() time.Duration { return duration(a.TeammateGrace, 30*time.Second) }

// SummaryEvery is Summaries as a duration; 0: never.
func (a Agents) SummaryEvery() time.Duration {
	if a.Summaries == "off" {
		return 0
	}
	return duration(a.Summaries, 30*time.Second)
}

// Stall is StallAfter as a duration; 0: never.
func (a Agents) Stall() time.Duration {
	if a.StallAfter == "off" {
		return 0
	}
	return duration(a.StallAfter, 5*time.Minute)
}

// Providers is where models are reached.
type Providers struct {
	Anthropic Provider `json:"anthropic,omitzero" jsonschema:"the Messages API"`
	OpenAI    Provider `json:"openai,omitzero" jsonschema:"the API of OpenAI, or a server that speaks it"`
}

// Provider is one way to models.
type Provider struct {
	BaseURL   string `json:"baseUrl,omitempty" jsonschema:"where the API is; empty: the usual place"`
	APIKeyEnv string `json:"apiKeyEnv,omitempty" jsonschema:"name of the environment variable that holds the key"`
	API       string `json:"api,omitempty" jsonschema:"openai only: chat (chat completions, the default) or responses"`
	Calls     int    `json:"calls,omitempty" jsonschema:"calls at the same time for each model; not set: any number"`
}

// Models is which models agents may be, and at what price.
type Models struct {
	Aliases       map[string]string  `json:"aliases,omitempty" jsonschema:"short names, beside sonnet, opus and haiku"`
	Available     []string           `json:"available,omitempty" jsonschema:"the models that may be used, by alias, name or a pattern such as claude-*; not set: all"`
	Prices        map[string]Price   `json:"prices,omitempty" jsonschema:"prices by model name or pattern, over the built-in table"`
	Windows       map[string]int64   `json:"windows,omitempty" jsonschema:"tokens that a model can read, by name or pattern"`
	CostGuard     string             `json:"costGuard,omitempty" jsonschema:"on (the default) or off: a subagent whose model costs more than that of the session gets that of the session"`
	Multipliers   map[string]float64 `json:"multipliers,omitempty" jsonschema:"what models cost relative to each other, for the cost guard; prices are used where none is set"`
	Explore       string             `json:"explore,omitempty" jsonschema:"the model of agents of type explore that ask for none"`
	Complementary map[string]string  `json:"complementary,omitempty" jsonschema:"the model of a second opinion, by the family of the asking model"`
}

// Price is what a model costs, in US dollars per million tokens.
type Price struct {
	Input      float64 `json:"input" jsonschema:"of tokens read"`
	Output     float64 `json:"output" jsonschema:"of tokens written"`
	CacheRead  float64 `json:"cacheRead,omitempty" jsonschema:"of tokens read from the cache; not set: a tenth of input"`
	CacheWrite float64 `json:"cacheWrite,omitempty" jsonschema:"of tokens put into the cache; not set: one and a quarter of input"`
}

// Context is how conversations are kept short.
type Context struct {
	AutoCompact string  `json:"autoCompact,omitempty" jsonschema:"on (the default) or off"`
	Share       float64 `json:"share,omitempty" jsonschema:"of the model's window at which a conversation is summed up, 0.1 to 0.95; 0.8 if not set"`
}

// Web is how pages are fetched.
type Web struct {
	MaxBytes int64  `json:"maxBytes,omitempty" jsonschema:"of one page, 1024 to 100000000; 5000000 if not set"`
	CacheTTL string `json:"cacheTtl,omitempty" jsonschema:"how long a page is kept, such as 15m, which holds if not set"`
}

// TTL is CacheTTL as a duration; 0: pages are not kept.
func (w Web) TTL() time.Duration { return duration(w.CacheTTL, 15*time.Minute) }

// Tasks is how tasks behave.
type Tasks struct {
	OutputLimitBytes  int64  `json:"outputLimitBytes,omitempty" jsonschema:"size of an output file at which its task ends, in bytes, 4096 to 1000000000000; 5000000000 if not set"`
	OutputLength      int    `json:"outputLength,omitempty" jsonschema:"characters of output that a model is shown, 100 to 160000; 32000 if not set"`
	WaitCeiling       string `json:"waitCeiling,omitempty" jsonschema:"how long -p waits for shell tasks after the last answer, such as 10m, which holds if not set"`
	StallAfter        string `json:"stallAfter,omitempty" jsonschema:"how long a background command may print nothing before the end of its output is looked at for a question, such as 45s, which holds if not set"`
	DisableBackground bool   `json:"disableBackground,omitempty" jsonschema:"nothing runs in the background"`

	UserQuotaBytes int64     `json:"userQuotaBytes,omitempty" jsonschema:"bytes of the output files of all sessions together, 65536 to 1000000000000000; 50000000000 if not set; beyond it nothing starts and what still grows is ended"`
	MaxProcesses   int       `json:"maxProcesses,omitempty" jsonschema:"processes that one command may have, up to 4194304; 4096 if not set; beyond it the command is ended; 0: any number"`
	MinFreeBytes   int64     `json:"minFreeBytes" jsonschema:"bytes that must be free where sessions are kept, or nothing starts, up to 1000000000000; 200000000 if not set; 0: any"`
	Retention      Retention `json:"retention,omitzero" jsonschema:"how long ended sessions are kept; not set: until somebody removes them"`
}

// Ceiling is WaitCeiling as a duration.
func (t Tasks) Ceiling() time.Duration { return duration(t.WaitCeiling, 10*time.Minute) }

// Stall is StallAfter as a duration.
func (t Tasks) Stall() time.Duration { return duration(t.StallAfter, 45*time.Second) }

// Note is something that was ignored or bent, for the user.
type Note struct {
	Source string // file, variable or flag
	Text   string
}

func (n Note) String() string { return n.Source + ": " + n.Text }

// Sources is where settings come from. Empty ones are passed over, and so are
// files that do not exist, but for Flag.
type Sources struct {
	User    string // file of the user
	Project string // file of the project, shared
	Local   string // file of the project, of this checkout
	Flag    string // a file, or JSON that begins with {
	Env     func(string) string

	// Settings of another program, of which hooks and what forbids are taken.
	UserForeign    []string // the user's
	ProjectForeign []string // the project's
	HookDir        string   // a folder of the project with files of hooks in the form of Copilot

	// Trusted says that the user trusts the folder of the project with the
	// files as they are. Then they may set what they like, but for where models
	// are reached and the mode that asks for nothing.
	Trusted bool
}

// Find names the usual files for a folder.
func Find(env func(string) string, folder, flag string) Sources {
	s := Sources{Flag: flag, Env: env,
		Project: filepath.Join(folder, ".drover", "settings.json"),
		Local:   filepath.Join(folder, ".drover", "settings.local.json"),

		ProjectForeign: []string{filepath.Join(folder, ".claude", "settings.json"), filepath.Join(folder, ".claude", "settings.local.json")},
		HookDir:        filepath.Join(folder, ".github", "hooks"),
	}
	if dir := env("HOME"); filepath.IsAbs(dir) {
		s.UserForeign = []string{filepath.Join(dir, ".claude", "settings.json")}
	}
	if dir := env("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		s.User = filepath.Join(dir, "drover", "settings.json")
	} else if dir := env("HOME"); filepath.IsAbs(dir) {
		s.User = filepath.Join(dir, ".config", "drover", "settings.json")
	}
	return s
}

// Load reads the sources. The flag wins over the environment, and that over the
// files of a project that is trusted, and those over the file of the user, and
// that over the defaults; rules and hooks of all add up. The files of a project
// that is not trusted add rules to ask and to deny, and nothing else. All files
// that cannot be read are named in the error; then the settings are not to be
// used.
func Load(src Sources) (Settings, []Note, error) {
	l := loader{}
	l.set.Trusted = src.Trusted
	l.set.Limits = Limits{Depth: 3, Live: 10, PerRoot: 200, SpawnRate: 60, MessageHops: 20, PerSession: 1000}
	l.set.Permissions.DefaultMode = "default"
	l.set.Durability = "crash"
	l.set.Tasks = Tasks{OutputLimitBytes: 5_000_000_000, OutputLength: 32_000, WaitCeiling: "10m", StallAfter: "45s",
		UserQuotaBytes: 50_000_000_000, MinFreeBytes: 200_000_000, MaxProcesses: 4096}
	l.set.Permissions.AskTimeout = "10m"
	l.set.Agents.Summaries, l.set.Agents.IdleTimeout = "30s", "10m"
	l.set.Agents.StallAfter = "5m"
	l.set.Agents.TeammateGrace = "30s"
	l.set.Providers.OpenAI.API = "chat"
	l.set.Models.CostGuard = "on"
	l.set.Context = Context{AutoCompact: "on", Share: 0.8}
	l.set.Web = Web{MaxBytes: 5_000_000, CacheTTL: "15m"}
	l.set.MCP = MCP{StartWait: "2s", IdleTimeout: "5m", CallTimeout: "10m", FrameBytes: 8 << 20, Tasks: "required"}
	l.set.Memory = Memory{Enabled: "on", Dream: "off", IdleAfter: "5m", Every: "24h", Sessions: 5, ShutdownTurns: 3}

	l.set.Monitors.Enabled, l.set.Limits.Monitors = true, 200
	l.set.Teleport, l.set.Remote.Offline = Teleport{Enabled: true, CwdSync: true}, "10m"

	of := untrusted
	if src.Trusted {
		of = project
	}
	for _, path := range src.UserForeign {
		l.foreign(path, own)
	}
	l.file(src.User, own)
	for _, path := range src.ProjectForeign {
		l.foreign(path, of)
	}
	l.hookDir(src.HookDir, src.Trusted)
	l.file(src.Project, of)
	l.file(src.Local, of)
	if src.Env != nil {
		l.env(src.Env)
	}
	if inline := strings.TrimSpace(src.Flag); strings.HasPrefix(inline, "{") {
		l.layer("--settings", []byte(inline), own)
	} else if src.Flag != "" {
		l.flagFile(src.Flag)
	}
	if len(l.errs) > 0 {
		return Settings{}, l.notes, errors.Join(l.errs...)
	}
	return l.set, l.notes, nil
}

type loader struct {
	set   Settings
	notes []Note
	errs  []error
}

func (l *loader) note(source, format string, args ...any) {
	l.notes = append(l.notes, Note{source, fmt.Sprintf(format, args...)})
}

// env reads variables: our own name first, then names of others that people
// have set already.
func (l *loader) env(env func(string) string) {
	first := func(names ...string) (string, string) {
		for _, n := range names {
			if v := env(n); v != "" {
				return n, v
			}
		}
		return "", ""
	}
	number := func(to *int, low, high int, names ...string) {
		name, text := first(names...)
		if name == "" {
			return
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			l.note(name, "%.40q is not a number, and is ignored", text)
			return
		}
		*to = l.clamp(name, "the value", n, low, high)
	}
	if _, v := first("DROVER_MODEL"); v != "" {
		l.set.Model = v
	}
	if _, v := first("DROVER_AGENT_CATALOG"); v != "" {
		l.set.Agents.Catalog.URL = v
	}
	number(&l.set.Limits.Live, 1, 256, "DROVER_MAX_LIVE", "COPILOT_SUBAGENT_MAX_CONCURRENT")
	number(&l.set.Limits.Depth, 1, 16, "DROVER_MAX_DEPTH", "COPILOT_SUBAGENT_MAX_DEPTH")
	number(&l.set.Tasks.OutputLength, 100, 160_000, "DROVER_MAX_OUTPUT_LENGTH", "TASK_MAX_OUTPUT_LENGTH")
	word := func(to *bool, names ...string) {
		switch name, v := first(names...); strings.ToLower(v) {
		case "":
		case "1", "true", "yes", "on":
			*to = true
		case "0", "false", "no", "off":
			*to = false
		default:
			l.note(name, "%.40q is neither true nor false, and is ignored", v)
		}
	}
	word(&l.set.Tasks.DisableBackground, "DROVER_DISABLE_BACKGROUND", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS")
	word(&l.set.Agents.MultiTurn, "DROVER_MULTI_TURN", "MULTI_TURN_AGENTS")
	word(&l.set.Memory.ShutdownRun, "DROVER_SUBCONSCIOUS", "COPILOT_SUBCONSCIOUS")
}

func (l *loader) clamp(source, what string, n, low, high int) int {
	if c := min(max(n, low), high); c != n {
		l.note(source, "%s %d is taken as %d (possible are %d to %d)", what, n, c, low, high)
		return c
	}
	return n
}

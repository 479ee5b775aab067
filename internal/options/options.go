// Package options declares everything that can be set: each option is one field with its name
// in files, its default, its bounds and what people read about it.
//
// [Options] is passed by value from the settings through the wiring to the session and its
// agents, so a new option is one field here and its use. The package reads no files and no
// variables; package settings does, by what [Declared] lists.
package options

import "time"

// Options is everything that can be set. The tag json has the name in files, jsonschema the
// words for the schema and for docs/settings.md, and set what [Rule] has: default, bounds, words,
// variables, and whether the files of a project may set it.
//
// The zero value is not usable; [Default] returns the options where nothing is set.
type Options struct {
	Model       string      `json:"model,omitempty" jsonschema:"model of the main agent: an alias, a full name, or provider/name" set:"env=DROVER_MODEL|ANTHROPIC_MODEL"`
	Permissions Permissions `json:"permissions,omitzero" jsonschema:"what tools may do"`
	Limits      Limits      `json:"limits,omitzero" jsonschema:"how much may run"`
	Agents      Agents      `json:"agents,omitzero" jsonschema:"how agents behave"`
	Durability  string      `json:"durability,omitempty" jsonschema:"what nothing acknowledged is lost by: crash (kill -9) or power (power loss too)" set:"default=crash,words=crash|power"`
	Providers   Providers   `json:"providers,omitzero" jsonschema:"where models are reached"`
	Tasks       Tasks       `json:"tasks,omitzero" jsonschema:"how tasks behave"`
	Models      Models      `json:"models,omitzero" jsonschema:"which models there are, and what they cost"`
	Context     Context     `json:"context,omitzero" jsonschema:"how conversations are kept short"`
	Web         Web         `json:"web,omitzero" jsonschema:"how pages are fetched"`
	MCP         MCP         `json:"mcp,omitzero" jsonschema:"how MCP servers are used"`
	Memory      Memory      `json:"memory,omitzero" jsonschema:"what is remembered from session to session" set:"own"`
	Remote      Remote      `json:"remote,omitzero" jsonschema:"where work can be done elsewhere" set:"own"`
	Workers     Workers     `json:"workers,omitzero" jsonschema:"where tasks of other machines are done" set:"own,see=machines.md"`
	Monitors    Monitors    `json:"monitors,omitzero" jsonschema:"how things are watched"`
	Todos       Todos       `json:"todos,omitzero" jsonschema:"lists of what is to be done"`
	Sandbox     Sandbox     `json:"sandbox,omitzero" jsonschema:"what bounds the commands that models start" set:"see=sandbox.md"`
	Telemetry   Telemetry   `json:"telemetry,omitzero" jsonschema:"what is exported by OpenTelemetry" set:"own,see=telemetry.md"`
	Notify      Notify      `json:"notify,omitzero" jsonschema:"how you are told, beside the terminals, of what needs you" set:"own,see=attention.md#away"`
	Terminal    Terminal    `json:"terminal,omitzero" jsonschema:"how the terminal UI behaves" set:"own"`
	Merge       Merge       `json:"merge,omitzero" jsonschema:"how changes of agents are merged" set:"see=merge.md"`
	Teleport    Teleport    `json:"teleport,omitzero" jsonschema:"how sessions are carried to other machines" set:"own"`
	MaxBudget   float64     `json:"maxBudgetUsd,omitempty" jsonschema:"US dollars that a session may spend; not set: any" set:"possible=0..1e9"`

	Plugins []string `json:"plugins,omitempty" jsonschema:"folders of plugins, absolute, beside those in the plugins folder of the user's configuration" set:"own"`

	// Hooks are read by package hook, which knows their forms. This has the hooks of all sources
	// that may run; settings has the hooks of each source.
	Hooks       map[string]any `json:"hooks,omitempty" jsonschema:"commands to run when something happens: an object of event names" set:"see=hooks.md"`
	DisableHook bool           `json:"disableAllHooks,omitempty" jsonschema:"no hook runs"`
}

// Power reports whether acknowledged data survives a power cut, and not only the end of the process.
func (o Options) Power() bool { return o.Durability == "power" }

// Permissions are the rules for calls of tools, and the mode for calls that no rule matches.
type Permissions struct {
	Allow       []string      `json:"allow,omitempty" jsonschema:"calls that run without a question, such as Bash(go test:*) or Edit(src/**)" set:"see=permissions.md"`
	Ask         []string      `json:"ask,omitempty" jsonschema:"calls that are always asked about"`
	Deny        []string      `json:"deny,omitempty" jsonschema:"calls that never run, such as Read(./.env)"`
	DefaultMode string        `json:"defaultMode,omitempty" jsonschema:"what happens to calls that no rule speaks of; auto is taken as default; projects cannot set bypassPermissions" set:"default=default,words=default|acceptEdits|plan|dontAsk|bypassPermissions|auto"`
	AskTimeout  time.Duration `json:"askTimeout,omitempty" jsonschema:"how long a question waits for somebody; then the call is denied and the model sees why" set:"default=10m,duration=0s"`
}

// Limits bound what agents may start.
type Limits struct {
	Depth   int `json:"depth,omitempty" jsonschema:"agents below agents" set:"default=3,clamp=1..16,env=DROVER_MAX_DEPTH|COPILOT_SUBAGENT_MAX_DEPTH"`
	Live    int `json:"live,omitempty" jsonschema:"agents at work at the same time; more wait" set:"default=10,clamp=1..256,env=DROVER_MAX_LIVE|COPILOT_SUBAGENT_MAX_CONCURRENT"`
	PerRoot int `json:"perRoot,omitempty" jsonschema:"agents that one root may start in a session: the main agent with all below it, or an agent that a client started" set:"default=200,clamp=1..100000"`

	SpawnRate   int `json:"spawnRate,omitempty" jsonschema:"agents that one root may start within a minute; a further start is refused, with how long to wait" set:"default=60,clamp=1..10000"`
	MessageHops int `json:"messageHops,omitempty" jsonschema:"messages in a row by which agents may answer each other with nothing done in between" set:"default=20,clamp=1..1000"`
	Monitors    int `json:"monitors,omitempty" jsonschema:"monitors at work at the same time; more wait" set:"default=200,clamp=1..10000,see=monitors.md"`
	Workflows   int `json:"workflows,omitempty" jsonschema:"workflows at work at the same time; a further start is refused" set:"default=100,clamp=1..10000,see=workflows.md"`
	PerSession  int `json:"perSession,omitempty" jsonschema:"agents of all roots together in a session" set:"default=1000,clamp=1..100000"`

	QuoteFrom int `json:"quoteFrom,omitempty" jsonschema:"the Agent tool says what so many agents at work, and each multiple, will likely use together, by earlier runs" set:"default=5,clamp=1..100000,see=unattended.md#quotes"`

	WakeWindow string  `json:"wakeWindow,omitempty" jsonschema:"part of a day, in local time, in which agents are woken that a usage limit has parked, such as 22:00-07:00; not set: at any time" set:"see=unattended.md"`
	WakeBudget float64 `json:"wakeBudget,omitempty" jsonschema:"US dollars that the agents of a provider may spend together after they were woken; not set: any" set:"possible=0..1e9,see=unattended.md"`
}

// Agents is how agents behave.
type Agents struct {
	Summaries        time.Duration `json:"summaries,omitempty" jsonschema:"how often the summary of a running agent is renewed; off: never" set:"default=30s,duration=1s,off"`
	NestedBackground bool          `json:"nestedBackground,omitempty" jsonschema:"agents started by agents may run in the background"`
	StallAfter       time.Duration `json:"stallAfter,omitempty" jsonschema:"how long nothing may be heard of an agent at work before its owner is notified; 0 or off: any time" set:"default=5m,duration=100ms,off,see=usage.md#silent-agents"`
	MultiTurn        bool          `json:"multiTurn,omitempty" jsonschema:"agents in the background wait for a message after each answer" set:"env=DROVER_MULTI_TURN|MULTI_TURN_AGENTS"`
	IdleTimeout      time.Duration `json:"idleTimeout,omitempty" jsonschema:"how long they wait before they end" set:"default=10m,duration=1s"`

	WaitForTasks time.Duration `json:"waitForTasks,omitempty" jsonschema:"how long an agent in the background waits for its own tasks after an answer; what still runs then is stopped, and named in the notification of its end" set:"default=10m,duration=1s,see=agents.md#its-own-tasks"`

	TeammateGrace time.Duration `json:"teammateGrace,omitempty" jsonschema:"how long a teammate that a model ends may take to finish" set:"default=30s,duration=1s,see=teammates.md"`

	Catalog AgentCatalog `json:"catalog,omitzero" jsonschema:"a server that has definitions of agents" set:"own"`

	BudgetUSD    float64       `json:"budgetUsd,omitempty" jsonschema:"US dollars that an agent at the top may spend, with all agents below it; not set: any" set:"possible=0..1e9,see=usage.md#budgets"`
	BudgetTokens int64         `json:"budgetTokens,omitempty" jsonschema:"tokens that an agent at the top may use, with all agents below it, those from the cache included; not set: any" set:"possible=0.."`
	BudgetWall   time.Duration `json:"budgetWall,omitempty" jsonschema:"how long a run of an agent at the top may work, such as 30m; not set: any time" set:"duration=1ms"`
	BudgetOutput int64         `json:"budgetOutput,omitempty" jsonschema:"bytes of output files of an agent at the top and all below it; not set: any" set:"possible=0.."`
}

// AgentCatalog is a server that has definitions of agents.
type AgentCatalog struct {
	URL      string `json:"url,omitempty" jsonschema:"where it is: https, or http on this machine" set:"env=DROVER_AGENT_CATALOG"`
	TokenEnv string `json:"tokenEnv,omitempty" jsonschema:"name of the environment variable that holds what it wants as a bearer token"`
}

// Providers is where models are reached.
type Providers struct {
	Anthropic Provider `json:"anthropic,omitzero" jsonschema:"the Messages API"`
	OpenAI    Provider `json:"openai,omitzero" jsonschema:"the API of OpenAI, or a server that speaks it"`
}

// Provider is one way to models.
type Provider struct {
	BaseURL   string `json:"baseUrl,omitempty" jsonschema:"where the API is; not set: the usual place" set:"own"`
	APIKeyEnv string `json:"apiKeyEnv,omitempty" jsonschema:"name of the environment variable that holds the key" set:"own"`
	API       string `json:"api,omitempty" jsonschema:"openai only: chat (chat completions, if not set) or responses" set:"words=chat|responses"`
	Calls     int    `json:"calls,omitempty" jsonschema:"calls at the same time for each model; 0: any number" set:"clamp=0..10000"`
}

// Models is which models agents may be, and at what price.
type Models struct {
	Aliases       map[string]string  `json:"aliases,omitempty" jsonschema:"short names, beside sonnet, opus and haiku and the others that drover models lists; ANTHROPIC_DEFAULT_SONNET_MODEL and its kin set one each"`
	Available     []string           `json:"available,omitempty" jsonschema:"the models that may be used, by alias, name or a pattern such as claude-*; not set: all"`
	Prices        map[string]Price   `json:"prices,omitempty" jsonschema:"US dollars per million tokens, by model name or pattern, over the built-in table"`
	Windows       map[string]int64   `json:"windows,omitempty" jsonschema:"tokens that a model can read, by name or pattern, over the built-in table"`
	CostGuard     string             `json:"costGuard,omitempty" jsonschema:"on: a subagent whose model costs more than that of the session gets that of the session" set:"default=on,words=on|off"`
	Multipliers   map[string]float64 `json:"multipliers,omitempty" jsonschema:"what models cost relative to each other, for the cost guard; prices are used where none is set"`
	Explore       string             `json:"explore,omitempty" jsonschema:"the model of agents of type explore that ask for none"`
	Complementary map[string]string  `json:"complementary,omitempty" jsonschema:"the model of a second opinion, by the family of the asking model"`
}

// Price is the price of a model, in US dollars per million tokens.
type Price struct {
	Input      float64 `json:"input" jsonschema:"of tokens read"`
	Output     float64 `json:"output" jsonschema:"of tokens written"`
	CacheRead  float64 `json:"cacheRead,omitempty" jsonschema:"of tokens read from the cache; not set: a tenth of input"`
	CacheWrite float64 `json:"cacheWrite,omitempty" jsonschema:"of tokens put into the cache; not set: one and a quarter of input"`
}

// Context is how conversations are kept short.
type Context struct {
	AutoCompact string  `json:"autoCompact,omitempty" jsonschema:"on: a conversation that fills the window of its model is summed up" set:"default=on,words=on|off"`
	Share       float64 `json:"share,omitempty" jsonschema:"of the model's window, at which that happens" set:"default=0.8,clamp=0.1..0.95"`
}

// Web is how pages are fetched.
type Web struct {
	MaxBytes int64         `json:"maxBytes,omitempty" jsonschema:"of one fetched page" set:"default=5000000,clamp=1024..100000000"`
	CacheTTL time.Duration `json:"cacheTtl,omitempty" jsonschema:"how long a fetched page is kept" set:"default=15m,duration=0s"`
}

// Tasks is how tasks behave.
type Tasks struct {
	OutputLimitBytes  int64         `json:"outputLimitBytes,omitempty" jsonschema:"size of an output file at which its task ends, in bytes" set:"default=5000000000,clamp=4096..1000000000000"`
	OutputLength      int           `json:"outputLength,omitempty" jsonschema:"characters of output that a model is shown" set:"default=32000,clamp=100..160000,env=DROVER_MAX_OUTPUT_LENGTH|TASK_MAX_OUTPUT_LENGTH"`
	WaitCeiling       time.Duration `json:"waitCeiling,omitempty" jsonschema:"how long -p waits for shell tasks after the last answer" set:"default=10m,duration=0s"`
	StallAfter        time.Duration `json:"stallAfter,omitempty" jsonschema:"how long a background command may print nothing before the end of its output is looked at: does it end with a question, does a line editor have the line, or does a program that draws on the whole screen stand still without showing progress" set:"default=45s,duration=100ms"`
	DisableBackground bool          `json:"disableBackground,omitempty" jsonschema:"nothing runs in the background" set:"env=DROVER_DISABLE_BACKGROUND|CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"`

	UserQuotaBytes int64     `json:"userQuotaBytes,omitempty" jsonschema:"bytes of the output files of all sessions together; beyond it nothing starts, and commands that still print are ended: failed, cause output_quota" set:"own,default=50000000000,clamp=65536..1000000000000000,see=usage.md#limits"`
	MaxProcesses   int       `json:"maxProcesses,omitempty" jsonschema:"processes that one command may have, with all that it has started; beyond it the command is ended: failed, cause process_limit; 0: any number; Linux only" set:"default=4096,clamp=0..4194304,see=usage.md#limits"`
	MinFreeBytes   int64     `json:"minFreeBytes" jsonschema:"bytes that must be free where sessions are kept, or nothing starts; what runs goes on, and things start again by themselves when there is space; 0: any" set:"own,default=200000000,clamp=0..1000000000000"`
	Retention      Retention `json:"retention,omitzero" jsonschema:"how long ended sessions are kept; not set: until somebody removes them" set:"own"`
}

// Retention limits how long ended sessions are kept. Both bounds hold; 0: no bound.
type Retention struct {
	Age   time.Duration `json:"age,omitempty" jsonschema:"how long ended sessions are kept, such as 30d or 12h, at least 1h; not set: until they are removed" set:"age=1h"`
	Bytes int64         `json:"bytes,omitempty" jsonschema:"what all sessions together may take, 1000000 or more: beyond it those that ended first are removed" set:"possible=1000000.."`
}

// KeepsAll reports whether no session is removed for its age or size.
func (r Retention) KeepsAll() bool { return r.Age <= 0 && r.Bytes <= 0 }

// MCP is how MCP servers are used. Files of their own list them.
type MCP struct {
	StartWait   time.Duration `json:"startWait,omitempty" jsonschema:"how long the start of an agent waits for its MCP servers; tools of those that come later are for later agents" set:"default=2s,duration=0s,see=mcp.md"`
	FirstWait   time.Duration `json:"firstWait,omitempty" jsonschema:"how long the first turn of drover -p waits for MCP servers; MCP_TIMEOUT sets it in milliseconds" set:"default=30s,duration=0s,see=mcp.md"`
	IdleTimeout time.Duration `json:"idleTimeout,omitempty" jsonschema:"how long a server goes on that nobody uses" set:"default=5m,duration=0s"`
	CallTimeout time.Duration `json:"callTimeout,omitempty" jsonschema:"how long a call of a tool of a server may take" set:"default=10m,duration=1ms"`
	FrameBytes  int           `json:"frameBytes,omitempty" jsonschema:"size of one message of a server, in bytes" set:"default=8388608,clamp=65536..1000000000"`
	Tasks       string        `json:"tasks,omitempty" jsonschema:"which tools of servers run as tasks: those that must, those that can, or none" set:"default=required,words=required|always|off,see=mcp.md#long-calls-as-tasks"`
}

// Memory is the memory from session to session.
type Memory struct {
	Enabled       string        `json:"enabled,omitempty" jsonschema:"on: new sessions begin with what is remembered of their folder; off: they do not, and nothing is remembered" set:"default=on,words=on|off,see=memory.md"`
	Dream         string        `json:"dream,omitempty" jsonschema:"auto: memory is consolidated by itself, which costs calls of a model" set:"default=off,words=off|auto"`
	Model         string        `json:"model,omitempty" jsonschema:"model that consolidates: an alias or a name; not set: haiku if possible, else that of the session"`
	IdleAfter     time.Duration `json:"idleAfter,omitempty" jsonschema:"auto: how long a session must have been idle" set:"default=5m,duration=1s"`
	Every         time.Duration `json:"every,omitempty" jsonschema:"auto: how long after the last consolidation" set:"default=24h,duration=0s"`
	Sessions      int           `json:"sessions,omitempty" jsonschema:"auto: sessions that must have been at work since the last" set:"default=5,clamp=1..1000"`
	ShutdownRun   bool          `json:"shutdownRun,omitempty" jsonschema:"a conversation that ends leaves an agent behind that brings what was learnt to the board" set:"env=DROVER_SUBCONSCIOUS|COPILOT_SUBCONSCIOUS"`
	ShutdownTurns int           `json:"shutdownTurns,omitempty" jsonschema:"prompts that such a conversation must have had" set:"default=3,clamp=1..1000"`
}

// On reports whether new sessions begin with the memory of their folder.
func (m Memory) On() bool { return m.Enabled != "off" }

// Auto reports whether memory is consolidated by itself.
func (m Memory) Auto() bool { return m.On() && m.Dream == "auto" }

// Monitors is how things are watched.
type Monitors struct {
	Enabled bool `json:"enabled" jsonschema:"agents have the tool Monitor, and drover monitor works" set:"default=true,see=monitors.md"`
}

// Todos is how to-do lists are used.
type Todos struct {
	Enabled bool `json:"enabled" jsonschema:"agents have the tools of to-dos: TaskCreate, TaskGet, TaskList, TaskUpdate" set:"default=true,see=todo.md"`
}

// Merge is how changes of agents are merged.
type Merge struct {
	Check string `json:"check,omitempty" jsonschema:"a shell command that must pass before drover merge moves a branch, such as make test; not set: none" set:"see=merge.md"`
}

// Sandbox is what bounds the commands that models start.
type Sandbox struct {
	Mode        string   `json:"mode,omitempty" jsonschema:"best: by what this machine has, which the record of each command says; required: by everything, or the command does not start; off: not at all; projects cannot set off" set:"default=best,words=required|best|off,env=DROVER_SANDBOX"`
	AutoAllow   bool     `json:"autoAllow" jsonschema:"commands that the sandbox bounds in every way run without a question; deny and ask rules hold, and so do the modes plan and dontAsk" set:"own,default=true,env=DROVER_SANDBOX_AUTO_ALLOW"`
	Write       []string `json:"write,omitempty" jsonschema:"further folders that commands may write, absolute or below ~" set:"own"`
	Hidden      []string `json:"hidden,omitempty" jsonschema:"further files and folders that commands cannot read, absolute or below ~" set:"own"`
	Outside     []string `json:"outside,omitempty" jsonschema:"hooks and MCP servers of projects that run outside, by the names that lists have: mcp:NAME, or hook: and the command; a * at the end stands for any text" set:"own"`
	UnixSockets []string `json:"unixSockets,omitempty" jsonschema:"Unix sockets of the machine that commands reach, such as /var/run/docker.sock, absolute or below ~" set:"own"`
	Domains     []string `json:"domains,omitempty" jsonschema:"hosts that commands reach without a question, such as proxy.golang.org, *.npmjs.org or 10.0.0.5:8443" set:"own"`

	Credentials map[string]SandboxCredential `json:"credentials,omitempty" jsonschema:"secrets that the proxy of the sandbox adds to requests, by name: commands use them and do not get them" set:"own,see=sandbox.md"`
}

// SandboxCredential is a secret that commands use and do not get. One of FromEnv, FromFile and FromCommand is set.
type SandboxCredential struct {
	Hosts       []string `json:"hosts" jsonschema:"hosts of https that get it, such as api.github.com"`
	Env         []string `json:"env,omitempty" jsonschema:"variables in which commands find a placeholder, for programs that want one"`
	FromEnv     string   `json:"fromEnv,omitempty" jsonschema:"your environment variable that has it; commands find a placeholder there too"`
	FromFile    string   `json:"fromFile,omitempty" jsonschema:"file that has it, absolute or below ~; commands cannot read it"`
	FromCommand string   `json:"fromCommand,omitempty" jsonschema:"command for the shell that prints it, such as gh auth token; it runs outside of the sandbox"`
	User        string   `json:"user,omitempty" jsonschema:"user of Basic, such as x-access-token for git; not set: it is a Bearer token"`
	Header      string   `json:"header,omitempty" jsonschema:"header that has it alone, such as X-Api-Key; not set: Authorization"`
}

// Telemetry is the export by OpenTelemetry.
type Telemetry struct {
	Mode     string `json:"mode,omitempty" jsonschema:"auto: where the variables OTEL_… ask for it; on: also without them, to the endpoint, or to port 4318 of this machine; off: never" set:"default=auto,words=auto|on|off,env=DROVER_TELEMETRY"`
	Endpoint string `json:"endpoint,omitempty" jsonschema:"address of the collector for OTLP over HTTP, such as http://localhost:4318; OTEL_EXPORTER_OTLP_ENDPOINT comes first"`
	Content  bool   `json:"content,omitempty" jsonschema:"prompts, answers, commands, and calls with their results are exported too"`
}

// Notify is how the user learns of open questions and ends without looking at a terminal.
type Notify struct {
	Desktop bool   `json:"desktop,omitempty" jsonschema:"by a notification of the desktop: notify-send on Linux, osascript on macOS; terminals then ring a bell only"`
	Command string `json:"command,omitempty" jsonschema:"by a command for the shell, which reads what needs you as JSON on stdin"`
	Webhook string `json:"webhook,omitempty" jsonschema:"by a POST of the same JSON to an address; chat services show its text"`
	Ntfy    string `json:"ntfy,omitempty" jsonschema:"by a topic of ntfy, such as https://ntfy.sh/my-topic"`

	WebhookKeyEnv string `json:"webhookKeyEnv,omitempty" jsonschema:"name of the environment variable that holds the bearer token of the webhook"`
	NtfyKeyEnv    string `json:"ntfyKeyEnv,omitempty" jsonschema:"name of the environment variable that holds the access token of ntfy"`

	After time.Duration `json:"after,omitempty" jsonschema:"how long something must need you before you are told; what comes meanwhile is in the same message" set:"default=10s,duration=0s"`
	Quiet string        `json:"quiet,omitempty" jsonschema:"part of a day, in local time, in which you are not told, also by terminals, such as 22:00-07:00; what still needs you at its end comes then"`
	When  string        `json:"when,omitempty" jsonschema:"any: also of failures; blocking: only of what waits for you" set:"default=any,words=any|blocking"`
}

// Terminal is how the terminal UI behaves.
type Terminal struct {
	Notify    string        `json:"notify,omitempty" jsonschema:"how you are told, while the window has no focus, that a turn has ended or that something needs you: a bell; osc: a bell and a notification of the desktop, by OSC 777 in rxvt and VTE, else OSC 9" set:"default=osc,words=off|bell|osc,see=terminal.md"`
	HintAfter time.Duration `json:"hintAfter,omitempty" jsonschema:"how long the agent waits for a command or an agent before the key is shown that moves it to the background" set:"default=2s,duration=0s"`

	Keys map[string]string `json:"keys,omitempty" jsonschema:"other keys of the conversation by what they do, such as {\"background\": \"ctrl+q\"}" set:"see=terminal.md"`

	Mouse bool `json:"mouse,omitempty" jsonschema:"the wheel scrolls and a click chooses; the terminal then selects text with shift held"`
}

// Workers is how a session reaches workers on other machines.
type Workers struct {
	Hub   string        `json:"hub,omitempty" jsonschema:"file with the join line of a hub, absolute, or the URL of a NATS cluster; not set: your own hub on this machine"`
	Creds string        `json:"credentials,omitempty" jsonschema:"file with the credentials for a NATS cluster, absolute"`
	Lease time.Duration `json:"lease,omitempty" jsonschema:"how long a worker that cannot be reached goes on with a task" set:"default=30s,duration=1s"`
}

// Remote is where work can be done elsewhere.
type Remote struct {
	Services map[string]RemoteService `json:"services,omitempty" jsonschema:"services of remote agents, by name" set:"see=remote-agents.md"`
	Default  string                   `json:"default,omitempty" jsonschema:"name of the service that is meant where none is named; not set: the only one"`
	Checkers map[string]string        `json:"checkers,omitempty" jsonschema:"shell commands that say when remote work of a type is done, by type"`
	Offline  time.Duration            `json:"offline,omitempty" jsonschema:"how long a service may give no answer before its work is given up" set:"default=10m,duration=1s"`
}

// RemoteService is one service.
type RemoteService struct {
	URL      string `json:"url" jsonschema:"address of an A2A agent card: https, or http on this machine"`
	TokenEnv string `json:"tokenEnv,omitempty" jsonschema:"name of the environment variable that holds its token"`
	Protocol string `json:"protocol,omitempty" jsonschema:"a2a: the address is that of an agent card, though it does not end in /agent-card.json" set:"words=a2a"`
}

// AnyPath reports whether the user says that the address is that of a card.
func (s RemoteService) AnyPath() bool { return s.Protocol == "a2a" }

// Usual is the name of the service that is meant where none is named, or empty.
func (r Remote) Usual() string {
	if r.Default != "" || len(r.Services) != 1 {
		return r.Default
	}
	for name := range r.Services {
		return name
	}
	return ""
}

// Teleport is how sessions are carried to other machines.
type Teleport struct {
	Enabled bool `json:"enabled" jsonschema:"sessions can be exported and imported" set:"default=true,see=teleport.md"`
	CwdSync bool `json:"cwdSync" jsonschema:"an exported session names its folder, and goes on there" set:"default=true"`
	EnvSync bool `json:"envSync" jsonschema:"an exported session holds the variables that are named"`
}

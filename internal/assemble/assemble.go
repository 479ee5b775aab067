// Package assemble puts an open session together from a folder, settings and
// the options of a command line: its place, its keeper, its socket, its rules.
//
// It owns nothing but the order of opening and closing, which is the same for
// every program that holds a session.
package assemble

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/assemble/bare"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/model/modelinfo"
	"github.com/drover-dev/drover/internal/model/provider"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Config says which session, and what may happen in it.
type Config struct {
	bare.Config

	// Starter starts this program as the process in the namespaces of a session, see
	// [sandbox.RunStarter]. nil: none.
	Starter []string

	agents.Program
	Model string                 // instead of the settings' one
	Own   map[string]agent.Model // models of the program itself, by name

	Agents []byte // definitions of agents that come before all files, as JSON; see [catalog.ParseJSON]
	// Definitions are those of the program itself, which come before all others.
	Definitions []subagent.Definition

	// Callbacks are hooks of the program itself, which run after the hooks of files.
	Callbacks []hook.Callback
	MCP       []string // files of MCP servers, or JSON, that come before the files of the folder and the user

	// Skip says which files of the user and the folder are passed over. Settings are read
	// without them already.
	Skip settings.Skip
	// Skills are the names of those that models may use; nil: all.
	Skills []string
	// GivenMCP says that only the MCP servers in MCP count.
	GivenMCP bool
	// QuietPlugins are folders of plugins whose MCP servers do not count; absolute.
	QuietPlugins []string

	// Brief says that the session ends with its work: nothing is begun because
	// it is idle.
	Brief bool

	// Observer follows the session; nil: none.
	Observer Observer

	Seam environment.Seam // see [session.Agents]
	// Played says that the session plays a recording to its end: it starts no process and uses no network. It
	// has no hooks, MCP servers, worktrees and lists of other servers, also where definitions of agents name some.
	Played bool

	// TrustNoted says that the user has been told that files of the folder wait for
	// trust, so that Tell need not say it of each.
	TrustNoted bool
}

// Observer follows a session without a part in it. None of its methods fails or holds the session up, but
// for a moment at the end.
type Observer interface {
	// Agent is called with every event of an agent, by several goroutines, also before Open.
	Agent(from task.ID, e agent.Event)
	// Open is called when the session is open.
	Open(s *Session)
	// Ended is called with the number of the newest event of the log, before the log is closed.
	Ended(last task.Seq)
	// Close is called when the session is closed, if Open was called.
	Close()
}

// Session is an open session that others can reach by its socket.
type Session struct {
	*session.Session
	bare.Host

	observer Observer  // nil: none
	observed sync.Once // its Close was called

	models   *provider.Finder
	accounts *usage.Accounts
	prices   usage.Table
	pool     *mcpclient.Pool    // nil: not made yet
	fetches  sync.WaitGroup     // asks for agents of a server; letGo waits for it
	unfetch  context.CancelFunc // nil: nothing is asked
}

// Open opens the session and begins to listen. Serve must be called to answer.
func Open(ctx context.Context, c Config) (_ *Session, err error) {
	s := &Session{models: &provider.Finder{Own: c.Own}}
	model, env := cmp.Or(c.Model, c.Settings.Model), withProviders(c.Env, c.Settings)
	if c.Role == session.RolePrompt {
		// A prompt without a reachable model leaves no session.
		if err := s.reachable(c, home.Lookup(env)); err != nil {
			return nil, err
		}
	}
	cfg := session.Config{Sandbox: Sandbox(c), Hub: hubOf(c)}
	if cfg.Config, err = s.Host.Prepare(&c.Config); err != nil {
		return nil, errors.Join(err, s.letGo())
	}
	cfg.Options = c.options(model)
	if o := c.Observer; o != nil {
		c.On, cfg.Ended = both(c.On, o.Agent), o.Ended
	}
	if err = s.Place.Ensure(); err == nil {
		cfg.Agents, err = s.agents(c, env)
	}
	if err == nil {
		s.Session, err = session.Open(ctx, cfg)
	}
	if err != nil {
		return nil, errors.Join(err, s.letGo())
	}
	if err = s.Host.Listen(cfg.Info); err != nil {
		return nil, errors.Join(err, s.Session.Close(), s.letGo())
	}
	if c.Observer != nil {
		s.observer = c.Observer
		s.observer.Open(s)
	}
	return s, nil
}

// options returns the options of the settings for a session with a model. A session that ends with its work
// begins nothing in idle time.
func (c Config) options(model string) options.Options {
	opt := c.Settings.Options
	if opt.Model = model; c.Brief || c.Role == session.RoleRun {
		opt.Memory.Dream = "off"
	}
	return opt
}

// both tells two of events of agents; the first may be nil.
func both(one, other func(task.ID, agent.Event)) func(task.ID, agent.Event) {
	if one == nil {
		return other
	}
	return func(from task.ID, e agent.Event) {
		one(from, e)
		other(from, e)
	}
}

// Cost is what the models of the session have cost so far, in US dollars; whole
// is false if the price of some calls is not known.
func (s *Session) Cost() (usd float64, whole bool) {
	t := s.accounts.Totals()
	return t.USD, t.Unpriced == 0
}

// Price is what one call of a model costs in US dollars; known is false where that is not
// known.
func (s *Session) Price(model string, u agent.Usage) (usd float64, known bool) {
	return s.prices.Cost(model, u)
}

// ModelLimits are how many tokens a model can read, and write in one reply; 0: not known.
func (s *Session) ModelLimits(model string) (window, output int64) {
	window, _ = s.prices.Window(model)
	return window, modelinfo.MostOutput(model)
}

// letGo closes the parts that the session does not close.
func (s *Session) letGo() error {
	var errs []error
	if s.unfetch != nil {
		s.unfetch()
		s.fetches.Wait()
	}
	if s.Session == nil {
		errs = append(errs, s.Host.Fail(nil))
	}
	if s.Session == nil && s.pool != nil {
		s.pool.Close()
	}
	if s.accounts != nil {
		errs = append(errs, s.accounts.Close())
	}
	s.models.Close()
	return errors.Join(errs...)
}

// Serve answers on the socket in the background until Close. An isolated session
// has none.
func (s *Session) Serve() { s.Host.Serve(s) }

// ServeUntilIdle answers on the socket until ctx ends or the session has had no
// live task for so long.
func (s *Session) ServeUntilIdle(ctx context.Context, idle time.Duration) error {
	return s.Host.ServeUntilIdle(ctx, s, idle)
}

// Close ends everything in order. A client that waits for a task learns of its end
// before the socket goes.
func (s *Session) Close() error {
	err := s.Session.Close()
	if s.observer != nil {
		defer s.observed.Do(s.observer.Close)
	}
	return errors.Join(err, s.Host.Close(), s.letGo())
}

// Rules joins the rules of the settings and of the command line. Tools by which an agent
// works on its own tasks need no rule.
func Rules(c Config) policy.Rules {
	p := c.Settings.Permissions
	r := policy.Rules{
		Mode:         policy.Mode(p.DefaultMode),
		Allow:        slices.Concat(p.Allow, own()),
		Ask:          p.Ask,
		Deny:         slices.Clone(p.Deny),
		Dirs:         slices.Clone(c.Settings.Dirs),
		Home:         home.Lookup(c.Env)("HOME"),
		Path:         home.Lookup(c.Env)("PATH"),
		ReadOnlyAuto: true,
		Filtered:     true,
		Memory:       policy.NewMemory(),
	}
	return r
}

// reachable says why the model of the main agent cannot be asked.
func (s *Session) reachable(c Config, env func(string) string) error {
	var missing error
	p := choose.Policy{Models: c.Settings.Models}
	p.Reachable = func(name string) error {
		_, missing = s.models.Find(name, env, c.Folder)
		return missing
	}
	choice, err := p.Choose(choose.Request{Input: c.Model, Parent: c.Settings.Model})
	switch {
	case missing != nil && !errors.Is(missing, choose.ErrUnknown):
		return missing
	case err != nil:
		return err
	}
	_, err = s.models.Find(choice.Name, env, c.Folder)
	return err
}

// own are the tools by which an agent works on its own tasks and lists: they need
// no permission.
func own() []string {
	return []string{
		"Agent", "TaskStop", "TaskOutput", "ListTasks", "SendMessage", "read_agent", "TaskCreate",
		"TaskUpdate", "TaskGet", "TaskList", "Skill", "AskUserQuestion", "report_intent",
		"context_board", "Workflow",
	}
}

// Environ is the environment of a client as its agents look for models in it.
func Environ(env []string, set settings.Settings) []string { return withProviders(env, set) }

// withProviders lets settings say where a provider is, as the usual variables
// would; the variables win. A key in a variable with a name of the
// user's goes to the usual one, which no command is given. What the set-up page has kept
// counts where neither says anything.
func withProviders(env []string, all settings.Settings) []string {
	p := all.Providers
	env = append(slices.Clip(env), all.Saved.Variables(home.Lookup(env), p)...)
	get := home.Lookup(env)
	set := func(name, value string) {
		if value != "" && get(name) == "" {
			env = append(slices.Clip(env), name+"="+value)
		}
	}
	for prefix, one := range map[string]options.Provider{"ANTHROPIC": p.Anthropic, "OPENAI": p.OpenAI} {
		set(prefix+"_BASE_URL", one.BaseURL)
		set("DROVER_"+prefix+"_API", one.API)
		if one.APIKeyEnv != "" {
			set(prefix+"_API_KEY", get(one.APIKeyEnv))
		}
		if one.Calls > 0 {
			set("DROVER_"+prefix+"_CALLS", strconv.Itoa(one.Calls))
		}
	}
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		usual := slices.Contains([]string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"}, name)
		return name != "" && !usual && (name == p.Anthropic.APIKeyEnv || name == p.OpenAI.APIKeyEnv)
	})
}

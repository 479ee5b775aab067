package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/frontend/agentsdk"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/prompt"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/project/trust"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/tool/usertools"
	"github.com/drover-dev/drover/task"
)

// For returns the same for the sessions of another folder.
func (b prompts) For(path string) prompt.Outside { return prompts{b.in(path)} }

// Fork makes a new session with the conversation of another one so far, or before a prompt.
func (b *folder) Fork(from task.ID, req control.ForkRequest) (control.Forked, error) {
	place := b.root.Project(b.cwd).Session(from)
	return archive.Fork(place, req, agent.Meta{Version: b.version, Cwd: b.cwd})
}

// promptSettings are those for a prompt, and trusts the folder if that is asked.
func (b prompts) promptSettings(ctx context.Context, p *prompt.Prompt) (settings.Settings, error) {
	if p.Trust {
		if err := b.root.Ensure(); err != nil { // the first session of this user
			return settings.Settings{}, err
		}
		store := trust.At(b.root.TrustFile())
		st, err := store.Check(b.cwd)
		if err == nil && st.Needed() {
			err = store.Grant(ctx, st)
		}
		if err != nil {
			return settings.Settings{}, err
		}
	}
	set, err := b.settings(p.Settings, p.Skip)
	if p.MaxBudget > 0 {
		set.MaxBudget = p.MaxBudget
	}
	return set, err
}

// config is how the session of a prompt is opened.
func (b prompts) config(p *prompt.Prompt, set settings.Settings, id task.ID) assemble.Config {
	set.Plugins = slices.Concat(set.Plugins, p.Plugins, p.QuietPlugins)
	set.Add(settings.Source{Name: "--allowed-tools", Allow: console.SplitRules(p.Allowed)})
	set.Add(settings.Source{Name: "--disallowed-tools", Deny: console.SplitRules(p.Disallowed)})
	set.Dirs = slices.Concat(set.Dirs, p.Dirs)
	set.Permissions.DefaultMode = cmp.Or(p.Mode, set.Permissions.DefaultMode)
	cfg := b.opening(session.RolePrompt, console.Title(p.Prompt), set)
	cfg.Session, cfg.Copier, cfg.AskWait = id, b.copier(), p.AskTimeout
	cfg.Fallback, cfg.Skip, cfg.GivenMCP, cfg.QuietPlugins = p.Instead, p.Skip, p.GivenMCP, p.QuietPlugins
	cfg.Model, cfg.Agents, cfg.MCP = p.Model, []byte(p.Agents), p.MCP
	return cfg
}

// mainOf is what the main agent of a prompt is made of.
func mainOf(p *prompt.Prompt) (session.MainConfig, error) {
	cfg := session.MainConfig{Agent: p.Agent, Model: p.Model, System: p.System, AppendSystem: p.AppendSystem,
		MaxTurns: p.MaxTurns, Autopilot: p.Autopilot, Tools: p.Tools,
		Thinking: agent.Thinking{Effort: p.Effort, Tokens: p.ThinkingTokens}}
	if p.Schema == "" {
		return cfg, nil
	}
	var err error
	if cfg.Schema, err = usertools.ParseSchema([]byte(p.Schema)); err != nil {
		return cfg, console.Usage(fmt.Sprintf("read the schema of the answer: %v", err),
			"see docs/stream-json.md#structured-output")
	}
	return cfg, nil
}

// ceiling is how long commands are waited for.
func ceiling(p *prompt.Prompt, set settings.Settings) time.Duration {
	switch {
	case p.NoWait:
		return 0
	case p.WaitCeiling > 0:
		return p.WaitCeiling
	}
	return set.Tasks.WaitCeiling
}

// Answer answers a prompt in this process.
func (b prompts) Answer(ctx context.Context, p *prompt.Prompt, id task.ID) error {
	return b.answerOn(ctx, p, id, nil)
}

// answerOn is Answer for a prompt that is recorded or played; around nil: it is neither.
func (b prompts) answerOn(ctx context.Context, p *prompt.Prompt, id task.ID, around *taped) error {
	set, err := b.promptSettings(ctx, p)
	if err != nil {
		return err
	}
	d, cfg, err := b.driven(ctx, p, func() assemble.Config { return b.config(p, set, id) })
	if err != nil {
		return err
	}
	mine, err := mainOf(p)
	if err != nil {
		d.refuse(err)
		return err
	}
	cfg.Brief = true
	cfg.Keeper = b.helper()
	around.setUp(&cfg)
	var out *agentsdk.Stream // set before the first conversation begins
	cfg.On = func(from task.ID, e agent.Event) { out.Agent(from, e) }
	if p.HookEvents {
		cfg.OnHook = func(from task.ID, r hook.Ran) {
			out.Hook(agentsdk.Hook{From: from, ID: r.ID, Event: string(r.Event), About: r.About, Done: r.Done,
				Stdout: r.Stdout, Stderr: r.Stderr, Code: r.Code, Outcome: r.Outcome})
		}
	}
	s, err := b.open(ctx, cfg)
	if err != nil {
		err = locked(err, id)
		d.refuse(err)
		return err
	}
	var m *session.Main // set before its first turn
	mine.Done = func(t conversation.Turn) {
		if t.Beside {
			out.Beside(t.Result, t.Err)
		}
		b.goesOn(p, m, t)
	}
	if m, err = s.OpenMain(ctx, mine); err != nil {
		d.refuse(err)
		return errors.Join(err, s.Close())
	}
	b.sayFailure()
	o := b.streamOptions(ctx, p, set, s, m)
	o.Out, o.States = d.out(), d != nil && b.readsState()
	if around.silent() {
		o.Out, o.Denied = io.Discard, io.Discard
	}
	o.MCPServers = append(o.MCPServers, d.servers()...)
	out = agentsdk.New(o)
	s.Serve()
	defer b.suspends(s)()
	a := &answerer{b, d, p, set, s, m, out, around}
	return a.run(ctx)
}

func (b prompts) streamOptions(ctx context.Context, p *prompt.Prompt, set settings.Settings, s *assemble.Session,
	m *session.Main) agentsdk.Options {
	info, _ := s.Info(ctx) // of a session in this process there always is one
	o := agentsdk.Options{Out: os.Stdout, Format: agentsdk.Format(p.Format), Partial: p.Partial, Session: info.Session,
		Cwd: b.cwd, Model: m.Model(),
		PermissionMode: cmp.Or(p.Mode, set.Permissions.DefaultMode), Version: b.version, Tools: m.Tools(),
		MCPServers: mcpServers(m), Agents: s.Catalog().Names(),
		Denied: b.stderr, Terminal: isTerminal(os.Stdout), Since: s.Since, NextCommit: s.NextCommit, Start: s.Newest()}
	if all, err := s.Commands(ctx); err == nil {
		for _, one := range all.Commands {
			if one.ShadowedBy == "" && !one.NotForPeople {
				o.Commands = append(o.Commands, one.Name)
			}
			if one.ShadowedBy == "" && one.Kind == "skill" {
				o.Skills = append(o.Skills, one.Name)
			}
		}
	}
	if page, err := s.List(ctx, control.ListRequest{}); err == nil {
		o.Live = page.Tasks
	}
	o.Cost, o.Price, o.Limits = s.Cost, s.Price, s.ModelLimits
	o.Effort = m.ModelSettings().Thinking.Effort
	if home.Lookup(b.env)("ANTHROPIC_API_KEY") != "" {
		o.KeySource = "ANTHROPIC_API_KEY"
	}
	o.Warn = b.stderr
	if p.Verbose && o.Format != agentsdk.StreamJSON {
		o.Err = b.stderr
	}
	o.Answer = func(ctx context.Context, r task.Record) string {
		text, _ := s.Answer(ctx, r) // what cannot be read is shown as none
		return text
	}
	return o
}

// answerer is a prompt, or a program with several, and the session that answers in this process.
type answerer struct {
	prompts
	driver *driver // nil: there is one prompt
	p      *prompt.Prompt
	set    settings.Settings
	s      *assemble.Session
	m      *session.Main
	out    *agentsdk.Stream
	around *taped
}

// run holds the conversation, closes the session, and prints what is left to print. The error says
// with which code the program exits.
func (a *answerer) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, a.s.HastenHooks)()
	var interrupted atomic.Bool
	onInterrupt(ctx, func() { interrupted.Store(true); a.m.Interrupt() })
	receipt, err := a.converse(ctx)
	last := a.m.Last()
	a.endMonitors(ctx, a.s)
	if ctx.Err() == nil && last.Err != nil && agentsdk.Format(a.p.Format) != agentsdk.StreamJSON { // whose lines have it
		for _, t := range a.m.Waited() {
			fmt.Fprintf(a.stderr, "drover: stopping %s (%s), since the turn has failed\n", t.ID,
				excerpt.Line(cmp.Or(t.Description, t.Command, t.Name), 60))
		}
	}
	closed := a.s.Close() // Finish prints the tasks that it ends
	if !a.around.plays() {
		a.part(a.m, a.p.Settings)
	}
	printed := a.out.Finish()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case printed != nil:
		return printed
	case interrupted.Load():
		return &console.ExitError{Code: 130}
	case errors.Is(err, conversation.ErrCeiling):
		for _, t := range receipt.Stopped {
			fmt.Fprintf(a.stderr, "drover: stopped %s at the wait ceiling: %s\n", t.ID, t.Status)
		}
		return cmp.Or[error](last.Err, &console.ExitError{Code: 124, Err: err})
	case err != nil:
		return err
	case last.Err != nil:
		return last.Err
	case agentsdk.Format(a.p.Format) == agentsdk.Text && !a.p.Verbose && strings.TrimSpace(last.Result.Text) == "":
		fmt.Fprintln(a.stderr, "drover: note: the answer is empty")
	}
	return closed
}

// converse holds the conversation until nothing is left to wait for. It returns when no turn runs
// and all of it is printed; the receipt has the tasks that were stopped at the wait ceiling.
func (a *answerer) converse(ctx context.Context) (receipt task.Receipt, err error) {
	work, end := context.WithCancelCause(ctx)
	defer context.AfterFunc(a.s.Alone(), func() {
		if why := context.Cause(a.s.Alone()); errors.Is(why, session.ErrFolderGone) {
			end(why)
		}
	})()
	var turns, printer sync.WaitGroup
	printing, quiet := context.WithCancel(context.Background())
	printer.Go(func() {
		if err := a.out.Run(printing); err != nil && printing.Err() == nil {
			end(err) // the reader has gone
		}
	})
	if a.driver == nil {
		err = a.s.Prompt(ctx, control.PromptRequest{Text: a.p.Prompt, Images: a.p.Images})
	}
	turns.Go(func() { a.m.Run(work) }) // not before, or mail that waits has a turn of its own
	if a.driver != nil {
		err = a.drive(work, &turns)
	}
	if err == nil {
		receipt, err = a.m.Settle(work, ceiling(a.p, a.set))
	}
	end(task.ErrClosing)
	turns.Wait()
	quiet()
	printer.Wait()
	return receipt, err
}

// goesOn notes that background work continues after a failed turn.
func (b prompts) goesOn(p *prompt.Prompt, m *session.Main, t conversation.Turn) {
	if t.Err == nil || !conversation.ModelFailed(t.Err) || p.NoWait {
		return
	}
	if n := len(m.Waited()); n > 0 {
		fmt.Fprintf(b.stderr, "drover: the turn has failed: %s; background work is waited for, %s (Ctrl-C stops it)\n",
			excerpt.Line(t.Err.Error(), 600), console.Plural(n, "task"))
	}
}

func locked(err error, id task.ID) error {
	if errors.Is(err, home.ErrLocked) {
		return console.Conflict(fmt.Sprintf("session %s is open in another process", id),
			fmt.Sprintf("use `drover attach %s`, stop it with `drover stop`, or add --fork-session", id))
	}
	return err
}

// mcpServers are the servers of the main agent, for system/init.
func mcpServers(m *session.Main) []agentsdk.MCPServer {
	var out []agentsdk.MCPServer
	for _, s := range m.Servers() {
		out = append(out, agentsdk.MCPServer{Name: s.Name, Status: s.Status})
	}
	return out
}

// endMonitors stops the monitors of a conversation that is over, and says so.
func (b prompts) endMonitors(ctx context.Context, s *assemble.Session) {
	if ctx.Err() != nil { // closing ends them without a note
		return
	}
	live, err := s.EndMonitors(ctx)
	for _, r := range live {
		fmt.Fprintf(os.Stderr, "drover: stopped monitor %s at the end: %s\n", r.ID, excerpt.Line(r.Description, 60))
	}
	if err != nil {
		b.note(err.Error())
	}
}

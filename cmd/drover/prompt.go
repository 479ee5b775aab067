package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/catalog"
	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/agentenv/settings"
	"github.com/drover-dev/drover/internal/agentenv/trust"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/frontend/agentsdk"
	"github.com/drover-dev/drover/internal/frontend/cli"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/upkeep"
	"github.com/drover-dev/drover/task"
)

// Bounds of a prompt that comes on stdin.
const (
	maxStdin  = 10 << 20
	stdinWait = time.Second // for the first byte, when there is a prompt already
)

// promptFlags are the flags of `drover -p`.
type promptFlags struct {
	Print           bool          `json:"-"`
	Attach          bool          `json:"-"` // without a prompt, by somebody who stays
	Detach          bool          `json:"-"`
	Format          string        `json:"-"`
	Partial         bool          `json:"-"`
	Verbose         bool          `json:"-"`
	Model           string        `json:"model,omitempty"`
	Agent           string        `json:"agent,omitempty"`
	MaxTurns        int           `json:"max_turns,omitempty"`
	System          string        `json:"system,omitempty"`
	AppendSystem    string        `json:"append_system,omitempty"`
	Mode            string        `json:"mode,omitempty"`
	Allowed         []string      `json:"allowed,omitempty"`
	Disallowed      []string      `json:"disallowed,omitempty"`
	Settings        string        `json:"settings,omitempty"`
	Dirs            []string      `json:"dirs,omitempty"`
	Resume          string        `json:"-"`
	Continue        bool          `json:"-"`
	Session         string        `json:"session,omitempty"`
	NoWait          bool          `json:"-"`
	WaitCeiling     time.Duration `json:"wait_ceiling,omitempty"`
	MaxBudget       float64       `json:"max_budget_usd,omitempty"`
	Agents          string        `json:"agents,omitempty"`
	Autopilot       bool          `json:"autopilot,omitempty"`
	AskTimeout      time.Duration `json:"ask_timeout,omitempty"`
	Trust           bool          `json:"-"`
	Fork            bool          `json:"-"`
	MCP             []string      `json:"mcp,omitempty"`
	Prompt          string        `json:"prompt"`
	waitCeilingText string
}

// isPrompt reports whether the words ask for `drover -p`: that flag before the
// first word that is neither a flag nor the value of one.
func isPrompt(args []string) bool {
	var p promptFlags
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	p.add(flags)
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "-p" || a == "--print":
			return true
		case a == "--" || !strings.HasPrefix(a, "-"):
			return false
		case strings.HasPrefix(a, "--") && !strings.Contains(a, "="):
			if f := flags.Lookup(a[2:]); f != nil && f.NoOptDefVal == "" {
				i++
			}
		}
	}
	return false
}

// add declares the flags, whose names are also known in camel case.
func (p *promptFlags) add(f *pflag.FlagSet) {
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName { return pflag.NormalizedName(kebab(name)) })
	f.BoolVarP(&p.Print, "print", "p", false, "answer one prompt and print the answer")
	f.BoolVarP(&p.Detach, "detach", "d", false, "answer in a detached host and print its session")
	f.StringVar(&p.Format, "output-format", "text", "text, json or stream-json")
	f.BoolVar(&p.Partial, "include-partial-messages", false, "stream-json: show replies as they come in")
	f.BoolVar(&p.Verbose, "verbose", false, "tell about tasks on stderr")
	f.StringVar(&p.Model, "model", "", "an alias, a full name, PROVIDER/NAME, or script:FILE")
	f.StringVar(&p.Agent, "agent", "", "be this sort of agent")
	f.StringVar(&p.Agents, "agents", "", "definitions of agents as JSON: an object from names to definitions")
	f.StringArrayVar(&p.MCP, "mcp-config", nil, "a file of MCP servers, or JSON, beside those of the folder and the user")
	f.IntVar(&p.MaxTurns, "max-turns", 0, "model replies at most (default 50)")
	f.StringVar(&p.System, "system-prompt", "", "instead of the usual system prompt")
	f.StringVar(&p.AppendSystem, "append-system-prompt", "", "behind the system prompt")
	f.StringVar(&p.Mode, "permission-mode", "", "default, acceptEdits, plan, dontAsk or bypassPermissions")
	f.StringArrayVar(&p.Allowed, "allowed-tools", nil, "calls that run without a question, such as 'Bash(go test:*),Edit'")
	f.StringArrayVar(&p.Disallowed, "disallowed-tools", nil, "calls that never run")
	f.StringVar(&p.Settings, "settings", "", "a settings file, or JSON")
	f.StringArrayVar(&p.Dirs, "add-dir", nil, "a further folder that tools may use")
	f.StringVarP(&p.Resume, "resume", "r", "", "go on with this session")
	f.BoolVarP(&p.Continue, "continue", "c", false, "go on with the last session of this folder")
	f.StringVar(&p.Session, "session-id", "", "the ID of the new session")
	f.BoolVar(&p.Fork, "fork-session", false, "with --resume or --continue: go on in a new session, and leave the old one as it is")
	f.Float64Var(&p.MaxBudget, "max-budget-usd", 0, "dollars that the session may spend")
	f.DurationVar(&p.AskTimeout, "ask-timeout", 0, "how long questions wait for `drover approvals` (default: they are denied; with -d as the settings say)")
	f.BoolVar(&p.Trust, "trust", false, "trust this folder with the files it has now")
	f.BoolVar(&p.Autopilot, "autopilot", false, "go on until the agent says that all is done, with 5 reminders at most")
	f.BoolVar(&p.NoWait, "no-wait", false, "do not wait for background work")
	f.StringVar(&p.waitCeilingText, "wait-ceiling", "", "how long commands are waited for after the last answer (default 10m)")
}

// kebab turns the camel case of foreign programs into our spelling.
func kebab(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('-')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// promptCommand is `drover -p`, which has no commands below it: a prompt may be
// any word.
func (w *world) promptCommand() *cobra.Command {
	var p promptFlags
	cmd := &cobra.Command{
		Use:           "drover -p [flags] [PROMPT]",
		Short:         "Answer one prompt, wait for all background work, print the answer",
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, words []string) error {
			if cmd.Flags().Changed("max-budget-usd") && !(p.MaxBudget > 0) {
				return usage("--max-budget-usd is not above 0", "give an amount such as 0.50")
			}
			there, err := w.of(cmd.Context(), &p)
			if err != nil {
				return err
			}
			if err := there.check(cmd.Context(), &p, words); err != nil {
				return err
			}
			if p.Detach {
				return there.promptDetached(cmd.Context(), &p)
			}
			return there.prompt(cmd.Context(), &p)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err.Error(), "see `drover -p --help`") })
	cmd.SetOut(os.Stdout)
	cmd.SetErr(os.Stderr)
	p.add(cmd.Flags())
	_ = cmd.RegisterFlagCompletionFunc("model", w.completeModels) // there is such a flag
	return cmd
}

func usage(what, mend string) error {
	return &control.Error{Code: control.Invalid, Message: what, Mend: mend}
}

// check completes the flags and refuses what cannot work.
func (w *world) check(ctx context.Context, p *promptFlags, words []string) error {
	switch agentsdk.Format(p.Format) {
	case agentsdk.Text, agentsdk.JSON, agentsdk.StreamJSON:
	default:
		return usage(fmt.Sprintf("output format %q is not known", p.Format), "use text, json or stream-json")
	}
	if p.Mode == "auto" {
		fmt.Fprintln(w.stderr, "drover: note: permission mode auto is taken as default")
		p.Mode = ""
	}
	if p.Mode != "" && !slices.Contains([]permission.Mode{permission.Default, permission.AcceptEdits, permission.Plan, permission.DontAsk, permission.Bypass}, permission.Mode(p.Mode)) {
		return usage(fmt.Sprintf("permission mode %q is not known", p.Mode), "use default, acceptEdits, plan, dontAsk or bypassPermissions")
	}
	if p.MaxTurns < 0 {
		return usage("--max-turns is negative", "give a number above 0")
	}
	if p.Fork && !p.Continue && p.Resume == "" {
		return usage("--fork-session needs a session to go on from", "give --resume ID or --continue with it")
	}
	if p.waitCeilingText != "" {
		d, err := time.ParseDuration(p.waitCeilingText)
		if err != nil || d <= 0 {
			return usage(fmt.Sprintf("--wait-ceiling %q is no duration above 0", p.waitCeilingText), "write it as 90s or 10m; see also --no-wait")
		}
		p.WaitCeiling = d
	}
	if p.Continue && p.Resume != "" || p.Session != "" && (p.Continue || p.Resume != "") {
		return usage("--continue, --resume and --session-id exclude each other", "give one of them")
	}
	if p.Session != "" && !home.SessionID(p.Session) {
		return usage(fmt.Sprintf("--session-id %q is no session ID", p.Session), "use a UUID in lower case, or leave it out")
	}
	for i, dir := range p.Dirs {
		if !filepath.IsAbs(dir) {
			p.Dirs[i] = filepath.Join(w.here(), dir)
		}
		if info, err := os.Stat(p.Dirs[i]); err != nil || !info.IsDir() {
			return usage(fmt.Sprintf("--add-dir %s is no folder", dir), "give one that exists")
		}
	}
	if file := strings.TrimSpace(p.Settings); file != "" && !strings.HasPrefix(file, "{") && !filepath.IsAbs(file) {
		p.Settings = filepath.Join(w.here(), file) // a detached host works elsewhere
	}
	if err := w.givenServers(p); err != nil {
		return err
	}
	if p.Agents != "" {
		if _, _, err := catalog.ParseJSON("--agents", []byte(p.Agents)); err != nil {
			return usage(err.Error(), "see docs/agents.md")
		}
	}
	if p.Agent != "" {
		if _, err := w.agentFiles(p.Agents).Current().Find(p.Agent); err != nil {
			return usage(err.Error(), "see `drover agents`")
		}
	}
	if p.Attach {
		return nil
	}
	return w.readPrompt(ctx, p, words)
}

// readPrompt puts the prompt together from the words and from piped input.
func (w *world) readPrompt(ctx context.Context, p *promptFlags, words []string) error {
	p.Prompt = strings.Join(words, " ")
	if !isTerminal(os.Stdin) {
		piped, err := readStdin(ctx, p.Prompt == "")
		if err != nil {
			return err
		}
		if p.Prompt != "" && piped != "" {
			p.Prompt += "\n\n"
		}
		p.Prompt += piped
	}
	if strings.TrimSpace(p.Prompt) == "" {
		return usage("there is no prompt", "give it as an argument, as in `drover -p \"what changed?\"`, or on stdin")
	}
	return nil
}

// readStdin reads what is piped in. Where there is a prompt already, a pipe that
// stays open and empty is passed over.
func readStdin(ctx context.Context, needed bool) (string, error) {
	type read struct {
		data []byte
		err  error
	}
	first := make(chan struct{})
	done := make(chan read, 1)
	go func() { // ends with stdin, or with the program
		var buf bytes.Buffer
		_, err := io.CopyN(&buf, os.Stdin, 1)
		close(first)
		if err == nil {
			_, err = io.Copy(&buf, io.LimitReader(os.Stdin, maxStdin))
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		done <- read{buf.Bytes(), err}
	}()
	var late <-chan time.Time
	if !needed {
		timer := time.NewTimer(stdinWait)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-first:
	case <-late:
		return "", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	select {
	case r := <-done:
		if r.err != nil {
			return "", fmt.Errorf("read stdin: %w", r.err)
		}
		if len(r.data) > maxStdin {
			return "", usage(fmt.Sprintf("stdin holds more than %d MiB", maxStdin>>20), "put it into a file and name that in the prompt")
		}
		return strings.ToValidUTF8(string(r.data), "\uFFFD"), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// pick finds the session to go on with, if one is meant.
func (w *world) pick(ctx context.Context, p *promptFlags) (task.ID, error) {
	if !p.Continue && p.Resume == "" {
		return task.ID(p.Session), nil
	}
	d, err := w.directory()
	if err != nil {
		return "", err
	}
	entries, err := d.Sessions(ctx, false, false)
	if err != nil {
		return "", err
	}
	if p.Resume != "" {
		entries = named(entries, p.Resume)
	}
	for _, e := range entries {
		id := e.Info.Session
		if p.Continue && e.Info.Role != session.RolePrompt {
			continue
		}
		if e.Info.Live && !p.Fork && !p.Attach && !(p.Detach && e.Info.Detached) {
			return "", w.elsewhere(e.Info)
		}
		if e.Info.Damaged {
			return "", &control.Error{Code: control.Conflict, Message: fmt.Sprintf("the session.json of session %s cannot be read", id), Mend: fmt.Sprintf("run `drover sessions repair %s`", id)}
		}
		if e.Info.Role != session.RolePrompt {
			return "", &control.Error{Code: control.Conflict, Message: fmt.Sprintf("session %s has no main agent to go on with", id), Mend: "see `drover sessions`"}
		}
		if p.Fork {
			return w.fork(id)
		}
		return id, nil
	}
	if p.Continue {
		return "", &control.Error{Code: control.NotFound, Message: "this folder has no session to go on with", Mend: "start one with `drover -p \"…\"`"}
	}
	return "", &control.Error{Code: control.NotFound, Message: fmt.Sprintf("no session %s", p.Resume), Mend: "see `drover sessions`"}
}

// fork makes a new session with the conversation of another one so far.
func (w *world) fork(from task.ID) (task.ID, error) {
	project := w.root.Project(w.cwd)
	old, fresh := project.Session(from), project.Session(task.NewSessionID())
	if err := fresh.Ensure(); err != nil {
		return "", fmt.Errorf("fork session %s: %w", from, err)
	}
	meta := agent.Meta{Version: version, Cwd: w.cwd, AgentName: "main", SessionID: string(fresh.ID())}
	if err := agent.ForkTranscript(old.Transcript(), fresh.Transcript(), meta); err != nil {
		return "", fmt.Errorf("fork session %s: %w", from, err)
	}
	return fresh.ID(), nil
}

// promptSettings are those for a prompt, and trusts the folder if that is asked.
func (w *world) promptSettings(ctx context.Context, p *promptFlags) (settings.Settings, error) {
	if p.Trust {
		if err := w.root.Ensure(); err != nil { // the first session of this user
			return settings.Settings{}, err
		}
		store := trust.At(w.root.TrustFile())
		st, err := store.Check(w.cwd)
		if err == nil && st.Needed() {
			err = store.Grant(ctx, st)
		}
		if err != nil {
			return settings.Settings{}, err
		}
	}
	set, err := w.settings(p.Settings)
	if p.MaxBudget > 0 {
		set.MaxBudget = p.MaxBudget
	}
	return set, err
}

// config is how the session of a prompt is opened.
func (w *world) config(p *promptFlags, set settings.Settings, id task.ID) assemble.Config {
	return assemble.Config{Root: w.root, Folder: w.cwd, Session: id, Role: session.RolePrompt, Copier: copier(), Title: title(p.Prompt), Version: version, Env: w.env, Settings: set,
		Model: p.Model, Mode: permission.Mode(p.Mode), Allow: splitRules(p.Allowed), Deny: splitRules(p.Disallowed), Dirs: p.Dirs, Agents: []byte(p.Agents), MCP: p.MCP, AskWait: p.AskTimeout,
		Tell: func(_ task.ID, text string) { w.note(text) }}
}

func (p *promptFlags) main() session.MainConfig {
	return session.MainConfig{Agent: p.Agent, Model: p.Model, System: p.System, AppendSystem: p.AppendSystem, MaxTurns: p.MaxTurns, Autopilot: p.Autopilot}
}

func (p *promptFlags) ceiling(set settings.Settings) time.Duration {
	switch {
	case p.NoWait:
		return 0
	case p.WaitCeiling > 0:
		return p.WaitCeiling
	}
	return set.Tasks.Ceiling()
}

// prompt answers a prompt in this process.
func (w *world) prompt(ctx context.Context, p *promptFlags) error {
	set, err := w.promptSettings(ctx, p)
	if err != nil {
		return err
	}
	id, err := w.pick(ctx, p)
	if err != nil {
		return err
	}
	exe, err := program()
	if err != nil {
		return err
	}
	cfg := w.config(p, set, id)
	cfg.Brief = true
	cfg.Keeper = []string{exe, "keeper", "--helper"}
	var out *agentsdk.Stream // set before the first conversation begins
	cfg.On = func(from task.ID, e agent.Event) { out.Agent(from, e) }
	s, err := w.open(ctx, cfg)
	if err != nil {
		return locked(err, id)
	}
	mine := p.main()
	var m *session.Main // set before its first turn
	mine.Done = func(t session.Turn) { w.goesOn(p, m, t) }
	if m, err = s.OpenMain(ctx, mine); err != nil {
		return errors.Join(err, s.Close())
	}
	out = agentsdk.New(w.streamOptions(ctx, p, set, s, m))
	s.Serve()
	defer w.suspends(s)()
	return w.answer(ctx, p, set, s, m, out)
}

func (w *world) streamOptions(ctx context.Context, p *promptFlags, set settings.Settings, s *assemble.Session, m *session.Main) agentsdk.Options {
	info, _ := s.Info(ctx) // of a session in this process there always is one
	o := agentsdk.Options{Out: os.Stdout, Format: agentsdk.Format(p.Format), Partial: p.Partial, Session: info.Session, Cwd: w.cwd, Model: m.Model(),
		PermissionMode: cmp.Or(p.Mode, set.Permissions.DefaultMode), Version: version, Tools: m.Tools(), MCPServers: mcpServers(m), Agents: w.agentFiles(p.Agents).Current().Names(),
		Denied: w.stderr, Terminal: isTerminal(os.Stdout), Since: s.Since, Grown: s.Grown, Start: s.Newest()}
	if page, err := s.List(ctx, control.ListRequest{}); err == nil {
		o.Live = page.Tasks
	}
	o.Cost = s.Cost
	o.Warn = w.stderr
	if p.Verbose && o.Format != agentsdk.StreamJSON {
		o.Err = w.stderr
	}
	o.Answer = func(ctx context.Context, r task.Record) string {
		text, _ := s.Answer(ctx, r) // what cannot be read is shown as none
		return text
	}
	return o
}

// answer holds the conversation to the point where nothing is left to wait for,
// closes the session, and prints what is left to print.
func (w *world) answer(ctx context.Context, p *promptFlags, set settings.Settings, s *assemble.Session, m *session.Main, out *agentsdk.Stream) error {
	defer context.AfterFunc(ctx, s.Hurry)()
	work, end := context.WithCancelCause(ctx)
	defer context.AfterFunc(s.Alone(), func() {
		if why := context.Cause(s.Alone()); errors.Is(why, upkeep.ErrFolderGone) {
			end(why)
		}
	})()
	var conversation, printer sync.WaitGroup
	printing, quiet := context.WithCancel(context.Background())
	printer.Go(func() {
		if err := out.Run(printing); err != nil && printing.Err() == nil {
			end(err) // nobody reads any more
		}
	})
	var interrupted atomic.Bool
	onInterrupt(ctx, func() { interrupted.Store(true); m.Interrupt() })
	err := m.Prompt(ctx, p.Prompt)
	conversation.Go(func() { m.Run(work) }) // not before, or mail that waits has a turn of its own
	var receipt task.Receipt
	if err == nil {
		receipt, err = m.Settle(work, p.ceiling(set))
	}
	end(task.ErrClosing)
	conversation.Wait()
	last := m.Last()
	quiet()
	printer.Wait()
	w.endMonitors(ctx, s)
	if ctx.Err() == nil && last.Err != nil && agentsdk.Format(p.Format) != agentsdk.StreamJSON { // whose lines tell it
		for _, t := range m.Waited() {
			fmt.Fprintf(w.stderr, "drover: stopping %s (%s), since the turn has failed\n", t.ID, excerpt.Line(cmp.Or(t.Description, t.Command, t.Name), 60))
		}
	}
	closed := s.Close() // what it ends is told by Finish
	w.part(m)
	printed := out.Finish()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case printed != nil:
		return printed
	case interrupted.Load():
		return &cli.ExitError{Code: 130}
	case errors.Is(err, session.ErrCeiling):
		for _, t := range receipt.Stopped {
			fmt.Fprintf(w.stderr, "drover: stopped %s at the wait ceiling: %s\n", t.ID, t.Status)
		}
		if last.Err != nil {
			return last.Err
		}
		return &cli.ExitError{Code: 124, Err: err}
	case err != nil:
		return err
	case last.Err != nil:
		return last.Err
	case agentsdk.Format(p.Format) == agentsdk.Text && !p.Verbose && strings.TrimSpace(last.Result.Text) == "":
		fmt.Fprintln(w.stderr, "drover: note: the answer is empty")
	}
	return closed
}

// goesOn tells that a failed turn does not end what runs in the background.
func (w *world) goesOn(p *promptFlags, m *session.Main, t session.Turn) {
	if t.Err == nil || !session.ModelFailed(t.Err) || p.NoWait {
		return
	}
	if n := len(m.Waited()); n > 0 {
		fmt.Fprintf(w.stderr, "drover: the turn has failed: %s; background work is waited for, %s (Ctrl-C stops it)\n", excerpt.Line(t.Err.Error(), 600), plural(n, "task"))
	}
}

func locked(err error, id task.ID) error {
	if errors.Is(err, home.ErrLocked) {
		return &control.Error{Code: control.Conflict, Message: fmt.Sprintf("session %s is open in another process", id),
			Mend: fmt.Sprintf("use `drover attach %s`, stop it with `drover stop`, or add --fork-session", id)}
	}
	return err
}

// title is how a listing shows the session.
func title(prompt string) string {
	text := strings.Join(strings.Fields(prompt), " ")
	if r := []rune(text); len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return text
}

// splitRules reads rules that are separated by commas or blanks outside
// brackets.
func splitRules(lists []string) []string {
	var out []string
	for _, list := range lists {
		depth, from := 0, 0
		for i, r := range list + "," {
			switch {
			case r == '(':
				depth++
			case r == ')':
				depth--
			case (r == ',' || r == ' ') && depth <= 0:
				if rule := strings.TrimSpace(list[from:i]); rule != "" {
					out = append(out, rule)
				}
				from = i + 1
			}
		}
		// A bracket that stays open makes a bad rule, which is refused by name; a
		// ban that vanished would allow.
		if depth > 0 {
			out = append(out, strings.TrimSpace(list[from:]))
		}
	}
	return out
}

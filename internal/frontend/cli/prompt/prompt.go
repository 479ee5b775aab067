package prompt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/mcp/mcpconfig"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/picture"
	"github.com/drover-dev/drover/internal/platform/untrusted"
	"github.com/drover-dev/drover/internal/project/catalog"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/task"
)

// givenServers checks --mcp-config, and makes its files absolute: a detached host
// works elsewhere.
func (a *App) givenServers(p *Prompt) error {
	for i, given := range p.MCP {
		if !strings.HasPrefix(strings.TrimSpace(given), "{") {
			p.MCP[i] = a.Path(given)
		}
	}
	if len(p.MCP) == 0 {
		return nil
	}
	entries, err := mcpconfig.Read(mcpconfig.Input{Given: p.MCP, Cwd: a.Cwd, Env: home.Lookup(a.Env)})
	for _, e := range entries {
		if e.Err != nil && !e.Disabled {
			err = errors.Join(err, fmt.Errorf("MCP server %s: %w", e.Name, e.Err))
		}
	}
	if err != nil {
		return console.Usage("--mcp-config: "+strings.ReplaceAll(err.Error(), "\n", "; "), "see docs/mcp.md")
	}
	return nil
}

// Prompt is the command line of `drover -p`. A detached host gets it as JSON.
type Prompt struct {
	Print          bool            `json:"-"`
	Attach         bool            `json:"-"` // without a prompt, by somebody who stays
	Detach         bool            `json:"-"`
	Format         string          `json:"-"`
	Partial        bool            `json:"-"`
	HookEvents     bool            `json:"-"` // hooks are lines of stream-json
	Verbose        bool            `json:"-"`
	Model          string          `json:"model,omitempty"`
	Instead        []string        `json:"fallback,omitempty"` // models
	Agent          string          `json:"agent,omitempty"`
	MaxTurns       int             `json:"max_turns,omitempty"`
	System         string          `json:"system,omitempty"`
	AppendSystem   string          `json:"append_system,omitempty"`
	Mode           string          `json:"mode,omitempty"`
	Allowed        []string        `json:"allowed,omitempty"`
	Disallowed     []string        `json:"disallowed,omitempty"`
	Settings       string          `json:"settings,omitempty"`
	Dirs           []string        `json:"dirs,omitempty"`
	Resume         string          `json:"-"`
	Continue       bool            `json:"-"`
	Session        string          `json:"session,omitempty"`
	NoWait         bool            `json:"-"`
	WaitCeiling    time.Duration   `json:"wait_ceiling,omitempty"`
	MaxBudget      float64         `json:"max_budget_usd,omitempty"`
	Agents         string          `json:"agents,omitempty"`
	Autopilot      bool            `json:"autopilot,omitempty"`
	AskTimeout     time.Duration   `json:"ask_timeout,omitempty"`
	Trust          bool            `json:"-"`
	Fork           bool            `json:"-"`
	ForkAt         int             `json:"-"`
	ImageFiles     []string        `json:"-"`
	Images         []control.Image `json:"images,omitempty"`
	MCP            []string        `json:"mcp,omitempty"`
	Prompt         string          `json:"prompt"`
	Schema         string          `json:"schema,omitempty"` // as a file or JSON, then as JSON; empty: answers are text
	Effort         string          `json:"effort,omitempty"`
	ThinkingTokens int             `json:"thinking_tokens,omitempty"` // as in [control.Thinking]
	Tools          []string        `json:"tools,omitempty"`           // names; nil: all
	Input          string          `json:"-"`                         // text or stream-json
	Decider        string          `json:"-"`                         // stdio: the program on stdin answers questions

	SandboxGiven    bool          // --settings turns the sandbox on in the words of another program
	ProgramServers  []string      `json:"-"`                       // MCP servers in the program on stdin
	Plugins         []string      `json:"plugins,omitempty"`       // folders, in addition to the settings
	QuietPlugins    []string      `json:"quiet_plugins,omitempty"` // the same, without their MCP servers
	GivenMCP        bool          `json:"given_mcp,omitempty"`     // only MCP counts of MCP servers
	Skip            settings.Skip `json:"skip"`                    // files that are passed over
	foreign         foreignFlags
	waitCeilingText string
}

// streamJSON is the format of the Agent SDK, in both directions.
const streamJSON = "stream-json"

// Add declares the flags, whose names are also known in camel case.
func (p *Prompt) Add(f *pflag.FlagSet) {
	f.SetNormalizeFunc(
		func(_ *pflag.FlagSet, name string) pflag.NormalizedName { return pflag.NormalizedName(kebab(name)) },
	)
	f.BoolVarP(&p.Print, "print", "p", false, "answer one prompt and print the answer")
	f.BoolVarP(&p.Detach, "detach", "d", false, "answer in a detached host and print its session")
	f.StringVar(&p.Format, "output-format", "text", "text, json or stream-json")
	f.StringVar(&p.Input, "input-format", "text", "text, or stream-json: prompts and control requests of the Agent SDK")
	f.StringVar(&p.Effort, "effort", "", "how much the model thinks: low, medium, high, xhigh or max")
	f.IntVar(&p.ThinkingTokens, "max-thinking-tokens", 0, "most tokens of thinking in a reply; -1: no thinking")
	f.StringSliceVar(&p.Tools, "tools", nil, "the only tools that the main agent has, such as Bash,Read; default: all")
	f.StringVar(&p.Decider, "permission-prompt-tool", "",
		"stdio: with --input-format stream-json the program on stdin decides")
	p.foreign.add(f, p)
	f.BoolVar(&p.Partial, "include-partial-messages", false, "stream-json: show replies as they come in")
	f.BoolVar(&p.HookEvents, "include-hook-events", false, "stream-json: show hooks that begin and end")
	f.BoolVar(&p.Verbose, "verbose", false, "report tasks on stderr")
	f.StringVar(&p.Model, "model", "", "an alias, a full name, PROVIDER/NAME, or script:FILE")
	f.StringSliceVar(&p.Instead, "fallback-model", nil,
		"models that answer when the model is overloaded or cannot be reached, such as sonnet,haiku")
	f.StringVar(&p.Agent, "agent", "", "run the main agent as this type")
	f.StringVar(&p.Schema, "json-schema", "", "a file with a JSON schema, or JSON: answer with a value of it")
	f.StringVar(&p.Agents, "agents", "", "definitions of agents as JSON: an object from names to definitions")
	f.StringArrayVar(&p.MCP, "mcp-config", nil,
		"a file of MCP servers, or JSON, in addition to those of the folder and the user")
	f.IntVar(&p.MaxTurns, "max-turns", 0, "maximum number of model replies (default 50)")
	f.StringVar(&p.System, "system-prompt", "", "replace the system prompt")
	f.StringVar(&p.AppendSystem, "append-system-prompt", "", "append to the system prompt")
	f.StringVar(&p.Mode, "permission-mode", "", strings.Join(console.PermissionModes(), ", "))
	f.StringArrayVar(&p.Allowed, "allowed-tools", nil, "calls that run without asking, such as 'Bash(go test:*),Edit'")
	f.StringArrayVar(&p.Disallowed, "disallowed-tools", nil, "calls that are always denied")
	f.Func("setting-sources", "whose files count, as a `string` with user, project and local; empty: none",
		func(text string) (err error) {
			p.Skip, err = settings.ParseSources(text)
			return err
		})
	f.BoolVar(&p.GivenMCP, "strict-mcp-config", false, "only the MCP servers of --mcp-config")
	f.StringVar(&p.Settings, "settings", "", "a settings file, or JSON")
	f.StringArrayVar(&p.Dirs, "add-dir", nil, "a further folder that tools may use")
	f.StringVarP(&p.Resume, "resume", "r", "", "resume this session; without a value: list the sessions")
	f.BoolVarP(&p.Continue, "continue", "c", false, "resume the last session of this folder")
	f.StringVar(&p.Session, "session-id", "", "the ID of the new session")
	f.BoolVar(&p.Fork, "fork-session", false, "with --resume or --continue: continue in a copy of the session")
	f.StringArrayVar(&p.ImageFiles, "image", nil,
		"add the image in `FILE` to the prompt: PNG, JPEG, GIF or WebP, 5 MiB at most")
	f.IntVar(&p.ForkAt, "at", 0,
		"with --fork-session: copy the conversation before prompt `N`; drover fork --list shows the numbers")
	f.Float64Var(&p.MaxBudget, "max-budget-usd", 0, "budget of the session in US dollars")
	f.DurationVar(&p.AskTimeout, "ask-timeout", 0,
		"how long questions wait for \"drover approvals\" (default: denied at once; with -d as set)")
	f.BoolVar(&p.Trust, "trust", false, "trust the files that this folder has now")
	f.BoolVar(&p.Autopilot, "autopilot", false,
		"continue until the agent marks the work as complete, with at most 5 reminders")
	f.BoolVar(&p.NoWait, "no-wait", false, "do not wait for background work")
	f.StringVar(&p.waitCeilingText, "wait-ceiling", "",
		"how long commands are waited for after the last answer (default 10m)")
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

// PromptCommand is `drover -p`, which has no commands below it: a prompt may be
// any word.
func (a *App) PromptCommand() *cobra.Command {
	var p Prompt
	cmd := &cobra.Command{
		Use:   "drover -p [flags] [PROMPT | -]",
		Short: "Answer one prompt, wait for background work, and print the answer",
		Long: "Answer one prompt, wait for all background work, and print the answer. Piped input is appended to the\n" +
			"prompt; the prompt - is read from stdin. A prompt that begins with /NAME calls a command\n" +
			"(see drover commands).",
		Example: "  drover -p \"what changed since the last tag?\"\n  git diff | drover -p \"review this\"\n  drover -p - < prompt.md\n" +
			"  drover -p \"/review the last commit\"\n  drover -p --continue \"now add a test\"\n  drover -p -d \"run the nightly checks\"",
		SilenceErrors: true,
		SilenceUsage:  true,

		ValidArgsFunction: a.CompleteCommands,
		RunE: func(cmd *cobra.Command, words []string) error {
			if cmd.Flags().Changed("max-budget-usd") && !(p.MaxBudget > 0) {
				return console.Usage("--max-budget-usd must be greater than 0", "give an amount such as 0.50")
			}
			there, err := a.Of(cmd.Context(), &p)
			if err != nil {
				return err
			}
			if err := there.Check(cmd.Context(), &p, words); err != nil {
				return err
			}
			if p.Detach {
				return there.promptDetached(cmd.Context(), &p)
			}
			id, err := there.Pick(cmd.Context(), &p)
			if err != nil {
				return err
			}
			return there.Answer(cmd.Context(), &p, id)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok && missing.GetFlag().Name == "resume" {
			return ErrNoSessionNamed()
		}
		return console.FlagError(err, "drover -p")
	})
	cmd.SetOut(a.Stdout)
	cmd.SetErr(a.Stderr)
	p.Add(cmd.Flags())
	a.CompletePrompt(cmd)
	return cmd
}

// Check completes the flags and refuses what cannot work.
func (a *App) Check(ctx context.Context, p *Prompt, words []string) error {
	if !slices.Contains(console.PromptFormats(), p.Format) {
		return console.Usage(fmt.Sprintf("--output-format %q: unknown format", p.Format), "use text, json or stream-json")
	}
	if err := p.checkInput(a.Stderr); err != nil {
		return err
	}
	var err error
	if p.Mode, err = a.CheckMode(p.Mode); err != nil {
		return err
	}
	for flag, rules := range map[string][]string{"--allowed-tools": p.Allowed, "--disallowed-tools": p.Disallowed} {
		if err := console.CheckToolNames(flag, console.SplitRules(rules)); err != nil {
			return err
		}
	}
	if err := p.checkTools(); err != nil {
		return err
	}
	if p.MaxTurns < 0 {
		return console.Usage("--max-turns must not be negative", "give a number above 0")
	}
	for _, file := range p.ImageFiles {
		image, err := a.readImage(file)
		if err != nil {
			return err
		}
		p.Images = append(p.Images, image)
	}
	if p.ForkAt != 0 && !p.Fork {
		return console.Usage("--at needs --fork-session", "add it")
	}
	if p.Fork && !p.Continue && p.Resume == "" {
		return console.Usage("--fork-session needs --resume or --continue", "add one of them")
	}
	if p.waitCeilingText != "" {
		d, err := time.ParseDuration(p.waitCeilingText)
		if err != nil || d <= 0 {
			return console.Usage(fmt.Sprintf("--wait-ceiling %q: not a duration greater than 0", p.waitCeilingText),
				"write it as 90s or 10m; see also --no-wait")
		}
		p.WaitCeiling = d
	}
	if p.Continue && p.Resume != "" || p.Session != "" && (p.Continue || p.Resume != "") && !p.Fork {
		return console.Usage("--continue, --resume and --session-id are mutually exclusive", "give one of them")
	}
	if p.Session != "" && !home.SessionID(p.Session) {
		return console.Usage(fmt.Sprintf("--session-id %q: not a session ID", p.Session),
			"use a UUID in lower case, or leave it out")
	}
	for _, dirs := range [][]string{p.Plugins, p.QuietPlugins, p.Dirs} {
		for i, dir := range dirs {
			dirs[i] = a.Path(dir)
		}
	}
	for _, dir := range p.Dirs {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return console.Usage(fmt.Sprintf("--add-dir %s: not a folder", dir), "name a folder that exists")
		}
	}
	if file := strings.TrimSpace(p.Settings); file != "" && !strings.HasPrefix(file, "{") {
		p.Settings = a.Path(file) // a detached host works elsewhere
	}
	if err := a.readSchema(p); err != nil {
		return err
	}
	if p.Input == streamJSON {
		p.programServers()
	}
	if err := a.givenServers(p); err != nil {
		return err
	}
	if p.Agents != "" {
		if _, _, err := catalog.ParseJSON("--agents", []byte(p.Agents)); err != nil {
			return console.Usage(err.Error(), "see docs/agents.md")
		}
	}
	if p.Agent != "" && p.Input != streamJSON { // a program says later which agents it has
		if _, err := a.Agents(p.Agents, false).Current().Find(p.Agent); err != nil {
			return console.Usage(err.Error(), "see `drover agents`")
		}
	}
	if p.Attach || p.Input == streamJSON {
		return nil
	}
	return a.readPrompt(ctx, p, words)
}

// checkTools refuses names that no tool has. The preset default of the Agent SDK restricts nothing.
func (p *Prompt) checkTools() error {
	if p.Tools == nil || slices.Contains(p.Tools, "default") {
		p.Tools = nil
		return nil
	}
	tools, unknown := catalog.Chosen(p.Tools)
	if len(unknown) > 0 {
		return console.Usage(fmt.Sprintf("--tools: unknown tool %.40q", unknown[0]),
			"the tools are "+strings.Join(catalog.ToolNames(), ", ")+", and mcp__SERVER__TOOL; default means all")
	}
	p.Tools = tools
	return nil
}

// readPrompt puts the prompt together from the words and from piped input.
func (a *App) readPrompt(ctx context.Context, p *Prompt, words []string) error {
	p.Prompt = strings.Join(words, " ")
	onStdin := p.Prompt == "-"
	if onStdin {
		p.Prompt = ""
	}
	if onStdin || !a.ReadsTerminal() {
		piped, err := a.ReadStdin(ctx, p.Prompt == "")
		if err != nil {
			return err
		}
		if p.Prompt != "" && piped != "" {
			p.Prompt += "\n\n"
		}
		p.Prompt += piped
	}
	if strings.TrimSpace(p.Prompt) == "" {
		return console.Usage("the prompt is missing",
			"give it as an argument, as in `drover -p \"what changed?\"`, or on stdin with `drover -p -`")
	}
	return nil
}

// Pick finds the session to resume, if the flags name one.
func (a *App) Pick(ctx context.Context, p *Prompt) (task.ID, error) {
	if !p.Continue && p.Resume == "" {
		return task.ID(p.Session), nil
	}
	sessions, err := a.Known(ctx, false, false)
	if err != nil {
		return "", err
	}
	if p.Resume != "" {
		s, err := console.PickSession(sessions, p.Resume)
		if err != nil {
			return "", err
		}
		sessions = []console.Session{s}
	}
	for _, s := range sessions {
		info := s.Info()
		id := info.Session
		if p.Continue && info.Role != console.Conversing {
			continue
		}
		if info.Live && !p.Fork && !p.Attach && !(p.Detach && info.Detached) {
			return "", hasHost(info)
		}
		if info.Damaged {
			return "", console.Conflict(fmt.Sprintf("the session.json of session %s cannot be read", id),
				fmt.Sprintf("run `drover sessions repair %s`", id))
		}
		if info.Role != console.Conversing {
			return "", console.Conflict(fmt.Sprintf("session %s has no conversation to resume", id), "see `drover sessions`")
		}
		if p.Fork {
			forked, err := a.Fork(id, control.ForkRequest{At: p.ForkAt, Session: task.ID(p.Session)})
			return forked.Session, err
		}
		return id, nil
	}
	return "", ErrNoConversation()
}

// readImage reads an image of a prompt.
func (a *App) readImage(file string) (control.Image, error) {
	image, err := ReadImage(a.UserCwd(), file)
	if err != nil {
		return control.Image{}, console.Usage(err.Error(), "give a PNG, JPEG, GIF or WebP file of at most 5 MiB")
	}
	return image, nil
}

// ReadImage reads an image of a prompt from a file, whose path may be relative to a folder.
func ReadImage(folder, file string) (control.Image, error) {
	path := file
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return control.Image{}, fmt.Errorf("read image %s: %w", file, err)
	}
	defer root.Close()
	data, err := untrusted.Read(root, filepath.Base(path), picture.MaxBytes)
	if err == nil {
		_, err = picture.Check(data)
	}
	if err != nil {
		return control.Image{}, fmt.Errorf("read image %s: %w", file, err)
	}
	return control.Image{Name: filepath.Base(path), Data: data}, nil
}

func ErrNoConversation() error {
	return console.Missing("this folder has no session to resume", "start one with `drover -p \"…\"`")
}

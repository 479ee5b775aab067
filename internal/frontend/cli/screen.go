package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/attention"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/prompt"
	models "github.com/drover-dev/drover/internal/model/modelinfo"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/task"
)

// reachable reports whether the usual model is of a provider that can be asked.
func (a *app) reachable(set settings.Settings) bool {
	name := cmp.Or(set.Model, models.Default)
	for range set.Models.Aliases { // one may stand for another
		name = cmp.Or(set.Models.Aliases[name], name)
	}
	of, _, has := strings.Cut(name, "/")
	if !has {
		of = "anthropic"
	}
	return strings.HasPrefix(name, "script:") || slices.Contains(a.Ready(set), of)
}

// Screen is what the terminal UI is opened on.
type Screen struct {
	// Connect finds the live host of the conversation, or starts one. It is called again
	// when a host has gone.
	Connect func(context.Context) (console.Session, error)
	// Later says that nothing is started before the first prompt, which may be given already.
	Later  bool
	Prompt string
	// Conversations lists the conversations of the folder, or with Everywhere of all folders, live ones first.
	// Switch finds the host of one of them, or of a new one if the ID is empty.
	Conversations func(context.Context) ([]Conversation, error)
	Switch        func(context.Context, task.ID) (console.Session, error)
	Everywhere    bool
	// Choose says that the user chooses one of them first, instead of Connect.
	Choose bool

	// Attention lists what needs the user in all sessions of all projects, and Follow calls
	// changed when that may be another list, until ctx ends.
	Attention func(context.Context) (control.Attention, map[task.ID]control.Info, error)
	// At most once in each pace; 0: at once.
	Follow func(ctx context.Context, pace time.Duration, changed func())
	// Reach finds a live session of any project, and Seen records that the user knows how
	// tasks of a session have ended.
	Reach func(context.Context, task.ID) (console.Session, error)
	Seen  func(ctx context.Context, session task.ID, refs []string) error

	Lines     bool // the conversation as lines, without the screen
	TasksOnly bool // the list of tasks alone
	SetUp     bool // begins with the page that sets up a model
}

// Conversation is a conversation that can be resumed.
type Conversation struct {
	control.Info
	Running string // what runs in it, in a few words
}

// Left is how the user has left the terminal UI.
type Left struct {
	Session task.ID // empty: nothing was started
	Note    string  // for people
	Demo    bool    // for the tour
}

// screened reports whether the terminal UI is shown: somebody looks, the terminal can be
// drawn on, and the user does not want lines.
func (a *app) screened(plain bool) bool {
	term := home.Lookup(a.Env)("TERM")
	return !plain && a.ReadsTerminal() && a.IsTerminal(a.Stdout) && term != "" && term != "dumb"
}

// plainFlag is the flag for the conversation in lines.
func plainFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("plain", false, "show the conversation as lines, without the terminal UI")
}

// show opens the terminal UI on a conversation.
// c says with what other conversations are gone on with.
func (a *app) show(ctx context.Context, s Screen, c prompt.Joining) error {
	s.Conversations = func(ctx context.Context) ([]Conversation, error) { return a.choices(ctx, s.Everywhere) }
	s.Switch = func(ctx context.Context, id task.ID) (console.Session, error) {
		c.Session = id
		return a.AttachedTo(ctx, c)
	}
	a.everywhere(&s)
	left, err := a.Screen(ctx, s)
	if left.Note != "" {
		fmt.Fprintf(a.Stderr, "%s\n", excerpt.Plain(left.Note))
	}
	if err == nil && left.Demo {
		return a.Demo(ctx, a.Stdout, a.Colored(), a.Columns())
	}
	if err == nil && left.Session != "" && !s.TasksOnly {
		a.Note("left %s without ending it; `drover attach %s` comes back", left.Session, left.Session)
	}
	return err
}

// choices are the conversations that can be resumed, live ones first.
func (a *app) choices(ctx context.Context, all bool) ([]Conversation, error) {
	known, err := a.Known(ctx, false, all)
	if err != nil {
		return nil, err
	}
	var live, ended []Conversation
	for _, s := range known {
		switch i := s.Info(); {
		case i.Role != console.Conversing:
		case i.Live:
			live = append(live, Conversation{i, a.Running(ctx, s)})
		default:
			ended = append(ended, Conversation{Info: i})
		}
	}
	return append(live, ended...), nil
}

// quietWait is how long a session is waited for by somebody who is not to be woken.
const quietWait = 10 * time.Minute

// paced calls changed when it is woken, at most once in each pace, until ctx ends.
func paced(ctx context.Context, pace time.Duration, wake <-chan struct{}, changed func()) {
	for {
		select {
		case <-wake:
			changed()
		case <-ctx.Done():
			return
		}
		if pace <= 0 {
			continue
		}
		select {
		case <-time.After(pace):
		case <-ctx.Done():
			return
		}
	}
}

// everywhere lets the terminal UI reach the sessions of all projects. What cannot be
// reached is passed over: stderr is the terminal that is drawn on.
func (a *app) everywhere(s *Screen) {
	silent := *a
	silent.Stderr, silent.attention.Stderr = io.Discard, io.Discard
	a = &silent
	s.Attention = func(ctx context.Context) (control.Attention, map[task.ID]control.Info, error) {
		list, of, err := a.attention.Items(ctx, true)
		infos := make(map[task.ID]control.Info, len(of))
		for id, s := range of {
			infos[id] = s.Info()
		}
		return list, infos, err
	}
	s.Follow = func(ctx context.Context, pace time.Duration, changed func()) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		wake := make(chan struct{}, 1)
		wait := console.WatchWait
		if pace > 0 {
			wait = quietWait
		}
		var group sync.WaitGroup
		defer group.Wait()
		group.Go(func() { // it ends with ctx
			_ = a.FollowSessions(ctx, true, max(console.WatchTick, pace), attention.Changes(wake, wait))
		})
		paced(ctx, pace, wake, changed)
	}
	s.Reach = func(ctx context.Context, id task.ID) (console.Session, error) {
		known, err := a.Known(ctx, true, true)
		if err != nil {
			return nil, err
		}
		return console.PickSession(known, string(id))
	}
	s.Seen = func(ctx context.Context, id task.ID, refs []string) error {
		known, err := a.Known(ctx, false, true)
		if err != nil {
			return err
		}
		of, err := console.PickSession(known, string(id))
		if err != nil {
			return err
		}
		return a.attention.Mark(ctx, of, refs)
	}
}

// open is `drover` by itself at a terminal: the one live conversation of the folder, or
// a new one. A prompt begins a new one.
func (a *app) open(ctx context.Context, c prompt.Joining, plain, setUp bool) error {
	known, err := a.Known(ctx, true, false)
	if err != nil {
		return err
	}
	var live []console.Session
	for _, s := range known {
		if s.Info().Role == console.Conversing && s.Info().Live {
			live = append(live, s)
		}
	}
	if len(live) == 1 && c.Prompt == "" {
		c.Session = live[0].Info().Session
	}
	if !a.screened(plain) {
		return a.show(ctx, Screen{Connect: a.connection(c), Lines: true}, c)
	}
	prompt := c.Prompt
	c.Prompt = "" // the terminal UI sends it
	return a.show(ctx, Screen{Connect: a.connection(c), Later: c.Session == "", Prompt: prompt, SetUp: setUp}, c)
}

// connection finds the host of one conversation, each time that it is called. A new
// conversation is the same at every call.
func (a *app) connection(c prompt.Joining) func(context.Context) (console.Session, error) {
	id := cmp.Or(c.Session, task.NewSessionID())
	begun := c.Session != ""
	return func(ctx context.Context) (console.Session, error) {
		if begun {
			c.Session = id
			return a.AttachedTo(ctx, c)
		}
		s, err := a.begin(ctx, c, id)
		begun = err == nil
		return s, err
	}
}

// begin starts the host of a new conversation.
func (a *app) begin(ctx context.Context, c prompt.Joining, id task.ID) (console.Session, error) {
	p := prompt.Prompt{Format: console.PromptFormats()[0], Model: c.Model, Agent: c.Agent, Mode: c.Mode, Attach: true,
		Prompt: c.Prompt}
	if err := a.Check(ctx, &p, nil); err != nil {
		return nil, err
	}
	return a.Host(ctx, p, id)
}

// top is the list of tasks alone.
func (a *app) top() *cobra.Command {
	cmd := &cobra.Command{
		Use: "top [SESSION]",
		Long: "Show the tasks of a live session as a tree, with their states, what they cost and what they print, and steer\n" +
			"them: stop, pause, send, open their conversations. Without SESSION, the only live session of this folder.",
		Args:              console.Args(0, 1),
		ValidArgsFunction: a.CompleteTasks(false),
	}
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		ctx := cmd.Context()
		if !a.screened(false) {
			return console.Usage("stdin or stdout is not a terminal that can be drawn on", "use `drover ps`")
		}
		known, err := a.Known(ctx, true, *all)
		if err != nil {
			return err
		}
		var s console.Session
		switch {
		case len(words) > 0:
			if s, err = console.PickSession(known, words[0]); err != nil {
				return err
			}
		case len(known) == 1:
			s = known[0]
		case len(known) > 1:
			return a.SeveralLive(ctx, known, "drover top SESSION")
		default:
			return console.Missing("this folder has no live session", "start a task with `drover run -d`, or use --all-sessions")
		}
		return a.show(ctx,
			Screen{TasksOnly: true, Connect: func(context.Context) (console.Session, error) { return s, nil }}, prompt.Joining{})
	}
	return cmd
}

// root is `drover` without a command.
func (a *app) root(root *cobra.Command) {
	var c prompt.Joining
	plain := plainFlag(root)
	f := root.Flags()
	f.StringVar(&c.Model, "model", "", "the model of a new conversation")
	f.StringVar(&c.Agent, "agent", "", "the type of agent of a new conversation")
	f.StringVar(&c.Mode, "permission-mode", "",
		"permission mode of a new conversation: "+strings.Join(console.PermissionModes(), ", "))
	root.Long = "Drover runs, watches and steers the background work of coding agents.\n" +
		"\n" +
		"  drover                      on a terminal, opens a conversation; see docs/terminal.md\n" +
		"  drover \"PROMPT\"             opens a conversation that begins with this prompt\n" +
		"  drover -p \"PROMPT\"          answers a prompt; see `drover -p --help`\n" +
		"  drover --continue           resumes the last conversation; --resume ID another one"
	root.RunE = func(cmd *cobra.Command, words []string) error {
		c.Prompt = promptIn(cmd, words)
		switch terminal := a.ReadsTerminal() && a.IsTerminal(a.Stdout); {
		case !terminal && c.Prompt != "":
			return console.Usage("a conversation needs a terminal on stdin and stdout", "use `drover -p \"…\"` for one answer")
		case !terminal:
			return a.printSummary(cmd.Context(), cmd)
		}
		set, err := a.Settings("")
		if err != nil {
			return err
		}
		unready := c.Model == "" && !a.reachable(set)
		if unready && !a.screened(*plain) {
			return a.printSummary(cmd.Context(), cmd)
		}
		return a.open(cmd.Context(), c, *plain, unready)
	}
}

package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/agentenv/settings"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
)

//go:embed demo/script.yaml
var demoScript string

//go:embed demo/plan.yaml
var demoPlan []byte

// Bounds of the tour, for folders that are huge or slow.
const (
	demoSearch = 20 * time.Second // then agents that still search are stopped
	demoLimit  = 50 * time.Second // then the tour ends with an error

	demoBase = 60 // bytes of the path of a folder in which a socket can lie
)

// What the tour asks.
const (
	demoFirst  = "Have a look around in this folder."
	demoSecond = "What have they found?"
)

// demoAllow are the commands of the script, and no others.
func demoAllow() []string {
	return []string{"Bash(echo:*)", "Bash(sleep 0.8)", "Bash(sleep 1.2)", "Bash(sleep 1.5)", "Bash(sleep 2)", "Bash(sleep 600)", "Bash(exit 3)", "mcp__tour__fold"}
}

func (w *world) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "A tour without any key",
		Long: "A tour without any key, in any folder: a scripted main agent has work of all eight kinds at once, and real\n" +
			"agents search and read this folder. It changes nothing here, talks to nobody but itself, and leaves nothing behind.",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return w.demo(cmd.Context()) },
	}
}

// demo gives the tour in a state folder of its own, which goes with it.
func (w *world) demo(ctx context.Context) (err error) {
	dir, err := demoFolder()
	if err != nil {
		return err
	}
	defer func() { // after a failure; a second time does nothing
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	cfg, err := w.demoConfig(dir)
	if err != nil {
		return err
	}
	there, err := openAway(ctx, dir, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, there.close()) }()
	if err := there.reach(&cfg); err != nil {
		return err
	}
	t := newTour(os.Stdout, isTerminal(os.Stdout) && home.Lookup(w.env)("NO_COLOR") == "" && home.Lookup(w.env)("TERM") != "dumb")
	t.width = columns(os.Stdout)
	cfg.On = t.agent
	s, m, err := openDemo(ctx, cfg, t)
	if err != nil {
		return err
	}
	t.printf("A tour of Drover in %s\nThe model reads its words from a script; commands, agents, files and notices are real.\n\n", excerpt.Line(w.cwd, 200))
	answer, records, err := giveTour(ctx, s, m, t)
	closed := errors.Join(s.Close(), there.close())
	if err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	t.printf("\n%s\n\n%s", excerpt.Plain(answer), demoTable(records))
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the folder of the tour: %w", err)
	}
	t.printf("\nTokens are a guess of the script; nobody was paid. Every process has ended, and the tour's folder\n%s is removed: nothing is left behind.\n\n"+
		"Next: `drover run -d -- CMD` runs a command in the background, `drover ps -a` lists, and\n`drover -p \"PROMPT\"` asks a real model (set ANTHROPIC_API_KEY).\n", dir)
	return t.err
}

// demoFolder makes the folder of the tour.
func demoFolder() (string, error) {
	base := os.TempDir()
	if len(base) > demoBase || strings.ContainsAny(base, "'{\n") {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "drover-demo-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the tour: %w (set TMPDIR to a folder that can be written to)", err)
	}
	plans := filepath.Join(dir, "plans")
	plan := filepath.Join(plans, "tour.yaml")
	err = os.Mkdir(plans, 0o700)
	if err == nil {
		err = os.WriteFile(plan, demoPlan, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "script.yaml"), []byte(strings.ReplaceAll(demoScript, "@plan@", plan)), 0o600)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("write the script of the tour: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// demoConfig is of a session that knows neither the user's settings nor those of
// the folder: the tour is the same everywhere.
func (w *world) demoConfig(dir string) (cfg assemble.Config, err error) {
	set, _, err := settings.Load(settings.Sources{})
	if err != nil {
		return cfg, err
	}
	exe, err := program()
	if err != nil {
		return cfg, err
	}
	// The socket and what is found of MCP servers lie in the folder of the tour too.
	env := append(slices.Clip(w.env), "XDG_RUNTIME_DIR="+dir, "XDG_CONFIG_HOME="+filepath.Join(dir, "config"))
	return assemble.Config{Root: home.At(filepath.Join(dir, "state")), Folder: w.cwd, Role: session.RolePrompt, Title: "demo", Version: version,
		Env: env, Settings: set, Keeper: []string{exe, "keeper", "--helper"}, Model: "script:" + filepath.Join(dir, "script.yaml"),
		Mode: w.demoMode(), Allow: demoAllow(), Dirs: []string{filepath.Join(dir, "plans")}}, nil
}

func openDemo(ctx context.Context, cfg assemble.Config, t *tour) (*assemble.Session, *session.Main, error) {
	s, err := assemble.Open(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.OpenMain(ctx, session.MainConfig{})
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	info, _ := s.Info(ctx) // of a session in this process there always is one
	t.session, t.since = info.Session, s.Since
	s.Serve()
	return s, m, nil
}

// demoMode lets the commands of the script run in a folder such as / too, where
// every program is one of the folder's own, which no rule can allow.
func (w *world) demoMode() permission.Mode {
	for _, name := range []string{"echo", "sleep"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(w.cwd, path); err == nil && filepath.IsLocal(rel) {
			return permission.Bypass
		}
	}
	return permission.Default
}

// giveTour holds the conversation, and returns its last answer and what ran.
func giveTour(ctx context.Context, s *assemble.Session, m *session.Main, t *tour) (answer string, records []task.Record, err error) {
	limit, done := context.WithTimeoutCause(ctx, demoLimit, fmt.Errorf("the tour took longer than %s (try it in a smaller folder)", demoLimit))
	defer done()
	work, end := context.WithCancelCause(limit)
	var running sync.WaitGroup
	defer running.Wait()
	defer end(task.ErrClosing)
	running.Go(func() { m.Run(work) })
	running.Go(func() { t.follow(work, s.Grown) })
	running.Go(func() { stopSearch(work, s) })
	for _, prompt := range []string{demoFirst, demoSecond} {
		if prompt == demoSecond { // then nobody has work left
			if err := finishTour(work, s); err != nil {
				return "", nil, err
			}
		}
		t.final(prompt == demoSecond)
		if err := m.Prompt(ctx, prompt); err != nil {
			return "", nil, err
		}
		if prompt == demoFirst {
			if err := dreamOnTour(work, s); err != nil {
				return "", nil, err
			}
		}
		if _, err := m.Settle(work, demoLimit); err != nil {
			return "", nil, err
		}
		if last := m.Last(); last.Err != nil {
			return "", nil, last.Err
		}
	}
	page, err := s.List(work, control.ListRequest{All: true})
	return m.Last().Result.Text, page.Tasks, err
}

// dreamOnTour starts the kind that no tool of a model starts.
func dreamOnTour(ctx context.Context, s *assemble.Session) error {
	started, err := s.Start(ctx, []control.StartRequest{{Dream: &control.DreamRequest{}}})
	if err == nil && started[0].Error != nil {
		err = started[0].Error
	}
	return err
}

// finishTour waits for work that a conversation does not wait for.
func finishTour(ctx context.Context, s *assemble.Session) error {
	page, err := s.List(ctx, control.ListRequest{})
	if err != nil {
		return err
	}
	var refs []string
	for _, r := range page.Tasks {
		if r.Silent && r.Team == nil || r.Traits().Work == task.ByEvents {
			refs = append(refs, string(r.ID))
		}
	}
	if len(refs) == 0 {
		return nil
	}
	_, err = s.Wait(ctx, control.WaitRequest{Refs: refs})
	return err
}

// stopSearch stops agents that have not found an end in time.
func stopSearch(ctx context.Context, s *assemble.Session) {
	timer := time.NewTimer(demoSearch)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	page, err := s.List(ctx, control.ListRequest{})
	if err != nil {
		return // the session is closing
	}
	var refs []string
	for _, r := range page.Tasks {
		if r.Team == nil && r.Kind.IsAgent() && r.ID != r.Session {
			refs = append(refs, string(r.ID))
		}
	}
	if len(refs) > 0 {
		// What a stop did is seen in the events; if it did nothing, the limit of the tour holds.
		_, _ = s.Stop(ctx, control.StopRequest{Refs: refs, Actor: task.ByRuntime, Detail: "the tour searches no longer than " + demoSearch.String()})
	}
}

// demoTable is what ran, oldest first, and what it has started below it.
func demoTable(records []task.Record) string {
	var buf bytes.Buffer
	tw := tabwriter.NewWriter(&buf, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "ID\tKIND\tSTATUS\tCAUSE\tTIME\tTOKENS\tWHAT")
	for _, r := range slices.Backward(records) {
		if r.ID != r.Session && r.Parent == "" {
			demoRow(tw, records, r, "")
		}
	}
	_ = tw.Flush() // a buffer takes everything
	return buf.String()
}

func demoRow(out io.Writer, all []task.Record, r task.Record, indent string) {
	tokens := "-"
	if r.Usage != nil && r.Usage.TotalTokens > 0 {
		tokens = fmt.Sprint(r.Usage.TotalTokens)
	}
	fmt.Fprintf(out, "%s%s\t%s\t%s\t%s\t%.1fs\t%s\t%s\n", indent, r.ID, r.Kind, r.Status, demoCause(r), r.Duration(time.Now()).Seconds(), tokens,
		excerpt.Line(cmp.Or(r.Description, r.Command), 40))
	for _, child := range slices.Backward(all) {
		if child.Parent == r.ID {
			demoRow(out, all, child, indent+"  ")
		}
	}
}

func demoCause(r task.Record) string {
	switch {
	case r.Cause == nil:
		return "-"
	case r.Cause.Actor != task.ByItself:
		return fmt.Sprintf("%s by %s", r.Cause.Reason, r.Cause.Actor)
	case r.ExitCode != nil && *r.ExitCode > 0:
		return fmt.Sprintf("%s %d", r.Cause.Reason, *r.ExitCode)
	}
	return string(r.Cause.Reason)
}

// Package demo is the tour of `drover demo`: a session whose model follows a script,
// with work of every kind, and the two servers that it talks to.
//
// It promises to change nothing in the folder that it shows, to talk to this process
// only, and to leave nothing behind. It reads no settings of the user.
package demo

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

	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/agentenv/settings"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
)

//go:embed script.yaml
var script string

//go:embed plan.yaml
var plan []byte

// Bounds of the tour, for folders that are huge or slow.
const (
	searchLimit = 20 * time.Second // then agents that still search are stopped
	tourLimit   = 50 * time.Second // then the tour ends with an error

	longestBase = 60 // bytes of the path of a folder in which a socket can lie
)

// What the tour asks.
const (
	firstPrompt  = "Have a look around in this folder."
	secondPrompt = "What have they found?"
)

// allowed are the commands of the script, and no others.
func allowed() []string {
	return []string{"Bash(echo:*)", "Bash(sleep 0.8)", "Bash(sleep 1.2)", "Bash(sleep 1.5)", "Bash(sleep 2)",
		"Bash(sleep 600)", "Bash(exit 3)", "mcp__tour__fold"}
}

// Config is what the tour is given.
type Config struct {
	Out     io.Writer
	Colour  bool
	Width   int // columns of the terminal; 0: lines are not broken
	Env     []string
	Folder  string   // that is shown
	Keeper  []string // the command of the helper that ends what this process leaves
	Version string
}

// Run gives the tour in a state folder of its own, which goes with it.
func Run(ctx context.Context, c Config) (err error) {
	dir, err := makeFolder()
	if err != nil {
		return err
	}
	defer func() { // after a failure; a second time does nothing
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	cfg, err := c.session(dir)
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
	t := newTour(c.Out, c.Colour)
	t.width = c.Width
	cfg.On = t.agent
	s, m, err := open(ctx, cfg, t)
	if err != nil {
		return err
	}
	t.printf(
		"A tour of Drover in %s\nThe model reads its words from a script; commands, agents, files and notifications are real.\n\n",
		excerpt.Line(c.Folder, 200),
	)
	answer, records, err := giveTour(ctx, s, m, t)
	closed := errors.Join(s.Close(), there.close())
	if err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	t.printf("\n%s\n\n%s", excerpt.Plain(answer), table(records))
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the folder of the tour: %w", err)
	}
	t.printf(
		"\nTokens are a guess of the script; nobody was paid. Every process has ended, and the tour's folder\n%s is removed: nothing is left behind.\n\n"+
			"Next: `drover run -d -- CMD` runs a command in the background, `drover ps -a` lists, and\n`drover -p \"PROMPT\"` asks a real model (set ANTHROPIC_API_KEY).\n",
		dir,
	)
	return t.err
}

// makeFolder makes the folder of the tour.
func makeFolder() (string, error) {
	base := os.TempDir()
	if len(base) > longestBase || strings.ContainsAny(base, "'{\n") {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "drover-demo-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the tour: %w (set TMPDIR to a folder that can be written to)", err)
	}
	plans := filepath.Join(dir, "plans")
	file := filepath.Join(plans, "tour.yaml")
	err = os.Mkdir(plans, 0o700)
	if err == nil {
		err = os.WriteFile(file, plan, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "script.yaml"), []byte(strings.ReplaceAll(script, "@plan@", file)), 0o600)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("write the script of the tour: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// session is how to open a session that knows neither the user's settings nor those of
// the folder: the tour is the same everywhere.
func (c Config) session(dir string) (cfg assemble.Config, err error) {
	set, _, err := settings.Load(settings.Sources{})
	if err != nil {
		return cfg, err
	}
	// The socket and what is found of MCP servers lie in the folder of the tour too.
	env := append(slices.Clip(c.Env), "XDG_RUNTIME_DIR="+dir, "XDG_CONFIG_HOME="+filepath.Join(dir, "config"))
	return assemble.Config{Root: home.At(filepath.Join(dir, "state")), Folder: c.Folder, Role: session.RolePrompt,
		Title: "demo", Version: c.Version,
		Env: env, Settings: set, Keeper: c.Keeper, Model: "script:" + filepath.Join(dir, "script.yaml"),
		Mode: c.mode(), Allow: allowed(), Dirs: []string{filepath.Join(dir, "plans")}}, nil
}

func open(ctx context.Context, cfg assemble.Config, t *tour) (*assemble.Session, *session.Main, error) {
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

// mode lets the commands of the script run in a folder such as / too, where
// every program is one of the folder's own, which no rule can allow.
func (c Config) mode() permission.Mode {
	for _, name := range []string{"echo", "sleep"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(c.Folder, path); err == nil && filepath.IsLocal(rel) {
			return permission.Bypass
		}
	}
	return permission.Default
}

// giveTour holds the conversation, and returns its last answer and what ran.
func giveTour(ctx context.Context, s *assemble.Session, m *session.Main, t *tour) (answer string, records []task.Record,
	err error) {
	limit, done := context.WithTimeoutCause(ctx, tourLimit,
		fmt.Errorf("the tour took longer than %s (try it in a smaller folder)", tourLimit))
	defer done()
	work, end := context.WithCancelCause(limit)
	var running sync.WaitGroup
	defer running.Wait()
	defer end(task.ErrClosing)
	running.Go(func() { m.Run(work) })
	running.Go(func() { t.follow(work, s.Grown) })
	running.Go(func() { stopSearch(work, s) })
	for _, prompt := range []string{firstPrompt, secondPrompt} {
		if prompt == secondPrompt { // then nobody has work left
			if err := finishTour(work, s); err != nil {
				return "", nil, err
			}
		}
		t.final(prompt == secondPrompt)
		if err := m.Prompt(ctx, prompt); err != nil {
			return "", nil, err
		}
		if prompt == firstPrompt {
			if err := dreamOnTour(work, s); err != nil {
				return "", nil, err
			}
		}
		if _, err := m.Settle(work, tourLimit); err != nil {
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
	timer := time.NewTimer(searchLimit)
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
		_, _ = s.Stop(ctx, control.StopRequest{Refs: refs, Actor: task.ByRuntime,
			Detail: "the tour searches no longer than " + searchLimit.String()})
	}
}

// table is what ran, oldest first, and what it has started below it.
func table(records []task.Record) string {
	var buf bytes.Buffer
	tw := tabwriter.NewWriter(&buf, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "ID\tKIND\tSTATUS\tCAUSE\tTIME\tTOKENS\tWHAT")
	for _, r := range slices.Backward(records) {
		if r.ID != r.Session && r.Parent == "" {
			row(tw, records, r, "")
		}
	}
	_ = tw.Flush() // a buffer takes everything
	return buf.String()
}

func row(out io.Writer, all []task.Record, r task.Record, indent string) {
	tokens := "-"
	if r.Usage != nil && r.Usage.TotalTokens > 0 {
		tokens = fmt.Sprint(r.Usage.TotalTokens)
	}
	fmt.Fprintf(out, "%s%s\t%s\t%s\t%s\t%.1fs\t%s\t%s\n", indent, r.ID, r.Kind, r.Status, cause(r),
		r.Duration(time.Now()).Seconds(), tokens,
		excerpt.Line(cmp.Or(r.Description, r.Command), 40))
	for _, child := range slices.Backward(all) {
		if child.Parent == r.ID {
			row(out, all, child, indent+"  ")
		}
	}
}

func cause(r task.Record) string {
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

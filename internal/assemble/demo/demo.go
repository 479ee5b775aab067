// Package demo is the tour of `drover demo`: a session whose model follows a script does a small job in a
// project of its own, and `drover` itself is called from outside of it as by a user.
//
// It promises to touch only a folder in the folder for temporary files, to need no network, and to leave nothing.
// It reads no settings of the user.
package demo

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/assemble/bare"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/task"
)

//go:embed script.yaml project
var files embed.FS

const (
	tourLimit = 2 * time.Minute
	// reading is the time to read a question before it is answered.
	reading = 1500 * time.Millisecond

	longestBase = 60 // bytes of the path of a folder in which a socket can lie

	request = "The tests fail. Find out why, have it fixed and reviewed, and keep the server running meanwhile."
)

// Config is the surroundings of the tour.
type Config struct {
	Out     io.Writer
	Colour  bool
	Width   int // columns of the terminal; 0: lines are not broken
	Env     []string
	Program string   // drover itself
	Keeper  []string // the command of the helper that ends the processes that this process leaves
	Version string
}

// Run gives the tour in a folder of its own, and removes the folder.
func Run(ctx context.Context, c Config) (err error) {
	if _, err := exec.LookPath("git"); err != nil {
		return errors.New("prepare the tour: git is not on the PATH (install git)")
	}
	dir, err := makeFolder()
	if err != nil {
		return err
	}
	defer func() { // after a failure; a second time does nothing
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	t := newTour(c, dir)
	if err := t.makeProject(ctx); err != nil {
		return err
	}
	t.printf("A small job in %s: a test of this project fails.\n"+
		"The model's replies come from a script. Commands, agents, files, commits and notifications are real.\n\n", t.folder)
	if err := t.work(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the folder of the tour: %w", err)
	}
	t.printf("\nEvery process has ended and %s is removed.\n\n"+
		"Next: `drover run -d -- make test` runs a command in the background, `drover ps -a` lists it.\n"+
		"`drover` opens a conversation with a model, and sets one up first.\n", dir)
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
	return dir, nil
}

// makeProject writes the script and the project, and commits the project.
func (t *tour) makeProject(ctx context.Context) error {
	err := os.CopyFS(t.dir, files)
	if err == nil {
		err = os.Rename(filepath.Join(t.dir, "project"), t.folder)
	}
	if err != nil {
		return fmt.Errorf("write the project of the tour: %w", err)
	}
	return t.quietly(ctx, "git init -q -b main . && git add . && git commit -qm 'Sum of an order'")
}

// surroundings are the variables of the tour: nothing of the user's settings, and a socket in its own folder.
func surroundings(c Config, dir string) []string {
	env := slices.DeleteFunc(slices.Clone(c.Env), func(v string) bool {
		return strings.HasPrefix(v, "DROVER_") && !strings.HasPrefix(v, "DROVER_TEST") || strings.HasPrefix(v, "GIT_")
	})
	return append(env, "DROVER_HOME="+filepath.Join(dir, "state"), "XDG_RUNTIME_DIR="+dir,
		"XDG_CONFIG_HOME="+filepath.Join(dir, "config"), "PATH="+filepath.Dir(c.Program)+":"+home.Lookup(c.Env)("PATH"),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_PAGER=cat",
		"GIT_AUTHOR_NAME=drover demo", "GIT_AUTHOR_EMAIL=demo@localhost",
		"GIT_COMMITTER_NAME=drover demo", "GIT_COMMITTER_EMAIL=demo@localhost")
}

// work has the job done, merges it and shows what ran.
func (t *tour) work(ctx context.Context) (err error) {
	ctx, done := context.WithTimeoutCause(ctx, tourLimit, fmt.Errorf("the tour took longer than %s", tourLimit))
	defer done()
	s, m, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := t.converse(ctx, s, m); err != nil {
		return err
	}
	for _, line := range []string{"drover diff fixer", "drover merge fixer", "sh test.sh", "drover ps -a"} {
		if err := t.types(ctx, line); err != nil {
			return err
		}
	}
	return nil
}

func (t *tour) open(ctx context.Context) (*assemble.Session, *session.Main, error) {
	set, _, err := settings.Load(settings.Sources{})
	if err != nil {
		return nil, nil, err
	}
	set.Add(settings.Source{Name: "the tour", Allow: []string{"Bash(sh serve.sh)", "Bash(sh test.sh)", "Bash(sleep 1)",
		"Bash(git commit:*)"}})
	s, err := assemble.Open(ctx, assemble.Config{Config: bare.Config{
		Root: home.At(filepath.Join(t.dir, "state")), Folder: t.folder,
		Role: session.RolePrompt, Title: "demo", Version: t.version, Env: t.env, Settings: set, Keeper: t.keeper},
		Model: "script:" + filepath.Join(t.dir, "script.yaml"), Program: agents.Program{AskWait: tourLimit, On: t.agent}})
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

// converse holds the conversation until nothing of it runs.
func (t *tour) converse(ctx context.Context, s *assemble.Session, m *session.Main) error {
	work, end := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer end(task.ErrClosing)
	running.Go(func() { m.Run(work) })
	running.Go(func() { t.follow(work, s.NextCommit) })
	running.Go(func() {
		if err := t.answer(work, s); err != nil && work.Err() == nil {
			end(err)
		}
	})
	if err := m.Prompt(ctx, request); err != nil {
		return err
	}
	if err := t.stopServer(work, s); err != nil {
		return cmp.Or(context.Cause(work), err)
	}
	if _, err := m.Settle(work, tourLimit); err != nil {
		return err
	}
	return m.Last().Err
}

// stopServer stops the development server when the review is done.
func (t *tour) stopServer(ctx context.Context, s *assemble.Session) error {
	for reviewed := false; !reviewed; {
		select {
		case <-t.turns:
		case <-ctx.Done():
			return ctx.Err()
		}
		r, err := s.Get(ctx, "reviewer")
		reviewed = err == nil && r.Status.Terminal() // before it starts, the name is unknown
	}
	page, err := s.List(ctx, control.ListRequest{})
	if err != nil {
		return err
	}
	for _, r := range page.Tasks {
		if r.Traits().Work == task.ByCommand {
			err = errors.Join(err, t.types(ctx, "drover stop "+string(r.ID)))
		}
	}
	return err
}

// answer allows each question by the command that a user would type.
func (t *tour) answer(ctx context.Context, s *assemble.Session) error {
	seen := map[string]bool{}
	for req := (control.ApprovalsRequest{Wait: tourLimit}); ; {
		open, err := s.Approvals(ctx, req)
		if err != nil {
			return err
		}
		req.After = open.Version
		for _, q := range open.Questions {
			if seen[q.ID] {
				continue
			}
			seen[q.ID] = true
			if err := t.types(ctx, "drover approvals"); err != nil {
				return err
			}
			select {
			case <-time.After(reading):
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := t.types(ctx, "drover approvals allow "+q.ID); err != nil {
				return err
			}
		}
	}
}

// types runs a line as a user would in the folder of the project, and prints the line and its output. On a
// terminal the command writes there itself, so that its tables fit.
func (t *tour) types(ctx context.Context, line string) error {
	cmd := t.command(ctx, line)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.write("\n" + t.paint(cyan, "$ "+line) + "\n")
	var err error
	if t.width > 0 {
		cmd.Stdout, cmd.Stderr = t.out, t.out
		err = cmd.Run()
	} else {
		var out []byte
		out, err = cmd.CombinedOutput()
		t.write(excerpt.Plain(string(bytes.TrimRight(out, "\n"))) + "\n")
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", line, err)
	}
	return nil
}

// quietly runs a line and prints nothing.
func (t *tour) quietly(ctx context.Context, line string) error {
	if out, err := t.command(ctx, line).CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", line, err, excerpt.Line(string(out), 200))
	}
	return nil
}

func (t *tour) command(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.Env, cmd.WaitDelay = t.folder, t.env, time.Second
	return cmd
}

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/frontend/cli"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/tui"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/platform/daypart"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/task"
)

// Screen shows the terminal UI.
func (b screens) Screen(ctx context.Context, s cli.Screen) (cli.Left, error) {
	if s.Lines {
		left, err := tui.Lines{In: os.Stdin, Out: os.Stdout, Typed: isTerminal(os.Stdin), Now: time.Now,
			Connect: connection(s.Connect), OnInterrupt: onInterrupt}.Run(ctx)
		return cli.Left(left), err
	}
	stops, continued, resized := make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	o := tui.Options{
		In: os.Stdin, Out: os.Stdout, Env: b.env, Version: b.version, Folder: b.cwd,
		Connect: connection(s.Connect), Later: s.Later, Prompt: s.Prompt, Choose: s.Choose,
		Sessions: func(ctx context.Context) ([]tui.Conversation, error) {
			list, err := s.Conversations(ctx)
			out := make([]tui.Conversation, len(list))
			for i, c := range list {
				out[i] = tui.Conversation(c)
			}
			return out, err
		},
		Switch: func(ctx context.Context, id task.ID) (tui.Connection, error) {
			return connection(func(ctx context.Context) (console.Session, error) { return s.Switch(ctx, id) })(ctx)
		},
		History: b.prompts(), Record: b.keepPrompt, Files: b.projectFiles, Todos: b.todos,
		Image: b.image, Clipboard: b.clipboard, Sees: choose.Sees,
		Diff: b.diff, Suspends: stops, Continued: continued, Resized: resized, TasksOnly: s.TasksOnly,
		Everywhere: tui.Everywhere{
			Attention: func(ctx context.Context) (tui.Waiting, error) {
				list, sessions, err := s.Attention(ctx)
				return tui.Waiting{List: list, Sessions: sessions}, err
			},
			Follow: s.Follow,
			Reach: func(ctx context.Context, id task.ID) (tui.Connection, error) {
				return connection(func(ctx context.Context) (console.Session, error) { return s.Reach(ctx, id) })(ctx)
			},
			MarkSeen: s.Seen,
		},
	}
	if s.SetUp {
		o.SetUp = b.setUp()
	}
	if !signal.Ignored(syscall.SIGTSTP) { // otherwise nothing would continue it
		signal.Notify(stops, syscall.SIGTSTP)
		defer signal.Stop(stops)
		o.Suspend = standStill
	}
	set, err := b.Settings("")
	if err != nil {
		return cli.Left{}, err
	}
	loud, _ := daypart.Parse(set.Notify.Quiet) // errors are reported when sessions are opened
	o.Loud = loud.Rest()
	if set.Notify.Desktop && set.Terminal.Notify == "osc" {
		set.Terminal.Notify = "bell" // the desktop is notified once
	}
	o.Notify, o.Mouse, o.Keys = set.Terminal.Notify, set.Terminal.Mouse, set.Terminal.Keys
	o.HintAfter = set.Terminal.HintAfter
	left, err := tui.Run(ctx, o)
	return cli.Left(left), err
}

// connection connects the terminal UI to the session that find finds.
func connection(find func(context.Context) (console.Session, error)) func(context.Context) (tui.Connection, error) {
	return func(ctx context.Context) (tui.Connection, error) {
		s, err := find(ctx)
		if err != nil {
			return tui.Connection{}, err
		}
		api, release, err := s.Open(ctx)
		if err != nil {
			return tui.Connection{}, err
		}
		return tui.Connection{API: api, Info: s.Info(), Release: release}, nil
	}
}

// Bounds of the history of prompts of a project.
const (
	mostPrompts     = 1000
	mostPromptBytes = 64 << 10 // of a prompt that is kept
	mostHistory     = 8 << 20  // bytes of the file that are read
)

func (b screens) promptsFile() string {
	return filepath.Join(b.root.Project(b.cwd).Dir(), "prompts.jsonl")
}

// prompts returns the earlier prompts, oldest first, without unreadable ones.
func (b screens) prompts() []string {
	data, err := b.root.ReadFile(b.promptsFile(), mostHistory)
	if err != nil {
		return nil
	}
	var list []string
	for line := range bytes.Lines(data) {
		var text string
		if json.Unmarshal(line, &text) == nil {
			list = append(list, text)
		}
	}
	return list[max(0, len(list)-mostPrompts):]
}

// keepPrompt adds a prompt to the history. It cuts a long file to the part that is read.
func (b screens) keepPrompt(text string) error {
	if len(text) > mostPromptBytes {
		return nil
	}
	line, err := json.Marshal(text)
	if err != nil {
		return fmt.Errorf("encode a prompt for the history: %w", err)
	}
	line = append(line, '\n')
	if info, err := b.root.Below().Lstat(b.promptsFile()); err == nil && info.Size() > mostHistory/2 {
		var all []byte
		for _, old := range b.prompts() {
			if one, err := json.Marshal(old); err == nil {
				all = append(append(all, one...), '\n')
			}
		}
		return b.root.WriteAtomic(b.promptsFile(), append(all[max(0, len(all)-mostHistory/4):], line...))
	}
	f, err := b.root.Below().Open(b.promptsFile(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the history of prompts: %w", err)
	}
	_, err = f.Write(line)
	return errors.Join(err, f.Close())
}

// Bounds of the list of files of a project.
const (
	mostFiles     = 20_000
	mostFileBytes = 4 << 20
)

// projectFiles lists the files of the folder: those that git knows or would, else those
// that are there.
func (b screens) projectFiles(ctx context.Context) ([]string, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-co", "--exclude-standard", "-z")
	cmd.Dir, cmd.Env = b.cwd, b.env
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		var list []string
		r := bufio.NewScanner(io.LimitReader(out, mostFileBytes))
		r.Split(splitNUL)
		for len(list) < mostFiles && r.Scan() {
			list = append(list, r.Text())
		}
		stop() // if there are more
		if err = cmd.Wait(); err == nil || len(list) > 0 {
			return list, nil
		}
	}
	var list []string
	err = filepath.WalkDir(b.cwd, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return nil //nolint:nilerr // what cannot be read is not offered
		case len(list) >= mostFiles:
			return fs.SkipAll
		case d.IsDir() && path != b.cwd && (strings.HasPrefix(name, ".") || name == "node_modules"):
			return fs.SkipDir
		case d.Type().IsRegular():
			if rel, err := filepath.Rel(b.cwd, path); err == nil {
				list = append(list, rel)
			}
		}
		return nil
	})
	return list, err
}

// splitNUL splits at zero bytes.
func splitNUL(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil // a name that was cut is none
	}
	return 0, nil, nil
}

// todos reads the to-dos of a session.
func (b *folder) todos(ctx context.Context, id task.ID) (todo.List, error) {
	name, err := todo.ListName(home.Lookup(b.env), string(id))
	if err != nil || name == "" {
		return todo.List{}, err
	}
	return todo.At(b.root.Todos(name), false).List(ctx)
}

// mostDiffBytes bounds what is read of the changes of a folder.
const mostDiffBytes = 8 << 20

// diff returns the changes of a folder since the last commit: the diff of files that git
// knows, and the names of those that it does not.
func (b screens) diff(ctx context.Context, folder string) (string, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	git := func(args ...string) (string, error) {
		args = append([]string{"-c", "core.fsmonitor=false", "-c", "core.quotePath=true"}, args...)
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir, cmd.Env = cmp.Or(folder, b.cwd), b.env
		var out, fault bytes.Buffer
		cmd.Stdout, cmd.Stderr = &capped{Buffer: &out, room: mostDiffBytes}, &capped{Buffer: &fault, room: 4 << 10}
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("git %s in %s: %w: %s", args[4], cmd.Dir, err, strings.TrimSpace(fault.String()))
		}
		return out.String(), nil
	}
	// Without a commit the empty tree is the base.
	base := "HEAD"
	if _, err := git("rev-parse", "--verify", "-q", "HEAD"); err != nil {
		base = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
	}
	text, err := git("diff", "--no-ext-diff", "--no-textconv", "--no-color", base, "--")
	if err != nil {
		return "", err
	}
	fresh, err := git("ls-files", "-o", "--exclude-standard")
	for name := range strings.Lines(fresh) {
		text += "?? " + name
	}
	return text, err
}

// capped takes what there is room for, and drops the rest.
type capped struct {
	*bytes.Buffer
	room int
}

func (c *capped) Write(p []byte) (int, error) {
	take := min(len(p), c.room)
	c.room -= take
	c.Buffer.Write(p[:take])
	return len(p), nil
}

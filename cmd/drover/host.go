package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/host"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/prompt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
)

// hostCommand is the detached host of a project.
func (b prompts) hostCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "host",
		Short: "The detached host of a project (started on demand)",
		Args:  cobra.NoArgs,

		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.cwd = home.Lookup(b.env)(host.ProjectVariable); b.cwd == "" {
				return errors.New("this command is started by others: use `drover run -d`")
			}
			if file := home.Lookup(b.env)(host.PromptVariable); file != "" {
				return b.hostPrompt(cmd.Context(), file)
			}
			return b.host(cmd.Context())
		},
	}
}

func (b prompts) host(ctx context.Context) error {
	d := b.directory()
	set, err := b.Settings("")
	if err != nil {
		return err
	}
	place, err := d.BackgroundSession()
	if err != nil {
		return err
	}
	s, err := b.background(ctx, place, set)
	if journal.Damaged(err) { // it is kept as it is, and named by every listing
		b.note(err.Error())
		if place, err = d.NewBackgroundSession(); err != nil {
			return err
		}
		s, err = b.background(ctx, place, set)
	}
	if err != nil {
		return err
	}
	return b.serve(ctx, s, host.Idle)
}

// background opens the session of a project's detached host.
func (b *folder) background(
	ctx context.Context,
	place home.Session,
	set settings.Settings,
) (*assemble.Session, error) {
	cfg := b.opening(session.RoleBackground, "background tasks", set)
	cfg.Session, cfg.Copier, cfg.AskWait = place.ID(), b.copier(), set.Permissions.AskTimeout
	return b.open(ctx, cfg)
}

// openTries is how often a session is opened that others have for a moment: who looks
// whether it is open, or who opens it at the same time.
const openTries = 3

// open opens a session when an earlier host has let go of it.
func (b *folder) open(ctx context.Context, cfg assemble.Config) (*assemble.Session, error) {
	for tries := 1; ; tries++ {
		if cfg.Session != "" {
			if err := released(ctx, b.root.Project(cfg.Folder).Session(cfg.Session)); err != nil {
				return nil, err
			}
		}
		s, err := assemble.Open(ctx, cfg)
		if !errors.Is(err, home.ErrLocked) || tries == openTries {
			return s, err
		}
	}
}

// closingWait is how long an earlier host of a session may take to close.
const closingWait = 10 * time.Second

// released waits until an earlier host of the session, which listens no more but
// may still be ending its tasks, has let go of it. One that answers will not soon.
// Opening the session reports every other problem.
func released(ctx context.Context, place home.Session) error {
	ctx, cancel := context.WithTimeoutCause(ctx, closingWait, fmt.Errorf("session %s: %w", place.ID(), home.ErrLocked))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		unlock, err := place.Lock()
		if err == nil {
			unlock()
		}
		if !errors.Is(err, home.ErrLocked) {
			return nil
		}
		if host.Lives(place) {
			return fmt.Errorf("session %s: %w", place.ID(), home.ErrLocked)
		}
		select { // a lock of the kernel gives no event to a waiter with a deadline
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// serve answers for a detached session until it has nothing left to do, then
// closes it.
func (b *folder) serve(ctx context.Context, s *assemble.Session, idle time.Duration) error {
	if err := ready(); err != nil {
		return errors.Join(err, s.Close())
	}
	defer context.AfterFunc(ctx, s.HastenHooks)()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.Alone(), func() { cancel(context.Cause(s.Alone())) })()
	err := s.ServeUntilIdle(ctx, idle)
	return errors.Join(err, s.Close())
}

// maxPrompt bounds the file of a prompt.
const maxPrompt = 64 << 20

// hostPrompt is the detached host of one conversation: of a prompt, or for a user who attaches.
func (b prompts) hostPrompt(ctx context.Context, file string) error {
	raw, err := b.root.ReadFile(file, maxPrompt)
	if err != nil {
		return fmt.Errorf("read the prompt: %w", err)
	}
	var p prompt.Prompt
	if err := json.Unmarshal(raw, &p); err != nil {
		return fmt.Errorf("read the prompt: %w", err)
	}
	set, err := b.promptSettings(ctx, &p)
	if err != nil {
		return err
	}
	if p.AskTimeout == 0 {
		p.AskTimeout = set.Permissions.AskTimeout
	}
	id := task.ID(p.Session)
	mine, err := mainOf(&p)
	if err != nil {
		return err
	}
	cfg := b.config(&p, set, id)
	cfg.Detached = true
	s, err := b.open(ctx, cfg)
	if err != nil {
		return locked(err, id)
	}
	m, err := s.OpenMain(ctx, mine)
	if err == nil {
		err = b.converse(ctx, s, m, &p, file)
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return b.serve(ctx, s, host.PromptIdle)
}

// converse begins the conversation, unless the starter of the host has waited too long and removed the
// prompt.
func (b prompts) converse(
	ctx context.Context,
	s *assemble.Session,
	m *session.Main,
	p *prompt.Prompt,
	file string,
) error {
	if err := b.root.Below().Remove(file); err != nil {
		return fmt.Errorf("take the prompt: %w", err)
	}
	s.HostMain(m, p.WaitCeiling)
	if p.Prompt == "" {
		s.Expect()
		return nil
	}
	return s.Prompt(ctx, control.PromptRequest{Text: p.Prompt, Images: p.Images})
}

// ready reports to the starter of the host that the host answers, and closes the pipe for that.
func ready() error {
	if _, err := os.Stdout.WriteString(host.Ready); err != nil {
		return fmt.Errorf("tell that the host is ready: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("let go of stdout: %w", err)
	}
	_ = os.Stdout.Close()
	os.Stdout = null
	return nil
}

// Conversation finds the live host of a conversation, or starts a detached one with what p
// says; started says which. The prompt of p is only given to a host that is started.
func (b prompts) Conversation(ctx context.Context, p prompt.Prompt, id task.ID) (s console.Session, started bool,
	err error) {
	d := b.directory()
	set, err := b.promptSettings(ctx, &p)
	if err != nil {
		return nil, false, err
	}
	p.Session, p.WaitCeiling = string(id), ceiling(&p, set)
	e, started, err := d.Conversation(ctx, id, func() ([]string, func() bool, error) {
		file, err := b.handOver(&p)
		// the process that removes it has the prompt
		return []string{host.PromptVariable + "=" + file}, func() bool { return b.root.Below().Remove(file) == nil }, err
	})
	return known{e}, started, err
}

// handOver writes the prompt for a host. Each host has a file of its own, which is swept if it stays
// unread.
func (b prompts) handOver(p *prompt.Prompt) (file string, err error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("write the prompt down: %w", err)
	}
	dir, err := b.root.Below().Folder(b.root.Project(b.cwd).Dir())
	if err != nil {
		return "", fmt.Errorf("write the prompt down: %w", err)
	}
	defer dir.Close()
	f, err := dir.Temporary(".prompt-" + p.Session + ".tmp-")
	if err != nil {
		return "", fmt.Errorf("write the prompt down: %w", err)
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("write the prompt down: %w", err), dir.Remove(filepath.Base(f.Name())))
	}
	return f.Name(), nil
}

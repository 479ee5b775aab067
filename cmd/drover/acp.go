package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/frontend/acpserver"
	"github.com/drover-dev/drover/internal/frontend/cli/agents"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/prompt"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/task"
)

// ServeACP serves as an agent to one ACP client on stdin and stdout.
func (b surroundings) ServeACP(ctx context.Context, o agents.ACP) error {
	signalled := func(f func()) func() bool { return context.AfterFunc(ctx, f) }
	return acpserver.Agent{In: os.Stdin, Out: os.Stdout, Warn: b.stderr, Version: b.version,
		Host: &acpHost{b: prompts(b), o: o, signalled: signalled}}.Serve(ctx)
}

// acpHost opens the sessions of an ACP client in this process.
type acpHost struct {
	b prompts
	o agents.ACP

	signalled func(func()) (stop func() bool) // calls a function when a signal has ended the program
}

// at is a folder that the client names.
func (h *acpHost) at(folder string) (prompts, error) {
	info, err := os.Stat(folder)
	if err == nil && !info.IsDir() {
		err = errors.New("it is no folder")
	}
	if err != nil {
		return prompts{}, console.Usage(fmt.Sprintf("use folder %s: %v", folder, err), "")
	}
	return prompts{h.b.in(folder)}, nil
}

// found is a session of a folder, or of any folder if that is empty.
func (h *acpHost) found(ctx context.Context, folder string, id task.ID) (control.Info, error) {
	all, err := h.Sessions(ctx, folder)
	if err != nil {
		return control.Info{}, err
	}
	for _, one := range all {
		if one.Session == id {
			return one, nil
		}
	}
	where := "is not known"
	if folder != "" {
		where = "is none of folder " + folder
	}
	return control.Info{}, console.Missing(fmt.Sprintf("session %.80q %s", id, where),
		"see `drover sessions --all-sessions`")
}

// Sessions implements [acpserver.Host].
func (h *acpHost) Sessions(ctx context.Context, folder string) ([]control.Info, error) {
	d := h.b.directory()
	if folder != "" {
		d.Folder = folder
	}
	entries, err := d.Sessions(ctx, false, folder == "")
	if err != nil {
		return nil, err
	}
	var out []control.Info
	for _, e := range entries {
		if e.Info.Role == session.RolePrompt {
			out = append(out, e.Info)
		}
	}
	return out, nil
}

// Fork implements [acpserver.Host].
func (h *acpHost) Fork(ctx context.Context, folder string, from task.ID) (task.ID, error) {
	b, err := h.at(folder)
	if err != nil {
		return "", err
	}
	if _, err := h.found(ctx, folder, from); err != nil {
		return "", err
	}
	forked, err := b.Fork(from, control.ForkRequest{})
	return forked.Session, err
}

// Remove implements [acpserver.Host].
func (h *acpHost) Remove(ctx context.Context, id task.ID) error {
	info, err := h.found(ctx, "", id)
	if err != nil {
		return err
	}
	return storage{h.b.folder}.Remove(ctx, info)
}

// Open opens a session with its main agent.
func (h *acpHost) Open(ctx context.Context, o acpserver.Opening) (acpserver.Session, error) {
	b, err := h.at(o.Folder)
	if err != nil {
		return nil, err
	}
	if o.Session != "" {
		if _, err := h.found(ctx, o.Folder, o.Session); err != nil {
			return nil, err
		}
	}
	p := &prompt.Prompt{Agent: h.o.Agent, Model: h.o.Model, Mode: h.o.Mode, Settings: h.o.Settings,
		AskTimeout: acpserver.AskWait, Dirs: o.Dirs}
	if o.MCP != "" {
		p.MCP = []string{o.MCP}
	}
	set, err := b.promptSettings(ctx, p)
	if err != nil {
		return nil, err
	}
	cfg := b.config(p, set, o.Session)
	cfg.Keeper, cfg.On = b.helper(), o.On
	s, err := b.open(ctx, cfg)
	if err != nil {
		return nil, locked(err, o.Session)
	}
	mine, err := mainOf(p)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	one := &acpSession{Session: s, b: b, p: p}
	ready := make(chan struct{}) // the main agent is known
	mine.DropUnused = true
	mine.Begin = func(origin string) {
		<-ready
		now, _ := one.main.State()
		o.Begin(acpserver.Trigger{Origin: origin, Prompt: now.Trigger.Prompt.Text, Seq: now.Trigger.Prompt.Seq})
	}
	mine.Done = func(t conversation.Turn) {
		o.Done(acpserver.Turn{Result: t.Result, Err: t.Err, Beside: t.Beside})
	}
	one.main, err = s.OpenMain(ctx, mine)
	close(ready)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	one.work, one.end = context.WithCancelCause(context.Background())
	one.unlost = context.AfterFunc(s.Alone(), func() {
		if why := context.Cause(s.Alone()); errors.Is(why, session.ErrFolderGone) {
			one.end(why)
		}
	})
	one.ended = make(chan struct{})
	one.calm = h.signalled(s.HastenHooks)
	s.Serve()
	return one, nil
}

// acpSession is a session of an ACP client.
type acpSession struct {
	*assemble.Session
	b    prompts
	p    *prompt.Prompt
	main *session.Main

	work   context.Context // of the main agent
	end    context.CancelCauseFunc
	unlost func() bool
	calm   func() bool
	turns  sync.WaitGroup
	ended  chan struct{} // closed when the main agent works no more before Close
	close  sync.Once
}

// API implements [acpserver.Session].
func (s *acpSession) API() control.API { return s.Session }

// ID implements [acpserver.Session].
func (s *acpSession) ID() task.ID { return s.Place.ID() }

// History implements [acpserver.Session].
func (s *acpSession) History(each func(agent.Record) error) error {
	return (&agent.Reading{Path: s.Place.Transcript()}).Next(each)
}

// Todos implements [acpserver.Session].
func (s *acpSession) Todos(ctx context.Context) (todo.List, error) { return s.b.todos(ctx, s.ID()) }

// Usage implements [acpserver.Session].
func (s *acpSession) Usage() acpserver.Usage {
	u := acpserver.Usage{Tokens: s.main.Totals().Context, Window: s.main.ModelSettings().Window}
	u.USD, u.CostKnown = s.Cost()
	return u
}

// Entitle implements [acpserver.Session].
func (s *acpSession) Entitle(prompt string) string {
	if title := console.Title(prompt); s.Session.Entitle(title) {
		return title
	}
	return ""
}

// Run implements [acpserver.Session].
func (s *acpSession) Run() {
	s.turns.Go(func() {
		defer close(s.ended)
		s.main.Run(s.work)
	})
}

// Ended implements [acpserver.Session].
func (s *acpSession) Ended() <-chan struct{} { return s.ended }

// Close implements [acpserver.Session].
func (s *acpSession) Close() (err error) {
	s.close.Do(func() {
		s.unlost()
		s.end(task.ErrClosing)
		s.turns.Wait()
		err = s.Session.Close()
		s.calm()
		s.b.part(s.main, s.p.Settings)
	})
	return err
}

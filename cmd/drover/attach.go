package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/host"
	"github.com/drover-dev/drover/internal/frontend/agentsdk"
	"github.com/drover-dev/drover/internal/frontend/cli"
	"github.com/drover-dev/drover/task"
)

// handOvers is how often a prompt is offered to hosts that end at that moment.
const handOvers = 5

// conversation finds the live host of a conversation, or starts a detached one with what p
// says; started says which. The prompt of p is only given to a host that is started.
func (w *world) conversation(ctx context.Context, p promptFlags, id task.ID) (e host.Entry, started bool, err error) {
	d, err := w.directory()
	if err != nil {
		return host.Entry{}, false, err
	}
	set, err := w.promptSettings(ctx, &p)
	if err != nil {
		return host.Entry{}, false, err
	}
	p.Session, p.WaitCeiling = string(id), p.ceiling(set)
	return d.Conversation(ctx, id, func() ([]string, func() bool, error) {
		file, err := w.handOver(&p)
		return []string{host.PromptVariable + "=" + file}, func() bool { return w.root.Below().Remove(file) == nil }, err // whoever removes it has the prompt
	})
}

// handOver writes down for a host what it is to do. Each host has a file of its
// own, which is swept if nobody came to read it.
func (w *world) handOver(p *promptFlags) (file string, err error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("write the prompt down: %w", err)
	}
	dir, err := w.root.Below().Folder(w.root.Project(w.cwd).Dir())
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

// promptDetached has a prompt answered by a host of its own, or by that which the
// session has already, and prints the session.
func (w *world) promptDetached(ctx context.Context, p *promptFlags) error {
	id, err := w.pick(ctx, p)
	if err != nil {
		return err
	}
	if id == "" {
		id = task.NewSessionID()
	}
	for tries := 1; ; tries++ {
		again, err := w.giveDetached(ctx, p, id)
		if err == nil {
			_, err = fmt.Fprintln(os.Stdout, id)
			return err
		}
		if !again || tries == handOvers {
			return err
		}
	}
}

// giveDetached gives the prompt to the host of the session, which is started for it
// if there is none; again says that this host was just going away, and has gone.
func (w *world) giveDetached(ctx context.Context, p *promptFlags, id task.ID) (again bool, err error) {
	e, started, err := w.conversation(ctx, *p, id)
	switch {
	case err != nil || started:
		return false, err
	case !e.Info.Detached:
		return false, w.elsewhere(e.Info)
	}
	api, done, err := e.Open(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	if err = api.Prompt(ctx, control.PromptRequest{Text: p.Prompt}); !control.Refused(err) {
		return false, err
	}
	return e.Gone(ctx), err
}

// elsewhere says where a session lives that cannot be gone on with here.
func (w *world) elsewhere(info control.Info) error {
	return &control.Error{Code: control.Conflict, Message: fmt.Sprintf("session %s runs in process %d", info.Session, info.PID),
		Mend: fmt.Sprintf("use `drover attach %s`, stop it with `drover stop`, or add --fork-session", info.Session)}
}

// attachable finds a conversation for `drover attach`, or starts its host.
func (w *world) attachable(ctx context.Context, c cli.Conversing) (cli.Session, error) {
	p := promptFlags{Format: string(agentsdk.Text), Model: c.Model, Agent: c.Agent, Mode: c.Mode, Attach: true}
	there := w
	if c.Session == "" {
		c.Session = task.NewSessionID()
	} else {
		e, err := w.entry(ctx, string(c.Session))
		if err != nil {
			return nil, err
		}
		if there, err = w.at(e); err != nil {
			return nil, err
		}
	}
	if err := there.check(ctx, &p, nil); err != nil {
		return nil, err
	}
	return there.conversationOf(ctx, p, c.Session)
}

// isResume reports whether the words ask to go on with a conversation without a
// prompt, as `drover --resume ID` does.
func isResume(args []string) bool {
	var p promptFlags
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	p.add(flags)
	flags.Usage = func() {} // --help is for somebody else
	return len(args) > 0 && strings.HasPrefix(args[0], "-") && flags.Parse(args) == nil && (p.Continue || p.Resume != "")
}

// resumeCommand is `drover --resume ID` and `drover --continue`: the conversation
// with somebody at a terminal.
func (w *world) resumeCommand() *cobra.Command {
	p := promptFlags{Attach: true}
	cmd := &cobra.Command{
		Use:           "drover (--resume ID | --continue) [flags]",
		Short:         "Go on with a conversation",
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, words []string) error {
			switch {
			case len(words) > 0:
				return usage("a prompt without -p", "use `drover -p --resume ID \"…\"`")
			case !isTerminal(os.Stdin) || !isTerminal(os.Stdout):
				return usage("there is no terminal", "give a prompt with -p, or use `drover attach`")
			}
			ctx := cmd.Context()
			there, err := w.of(ctx, &p)
			if err != nil {
				return err
			}
			if err := there.check(ctx, &p, nil); err != nil {
				return err
			}
			id, err := there.pick(ctx, &p)
			if err != nil {
				return err
			}
			return cli.Attach(ctx, there.deps(), func(ctx context.Context) (cli.Session, error) { return there.conversationOf(ctx, p, id) })
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err.Error(), "see `drover -p --help`") })
	p.add(cmd.Flags())
	return cmd
}

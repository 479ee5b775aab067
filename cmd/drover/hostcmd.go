package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/host"
	"github.com/drover-dev/drover/internal/keeper"
	"github.com/drover-dev/drover/internal/session"
)

// keep is `drover keeper`: the process that outlives a host. It is no command
// of the tree, so that nothing else of the program is set up in it.
func keep(ctx context.Context, args []string) int {
	var err error
	if slices.Equal(args, []string{"--helper"}) {
		err = keeper.RunHelper(ctx)
	} else {
		var exe string
		if exe, err = program(); err == nil {
			_, err = keeper.RunParent(ctx, keeper.Config{Args: []string{exe, "host"}, Dir: "/", Stdout: os.Stdout, Stderr: os.Stderr})
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "drover: keeper: %s\n", err)
		return 1
	}
	return 0
}

// hostCommand is the detached host of a project.
func (w *world) hostCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "host",
		Short:  "The detached host of a project (started on demand)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if w.cwd = lookup(w.env)(host.ProjectVariable); w.cwd == "" {
				return errors.New("this command is started by others: use `drover run -d`")
			}
			return w.host(cmd.Context())
		},
	}
}

func (w *world) host(ctx context.Context) error {
	d, err := w.directory()
	if err != nil {
		return err
	}
	place, err := d.BackgroundSession()
	if err != nil {
		return err
	}
	set, err := w.settings("")
	if err != nil {
		return err
	}
	s, err := assemble.Open(ctx, assemble.Config{Root: w.root, Folder: w.cwd, Session: place.ID(), Role: session.RoleBackground, Title: "background tasks",
		Version: version, Env: w.env, Settings: set})
	if err != nil {
		return err
	}
	if err := ready(); err != nil {
		return errors.Join(err, s.Close())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if s.Keeper != nil {
		lost := make(chan struct{})
		watched := make(chan struct{})
		go func() { // joined below
			defer close(watched)
			select {
			case <-s.Keeper.Lost():
				cancel(errors.New("the keeper is gone"))
			case <-lost:
			}
		}()
		defer func() { close(lost); <-watched }()
	}
	err = s.ServeUntilIdle(ctx, host.Idle)
	return errors.Join(err, s.Close())
}

// ready tells whoever started the host that it answers, and lets go of the pipe
// on which it is told.
func ready() error {
	if _, err := os.Stdout.WriteString(host.Ready); err != nil {
		return fmt.Errorf("tell that the host is ready: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("let go of stdout: %w", err)
	}
	os.Stdout.Close()
	os.Stdout = null
	return nil
}

func lookup(env []string) func(string) string {
	return func(key string) string {
		for i := len(env) - 1; i >= 0; i-- {
			if v, ok := strings.CutPrefix(env[i], key+"="); ok {
				return v
			}
		}
		return ""
	}
}

package steer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

func (a *app) promote() *cobra.Command {
	cmd := &cobra.Command{Use: "promote [--json] REF", Args: console.Args(1, 1), ValidArgsFunction: a.CompleteTasks(false)}
	return a.steer(cmd, false, func(ctx context.Context, api control.API, ref string, _ []string) (task.Record, error) {
		return api.Promote(ctx, ref)
	})
}

func (a *app) send() *cobra.Command {
	cmd := &cobra.Command{
		Use: "send [--json] REF MESSAGE | send --key KEY,… REF | send [--raw] REF -",
		Long: "Send a message to an agent. A running or queued agent reads it before its next step; an agent that has\n" +
			"ended gets a new run with the message as its prompt. The ID of a session means its main agent.\n\n" +
			"For a command started with `drover run --tty`, send types the message into its terminal, followed by Enter\n" +
			"unless --raw is given. --key types single keys: " + keyNames() + ",\n" +
			"ctrl-a to ctrl-z. The message - is read from stdin; use it for passwords, which process lists and shell\n" +
			"history would show. Drover does not store typed text; the terminal echoes it unless the command turns echo off.",
		Args:              console.Args(1, 2),
		ValidArgsFunction: a.CompleteTasks(true),
	}
	raw := cmd.Flags().Bool("raw", false, "do not type Enter after the message")
	named := cmd.Flags().StringSlice("key", nil, "type these keys after the message, if any, such as ctrl-c or up,enter")
	var text *string
	return a.steer(cmd, true, func(ctx context.Context, api control.API, ref string, words []string) (task.Record, error) {
		if text == nil { // stdin can be read once
			read, err := a.message(words[1:], *named)
			if err != nil {
				return task.Record{}, err
			}
			text = &read
		}
		return api.Send(ctx, control.SendRequest{Ref: ref, Text: *text, Raw: *raw || len(*named) > 0, Env: a.Env})
	})
}

func (a *app) resume() *cobra.Command {
	cmd := &cobra.Command{
		Use: "resume [--json] REF [PROMPT]",
		Long: "Resume a paused task and everything below it. An agent that has ended gets a new run with the whole\n" +
			"conversation, and PROMPT or \"Go on.\" as its prompt. A workflow skips its completed steps.",
		Args:              console.Args(1, 2),
		ValidArgsFunction: a.CompleteTasks(true),
	}
	return a.steer(cmd, false, func(ctx context.Context, api control.API, ref string, words []string) (task.Record,
		error) {
		req := control.ResumeRequest{Ref: ref, Env: a.Env}
		if len(words) > 1 {
			req.Prompt = words[1]
		}
		return api.Resume(ctx, req)
	})
}

// steering changes the task that a ref means.
type steering func(ctx context.Context, api control.API, ref string, words []string) (task.Record, error)

// steer builds a command that changes one task and prints its ID. With sessions
// the ID of a live session is taken too.
func (a *app) steer(cmd *cobra.Command, sessions bool, do steering) *cobra.Command {
	asJSON := cmd.Flags().Bool("json", false, "print the task as JSON")
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		ctx := cmd.Context()
		var rec task.Record
		err := console.Taken(ctx, func() (s console.Session, err error) {
			s, rec, err = a.steerOne(ctx, cmd.Name(), words, sessions, *all, do)
			return s, err
		})
		if err != nil {
			return err
		}
		if *asJSON {
			return console.PrintJSON(a.Stdout, rec)
		}
		return a.Println(console.Cell(string(rec.ID), 40))
	}
	return cmd
}

// steerOne resolves the word and changes the task.
func (a *app) steerOne(ctx context.Context, verb string, words []string, sessions, all bool,
	do steering) (s console.Session,
	rec task.Record, err error) {
	f, err := a.Resolve(ctx, words[0], all)
	ref := string(f.Record.ID)
	if sessions && console.NotFound(err) {
		if s, other := a.host(ctx, words[0], all); !console.NotFound(other) {
			f, err = console.Found{Session: s}, other
		}
		if err == nil {
			ref = string(f.Session.Info().Session)
		}
	}
	if err != nil {
		return nil, rec, err
	}
	api, done, err := a.OpenToResume(ctx, f)
	if err != nil {
		return f.Session, rec, err
	}
	defer done()
	if rec, err = do(ctx, api, ref, words); err != nil {
		return f.Session, rec, fmt.Errorf("%s %s: %w", verb, ref, err)
	}
	return f.Session, rec, nil
}

// host finds the session that a word means, which must be live.
func (a *app) host(ctx context.Context, word string, all bool) (s console.Session, err error) {
	for _, p := range slices.Concat(console.SearchOrder(word, all)...) {
		known, listed := a.Known(ctx, p.Live, p.All)
		if listed != nil {
			return nil, listed
		}
		if s, err = console.PickSession(known, word); console.NotFound(err) {
			continue
		}
		if err == nil && !s.Info().Live {
			id := s.Info().Session
			err = console.Conflict(fmt.Sprintf("session %s has no host", id), "see `drover ps -a` for its tasks")
			if s.Info().Role == console.Conversing {
				err = console.Conflict(fmt.Sprintf("session %s has no host", id),
					fmt.Sprintf("resume it with `drover attach %s`", id))
			}
		}
		return s, err
	}
	return nil, err
}

func (a *app) pause() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pause [--json] REF…",
		Long: "Pause tasks and everything below them. An agent finishes its current reply and calls, starts nothing new, and\n" +
			"keeps all its work; commands are suspended. `drover resume` continues them.",
		Args:              console.Args(1, -1),
		ValidArgsFunction: a.CompleteTasks(false),
	}
	asJSON := cmd.Flags().Bool("json", false, "print a JSON array of the paused tasks")
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		ctx := cmd.Context()
		tasks, err := a.ResolveAll(ctx, words, *all)
		if err != nil {
			return err
		}
		held := []task.Record{}
		for _, some := range console.BySession(tasks) {
			recs, err := console.Ask(ctx, some[0].Open, func(api control.API) ([]task.Record, error) {
				return api.Pause(ctx, console.Refs(some))
			})
			if err != nil {
				return fmt.Errorf("pause %s: %w", strings.Join(console.Refs(some), ", "), err)
			}
			held = append(held, recs...)
		}
		if *asJSON {
			return console.PrintArray(a.Stdout, held)
		}
		for _, r := range held {
			if err := a.Println(console.Cell(string(r.ID), 40)); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

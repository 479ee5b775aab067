package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

func (a *app) send() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "send [--json] REF MESSAGE | send --key KEY,… REF | send [--raw] REF -",
		Short: "Send a message to an agent, or type into a command with a terminal",
		Long: "Send a message to an agent. A running or queued agent reads it before its next step; an agent that has\n" +
			"ended gets a new run with the message as its prompt. The ID of a session means its main agent.\n\n" +
			"For a command started with `drover run --tty`, send types the message into its terminal, followed by Enter\n" +
			"unless --raw is given. --key types single keys: " + keyNames() + ",\n" +
			"ctrl-a to ctrl-z. The message - is read from stdin; use it for passwords, which process lists and shell\n" +
			"history would show. Drover does not store typed text; the terminal echoes it unless the command turns echo off.",
		Args:              takes(1, 2),
		ValidArgsFunction: a.completeTasks(true),
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
		Use:   "resume [--json] REF [PROMPT]",
		Short: "Resume a paused task, or start a new run of an ended agent",
		Long: "Resume a paused task and everything below it. An agent that has ended gets a new run with the whole\n" +
			"conversation, and PROMPT or \"Go on.\" as its prompt. A workflow skips its completed steps.",
		Args:              takes(1, 2),
		ValidArgsFunction: a.completeTasks(true),
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
	all := everywhere(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		ctx := cmd.Context()
		var rec task.Record
		err := taken(ctx, func() (s Session, err error) {
			s, rec, err = a.steerOne(ctx, cmd.Name(), words, sessions, *all, do)
			return s, err
		})
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(a.Stdout, rec)
		}
		_, err = fmt.Fprintln(a.Stdout, cell(string(rec.ID), 40))
		return err
	}
	return cmd
}

// steerOne finds what is meant, and does it.
func (a *app) steerOne(ctx context.Context, verb string, words []string, sessions, all bool, do steering) (s Session,
	rec task.Record, err error) {
	f, err := a.resolve(ctx, words[0], all)
	ref := string(f.record.ID)
	if sessions && notFound(err) {
		if s, other := a.host(ctx, words[0], all); !notFound(other) {
			f, err = found{session: s}, other
		}
		if err == nil {
			ref = string(f.session.Info().Session)
		}
	}
	if err != nil {
		return nil, rec, err
	}
	api, done, err := a.revive(ctx, f)
	if err != nil {
		return f.session, rec, err
	}
	defer done()
	if rec, err = do(ctx, api, ref, words); err != nil {
		return f.session, rec, fmt.Errorf("%s %s: %w", verb, ref, err)
	}
	return f.session, rec, nil
}

// host finds the session that a word means, which must be one that lives.
func (a *app) host(ctx context.Context, word string, all bool) (s Session, err error) {
	for _, p := range slices.Concat(places(word, all)...) {
		known, listed := a.Known(ctx, p.live, p.all)
		if listed != nil {
			return nil, fmt.Errorf("list sessions: %w", listed)
		}
		if s, err = sessionOf(known, word); notFound(err) {
			continue
		}
		if err == nil && !s.Info().Live {
			id := s.Info().Session
			err = &control.Error{Code: control.Conflict, Message: fmt.Sprintf("session %s has no host", id),
				Fix: "see `drover ps -a` for its tasks"}
			if s.Info().Role == conversing {
				err = &control.Error{Code: control.Conflict, Message: fmt.Sprintf("session %s has no host", id),
					Fix: fmt.Sprintf("go on with it by `drover attach %s`", id)}
			}
		}
		return s, err
	}
	return nil, err
}

func (a *app) pause() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause [--json] REF…",
		Short: "Pause tasks and everything below them",
		Long: "Pause tasks and everything below them. An agent finishes its current reply and calls, starts nothing new, and\n" +
			"keeps all its work; commands are suspended. `drover resume` continues them.",
		Args:              takes(1, -1),
		ValidArgsFunction: a.completeTasks(false),
	}
	asJSON := cmd.Flags().Bool("json", false, "print a JSON array of the paused tasks")
	all := everywhere(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		ctx := cmd.Context()
		tasks, err := a.resolveAll(ctx, words, *all)
		if err != nil {
			return err
		}
		held := []task.Record{}
		for _, some := range bySession(tasks) {
			recs, err := pauseIn(ctx, some)
			if err != nil {
				return err
			}
			held = append(held, recs...)
		}
		if *asJSON {
			return printArray(a.Stdout, held)
		}
		for _, r := range held {
			if _, err := fmt.Fprintln(a.Stdout, cell(string(r.ID), 40)); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func pauseIn(ctx context.Context, tasks []found) ([]task.Record, error) {
	api, done, err := tasks[0].open(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	recs, err := api.Pause(ctx, refs(tasks))
	if err != nil {
		return nil, fmt.Errorf("pause %s: %w", strings.Join(refs(tasks), ", "), err)
	}
	return recs, nil
}

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

func (a *app) remoteCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "remote"}
	cmd.AddCommand(a.remoteRun())
	return cmd
}

func (a *app) remoteRun() *cobra.Command {
	var req control.RemoteRequest
	var name, metadata string
	var detach bool
	cmd := &cobra.Command{
		Use:   "run [-d] [--service NAME|URL] [--type T] PROMPT",
		Short: "Run one agent on a remote service and print its answer",
		Long: "Run one agent of a remote service, which speaks A2A, and print its answer. Services are set in remote.services\n" +
			"of your settings. The work continues when this machine goes down; `drover ps` lists it and `drover stop` ends it.",
		Args: console.Args(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Prompt = strings.Join(args, " ")
			if metadata != "" {
				if req.Metadata = json.RawMessage(metadata); !json.Valid(req.Metadata) {
					return console.Usage("--metadata: not JSON", "give an object such as '{\"pr\":7}'")
				}
			}
			start := control.StartRequest{Name: name, Remote: &req, Env: a.Env, Cwd: a.Cwd}
			if detach {
				return a.PrintDetached(cmd.Context(), start)
			}
			return a.remoteForeground(cmd.Context(), start)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&detach, "detach", "d", false, "print its ID and do not wait")
	f.StringVar(&name, "name", "", "a name for it")
	f.StringVar(&req.Service, "service", "", "a name of the settings, or the address of an agent card")
	f.StringVar(&req.Type, "type", "", "remote-agent (default), ultraplan, ultrareview, autofix-pr or background-pr")
	f.StringVar(&req.AgentType, "agent-type", "", "the type of agent, as the service calls it")
	f.StringVar(&req.Model, "model", "", "the model, as the service calls it")
	f.StringVar(&metadata, "metadata", "", "a JSON object for the service and the completion checker")
	return cmd
}

// remoteForeground waits in this process for work that the detached host follows. An interrupt stops the work.
func (a *app) remoteForeground(ctx context.Context, r control.StartRequest) error {
	api, release, err := a.Background(ctx)
	if err != nil {
		return err
	}
	defer release()
	rec, err := a.StartOne(ctx, api, r)
	if err != nil {
		return err
	}
	ref := string(rec.ID)
	if _, err := api.Wait(ctx, control.WaitRequest{Refs: []string{ref}}); err != nil {
		if ctx.Err() != nil {
			_, stop := api.Stop(context.WithoutCancel(ctx), control.StopRequest{Refs: []string{ref}, Detail: "interrupted"})
			err = errors.Join(context.Cause(ctx), stop)
		}
		return err
	}
	done, err := control.WholeResult(ctx, api, ref)
	switch {
	case err != nil:
		return err
	case done.Task.Status == task.Killed:
		return &console.ExitError{Code: 4, Err: fmt.Errorf("remote agent %s was stopped", ref)}
	case done.Task.Status == task.Failed:
		return errors.New(done.Task.Error)
	}
	return a.PrintReply(done.Text)
}

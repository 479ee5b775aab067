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
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

func (a *app) remoteCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "remote"}
	cmd.AddCommand(a.remoteRun(), a.remoteServe())
	return cmd
}

func (a *app) remoteRun() *cobra.Command {
	var req control.RemoteRequest
	var name, metadata string
	var detach bool
	cmd := &cobra.Command{
		Use:   "run [-d] [--service NAME|URL] [--type T] PROMPT",
		Short: "Run one agent on a remote service and print its answer",
		Long: "Run one agent in a session of a remote service and print its answer. Services are set in remote.services of\n" +
			"your settings. The session continues when this machine goes down; `drover ps` lists it and `drover stop` ends it.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return console.Usage("PROMPT is required", "as in `drover remote run \"fix the build\"`")
			}
			return nil
		},
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
	f.StringVar(&req.Service, "service", "", "a name of the settings, or an address")
	f.StringVar(&req.Type, "type", "", "remote-agent (default), ultraplan, ultrareview, autofix-pr or background-pr")
	f.StringVar(&req.AgentType, "agent-type", "", "the type of agent, as the service calls it")
	f.StringVar(&req.Model, "model", "", "the model, as the service calls it")
	f.StringVar(&metadata, "metadata", "", "a JSON object for the service and the completion checker")
	return cmd
}

// remoteForeground waits in this process for work that the detached host follows.
// Whoever interrupts it stops the work.
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

// remoteTokenVariable is the default variable for the token of a server.
const remoteTokenVariable = "DROVER_REMOTE_TOKEN"

func (a *app) remoteServe() *cobra.Command {
	var listen, tokenEnv string
	var open bool
	cmd := &cobra.Command{
		Use:   "serve [--listen 127.0.0.1:0] [--token-env NAME] [--open]",
		Short: "Serve remote sessions; each is an agent in this folder",
		Long: "Serve the session API of docs/remote-agents.md: each session is an agent that works in this folder, under the\n" +
			"settings and rules of this folder. Whoever has the token can run commands here. To be reached from other\n" +
			"machines it needs a proxy that speaks TLS. The address is printed when the server listens.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			token := home.Lookup(a.Env)(tokenEnv)
			switch {
			case open && token != "":
				return console.Usage("--open and the token in "+tokenEnv+" are mutually exclusive",
					"unset the variable, or leave --open out")
			case !open && token == "":
				return console.Usage("no token: "+tokenEnv+" is not set",
					"set it to a random value, or give every user of this machine access with --open")
			}
			return a.ServeRemote(cmd.Context(), listen, tokenEnv, token)
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:0", "address and port; 0 for any port")
	f.StringVar(&tokenEnv, "token-env", remoteTokenVariable, "name of the variable that holds the token")
	f.BoolVar(&open, "open", false, "require no token: every user and program of this machine can connect")
	return cmd
}

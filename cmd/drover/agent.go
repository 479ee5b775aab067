package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/agentenv/settings"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/frontend/cli"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// agentCommand runs agents without a conversation around them.
func (w *world) agentCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "Run one agent", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	var req control.AgentRequest
	var name string
	var detach bool
	run := &cobra.Command{
		Use:   "run TYPE PROMPT",
		Short: "Run one agent and print its answer",
		Long:  "Run one agent and print its answer. The prompt - is read from stdin. The sorts of agents that are always there (`drover agents` lists all):\n\n" + agentTypes(),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage("a sort of agent and a prompt are needed", "as in `drover agent run explore \"where is the parser?\"`")
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return w.agentFiles("").Current().Names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Type, req.Prompt = args[0], strings.Join(args[1:], " ")
			if req.Prompt == "-" {
				var err error
				if req.Prompt, err = readStdin(cmd.Context(), true); err != nil {
					return err
				}
			}
			req.AllowedTools = splitRules(req.AllowedTools)
			start := control.StartRequest{Name: name, Agent: &req, Env: w.env, Cwd: w.cwd}
			if req.Team != "" && (!detach || name == "") {
				return usage("a teammate stays for messages and goes by a name", "add -d and --name")
			}
			if detach {
				return w.agentDetached(cmd.Context(), start)
			}
			return w.agent(cmd.Context(), start)
		},
	}
	f := run.Flags()
	f.BoolVarP(&detach, "detach", "d", false, "run it in the detached host and print its ID")
	f.StringVar(&name, "name", "", "a name for it")
	f.StringVar(&req.Model, "model", "", "an alias, a full name, PROVIDER/NAME, or script:FILE")
	_ = run.RegisterFlagCompletionFunc("model", w.completeModels) // there is such a flag
	f.IntVar(&req.MaxTurns, "max-turns", 0, "model replies at most")
	f.StringVar(&req.PermissionMode, "permission-mode", "", "plan or dontAsk, to allow less than the settings")
	f.StringArrayVar(&req.AllowedTools, "allowed-tools", nil, "calls that run without a question, such as 'Bash(go test:*),Edit'")
	f.StringVar(&req.Isolation, "isolation", "", "worktree: it works in a checkout of its own")
	f.StringVar(&req.Team, "team", "", "it is a teammate of this team, called by --name, and stays for messages; needs -d")
	cmd.AddCommand(run)
	return cmd
}

func agentTypes() string {
	var b strings.Builder
	for _, d := range subagent.Builtin().All() {
		fmt.Fprintf(&b, "  %-16s %s\n", d.Name, d.Description)
	}
	return b.String()
}

func (w *world) agentDetached(ctx context.Context, r control.StartRequest) error {
	d, err := w.directory()
	if err != nil {
		return err
	}
	api, release, err := d.Background(ctx)
	if err != nil {
		return err
	}
	defer release()
	started, err := api.Start(ctx, []control.StartRequest{r})
	if err != nil {
		return err
	}
	if started[0].Error != nil {
		return started[0].Error
	}
	if said := started[0].Task.Renamed(); said != "" {
		w.note(said)
	}
	_, err = fmt.Fprintln(os.Stdout, started[0].Task.ID)
	return err
}

// agent runs an agent in a session of its own, in this process.
func (w *world) agent(ctx context.Context, r control.StartRequest) error {
	set, err := w.settings("")
	if err != nil {
		return err
	}
	exe, err := program()
	if err != nil {
		return err
	}
	s, err := assemble.Open(ctx, assemble.Config{Root: w.root, Folder: w.cwd, Role: session.RoleRun, Title: title(r.Agent.Prompt), Version: version, Env: w.env,
		Settings: set, Keeper: []string{exe, "keeper", "--helper"}, AskWait: w.askWait(set), Tell: func(_ task.ID, text string) { w.note(text) }})
	if err != nil {
		return err
	}
	s.Serve()
	defer w.suspends(s)()
	text, err := ask(ctx, s, r)
	if closed := s.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return printReply(text)
}

// printReply prints what others wrote, which a terminal must not obey.
func printReply(text string) error {
	if isTerminal(os.Stdout) {
		text = excerpt.Plain(text)
	}
	_, err := fmt.Fprintln(os.Stdout, strings.TrimRight(text, "\n"))
	return err
}

// askWait is how long questions wait where a person sits in front: somebody who
// watches can answer them from another terminal.
func (w *world) askWait(set settings.Settings) time.Duration {
	if !isTerminal(os.Stderr) {
		return 0
	}
	return set.Permissions.Wait()
}

func ask(ctx context.Context, s control.API, r control.StartRequest) (string, error) {
	started, err := s.Start(ctx, []control.StartRequest{r})
	if err != nil {
		return "", err
	}
	if started[0].Error != nil {
		return "", started[0].Error
	}
	ref := string(started[0].Task.ID)
	if _, err := s.Wait(ctx, control.WaitRequest{Refs: []string{ref}}); err != nil {
		return "", err
	}
	a, err := control.WholeResult(ctx, s, ref)
	switch {
	case err != nil:
		return "", err
	case a.Task.Status == task.Killed:
		return "", &cli.ExitError{Code: 4, Err: fmt.Errorf("agent %s was stopped", ref)}
	case a.Task.Status == task.Failed:
		return "", errors.New(a.Task.Error)
	}
	return a.Text, nil
}

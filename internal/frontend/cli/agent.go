package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/catalog"
	"github.com/drover-dev/drover/task"
)

// agentCommand runs agents without a conversation around them.
func (a *app) agentCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "Run one agent", Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	var req control.AgentRequest
	var name, settings, quote string
	var asJSON bool
	var detach, bare, sync bool
	var on string
	var untracked []string
	run := &cobra.Command{
		Use:   "run TYPE PROMPT",
		Short: "Run one agent and print its answer",
		Long:  "Run one agent and print its answer. The prompt - is read from stdin. The built-in types of agents (`drover agents` lists all):\n\n" + agentTypes(),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage("TYPE and PROMPT are required", "as in `drover agent run explore \"where is the parser?\"`")
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.Agents("", false).Current().Names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Type, req.Prompt = args[0], strings.Join(args[1:], " ")
			if req.Prompt == "-" {
				var err error
				if req.Prompt, err = a.readStdin(cmd.Context(), true); err != nil {
					return err
				}
			}
			var err error
			if req.PermissionMode, err = a.checkMode(req.PermissionMode); err != nil {
				return err
			}
			if cmd.Flags().Changed("max-turns") && req.MaxTurns < 1 {
				return usage("--max-turns must be greater than 0", "leave it out for no limit of its own")
			}
			req.AllowedTools = SplitRules(req.AllowedTools)
			if err := CheckToolNames("--allowed-tools", req.AllowedTools); err != nil {
				return err
			}
			switch quote {
			case "", "run":
				req.Quote = quote != ""
			case "only":
				return a.quoteOnly(req, asJSON)
			default:
				return usage(fmt.Sprintf("--quote=%s", quote), "give --quote, or --quote=only to start nothing")
			}
			if asJSON {
				return usage("--json is for --quote=only", "leave it out, or see `drover inspect ID`")
			}
			start := control.StartRequest{Name: name, Agent: &req, Env: a.Env, Cwd: a.Cwd, On: on, Untracked: untracked,
				NoFolder: bare, Sync: sync}
			if req.Team != "" && (!detach || name == "") {
				return usage(
					"--team needs -d and --name",
					"add both: a teammate runs in the detached host and is addressed by its name",
				)
			}
			if detach && settings != "" {
				return usage("--settings and --detach are mutually exclusive",
					"the detached host has the settings of the user and the folder")
			}
			if detach {
				rec, err := a.startDetached(cmd.Context(), start)
				if err != nil {
					return err
				}
				a.sayQuote(rec.Quote)
				_, err = fmt.Fprintln(a.Stdout, rec.ID)
				return err
			}
			return a.agent(cmd.Context(), settings, start)
		},
	}
	f := run.Flags()
	f.BoolVarP(&detach, "detach", "d", false, "run it in the detached host and print its ID")
	f.StringVar(&name, "name", "", "a name that can be used wherever an ID can")
	f.StringVar(&req.Model, "model", "", "an alias, a full name, PROVIDER/NAME, or script:FILE")
	f.IntVar(&req.MaxTurns, "max-turns", 0, "maximum number of model replies")
	f.StringVar(&settings, "settings", "", "a settings file, or JSON")
	f.StringVar(&req.PermissionMode, "permission-mode", "", strings.Join(permissionModes(), ", "))
	f.StringArrayVar(&req.AllowedTools, "allowed-tools", nil,
		"calls that run without asking, such as 'Bash(go test:*),Edit'")
	f.StringVar(&req.Isolation, "isolation", "", "worktree: give the agent a checkout of its own")
	f.StringVar(&on, "on", "", "work on another machine: a worker, a label, or auto")
	f.StringArrayVar(&untracked, "untracked", nil, "with --on: files that travel though git does not track them, such as '*.env'")
	f.BoolVar(&bare, "no-folder", false, "with --on: leave the folder here")
	f.BoolVar(&sync, "sync", false, "with --on: send the files of a folder without git")
	f.StringVar(&req.Team, "team", "", "run a teammate of this team, addressed by --name; needs -d")
	f.StringVar(&quote, "quote", "", "first say what it will likely use, by earlier runs; only: and start nothing")
	f.Lookup("quote").NoOptDefVal = "run"
	f.BoolVar(&asJSON, "json", false, "print the quote of --quote=only as JSON")
	a.completePrompt(run)
	cmd.AddCommand(run)
	return cmd
}

func agentTypes() string {
	var b strings.Builder
	for _, e := range catalog.New(catalog.Config{}).Entries() {
		fmt.Fprintf(&b, "  %-16s %s\n", e.Name, e.Description)
	}
	return b.String()
}

// startDetached starts a task in the detached host of the folder.
func (a *app) startDetached(ctx context.Context, r control.StartRequest) (task.Record, error) {
	api, release, err := a.Background(ctx)
	if err != nil {
		return task.Record{}, err
	}
	defer release()
	return a.startOne(ctx, api, r)
}

// startOne starts one task.
func (a *app) startOne(ctx context.Context, api control.API, r control.StartRequest) (task.Record, error) {
	started, err := api.Start(ctx, []control.StartRequest{r})
	switch {
	case err != nil:
		return task.Record{}, err
	case started[0].Error != nil:
		return task.Record{}, started[0].Error
	}
	if said := started[0].Task.Renamed(); said != "" {
		a.hint(said)
	}
	return *started[0].Task, nil
}

// printDetached starts a task in the detached host of the folder and prints its ID.
func (a *app) printDetached(ctx context.Context, r control.StartRequest) error {
	rec, err := a.startDetached(ctx, r)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.Stdout, rec.ID)
	return err
}

// agent runs an agent in a session of its own, in this process.
func (a *app) agent(ctx context.Context, settings string, r control.StartRequest) error {
	text := ""
	opening := Opening{Title: Title(r.Agent.Prompt), Settings: settings, Answerable: true}
	err := a.inSession(ctx, opening, func(ctx context.Context, s control.API) error {
		rec, err := a.startOne(ctx, s, r)
		if err != nil {
			return err
		}
		a.sayQuote(rec.Quote)
		text, err = a.answerOf(ctx, s, rec.ID)
		if rec.Quote != nil {
			a.sayBill(ctx, s, rec.ID)
		}
		return err
	})
	if err != nil {
		return err
	}
	return a.printReply(text)
}

// inSession does something in a session of its own, and says meanwhile what needs an answer there.
func (a *app) inSession(ctx context.Context, o Opening, do func(context.Context, control.API) error) error {
	return a.Here(ctx, o, func(ctx context.Context, s control.API) error {
		if o.Answerable {
			defer a.sayQuestions(ctx, s, nil)()
		}
		return do(ctx, s)
	})
}

// printReply prints what others wrote, which a terminal must not obey.
func (a *app) printReply(text string) error {
	if a.IsTerminal(a.Stdout) {
		text = excerpt.Plain(text)
	}
	_, err := fmt.Fprintln(a.Stdout, strings.TrimRight(text, "\n"))
	return err
}

// answerOf waits for a task, and returns its answer. It says what was stopped with the task.
func (a *app) answerOf(ctx context.Context, s control.API, id task.ID) (string, error) {
	ref := string(id)
	if _, err := s.Wait(ctx, control.WaitRequest{Refs: []string{ref}}); err != nil {
		return "", err
	}
	got, err := control.WholeResult(ctx, s, ref)
	if err != nil {
		return "", err
	}
	for _, t := range got.Task.LeftTasks {
		a.hint(fmt.Sprintf("when agent %s ended, %s %s (%s) was %s: see %s",
			ref, t.Noun, t.ID, t.About, t.Status, t.OutputFile))
	}
	switch {
	case got.Task.Status == task.Killed:
		return "", &ExitError{Code: codeStopped, Err: fmt.Errorf("agent %s was stopped", ref)}
	case got.Task.Status == task.Failed:
		return "", errors.New(got.Task.Error)
	}
	return got.Text, nil
}

// Title is how a listing shows the session of a prompt.
func Title(prompt string) string {
	text := strings.Join(strings.Fields(prompt), " ")
	if r := []rune(text); len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return text
}

package run

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/project/catalog"
)

// agentCommand runs agents without a conversation around them.
func (a *app) agentCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "agent"}
	var req control.AgentRequest
	var name, settings, quote string
	var asJSON bool
	var detach, bare, sync bool
	var on string
	var untracked []string
	run := &cobra.Command{
		Use:               "run TYPE PROMPT",
		Short:             "Run one agent and print its answer",
		Long:              "Run one agent and print its answer. The prompt - is read from stdin. The built-in types of agents (`drover agents` lists all):\n\n" + agentTypes(),
		Args:              console.Args(2, -1),
		ValidArgsFunction: a.CompleteAgents(),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Type, req.Prompt = args[0], strings.Join(args[1:], " ")
			if req.Prompt == "-" {
				var err error
				if req.Prompt, err = a.ReadStdin(cmd.Context(), true); err != nil {
					return err
				}
			}
			var err error
			if req.PermissionMode, err = a.CheckMode(req.PermissionMode); err != nil {
				return err
			}
			if cmd.Flags().Changed("max-turns") && req.MaxTurns < 1 {
				return console.Usage("--max-turns must be greater than 0", "leave it out for no limit of its own")
			}
			req.AllowedTools = console.SplitRules(req.AllowedTools)
			if err := console.CheckToolNames("--allowed-tools", req.AllowedTools); err != nil {
				return err
			}
			switch quote {
			case "", "run":
				req.Quote = quote != ""
			case "only":
				return a.quoteOnly(req, asJSON)
			default:
				return console.Usage(fmt.Sprintf("--quote=%s", quote), "give --quote, or --quote=only to start nothing")
			}
			if asJSON {
				return console.Usage("--json is for --quote=only", "leave it out, or see `drover inspect ID`")
			}
			start := control.StartRequest{Name: name, Agent: &req, Env: a.Env, Cwd: a.Cwd, On: on, Untracked: untracked,
				NoFolder: bare, Sync: sync}
			if req.Team != "" && (!detach || name == "") {
				return console.Usage("--team needs -d and --name",
					"add both: a teammate runs in the detached host and is addressed by its name")
			}
			if detach && settings != "" {
				return console.Usage("--settings and --detach are mutually exclusive",
					"the detached host has the settings of the user and the folder")
			}
			if detach {
				rec, err := a.StartDetached(cmd.Context(), start)
				if err != nil {
					return err
				}
				a.sayQuote(rec.Quote)
				return a.Println(rec.ID)
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
	f.StringVar(&req.PermissionMode, "permission-mode", "", strings.Join(console.PermissionModes(), ", "))
	f.StringArrayVar(&req.AllowedTools, "allowed-tools", nil,
		"calls that run without asking, such as 'Bash(go test:*),Edit'")
	f.StringVar(&req.Isolation, "isolation", "", "worktree: give the agent a checkout of its own")
	f.StringVar(&on, "on", "", "work on another machine: a worker, a label, or auto")
	f.StringArrayVar(&untracked, "untracked", nil,
		"with --on: files that travel though git does not track them, such as '*.env'")
	f.BoolVar(&bare, "no-folder", false, "with --on: leave the folder here")
	f.BoolVar(&sync, "sync", false, "with --on: send the files of a folder without git")
	f.StringVar(&req.Team, "team", "", "run a teammate of this team, addressed by --name; needs -d")
	f.StringVar(&quote, "quote", "", "first say what it will likely use, by earlier runs; only: and start nothing")
	f.Lookup("quote").NoOptDefVal = "run"
	f.BoolVar(&asJSON, "json", false, "print the quote of --quote=only as JSON")
	a.CompletePrompt(run)
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

// agent runs an agent in a session of its own, in this process.
func (a *app) agent(ctx context.Context, settings string, r control.StartRequest) error {
	text := ""
	opening := console.Opening{Title: console.Title(r.Agent.Prompt), Settings: settings, Answerable: true}
	err := a.InSession(ctx, opening, func(ctx context.Context, s control.API) error {
		rec, err := a.StartOne(ctx, s, r)
		if err != nil {
			return err
		}
		a.sayQuote(rec.Quote)
		text, err = a.AnswerOf(ctx, s, rec.ID)
		if rec.Quote != nil {
			a.sayBill(ctx, s, rec.ID)
		}
		return err
	})
	if err != nil {
		return err
	}
	return a.PrintReply(text)
}

package run

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// scheduleCommand lists and changes the schedules of the folder.
func (a *app) scheduleCommand() *cobra.Command {
	var asJSON bool
	list := func(cmd *cobra.Command, _ []string) error { return a.scheduleList(cmd.Context(), asJSON) }
	cmd := &cobra.Command{
		Use: "schedule",
		Long: "Start commands and agents at certain times. Schedules belong to this folder. Its detached host starts their\n" +
			"tasks and runs as long as there are schedules; `drover service install` starts it after login. A time at\n" +
			"which no host ran is made up for once within an hour (--late), and one at which the last task still runs\n" +
			"is skipped; the list says so.",
		RunE: list,
	}
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")
	one := func(use, short, long string, do func(context.Context, string, bool) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Long: long, Args: console.Args(1, 1),
			RunE: func(cmd *cobra.Command, words []string) error { return do(cmd.Context(), words[0], asJSON) }}
	}
	cmd.AddCommand(
		a.scheduleAdd(&asJSON),
		&cobra.Command{Use: "list", Short: "List the schedules of this folder", RunE: list},
		one("rm ID|NAME", "Remove a schedule",
			"Remove a schedule. A task that it has started runs on.", a.scheduleChange(func(ref string) control.ScheduleRequest {
				return control.ScheduleRequest{Remove: ref}
			})),
		one("pause ID|NAME", "Start nothing at the times of a schedule",
			"Start nothing at the times of a schedule. A task that it has started runs on.",
			a.scheduleChange(func(ref string) control.ScheduleRequest { return control.ScheduleRequest{Pause: ref} })),
		one("resume ID|NAME", "Start tasks at the times of a paused schedule again",
			"Start tasks at the times of a paused schedule again. Times that have passed are not made up for.",
			a.scheduleChange(func(ref string) control.ScheduleRequest { return control.ScheduleRequest{Resume: ref} })),
		one("run ID|NAME", "Start the task of a schedule now",
			"Start the task of a schedule now, and print its ID.", a.scheduleRun),
	)
	return cmd
}

func (a *app) scheduleAdd(asJSON *bool) *cobra.Command {
	var s control.Schedule
	var agent control.AgentRequest
	var late, timeout string
	var retries int
	cmd := &cobra.Command{
		Use:   "add CRON [--prompt TEXT [--agent TYPE]] [-- CMD [ARG…]]",
		Short: "Add a schedule",
		Long: "Add a schedule. CRON has five fields, minute, hour, day of the month, month and day of the week, such as\n" +
			"\"0 6 * * 1-5\", or is @hourly, @daily, @weekly, @monthly or \"@every 90m\". What is started is a command, or an\n" +
			"agent with --prompt. It has the environment of the detached host. You may not be there to answer\n" +
			"questions: allow calls with --allowed-tools.",
		Args: console.Args(1, -1),
	}
	f := cmd.Flags()
	f.StringVar(&s.Name, "name", "", "name of the schedule and of its tasks")
	f.StringVar(&s.Zone, "zone", "", "time zone of CRON, such as Europe/Berlin (default: that of this machine)")
	f.StringVar(&late, "late", "1h", "by how much a run may be late; beyond it the time is skipped")
	f.StringVar(&timeout, "timeout", "", "stop each task after this time, such as 90s or 10m")
	f.IntVar(&retries, "retry", 0, "start a command that fails again up to `N` times, as drover run does")
	f.StringVar(&agent.Prompt, "prompt", "", "start an agent with this prompt")
	f.StringVar(&agent.Type, "agent", "general-purpose", "type of that agent")
	f.StringVar(&agent.Model, "model", "", "model of that agent")
	f.StringArrayVar(&agent.AllowedTools, "allowed-tools", nil,
		"its calls that run without asking, such as 'Bash(go test:*),Edit'")
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		var err error
		s.Cron, s.Cwd = words[0], a.Cwd
		if s.Late, err = console.Duration("--late", late, 60); err != nil {
			return err
		}
		if timeout != "" {
			if s.Timeout, err = console.Duration("--timeout", timeout, 1e6); err != nil {
				return err
			}
		}
		switch {
		case agent.Prompt != "" && len(words) > 1:
			return console.Usage("--prompt and a command are mutually exclusive", "give one of them")
		case agent.Prompt != "" && retries != 0:
			return console.Usage("--prompt and --retry are mutually exclusive", "only commands are started again")
		case retries < 0 || retries > task.MaxRetries:
			return console.Usage(fmt.Sprintf("--retry is %d", retries),
				fmt.Sprintf("give a number from 0 to %d", task.MaxRetries))
		case agent.Prompt != "":
			agent.AllowedTools = console.SplitRules(agent.AllowedTools)
			if err := console.CheckToolNames("--allowed-tools", agent.AllowedTools); err != nil {
				return err
			}
			s.Agent = &agent
		case len(words) > 1:
			s.Shell = shell(words[1:])
			s.Shell.Retries = retries
		default:
			return console.Usage("a command or --prompt is required", "as in `drover schedule add \"0 6 * * *\" -- make test`")
		}
		out, err := a.schedules(cmd.Context(), control.ScheduleRequest{Add: &s})
		if err != nil {
			return err
		}
		if *asJSON {
			return console.PrintJSON(a.Stdout, out.Changed)
		}
		if _, err := fmt.Fprintln(a.Stdout, out.Changed.ID); err != nil {
			return err
		}
		a.Note("next run: %s (`drover service install` starts the host of schedules after login)", moment(out.Changed.Next))
		return nil
	}
	return cmd
}

// schedules asks the detached host of the folder, which has the schedules.
func (a *app) schedules(ctx context.Context, req control.ScheduleRequest) (control.Schedules, error) {
	return console.Ask(ctx, a.Background, func(api control.API) (control.Schedules, error) {
		return api.Schedules(ctx, req)
	})
}

func (a *app) scheduleList(ctx context.Context, asJSON bool) error {
	out, err := a.schedules(ctx, control.ScheduleRequest{})
	if err != nil {
		return err
	}
	if asJSON {
		return console.PrintArray(a.Stdout, out.Schedules)
	}
	if len(out.Schedules) == 0 {
		return a.Println("No schedules. Add one with `drover schedule add \"0 6 * * *\" -- make test`.")
	}
	rows := [][]string{{"ID", "NAME", "CRON", "NEXT", "LAST", "TASK", "RUNS", "SKIPPED", "STARTS"}}
	for _, s := range out.Schedules {
		last := "-"
		if s.LastTime != nil {
			last = moment(*s.LastTime)
		}
		line, next := strings.TrimSpace(s.Cron+" "+s.Zone), moment(s.Next)
		if s.Paused {
			next = "paused"
		}
		rows = append(rows, []string{console.Cell(s.ID, 20), console.Cell(s.Name, console.NameChars), console.Cell(line, 40),
			next, last,
			console.Cell(cmp.Or(string(s.LastTask), "-"), 20), fmt.Sprint(s.Runs), fmt.Sprint(s.Skipped), console.Cell(starts(s),
				60)})
	}
	if err := a.Table(rows, console.Headed); err != nil {
		return err
	}
	for _, s := range out.Schedules {
		if k := s.LastSkip; k != nil {
			a.Note("%s was not started at %s: %s", cmp.Or(s.Name, s.ID), moment(k.Time), k.Why)
		}
	}
	return nil
}

// starts is what a schedule starts, in a line.
func starts(s control.Schedule) string {
	switch {
	case s.Agent != nil:
		return s.Agent.Type + ": " + s.Agent.Prompt
	case s.Shell != nil && s.Shell.Line != "":
		return s.Shell.Line
	case s.Shell != nil:
		return strings.Join(s.Shell.Args, " ")
	}
	return "-"
}

func moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }

// scheduleChange asks for a change of a schedule.
func (a *app) scheduleChange(of func(ref string) control.ScheduleRequest) func(context.Context, string, bool) error {
	return func(ctx context.Context, ref string, asJSON bool) error {
		out, err := a.schedules(ctx, of(ref))
		if err != nil || !asJSON {
			return err
		}
		return console.PrintJSON(a.Stdout, out.Changed)
	}
}

func (a *app) scheduleRun(ctx context.Context, ref string, asJSON bool) error {
	out, err := a.schedules(ctx, control.ScheduleRequest{Run: ref})
	if err != nil {
		return err
	}
	if asJSON {
		return console.PrintJSON(a.Stdout, out.Task)
	}
	return a.Println(cmp.Or(out.Task, &task.Record{}).ID)
}

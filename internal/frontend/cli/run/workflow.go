package run

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/workflowfile"
	"github.com/drover-dev/drover/task"
)

// workflowCommand runs files of steps.
func (a *app) workflowCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "workflow"}
	cmd.AddCommand(a.workflowRun(), a.workflowCheck(), a.workflowGraph())
	return cmd
}

// workflowFlags are what `drover workflow run` is given.
type workflowFlags struct {
	params  []string
	name    string
	timeout time.Duration
	resume  string
	detach  bool
	json    bool
}

func (a *app) workflowRun() *cobra.Command {
	var f workflowFlags
	cmd := &cobra.Command{
		Use:   "run [-d] [-p NAME=VALUE]… [--json] FILE | --resume ID",
		Short: "Run a workflow",
		Long: `Run the steps of a workflow file in the order of their dependencies and print their
progress. Shell steps run as your own commands, without permission rules. The exit code
is 0 if the workflow completed, 1 if a step failed, 4 if it was stopped. With -d it runs
in the detached host and its ID is printed. List and answer steps that wait for approval with
` + "`drover approvals`" + ` in another terminal.

--resume continues a workflow that failed, was stopped, or died with its host. Completed
steps are skipped, and the file is not read again.`,
		ValidArgsFunction: console.CompleteFiles,
		Args: func(_ *cobra.Command, words []string) error {
			switch {
			case (len(words) == 0) == (f.resume == ""):
				return console.Usage("FILE or --resume ID is required", "as in `drover workflow run FILE`")
			case len(words) > 1:
				return console.Usage(fmt.Sprintf("unexpected argument %.80q", words[1]),
					"give one file, and parameters by -p NAME=VALUE")
			case f.resume != "" && len(f.params) > 0:
				return console.Usage("--resume and -p are mutually exclusive", "a resumed workflow keeps its parameters")
			case f.resume != "" && f.timeout != 0:
				return console.Usage("--resume and --timeout are mutually exclusive",
					"a resumed workflow keeps the limit of its file")
			case f.resume != "" && f.name != "":
				return console.Usage("--resume and --name are mutually exclusive", "a resumed workflow keeps its name")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, words []string) error {
			if f.resume != "" {
				return a.resumeFlow(cmd.Context(), f)
			}
			r, err := a.flowRequest(words[0], f)
			if err != nil {
				return err
			}
			if f.detach {
				return a.flowDetached(cmd.Context(), r, f.json)
			}
			return a.flowHere(cmd.Context(), "", filepath.Base(words[0]), f,
				func(ctx context.Context, s control.API) (task.Record, error) { return a.StartOne(ctx, s, r) })
		},
	}
	p := cmd.Flags()
	p.StringArrayVarP(&f.params, "param", "p", nil, "a parameter, as `NAME=VALUE`")
	p.BoolVarP(&f.detach, "detach", "d", false, "run it in the detached host and print its ID")
	p.StringVar(&f.name, "name", "", "a name that can be used wherever an ID can")
	p.DurationVar(&f.timeout, "timeout", 0, "stop it after this time; instead of the file's")
	p.StringVar(&f.resume, "resume", "", "resume the workflow with this `ID`")
	p.BoolVar(&f.json, "json", false, "print the task with its result as JSON at the end, and the steps on stderr")
	return cmd
}

// errFaults says that the faults of a file have been printed.
func errFaults() error { return &console.ExitError{Code: 1} }

// compileFlow reads a workflow, and prints its faults, each on a line.
func (a *app) compileFlow(file string) (*workflowfile.Plan, []workflowfile.Fault) {
	file = a.Path(file)
	p, faults := workflowfile.Compile(file, workflowfile.Read)
	for i := range faults {
		if rel, err := filepath.Rel(a.Cwd, faults[i].File); err == nil && !strings.HasPrefix(rel, "..") {
			faults[i].File = rel
		}
	}
	return p, faults
}

func (a *app) flowRequest(file string, f workflowFlags) (control.StartRequest, error) {
	r := control.StartRequest{Name: f.name, Timeout: f.timeout, Env: a.Env, Cwd: a.Cwd,
		Workflow: &control.WorkflowRequest{Params: map[string]string{}}}
	for _, kv := range f.params {
		name, value, ok := strings.Cut(kv, "=")
		if _, twice := r.Workflow.Params[name]; !ok || twice {
			return r, console.Usage(fmt.Sprintf("-p %.80s: not one value for one name", kv), "write -p NAME=VALUE")
		}
		r.Workflow.Params[name] = value
	}
	p, faults := a.compileFlow(file)
	if len(faults) > 0 {
		for _, one := range faults {
			fmt.Fprintln(a.Stderr, "drover: "+excerpt.Line(one.Error(), 1000))
		}
		return r, errFaults()
	}
	if _, err := p.Values(r.Workflow.Params); err != nil {
		return r, console.Usage(err.Error(), "give parameters as -p NAME=VALUE")
	}
	r.Workflow.File = p.File
	return r, nil
}

func (a *app) flowDetached(ctx context.Context, r control.StartRequest, asJSON bool) error {
	if !asJSON {
		return a.PrintDetached(ctx, r)
	}
	rec, err := a.StartDetached(ctx, r)
	if err != nil {
		return err
	}
	return console.PrintJSON(a.Stdout, rec)
}

// flowHere runs a workflow in a session in this process: a new one, or the session of an
// ended host.
func (a *app) flowHere(ctx context.Context, id task.ID, title string, f workflowFlags,
	begin func(context.Context, control.API) (task.Record, error)) error {
	return a.InSession(ctx, console.Opening{Session: id, Title: title, Answerable: true},
		func(ctx context.Context, s control.API) error {
			rec, err := begin(ctx, s)
			if err != nil {
				return err
			}
			err = a.followFlow(ctx, s, rec, f.json)
			if ctx.Err() != nil {
				a.Hint(fmt.Sprintf("workflow %s was stopped (resume it with `drover workflow run --resume %s`)", rec.ID, rec.ID))
			}
			return err
		})
}

// resumeFlow resumes a workflow at its place: in a live session, in the detached host, or here.
func (a *app) resumeFlow(ctx context.Context, f workflowFlags) error {
	flow, err := a.findFlow(ctx, f.resume)
	if err != nil {
		return err
	}
	info, rec := flow.Session.Info(), flow.Record
	if !info.Live {
		there := *a
		if there.Console, err = a.InFolderOf(flow.Session); err != nil {
			return err
		}
		a = &there
	}
	again := func(ctx context.Context, api control.API) (task.Record, error) {
		return api.Resume(ctx, control.ResumeRequest{Ref: string(rec.ID), Env: a.Env})
	}
	var api control.API
	var release func()
	switch {
	case info.Live:
		api, release, err = flow.Open(ctx)
	case info.Role == "background":
		api, release, err = a.Background(ctx)
	case info.Role == "run" && f.detach:
		return console.Usage("--resume and -d are mutually exclusive for a workflow that ran in the foreground",
			"leave -d out")
	case info.Role == "run":
		return a.flowHere(ctx, info.Session, info.Title, f, again)
	default:
		return control.Refuse(control.Unavailable,
			fmt.Sprintf("workflow %s belongs to the conversation %s, which has no host", rec.ID, info.Session),
			fmt.Sprintf("resume it with `drover -p --resume %s \"…\"`", info.Session))
	}
	if err != nil {
		return err
	}
	defer release()
	if rec, err = again(ctx, api); err != nil {
		return err
	}
	if f.detach {
		return a.Println(rec.ID)
	}
	return a.followFlow(ctx, api, rec, f.json)
}

// findFlow finds a workflow among the sessions of this folder, or by its ID among all.
func (a *app) findFlow(ctx context.Context, ref string) (console.Found, error) {
	f, err := a.Resolve(ctx, ref, false)
	if console.NotFound(err) || err == nil && f.Record.Traits().Work != task.BySteps {
		err = console.Missing(fmt.Sprintf("no workflow %.80q in this folder", ref), "see `drover ps -a`")
	}
	return f, err
}

// followFlow prints how the steps go until the workflow ends, and gives the end as an
// exit code.
func (a *app) followFlow(ctx context.Context, api control.API, rec task.Record, asJSON bool) error {
	out := a.Stdout
	if asJSON {
		out = a.Stderr
	}
	answer, err := a.watchFlow(ctx, api, rec, out)
	switch {
	case err != nil:
		return err
	case asJSON:
		err = console.PrintJSON(a.Stdout, answer)
	case strings.HasPrefix(answer.Text, "{"): // the outputs; how the steps went is to be read above
		_, err = fmt.Fprint(a.Stdout, excerpt.Plain(answer.Text))
	}
	if err != nil {
		return err
	}
	return flowEnd(answer.Task)
}

// watchFlow prints how the steps go until the workflow ends, and returns its answer.
func (a *app) watchFlow(ctx context.Context, api control.API, rec task.Record, out io.Writer) (control.Answer, error) {
	ref, offset := string(rec.ID), rec.OutputBytes
	for {
		c, err := api.Output(ctx, control.OutputRequest{Ref: ref, Offset: offset, Wait: 10 * time.Second})
		if err != nil {
			return control.Answer{}, err
		}
		if len(c.Data) > 0 {
			if _, err := fmt.Fprint(out, excerpt.Plain(string(c.Data))); err != nil {
				return control.Answer{}, err
			}
		}
		if offset = c.Next; c.Ended {
			break
		}
	}
	if _, err := api.Wait(ctx, control.WaitRequest{Refs: []string{ref}}); err != nil {
		return control.Answer{}, err
	}
	return control.WholeResult(ctx, api, ref)
}

// flowEnd is the end of a workflow as an exit code.
func flowEnd(r task.Record) error {
	switch r.Status {
	case task.Killed:
		return &console.ExitError{Code: 4, Err: fmt.Errorf("workflow %s was stopped", r.ID)}
	case task.Failed:
		const text = "workflow %s failed: %s (resume it after its completed steps with `drover workflow run --resume %s`)"
		return &console.ExitError{Code: 1, Err: fmt.Errorf(text, r.ID, r.Error, r.ID)}
	}
	return nil
}

func (a *app) workflowCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [--json] FILE",
		Short: "Check a workflow; the exit code is 1 if it has faults",
		Args:  console.Args(1, 1), ValidArgsFunction: console.CompleteFiles,
		RunE: func(_ *cobra.Command, words []string) error {
			p, faults := a.compileFlow(words[0])
			if asJSON {
				answer := struct {
					Good   bool                 `json:"valid"`
					Name   string               `json:"name,omitempty"`
					Digest string               `json:"digest,omitempty"`
					Steps  int                  `json:"steps"`
					Faults []workflowfile.Fault `json:"faults"`
				}{Good: p != nil, Faults: append([]workflowfile.Fault{}, faults...)}
				if p != nil {
					answer.Name, answer.Digest, answer.Steps = p.Name, p.Digest, len(p.Steps)
				}
				if err := console.PrintJSON(a.Stdout, answer); err != nil {
					return err
				}
			}
			for _, one := range faults {
				if !asJSON {
					fmt.Fprintln(a.Stdout, excerpt.Line(one.Error(), 1000))
				}
			}
			switch {
			case len(faults) > 0:
				return errFaults()
			case !asJSON:
				fmt.Fprintf(a.Stdout, "%s is valid: %d steps\n", excerpt.Line(p.Name, 100), len(p.Steps))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) workflowGraph() *cobra.Command {
	var dot, mermaid bool
	cmd := &cobra.Command{
		Use:   "graph [--dot | --mermaid] FILE",
		Short: "Draw the graph of the steps of a workflow",
		Args:  console.Args(1, 1), ValidArgsFunction: console.CompleteFiles,
		RunE: func(_ *cobra.Command, words []string) error {
			if dot && mermaid {
				return console.Usage("--dot and --mermaid are mutually exclusive", "give one of them")
			}
			p, faults := a.compileFlow(words[0])
			if len(faults) > 0 {
				return console.Usage(faults[0].Error(), "see `drover workflow check`")
			}
			text := p.Text()
			switch {
			case dot:
				text = p.Dot()
			case mermaid:
				text = p.Mermaid()
			}
			_, err := fmt.Fprint(a.Stdout, excerpt.Plain(text))
			return err
		},
	}
	cmd.Flags().BoolVar(&dot, "dot", false, "in the language of Graphviz")
	cmd.Flags().BoolVar(&mermaid, "mermaid", false, "in the language of Mermaid")
	return cmd
}

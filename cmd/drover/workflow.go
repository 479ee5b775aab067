package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/agentenv/workflowfile"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/host"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/frontend/cli"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
)

// workflowCommand runs files of steps.
func (w *world) workflowCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "workflow", Short: "Run, check and draw files of steps", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(w.workflowRun(), w.workflowCheck(), w.workflowGraph())
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

func (w *world) workflowRun() *cobra.Command {
	var f workflowFlags
	cmd := &cobra.Command{
		Use:   "run [-d] [-p NAME=VALUE]… [--json] FILE | --resume ID",
		Short: "Run a workflow",
		Long: `Run the steps of a file, in the order of what they need, and print how they go. Its
shell steps run as what they are: commands of yours. The exit code is 0 when it went
well, 1 when a step has failed, 4 when it was stopped. With -d it runs in the detached
host, and its ID is printed. Steps that wait for an answer are listed and answered by
` + "`drover approvals`" + ` in another terminal.

--resume goes on with a workflow that has failed, was stopped, or died with its host:
steps that are done stay done. Its file is not read again.`,
		Example: "  drover workflow run release.yaml -p version=1.4.0\n  drover workflow run -d nightly.yaml\n  drover workflow run --resume w1b2c3d4e",
		Args: func(_ *cobra.Command, words []string) error {
			switch {
			case (len(words) == 0) == (f.resume == ""):
				return usage("a file is needed, or --resume with an ID", "as in `drover workflow run FILE`")
			case len(words) > 1:
				return usage(fmt.Sprintf("%.80q: no such word here", words[1]), "give one file, and parameters by -p NAME=VALUE")
			case f.resume != "" && len(f.params) > 0:
				return usage("--resume with -p", "the parameters stay what they were")
			case f.resume != "" && f.timeout != 0:
				return usage("--resume with --timeout", "its time limit is that of the file")
			case f.resume != "" && f.name != "":
				return usage("--resume with --name", "its name stays what it was")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, words []string) error {
			if f.resume != "" {
				return w.resumeFlow(cmd.Context(), f)
			}
			r, err := w.flowRequest(words[0], f)
			if err != nil {
				return err
			}
			if f.detach {
				return w.flowDetached(cmd.Context(), r, f.json)
			}
			return w.flowHere(cmd.Context(), "", filepath.Base(words[0]), f, func(ctx context.Context, s control.API) (task.Record, error) { return startOne(ctx, s, r) })
		},
	}
	p := cmd.Flags()
	p.StringArrayVarP(&f.params, "param", "p", nil, "a parameter, as `NAME=VALUE`")
	p.BoolVarP(&f.detach, "detach", "d", false, "run it in the detached host and print its ID")
	p.StringVar(&f.name, "name", "", "a name that works wherever an ID does")
	p.DurationVar(&f.timeout, "timeout", 0, "stop it after this time; instead of the file's")
	p.StringVar(&f.resume, "resume", "", "go on with the workflow of this `ID`")
	p.BoolVar(&f.json, "json", false, "print the task with its result as JSON at the end, and the steps on stderr")
	return cmd
}

// errFaults says that the faults of a file have been printed.
func errFaults() error { return &cli.ExitError{Code: 1} }

// compileFlow reads a workflow, and prints its faults, each on a line.
func (w *world) compileFlow(file string) (*workflowfile.Plan, []workflowfile.Fault) {
	if !filepath.IsAbs(file) {
		file = filepath.Join(w.cwd, file)
	}
	p, faults := workflowfile.Compile(file, session.WorkflowFile)
	for i := range faults {
		if rel, err := filepath.Rel(w.cwd, faults[i].File); err == nil && !strings.HasPrefix(rel, "..") {
			faults[i].File = rel
		}
	}
	return p, faults
}

func (w *world) flowRequest(file string, f workflowFlags) (control.StartRequest, error) {
	r := control.StartRequest{Name: f.name, Timeout: f.timeout, Env: w.env, Cwd: w.cwd, Workflow: &control.WorkflowRequest{Params: map[string]string{}}}
	for _, kv := range f.params {
		name, value, ok := strings.Cut(kv, "=")
		if _, twice := r.Workflow.Params[name]; !ok || twice {
			return r, usage(fmt.Sprintf("-p %.80s is not one value for one name", kv), "write -p NAME=VALUE")
		}
		r.Workflow.Params[name] = value
	}
	p, faults := w.compileFlow(file)
	if len(faults) > 0 {
		for _, one := range faults {
			fmt.Fprintln(w.stderr, "drover: "+excerpt.Line(one.Error(), 1000))
		}
		return r, errFaults()
	}
	if _, err := p.Values(r.Workflow.Params); err != nil {
		return r, usage(err.Error(), "give parameters as -p NAME=VALUE")
	}
	r.Workflow.File = p.File
	return r, nil
}

func startOne(ctx context.Context, api control.API, r control.StartRequest) (task.Record, error) {
	started, err := api.Start(ctx, []control.StartRequest{r})
	switch {
	case err != nil:
		return task.Record{}, err
	case started[0].Error != nil:
		return task.Record{}, started[0].Error
	}
	return *started[0].Task, nil
}

func (w *world) flowDetached(ctx context.Context, r control.StartRequest, asJSON bool) error {
	if !asJSON {
		return w.agentDetached(ctx, r)
	}
	d, err := w.directory()
	if err != nil {
		return err
	}
	api, release, err := d.Background(ctx)
	if err != nil {
		return err
	}
	defer release()
	rec, err := startOne(ctx, api, r)
	if err != nil {
		return err
	}
	return printIndented(rec)
}

// flowHere runs a workflow in a session in this process: a new one, or that of an ID
// whose host has gone.
func (w *world) flowHere(ctx context.Context, id task.ID, title string, f workflowFlags, begin func(context.Context, control.API) (task.Record, error)) error {
	set, err := w.settings("")
	if err != nil {
		return err
	}
	exe, err := program()
	if err != nil {
		return err
	}
	s, err := assemble.Open(ctx, assemble.Config{Root: w.root, Folder: w.cwd, Session: id, Role: session.RoleRun, Title: title, Version: version, Env: w.env,
		Settings: set, Keeper: []string{exe, "keeper", "--helper"}, AskWait: w.askWait(set), Tell: func(_ task.ID, text string) { w.note(text) }})
	if err != nil {
		return err
	}
	s.Serve()
	defer w.suspends(s)()
	rec, err := begin(ctx, s)
	if err == nil {
		err = followFlow(ctx, s, rec, f.json)
		if ctx.Err() != nil {
			w.note(fmt.Sprintf("workflow %s is stopped, and goes on with `drover workflow run --resume %s`", rec.ID, rec.ID))
		}
	}
	return errors.Join(err, s.Close())
}

// resumeFlow goes on with a workflow where it was: in a session that lives, in the
// detached host, or here.
func (w *world) resumeFlow(ctx context.Context, f workflowFlags) error {
	d, err := w.directory()
	if err != nil {
		return err
	}
	e, rec, err := w.findFlow(ctx, d, f.resume)
	if err != nil {
		return err
	}
	if !e.Info.Live {
		if w, err = w.at(e); err != nil {
			return err
		}
		if d, err = w.directory(); err != nil {
			return err
		}
	}
	again := func(ctx context.Context, api control.API) (task.Record, error) {
		return api.Resume(ctx, control.ResumeRequest{Ref: string(rec.ID), Env: w.env})
	}
	var api control.API
	var release func()
	switch {
	case e.Info.Live:
		api, release, err = e.Open(ctx)
	case e.Info.Role == session.RoleBackground:
		api, release, err = d.Background(ctx)
	case e.Info.Role == session.RoleRun && f.detach:
		return usage("--resume with -d", "it goes on in the foreground, as it was started")
	case e.Info.Role == session.RoleRun:
		return w.flowHere(ctx, e.Info.Session, e.Info.Title, f, again)
	default:
		return &control.Error{Code: control.Unavailable, Message: fmt.Sprintf("workflow %s belongs to the conversation %s, which has no host", rec.ID, e.Info.Session),
			Mend: fmt.Sprintf("go on with that by `drover -p --resume %s \"…\"`", e.Info.Session)}
	}
	if err != nil {
		return err
	}
	defer release()
	if rec, err = again(ctx, api); err != nil {
		return err
	}
	if f.detach {
		_, err = fmt.Fprintln(os.Stdout, rec.ID)
		return err
	}
	return followFlow(ctx, api, rec, f.json)
}

// findFlow finds a workflow among the sessions of this folder, or by its ID among all.
func (w *world) findFlow(ctx context.Context, d *host.Directory, ref string) (host.Entry, task.Record, error) {
	e, rec, err := w.flowAmong(ctx, d, ref, false)
	var unknown *control.Error
	if errors.As(err, &unknown) && unknown.Code == control.NotFound && len(ref) >= cli.LeastID {
		return w.flowAmong(ctx, d, ref, true)
	}
	return e, rec, err
}

func (w *world) flowAmong(ctx context.Context, d *host.Directory, ref string, all bool) (host.Entry, task.Record, error) {
	entries, err := d.Sessions(ctx, false, all)
	if err != nil {
		return host.Entry{}, task.Record{}, err
	}
	var home host.Entry
	var found task.Record
	var matches []string
	for _, e := range entries {
		api, release, err := e.Open(ctx)
		if err != nil {
			continue // what cannot be read has nothing to go on with
		}
		rec, err := api.Get(ctx, ref)
		release()
		if err != nil || rec.Traits().Work != task.BySteps || all && !strings.HasPrefix(string(rec.ID), ref) {
			continue
		}
		home, found, matches = e, rec, append(matches, string(rec.ID))
		if string(rec.ID) == ref {
			return home, found, nil
		}
	}
	switch len(matches) {
	case 0:
	case 1:
		return home, found, nil
	default:
		return home, found, &control.Error{Code: control.Ambiguous, Matches: matches, Message: fmt.Sprintf("%q could be any of %s", ref, strings.Join(matches, ", ")), Mend: "give the ID"}
	}
	return host.Entry{}, task.Record{}, &control.Error{Code: control.NotFound, Message: fmt.Sprintf("no workflow %.80q in this folder", ref), Mend: "see `drover ps -a`"}
}

// followFlow prints how the steps go until the workflow ends, and gives the end as an
// exit code.
func followFlow(ctx context.Context, api control.API, rec task.Record, asJSON bool) error {
	out := os.Stdout
	if asJSON {
		out = os.Stderr
	}
	ref, offset := string(rec.ID), rec.OutputBytes
	for {
		c, err := api.Output(ctx, control.OutputRequest{Ref: ref, Offset: offset, Wait: 10 * time.Second})
		if err != nil {
			return err
		}
		if len(c.Data) > 0 {
			if _, err := fmt.Fprint(out, excerpt.Plain(string(c.Data))); err != nil {
				return err
			}
		}
		if offset = c.Next; c.Ended {
			break
		}
	}
	if _, err := api.Wait(ctx, control.WaitRequest{Refs: []string{ref}}); err != nil {
		return err
	}
	a, err := control.WholeResult(ctx, api, ref)
	if err != nil {
		return err
	}
	switch {
	case asJSON:
		err = printIndented(a)
	case strings.HasPrefix(a.Text, "{"): // the outputs; how the steps went is to be read above
		_, err = fmt.Print(excerpt.Plain(a.Text))
	}
	if err != nil {
		return err
	}
	switch a.Task.Status {
	case task.Killed:
		return &cli.ExitError{Code: 4, Err: fmt.Errorf("workflow %s was stopped", ref)}
	case task.Failed:
		return &cli.ExitError{Code: 1, Err: fmt.Errorf("workflow %s has failed: %s (go on behind what is done with `drover workflow run --resume %s`)", ref, a.Task.Error, ref)}
	}
	return nil
}

func printIndented(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// oneFile takes one word, the file of a workflow.
func oneFile(_ *cobra.Command, words []string) error {
	if len(words) != 1 {
		return usage("one file is needed", "as in `drover workflow check FILE`")
	}
	return nil
}

func (w *world) workflowCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [--json] FILE",
		Short: "Name every fault of a workflow; exit code 1 if there is one",
		Args:  oneFile,
		RunE: func(_ *cobra.Command, words []string) error {
			p, faults := w.compileFlow(words[0])
			if asJSON {
				answer := struct {
					Good   bool                 `json:"good"`
					Name   string               `json:"name,omitempty"`
					Digest string               `json:"digest,omitempty"`
					Steps  int                  `json:"steps"`
					Faults []workflowfile.Fault `json:"faults"`
				}{Good: p != nil, Faults: append([]workflowfile.Fault{}, faults...)}
				if p != nil {
					answer.Name, answer.Digest, answer.Steps = p.Name, p.Digest, len(p.Steps)
				}
				if err := printIndented(answer); err != nil {
					return err
				}
			}
			for _, one := range faults {
				if !asJSON {
					fmt.Println(excerpt.Line(one.Error(), 1000))
				}
			}
			switch {
			case len(faults) > 0:
				return errFaults()
			case !asJSON:
				fmt.Printf("%s is good: %d steps\n", excerpt.Line(p.Name, 100), len(p.Steps))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (w *world) workflowGraph() *cobra.Command {
	var dot, mermaid bool
	cmd := &cobra.Command{
		Use:   "graph [--dot | --mermaid] FILE",
		Short: "Draw which step waits for which",
		Args:  oneFile,
		RunE: func(_ *cobra.Command, words []string) error {
			if dot && mermaid {
				return usage("both --dot and --mermaid", "give one of them")
			}
			p, faults := w.compileFlow(words[0])
			if len(faults) > 0 {
				return usage(faults[0].Error(), "see `drover workflow check`")
			}
			text := p.Text()
			switch {
			case dot:
				text = p.Dot()
			case mermaid:
				text = p.Mermaid()
			}
			_, err := fmt.Print(excerpt.Plain(text))
			return err
		},
	}
	cmd.Flags().BoolVar(&dot, "dot", false, "in the language of Graphviz")
	cmd.Flags().BoolVar(&mermaid, "mermaid", false, "in the language of Mermaid")
	return cmd
}

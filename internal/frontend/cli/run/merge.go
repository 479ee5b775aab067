package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/git/merge"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

const (
	checkTail  = 80       // lines of a failed check that its agent gets
	checkBytes = 16 << 10 // and bytes
	moves      = 3        // how often a merge is tried while others move the branch
)

// worktrees are the worktrees of agents.
func (a *app) worktrees() *worktree.Store { return worktree.Open(a.Root.Worktrees()) }

// merging is what `drover merge` is given.
type merging struct {
	into     string
	check    string
	noCheck  bool
	noReturn bool
	pull     bool // a pull request instead of a move of the branch
	remote   string
	timeout  time.Duration
	settings string
	json     bool
}

// Merged is what became of one change.
type Merged struct {
	Task     task.ID  `json:"task_id"`
	Status   string   `json:"status"` // merged, proposed, nothing, conflict, check_failed or failed
	Branch   string   `json:"branch"`
	Commit   string   `json:"commit,omitempty"`
	Files    []string `json:"conflicts,omitempty"` // in which it conflicts
	Check    task.ID  `json:"check_task_id,omitempty"`
	Output   string   `json:"check_output,omitempty"` // the end of a failed check
	URL      string   `json:"pull_request,omitempty"`
	Returned bool     `json:"returned"` // its agent was notified, and continues
	Error    string   `json:"error,omitempty"`

	message string // for the agent
}

func (a *app) merge() *cobra.Command {
	var m merging
	cmd := &cobra.Command{
		Use: "merge [--into BRANCH] [--check COMMAND] [--pr] REF…",
		Long: "Merge the changes of agents with worktrees to the branch that is checked out here, or to BRANCH, one after\n" +
			"the other. Each change is rebased on the branch in a scratch checkout, with what is not committed as a commit;\n" +
			"there the command of --check or of the setting `merge.check` runs as a task; if it passes, the branch moves, and\n" +
			"a work tree in which it is checked out with it. A change with a conflict or a failed check goes back to its\n" +
			"agent as a message, unless --no-return, and the other changes are merged without it.\n\n" +
			"A branch that is checked out with uncommitted changes is refused. If the process is killed, the branch and its\n" +
			"work tree are as before or as after: the next `drover merge` or `drover doctor` finishes it or takes it back.\n\n" +
			"--pr leaves the branch as it is: it pushes each change to a branch drover/TASK of the remote and opens a pull\n" +
			"request with `gh`.",
		Args: console.Args(1, -1), ValidArgsFunction: a.CompleteTasks(true),
	}
	f := cmd.Flags()
	f.StringVar(&m.into, "into", "", "the `BRANCH` to merge to; default: the one that is checked out here")
	f.StringVar(&m.check, "check", "",
		"a shell `COMMAND` that must pass, such as 'make test'; default: the setting merge.check")
	f.BoolVar(&m.noCheck, "no-check", false, "run no check")
	f.BoolVar(&m.noReturn, "no-return", false, "send no message about conflicts and failed checks to agents")
	f.BoolVar(&m.pull, "pr", false, "open a pull request for each change with gh")
	f.StringVar(&m.remote, "remote", "origin", "the git `REMOTE` to which --pr pushes")
	f.DurationVar(&m.timeout, "timeout", 0, "stop a check after this time; it has failed then")
	f.StringVar(&m.settings, "settings", "", "a settings file, or JSON")
	f.BoolVar(&m.json, "json", false, "print JSON")
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		if m.check != "" && m.noCheck {
			return console.Usage("--check and --no-check are mutually exclusive", "give one of them")
		}
		tasks, err := a.ResolveAll(cmd.Context(), words, *all)
		if err != nil {
			return err
		}
		return a.mergeAll(cmd.Context(), m, tasks)
	}
	return cmd
}

// mergeAll merges the changes of some tasks, in their order, and prints what became of them.
func (a *app) mergeAll(ctx context.Context, m merging, tasks []console.Found) error {
	results, err := a.mergeTasks(ctx, m, tasks)
	if m.json && results != nil {
		if printed := console.PrintJSON(a.Stdout, results); err == nil {
			err = printed
		}
	}
	return err
}

// mergeTasks is mergeAll without the JSON. The results are valid even with an error.
func (a *app) mergeTasks(ctx context.Context, m merging, tasks []console.Found) ([]Merged, error) {
	for _, f := range tasks {
		if !f.Record.Status.Terminal() {
			return nil, console.Conflict(fmt.Sprintf("merge the change of %s: its agent is still running", f.Record.ID),
				fmt.Sprintf("wait for it: `drover wait %s`", f.Record.ID))
		}
	}
	set, err := a.Settings(m.settings)
	if err != nil {
		return nil, err
	}
	if m.check == "" && !m.noCheck {
		m.check = set.Merge.Check
	}
	if m.pull {
		if _, err := exec.LookPath("gh"); err != nil {
			return nil, fmt.Errorf("open a pull request: gh is not installed (see https://cli.github.com, or merge without --pr): %w",
				err)
		}
	}
	var results []Merged
	run := func(ctx context.Context, s control.API) error {
		results, err = a.train(ctx, s, m, tasks)
		return err
	}
	if m.check == "" && !m.pull {
		err = run(ctx, nil)
	} else {
		opening := console.Opening{Title: "merge: " + strings.Join(console.Refs(tasks), " "), Settings: m.settings,
			Answerable: true}
		err = a.InSession(ctx, opening, run)
	}
	not := 0
	for _, r := range results {
		if r.Status != "merged" && r.Status != "proposed" && r.Status != "nothing" {
			not++
		}
	}
	if err == nil && not > 0 {
		err = &console.ExitError{Code: 1, Err: fmt.Errorf("%d of %s not merged", not, console.Plural(len(tasks), "change"))}
	}
	return results, err
}

// train merges one change after the other. What fails for one change is in its result; an
// error ends the train.
func (a *app) train(ctx context.Context, s control.API, m merging, tasks []console.Found) (results []Merged,
	err error) {
	t, err := merge.Open(a.Root.Merges(), a.worktrees()).Begin(ctx,
		merge.Request{Folder: a.Cwd, Branch: m.into, Still: m.pull})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if t.Recovered != "" {
		a.Hint(t.Recovered)
	}
	results = []Merged{}
	for _, f := range tasks {
		r, err := a.mergeOne(ctx, s, m, t, f)
		if err != nil {
			return results, err
		}
		if r.message != "" && !m.noReturn {
			if problem := a.giveBack(ctx, f, r.message); problem != nil {
				a.Hint(fmt.Sprintf("agent %s was not notified: %v", f.Record.ID, problem))
			} else {
				r.Returned = true
			}
		}
		results = append(results, r)
		if !m.json {
			if err := a.mergeLine(r); err != nil {
				return results, err
			}
		}
	}
	return results, nil
}

func (a *app) mergeOne(ctx context.Context, s control.API, m merging, t *merge.Train, f console.Found) (Merged, error) {
	rec := f.Record
	r := Merged{Task: rec.ID, Status: "failed", Branch: t.Branch}
	c, err := a.worktrees().Change(ctx, rec.ID, rec.Cwd)
	switch {
	case errors.Is(err, worktree.ErrGone) && rec.Worktree != nil:
		r.Status = "nothing"
		return r, nil
	case err != nil:
		r.Error = err.Error()
		return r, context.Cause(ctx)
	}
	for try := 1; ; try++ {
		oid, err := t.Rebase(ctx, c, snapshotMessage(rec))
		var conflict *merge.Conflict
		switch {
		case errors.Is(err, merge.ErrNothing):
			r.Status = "nothing"
			a.settle(ctx, c, t.Tip)
			return r, nil
		case errors.As(err, &conflict):
			r.Status, r.Files, r.Error = "conflict", conflict.Files, conflict.Error()
			r.message = conflictMessage(t.Branch, conflict)
			return r, nil
		case err != nil:
			r.Error = err.Error()
			return r, context.Cause(ctx)
		}
		if m.check != "" {
			passed, err := a.checkChange(ctx, s, m, t, &r)
			if err != nil || !passed {
				return r, err
			}
		}
		if m.pull {
			return r, a.propose(ctx, s, m, t, rec, oid, &r)
		}
		left, err := t.Land(ctx, oid, "drover: merge "+string(rec.ID))
		if errors.Is(err, merge.ErrMoved) && try < moves {
			if err := t.Refresh(ctx); err != nil {
				return r, err
			}
			continue
		}
		if err != nil {
			return r, err
		}
		r.Status, r.Commit = "merged", oid
		a.settle(ctx, c, oid)
		if len(left) > 0 {
			a.Hint(fmt.Sprintf("changed while the branch moved, and left as they were: %s", strings.Join(left, ", ")))
		}
		return r, nil
	}
}

// settle moves the worktree of a merged change to a commit that has all of it.
func (a *app) settle(ctx context.Context, c worktree.Change, oid string) {
	if _, err := a.worktrees().Merged(ctx, c, oid); err != nil {
		a.Hint(err.Error())
	}
}

// checkChange runs the check in the scratch checkout, as a task.
func (a *app) checkChange(ctx context.Context, s control.API, m merging, t *merge.Train, r *Merged) (bool, error) {
	rec, err := a.StartOne(ctx, s, control.StartRequest{Description: fmt.Sprintf("check %s on %s", r.Task, t.Branch),
		Shell: &control.ShellRequest{Line: m.check}, Timeout: m.timeout, Env: gitrun.Environ(a.Env), Cwd: t.Dir})
	if err != nil {
		return false, err
	}
	r.Check = rec.ID
	fmt.Fprintf(a.Stderr, "%s: check %s runs: %s\n", r.Task, rec.ID, excerpt.Line(m.check, 200))
	rec, err = ended(ctx, s, rec.ID)
	if err != nil {
		return false, err
	}
	if rec.Status == task.Completed {
		return true, nil
	}
	if rec.StoppedByUser() {
		return false, &console.ExitError{Code: 4, Err: fmt.Errorf("check %s of task %s was stopped", rec.ID, r.Task)}
	}
	c, err := s.Output(ctx, control.OutputRequest{Ref: string(rec.ID), Tail: checkTail, Max: 1 << 20})
	if err != nil {
		return false, err
	}
	if len(c.Data) > checkBytes {
		c.Data = c.Data[len(c.Data)-checkBytes:]
	}
	r.Status, r.Output = "check_failed", excerpt.Plain(strings.ToValidUTF8(string(c.Data), "\uFFFD"))
	r.Error = "the check failed: " + cmp.Or(rec.Error, string(rec.Status))
	r.message = fmt.Sprintf("Your change was rebased on %s, and the check failed there, so it was not merged: %s (%s).\n\n"+
		"The end of its output:\n\n```\n%s\n```\n\nBring your change up to date with `git rebase %s`, correct it, and commit it. "+
		"It will be merged later.", t.Branch, m.check, cmp.Or(rec.Error, string(rec.Status)), r.Output, t.Tip)
	return false, nil
}

// ended waits for the end of a task.
func ended(ctx context.Context, s control.API, id task.ID) (task.Record, error) {
	reply, err := s.Wait(ctx, control.WaitRequest{Refs: []string{string(id)}})
	if err != nil {
		return task.Record{}, err
	}
	return reply.Tasks[0], nil
}

// propose pushes a change and opens a pull request.
func (a *app) propose(ctx context.Context, s control.API, m merging, t *merge.Train, rec task.Record, oid string,
	r *Merged) error {
	branch := "drover/" + string(rec.ID)
	for _, args := range [][]string{
		{"git", "push", m.remote, oid + ":refs/heads/" + branch},
		{"gh", "pr", "create", "--base", t.Branch, "--head", branch, "--title", subject(rec), "--body",
			"The change of Drover task " + string(rec.ID) + "."},
	} {
		what := fmt.Sprintf("%s %s of %s", args[0], args[1], rec.ID)
		started, err := a.StartOne(ctx, s, control.StartRequest{Description: what,
			Shell: &control.ShellRequest{Args: args}, Env: a.Env, Cwd: t.Repo})
		if err != nil {
			return err
		}
		if started, err = ended(ctx, s, started.ID); err != nil {
			return err
		}
		c, err := s.Output(ctx, control.OutputRequest{Ref: string(started.ID), Tail: 20, Max: checkBytes})
		if err != nil {
			return err
		}
		text := strings.TrimSpace(excerpt.Plain(strings.ToValidUTF8(string(c.Data), "\uFFFD")))
		if started.Status != task.Completed {
			r.Error = fmt.Sprintf("%s: %s: %s", strings.Join(args[:2], " "), cmp.Or(started.Error, string(started.Status)), text)
			return context.Cause(ctx)
		}
		r.URL = text[strings.LastIndexByte(text, '\n')+1:]
	}
	r.Status, r.Commit = "proposed", oid
	return nil
}

// giveBack sends a message to the agent of a change, which continues with it.
func (a *app) giveBack(ctx context.Context, f console.Found, text string) error {
	open := func(ctx context.Context) (control.API, func(), error) { return a.OpenToResume(ctx, f) }
	_, err := console.Ask(ctx, open, func(api control.API) (task.Record, error) {
		return api.Send(ctx, control.SendRequest{Ref: string(f.Record.ID), Text: text, Env: a.Env})
	})
	return err
}

func (a *app) mergeLine(r Merged) error {
	text := map[string]string{"merged": "merged to " + r.Branch + " as " + brief(r.Commit),
		"proposed": "pull request " + excerpt.Line(r.URL, 300), "nothing": "nothing to merge"}[r.Status]
	if text == "" {
		text = "not merged: " + r.Error
	}
	if r.Returned {
		text += "; its agent was notified and continues"
	}
	_, err := fmt.Fprintf(a.Stdout, "%s: %s\n", r.Task, excerpt.Line(text, 1000))
	if err == nil && r.Output != "" {
		_, err = fmt.Fprintln(a.Stdout, strings.TrimRight(r.Output, "\n"))
	}
	return err
}

func brief(oid string) string { return oid[:min(len(oid), 12)] }

// subject is the first line of a commit for what an agent has not committed itself.
func subject(rec task.Record) string {
	return excerpt.Line(cmp.Or(rec.Description, rec.Name, "Work of "+rec.AgentType), 72)
}

func snapshotMessage(rec task.Record) string {
	return subject(rec) + "\n\nDrover-Task: " + string(rec.ID) + "\n"
}

func conflictMessage(branch string, c *merge.Conflict) string {
	return fmt.Sprintf("Your change could not be merged to %s: it conflicts with commit %s in these files:\n\n- %s\n\n"+
		"The conflicting places (\"ours\" is %s):\n\n```diff\n%s\n```\n\nCommit what you have, run `git rebase %s` in your worktree, "+
		"resolve the conflicts so that both changes keep their meaning, and finish the rebase. Your change will be merged later.",
		branch, brief(c.Onto), strings.Join(c.Files, "\n- "), branch, c.Text, c.Onto)
}

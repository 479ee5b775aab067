package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	ledger "github.com/drover-dev/drover/internal/model/usage"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// maxRivals bounds the agents of one competition: their changes go to the judge in one prompt.
const maxRivals = 6

// contest is what `drover compete` is given.
type contest struct {
	agents   []string // TYPE or TYPE@MODEL
	judge    string   // as agents; empty: none
	check    string   // a command; empty: none
	timeout  time.Duration
	settings string
	merge    bool   // the best one
	into     string // a branch
	json     bool
}

func (a *app) competeCommand() *cobra.Command {
	var c contest
	cmd := &cobra.Command{
		Use: "compete --agents A,B[,C…] [--check COMMAND] [--judge J] PROMPT",
		Long: `Give the same prompt to several agents at the same time, each in a git worktree of its
own, and compare them in a table: what they changed, whether a command passes there, cost
and time. An agent is the name of its type, as ` + "`drover agents`" + ` lists them, or TYPE@MODEL.
A judge is one more agent, which reads all changes and chooses.

The work is a workflow: ` + "`drover ps --tree`" + ` shows it, and each agent can be stopped. The
worktrees with changes stay until you merge or remove them.

--merge merges the one that the judge has chosen, or without a judge the only one that has
changed something and passes the check, as ` + "`drover merge`" + ` does.`,
		Args: func(_ *cobra.Command, words []string) error {
			switch {
			case len(words) != 1 || strings.TrimSpace(words[0]) == "":
				return console.Usage("exactly one PROMPT is required", `as in drover compete --agents explore,general-purpose "…"`)
			case len(c.agents) < 2 || len(c.agents) > maxRivals:
				return console.Usage(fmt.Sprintf("--agents: %d agents", len(c.agents)),
					fmt.Sprintf("name 2 to %d, with commas between", maxRivals))
			case c.merge && c.judge == "" && c.check == "":
				return console.Usage("--merge needs something that chooses", "give --judge, --check or both")
			case c.into != "" && !c.merge:
				return console.Usage("--into is for --merge", "give that too")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, words []string) error { return a.compete(cmd.Context(), c, words[0]) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.agents, "agents", nil, "a `LIST` of agents with commas between, each a type or TYPE@MODEL")
	f.StringVar(&c.check, "check", "", "a shell `COMMAND` that is run in each worktree, such as 'go test ./...'")
	f.StringVar(&c.judge, "judge", "", "an `AGENT` that reads all changes and chooses")
	f.DurationVar(&c.timeout, "timeout", 0, "stop all of it after this time")
	f.BoolVar(&c.merge, "merge", false, "merge the best one")
	f.StringVar(&c.into, "into", "", "the `BRANCH` to merge to; default: the one that is checked out here")
	f.StringVar(&c.settings, "settings", "", "a settings file, or JSON")
	f.BoolVar(&c.json, "json", false, "print JSON")
	return cmd
}

// compete runs a competition in a session in this process.
func (a *app) compete(ctx context.Context, c contest, prompt string) error {
	base, err := a.head(ctx)
	if err != nil {
		return err
	}
	known := a.Agents("", false).Current()
	for _, who := range append(slices.Clone(c.agents), c.judge) {
		if kind, _, _ := strings.Cut(strings.TrimSpace(who), "@"); who != "" {
			if _, err := known.Find(kind); err != nil {
				return console.Usage(err.Error(), "see `drover agents`")
			}
		}
	}
	file, err := c.write()
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file) }() // the workflow has read it
	params := map[string]string{"prompt": prompt, "base": base}
	if _, faults := a.compileFlow(file); len(faults) > 0 {
		return console.Usage(faults[0].Text, "see `drover compete --help`")
	}
	opening := console.Opening{Title: "compete: " + console.Title(prompt), Settings: c.settings, Answerable: true}
	var r competition
	err = a.InSession(ctx, opening, func(ctx context.Context, s control.API) error {
		rec, err := a.StartOne(ctx, s, control.StartRequest{Timeout: c.timeout, Env: a.Env, Cwd: a.Cwd,
			Workflow: &control.WorkflowRequest{File: file, Params: params}})
		if err != nil {
			return err
		}
		answer, err := a.watchFlow(ctx, s, rec, a.Stderr)
		if err != nil {
			return err
		}
		if answer.Task.Status != task.Completed {
			return flowEnd(answer.Task)
		}
		r, err = a.judged(ctx, s, c, answer)
		return err
	})
	if err == nil && c.merge {
		r.Merged, err = a.mergeBest(ctx, c, r)
	}
	if c.json && r.Rivals != nil {
		if printed := console.PrintJSON(a.Stdout, r); err == nil {
			err = printed
		}
	}
	return err
}

// mergeBest merges the best change of a competition. Its agent gets no message: its
// session has ended.
func (a *app) mergeBest(ctx context.Context, c contest, r competition) ([]Merged, error) {
	i, why := best(r.Rivals, c.judge != "", c.check != "")
	if i < 0 {
		return nil, &console.ExitError{Code: 1, Err: fmt.Errorf("merge the best change: %s (choose with `drover merge TASK`)",
			why)}
	}
	tasks, err := a.ResolveAll(ctx, []string{string(r.Rivals[i].Task)}, false)
	if err != nil {
		return nil, err
	}
	m := merging{into: c.into, check: c.check, noReturn: true, settings: c.settings, json: c.json}
	return a.mergeTasks(ctx, m, tasks)
}

// best returns the change to merge: the choice of the judge, or without a judge the only candidate. A
// negative number comes with the reason.
func best(list []Rival, judged, checked bool) (int, string) {
	var can []int
	for i, r := range list {
		ok := r.Files > 0 && r.Status == string(task.StepCompleted) && (!checked || r.Check == "passed")
		switch {
		case judged && r.Chosen && !ok:
			return -1, fmt.Sprintf("%d, which was chosen, has changed nothing, has failed or does not pass the check", r.Number)
		case ok && (!judged || r.Chosen):
			can = append(can, i)
		}
	}
	switch {
	case len(can) == 1:
		return can[0], ""
	case judged:
		return -1, "the judge has chosen none"
	case len(can) > 1:
		return -1, fmt.Sprintf("%d of them pass the check", len(can))
	}
	return -1, "none of them passes the check"
}

// head is the commit from which the agents begin.
func (a *app) head(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "git", "rev-parse", "--verify", "HEAD^{commit}")
	cmd.Dir, cmd.Env = a.Cwd, a.Env
	out, err := cmd.Output()
	if err != nil {
		return "", console.Usage("the folder has no commit from which agents could begin",
			"run it in a git repository with a commit")
	}
	return strings.TrimSpace(string(out)), nil
}

// write makes a file of the workflow.
func (c contest) write() (string, error) {
	data, err := json.Marshal(c.plan())
	if err != nil {
		return "", fmt.Errorf("write the workflow of a competition: %w", err)
	}
	f, err := os.CreateTemp("", "drover-compete-*.yaml")
	if err != nil {
		return "", fmt.Errorf("write the workflow of a competition: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", fmt.Errorf("write the workflow of a competition: %w", err)
	}
	return f.Name(), nil
}

// object is one of JSON.
type object map[string]any

// reading is the text after the task in the prompt of a judge.
const reading = "\n\nThe task above was given to several agents. Below is what each of them changed. " +
	"Choose the best result: correct first, then complete, then simple. Change nothing yourself. " +
	"Begin your answer with the number of the best one, alone on the first line, and give your reasons below it."

// plan is the workflow: each agent, then the size of what it changed and the check, then the judge.
func (c contest) plan() object {
	var steps []object
	var seen []string // by the judge
	outputs := object{}
	read := "${{ params.prompt }}" + reading
	for i, who := range c.agents {
		n := strconv.Itoa(i + 1)
		try := rival("try-"+n, who, "${{ params.prompt }}")
		try["agent"].(object)["isolation"], try["continue_on_error"] = "worktree", true //nolint:forcetypeassert // see rival
		after := func(id, line string) string {
			id += "-" + n
			steps = append(steps, object{"id": id, "needs": "try-" + n, "if": "steps.try-" + n + ".worktree",
				"continue_on_error": true, "shell": `cd "$DROVER_STEP_TRY_` + n + `_WORKTREE" || exit` + "\n" + line})
			return id
		}
		steps = append(steps, try)
		id := after("size", staged+"--shortstat $DROVER_PARAM_BASE")
		outputs[id] = "${{ steps." + id + ".output }}"
		read += "\n\n## " + n + ", by " + strings.ReplaceAll(who, "${{", "$${{")
		if c.check != "" {
			id = after("check", c.check)
			seen, outputs[id] = append(seen, id), "${{ steps."+id+".status }}"
			read += "\n\nThe check of it: ${{ steps." + id + ".status }}."
		}
		if c.judge != "" {
			id = after("patch", staged+"$DROVER_PARAM_BASE")
			seen = append(seen, id)
			read += "\n\n```diff\n${{ steps." + id + ".output }}\n```"
		}
	}
	if c.judge != "" {
		judge := rival("judge", c.judge, read)
		judge["needs"], judge["if"] = seen, "always()"
		steps, outputs["judge"] = append(steps, judge), "${{ steps.judge.output }}"
	}
	params := object{"prompt": object{"required": true}, "base": object{"required": true}}
	return object{"name": "compete", "params": params, "steps": steps, "outputs": outputs, "parallel": 2 * maxRivals}
}

// staged begins a command that shows the changes of a worktree since a commit, with new files;
// it leaves the index alone.
const staged = `index=$(mktemp) && trap 'rm -f "$index"' EXIT && cp "$(git rev-parse --git-path index)" "$index" &&
export GIT_INDEX_FILE=$index && git add -A && git diff --cached --no-ext-diff `

// rival is an agent step.
func rival(id, who, prompt string) object {
	kind, model, _ := strings.Cut(strings.TrimSpace(who), "@")
	o := object{"type": kind, "prompt": prompt}
	if model != "" {
		o["model"] = model
	}
	return object{"id": id, "agent": o}
}

// Rival is how one agent did in a competition.
type Rival struct {
	Number  int            `json:"number"` // from 1
	Agent   string         `json:"agent"`
	Task    task.ID        `json:"task_id,omitempty"`
	Status  string         `json:"status"`
	Error   string         `json:"error,omitempty"`
	Files   int            `json:"files_changed"`
	Added   int            `json:"lines_added"`
	Removed int            `json:"lines_removed"`
	Check   string         `json:"check,omitempty"` // passed, failed or not run
	Usage   *task.Usage    `json:"usage,omitempty"` // nil: unknown
	Seconds float64        `json:"seconds"`
	Tree    *task.Worktree `json:"worktree,omitempty"`
	Chosen  bool           `json:"chosen"`
}

// competition is how all did.
type competition struct {
	Workflow task.ID  `json:"workflow"`
	Rivals   []Rival  `json:"agents"`
	Judge    string   `json:"judge,omitempty"`
	Merged   []Merged `json:"merged,omitempty"`
}

// judged reads how a competition went, and prints the table unless JSON is asked for.
func (a *app) judged(ctx context.Context, s control.API, c contest, answer control.Answer) (competition, error) {
	var out map[string]string
	if err := json.Unmarshal([]byte(answer.Text), &out); err != nil {
		return competition{}, fmt.Errorf("read the outputs of the competition: %w", err)
	}
	steps := map[string]task.Step{}
	if p := answer.Task.Progress; p != nil {
		for _, st := range p.Steps {
			steps[st.ID] = st
		}
	}
	rivals := make([]Rival, len(c.agents))
	chosen, completed := choice(out["judge"], len(rivals)), false
	for i, who := range c.agents {
		n := strconv.Itoa(i + 1)
		st := steps["try-"+n]
		r := Rival{Number: i + 1, Agent: who, Task: st.Task, Status: string(st.Status), Error: st.Error,
			Chosen: chosen == i+1}
		r.Files, r.Added, r.Removed = shortstat(out["size-"+n])
		if c.check != "" {
			r.Check = checked(out["check-"+n])
		}
		if st.Task != "" {
			rec, err := s.Get(ctx, string(st.Task))
			if err != nil {
				return competition{}, err
			}
			r.Usage, r.Tree, r.Seconds = rec.Usage, rec.Worktree, rec.Duration(time.Now()).Seconds()
		}
		completed = completed || st.Status == task.StepCompleted
		rivals[i] = r
	}
	all := competition{Workflow: answer.Task.ID, Rivals: rivals, Judge: out["judge"]}
	if !c.json {
		if err := a.rivals(rivals, out["judge"], c.check != ""); err != nil {
			return all, err
		}
	}
	if !completed {
		return all, &console.ExitError{Code: 1,
			Err: errors.New("no agent has completed the task (see why with `drover logs ID`)")}
	}
	return all, nil
}

func (a *app) rivals(list []Rival, judge string, checked bool) error {
	head := []string{"#", "AGENT", "STATUS", "CHANGED", "CHECK", "COST", "TIME", "TASK"}
	if !checked {
		head = append(head[:4:4], head[5:]...)
	}
	rows := [][]string{head}
	for _, r := range list {
		mark := strconv.Itoa(r.Number)
		if r.Chosen {
			mark += " *"
		}
		price := "unknown"
		if r.Usage != nil && r.Usage.CostUSD != nil {
			price = ledger.Dollars(*r.Usage.CostUSD)
		}
		changed := "nothing"
		if r.Files > 0 {
			changed = fmt.Sprintf("%s +%d -%d", console.Plural(r.Files, "file"), r.Added, r.Removed)
		}
		row := []string{mark, excerpt.Line(r.Agent, 40), r.Status, changed}
		if checked {
			row = append(row, r.Check)
		}
		rows = append(rows, append(row, price, console.Span(time.Duration(r.Seconds*float64(time.Second))), string(r.Task)))
	}
	if err := a.Table(rows, console.Headed); err != nil {
		return err
	}
	for _, r := range list {
		if r.Tree != nil && r.Tree.Path != "" && (r.Chosen || judge == "") {
			fmt.Fprintf(a.Stdout, "\n%d: %s", r.Number, excerpt.Line(r.Tree.Text, 1000))
		}
	}
	if judge != "" {
		fmt.Fprintf(a.Stdout, "\n%s", excerpt.Plain(judge))
	}
	_, err := fmt.Fprintln(a.Stdout)
	return err
}

// choice is the number with which a judge began, or 0.
func choice(text string, most int) int {
	digits := regexp.MustCompile(`^\D{0,20}(\d{1,3})\b`).FindStringSubmatch(strings.TrimSpace(text))
	if digits == nil {
		return 0
	}
	n, err := strconv.Atoi(digits[1])
	if err != nil || n > most {
		return 0
	}
	return n
}

// shortstat reads a line of `git diff --shortstat`.
func shortstat(line string) (files, added, removed int) {
	for _, m := range regexp.MustCompile(`(\d+) (file|insertion|deletion)`).FindAllStringSubmatch(line, -1) {
		n, _ := strconv.Atoi(m[1]) // digits; a number out of range becomes the largest
		switch m[2] {
		case "file":
			files = n
		case "insertion":
			added = n
		default:
			removed = n
		}
	}
	return files, added, removed
}

func checked(status string) string {
	switch task.StepStatus(status) {
	case task.StepCompleted:
		return "passed"
	case task.StepSkipped, "":
		return "not run"
	}
	return "failed"
}

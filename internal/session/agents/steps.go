package agents

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/shell"
	flow "github.com/drover-dev/drover/internal/project/workflowfile"
)

// judgedStep is a step of a workflow as the rules see it: as the equivalent call, with the folder in which it runs
// and the variables that it sets.
type judgedStep struct {
	flow.Step
	Where string // name of the step for people: outermost first
	Dir   string // its folder, absolute
}

// eachStep calls f for every step of a workflow and of those within it.
func eachStep(p *flow.Plan, cwd string, f func(judgedStep) error) error {
	return eachStepBelow(p, cwd, "", f)
}

func eachStepBelow(p *flow.Plan, cwd, above string, f func(judgedStep) error) error {
	for _, s := range p.Steps {
		j := judgedStep{s, above + s.ID, s.Cwd}
		if !filepath.IsAbs(s.Cwd) {
			j.Dir = filepath.Join(cwd, s.Cwd)
		}
		if err := f(j); err != nil {
			return err
		}
		if s.Workflow != nil {
			if err := eachStepBelow(s.Workflow.Plan, j.Dir, j.Where+"/", f); err != nil {
				return err
			}
		}
	}
	return nil
}

// line returns a shell step as one command line, including its folder and its variables. Values
// that are not known yet stay unknown in the line.
func (j judgedStep) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cd %s\n", shell.Quote(j.Dir))
	for _, v := range j.Env {
		value := shell.Quote(v.Text)
		if strings.Contains(v.Text, "${{") {
			value = `"$DROVER_COMPUTED"`
		}
		fmt.Fprintf(&b, "export %s=%s\n", v.Name, value)
	}
	b.WriteString(j.Shell)
	return b.String()
}

// call returns the call that corresponds to the step; ok is false for a step that does nothing
// by itself.
func (j judgedStep) call(id string) (c agent.Call, ok bool) {
	in := map[string]any{"description": "step " + j.Where}
	switch g := j.Agent; {
	case j.Shell != "":
		c.Name, in["command"] = "Bash", j.line()
	case g != nil:
		c.Name, in["subagent_type"], in["prompt"] = "Agent", g.Type, g.Prompt
		if g.Isolation != "" {
			in["isolation"] = g.Isolation
		}
		if j.On != "" {
			in["on"] = j.On
		}
	default:
		return c, false
	}
	raw, err := json.Marshal(in)
	if err != nil {
		panic(err) // texts only
	}
	c.ID, c.Input = id, raw
	return c, true
}

// compile compiles a workflow. It returns the first of several errors.
func compile(file string, read func(string) ([]byte, error)) (*flow.Plan, error) {
	plan, faults := flow.Compile(file, read)
	if len(faults) == 0 {
		return plan, nil
	}
	text := faults[0].Error()
	if n := len(faults) - 1; n > 0 {
		text += fmt.Sprintf(", and %d more faults", n)
	}
	return nil, control.Refuse(control.Invalid, text, "see `drover workflow check`")
}

package workflowfile

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// Check finds faults between the parts of a plan. A plan without faults can be run.
// Check also looks at the plans of nested workflows.
func (p *Plan) Check() []Fault {
	r := &reader{file: p.File}
	if len(p.Steps) == 0 || len(p.Steps) > MaxSteps || p.Parallel < 1 || p.Parallel > MaxParallel {
		r.fault(0, "", "the workflow has %d steps, and %d places for them", len(p.Steps), p.Parallel)
		return r.faults
	}
	seen := map[string]int{}
	for _, s := range p.Steps {
		if line, twice := seen[s.ID]; twice {
			r.fault(s.Line, "rename one", "two steps have the id %s (the other is in line %d)", s.ID, line)
		}
		seen[s.ID] = s.Line
	}
	r.needs(p)
	if len(r.faults) > 0 { // the rest would tell of the same again
		return r.faults
	}
	all := map[string]bool{}
	for _, s := range p.Steps {
		all[s.ID] = true
		r.uses(p, s)
	}
	for _, o := range p.Outputs {
		r.words(p, o.Line, "outputs."+o.Name, o.Text, all)
	}
	return r.faults
}

func (r *reader) needs(p *Plan) {
	for _, s := range p.Steps {
		for _, need := range s.Needs {
			if _, ok := p.Step(need); !ok {
				r.fault(s.Line, "", "step %s needs %.80q, which is no step%s", s.ID, need, known(need, p.stepNames(), ""))
			}
		}
	}
	if circle := p.cycle(); circle != nil {
		s, _ := p.Step(circle[0])
		r.fault(s.Line, "take one of the needs away", "steps need each other in a circle: %s", strings.Join(circle, " -> "))
	}
}

// uses checks the values that a step names.
func (r *reader) uses(p *Plan, s Step) {
	above := p.above(s.ID)
	what := "step " + s.ID + ": "
	if s.If != "" {
		e, err := parseExpr(s.If)
		if err != nil {
			r.fault(s.Line, "", "%sif: %v", what, err)
		}
		r.refs(p, s.Line, what+"if", e.refs, above)
	}
	r.line(p, s, above)
	for _, v := range s.Env {
		r.words(p, v.Line, what+"env."+v.Name, v.Text, above)
	}
	r.words(p, s.Line, what+"approval", s.Approval, above)
	if s.Agent != nil {
		r.words(p, s.Line, what+"prompt", s.Agent.Prompt, above)
	}
	if s.Workflow != nil {
		r.with(p, s, above)
	}
}

// line checks a shell line: values get there as variables only, since the shell
// would run commands in a value.
func (r *reader) line(p *Plan, s Step, above map[string]bool) {
	if pieces, err := parseText(s.Shell); strings.Contains(s.Shell, opens) {
		fix := "use variables such as $DROVER_PARAM_NAME or $DROVER_STEP_ID_OUTPUT"
		for _, piece := range pieces {
			if err == nil && piece.expr != nil && len(piece.expr.refs) == 1 {
				ref := piece.expr.refs[0]
				name := paramVar(ref.field)
				if ref.step != "" {
					name = stepVar(ref.step, ref.field)
				}
				fix = `write "$` + name + `" there`
				break
			}
		}
		r.fault(s.Line, fix, "step %s: shell: values are not put into a shell line", s.ID)
	}
	vars := map[string]ref{}
	for _, a := range p.Params {
		vars[paramVar(a.Name)] = ref{field: a.Name}
	}
	for _, other := range p.Steps {
		for _, f := range fields() {
			vars[stepVar(other.ID, f)] = ref{other.ID, f}
		}
	}
	for _, name := range mentioned(s.Shell) {
		v, ok := vars[name]
		switch {
		case !ok:
			r.fault(s.Line, "", "step %s: shell: there is no %s%s", s.ID, name, known(name, slices.Collect(maps.Keys(vars)), ""))
		case v.step != "" && !above[v.step]:
			r.fault(s.Line, "add "+v.step+" to its needs", "step %s: shell: %s is not known when it begins", s.ID, name)
		}
	}
}

// with checks the parameters of a nested workflow.
func (r *reader) with(p *Plan, s Step, above map[string]bool) {
	given := map[string]string{}
	for _, v := range s.Workflow.With {
		r.words(p, v.Line, "step "+s.ID+": with."+v.Name, v.Text, above)
		given[v.Name] = v.Text
	}
	sub := s.Workflow.Plan
	if sub == nil {
		return
	}
	r.faults = append(r.faults, sub.Check()...)
	for _, a := range sub.Params { // a value that is computed is looked at when it is known: here it is a possible one
		if v, ok := given[a.Name]; ok && strings.Contains(v, opens) {
			given[a.Name] = strings.Join(a.Enum[:min(len(a.Enum), 1)], "")
		}
	}
	if _, err := sub.Values(given); err != nil {
		r.fault(s.Line, "", "step %s: %v", s.ID, err)
	}
}

func (r *reader) words(p *Plan, line int, what, text string, above map[string]bool) {
	pieces, err := parseText(text)
	if err != nil {
		r.fault(line, "", "%s: %v", what, err)
	}
	for _, piece := range pieces {
		if piece.expr != nil {
			r.refs(p, line, what, piece.expr.refs, above)
		}
	}
}

func (r *reader) refs(p *Plan, line int, what string, refs []ref, above map[string]bool) {
	for _, v := range refs {
		_, there := p.Step(v.step)
		switch {
		case v.step == "" && !slices.Contains(p.paramNames(), v.field):
			r.fault(line, "", "%s: there is no %s%s", what, v, known(v.field, p.paramNames(), "the workflow has no parameters"))
		case v.step == "":
		case !there:
			r.fault(line, "", "%s: there is no step %.80q%s", what, v.step, known(v.step, p.stepNames(), ""))
		case !above[v.step]:
			r.fault(line, "add "+v.step+" to its needs", "%s: %s is not known when it begins", what, v)
		}
	}
}

// Sound is an error that names the first fault of a plan, or nil.
func (p *Plan) Sound() error {
	faults := p.Check()
	if len(faults) == 0 {
		return nil
	}
	return errors.New(faults[0].Error())
}

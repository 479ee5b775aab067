package workflowfile

import (
	"fmt"
	"regexp"
	"strings"
)

// paramVar and stepVar are the variables by which a shell line gets a value.
func paramVar(name string) string { return "DROVER_PARAM_" + shout(name) }

func stepVar(id, field string) string { return "DROVER_STEP_" + shout(id) + "_" + shout(field) }

func shout(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

// mentioned are the variables of ours that a shell line names.
func mentioned(line string) []string {
	return regexp.MustCompile(`\bDROVER_(?:PARAM|STEP)_[A-Z0-9_]+`).FindAllString(line, -1)
}

// maxVars bounds the values that one command is given, in bytes: the system has
// a bound for all of them together.
const maxVars = 1 << 20

// Vars returns the variables of a shell step in addition to its environment, as NAME=value:
// all parameters, the values of other steps that the line names, and the step's own.
func (p *Plan) Vars(s Step, scope Scope) ([]string, error) {
	var out []string
	size := 0
	set := func(name, value string) {
		value = strings.ReplaceAll(value, "\x00", "") // which no variable can hold
		out = append(out, name+"="+value)
		size += len(name) + len(value) + 2
	}
	for _, a := range p.Params {
		set(paramVar(a.Name), scope.Params[a.Name])
	}
	named := map[string]bool{}
	for _, v := range mentioned(s.Shell) {
		named[v] = true
	}
	for id := range p.above(s.ID) {
		for _, f := range fields() {
			if !named[stepVar(id, f)] {
				continue
			}
			v, err := scope.Step(id, f)
			if err != nil {
				return nil, err
			}
			set(stepVar(id, f), v)
		}
	}
	for _, e := range s.Env {
		v, err := Fill(e.Text, scope)
		if err != nil {
			return nil, fmt.Errorf("env.%s: %w", e.Name, err)
		}
		set(e.Name, v)
	}
	if size > maxVars {
		return nil, fmt.Errorf("its variables have %d bytes, more than %d (pass large values by a file)", size, maxVars)
	}
	return out, nil
}

package workflowfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/spelling"
)

// Bounds of a workflow. Larger ones are refused.
const (
	MaxBytes     = 128 << 10 // of one file
	MaxAllBytes  = 512 << 10 // of a file with all that it names
	MaxSteps     = 200       // of one file
	MaxAllSteps  = 500       // of a file with all that it names
	MaxDepth     = 5         // of workflows in each other, the first included
	MaxParallel  = 32
	MaxRetries   = 20
	MaxValue     = 32 << 10  // bytes of the value of a parameter
	MaxOutput    = 64 << 10  // bytes of a step's output that other steps see
	MaxText      = 512 << 10 // bytes of a text with its values
	maxNesting   = 20
	maxFaults    = 50
	maxDelay     = time.Hour
	maxTimeout   = 30 * 24 * time.Hour
	usualAtOnce  = 10
	usualBackoff = 1
)

// Plan is a workflow as it is run: checked, with the workflows that its steps name
// inside of it.
type Plan struct {
	Name        string        `json:"name"`
	Description string        `json:"description,omitempty"`
	File        string        `json:"file"`
	Digest      string        `json:"digest"` // of the file and of all that it names, in hex
	Params      []Param       `json:"params,omitempty"`
	Steps       []Step        `json:"steps"`
	Outputs     []Named       `json:"outputs,omitempty"`
	Timeout     time.Duration `json:"timeout_ns,omitempty"` // 0: none
	Parallel    int           `json:"parallel"`             // steps at the same time
}

// Param is a value that is given when the workflow is started.
type Param struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Default     *string  `json:"default,omitempty"`
	Required    bool     `json:"required,omitempty"`
	Enum        []string `json:"enum,omitempty"`
}

// Named is a text with a name. The text may hold expressions.
type Named struct {
	Name string `json:"name"`
	Text string `json:"text"`
	Line int    `json:"line,omitempty"`
}

// Step is one step. Exactly one of Shell, Agent, Approval and Workflow is set.
type Step struct {
	ID       string        `json:"id"`
	Line     int           `json:"line,omitempty"` // of the file
	Needs    []string      `json:"needs,omitempty"`
	If       string        `json:"if,omitempty"` // empty: unless something has failed
	Shell    string        `json:"shell,omitempty"`
	Agent    *Agent        `json:"agent,omitempty"`
	Approval string        `json:"approval,omitempty"` // the question
	Workflow *Nested       `json:"workflow,omitempty"`
	On       string        `json:"on,omitempty"`  // a worker or a label, for Shell and Agent; empty: this machine
	Cwd      string        `json:"cwd,omitempty"` // relative to where the workflow works, or absolute
	Env      []Named       `json:"env,omitempty"` // of Shell
	Timeout  time.Duration `json:"timeout_ns,omitempty"`
	Retries  Retries       `json:"retries,omitzero"`
	Continue bool          `json:"continue_on_error,omitempty"`
}

// Agent is a step that an agent does.
type Agent struct {
	Type      string `json:"type"`
	Prompt    string `json:"prompt"`
	Model     string `json:"model,omitempty"`
	MaxTurns  int    `json:"max_turns,omitempty"`
	Isolation string `json:"isolation,omitempty"`
}

// Nested is a step that is a workflow itself.
type Nested struct {
	File string  `json:"file"` // as it is written
	With []Named `json:"with,omitempty"`
	Plan *Plan   `json:"plan,omitempty"`
}

// Retries is how often a step that has failed is tried again.
type Retries struct {
	Max     int           `json:"max,omitempty"`
	Delay   time.Duration `json:"delay_ns,omitempty"` // before the first
	Backoff int           `json:"backoff,omitempty"`  // factor of the delay from one to the next
}

// Wait is the delay before the n-th retry, from 1; never more than an hour.
func (r Retries) Wait(n int) time.Duration {
	d := r.Delay
	for range n - 1 {
		if d *= time.Duration(max(1, r.Backoff)); d > maxDelay {
			return maxDelay
		}
	}
	return d
}

// Fault is something that is wrong with a workflow.
type Fault struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"` // from 1; 0: none
	Text string `json:"text"`
	Fix  string `json:"fix,omitempty"`
}

func (f Fault) Error() string {
	text := f.Text
	if f.Fix != "" {
		text += " (" + f.Fix + ")"
	}
	switch {
	case f.Line > 0:
		return fmt.Sprintf("%s:%d: %s", f.File, f.Line, text)
	case f.File != "":
		return f.File + ": " + text
	}
	return text
}

// Step is the step of an ID.
func (p *Plan) Step(id string) (Step, bool) {
	i := slices.IndexFunc(p.Steps, func(s Step) bool { return s.ID == id })
	if i < 0 {
		return Step{}, false
	}
	return p.Steps[i], true
}

// Values are the parameters of a start: those that were given, and the defaults.
func (p *Plan) Values(given map[string]string) (map[string]string, error) {
	out := make(map[string]string, len(p.Params))
	for _, a := range p.Params {
		v, ok := given[a.Name]
		switch {
		case !ok && a.Required:
			return nil, fmt.Errorf("parameter %s is missing (it is required)", a.Name)
		case !ok:
			v = deref(a.Default)
		}
		if ok || a.Default != nil {
			if err := a.fits(v); err != nil {
				return nil, err
			}
		}
		out[a.Name] = v
	}
	for name := range given {
		if _, ok := out[name]; !ok {
			return nil, fmt.Errorf("unknown parameter %.80q%s", name,
				known(name, p.paramNames(), "the workflow has no parameters"))
		}
	}
	return out, nil
}

func (p *Plan) paramNames() []string {
	names := make([]string, len(p.Params))
	for i, a := range p.Params {
		names[i] = a.Name
	}
	return names
}

func (p *Plan) stepNames() []string {
	names := make([]string, len(p.Steps))
	for i, s := range p.Steps {
		names[i] = s.ID
	}
	return names
}

// fits says why the parameter cannot have a value; nil: it can.
func (a Param) fits(v string) error {
	switch {
	case len(v) > MaxValue:
		return fmt.Errorf("the value of parameter %s has %d bytes, more than %d", a.Name, len(v), MaxValue)
	case strings.Contains(v, "\x00"):
		return fmt.Errorf("the value of parameter %s holds a NUL byte", a.Name)
	case len(a.Enum) > 0 && !slices.Contains(a.Enum, v):
		return fmt.Errorf("parameter %s cannot be %.80q (it is one of %s)", a.Name, v, strings.Join(a.Enum, ", "))
	}
	return nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// known returns the name that a wrong word may have meant, else the names that it may be;
// none is the text for an empty list.
func known(word string, names []string, none string) string {
	switch near := closest(word, names); {
	case near != "":
		return " (did you mean " + near + "?)"
	case len(names) == 0:
		return " (" + none + ")"
	case len(names) > 12:
		return ""
	}
	return " (there are " + strings.Join(slices.Sorted(slices.Values(names)), ", ") + ")"
}

// closest is the name that differs from a word by two letters at most.
func closest(word string, names []string) string {
	best, least := "", 3
	if len(word) < 4 {
		least = 2
	}
	for _, n := range names {
		if d := spelling.Distance(word, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// byLine puts faults into the order in which they are read.
func byLine(a, b Fault) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
}

package workflowfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/drover-dev/drover/internal/platform/frontmatter"
)

// reader makes a plan of the nodes of a file, and notes every fault.
type reader struct {
	file   string
	faults []Fault
}

func (r *reader) fault(line int, fix, format string, args ...any) {
	r.faults = append(r.faults, Fault{File: r.file, Line: line, Text: fmt.Sprintf(format, args...), Fix: fix})
}

// parse reads one file. The plan is of use only without faults; what the steps mean
// to each other is not looked at.
func parse(file string, data []byte) (*Plan, []Fault) {
	r := &reader{file: file}
	root := r.nodes(data)
	if root == nil {
		return nil, r.faults
	}
	p := &Plan{File: file, Parallel: usualAtOnce}
	var params, steps, outputs *yaml.Node
	r.object(root, "the workflow", map[string]func(*yaml.Node){
		"$schema":     func(n *yaml.Node) { r.text(n, "$schema") },
		"name":        func(n *yaml.Node) { p.Name = r.text(n, "name") },
		"description": func(n *yaml.Node) { p.Description = r.text(n, "description") },
		"timeout":     func(n *yaml.Node) { p.Timeout = r.duration(n, "timeout", maxTimeout) },
		"parallel":    func(n *yaml.Node) { p.Parallel = r.number(n, "parallel", 1, MaxParallel) },
		"params":      func(n *yaml.Node) { params = n },
		"steps":       func(n *yaml.Node) { steps = n },
		"outputs":     func(n *yaml.Node) { outputs = n },
	})
	if len(p.Name) > 64 || strings.Trim(p.Name, nameChars) != "" {
		r.fault(root.Line, "use letters, digits, - and _, 64 at most", "the name %.80q is no name", p.Name)
	}
	if params != nil {
		r.params(params, p)
	}
	switch {
	case steps == nil:
		r.fault(root.Line, "write steps: with a list", "there are no steps")
	case steps.Kind != yaml.SequenceNode || len(steps.Content) == 0:
		r.fault(steps.Line, "begin each with - id:", "steps is no list of steps")
	case len(steps.Content) > MaxSteps:
		r.fault(steps.Line, "put some of them into a workflow of their own", "%d steps are more than %d",
			len(steps.Content), MaxSteps)
	default:
		for _, n := range steps.Content {
			p.Steps = append(p.Steps, r.step(n))
		}
	}
	if outputs != nil {
		p.Outputs = r.named(outputs, "outputs", paramName, "small letters, digits, - and _")
	}
	return p, r.faults
}

// nodes reads the file as YAML, of which JSON is a part, within bounds.
func (r *reader) nodes(data []byte) *yaml.Node {
	switch {
	case len(data) > MaxBytes:
		r.fault(0, "", "the file has %d bytes, more than %d", len(data), MaxBytes)
		return nil
	case !utf8.Valid(data):
		r.fault(0, "save it as UTF-8", "the file is not UTF-8 text")
		return nil
	case json.Valid(data):
		data = bytes.ReplaceAll(data, []byte("\t"), []byte(" ")) // which YAML does not take, and no text of JSON can hold
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	err := d.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		r.fault(0, "", "the file is empty")
		return nil
	case err != nil:
		line, text := frontmatter.Place(err)
		r.fault(line, "", "this is not YAML: %s", text)
		return nil
	case !errors.Is(d.Decode(&next), io.EOF):
		r.fault(0, "one file is one workflow", "something follows the end of the workflow")
		return nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		r.fault(root.Line, "begin with name: and steps:", "the file is no list of keys with values")
		return nil
	}
	if !r.sound(root, 0) {
		return nil
	}
	return root
}

// sound refuses what makes a small file large, or two values of one.
func (r *reader) sound(n *yaml.Node, depth int) bool {
	switch {
	case depth > maxNesting:
		r.fault(n.Line, "", "more than %d lists and objects in each other", maxNesting)
		return false
	case n.Kind == yaml.AliasNode:
		r.fault(n.Line, "write the value out", "the alias *%.40s is not read", n.Value)
		return false
	case n.Tag != "" && !strings.HasPrefix(n.ShortTag(), "!!"):
		r.fault(n.Line, "take it away", "the tag %.40s is not known", n.Tag)
		return false
	}
	good, seen := true, map[string]bool{}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			switch {
			case c.Kind != yaml.ScalarNode:
				r.fault(c.Line, "", "a key is not a word")
				good = false
			case seen[c.Value]:
				r.fault(c.Line, "", "%.60q is given twice", c.Value)
				good = false
			}
			seen[c.Value] = true
		}
		good = r.sound(c, depth+1) && good
	}
	return good
}

// object hands each value of an object to the function of its key.
func (r *reader) object(n *yaml.Node, what string, take map[string]func(*yaml.Node)) bool {
	if n.Kind != yaml.MappingNode {
		r.fault(n.Line, "write keys with values", "%s is no object", what)
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		f, ok := take[key.Value]
		if !ok {
			r.fault(key.Line, "", "unknown key %.60q of %s%s", key.Value, what,
				known(key.Value, slices.Collect(maps.Keys(take)), ""))
			continue
		}
		f(value)
	}
	return true
}

// text is a scalar as it is written.
func (r *reader) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		r.fault(n.Line, "", "%s is no text", what)
		return ""
	}
	if strings.Contains(n.Value, "\x00") {
		r.fault(n.Line, "", "%s holds a NUL byte", what)
	}
	return n.Value
}

func (r *reader) filled(n *yaml.Node, what string) string {
	text := r.text(n, what)
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" && strings.TrimSpace(text) == "" {
		r.fault(n.Line, "", "%s is empty", what)
	}
	return text
}

func (r *reader) texts(n *yaml.Node, what string) []string {
	if n.Kind == yaml.ScalarNode {
		return []string{r.filled(n, what)}
	}
	if n.Kind != yaml.SequenceNode {
		r.fault(n.Line, "", "%s is no list", what)
		return nil
	}
	out := make([]string, 0, len(n.Content))
	for _, c := range n.Content {
		out = append(out, r.filled(c, what))
	}
	return out
}

func (r *reader) number(n *yaml.Node, what string, lo, hi int) int {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || v < lo || v > hi {
		r.fault(n.Line, "", "%s is no whole number from %d to %d", what, lo, hi)
		return lo
	}
	return v
}

func (r *reader) truth(n *yaml.Node, what string) bool {
	if n.Kind != yaml.ScalarNode || n.Value != "true" && n.Value != "false" {
		r.fault(n.Line, "", "%s is neither true nor false", what)
	}
	return n.Value == "true"
}

func (r *reader) duration(n *yaml.Node, what string, most time.Duration) time.Duration {
	d, err := time.ParseDuration(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode || err != nil || d <= 0:
		r.fault(n.Line, "write a number with a unit, such as 90s or 10m", "%s is no length of time", what)
		return 0
	case d > most:
		r.fault(n.Line, "", "%s is longer than %s", what, most)
	}
	return d
}

// named reads an object of texts, in the order of the file.
func (r *reader) named(n *yaml.Node, what string, good func(string) bool, form string) []Named {
	if n.Kind != yaml.MappingNode {
		r.fault(n.Line, "write keys with values", "%s is no object", what)
		return nil
	}
	var out []Named
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if !good(key.Value) {
			r.fault(key.Line, "use "+form, "%.60q in %s is no name", key.Value, what)
		}
		out = append(out, Named{Name: key.Value, Text: r.text(n.Content[i+1], what+"."+key.Value), Line: n.Content[i+1].Line})
	}
	return out
}

func (r *reader) params(n *yaml.Node, p *Plan) {
	if n.Kind != yaml.MappingNode {
		r.fault(n.Line, "write names with default, required, description or enum", "params is no object")
		return
	}
	taken := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		a := Param{Name: key.Value}
		if !paramName(a.Name) {
			r.fault(key.Line, "begin with a small letter; use small letters, digits, - and _, 64 at most",
				"%.60q is no name of a parameter", a.Name)
		}
		if other := taken[paramVar(a.Name)]; other != "" {
			r.fault(key.Line, "rename one", "parameters %s and %s would be the same variable %s", other, a.Name,
				paramVar(a.Name))
		}
		taken[paramVar(a.Name)] = a.Name
		what := "parameter " + a.Name
		if value.Kind != yaml.ScalarNode || value.ShortTag() != "!!null" {
			r.object(value, what, map[string]func(*yaml.Node){
				"default":     func(n *yaml.Node) { v := r.text(n, "default of "+what); a.Default = &v },
				"required":    func(n *yaml.Node) { a.Required = r.truth(n, "required of "+what) },
				"description": func(n *yaml.Node) { a.Description = r.text(n, "description of "+what) },
				"enum":        func(n *yaml.Node) { a.Enum = r.texts(n, "enum of "+what) },
			})
		}
		switch {
		case a.Required && a.Default != nil:
			r.fault(key.Line, "leave one of them out", "%s is required and has a default", what)
		case a.Default != nil:
			if err := a.fits(*a.Default); err != nil {
				r.fault(key.Line, "", "default: %v", err)
			}
		}
		p.Params = append(p.Params, a)
	}
}

// step reads one step and checks what can be seen of it alone.
func (r *reader) step(n *yaml.Node) Step {
	s := Step{Line: n.Line}
	given := map[string]int{}
	note := func(name string, f func(*yaml.Node)) func(*yaml.Node) {
		return func(n *yaml.Node) { given[name] = n.Line; f(n) }
	}
	var with []Named
	take := map[string]func(*yaml.Node){
		"id":                func(n *yaml.Node) { s.ID = r.text(n, "id") },
		"needs":             func(n *yaml.Node) { s.Needs = r.texts(n, "needs") },
		"if":                func(n *yaml.Node) { s.If = r.condition(n) },
		"timeout":           func(n *yaml.Node) { s.Timeout = r.duration(n, "timeout", maxTimeout) },
		"continue_on_error": func(n *yaml.Node) { s.Continue = r.truth(n, "continue_on_error") },
		"shell":             note("shell", func(n *yaml.Node) { s.Shell = r.filled(n, "shell") }),
		"agent":             note("agent", func(n *yaml.Node) { s.Agent = r.agent(n) }),
		"approval":          note("approval", func(n *yaml.Node) { s.Approval = r.approval(n) }),
		"workflow":          note("workflow", func(n *yaml.Node) { s.Workflow = &Nested{File: r.filled(n, "workflow")} }),
		"with": note("with", func(n *yaml.Node) {
			with = r.named(n, "with", paramName, "the names of parameters")
		}),
		"on":      note("on", func(n *yaml.Node) { s.On = r.filled(n, "on") }),
		"cwd":     note("cwd", func(n *yaml.Node) { s.Cwd = r.filled(n, "cwd") }),
		"env":     note("env", func(n *yaml.Node) { s.Env = r.named(n, "env", envName, "letters, digits and _") }),
		"retries": note("retries", func(n *yaml.Node) { s.Retries = r.retries(n) }),
	}
	if !r.object(n, "a step", take) {
		return s
	}
	if !stepID(s.ID) {
		r.fault(n.Line, "begin with a small letter; use small letters, digits and single -, 64 at most",
			"%.60q is no id of a step", s.ID)
	}
	if s.Workflow != nil {
		s.Workflow.With = with
	}
	r.action(s, given)
	for _, v := range s.Env {
		if strings.HasPrefix(v.Name, "DROVER_") {
			r.fault(v.Line, "names that begin with DROVER_ are taken", "step %s cannot set %s", s.ID, v.Name)
		}
	}
	return s
}

// action checks that a step does one thing, and has no keys of another.
func (r *reader) action(s Step, given map[string]int) {
	var does []string
	for _, a := range []string{"shell", "agent", "approval", "workflow"} {
		if given[a] > 0 {
			does = append(does, a)
		}
	}
	if len(does) != 1 {
		what := "nothing"
		if len(does) > 1 {
			what = strings.Join(does, " and ")
		}
		r.fault(s.Line, "give one of shell, agent, approval and workflow", "step %s does %s", s.ID, what)
		return
	}
	for _, key := range []struct{ name, of string }{{"with", "workflow"}, {"env", "shell"}, {"on", "shell agent"},
		{"cwd", "shell agent workflow"}, {"retries", "shell agent workflow"}} {
		if line := given[key.name]; line > 0 && !slices.Contains(strings.Fields(key.of), does[0]) {
			r.fault(line, "take it away", "%s has no meaning for a step with %s", key.name, does[0])
		}
	}
}

// condition takes the marks of an expression off, which a condition does not need.
func (r *reader) condition(n *yaml.Node) string {
	text := strings.TrimSpace(r.filled(n, "if"))
	if inner, ok := strings.CutPrefix(text, opens); ok {
		if in, ok := strings.CutSuffix(inner, closes); ok && !strings.Contains(in, opens) {
			return strings.TrimSpace(in)
		}
	}
	return text
}

func (r *reader) agent(n *yaml.Node) *Agent {
	a := &Agent{}
	if r.object(n, "agent", map[string]func(*yaml.Node){
		"type":      func(n *yaml.Node) { a.Type = r.filled(n, "type") },
		"prompt":    func(n *yaml.Node) { a.Prompt = r.filled(n, "prompt") },
		"model":     func(n *yaml.Node) { a.Model = r.filled(n, "model") },
		"max_turns": func(n *yaml.Node) { a.MaxTurns = r.number(n, "max_turns", 1, 1000) },
		"isolation": func(n *yaml.Node) { a.Isolation = r.text(n, "isolation") },
	}) && (a.Type == "" || a.Prompt == "") {
		r.fault(n.Line, "", "agent needs a type and a prompt")
	}
	if a.Isolation != "" && a.Isolation != "worktree" {
		r.fault(n.Line, "write worktree, or leave it out", "isolation cannot be %.40q", a.Isolation)
	}
	return a
}

func (r *reader) approval(n *yaml.Node) (message string) {
	if n.Kind == yaml.ScalarNode {
		return r.filled(n, "approval")
	}
	if r.object(n, "approval",
		map[string]func(*yaml.Node){"message": func(n *yaml.Node) { message = r.filled(n, "message") }}) &&
		message == "" {
		r.fault(n.Line, "", "approval needs a message")
	}
	return message
}

func (r *reader) retries(n *yaml.Node) Retries {
	out := Retries{Backoff: usualBackoff}
	if n.Kind == yaml.ScalarNode {
		out.Max = r.number(n, "retries", 0, MaxRetries)
		return out
	}
	r.object(n, "retries", map[string]func(*yaml.Node){
		"max":     func(n *yaml.Node) { out.Max = r.number(n, "max", 0, MaxRetries) },
		"delay":   func(n *yaml.Node) { out.Delay = r.duration(n, "delay", maxDelay) },
		"backoff": func(n *yaml.Node) { out.Backoff = r.number(n, "backoff", 1, 10) },
	})
	return out
}

// stepID reports whether words in small letters are joined by single dashes.
func stepID(s string) bool {
	return len(s) <= 64 && lower(s) && !strings.ContainsAny(s, "_") && !strings.Contains(s, "--") &&
		!strings.HasSuffix(s, "-")
}

func paramName(s string) bool { return len(s) <= 64 && lower(s) }

// lower reports whether a word begins with a small letter and continues with small
// letters, digits, - and _.
func lower(s string) bool {
	return s != "" && s[0] >= 'a' && s[0] <= 'z' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

func envName(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
	return s != "" && len(s) <= 128 && strings.IndexByte(letters, s[0]) >= 0 && strings.Trim(s, letters+"0123456789") == ""
}

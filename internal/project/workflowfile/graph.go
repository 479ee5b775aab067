package workflowfile

import (
	"fmt"
	"slices"
	"strings"
)

// last reports whether a step waits for all others by itself: it is to be done after
// a failure, or in any case, and names nothing that it needs.
func (s Step) last() bool { return len(s.Needs) == 0 && s.Handles() }

// After returns the steps that each step waits for, by its ID: the ones it needs, and for
// a step that comes last by itself every step that does not need such a step.
func (p *Plan) After() map[string][]string {
	out := make(map[string][]string, len(p.Steps))
	behind := p.behindLast()
	var first []string
	for _, s := range p.Steps {
		if !behind[s.ID] {
			first = append(first, s.ID)
		}
	}
	for _, s := range p.Steps {
		out[s.ID] = s.Needs
		if s.last() {
			out[s.ID] = first
		}
	}
	return out
}

// behindLast are the steps that come last by themselves, and those that need one.
func (p *Plan) behindLast() map[string]bool {
	out := map[string]bool{}
	for _, s := range p.Steps {
		out[s.ID] = s.last()
	}
	for grown := true; grown; {
		grown = false
		for _, s := range p.Steps {
			if !out[s.ID] && slices.ContainsFunc(s.Needs, func(id string) bool { return out[id] }) {
				out[s.ID], grown = true, true
			}
		}
	}
	return out
}

// above are the steps that have ended when a step begins.
func (p *Plan) above(id string) map[string]bool {
	after, out := p.After(), map[string]bool{}
	line := slices.Clone(after[id])
	for len(line) > 0 {
		next := line[0]
		line = line[1:]
		if !out[next] && next != id {
			out[next] = true
			line = append(line, after[next]...)
		}
	}
	return out
}

// cycle is a path of steps that need each other in a circle, or nil.
func (p *Plan) cycle() []string {
	const open, done = 1, 2
	state := map[string]int{}
	var path []string
	var visit func(id string) []string
	visit = func(id string) []string {
		path, state[id] = append(path, id), open
		s, _ := p.Step(id)
		for _, need := range s.Needs {
			if state[need] == open {
				return append(slices.Clone(path[slices.Index(path, need):]), need)
			}
			if _, there := p.Step(need); state[need] == 0 && there {
				if found := visit(need); found != nil {
					return found
				}
			}
		}
		path, state[id] = path[:len(path)-1], done
		return nil
	}
	for _, s := range p.Steps {
		if state[s.ID] == 0 {
			if found := visit(s.ID); found != nil {
				return found
			}
		}
	}
	return nil
}

// Levels are the IDs of the steps by how many must end one after the other before
// them.
func (p *Plan) Levels() [][]string {
	after, level := p.After(), map[string]int{}
	var of func(id string) int
	of = func(id string) int {
		if n, ok := level[id]; ok {
			return n
		}
		n := 0
		for _, need := range after[id] {
			n = max(n, of(need)+1)
		}
		level[id] = n
		return n
	}
	var out [][]string
	for _, s := range p.Steps {
		n := of(s.ID)
		for len(out) <= n {
			out = append(out, nil)
		}
		out[n] = append(out[n], s.ID)
	}
	return out
}

// does is what sort of step it is.
func (s Step) does() string {
	switch {
	case s.Agent != nil:
		return "agent " + s.Agent.Type
	case s.Approval != "":
		return "approval"
	case s.Workflow != nil:
		return "workflow " + s.Workflow.File
	}
	return "shell"
}

// Text draws the graph as lines, a level after the other.
func (p *Plan) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d steps, %d at the same time\n", p.Name, len(p.Steps), p.Parallel)
	after := p.After()
	for n, ids := range p.Levels() {
		fmt.Fprintf(&b, "%d\n", n+1)
		for _, id := range ids {
			s, _ := p.Step(id)
			fmt.Fprintf(&b, "  %s (%s)", id, s.does())
			switch {
			case s.last():
				b.WriteString(" after all others")
			case len(after[id]) > 0:
				b.WriteString(" after " + strings.Join(after[id], ", "))
			}
			if s.If != "" {
				b.WriteString(" if " + s.If)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// Dot draws the graph in the language of Graphviz.
func (p *Plan) Dot() string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n  rankdir=LR\n  node [shape=box]\n", p.Name)
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "  %q [label=%q]\n", s.ID, s.ID+"\n"+s.does())
	}
	p.edges(func(from, to string) { fmt.Fprintf(&b, "  %q -> %q\n", from, to) })
	b.WriteString("}\n")
	return b.String()
}

// Mermaid draws the graph in the language of Mermaid.
func (p *Plan) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	label := strings.NewReplacer(`"`, "#quot;", "<", "#lt;", ">", "#gt;")
	node := map[string]string{} // an ID may be a word of the language
	for i, s := range p.Steps {
		node[s.ID] = fmt.Sprintf("s%d", i)
		fmt.Fprintf(&b, "  s%d[\"%s: %s\"]\n", i, s.ID, label.Replace(s.does()))
	}
	p.edges(func(from, to string) { fmt.Fprintf(&b, "  %s --> %s\n", node[from], node[to]) })
	return b.String()
}

func (p *Plan) edges(each func(from, to string)) {
	after := p.After()
	for _, s := range p.Steps {
		for _, need := range after[s.ID] {
			each(need, s.ID)
		}
	}
}

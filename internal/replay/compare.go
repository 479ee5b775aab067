package replay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/drover-dev/drover/task"
)

// Difference is a place where two recordings differ.
type Difference struct {
	Where    string // agent or task
	Was, Has string // one line each; empty: there is nothing
}

// Compare returns where a second recording differs from the first: of each agent its calls, its
// tool results and what it read, and of each task its events, in their order. Times, process IDs,
// folders and sessions are left out, and so is how far a task was between two changes.
func Compare(was, has *Recording) []Difference {
	a, b := lanes(was), lanes(has)
	either := maps.Clone(a)
	maps.Copy(either, b)
	var out []Difference
	for _, name := range slices.Sorted(maps.Keys(either)) {
		x, y := a[name], b[name]
		for i := range max(len(x), len(y)) {
			d := Difference{Where: fmt.Sprintf("%s, %d", name, i+1)}
			if i < len(x) {
				d.Was = x[i]
			}
			if i < len(y) {
				d.Has = y[i]
			}
			if d.Was != d.Has {
				out = append(out, d)
			}
		}
	}
	return out
}

// lanes are the lines that are compared, by what they are of: within one there is an order.
func lanes(r *Recording) map[string][]string {
	out, names := map[string][]string{}, NamesOf(r.Head)
	add := func(lane, format string, v ...any) { out[lane] = append(out[lane], fmt.Sprintf(format, v...)) }
	agent := func(id task.ID) string {
		if id == r.Head.Session {
			return "agent main"
		}
		return "agent " + string(id)
	}
	tools, steps := map[string][]string{}, map[task.ID]bool{}
	for _, e := range inOrder(r.Entries) {
		switch e.Kind {
		case CallEntry:
			who := agent(e.Agent) + " model"
			if e.Failure != nil {
				add(who, "call %d request %s: failed %s %s", e.Call, e.Request.Digest, e.Failure.Kind,
					names.Text(e.Failure.Text))
				continue
			}
			blocks, err := json.Marshal(e.Reply.Blocks)
			if err != nil {
				blocks = []byte(err.Error())
			}
			add(who, "call %d request %s: %s %s", e.Call, e.Request.Digest, e.Reply.StopReason, blocks)
		case ToolEntry:
			who := agent(e.Agent) + " tools"
			line := fmt.Sprintf("%s %s:", e.Tool.Name, e.Tool.ID)
			if d := e.Decision; d != nil {
				line += fmt.Sprintf(" allow %t %s", d.Allow, d.Reason)
			}
			if out := e.Output; out != nil {
				line += fmt.Sprintf(" error %t %s", out.IsError, names.Text(out.Text))
			}
			tools[who] = append(tools[who], line)
		case MailEntry:
			add(agent(e.Agent)+" mail", "%s", names.Text(strings.Join(e.Texts, "\n")))
		case MessageEntry:
			add("messages to "+agent(e.Message.To), "%s: %s", e.Message.Kind, names.Text(e.Message.Text))
		case EventEntry:
			steps[e.Event.Task.ID] = e.Event.Task.Kind.Traits().Work == task.BySteps
			event(add, names, e.Event)
		case OutputEntry:
			text := names.Text(string(e.Data))
			if steps[e.Task] { // the lines of steps that run at the same time come in any order
				lines := strings.SplitAfter(text, "\n")
				slices.Sort(lines)
				text = strings.Join(lines, "")
			}
			add("task "+string(e.Task)+" output", "%d bytes, %s", len(text), text)
		}
	}
	for who, lines := range tools { // calls that run at the same time end in any order
		slices.Sort(lines)
		out[who] = lines
	}
	return out
}

// inOrder sorts changes and messages by their numbers in the log: a recorder may have noted two of them the
// other way round.
func inOrder(entries []Entry) []Entry {
	seq := func(e Entry) task.Seq {
		switch e.Kind {
		case EventEntry:
			return e.Event.Seq
		case MessageEntry:
			return e.Message.Seq
		case OutputEntry:
			return math.MaxInt64
		}
		return 0
	}
	return slices.SortedStableFunc(slices.Values(entries), func(a, b Entry) int { return cmp.Compare(seq(a), seq(b)) })
}

// event is a change as it is compared. Progress and checkpoints are merged by the runtime as time
// has it, and are left out; so are sight and rest.
func event(add func(lane, format string, v ...any), names Names, e *task.Event) {
	r := e.Task
	switch e.Verb {
	case task.Report, task.Save, task.MarkSeen:
		return
	}
	id := string(r.ID)
	if r.ID == r.Session {
		id = "main"
	}
	line := []string{string(e.Verb), string(r.Status), string(r.Kind), r.AgentType, r.Name,
		names.Text(cmp.Or(r.Command, r.Description))}
	if r.Parent != "" {
		line = append(line, "parent "+names.Text(string(r.Parent)))
	}
	if r.Backgrounded {
		line = append(line, "backgrounded")
	}
	if r.Stopping {
		line = append(line, "stopping")
	}
	if c := r.Cause; c != nil {
		line = append(line, fmt.Sprintf("by %s %s %s", c.Actor, c.Reason, c.Signal))
	}
	if r.ExitCode != nil {
		line = append(line, fmt.Sprintf("exit %d", *r.ExitCode))
	}
	if r.Status.Terminal() && r.Usage != nil {
		line = append(line, fmt.Sprintf("tokens %d, tools %d", r.Usage.TotalTokens, r.Usage.ToolUses))
	}
	if r.Error != "" {
		line = append(line, names.Text(r.Error))
	}
	add("task "+id, "%s", strings.Join(slices.DeleteFunc(line, func(s string) bool { return s == "" }), " "))
}

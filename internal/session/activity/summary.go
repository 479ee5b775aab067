package activity

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// renewSummaries renews the summaries of running agents until the watch closes. An agent
// without activity since the last check keeps its summary.
func (w *Watch) renewSummaries(closes <-chan struct{}) {
	tick := time.NewTicker(w.opt.Agents.Summaries)
	defer tick.Stop()
	seen := map[task.RunID]task.Progress{}
	for {
		select {
		case <-tick.C:
		case <-closes:
			return
		}
		now := map[task.RunID]task.Progress{}
		for _, r := range w.tasks.Living() {
			if r.Status != task.Running || !r.Kind.IsAgent() || r.Progress == nil {
				continue
			}
			p := *r.Progress
			now[r.Run] = p
			if last, ok := seen[r.Run]; ok && last.ToolUseCount == p.ToolUseCount && last.TokenCount == p.TokenCount &&
				last.Message == p.Message {
				continue
			}
			w.summarize(r.ID, summary(p))
		}
		seen = now
	}
}

// summary describes in one or two sentences what an agent does. It is made from the events of
// the agent, without a call of a model.
func summary(p task.Progress) string {
	var said []string
	if p.Message != "" {
		said = append(said, strings.TrimRight(excerpt.Line(p.Message, 160), ". ")+".")
	}
	if a := p.LastActivity; a != nil {
		calls := "1 call"
		if p.ToolUseCount != 1 {
			calls = fmt.Sprintf("%d calls", p.ToolUseCount)
		}
		last := strings.TrimSpace(excerpt.Line(a.ToolName, 60) + " " + excerpt.Line(subject(a.Input), 120))
		said = append(said, fmt.Sprintf("%s so far, the last one %s.", calls, last))
	}
	return strings.Join(said, " ")
}

// subject returns the subject of a call: the first string of its input by which a person would
// name it.
func subject(input json.RawMessage) string {
	var in map[string]any
	if json.Unmarshal(input, &in) != nil {
		return ""
	}
	for _, key := range []string{"description", "command", "file_path", "pattern", "url", "subject", "prompt", "path"} {
		if text, ok := in[key].(string); ok && text != "" {
			return text
		}
	}
	return ""
}

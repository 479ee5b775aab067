package activity

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/stall"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// Agent is the activity of an agent in its present run. It is in memory only, since the run
// ends with its host.
type Agent struct {
	above   *Agent       // the nearest agent above; nil: none
	signs   atomic.Int64 // number of signs of life so far
	last    atomic.Int64 // time of the last one, in nanoseconds since 1970
	calling atomic.Int32 // running calls of tools

	mu         sync.Mutex // guards the fields below
	begun      bool       // it has had a turn
	turn       bool       // it is in a turn, or about to begin its first
	compacting bool
	calls      []call
	due        int // running calls of the latest reply
}

// call is a running call of a tool.
type call struct {
	id, tool string
	since    time.Time
}

// sign counts a sign of life. It is called for each part of a reply.
func (a *Agent) sign() {
	now := time.Now().UnixNano()
	a.count(now)
	a.above.below(now)
}

func (a *Agent) count(now int64) {
	a.signs.Add(1)
	a.last.Store(now)
}

// below counts a sign of life of a task below the agent, for which the agent may be waiting in
// a call. An agent that waits for its model is silent whatever its children do.
func (a *Agent) below(now int64) {
	for ; a != nil && a.calling.Load() > 0; a = a.above {
		a.count(now)
	}
}

// Follow counts the events of a conversation as signs of life.
func (a *Agent) Follow(c *agent.Config) {
	on, hold := c.On, c.WaitWhilePaused
	c.On = func(e agent.Event) {
		a.on(e)
		on(e)
	}
	c.WaitWhilePaused = func(ctx context.Context) error {
		err := hold(ctx)
		a.sign() // paused time is not silence
		return err
	}
}

func (a *Agent) on(e agent.Event) {
	a.sign()
	if e.Kind == agent.PartEvent { // most events are
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch e.Kind {
	case agent.TurnStartEvent:
		a.turn, a.begun, a.due = true, true, 0
	case agent.TurnDoneEvent:
		a.turn, a.calls = false, nil
	case agent.CompactStartEvent:
		a.compacting = true
	case agent.CompactEvent:
		a.compacting = false
	case agent.ReplyDoneEvent:
		a.due = 0
		for _, b := range e.Reply.Blocks {
			if b.Type == "tool_use" {
				a.due++
			}
		}
	case agent.ToolStartEvent:
		a.calls = append(a.calls, call{e.Call.ID, e.Call.Name, time.Now()})
	case agent.ToolDoneEvent:
		a.due--
		a.calls = slices.DeleteFunc(a.calls, func(c call) bool { return c.id == e.Call.ID })
	}
	a.calling.Store(int32(len(a.calls)))
}

// works reports whether signs of life are expected: between turns they are not.
func (a *Agent) works() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.turn || a.compacting
}

// doing describes what an agent does.
func (a *Agent) doing(model string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.compacting:
		return "sums up its conversation"
	case len(a.calls) > 0:
		c, more := a.calls[0], ""
		if n := len(a.calls) - 1; n > 0 {
			more = fmt.Sprintf(", and in %d more", n)
		}
		return fmt.Sprintf("is in a call of %s that began %s ago%s", excerpt.Line(c.tool, 60),
			time.Since(c.since).Round(time.Second), more)
	case a.due > 0:
		return "is about to call a tool, which hooks and rules have to pass"
	case !a.begun:
		return "has not begun yet"
	}
	return "waits for model " + cmp.Or(excerpt.Line(model, 60), "it has")
}

// look is the result of the latest check of a run.
type look struct {
	stall.Watch       // of an agent, with the number of signs of life as its size
	reported    int64 // their number when its silence was reported

	size     int64 // of the output of another task, whose agent it counts for
	progress *task.Progress
}

// lookAtAgent checks a run, given the previous result or nil. It returns nil for a run that is
// not followed.
func (w *Watch) lookAtAgent(l *look, r task.Record) *look {
	switch {
	case w.opt.Agents.StallAfter <= 0 || r.Status.Terminal() || r.Idle || r.Traits().Work == task.ByEvents,
		!r.Kind.IsAgent() && r.Parent == "":
		return nil
	case l == nil:
		l = &look{}
	}
	if l.speaks(r, w.size) {
		w.nearest(r.Parent).below(time.Now().UnixNano())
	}
	a := w.at(r.ID)
	if !r.Kind.IsAgent() || a == nil {
		return l
	}
	report, again := l.silent(time.Now(), r, a.signs.Load(), a.works(), w.opt.Agents.StallAfter)
	if again && r.Progress != nil {
		w.summarize(r.ID, cmp.Or(summary(*r.Progress), "It is heard of again."))
	}
	if report {
		w.reportSilence(r, a.doing(r.Model))
	}
	return l
}

// size returns the size of a task's output; 0: it has none.
func (w *Watch) size(r task.Record) int64 {
	info, err := w.place.Below().For(r.OutputFile).Lstat(r.OutputFile)
	if err != nil {
		return 0
	}
	return info.Size()
}

// waits reports whether a task waits for a visible reason.
func waits(r task.Record) bool {
	return r.Status == task.Pending || r.AwaitingApproval || r.Paused || r.Parked != nil
}

// speaks reports whether a task is a sign of life for the agent that may be waiting for it: its
// work runs elsewhere, or it is not an agent and has made progress. Agents count for
// themselves.
func (l *look) speaks(r task.Record, size func(task.Record) int64) bool {
	if waits(r) || r.Kind.IsAgent() {
		return waits(r)
	}
	was := *l
	l.size, l.progress = size(r), r.Progress
	return l.size != was.size || l.progress != was.progress
}

// silent reports whether the silence of an agent is to be reported now, and whether there were
// signs of life since the last report. An agent that waits for a task, or has nothing to do, is
// not silent.
func (l *look) silent(now time.Time, r task.Record, signs int64, works bool, after time.Duration) (report, again bool) {
	if again = l.Reported() && signs != l.reported; again {
		l.Watch = stall.Watch{}
	}
	if !works || r.Idle || r.Stopping || waits(r) {
		l.Skip()
		return false, again
	}
	if !l.Quiet(now, signs, after) {
		return false, again
	}
	l.Over()
	l.reported = signs
	return true, again
}

// reportSilence tells the owner of an agent that it shows no signs of life. An owner that
// waits for it in the foreground reads nothing, and is itself reported as silent; the
// owner of a workflow waits for its steps.
func (w *Watch) reportSilence(r task.Record, in string) {
	after := w.opt.Agents.StallAfter
	w.summarize(r.ID, fmt.Sprintf("Silent for %s: it %s", after, in))
	top := r
	parent := func() (task.Record, bool) { return w.tasks.Get(top.Parent) }
	for above, ok := parent(); ok && above.Traits().Work == task.BySteps; above, ok = parent() {
		top = above
	}
	if top.Owner == "" || !top.Backgrounded {
		return
	}
	what := "Agent"
	if r.Team != nil {
		what = "Teammate"
	}
	text := fmt.Sprintf("%s %q is silent: nothing has been heard of it for %s. It %s.\n"+
		"It goes on waiting. Wait too, write to it by SendMessage to %s, which it reads before its next step, or stop it.",
		what, excerpt.Line(r.Description, 60), after, in, r.ID)
	w.post(top.Owner, r.ID, text)
}

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

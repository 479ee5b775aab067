package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
)

const (
	maxBlocks = 8 // of the end of a turn, in a row

	// How long hooks continue after the end of their turn: the event that they
	// report has happened nevertheless.
	afterCall = 2 * time.Second
	afterStop = 10 * time.Second
)

// Background is a task that runs in the background of a conversation, as a stop hook sees it.
type Background struct {
	ID          string `json:"id"`
	Type        string `json:"type"` // shell, subagent, monitor or workflow
	Status      string `json:"status"`
	Description string `json:"description"` // at most 1000 characters
	Command     string `json:"command,omitempty"`
	AgentType   string `json:"agent_type,omitempty"`
	Server      string `json:"server,omitempty"`
	Tool        string `json:"tool,omitempty"`
	Name        string `json:"name,omitempty"`
}

// Loop lets hooks take part in the turns of one agent: it is its [agent.Hooks],
// and for a subagent its assembly uses Start and End. For each start of a subagent
// exactly one SubagentStop is sent that cannot be, or was not, vetoed.
type Loop struct {
	r          *Runner
	background func() []Background
	mate       *mate // of another agent: nil

	mu      sync.Mutex
	started bool // a SubagentStart was sent; guarded by mu
	stopped bool // and the SubagentStop that was not vetoed; guarded by mu
}

var _ agent.Hooks = (*Loop)(nil)

// NewLoop makes the hooks of a loop. background lists what runs; nil: nothing.
func NewLoop(r *Runner, background func() []Background) *Loop {
	return &Loop{r: r, background: background}
}

// Called sends PostToolUse, or PostToolUseFailure, and appends the texts of hooks to
// the output.
func (l *Loop) Called(ctx context.Context, c agent.Call, out agent.Output, took time.Duration) agent.Output {
	event := PostToolUse
	if out.IsError {
		event = PostToolUseFailure
	}
	if !l.r.set.Has(event) {
		return out
	}
	fields := l.r.toolFields(c)
	fields["duration_ms"] = took.Milliseconds()
	if out.IsError {
		fields["error"] = out.Text
		fields["is_interrupt"] = ctx.Err() != nil
	} else {
		fields["tool_response"] = response(out)
	}
	last, done := outlive(ctx, afterCall)
	defer done()
	said := l.r.Run(last, event, fields)
	if said.UpdatedOutput != nil {
		out.Text, out.Structured = *said.UpdatedOutput, nil
	}
	more := said.Context
	if said.Block {
		more = append([]string{said.Reason}, more...)
	}
	if said.Stop {
		more = append(more, said.StopReason)
		out.EndTurn = true
	}
	if text := Marked(event, more...); text != "" {
		out.Text += "\n" + text
	}
	return out
}

// outlive is ctx, but ends only when ctx has ended for a time. The caller calls
// done.
func outlive(ctx context.Context, d time.Duration) (last context.Context, done func()) {
	last, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(d, func() { end(context.DeadlineExceeded) })
	})
	return last, func() {
		stop()
		end(nil)
	}
}

// response is an output as hooks read it.
func response(out agent.Output) any {
	if out.Structured != nil {
		if b, err := json.Marshal(out.Structured); err == nil {
			return json.RawMessage(b)
		}
	}
	return out.Text
}

// Batch sends PostToolBatch, with the inputs that ran.
func (l *Loop) Batch(ctx context.Context, done []agent.Done) string {
	if !l.r.set.Has(PostToolBatch) {
		return ""
	}
	calls := make([]map[string]any, len(done))
	for i, d := range done {
		calls[i] = l.r.toolFields(d.Call)
		calls[i]["tool_response"], calls[i]["is_error"] = response(d.Output), d.Output.IsError
	}
	said := l.r.Run(ctx, PostToolBatch, map[string]any{"tool_calls": calls})
	more := said.Context
	if said.Block {
		more = append([]string{said.Reason}, more...)
	}
	return Marked(PostToolBatch, more...)
}

// Stop sends Stop, or for a subagent SubagentStop. A veto that comes too often or
// too late is none.
func (l *Loop) Stop(ctx context.Context, res agent.TurnResult, blocked int) (reason string) {
	if l.mate != nil {
		return l.idles(ctx, res, blocked)
	}
	fields := l.stopFields(res, blocked > 0)
	if l.r.base.AgentID == "" {
		return l.veto(Stop, l.r.Run(ctx, Stop, fields), blocked)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return ""
	}
	// All hooks get the event even if the agent is stopped meanwhile: otherwise the
	// ones that got it would get it again.
	last, done := outlive(ctx, afterStop)
	defer done()
	reason = l.veto(SubagentStop, l.r.Run(last, SubagentStop, fields), blocked)
	if ctx.Err() != nil {
		reason = ""
	}
	l.stopped = reason == ""
	return reason
}

func (l *Loop) veto(e Event, said Outcome, blocked int) string {
	switch {
	case !said.Block || said.Stop:
		return ""
	case blocked >= maxBlocks:
		if l.r.base.Tell != nil {
			l.r.base.Tell(e, fmt.Sprintf(
				"stop hooks blocked the end %d times in a row: the turn ends all the same (make the hook look at stop_hook_active)",
				maxBlocks,
			))
		}
		return ""
	}
	return said.Reason
}

func (l *Loop) stopFields(res agent.TurnResult, active bool) map[string]any {
	tasks := []Background{}
	if l.background != nil {
		tasks = append(tasks, l.background()...)
	}
	for i := range tasks {
		if r := []rune(tasks[i].Description); len(r) > 1000 {
			tasks[i].Description = string(r[:1000])
		}
	}
	stop := res.StopReason
	if stop == "" {
		stop = res.Reason
	}
	return map[string]any{"stop_hook_active": active, "last_assistant_message": res.Text, "stop_reason": stop,
		"background_tasks": tasks, "session_crons": []any{}}
}

// Start sends SubagentStart and returns the hooks' text for the subagent.
func (l *Loop) Start(ctx context.Context) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started, l.stopped = true, false
	return Marked(SubagentStart, l.r.Run(ctx, SubagentStart, map[string]any{"tool_use_id": newID()}).Context...)
}

// End sends the SubagentStop of an agent that ended otherwise than by itself, and
// ignores vetoes. ctx should not be the context of the run.
func (l *Loop) End(ctx context.Context, res agent.TurnResult, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.started || l.stopped {
		return
	}
	l.stopped = true
	fields := l.stopFields(res, false)
	if err != nil {
		fields["error"] = err.Error()
	}
	if res.Reason != "" {
		fields["stop_reason"] = res.Reason
	}
	l.r.Run(ctx, SubagentStop, fields)
}

// mate is the teammate whose turns a [Loop] takes part in.
type mate struct {
	name, team string
	leaving    func() bool
}

// Teammate makes it the loop of a teammate, which comes to rest after an answer and
// does not end: TeammateIdle takes the place of the SubagentStop that can be vetoed,
// and SubagentStop is sent once by End. Of a turn that is its last, by what leaving
// says, nothing is sent. It is called before the first turn.
func (l *Loop) Teammate(name, team string, leaving func() bool) {
	l.mate = &mate{name, team, leaving}
}

// idles sends TeammateIdle before a teammate comes to rest. A veto sends it on with
// its reason, as one of Stop does.
func (l *Loop) idles(ctx context.Context, res agent.TurnResult, blocked int) (reason string) {
	if l.mate.leaving() || !l.r.set.Has(TeammateIdle) {
		return ""
	}
	fields := l.stopFields(res, blocked > 0)
	fields["teammate_name"], fields["team_name"] = l.mate.name, l.mate.team
	return l.veto(TeammateIdle, l.r.Run(ctx, TeammateIdle, fields), blocked)
}

// Ran is a hook that runs, as those who watch it see it.
type Ran struct {
	ID    string // of this run, unique in its runner
	Event Event
	About string // what the event is about, such as the name of a tool; empty: nothing
	Done  bool   // it has ended, and what follows is set

	Stdout, Stderr string
	Code           *int   // of its exit; nil: it is not a command, or continues in the background
	Outcome        string // success, error or cancelled
}

// watched tells those who watch of a hook that begins, and returns what tells of its end.
func (r *Runner) watched(h hook, e Event, fields map[string]any) (ended func(result)) {
	if r.base.Watch == nil {
		return func(result) {}
	}
	r.mu.Lock()
	r.ran++
	seen := Ran{ID: string(e) + "-" + strconv.Itoa(r.ran), Event: e}
	r.mu.Unlock()
	if name, ok := fields["tool_name"].(string); ok {
		seen.About = name
	}
	r.base.Watch(seen)
	return func(res result) {
		seen.Done, seen.Stdout, seen.Stderr, seen.Outcome = true, res.stdout, res.stderr, "success"
		if h.call == nil && !res.async && res.err == nil {
			seen.Code = &res.code
		}
		switch {
		case errors.Is(res.err, errInterrupted):
			seen.Outcome = "cancelled"
		case res.err != nil:
			seen.Outcome, seen.Stderr = "error", seen.Stderr+res.err.Error()
		case res.code != 0:
			seen.Outcome = "error"
		}
		r.base.Watch(seen)
	}
}

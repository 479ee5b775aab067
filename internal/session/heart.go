package session

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/session/stall"
	"github.com/drover-dev/drover/task"
)

// heart knows when something was last heard of an agent in its present run. It is in
// memory only: for the next host the run has ended.
type heart struct {
	above   *heart       // of the nearest agent above; nil: there is none
	beats   atomic.Int64 // what was heard so far
	last    atomic.Int64 // when, in nanoseconds since 1970
	calling atomic.Int32 // calls of tools under way

	mu    sync.Mutex // guards what follows
	begun bool       // it has had a turn
	turn  bool       // it is in one, or on its way to its first
	sums  bool       // it sums up its conversation
	calls []underway
	due   int // calls of the latest reply that are not done
}

// underway is a call of a tool that has not ended.
type underway struct {
	id, tool string
	since    time.Time
}

// beat says that something was heard of the agent. It is called for each piece of a
// reply.
func (h *heart) beat() {
	now := time.Now().UnixNano()
	h.pulse(now)
	h.above.speak(now)
}

func (h *heart) pulse(now int64) {
	h.beats.Add(1)
	h.last.Store(now)
}

// speak lets an agent be heard by what is below it, which it may be waiting for in a
// call. One that waits for its model is silent whatever its children do.
func (h *heart) speak(now int64) {
	for ; h != nil && h.calling.Load() > 0; h = h.above {
		h.pulse(now)
	}
}

// hear makes the heart hear what happens in a conversation.
func (h *heart) hear(c *agent.Config) {
	on, hold := c.On, c.Hold
	c.On = func(e agent.Event) {
		h.on(e)
		on(e)
	}
	c.Hold = func(ctx context.Context) error {
		err := hold(ctx)
		h.beat() // a pause is no silence
		return err
	}
}

func (h *heart) on(e agent.Event) {
	h.beat()
	if e.Kind == agent.PartEvent { // nearly all are
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e.Kind {
	case agent.TurnStartEvent:
		h.turn, h.begun, h.due = true, true, 0
	case agent.TurnDoneEvent:
		h.turn, h.calls = false, nil
	case agent.CompactStartEvent:
		h.sums = true
	case agent.CompactEvent:
		h.sums = false
	case agent.ReplyDoneEvent:
		h.due = 0
		for _, b := range e.Reply.Blocks {
			if b.Type == "tool_use" {
				h.due++
			}
		}
	case agent.ToolStartEvent:
		h.calls = append(h.calls, underway{e.Call.ID, e.Call.Name, time.Now()})
	case agent.ToolDoneEvent:
		h.due--
		h.calls = slices.DeleteFunc(h.calls, func(c underway) bool { return c.id == e.Call.ID })
	}
	h.calling.Store(int32(len(h.calls)))
}

// works reports whether there is anything to be heard: between turns there is not.
func (h *heart) works() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.turn || h.sums
}

// within says what an agent is in.
func (h *heart) within(model string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.sums:
		return "sums up its conversation"
	case len(h.calls) > 0:
		c, more := h.calls[0], ""
		if n := len(h.calls) - 1; n > 0 {
			more = fmt.Sprintf(", and in %d more", n)
		}
		return fmt.Sprintf("is in a call of %s that began %s ago%s", excerpt.Line(c.tool, 60), time.Since(c.since).Round(time.Second), more)
	case h.due > 0:
		return "is about to call a tool, which hooks and rules have to pass"
	case !h.begun:
		return "has not begun yet"
	}
	return "waits for model " + cmp.Or(excerpt.Line(model, 60), "it has")
}

// hearts are those of the agents that have a run. The zero value is ready.
type hearts struct {
	mu sync.Mutex
	of map[task.ID]*heart
}

// beginHeart gives an agent a heart for a run. turn says that it is on its way to a turn.
func (s *Session) beginHeart(id, parent task.ID, turn bool) *heart {
	h := &heart{above: s.nearest(parent), turn: turn}
	h.beat()
	s.hearts.mu.Lock()
	defer s.hearts.mu.Unlock()
	if s.hearts.of == nil {
		s.hearts.of = map[task.ID]*heart{}
	}
	s.hearts.of[id] = h
	return h
}

// still ends a heart with its run.
func (s *hearts) still(id task.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, id)
}

// at is the heart of a task; nil: it has none.
func (s *hearts) at(id task.ID) *heart {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[id]
}

// nearest is the heart of a task, or of the nearest agent above it; nil: there is
// none.
func (s *Session) nearest(id task.ID) *heart {
	for id != "" {
		if h := s.hearts.at(id); h != nil {
			return h
		}
		r, _ := s.sup.Get(id)
		id = r.Parent
	}
	return nil
}

// heard is a record as a live host gives it out: of an agent at work it says when
// something was last heard.
func (s *Session) heard(r task.Record) task.Record {
	if r.Status != task.Running || r.Idle || !r.Kind.IsAgent() {
		return r
	}
	if h := s.hearts.at(r.ID); h != nil && h.works() {
		last := time.Unix(0, h.last.Load()).UTC()
		r.LastHeard = &last
	}
	return r
}

// trace is what was seen of a run at the last look.
type trace struct {
	stall.Watch       // of an agent, with its beats as the size
	told        int64 // after how many its silence was told

	size     int64 // of the output of what is no agent, whose agent it speaks for
	progress *task.Progress
}

// listen follows a run after what was seen of it, or nil. It returns nil for what need
// not be followed.
func (s *Session) listen(t *trace, r task.Record) *trace {
	switch {
	case s.cfg.Agents.StallAfter <= 0 || r.Status.Terminal() || r.Idle || r.Traits().Work == task.ByEvents,
		!r.Kind.IsAgent() && r.Parent == "":
		return nil
	case t == nil:
		t = &trace{}
	}
	if t.speaks(r, s.size) {
		s.nearest(r.Parent).speak(time.Now().UnixNano())
	}
	h := s.hearts.at(r.ID)
	if !r.Kind.IsAgent() || h == nil {
		return t
	}
	tell, again := t.silent(time.Now(), r, h.beats.Load(), h.works(), s.cfg.Agents.StallAfter)
	if again && r.Progress != nil {
		_ = s.sup.Summarize(context.Background(), r.ID, cmp.Or(summary(*r.Progress), "It is heard of again.")) // an end that came first refuses it
	}
	if tell {
		s.tellSilence(r, h.within(r.Model))
	}
	return t
}

// size is that of the output of a task; 0: it has none.
func (s *Session) size(r task.Record) int64 {
	info, err := s.cfg.Place.Below().For(r.OutputFile).Lstat(r.OutputFile)
	if err != nil {
		return 0
	}
	return info.Size()
}

// waits reports whether a task stands still for a reason that everybody can see.
func waits(r task.Record) bool {
	return r.Status == task.Pending || r.AwaitingApproval || r.Paused
}

// speaks reports whether a task lets the agent be heard that may be waiting for it:
// somebody else keeps it, or it is no agent, and has done something. Agents speak for
// themselves.
func (t *trace) speaks(r task.Record, size func(task.Record) int64) bool {
	if waits(r) || r.Kind.IsAgent() {
		return waits(r)
	}
	was := *t
	t.size, t.progress = size(r), r.Progress
	return t.size != was.size || t.progress != was.progress
}

// silent reports whether an agent is to be told of now, and whether it is heard of
// again since it was. One that waits for somebody, or has nothing to do, says nothing
// for that.
func (t *trace) silent(now time.Time, r task.Record, beats int64, works bool, after time.Duration) (tell, again bool) {
	if again = t.Told() && beats != t.told; again {
		t.Watch = stall.Watch{}
	}
	if !works || r.Idle || r.Stopping || waits(r) {
		t.Skip()
		return false, again
	}
	if !t.Quiet(now, beats, after) {
		return false, again
	}
	t.Over()
	t.told = beats
	return true, again
}

// tellSilence says that nothing is heard of an agent. Who waits for one in the
// foreground reads nothing, and is told of as silent to its own owner; that of a
// workflow waits for its steps.
func (s *Session) tellSilence(r task.Record, in string) {
	after := s.cfg.Agents.StallAfter
	_ = s.sup.Summarize(context.Background(), r.ID, fmt.Sprintf("Silent for %s: it %s", after, in)) // an end that came first refuses it
	top := r
	for above, ok := s.sup.Get(top.Parent); ok && above.Traits().Work == task.BySteps; above, ok = s.sup.Get(top.Parent) {
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
	_, _ = s.sup.Post(context.Background(), task.Message{To: top.Owner, From: string(r.ID), Kind: task.Stalled, Text: text, Priority: task.Next}) // a full mailbox has enough to read
}

// Package activity follows agents and commands while they work: it detects commands that seem
// to wait for an answer and agents that have become silent, sends a message to their owners,
// and keeps the summaries of agents up to date.
//
// A [Watch] owns the signs of life of all agents that have a run. Each silence and each waiting
// command is reported to its owner once, also across a pause and a further host. While nothing
// runs it costs nothing.
//
// The package stops nothing. Package stall decides what the end of an output means.
package activity

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/engine/stall"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// looks is the number of checks of an output, or an agent, within the time after which it
// counts as quiet.
const looks = 9

// Tasks is the part of the supervisor that a watch uses.
type Tasks interface {
	Living() func(yield func(task.Seq, task.Record) bool)
	Get(id task.ID) (task.Record, bool)
	Summarize(ctx context.Context, id task.ID, text string) error
	Post(ctx context.Context, m task.Message) (task.Seq, error)
}

// Watch follows the running tasks of a session. Its methods may be called by several
// goroutines.
type Watch struct {
	tasks     Tasks
	committed func() <-chan struct{}
	place     home.Session
	opt       options.Options
	stop      context.CancelFunc
	looking   sync.WaitGroup // joined by Close

	mu     sync.Mutex
	agents map[task.ID]*Agent // guarded by mu: the agents with a run
}

// New makes a watch of the tasks of a session. committed returns a channel that is closed at the next
// event of its log.
func New(tasks Tasks, committed func() <-chan struct{}, place home.Session, opt options.Options) *Watch {
	return &Watch{
		tasks: tasks, committed: committed, place: place, opt: opt, stop: func() {}, agents: map[task.ID]*Agent{},
	}
}

// Start follows the running tasks until ctx ends, or Close.
func (w *Watch) Start(ctx context.Context) {
	ctx, w.stop = context.WithCancel(ctx)
	w.looking.Go(func() { w.lookForStalls(ctx.Done()) })
	if w.opt.Agents.Summaries > 0 {
		w.looking.Go(func() { w.renewSummaries(ctx.Done()) })
	}
}

// Close ends what Start began.
func (w *Watch) Close() {
	w.stop()
	w.looking.Wait()
}

// Begin follows an agent for a run, until End. turn: it is about to begin a turn.
func (w *Watch) Begin(id, parent task.ID, turn bool) *Agent {
	a := &Agent{above: w.nearest(parent), turn: turn}
	a.sign()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.agents[id] = a
	return a
}

// End removes an agent whose run has ended.
func (w *Watch) End(id task.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.agents, id)
}

// Following returns how many agents are followed.
func (w *Watch) Following() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.agents)
}

// at returns the followed agent of a task, or nil.
func (w *Watch) at(id task.ID) *Agent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.agents[id]
}

// nearest returns the agent of a task, or the nearest one above it; nil: none.
func (w *Watch) nearest(id task.ID) *Agent {
	for id != "" {
		if a := w.at(id); a != nil {
			return a
		}
		r, _ := w.tasks.Get(id)
		id = r.Parent
	}
	return nil
}

// Mark adds to the record of a working agent the time of its last sign of life, which only a
// live host has.
func (w *Watch) Mark(r task.Record) task.Record {
	if r.Status != task.Running || r.Idle || !r.Kind.IsAgent() {
		return r
	}
	if a := w.at(r.ID); a != nil && a.works() {
		last := time.Unix(0, a.last.Load()).UTC()
		r.LastHeard = &last
	}
	return r
}

// lookForStalls checks the running tasks until the watch closes. While none runs it waits for
// an event.
func (w *Watch) lookForStalls(closes <-chan struct{}) {
	rules := sync.OnceValue(stall.New) // many patterns, which most sessions never need
	table := &process.Table{}
	watched, seen := map[task.RunID]*stall.Watch{}, map[task.RunID]*look{}
	every := w.opt.Tasks.StallAfter
	if after := w.opt.Agents.StallAfter; after > 0 {
		every = min(every, after)
	}
	for {
		committed := w.committed()
		now, heard := map[task.RunID]*stall.Watch{}, map[task.RunID]*look{}
		for _, r := range w.tasks.Living() {
			output, due := follow(watched[r.Run], r)
			if output != nil {
				now[r.Run] = output
			}
			if due {
				w.lookAtOutput(r, output, rules, table)
			}
			if l := w.lookAtAgent(seen[r.Run], r); l != nil {
				heard[r.Run] = l
			}
		}
		watched, seen = now, heard
		if len(watched)+len(seen) == 0 {
			select {
			case <-committed:
			case <-closes:
				return
			}
		}
		select {
		case <-time.After(every / looks):
		case <-closes:
			return
		}
	}
}

// summarize puts a summary into the record of a task. It is refused if the task has ended.
func (w *Watch) summarize(id task.ID, text string) {
	_ = w.tasks.Summarize(context.Background(), id, text)
}

// post sends a message about a task to its owner. It is dropped if the owner's mailbox is full.
func (w *Watch) post(owner, about task.ID, text string) {
	_, _ = w.tasks.Post(context.Background(),
		task.Message{To: owner, From: string(about), Kind: task.Stalled, Text: text, Priority: task.Next})
}

// stallable reports whether the output of a task is watched: a command in the background, whose
// questions that no one sees. A paused one asks nothing.
func stallable(r task.Record) bool {
	return r.Traits().Work == task.ByCommand && r.Status == task.Running && r.Backgrounded && !r.Paused && !r.Stopping
}

// follow returns the watch of a run, given the previous one or nil, and whether its output is
// to be checked now. A stall is reported once, even if the task was paused meanwhile or an
// earlier host reported it.
func follow(w *stall.Watch, r task.Record) (*stall.Watch, bool) {
	switch {
	case r.Traits().Work != task.ByCommand || r.Status != task.Running:
		return nil, false
	case stallable(r) && w == nil:
		w = &stall.Watch{}
		if r.Progress != nil && r.Progress.Summary != "" {
			w.Over()
		}
	case !stallable(r) && w != nil:
		w.Skip()
	}
	return w, stallable(r)
}

func (w *Watch) lookAtOutput(r task.Record, output *stall.Watch, rules func() *stall.Rules, table *process.Table) {
	info, err := w.place.Below().For(r.OutputFile).Lstat(r.OutputFile)
	if err != nil || output.Reported() {
		return
	}
	quiet := output.Quiet(time.Now(), info.Size(), w.opt.Tasks.StallAfter)
	if r.TTY && r.Process != nil {
		output.Saw(
			process.AwaitsKeys(table, process.Identity{PID: r.Process.PID, Start: r.Process.Start, Boot: r.Process.Boot}),
		)
	}
	if !quiet {
		return
	}
	tail, _, err := spool.Tail(r.OutputFile, stall.TailBytes, stall.TailBytes)
	if err != nil {
		return
	}
	line, asks := rules().Waiting(tail)
	if !asks && !output.Reads() {
		return
	}
	output.Over()
	w.reportStall(r, excerpt.Line(line, 200), asks, output.Reads())
}

// reportStall tells the owner of a command that it waits. A conclusion from its output is a
// guess; one from the kernel is certain.
func (w *Watch) reportStall(r task.Record, line string, asks, reads bool) {
	does, ends := "seems to wait for an answer", " and ends with\n"+line
	switch {
	case !asks:
		does, ends = "reads its terminal", ""
	case reads:
		does = "waits for an answer"
	}
	summary := "It " + does
	if asks {
		summary += ": " + line
	}
	w.summarize(r.ID, summary)
	if r.Owner == "" {
		return
	}
	fix := "It goes on waiting. Stop it and start it so that it does not ask, or with its answer on stdin."
	if r.TTY {
		fix = fmt.Sprintf("It goes on waiting. Answer it by SendMessage to %s, which types your text and Enter, or stop it.",
			r.ID)
	}
	text := fmt.Sprintf("Background command %q %s, which nobody gives it: its output has not committed for %s%s\n%s",
		excerpt.Line(r.Description, 60), does, w.opt.Tasks.StallAfter, ends, fix)
	if !asks {
		text = fmt.Sprintf("Background command %q %s, where nobody types: its output has not committed for %s.\n%s",
			excerpt.Line(r.Description, 60), does, w.opt.Tasks.StallAfter, fix)
	}
	w.post(r.Owner, r.ID, text)
}

// Package snapshot keeps a summary of a session's log, so that the host that opens the session
// next need not read the record of every task that has ended.
//
// Each task is either read from the log or taken from the summary, never both and never
// neither. A missing, old or damaged summary costs only time: then the log is read instead.
//
// The package does not pass tasks to the supervisor; the package that opens the session does.
package snapshot

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

// MinInMemory is the minimum number of ended tasks that an opened session has in memory, since
// lists for agents show only those.
const MinInMemory = 256

// summary is the summary of a log. It stays encoded: there may be a hundred thousand tasks.
type summary struct {
	live  []task.ID
	parts [][]byte // the ended tasks, in the order of their first events
}

// partBytes is the approximate size of a part.
const partBytes = 32 << 10

// encode yields a summary part by part, reusing one buffer: first the live tasks.
func encode(ended iter.Seq[supervise.Ended], live []task.ID) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		buf := make([]byte, 0, partBytes+partBytes/8)
		for _, id := range live {
			buf = append(append(buf, id...), ' ')
		}
		if !yield(buf) {
			return
		}
		buf = buf[:0]
		for g := range ended {
			if buf = g.Append(buf); len(buf) < partBytes {
				continue
			}
			if !yield(buf) {
				return
			}
			buf = buf[:0]
		}
		if len(buf) > 0 {
			yield(buf)
		}
	}
}

// decode reads what [encode] has yielded. ok is false if the format is different.
func decode(parts [][]byte) (b summary, ok bool) {
	if len(parts) == 0 {
		return b, false
	}
	for id := range strings.FieldsSeq(string(parts[0])) {
		b.live = append(b.live, task.ID(id))
	}
	b.parts = parts[1:]
	for _, part := range b.parts {
		for len(part) > 0 {
			_, rest, ok := supervise.ReadEnded(part)
			if !ok {
				return summary{}, false
			}
			part = rest
		}
	}
	return b, true
}

// ended yields the tasks that have ended.
func (b summary) ended(yield func(supervise.Ended) bool) {
	for _, part := range b.parts {
		for len(part) > 0 {
			g, rest, ok := supervise.ReadEnded(part)
			if !ok || !yield(g) {
				return
			}
			part = rest
		}
	}
}

// Tasks are those of earlier hosts, both parts in the order of their first events.
type Tasks struct {
	States []journal.State           // of tasks that must be in memory
	Ended  iter.Seq[supervise.Ended] // tasks that are known from the summary only
}

// Read returns the tasks of earlier hosts.
func (w *Writer) Read(ctx context.Context) (Tasks, error) {
	upTo, parts, err := w.log.Summary(ctx)
	if err != nil {
		return Tasks{}, err
	}
	sum, ok := decode(parts)
	if ok {
		w.mu.Lock()
		w.upTo = upTo
		w.mu.Unlock()
	} else {
		upTo = w.log.Last()
		if sum, err = summarize(ctx, w.log); err != nil {
			return Tasks{}, err
		}
	}
	states, err := w.log.Changed(ctx, upTo)
	if err != nil {
		return Tasks{}, err
	}
	sel := newSelection(sum, states)
	for ids := sel.first(); len(ids) > 0; ids = sel.above() {
		more, err := w.log.Some(ctx, ids)
		if err != nil {
			return Tasks{}, err
		}
		sel.add(more)
	}
	slices.SortFunc(sel.states, func(a, b journal.State) int { return int(a.Born - b.Born) })
	return Tasks{States: sel.states, Ended: sel.rest}, nil
}

// summarize reads a log without a summary: all tasks, of which few are in memory at once.
func summarize(ctx context.Context, log *journal.Journal) (sum summary, err error) {
	roots := map[task.ID]task.ID{} // of tasks that may be ancestors of others
	var part []byte
	err = log.Walk(ctx, func(states []journal.State) error {
		for _, st := range states {
			r := st.Task
			root := cmp.Or(roots[r.Parent], r.Owner, r.ID)
			if r.Traits().Work != task.ByCommand {
				roots[r.ID] = root
			}
			if !r.Status.Terminal() {
				sum.live = append(sum.live, r.ID)
				continue
			}
			g := supervise.NewEnded(st.Born, root, &r)
			part = g.Append(part)
		}
		sum.parts, part = append(sum.parts, slices.Clip(part)), nil
		return nil
	})
	return sum, err
}

// selection selects the tasks of a summary that must be read from the log.
type selection struct {
	sum    summary
	newest []task.ID // of the ended
	steps  []step
	states []journal.State
	read   map[task.ID]task.Record // those in states
	asked  map[task.ID]bool
}

// step is an ended task that its parent finds by a key.
type step struct{ id, parent task.ID }

func newSelection(sum summary, changed []journal.State) *selection {
	p := &selection{sum: sum, read: map[task.ID]task.Record{}, asked: map[task.ID]bool{}}
	for g := range sum.ended {
		if p.newest = append(p.newest, g.ID); len(p.newest) == 2*MinInMemory {
			p.newest = append(p.newest[:0], p.newest[MinInMemory:]...)
		}
		if g.Key != "" {
			p.steps = append(p.steps, step{g.ID, g.Parent})
		}
	}
	p.newest = p.newest[max(0, len(p.newest)-MinInMemory):]
	p.add(changed)
	return p
}

func (p *selection) add(states []journal.State) {
	p.states = append(p.states, states...)
	for _, st := range states {
		p.read[st.Task.ID] = st.Task
		p.asked[st.Task.ID] = true
	}
}

// want adds an ID to those to be read, once.
func (p *selection) want(ids []task.ID, id task.ID) []task.ID {
	if id == "" || p.asked[id] {
		return ids
	}
	p.asked[id] = true
	return append(ids, id)
}

// first selects the tasks that had not ended, and the newest that had.
func (p *selection) first() (ids []task.ID) {
	for _, id := range slices.Concat(p.sum.live, p.newest) {
		ids = p.want(ids, id)
	}
	return ids
}

// above selects the ancestors of the tasks that were read, and the steps of running workflows,
// which are found by their keys.
func (p *selection) above() (ids []task.ID) {
	for _, r := range p.read {
		ids = p.want(ids, r.Parent)
	}
	for _, st := range p.steps {
		if r, ok := p.read[st.parent]; ok && !r.Status.Terminal() {
			ids = p.want(ids, st.id)
		}
	}
	return ids
}

// rest returns the tasks that were not read.
func (p *selection) rest(yield func(supervise.Ended) bool) {
	for g := range p.sum.ended {
		if !p.asked[g.ID] && !yield(g) {
			return
		}
	}
}

// A summary is written again when the log has grown by this many events, and by this share of
// all: the next host reads the events after the summary of a killed host one by one.
const (
	fewEvents  = 4096
	fewAtClose = 768
	fewShare   = 8
)

// Writer writes summaries of the log of an open session.
type Writer struct {
	log   *journal.Journal
	ended func() (ended iter.Seq[supervise.Ended], live []task.ID)

	due     chan struct{} // capacity 1: a new summary may be due
	stop    context.CancelFunc
	writing sync.WaitGroup // joined by Close

	mu   sync.Mutex
	upTo task.Seq // guarded by mu: the last event in the last summary
}

// New returns a writer for a log. ended yields the tasks of a summary; see
// [supervise.Supervisor.Ended].
func New(log *journal.Journal, ended func() (iter.Seq[supervise.Ended], []task.ID)) *Writer {
	return &Writer{log: log, ended: ended, due: make(chan struct{}, 1), stop: func() {}}
}

// Start writes summaries in the background until ctx ends, or Close.
func (w *Writer) Start(ctx context.Context) {
	ctx, w.stop = context.WithCancel(ctx)
	w.writing.Go(func() {
		for {
			select {
			case <-w.due:
				w.write(fewEvents)
			case <-ctx.Done():
				return
			}
		}
	})
}

// TaskEnded is called after the end of a task, when a new summary may be due.
func (w *Writer) TaskEnded() {
	if !w.behind(w.log.Last(), fewEvents) {
		return
	}
	select {
	case w.due <- struct{}{}:
	default: // a check is due already
	}
}

// Close ends what Start began, and writes a last summary if one is due.
func (w *Writer) Close() {
	w.stop()
	w.writing.Wait()
	w.write(fewAtClose)
}

// behind reports whether the log has grown so far since the last summary that a new one is due.
func (w *Writer) behind(last task.Seq, few int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(last-w.upTo) >= max(few, int64(last)/fewShare)
}

// write writes a summary, if one is due. An error only costs the next host time.
func (w *Writer) write(few int64) {
	last := w.log.Last() // read first: later events are read from the log
	if !w.behind(last, few) {
		return
	}
	if w.log.Summarize(context.Background(), last, encode(w.ended())) == nil {
		w.mu.Lock()
		w.upTo = last
		w.mu.Unlock()
	}
}

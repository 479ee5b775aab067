package monitor

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// lastWords is how long the last notification of a monitor may take.
const lastWords = 2 * time.Second

// report tells of what one monitor sees. Its methods may be called by several
// goroutines.
type report struct {
	ctx   context.Context // of the run
	h     task.Host
	match *regexp.Regexp // nil: every line counts
	owned bool           // events have a receiver

	over chan struct{}  // closed when no line will come any more
	wake chan struct{}  // capacity 1: there is something to tell earlier than was thought
	work sync.WaitGroup // the goroutine that tells; there is one while there is something to tell

	mu      sync.Mutex
	ledger  ledger // guarded by mu
	telling bool   // guarded by mu
}

func newReport(ctx context.Context, h task.Host, match *regexp.Regexp) *report {
	return &report{
		ctx:   ctx,
		h:     h,
		match: match,
		owned: h.Record().Owner != "",
		over:  make(chan struct{}),
		wake:  make(chan struct{}, 1),
	}
}

// line takes a line in. A blank one is never an event.
func (r *report) line(raw []byte) {
	text := strings.TrimRight(excerpt.Plain(string(raw)), " \t")
	event := text != "" && (r.match == nil || r.match.MatchString(text))
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.ledger.next.empty()
	r.ledger.add(text, event, r.owned, time.Now())
	switch {
	case !r.telling:
		r.telling = true
		r.work.Go(r.tell)
	case first && !r.ledger.next.empty():
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// tell sends notifications until none is due.
func (r *report) tell() {
	for {
		r.mu.Lock()
		at := r.ledger.due()
		r.telling = !at.IsZero()
		r.mu.Unlock()
		if at.IsZero() || !r.until(at) {
			return
		}
		r.step()
	}
}

// until waits, and reports whether there is a reason to go on.
func (r *report) until(at time.Time) bool {
	select {
	case <-time.After(time.Until(at)):
		return r.ctx.Err() == nil
	case <-r.wake:
		return true
	case <-r.over:
	case <-r.ctx.Done():
	}
	return false
}

func (r *report) step() {
	now := time.Now()
	r.mu.Lock()
	n, told := r.ledger.take(now)
	r.mu.Unlock()
	if told {
		r.send(r.ctx, n)
	}
	r.mu.Lock()
	count, changed := r.ledger.report(now)
	r.mu.Unlock()
	if changed {
		r.progress(count)
	}
}

// send tells the owner. What cannot be told stays to be told.
func (r *report) send(ctx context.Context, n notification) {
	err := r.h.WaitWhilePaused(ctx)
	if err == nil {
		err = r.h.Tell(ctx, task.MonitorEvent, n.text(), task.Next)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil { // the mailbox is full, or the disk: both pass
		r.ledger.unsent(n, time.Now())
		return
	}
	r.ledger.sent(n, time.Now())
}

func (r *report) progress(c task.MonitorCount) {
	r.h.Progress(task.Progress{Message: plural(c.Events, "event"), Monitor: &c})
}

// close ends the telling and says what there was. No line may come any more. With
// last, the remaining notification is sent now, as far as possible.
func (r *report) close(last bool) string {
	close(r.over)
	r.work.Wait()
	if n := r.ledger.next; last && !n.empty() {
		r.ledger.next = notification{}
		ctx, done := context.WithTimeout(context.WithoutCancel(r.ctx), lastWords)
		defer done()
		r.send(ctx, n)
	}
	r.ledger.lose()
	c := r.ledger.count
	r.progress(c)
	text := fmt.Sprintf("%s in %s", plural(c.Events, "event"), plural(c.Lines, "line"))
	if c.Dropped > 0 {
		text += fmt.Sprintf(", %d of them not shown", c.Dropped)
	}
	return text + "."
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

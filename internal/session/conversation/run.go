package conversation

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// errAttached ends waits that apply only without an attached client.
var errAttached = errors.New("a client has attached")

// Host runs a conversation as a task of its session.
type Host interface {
	// Begin begins a run of the task, with the ID of the session.
	Begin(ctx context.Context, prompt string, d task.Driver) error
	// Wait returns when the run has ended.
	Wait(ctx context.Context) error
	// Attached reports whether a client is attached, with a context that ends when that
	// changes.
	Attached() (bool, context.Context)
	// Cost returns what the run has cost so far; see [subagent.Watcher].
	Cost() func() (usd float64, known bool)
	// Parting is called at the end of a run.
	Parting(ctx context.Context)
}

// hosting connects a conversation to its task. It is set once, before the first prompt.
type hosting struct {
	Host
	ceiling time.Duration
	begin   sync.Mutex // held while a run is started, so that a second prompt finds it; taken before every other lock
}

// HostBy makes the conversation a task, which lives as long as a client is attached or there is
// something to answer: a prompt that comes when no run exists starts one. The ceiling is as for
// [Conversation.Settle], and counts from the detachment of the last client.
func (c *Conversation) HostBy(h Host, ceiling time.Duration) {
	c.host.Host, c.host.ceiling = h, ceiling
	c.must(EndRun)
}

// Hosted reports whether the conversation is a task.
func (c *Conversation) Hosted() bool { return c.host.Host != nil }

// under reports whether a run of the conversation accepts prompts.
func (c *Conversation) under() bool {
	s, _ := c.State()
	return !errors.Is(s.refuses(), ErrStopped)
}

// Submit sends a prompt to a conversation that may be a task: to the current run, or to a new
// one.
func (c *Conversation) Submit(ctx context.Context, text string) error {
	if !c.Hosted() {
		return c.Prompt(ctx, text)
	}
	c.host.begin.Lock()
	defer c.host.begin.Unlock()
	r, again := c.session.Get(c.cfg.ID)
	if again && r.Status.Terminal() { // it was stopped before it began, if it still accepts prompts
		c.must(EndRun)
	}
	if c.under() {
		if err := c.Prompt(ctx, text); !control.Refused(err) || c.under() {
			return err
		}
	}
	if r, again = c.session.Get(c.cfg.ID); again && !r.Status.Terminal() { // it has answered, or was stopped
		if err := c.host.Wait(ctx); err != nil {
			return err
		}
	}
	c.must(BeginRun)
	seq, err := c.post(ctx, text)
	if err != nil {
		c.must(EndRun)
		return err
	}
	if err := c.host.Begin(ctx, text, run{c}); err != nil {
		left := c.withdraw(ctx, seq)
		if left == nil { // otherwise it is sent with the next prompt
			_, _ = c.apply(Event{Verb: TakeBack, Prompt: Prompt{Seq: seq}})
		}
		c.must(EndRun)
		return errors.Join(err, left)
	}
	return nil
}

// run runs the conversation as a task of its own session, which is listed and stopped like any
// other.
type run struct{ *Conversation }

func (run) Kind() task.Kind { return task.MainKind }

func (run) Check(json.RawMessage) error { return nil }

func (c run) Run(ctx context.Context, h task.Host) (task.Result, error) {
	w := subagent.NewWatcher(h)
	w.Totals, w.Cost = c.Totals, c.host.Cost()
	c.watcher.Store(w)
	defer c.watcher.Store(nil)
	start, before := time.Now(), c.Totals()
	defer c.must(EndRun)
	work, end := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	running.Go(func() { c.Conversation.Run(work) })
	err := c.settle(ctx, h)
	for ctx.Err() == nil && !c.retired() { // a prompt came at the last moment
		err = c.settle(ctx, h)
	}
	c.must(EndRun) // prompts that come while the run is being stopped are for the next one
	end(task.ErrClosing)
	running.Wait()
	c.host.Parting(ctx)
	last := c.Last()
	if err == nil {
		err = last.Err
	}
	used := subagent.Usage(before, c.Totals(), time.Since(start))
	used.CostUSD = w.Spent()
	return task.Result{Text: last.Result.Text, Usage: used}, subagent.Ending(ctx, err)
}

// retired refuses further prompts, if none is left to answer now; it reports whether it does.
func (c *Conversation) retired() bool {
	_, err := c.apply(Event{Verb: Retire})
	return err == nil
}

// settle is [Conversation.Settle] for a run with attached clients: while one is attached, it is
// idle when it has nothing to answer.
func (c run) settle(ctx context.Context, h task.Host) error {
	for {
		attached, same := c.host.Attached()
		if attached {
			c.must(Attach)
			if err := c.rest(ctx, h, same); err != nil {
				return err
			}
			continue
		}
		wait, cancel := context.WithCancelCause(ctx)
		late := context.AfterFunc(same, func() { cancel(errAttached) })
		_, err := c.Settle(wait, c.host.ceiling)
		late()
		cancel(nil)
		if ctx.Err() != nil || !errors.Is(err, errAttached) {
			return err
		}
	}
}

// rest waits until nothing is left to answer, and then until there is something, but only while
// the same clients are attached.
func (c run) rest(ctx context.Context, h task.Host, same context.Context) error {
	err := c.until(ctx, same, func() bool { return !c.due() })
	if err != nil || same.Err() != nil {
		return err
	}
	return h.Rest(ctx, func(ctx context.Context) error { return c.until(ctx, same, c.due) })
}

// until waits for a condition of the conversation, or for a change of the attached clients.
func (c run) until(ctx, same context.Context, is func() bool) error {
	for {
		_, changed := c.State()
		ended := c.session.Changed()
		if is() {
			return nil
		}
		select {
		case <-changed:
		case <-ended:
		case <-same.Done():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// due reports whether there is something to answer.
func (c *Conversation) due() bool {
	mail, _ := c.Mail(context.Background()) // unreadable mail begins no turn
	s, _ := c.State()
	return s.Working() || mail && s.Hold == NoHold
}

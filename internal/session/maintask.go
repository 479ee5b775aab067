package session

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// mainTask is a main agent as a task of its own session: a conversation for
// which nobody waits in the foreground is seen and stopped like any other work.
type mainTask struct {
	main    *Main
	prompt  string // empty: it is in the queue
	ceiling time.Duration
}

// StartMain gives the main agent its prompt and makes a task of the
// conversation, which ends when nothing is left to answer or to wait for; see
// [Main.Settle]. The task has the ID of the session.
func (s *Session) StartMain(ctx context.Context, m *Main, prompt string, ceiling time.Duration) (task.Record, error) {
	return s.beginMain(ctx, m, prompt, &mainTask{main: m, prompt: prompt, ceiling: ceiling})
}

// beginMain begins a run of that task.
func (s *Session) beginMain(ctx context.Context, m *Main, prompt string, d *mainTask) (task.Record, error) {
	spec := task.Spec{ID: s.cfg.Info.Session, AgentType: task.MainSession, Model: m.model, Description: firstLine(prompt, 60),
		Prompt: prompt, Cwd: s.cfg.Info.Project, Backgrounded: true}
	if _, again := s.sup.Get(spec.ID); again {
		return s.sup.Resume(ctx, spec.ID, d, spec)
	}
	return s.sup.Start(ctx, d, spec)
}

func (*mainTask) Kind() task.Kind { return task.MainKind }

func (*mainTask) Check(json.RawMessage) error { return nil }

func (d *mainTask) Run(ctx context.Context, h task.Host) (task.Result, error) {
	w := subagent.NewWatcher(h)
	w.Totals, w.Cost = d.main.Totals, d.main.s.budgets.Cost(h.Record().ID)
	d.main.listen.Store(w)
	defer d.main.listen.Store(nil)
	start, before := time.Now(), d.main.Totals()
	d.main.reopen()
	defer d.main.drop()
	if d.prompt != "" {
		if err := d.main.Prompt(ctx, d.prompt); err != nil {
			return task.Result{}, err
		}
	}
	work, end := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	running.Go(func() { d.main.Run(work) })
	err := d.settle(ctx, h)
	for ctx.Err() == nil && !d.main.retire() { // a prompt came at the last moment, or while commands were stopped
		err = d.settle(ctx, h)
	}
	d.main.drop() // what comes when the run is being stopped is for the next one
	end(task.ErrClosing)
	running.Wait()
	d.main.partInside(ctx)
	last := d.main.Last()
	if err == nil {
		err = last.Err
	}
	used := subagent.Usage(before, d.main.Totals(), time.Since(start))
	used.CostUSD = w.Spent()
	return task.Result{Text: last.Result.Text, Usage: used}, subagent.Ending(ctx, err)
}

// retire refuses further prompts, if none is left to answer now; it reports
// whether that was so.
func (m *Main) retire() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = !m.working()
	return m.over
}

// reopen takes prompts again, for a new run.
func (m *Main) reopen() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over, m.attended = false, false
}

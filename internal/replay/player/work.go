package player

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/drover-dev/drover/task"
)

// Work gives a task its recorded ID, and what is no agent and no workflow its recorded output and
// end instead of work.
func (p *Player) Work(d task.Driver, spec task.Spec) (task.Driver, task.ID) {
	if spec.ID != "" { // of the session itself
		return d, ""
	}
	p.mu.Lock()
	id := p.made[startKey(p.starts, p.main(spec.Parent), d.Kind(), spec.ToolUseID, spec.Key)]
	p.mu.Unlock()
	if a := p.byAgent[id]; d.Kind().IsAgent() && id != "" && !p.live && (a == nil || len(a.calls) == 0) {
		// Its program would be started.
		_ = p.diverge("no call of the model of agent %s was recorded: it is of another vendor, or ended before its first one", id)
		return &driver{p, d}, id
	}
	if !played(d.Kind()) {
		return d, id
	}
	if p.live && (id == "" || len(p.ends[id]) == 0) {
		return d, id // it had not ended, or not begun, by then: it runs
	}
	if !p.begun[id] {
		return &unbegun{driver{p, d}}, id
	}
	return &driver{p, d}, id
}

// Mail writes a message of an agent when it is its turn. What was not recorded is written at once: agents that go on
// live send it, and recordings of earlier versions do not have it.
func (p *Player) Mail(ctx context.Context, m task.Message, post func() (task.Seq, error)) (task.Seq, error) {
	k := p.letter(m)
	p.mu.Lock()
	turns := p.sent[k]
	if len(turns) == 0 {
		p.mu.Unlock()
		return post()
	}
	p.sent[k] = turns[1:]
	p.mu.Unlock()
	if err := p.await(ctx, turns[0]); err != nil {
		return 0, err
	}
	defer p.pass(turns[0])
	return post()
}

// unbegun is work that could not be started, and has ended without having begun.
type unbegun struct{ driver }

// Launches implements [task.Launcher].
func (*unbegun) Launches() {}

// driver prints what was recorded, and ends as recorded.
type driver struct {
	p    *Player
	next task.Driver
}

func (d *driver) Kind() task.Kind                   { return d.next.Kind() }
func (d *driver) Check(input json.RawMessage) error { return d.next.Check(input) }

// Steer takes a message for the work, which has answered it already.
func (d *driver) Steer(context.Context, task.ID, string) error { return nil }

func (d *driver) Run(ctx context.Context, h task.Host) (task.Result, error) {
	p, rec := d.p, h.Record()
	p.mu.Lock()
	n := p.runs[rec.ID]
	p.runs[rec.ID]++
	p.mu.Unlock()
	if n >= len(p.ends[rec.ID]) {
		err := p.diverge("a task begins that was not recorded: %s (%s)", rec.ID, cmp.Or(rec.Command, rec.Description))
		return task.Result{}, err
	}
	was := p.ends[rec.ID][n]
	if n == 0 {
		if _, err := h.Output().Write(p.outputs[rec.ID].Data); err != nil {
			return task.Result{}, err
		}
	}
	for _, one := range p.told[rec.ID] {
		if err := p.await(ctx, one.turn); err != nil {
			return task.Result{}, err
		}
		if err := h.Tell(ctx, one.message.Kind, one.message.Text, one.message.Priority); err != nil {
			return task.Result{}, err
		}
		p.pass(one.turn)
	}
	res := task.Result{ExitCode: was.rec.ExitCode, Usage: was.rec.Usage, Text: was.text}
	if c := was.rec.Cause; c != nil {
		res.Signal = c.Signal
	}
	if was.rec.Progress != nil {
		h.Progress(*was.rec.Progress)
	}
	if was.turn == nil {
		<-ctx.Done()
		return res, context.Cause(ctx)
	}
	if err := p.await(ctx, was.turn); err != nil {
		return res, err
	}
	res.Settle = func() { p.pass(was.turn) }
	if was.rec.Status == task.Completed {
		return res, nil
	}
	fail := &task.FailError{Reason: task.ReasonError, Err: errors.New(cmp.Or(was.rec.Error, "it has failed"))}
	if was.rec.Cause != nil {
		fail.Reason = was.rec.Cause.Reason
	}
	return res, fail
}

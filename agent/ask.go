package agent

import (
	"context"
	"errors"
	"fmt"
)

// Fallback is a call of a model that goes to another model, since the first one has failed.
type Fallback struct {
	From, To string // names of models
	Why      ModelError
}

// String says it in one line, for people.
func (f Fallback) String() string {
	return fmt.Sprintf("model %s failed: %s; the rest of the turn goes to %s", f.From, f.Why.Text, f.To)
}

// refusedError is a call of a model that the meter did not allow.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// ask calls the model. If it is overloaded or cannot be reached, the next of [Config.Fallback]
// answers for the rest of the turn. Parts of the request that the provider refuses are left out,
// and the call is made again. Its error is a [*refusedError] if no model was called.
func (t *turn) ask(ctx context.Context, messages []Message, purpose string, on func(Part)) (*Reply, error) {
	for unplaced := false; ; {
		m := t.settings() // of the whole call, also when it is changed meanwhile
		reply, err := t.askOne(ctx, m, messages, purpose, on)
		if at := refusedAt(err); at != (Spot{}) && ctx.Err() == nil {
			shorter, ok, unkept := t.leaveOut(messages, at, unplaced)
			if unkept != nil {
				return nil, errors.Join(err, unkept)
			}
			if ok {
				messages, unplaced = shorter, at.File
				continue
			}
		}
		why := goesElsewhere(err)
		if why == nil || ctx.Err() != nil || !t.fallBack(m.Name) {
			return reply, err
		}
		f := Fallback{From: m.Name, To: t.settings().Name, Why: *why}
		t.warn(f.String())
		if err := t.keep(Record{Note: f.String()}); err != nil {
			return nil, err
		}
		on(Part{Kind: FallbackPart, Fallback: f})
	}
}

// settings are those of the next call of the turn.
func (t *turn) settings() ModelSettings {
	m := t.ModelSettings()
	if t.fallbacks > 0 {
		other := t.cfg.Fallback[t.fallbacks-1]
		m.Model, m.Name, m.Window = other.Model, other.Name, other.Window
	}
	return m
}

// fallBack takes the next model with another name than the failed one, and reports whether it
// has found one.
func (t *turn) fallBack(failed string) bool {
	for t.fallbacks < len(t.cfg.Fallback) {
		t.fallbacks++
		if t.cfg.Fallback[t.fallbacks-1].Name != failed {
			return true
		}
	}
	return false
}

// goesElsewhere is why a failed call may succeed with another model; nil: it would fail there
// too, or must not be hidden.
func goesElsewhere(err error) *ModelError {
	why := (*ModelError)(nil)
	if !errors.As(err, &why) {
		return nil
	}
	switch why.Kind {
	case "rate_limit", "usage_limit", "overloaded", "server_error", "cut", "idle", "unreachable":
		return why
	}
	return nil
}

// askOne calls a model once, and counts the cost of its void answers. Its error is a
// [*refusedError] if the model was not called.
func (t *turn) askOne(
	ctx context.Context, m ModelSettings, messages []Message, purpose string, on func(Part),
) (*Reply, error) {
	if err := t.hold(ctx); err != nil {
		return nil, &refusedError{err}
	}
	free, err := t.reserve(ctx, m.Name)
	if err != nil {
		return nil, err
	}
	defer func() { free() }()
	call, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var unkept, refused error
	hear := func(p Part) {
		if p.Kind == VoidPart && p.Usage != (Usage{}) {
			t.spent(m.Name, p.Usage)
			unkept = errors.Join(unkept, t.keep(Record{Usage: &p.Usage, Aside: true}))
		}
		on(p)
		if p.Kind == RetryPart && p.Retry.Attempt > 0 { // it costs as much as a call of its own
			free()
			if free, refused = t.reserve(ctx, m.Name); refused != nil {
				giveUp(refused)
			}
		}
	}
	req := &Request{
		Agent: t.cfg.Agent, AgentID: t.around.speaker(), SessionID: t.cfg.SessionID, Purpose: purpose,
		Model: m.Name, Thinking: m.Thinking, System: t.cfg.System, MaxTokens: t.cfg.MaxTokens,
		Tools: t.tools.specs, Messages: messages, Retain: t.retain(),
	}
	reply, err := t.cfg.Port.Reply(call, req, hear, func(on func(Part)) (*Reply, error) {
		return m.Model.Reply(call, req, on)
	})
	if refused != nil {
		return nil, errors.Join(refused, unkept)
	}
	if err == nil && (reply == nil || reply.StopReason == "") {
		cut := &CutError{}
		if reply != nil {
			cut.Whole, cut.Usage = reply.Blocks, reply.Usage
		}
		err = cut
	}
	if cut := (*CutError)(nil); errors.As(err, &cut) && ctx.Err() == nil {
		hear(Part{Kind: VoidPart, Usage: cut.Usage})
	}
	t.spent(m.Name, cost(ctx, reply, err))
	if unkept != nil {
		return nil, errors.Join(err, unkept)
	}
	return reply, err
}

// hold waits until the turn may go on.
func (t *turn) hold(ctx context.Context) error {
	if t.cfg.WaitWhilePaused == nil {
		return nil
	}
	err := t.cfg.WaitWhilePaused(ctx)
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	return err
}

func (t *turn) retain() Retain {
	all := false
	if t.cfg.Waits != nil {
		t.guard("who knows how long a conversation waits", func() { all = t.cfg.Waits() })
	}
	return Retain{Head: t.cfg.SharedHead || all, All: all}
}

// reserve asks the meter for a call of a model. free may be called in any case.
func (t *turn) reserve(ctx context.Context, model string) (free func(), err error) {
	if t.cfg.Meter == nil {
		return func() {}, nil
	}
	reserve := t.cfg.Meter.Reserve
	if m, ok := t.cfg.Meter.(LastMeter); ok && t.last {
		reserve = m.ReserveLast
	}
	free, err = reserve(ctx, model, t.cfg.MaxTokens)
	if err != nil && ctx.Err() != nil {
		err = interrupted(ctx)
	}
	if err != nil {
		err = &refusedError{err}
	}
	if free == nil {
		free = func() {}
	}
	return free, err
}

func (t *turn) spent(model string, u Usage) {
	if t.cfg.Meter != nil && u != (Usage{}) {
		t.cfg.Meter.Spent(model, u)
	}
}

// cost is the known cost of a call of a model, without its void answers. For an answer that the
// user broke off it is the cost of the part that had come.
func cost(ctx context.Context, reply *Reply, err error) Usage {
	cut := (*CutError)(nil)
	switch {
	case err == nil:
		return reply.Usage
	case ctx.Err() != nil && errors.As(err, &cut):
		return cut.Usage
	}
	return Usage{}
}

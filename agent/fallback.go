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

// goesElsewhere is why a call that has failed may succeed with another model; nil: it would
// fail there too, or must not be hidden.
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

// settings are those of the next call of the turn.
func (t *turn) settings() ModelSettings {
	m := t.ModelSettings()
	if t.fallen > 0 {
		other := t.cfg.Fallback[t.fallen-1]
		m.Model, m.Name, m.Window = other.Model, other.Name, other.Window
	}
	return m
}

// ask calls the model, and those in its place for the rest of the turn where it is
// overloaded or cannot be reached. What the provider refuses of the request is left out, and the
// call made again. Its error is a [*refusedError] if it was not called.
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
		if why == nil || ctx.Err() != nil || !t.next(m.Name) {
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

// next takes the next model that is another than the one that has failed.
func (t *turn) next(failed string) bool {
	for t.fallen < len(t.cfg.Fallback) {
		t.fallen++
		if t.cfg.Fallback[t.fallen-1].Name != failed {
			return true
		}
	}
	return false
}

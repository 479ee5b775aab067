package agent

import (
	"context"
	_ "embed"
	"errors"
	"strings"
)

// handBackPurpose is how a model sees such a request.
const handBackPurpose = "hand_back"

//go:embed hand_back.md
var handBackPrompt string

// HandBack asks the model once for what it has, after a turn that was ended by
// something else than a limit of the loop, such as the time; why says by what.
// Nothing that the reply calls is run. The tools of the request are those of
// every other: what the provider has cached of it is of use. It is for a
// conversation that will not go on at once.
//
// The text of the result is empty where the model says nothing. Errors are
// those of [Loop.Turn].
func (l *Loop) HandBack(ctx context.Context, why string) (TurnResult, error) {
	if !l.busy.TryLock() {
		return TurnResult{}, ErrBusy
	}
	defer l.busy.Unlock()
	return l.turn(ctx, func(t *turn) error { return t.lastWords(ctx, why) })
}

// handsBack says whether an error is a limit behind which one more reply makes
// sense. A model that goes in circles or writes too long would do so again.
func handsBack(err error) bool {
	limit := (*LimitError)(nil)
	return errors.As(err, &limit) && limit.Limit != "same_call" && limit.Limit != "max_tokens"
}

// handBack is the end of a turn by a limit, which stays the error of the turn.
func (t *turn) handBack(ctx context.Context, why string) {
	if err := t.lastWords(ctx, why); err != nil && ctx.Err() == nil {
		t.warn("the agent could not hand back what it has: " + err.Error())
	}
}

func (t *turn) lastWords(ctx context.Context, why string) error {
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	if err := t.record(
		ctx,
		nil,
		texts(strings.TrimSpace(strings.ReplaceAll(handBackPrompt, "{{why}}", why))),
		nil,
	); err != nil {
		return err
	}
	t.last = true
	said := t.res.Text
	reply, _, err := t.reply(ctx)
	if t.res.Text == "" { // nothing is handed back in the place of something
		t.res.Text = said
	}
	if err == nil {
		t.res.Reason = reply.StopReason
	}
	return err
}

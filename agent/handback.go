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

// HandBack asks the model once for the work that it has, after a turn that something other than
// a limit of the loop has ended, such as the time; why names it. None of the calls in the reply is
// run. The request has the tools of every other request, so that the cache of the provider serves
// it. It is for a conversation that will not continue at once.
//
// The text of the result is empty where the model says nothing. Errors are those of [Loop.Answer].
func (l *Loop) HandBack(ctx context.Context, why string) (TurnResult, error) {
	return l.turn(ctx, Prompt{}, func(t *turn) error { return t.lastWords(ctx, why) })
}

// handsBack reports whether one more reply makes sense after an error. A model that repeats its
// calls or writes too long would do so again.
func handsBack(err error) bool {
	limit := (*LimitError)(nil)
	return errors.As(err, &limit) && limit.Limit != "same_call" && limit.Limit != "max_tokens"
}

// handBack ends a turn that ran into a limit. The limit stays the error of the turn.
func (t *turn) handBack(ctx context.Context, why string) {
	if err := t.lastWords(ctx, why); err != nil && ctx.Err() == nil {
		t.warn("the agent could not hand back what it has: " + err.Error())
	}
}

func (t *turn) lastWords(ctx context.Context, why string) error {
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	ask := texts(strings.TrimSpace(strings.ReplaceAll(handBackPrompt, "{{why}}", why)))
	if err := t.record(ctx, nil, ask, nil); err != nil {
		return err
	}
	t.last = true
	said := t.res.Text
	reply, _, err := t.reply(ctx)
	if t.res.Text == "" { // an empty reply does not replace an earlier one
		t.res.Text = said
	}
	if err == nil {
		t.res.Reason = reply.StopReason
	}
	return err
}

package agent

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	defaultShare    = 0.8
	summaryTries    = 3        // of one compaction, where the summary does not fit either
	defaultMaxBytes = 32 << 20 // no provider reads more

	// Sizes are guessed where tokens are not known: three bytes are hardly
	// less than a token.
	bytesPerToken = 3
	unknownWindow = 200_000

	summaryCut = "\n[The summary was cut off here.]"
)

// Why a conversation is summed up.
const (
	byHand     = "manual"
	byShare    = "auto"
	byOverflow = "overflow"
)

//go:embed compact.md
var compactPrompt string

//go:embed compacted.md
var compactedPreface string

// uncompactedError says that there is no summary, and that the conversation is
// as it was.
type uncompactedError struct{ err error }

func (e *uncompactedError) Error() string {
	return "the conversation could not be summed up: " + e.err.Error()
}
func (e *uncompactedError) Unwrap() error { return e.err }

// Compact sums the conversation up now; instructions say what the summary must
// heed, and may be empty. While a turn runs it returns [ErrBusy]. Without a
// summary the conversation stays as it was. Other errors are those of
// [Loop.Turn].
func (l *Loop) Compact(ctx context.Context, instructions string) error {
	if !l.busy.TryLock() {
		return ErrBusy
	}
	defer l.busy.Unlock()
	t := &turn{Loop: l}
	if len(t.unrecorded) > 0 { // no call may be open
		if err := t.record(ctx, nil, nil, nil); err != nil {
			return err
		}
	}
	return plainly(t.compact(ctx, byHand, instructions))
}

// plainly is the error as callers of the loop see it.
func plainly(err error) error {
	if refused := (*refusedError)(nil); errors.As(err, &refused) {
		return refused.err
	}
	return err
}

// makeRoom sums the conversation up where the next request would not do
// without. No call is open.
func (t *turn) makeRoom(ctx context.Context) error {
	cleared := t.clearOld(ctx)
	switch {
	case t.cfg.Compaction == nil || t.cramped:
		return nil
	case t.size > cmp.Or(t.cfg.Compaction.MaxBytes, defaultMaxBytes) && !t.overflow:
		t.overflow = true
		return t.tooLarge(ctx, t.compact(ctx, byOverflow, ""))
	case cleared || !t.full(): // after a clearing the next reply says how full it is
		return nil
	}
	err := t.compact(ctx, byShare, "")
	soft := (*uncompactedError)(nil)
	if ctx.Err() != nil || !errors.As(err, &soft) {
		return plainly(err)
	}
	// There is some room left: it is tried again in the next turn, or when the
	// window overflows.
	t.cramped = true
	t.warn(soft.Error())
	return nil
}

// full says whether the conversation fills its share of the window. Where the
// last compaction did not help much there must be something new to sum up.
func (t *turn) full() bool {
	c := t.cfg.Compaction
	share := c.Share
	if share <= 0 {
		share = defaultShare
	}
	now, window := t.Totals().Context, t.settings().Window
	return window > 0 && float64(now) >= share*float64(window) && now-t.base >= window/10
}

// overflown says whether a request was more than the model can read.
func overflown(err error) bool {
	e := (*ModelError)(nil)
	return errors.As(err, &e) && e.Kind == "context_overflow"
}

// shrink sums the conversation up after a request that was too long, once in a
// turn.
func (t *turn) shrink(ctx context.Context, cause error) error {
	if t.overflow {
		return fmt.Errorf("the conversation does not fit the window of the model, even summed up "+
			"(send less at once, or use a model with a larger window): %w", cause)
	}
	t.overflow = true
	return t.tooLarge(ctx, t.compact(ctx, byOverflow, ""))
}

// tooLarge is why a turn ends if an overflow was not fixed.
func (t *turn) tooLarge(ctx context.Context, err error) error {
	if soft := (*uncompactedError)(nil); ctx.Err() == nil && errors.As(err, &soft) {
		return fmt.Errorf("the conversation does not fit the window of the model: %w", err)
	}
	return plainly(err)
}

// compact puts a summary in the place of the conversation. If it returns an
// error, nothing was changed.
func (t *turn) compact(ctx context.Context, trigger, instructions string) error {
	c := t.cfg.Compaction
	if c == nil {
		c = &Compaction{}
	}
	messages := t.Messages()
	switch {
	case ctx.Err() != nil:
		return interrupted(ctx)
	case len(messages) == 0:
		return &uncompactedError{errors.New("nothing has been said yet")}
	}
	if c.Before != nil {
		more, refused := t.outside(ctx, "the hook before a summary", CompactTexts, func() ([]string, error) {
			text, err := c.Before(ctx, trigger, instructions)
			return []string{text}, err
		})
		if refused != nil && trigger != byOverflow {
			return &uncompactedError{refused}
		}
		instructions = strings.TrimSpace(instructions + "\n\n" + strings.Join(more, "\n\n"))
	}
	start, did := time.Now(), Compacted{Trigger: trigger, Before: t.Totals().Context}
	began := did
	t.emit(Event{Kind: CompactStartEvent, Compaction: &began})
	summary, spent, err := t.summarise(ctx, c.room(trigger, bytesOf(messages)), instructions, messages)
	did.Usage = spent
	switch {
	case err == nil:
		if err = t.replace(ctx, c, did, summary, messages); err == nil {
			did.Summary = summary
		}
	case spent != Usage{}:
		err = errors.Join(err, t.keep(Record{Usage: &spent, Aside: true}))
	}
	t.emit(Event{Kind: CompactEvent, Compaction: &did, Duration: time.Since(start), Err: plainly(err)})
	if err == nil && c.After != nil {
		t.guard("the hook behind a summary", func() { c.After(ctx, trigger, summary) })
	}
	return err
}

// window is how many tokens the model can read, as far as is known.
func (c *Compaction) window() int64 {
	if c == nil || c.Window <= 0 {
		return unknownWindow
	}
	return c.Window
}

// room is how many bytes of a conversation of that size are summed up: all of
// it where it seems to fit, since the model has most of it in its cache.
func (c *Compaction) room(trigger string, size int) int {
	guess := int(c.window()) * bytesPerToken
	switch {
	case trigger == byOverflow:
		return min(guess, size*3/4)
	case size > 3*guess:
		return guess
	}
	return size
}

// summarise asks the model for a summary of as much as room says, and of less
// where that does not fit. It returns what that has cost, also with an error.
func (t *turn) summarise(
	ctx context.Context, room int, instructions string, messages []Message,
) (string, Usage, error) {
	prompt := compactPrompt
	if instructions != "" {
		prompt += "\nFor this summary in particular:\n" + instructions + "\n"
	}
	last := NewMessage(User, TextBlock(bounded(prompt)))
	var spent Usage
	for try := 1; ; try++ {
		short := fit(messages, room)
		reply, err := t.ask(ctx, append(slices.Clip(short), last), "compaction", func(p Part) {
			if p.Kind == RetryPart || p.Kind == FallbackPart || p.Kind == VoidPart {
				t.emit(Event{Kind: PartEvent, Part: p})
			}
		})
		spent.add(cost(ctx, reply, err))
		refused := (*refusedError)(nil)
		switch {
		case ctx.Err() != nil:
			return "", spent, interrupted(ctx)
		case errors.As(err, &refused):
			return "", spent, refused
		case overflown(err) && try < summaryTries && bytesOf(fit(messages, bytesOf(short)/3)) < bytesOf(short):
			room = bytesOf(short) / 3
		case err != nil:
			return "", spent, &uncompactedError{err}
		default:
			text, err := summaryOf(reply)
			return text, spent, err
		}
	}
}

// summaryOf is the text of a reply; calls in it are not carried out.
func summaryOf(reply *Reply) (string, error) {
	text := strings.TrimSpace(bounded(spoken(reply.Blocks)))
	switch {
	case reply.StopReason != "max_tokens" && !whole(reply.StopReason):
		return "", &uncompactedError{fmt.Errorf("the model stopped (%s)", reply.StopReason)}
	case text == "":
		return "", &uncompactedError{errors.New("the model gave no summary")}
	case reply.StopReason == "max_tokens":
		return text + summaryCut, nil
	}
	return text, nil
}

// replace makes the summary the conversation. What the last message asks of the
// model is not answered yet, and stays as it is.
func (t *turn) replace(ctx context.Context, c *Compaction, did Compacted, summary string, messages []Message) error {
	rest, err := unanswered(messages)
	if err != nil {
		return &uncompactedError{err}
	}
	summary = strings.NewReplacer("</summary", "&lt;/summary", "<system-reminder", "&lt;system-reminder",
		"</system-reminder", "&lt;/system-reminder").Replace(summary)
	blocks := texts(strings.TrimSpace(compactedPreface) + "\n\n<summary>\n" + summary + "\n</summary>")
	if c.Restore != nil {
		kept, _ := t.outside(ctx, "what is put behind a summary", RestoreTexts, func() ([]string, error) {
			return []string{c.Restore(ctx)}, nil
		})
		blocks = append(blocks, texts(kept...)...)
	}
	if r := t.around.source(); r != nil {
		t.guard("the source of reminders", r.Forgotten)
		if did.Trigger != byHand { // else the next turn asks
			due := texts(t.due(ctx, r, true)...)
			blocks = append(blocks, due...)
			rest = slices.DeleteFunc(rest, func(b Block) bool {
				return slices.ContainsFunc(due, func(d Block) bool { return b.Type == "text" && b.Text == d.Text })
			})
		}
	}
	r := Record{
		Message: t.userMessage(append(blocks, rest...), nil), Usage: &did.Usage,
		Boundary: &Boundary{Trigger: did.Trigger, Before: did.Before},
	}
	if err := t.keep(r); err != nil {
		return err
	}
	clear(t.ids)
	t.fresh = true
	return nil
}

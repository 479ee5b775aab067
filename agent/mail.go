package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ackTimeout bounds the acknowledgement of mail, also after the end of a turn's context.
const ackTimeout = 10 * time.Second

// takeMail returns the mail messages that the conversation does not hold yet. Those that it
// holds came again because their acknowledgement was lost. The caller holds around.step until
// they are recorded.
func (t *turn) takeMail(ctx context.Context) ([]MailMessage, error) {
	if t.around.mail == nil {
		return nil, nil
	}
	mail, err := t.unread(ctx, t.around.mail)
	if err != nil {
		if ctx.Err() != nil {
			return nil, interrupted(ctx)
		}
		return nil, fmt.Errorf("take mail: %w", err)
	}
	var fresh, again []MailMessage
	seen := map[int64]bool{}
	for _, m := range mail {
		switch {
		case t.holds(m.Seq):
			again = append(again, m)
		case !seen[m.Seq]:
			seen[m.Seq] = true
			fresh = append(fresh, m)
		}
	}
	if err := t.ack(ctx, again); err != nil {
		return nil, err
	}
	return atOnce(fresh, t.cfg.Compaction.window()), nil
}

// Unread is a look into the mailbox between two turns. It acknowledges nothing.
func (l *Loop) Unread(ctx context.Context) ([]MailMessage, error) {
	if l.cfg.Mail == nil {
		return nil, nil
	}
	return l.unread(ctx, l.cfg.Mail)
}

func (l *Loop) unread(ctx context.Context, box Mail) ([]MailMessage, error) {
	return l.cfg.Port.Take(ctx, func() ([]MailMessage, error) { return box.Take(ctx) })
}

// atOnce is as much mail as goes into one message: a quarter of the window, and one mail message
// at least. Mail that came in a long call could be more than the model can read, and no summary
// makes the last message shorter.
func atOnce(mail []MailMessage, window int64) []MailMessage {
	size := 0
	for i, m := range mail {
		if size += len(m.Text); i > 0 && int64(size) > window/4*bytesPerToken {
			return mail[:i]
		}
	}
	return mail
}

func (l *Loop) holds(seq int64) bool {
	if t := l.around.file(); t != nil {
		return t.Holds(seq)
	}
	_, ok := l.delivered[seq]
	return ok
}

func (l *Loop) ack(ctx context.Context, mail []MailMessage) error {
	if len(mail) == 0 {
		return nil
	}
	last, done := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
	defer done()
	if err := l.around.mail.Ack(last, mail); err != nil {
		return fmt.Errorf("acknowledge mail: %w", err)
	}
	return nil
}

// record adds a user message: unrecorded results, the texts before mail, mail, and the prompt.
// Then it acknowledges the mail. Results that could not be kept stay unrecorded.
func (t *turn) record(ctx context.Context, mail []MailMessage, before, prompt []Block) error {
	blocks := slices.Concat(t.unrecorded, before)
	delivered := slices.Clip(mail)
	if len(prompt) > 0 && t.prompt.Seq != 0 {
		delivered = append(delivered, MailMessage{Seq: t.prompt.Seq})
	}
	var seqs []int64
	for _, m := range delivered {
		if text := strings.ToValidUTF8(m.Text, "\uFFFD"); strings.TrimSpace(text) != "" {
			blocks = append(blocks, TextBlock(text))
		}
		seqs = append(seqs, m.Seq)
	}
	if len(blocks)+len(prompt) > 0 {
		r := Record{Message: t.userMessage(blocks, prompt), Mail: seqs}
		if len(prompt) > 0 && t.prompt.User {
			r.Prompt, r.Typed = len(blocks)+t.before+1, t.prompt.Typed
		}
		if err := t.keep(r); err != nil {
			return err
		}
		t.unrecorded = nil
	}
	for _, seq := range seqs {
		t.delivered[seq] = struct{}{}
	}
	if len(mail) > 0 {
		t.emit(Event{Kind: MailEvent, Mail: mail})
	}
	if len(prompt) > 0 {
		t.emit(Event{Kind: PromptEvent, Prompt: prompt})
	}
	return t.ack(ctx, delivered)
}

// keep makes a record durable, and only then part of the conversation.
func (t *turn) keep(r Record) error {
	t.around.keeping.Lock()
	defer t.around.keeping.Unlock()
	if t.around.transcript != nil {
		if err := t.around.transcript.Append(r); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Boundary != nil {
		t.messages, t.size, t.aged = nil, 0, aged{}
	}
	if len(r.LeftOut) > 0 {
		t.messages = without(t.messages, r)
		t.size = bytesOf(t.messages)
	}
	if r.Message.raw != nil {
		t.messages = append(t.messages, r.Message)
		t.size += len(r.Message.raw)
	}
	t.totals.count(r)
	if r.Usage == nil {
		return nil
	}
	t.res.Usage.add(*r.Usage)
	t.res.Context = t.totals.Context
	if r.Boundary == nil && !r.Aside {
		t.res.Turns++
		t.res.ToolUses += r.ToolUses
	}
	return nil
}

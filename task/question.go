package task

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of questions and replies.
const (
	MaxQuestions     = 8        // open at once in one run
	MaxQuestionBytes = 64 << 10 // of an input that is kept and shown
	MaxReplyBytes    = 64 << 10 // of a reply's text and reason
	MaxReplyInput    = 1 << 20  // bytes of an input that a reply gives instead
	maxQuestionText  = 4 << 10  // bytes of what else a question says
)

// Answered tells how a question was closed. Its cause says by whom: a user or
// client who answered, or the runtime, when nobody did or nobody waits any more.
type Answered struct {
	ID      string    `json:"id"`
	Tool    string    `json:"tool"`
	Digest  string    `json:"digest"`
	Allow   bool      `json:"allow"`
	Changed bool      `json:"input_changed,omitempty"` // another input was given instead
	Cause   Cause     `json:"cause"`
	At      time.Time `json:"at"`
}

// NewQuestionID makes an ID for a question: q and eight characters like those
// of an [ID].
func NewQuestionID() string { return "q" + randomBody() }

// Shown is the question as it is kept and shown: with its kind and the digest of
// the whole request, and at most [MaxQuestionBytes] of the input. What is cut, or
// is no JSON, is a JSON text instead.
func (q Question) Shown() Question { return q.shown(MaxQuestionBytes) }

// Whole is the same with all of the input.
func (q Question) Whole() Question { return q.shown(len(q.Input)) }

func (q Question) shown(limit int) Question {
	if q.Kind == "" {
		q.Kind = Permission
	}
	sum := sha256.Sum256([]byte(string(q.Kind) + "\x00" + q.Tool + "\x00" + string(q.Input)))
	q.Digest = hex.EncodeToString(sum[:])
	q.Agent, q.Tool, q.Reason = beginning(
		q.Agent,
		maxQuestionText,
	), beginning(
		q.Tool,
		maxQuestionText,
	), beginning(
		q.Reason,
		maxQuestionText,
	)
	if text := beginning(string(q.Input), limit); len(text) < len(q.Input) || text != "" && !json.Valid(q.Input) {
		q.Hidden = len(q.Input) - len(text)
		if q.Hidden > 0 {
			text += fmt.Sprintf("… [%d bytes more]", q.Hidden)
		}
		q.Input, _ = json.Marshal(text) // text can always be encoded
	}
	return q
}

// beginning is at most n bytes of text, whole characters.
func beginning(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// ReplyError is a reply that cannot answer its question.
type ReplyError struct{ Why string }

func (e *ReplyError) Error() string { return e.Why }

// Check refuses a reply that cannot answer the question, with a [*ReplyError].
func (q Question) Check(r Reply) error {
	choice, form := q.Kind == Choice, q.Kind == Form
	for _, c := range []struct {
		wrong bool
		why   string
	}{
		{len(r.Reason) > MaxReplyBytes || len(r.Text) > MaxReplyBytes, fmt.Sprintf("the answer is longer than %d KiB", MaxReplyBytes>>10)},
		{len(r.Input) > MaxReplyInput, fmt.Sprintf("the new input is larger than %d MiB", MaxReplyInput>>20)},
		{len(r.Input) > 0 && !isObject(r.Input), "the new input is not a JSON object"},
		{!r.Allow && len(r.Input) > 0, "a denial takes no input"},
		{!r.Allow && r.Text != "", "a denial takes a reason, and no text"},
		{form && (r.Text != "" || r.Allow && len(r.Input) == 0), "this question is answered by a JSON object"},
		{!choice && r.Text != "", "a question of permission is allowed or denied; it takes no text"},
		{choice && r.Allow && strings.TrimSpace(r.Text) == "" && len(r.Input) == 0, "this question is answered by a text"},
	} {
		if c.wrong {
			return &ReplyError{c.why}
		}
	}
	if form && r.Allow {
		if err := CheckForm(q.Input, r.Input); err != nil {
			return &ReplyError{"this does not answer the question: " + err.Error()}
		}
	}
	return nil
}

func isObject(data []byte) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(data, &m) == nil && m != nil
}

// ask takes a question in. One without an ID, or that is there already, changes
// nothing.
func ask(r Record, c Change) Record {
	if c.Question == nil || c.Question.ID == "" || r.asked(c.Question.ID) >= 0 {
		return r
	}
	r.Questions = append(slices.Clone(r.Questions), *c.Question)
	r.AwaitingApproval = true
	return r
}

// answer closes a question that is open. The fact falls with the last one.
func answer(r Record, c Change) (Record, bool) {
	if c.Answered == nil {
		return r, false
	}
	i := r.asked(c.Answered.ID)
	if i < 0 {
		return r, false
	}
	r.Questions = slices.Delete(slices.Clone(r.Questions), i, i+1)
	if r.AwaitingApproval = len(r.Questions) > 0; !r.AwaitingApproval {
		r.Questions = nil
	}
	r.LastAnswer = c.Answered
	return r, true
}

// asked is the place of an open question, or -1.
func (r Record) asked(id string) int {
	return slices.IndexFunc(r.Questions, func(q Question) bool { return q.ID == id })
}

// Asks reports whether a question of the record is open.
func (r Record) Asks(id string) bool { return r.asked(id) >= 0 }

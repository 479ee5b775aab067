package lifecycle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/drover-dev/drover/task"
)

const maxQuestionText = 4 << 10 // bytes of each text of a question, its input aside

// NewQuestionID makes an ID for a question: q and eight characters like those
// of an [ID].
func NewQuestionID() string { return "q" + string(task.NewSessionID())[1:] }

// Shown is a question as it is kept and shown: with its kind and the digest of
// the whole request, and at most [MaxQuestionBytes] of the input. What is cut, or
// is no JSON, is a JSON text instead.
func Shown(q task.Question) task.Question { return shown(q, task.MaxQuestionBytes) }

// Whole is the same with all of the input.
func Whole(q task.Question) task.Question { return shown(q, len(q.Input)) }

func shown(q task.Question, limit int) task.Question {
	if q.Kind == "" {
		q.Kind = task.Permission
	}
	sum := sha256.Sum256([]byte(string(q.Kind) + "\x00" + q.Tool + "\x00" + string(q.Input)))
	q.Digest = hex.EncodeToString(sum[:])
	for _, text := range []*string{&q.Agent, &q.Tool, &q.Reason} {
		*text = beginning(*text, maxQuestionText)
	}
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

// ask takes a question in. One without an ID, or that is there already, changes
// nothing.
func ask(r task.Record, c Change) task.Record {
	if c.Question == nil || c.Question.ID == "" || r.Asks(c.Question.ID) {
		return r
	}
	r.Questions = append(slices.Clone(r.Questions), *c.Question)
	r.AwaitingApproval = true
	return r
}

// answer closes a question that is open. The fact falls with the last one.
func answer(r task.Record, c Change) (task.Record, bool) {
	if c.Answered == nil {
		return r, false
	}
	i := slices.IndexFunc(r.Questions, func(q task.Question) bool { return q.ID == c.Answered.ID })
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

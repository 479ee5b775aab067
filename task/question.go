package task

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of questions and replies.
const (
	MaxQuestions     = 8        // open at once in one run
	MaxQuestionBytes = 64 << 10 // of the input in a record
	MaxReplyBytes    = 64 << 10 // of a reply's text and reason
	MaxReplyInput    = 1 << 20  // of an input in a reply
)

// Answered records how a question was closed. Its cause names the actor: a user or
// client who answered, or the runtime, if its time passed or its task waits no longer.
type Answered struct {
	ID      string    `json:"id"`
	Tool    string    `json:"tool"`
	Digest  string    `json:"digest"`
	Allow   bool      `json:"allow"`
	Changed bool      `json:"input_changed,omitempty"` // the reply replaced the input
	Cause   Cause     `json:"cause"`
	At      time.Time `json:"at"`
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
		{len(r.Reason) > MaxReplyBytes || len(r.Text) > MaxReplyBytes,
			fmt.Sprintf("the answer is longer than %d KiB", MaxReplyBytes>>10)},
		{len(r.Input) > MaxReplyInput, fmt.Sprintf("the new input is larger than %d MiB", MaxReplyInput>>20)},
		{form && (r.Text != "" || r.Allow && !isObject(r.Input)), "this question is answered by a JSON object"},
		{len(r.Input) > 0 && !isObject(r.Input), "the new input is not a JSON object"},
		{!r.Allow && len(r.Input) > 0, "a denial takes no input"},
		{!r.Allow && r.Text != "", "a denial takes a reason, and no text"},
		{!choice && r.Text != "", "a question of permission is allowed or denied; it takes no text"},
		{r.AcceptEdits && !(r.Allow && q.Tool == ExitPlanMode),
			"edits are accepted only with the approval of a plan of the main agent"},
		{r.Dismissed && (r.Allow || !form), "only a form can be dismissed, and not with an answer"},
		{choice && r.Allow && strings.TrimSpace(r.Text) == "" && len(r.Input) == 0, "this question is answered by a text"},
	} {
		if c.wrong {
			return &ReplyError{c.why}
		}
	}
	if form && r.Allow {
		if err := checkForm(q.Input, r.Input); err != nil {
			return &ReplyError{"this does not answer the question: " + err.Error()}
		}
	}
	return nil
}

func isObject(data []byte) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(data, &m) == nil && m != nil
}

// The tools by which agents propose plans: teammates to their lead, and the main agent to
// the user.
const (
	SubmitPlan   = "submit_plan"
	ExitPlanMode = "ExitPlanMode"
)

// IsPlan reports whether the question asks for the approval of a plan, which is the field plan
// of its input.
func (q Question) IsPlan() bool {
	return slices.Contains([]string{ExitPlanMode, "exit_plan_mode", SubmitPlan}, q.Tool)
}

// maxTitle bounds the subject of a [Question.Title], in characters.
const maxTitle = 60

// Title asks for the decision in one line, such as "Allow edit to parse.go?", with paths relative
// to dir. Its subject comes from the call: a frontend makes the text printable.
func (q Question) Title(dir string) string {
	var in struct {
		Command   string `json:"command"`
		File      string `json:"file_path"`
		Notebook  string `json:"notebook_path"`
		URL       string `json:"url"`
		Server    string `json:"server"`
		Questions []struct {
			Question string `json:"question"`
		} `json:"questions"`
	}
	_ = json.Unmarshal(q.Input, &in) // a shortened input has no fields to name
	file := subject(relative(dir, cmp.Or(in.File, in.Notebook)))
	switch {
	case q.IsPlan():
		return "Approve this plan?"
	case q.Kind == Choice && len(in.Questions) > 0:
		return subject(in.Questions[0].Question)
	case q.Kind == Choice:
		return "Answer a question?"
	case q.Kind == Form:
		return strings.TrimSpace("Answer " + subject(in.Server) + "?")
	case q.Tool == "Bash" && in.Command != "":
		return "Allow command " + subject(in.Command) + "?"
	case q.Tool == "Write" && file != "":
		return "Allow write to " + file + "?"
	case q.Tool == "Read" && file != "":
		return "Allow read of " + file + "?"
	case file != "":
		return "Allow edit to " + file + "?"
	case q.Tool == "WebFetch" && in.URL != "":
		return "Allow fetch of " + subject(in.URL) + "?"
	}
	if name, ok := strings.CutPrefix(q.Tool, "mcp__"); ok {
		if server, tool, ok := strings.Cut(name, "__"); ok {
			return "Allow " + tool + " of " + server + "?"
		}
	}
	return "Allow " + cmp.Or(q.Tool, "this call") + "?"
}

// relative returns a path below dir as seen from there, and any other path unchanged.
func relative(dir, path string) string {
	if below, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/"); ok && dir != "" {
		return below
	}
	return path
}

// subject puts a text on one line of bounded length.
func subject(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxTitle {
		return string(runes[:maxTitle-1]) + "…"
	}
	return text
}

// Asks reports whether a question of the record is open.
func (r Record) Asks(id string) bool {
	return slices.ContainsFunc(r.Questions, func(q Question) bool { return q.ID == id })
}

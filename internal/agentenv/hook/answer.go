package hook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// maxText is how much of a reason, a context or a note is used, in bytes.
const maxText = 40_000

// Word is what hooks say of a call. Of several the later of this list counts.
type Word string

// The words.
const (
	Nothing Word = ""
	Allow   Word = "allow"
	Ask     Word = "ask"
	Defer   Word = "defer" // let somebody else decide, which is a question here
	Deny    Word = "deny"
)

func (w Word) rank() int {
	return map[Word]int{Allow: 1, Ask: 2, Defer: 3, Deny: 4}[w]
}

// Outcome is what the hooks of one event say, taken together.
type Outcome struct {
	Block  bool // what is told of must not happen, or for Stop: must go on
	Reason string

	Decision       Word // PreToolUse and PermissionRequest; Deny comes with Block
	DecisionReason string
	UpdatedInput   json.RawMessage // instead of the input of the call; nil: none
	UpdatedOutput  *string         // instead of the output of the call

	Context   []string // for the model
	UserNotes []string // for the user; also told to [Base.Tell]

	Stop       bool // the turn is to end
	StopReason string
}

// result is how one hook went.
type result struct {
	code           int // of its exit; 128 and more for a signal
	stdout, stderr string
	long           bool     // stdout begins as an object does, and is too long for one
	async          bool     // it goes on in the background
	err            error    // it could not be heard to its end
	notes          []string // what the user is to know beside: where long output is, which processes could not be ended
}

// judge says what a hook means, by the rules of the file that it comes from.
func judge(h hook, r result) Outcome {
	out := heard(h, r)
	out.UserNotes = append(out.UserNotes, r.notes...)
	return out
}

func heard(h hook, r result) Outcome {
	if r.err != nil {
		return unheard(h, r.err)
	}
	if r.async {
		return Outcome{}
	}
	said, plain, bad := read(r)
	var out Outcome
	switch {
	case r.code == 0:
		out = said.outcome(h)
		if plain != "" && h.fact.is(speaks) {
			out.Context = []string{tidy(plain)}
		}
	case h.fact.is(blocks) && (r.code == 2 || h.copilot && h.fact.event == PreToolUse):
		// Whatever was printed cannot take this back.
		none := fmt.Sprintf("%s gave no reason (exit code %d)", h.label(), r.code)
		out = refusal(h, cmp.Or(strings.TrimSpace(r.stderr), said.reason(), plain, none))
	default:
		out.UserNotes = []string{
			fmt.Sprintf("%s ended with exit code %d: %s", h.label(), r.code, cmp.Or(tidy(r.stderr), "it gave no reason")),
		}
	}
	if bad != "" {
		out.UserNotes = append(out.UserNotes, fmt.Sprintf("%s: its output is not used: %s", h.label(), bad))
	}
	return out
}

// unheard is the outcome of a hook that did not come to its end: a denial where
// it might have denied.
func unheard(h hook, err error) Outcome {
	text := h.label() + " " + err.Error()
	var out Outcome
	if h.fact.is(guards) {
		out = refusal(h, text+", and without its answer this is refused")
	}
	if !errors.Is(err, errInterrupted) {
		out.UserNotes = []string{text}
	}
	return out
}

func refusal(h hook, why string) Outcome {
	out := Outcome{Block: true, Reason: tidy(why)}
	if h.decides() {
		out.Decision, out.DecisionReason = Deny, out.Reason
	}
	return out
}

// decides reports whether the hook has a say in a permission.
func (h hook) decides() bool {
	return h.fact.event == PreToolUse || h.fact.event == PermissionRequest
}

// label names the hook to people.
func (h hook) label() string {
	return fmt.Sprintf("the %s hook %q of %s", h.name, excerpt.Line(h.command, 60), h.source)
}

// reply is the JSON that a hook may print: the fields of both forms.
type reply struct {
	Continue      *bool  `json:"continue"`
	StopReason    string `json:"stopReason"`
	Decision      string `json:"decision"`
	Reason        string `json:"reason"`
	SystemMessage string `json:"systemMessage"`
	Async         bool   `json:"async"`
	AsyncTimeout  int64  `json:"asyncTimeout"` // milliseconds
	Behavior      string `json:"behavior"`     // Copilot, as the next two
	Message       string `json:"message"`
	Interrupt     bool   `json:"interrupt"`
	specific
	Inner struct {
		specific
		Decision verdict `json:"decision"`
	} `json:"hookSpecificOutput"`
}

// specific is what Claude puts into hookSpecificOutput, and Copilot beside the rest.
type specific struct {
	PermissionDecision       string          `json:"permissionDecision"`
	PermissionDecisionReason string          `json:"permissionDecisionReason"`
	UpdatedInput             json.RawMessage `json:"updatedInput"`
	ModifiedArgs             json.RawMessage `json:"modifiedArgs"`
	AdditionalContext        string          `json:"additionalContext"`
	UpdatedToolOutput        json.RawMessage `json:"updatedToolOutput"`
	UpdatedMCPToolOutput     json.RawMessage `json:"updatedMCPToolOutput"`
	ModifiedResult           json.RawMessage `json:"modifiedResult"`
}

// verdict answers a question for permission.
type verdict struct {
	Behavior  string          `json:"behavior"`
	Message   string          `json:"message"`
	Interrupt bool            `json:"interrupt"`
	Input     json.RawMessage `json:"updatedInput"`
	Granted   json.RawMessage `json:"updatedPermissions"`
}

// read takes stdout apart: one JSON object, or plain text. bad says why it is
// neither.
func read(r result) (said reply, plain, bad string) {
	text := strings.TrimSpace(r.stdout)
	switch {
	case r.long:
		return said, "", "it is too long"
	case text == "":
		return said, "", ""
	case text[0] == '[' && json.Valid([]byte(text)):
		return said, "", "it is a JSON array, and should be an object"
	case text[0] != '{':
		return said, text, ""
	}
	d := json.NewDecoder(strings.NewReader(text))
	err := d.Decode(&said)
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind): // the other fields were read, and one of them may deny
		return said, "", fmt.Sprintf("%s is a %s, and that field is ignored", kind.Field, kind.Value)
	case err != nil:
		return reply{}, "", "it is not a JSON object: " + err.Error()
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return reply{}, "", "something stands after the JSON object"
	}
	return said, "", ""
}

func (a reply) reason() string {
	return cmp.Or(
		a.Inner.PermissionDecisionReason,
		a.PermissionDecisionReason,
		a.Inner.Decision.Message,
		a.Message,
		a.Reason,
	)
}

// outcome is what the reply of a hook that ended well means.
func (a reply) outcome(h hook) Outcome {
	var out Outcome
	if a.SystemMessage != "" {
		out.UserNotes = append(out.UserNotes, tidy(a.SystemMessage))
	}
	word, known := a.word()
	if !known {
		out.UserNotes = append(
			out.UserNotes,
			fmt.Sprintf("%s: its decision is not known, and is taken for a doubt", h.label()),
		)
	}
	reason := tidy(cmp.Or(a.reason(), h.label()+" gave no reason"))
	switch {
	case h.decides():
		out.Decision, out.Block = word, word == Deny
		if word != Nothing {
			out.DecisionReason = reason
		}
		out.UpdatedInput = unwrap(
			first(a.Inner.UpdatedInput, a.Inner.Decision.Input, a.UpdatedInput, a.Inner.ModifiedArgs, a.ModifiedArgs),
		)
	case h.fact.is(guards):
		out.Block = word == Deny || !known
	case h.fact.is(blocks):
		out.Block = word == Deny
	}
	if text := tidy(strings.Join(nonEmpty(a.Inner.AdditionalContext, a.AdditionalContext), "\n")); text != "" {
		out.Context = []string{text}
	}
	if h.fact.event == PostToolUse || h.fact.event == PostToolUseFailure {
		out.UpdatedOutput = outputText(first(a.Inner.UpdatedToolOutput, a.Inner.UpdatedMCPToolOutput, a.Inner.ModifiedResult,
			a.UpdatedToolOutput, a.UpdatedMCPToolOutput, a.ModifiedResult))
	}
	if first(a.Inner.Decision.Granted) != nil {
		out.UserNotes = append(out.UserNotes, h.label()+": updatedPermissions are not taken over; the call alone is decided")
	}
	if a.Continue != nil && !*a.Continue || a.Interrupt || a.Inner.Decision.Interrupt {
		out.Stop, out.StopReason = true, tidy(cmp.Or(a.StopReason, reason))
		if h.fact.is(guards) { // what is ended does not begin
			out.Block, reason = true, out.StopReason
		}
	}
	if out.Block {
		out.Reason = reason
		if h.decides() {
			out.Decision, out.DecisionReason = Deny, reason
		}
	}
	return out
}

// word is the decision of a reply. One that is not known is a question.
func (a reply) word() (w Word, known bool) {
	switch cmp.Or(a.Inner.PermissionDecision, a.PermissionDecision, a.Inner.Decision.Behavior, a.Behavior, a.Decision) {
	case "":
		return Nothing, true
	case "allow", "approve":
		return Allow, true
	case "deny", "block":
		return Deny, true
	case "ask":
		return Ask, true
	case "defer":
		return Defer, true
	}
	return Ask, false
}

// unwrap is an input, which Copilot may put into a text.
func unwrap(raw json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" {
		return json.RawMessage(text)
	}
	return raw
}

// outputText is an output as text.
func outputText(raw json.RawMessage) *string {
	if raw == nil {
		return nil
	}
	var text string
	var copilot struct {
		Text *string `json:"textResultForLlm"`
	}
	switch {
	case json.Unmarshal(raw, &text) == nil:
	case json.Unmarshal(raw, &copilot) == nil && copilot.Text != nil:
		text = *copilot.Text
	default:
		text = string(raw)
	}
	return &text
}

// merge takes the outcomes of several hooks together, in their order.
func merge(all []Outcome) Outcome {
	var out Outcome
	var reasons, why, stops []string
	for _, o := range all {
		out.UserNotes = append(out.UserNotes, o.UserNotes...)
		out.Context = append(out.Context, o.Context...)
		out.Block, out.Stop = out.Block || o.Block, out.Stop || o.Stop
		reasons, stops = append(reasons, o.Reason), append(stops, o.StopReason)
		if o.Decision.rank() > out.Decision.rank() {
			out.Decision, why = o.Decision, nil
		}
		if o.Decision == out.Decision {
			why = append(why, o.DecisionReason)
		}
		switch {
		case o.UpdatedInput == nil:
		case out.UpdatedInput == nil:
			out.UpdatedInput = o.UpdatedInput
		case !bytes.Equal(out.UpdatedInput, o.UpdatedInput):
			out.UserNotes = append(out.UserNotes, "several hooks change the input of one call: the change of the first holds")
		}
		switch {
		case o.UpdatedOutput == nil:
		case out.UpdatedOutput == nil:
			out.UpdatedOutput = o.UpdatedOutput
		case *out.UpdatedOutput != *o.UpdatedOutput:
			out.UserNotes = append(out.UserNotes, "several hooks change the output of one call: the change of the first holds")
		}
	}
	out.Reason, out.DecisionReason, out.StopReason = lines(reasons), lines(why), lines(stops)
	return out
}

func lines(texts []string) string { return strings.Join(nonEmpty(texts...), "\n") }

func nonEmpty(texts ...string) []string {
	var out []string
	for _, s := range texts {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

// first is the first value that is there.
func first(values ...json.RawMessage) json.RawMessage {
	for _, v := range values {
		if len(v) > 0 && !bytes.Equal(v, []byte("null")) {
			return v
		}
	}
	return nil
}

// tidy makes what a hook printed short and harmless.
func tidy(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > maxText {
		text = fmt.Sprintf("%s\n[%d more bytes are not shown]", strings.ToValidUTF8(text[:maxText], ""), len(text)-maxText)
	}
	return excerpt.Plain(text)
}

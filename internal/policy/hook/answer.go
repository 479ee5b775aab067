package hook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	Block  bool // the event must not happen, or for Stop: the agent must continue
	Reason string

	Decision       Word // PreToolUse and PermissionRequest; Deny comes with Block
	DecisionReason string
	UpdatedInput   json.RawMessage // instead of the input of the call; nil: none
	UpdatedOutput  *string         // instead of the output of the call

	Context   []string // for the model
	UserNotes []string // for the user; also told to [Base.Tell]
	faults    []string // of answers; told to [Base.Fault]

	Stop       bool // the turn is to end
	StopReason string
}

// result is how one hook went.
type result struct {
	code           int // of its exit; 128 and more for a signal
	stdout, stderr string
	long           bool     // stdout begins as an object does, and is too long for one
	async          bool     // it continues in the background
	err            error    // it could not be heard to its end
	notes          []string // also for the user: where long output is, which processes could not be ended
}

// judge interprets the answer of a hook by the rules of the file that it comes from.
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
	said := read(h, r)
	out := said.outcome(h)
	switch {
	case r.code == 0:
		if said.plain != "" && h.fact.is(speaks) {
			out.Context = append([]string{tidy(said.plain)}, out.Context...)
		}
	case h.fact.is(blocks) && (r.code == 2 || h.copilot && h.fact.event == PreToolUse):
		// Whatever was printed cannot take this back.
		none := fmt.Sprintf("%s gave no reason (exit code %d)", h.label(), r.code)
		out = refusal(h, cmp.Or(strings.TrimSpace(r.stderr), said.reason(), said.plain, none))
	default:
		// A hook that has failed may still restrict, and nothing else.
		restricts := h.fact.is(guards) && (out.Block || out.Decision.rank() >= Ask.rank())
		if faults := out.faults; !restricts {
			out = Outcome{faults: faults}
		}
		out.UserNotes = append(out.UserNotes,
			fmt.Sprintf("%s ended with exit code %d: %s", h.label(), r.code, cmp.Or(tidy(r.stderr), "it gave no reason")))
	}
	return out
}

// outcome is what the output of a hook means.
func (p printed) outcome(h hook) Outcome {
	var all []Outcome
	for _, a := range p.replies {
		all = append(all, a.outcome(h))
	}
	if p.bad != "" {
		all = append(all, h.doubtful("its answer cannot be read: "+p.bad))
	}
	return merge(all)
}

func (p printed) reason() string {
	var all []string
	for _, a := range p.replies {
		all = append(all, a.reason())
	}
	return lines(all)
}

// doubtful is the outcome of an answer that may have been a denial: a question, where one can
// be put.
func (h hook) doubtful(what string) Outcome {
	text := h.label() + ": " + what
	if !h.decides() {
		return Outcome{faults: []string{text}}
	}
	return Outcome{faults: []string{text}, Decision: Ask, DecisionReason: text}
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

// specific has the fields that Claude puts into hookSpecificOutput, and Copilot next to the rest.
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

func (a reply) reason() string {
	return cmp.Or(a.Inner.PermissionDecisionReason, a.PermissionDecisionReason, a.Inner.Decision.Message, a.Message,
		a.Reason)
}

// outcome is what the reply of a hook that ended well means.
func (a reply) outcome(h hook) Outcome {
	var out Outcome
	if a.SystemMessage != "" {
		out.UserNotes = append(out.UserNotes, tidy(a.SystemMessage))
	}
	word, unknown := a.word()
	reason := tidy(cmp.Or(a.reason(), h.label()+" gave no reason"))
	if unknown != "" {
		doubt := h.doubtful(fmt.Sprintf("the decision %q is not known", excerpt.Line(unknown, 60)))
		out.faults, reason = doubt.faults, tidy(cmp.Or(a.reason(), doubt.DecisionReason, doubt.faults[0]))
	}
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
		out.Block = word == Deny || unknown != ""
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
		if h.fact.is(guards) { // a turn that ends does not begin the call
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

// word returns the strictest decision of a reply. An unknown decision counts as a question.
func (a reply) word() (w Word, unknown string) {
	for _, said := range []string{
		a.Inner.PermissionDecision, a.PermissionDecision, a.Inner.Decision.Behavior, a.Behavior, a.Decision,
	} {
		one := decision(said)
		if one == Nothing && strings.TrimSpace(said) != "" {
			one, unknown = Ask, said
		}
		if one.rank() > w.rank() {
			w = one
		}
	}
	return w, unknown
}

// decision is the decision that a text names.
func decision(text string) Word {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "allow", "approve":
		return Allow
	case "deny", "block":
		return Deny
	case "ask":
		return Ask
	case "defer":
		return Defer
	}
	return Nothing
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
		out.faults = append(out.faults, o.faults...)
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
			out.UserNotes = append(out.UserNotes, "several answers of hooks change the input of one call: the change of the first holds")
		}
		switch {
		case o.UpdatedOutput == nil:
		case out.UpdatedOutput == nil:
			out.UpdatedOutput = o.UpdatedOutput
		case *out.UpdatedOutput != *o.UpdatedOutput:
			out.UserNotes = append(out.UserNotes, "several answers of hooks change the output of one call: the change of the first holds")
		}
	}
	out.Reason, out.DecisionReason, out.StopReason = lines(reasons), lines(why), lines(stops)
	return out
}

func lines(texts []string) string { return strings.Join(slices.Compact(nonEmpty(texts...)), "\n") }

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

// tidy makes the text of a hook short and harmless.
func tidy(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > maxText {
		text = fmt.Sprintf("%s\n[%d more bytes are not shown]", strings.ToValidUTF8(text[:maxText], ""), len(text)-maxText)
	}
	return excerpt.Inert(excerpt.Plain(text))
}

package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// outputs are what hooks may print, and whether that alone denies.
func outputs() map[string]struct {
	text       string
	deny, show bool // show: the user is told that it is not used
} {
	return map[string]struct {
		text       string
		deny, show bool
	}{
		"nothing":     {"", false, false},
		"text":        {"all is well", false, false},
		"object":      {`{}`, false, false},
		"allow":       {`{"hookSpecificOutput":{"permissionDecision":"allow"}}`, false, false},
		"deny":        {`{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"no"}}`, true, false},
		"flat":        {`{"permissionDecision":"deny"}`, true, false},
		"block":       {`{"decision":"block","reason":"no"}`, true, false},
		"mixed":       {`{"permissionDecision":"deny","additionalContext":5}`, true, true},
		"half":        {`{"decision":"block"`, false, true},
		"array":       {`[{"decision":"block"}]`, false, true},
		"two":         {`{"decision":"block"} {"decision":"block"}`, false, true},
		"rubbish":     {`{decision: block}`, false, true},
		"brace":       {`{"decision":"block"}}`, false, true},
		"deep":        {`{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, false, true},
		"binary":      {"{\x00\xff", false, true},
		"not-begun":   {"\x00\xff", false, false},
		"deepRubbish": {strings.Repeat(`{"a":`, 100_000), false, true},
	}
}

// TestH3H4 is the table of exit codes, outputs and timings, in both forms.
func TestH3H4(t *testing.T) {
	timings := map[string]error{"in-time": nil, "late": errors.New("did not answer"), "interrupted": errInterrupted, "not-started": errors.New("could not be started")}
	for _, form := range []string{"claude", "copilot"} {
		for _, code := range []int{0, 1, 2, 126, 127, 137, 255} {
			for output, o := range outputs() {
				for timing, err := range timings {
					set, _ := load(claude("PreToolUse", "c"))
					h := set.hooks[0]
					h.copilot = form == "copilot"
					want := err != nil || code == 2 || code == 0 && o.deny || code != 0 && form == "copilot"
					out := judge(h, result{code: code, stdout: o.text, stderr: "complaint", err: err})
					name := fmt.Sprintf("%s/%d/%s/%s", form, code, output, timing)
					if out.Block != want || (out.Decision == Deny) != want || want && out.Reason == "" {
						t.Errorf("%s: %+v", name, out)
					}
					if err == nil && o.show != strings.Contains(lines(out.UserNotes), "is not used") {
						t.Errorf("%s: notes %.200q", name, out.UserNotes)
					}
					if err == nil && code == 2 && out.Reason != "complaint" {
						t.Errorf("%s: reason %q", name, out.Reason)
					}
					if err == nil && code != 0 && !want && !strings.Contains(lines(out.UserNotes), "complaint") {
						t.Errorf("%s: the user is not told: %q", name, out.UserNotes)
					}
					// A stop hook that cannot be heard holds nobody up, and a start
					// hook can deny nothing.
					h.fact = factOf(Stop)
					if got := judge(h, result{code: code, stdout: o.text, err: err}).Block; got != (err == nil && (code == 2 || code == 0 && o.deny)) {
						t.Errorf("%s: stop %v", name, got)
					}
					h.fact = factOf(SubagentStart)
					if judge(h, result{code: code, stdout: o.text, err: err}).Block {
						t.Errorf("%s: a start was blocked", name)
					}
				}
			}
		}
	}
}

func TestGuards(t *testing.T) {
	for _, f := range facts() {
		h := hook{fact: f, name: string(f.event)}
		out := judge(h, result{err: errors.New("did not answer")})
		if out.Block != f.is(guards) || len(out.UserNotes) != 1 {
			t.Errorf("%s: %+v", f.event, out)
		}
		// What ends the turn does not let begin what it is asked about.
		if out := judge(h, result{stdout: `{"continue":false,"stopReason":"enough"}`}); !out.Stop || out.StopReason != "enough" || out.Block != f.is(guards) {
			t.Errorf("%s: %+v", f.event, out)
		}
	}
}

func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		event Event
		text  string
		want  Outcome
	}{
		"allow":     {PreToolUse, `{"hookSpecificOutput":{"permissionDecision":"allow","permissionDecisionReason":"r"}}`, Outcome{Decision: Allow, DecisionReason: "r"}},
		"approve":   {PreToolUse, `{"decision":"approve","reason":"r"}`, Outcome{Decision: Allow, DecisionReason: "r"}},
		"ask":       {PreToolUse, `{"permissionDecision":"ask","permissionDecisionReason":"r"}`, Outcome{Decision: Ask, DecisionReason: "r"}},
		"defer":     {PreToolUse, `{"permissionDecision":"defer","permissionDecisionReason":"r"}`, Outcome{Decision: Defer, DecisionReason: "r"}},
		"input":     {PreToolUse, `{"hookSpecificOutput":{"updatedInput":{"a":1}}}`, Outcome{UpdatedInput: json.RawMessage(`{"a":1}`)}},
		"args":      {PreToolUse, `{"modifiedArgs":{"a":1}}`, Outcome{UpdatedInput: json.RawMessage(`{"a":1}`)}},
		"args-text": {PreToolUse, `{"modifiedArgs":"{\"a\":1}"}`, Outcome{UpdatedInput: json.RawMessage(`{"a":1}`)}},
		"context":   {PreToolUse, `{"hookSpecificOutput":{"additionalContext":"c"}}`, Outcome{Context: []string{"c"}}},
		"request":   {PermissionRequest, `{"hookSpecificOutput":{"decision":{"behavior":"allow","message":"m","updatedInput":{"b":2}}}}`, Outcome{Decision: Allow, DecisionReason: "m", UpdatedInput: json.RawMessage(`{"b":2}`)}},
		"refuse":    {PermissionRequest, `{"hookSpecificOutput":{"decision":{"behavior":"deny","message":"m"}}}`, Outcome{Block: true, Reason: "m", Decision: Deny, DecisionReason: "m"}},
		"flat":      {PermissionRequest, `{"behavior":"deny","message":"m"}`, Outcome{Block: true, Reason: "m", Decision: Deny, DecisionReason: "m"}},
		"interrupt": {PermissionRequest, `{"behavior":"deny","message":"m","interrupt":true}`, Outcome{Block: true, Reason: "m", Decision: Deny, DecisionReason: "m", Stop: true, StopReason: "m"}},
		"output":    {PostToolUse, `{"hookSpecificOutput":{"updatedToolOutput":"o"}}`, Outcome{UpdatedOutput: new("o")}},
		"object":    {PostToolUse, `{"hookSpecificOutput":{"updatedMCPToolOutput":{"x":1}}}`, Outcome{UpdatedOutput: new(`{"x":1}`)}},
		"result":    {PostToolUse, `{"modifiedResult":{"resultType":"success","textResultForLlm":"o"}}`, Outcome{UpdatedOutput: new("o")}},
		"early":     {PreToolUse, `{"hookSpecificOutput":{"updatedToolOutput":"o"}}`, Outcome{}},
		"stop":      {Stop, `{"decision":"block","reason":"go on"}`, Outcome{Block: true, Reason: "go on"}},
		"message":   {Stop, `{"systemMessage":"look"}`, Outcome{UserNotes: []string{"look"}}},
		"start":     {SubagentStart, `plain words`, Outcome{Context: []string{"plain words"}}},
		"prompt":    {UserPromptSubmit, `plain words`, Outcome{Context: []string{"plain words"}}},
		"log":       {SessionStart, `[info] ready`, Outcome{Context: []string{"[info] ready"}}},
		"ignored":   {Stop, `plain words`, Outcome{}},
		"escape":    {SessionStart, "a\x1b[31mb", Outcome{Context: []string{"ab"}}},
		"null":      {PreToolUse, `{"hookSpecificOutput":{"updatedInput":null}}`, Outcome{}},
	} {
		t.Run(name, func(t *testing.T) {
			h := hook{fact: factOf(c.event), name: string(c.event)}
			if got := merge([]Outcome{judge(h, result{stdout: c.text})}); encode(got) != encode(c.want) {
				t.Errorf("%s\nwant %s", encode(got), encode(c.want))
			}
		})
	}
	// A doubtful word is a doubt: a question, and a refusal where none can be put.
	for event, word := range map[Event]Word{PreToolUse: Ask, TaskCreated: Nothing} {
		out := judge(hook{fact: factOf(event)}, result{stdout: `{"decision":"blok"}`})
		if out.Decision != word || out.Block != (word == Nothing) || len(out.UserNotes) != 1 {
			t.Errorf("%s: %+v", event, out)
		}
	}
}

func TestMerge(t *testing.T) {
	words := []Word{Nothing, Allow, Ask, Defer, Deny}
	for i, a := range words {
		for j, b := range words {
			out := merge([]Outcome{{Decision: a, DecisionReason: "a" + string(a)}, {Decision: b, DecisionReason: "b" + string(b)}})
			want := words[max(i, j)]
			if out.Decision != want || i > j && out.DecisionReason != "a"+string(a) || i < j && out.DecisionReason != "b"+string(b) {
				t.Errorf("%q and %q: %+v", a, b, out)
			}
		}
	}
	out := merge([]Outcome{
		{Context: []string{"1"}, UpdatedInput: json.RawMessage(`{"a":1}`)}, {Block: true, Reason: "r1"},
		{Context: []string{"2"}, UpdatedInput: json.RawMessage(`{"a":2}`), Block: true, Reason: "r2"},
	})
	if lines(out.Context) != "1\n2" || string(out.UpdatedInput) != `{"a":1}` || out.Reason != "r1\nr2" || len(out.UserNotes) != 1 {
		t.Errorf("%+v", out)
	}
}

func FuzzRead(f *testing.F) {
	for _, o := range outputs() {
		if len(o.text) < 1000 {
			f.Add(o.text, 0)
			f.Add(o.text, 2)
		}
	}
	f.Fuzz(func(t *testing.T, text string, code int) {
		for _, event := range []Event{PreToolUse, Stop, PermissionRequest} {
			out := judge(hook{fact: factOf(event)}, result{stdout: text, code: code})
			if code == 2 && !out.Block || out.Block && out.Reason == "" || (out.Decision == Deny) != (out.Block && event != Stop) {
				t.Errorf("%s: %+v", event, out)
			}
		}
	})
}

package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// outputs are texts that hooks may print, and what each means to a guard. What is doubtful is
// also said to the user.
func outputs() map[string]struct {
	text  string
	word  Word
	doubt bool
} {
	deny := `{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"no"}}`
	return map[string]struct {
		text  string
		word  Word
		doubt bool
	}{
		"nothing":      {"", Nothing, false},
		"text":         {"all is well", Nothing, false},
		"text-words":   {"decision: nothing to deny or block here", Nothing, false},
		"object":       {`{}`, Nothing, false},
		"empty":        {`{"hookSpecificOutput":{"permissionDecision":""},"decision":null}`, Nothing, false},
		"log":          {`{"level":"info","msg":"checked"}` + "\n" + `{"level":"info","msg":"done"}`, Nothing, false},
		"echo":         {`{"tool_name":"Bash","tool_input":{"command":"x","decision":"deny"},"permission_mode":"default"}`, Nothing, false},
		"braces":       {"checked { a: 1 } and { b }", Nothing, false},
		"quoted":       {`{"systemMessage":"deny","additionalContext":"decision: block"}`, Nothing, false},
		"allow":        {`{"hookSpecificOutput":{"permissionDecision":"allow"}}`, Allow, false},
		"deny":         {deny, Deny, false},
		"flat":         {`{"permissionDecision":"deny"}`, Deny, false},
		"capitals":     {`{"permissionDecision":" Deny "}`, Deny, false},
		"block":        {`{"decision":"block","reason":"no"}`, Deny, false},
		"both":         {`{"decision":"block","hookSpecificOutput":{"permissionDecision":"allow"}}`, Deny, false},
		"line":         {"✅ Shell ready\n" + deny, Deny, false},
		"log-line":     {`{"level":"info"}` + "\n" + deny, Deny, false},
		"same-line":    {"ready " + deny + " done", Deny, false},
		"mark":         {"\ufeff" + deny, Deny, false},
		"colours":      {"\x1b[32m{\"decision\":\x1b[1m\"block\"\x1b[0m}\x1b[0m", Deny, false},
		"title":        {"\x1b]0;guard\a" + deny, Deny, false},
		"behind":       {deny + "\nnpm notice { new version }", Deny, false},
		"array":        {`[{"decision":"block"}]`, Deny, false},
		"two":          {`{"decision":"allow"} {"decision":"block"}`, Deny, false},
		"brace":        {`{"decision":"block"}}`, Deny, false},
		"fence":        {"```json\n" + deny + "\n```", Deny, false},
		"mixed":        {`{"permissionDecision":"deny","additionalContext":5}`, Deny, true},
		"cut-deny":     {`{"hookSpecificOutput":{"permissionDecision":"deny"}`, Deny, true},
		"cut-allow":    {`{"hookSpecificOutput":{"permissionDecision":"allow"}`, Ask, true},
		"half":         {`{"decision":"block"`, Ask, true},
		"misspelt":     {`{"hookSpecificOutput":{"permissionDecison":"deny"}}`, Ask, true},
		"misspelt-out": {`{"hookSpecificOuput":{"permissionDecision":"deny"}}`, Ask, true},
		"decsion":      {`{"decsion":"whatever"}`, Ask, true},
		"snake":        {`{"permission_decision":"deny"}`, Ask, true},
		"other-key":    {`{"result":"deny"}`, Ask, true},
		"deeper":       {`{"output":{"decision":"block"}}`, Ask, true},
		"bool":         {`{"permissionDecision":true}`, Ask, true},
		"kind":         {`{"hookSpecificOutput":"deny"}`, Ask, true},
		"word":         {`{"decision":"blok"}`, Ask, true},
		"rubbish":      {`{decision: block}`, Ask, true},
		"python":       {`checked: {'permissionDecision': 'deny'}`, Ask, true},
		"yaml":         {"hookSpecificOutput:\n  permissionDecision: deny", Ask, true},
		"twice-quoted": {`"{\"permissionDecision\":\"deny\"}"`, Ask, true},
		"wide":         {"\xff\xfe{\x00\"\x00", Ask, true},
		"deep":         {`{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, Ask, true},
		"binary":       {"{\x00\xff", Ask, true},
		"not-begun":    {"\x00\xff", Nothing, false},
		"deepRubbish":  {strings.Repeat(`{"a":`, 100_000), Ask, true},
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
					want := o.word
					switch {
					case err != nil, code == 2, code != 0 && form == "copilot":
						want = Deny
					case code != 0 && want == Allow:
						want = Nothing
					}
					out := judge(h, result{code: code, stdout: o.text, stderr: "complaint", err: err})
					name := fmt.Sprintf("%s/%d/%s/%s", form, code, output, timing)
					if out.Decision != want || out.Block != (want == Deny) || out.Block && out.Reason == "" || want == Ask && out.DecisionReason == "" {
						t.Errorf("%s: %+v", name, out)
					}
					if err == nil && (code == 0 || want != Deny) && o.doubt != (len(out.faults) > 0) {
						t.Errorf("%s: told %.200q", name, out.faults)
					}
					if err == nil && code == 2 && out.Reason != "complaint" {
						t.Errorf("%s: reason %q", name, out.Reason)
					}
					if err == nil && code != 0 && want != Deny && !strings.Contains(lines(out.UserNotes), "complaint") {
						t.Errorf("%s: the user is not told: %q", name, out.UserNotes)
					}
					// A stop hook that cannot be heard holds nobody up, and a start
					// hook can deny nothing.
					h.fact = factOf(Stop)
					if got := judge(h, result{code: code, stdout: o.text, err: err}).Block; got != (err == nil && (code == 2 || code == 0 && o.word == Deny)) {
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
		"around":    {SessionStart, "see [{\"decision\":1}]\n{\"systemMessage\":\"look\"}\nmore", Outcome{Context: []string{"see [{\"decision\":1}]\n\nmore"}, UserNotes: []string{"look"}}},
		"late":      {UserPromptSubmit, "hello\n{\"decision\":\"block\",\"reason\":\"r\"}", Outcome{Block: true, Reason: "r", Context: []string{"hello"}}},
		"example":   {UserPromptSubmit, `write {"decision":"block"} for this`, Outcome{Context: []string{`write {"decision":"block"} for this`}}},
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
		if out.Decision != word || out.Block != (word == Nothing) || len(out.faults) != 1 {
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

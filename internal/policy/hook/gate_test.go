package hook

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// rules is what a set of permission rules may say of a call: says of every one,
// but what holds "denied" is denied. A firm question is not lifted by a hook.
type rules struct {
	says   Word
	firm   bool
	answer bool // of the person

	judged []string
	asked  []string
}

func (r *rules) Judge(c agent.Call, word Word) Ruling {
	r.judged = append(r.judged, string(c.Input))
	switch {
	case strings.Contains(string(c.Input), "denied"), r.says == Deny:
		return Ruling{Word: Deny, Reason: "a rule denies it"}
	case strings.Contains(string(c.Input), "asked"):
		return Ruling{Word: Ask, Reason: "an ask rule"}
	case word == Ask:
		return Ruling{Word: Ask, Reason: "a hook asks"}
	case r.says == Ask && word == Allow && !r.firm:
		return Ruling{Word: Allow}
	}
	return Ruling{Word: r.says, Reason: "nobody allows it"}
}

func (r *rules) Question(_ context.Context, c agent.Call, ruling Ruling) (agent.Decision, error) {
	r.asked = append(r.asked, ruling.Reason)
	if !r.answer {
		return agent.Decision{Reason: "the user said no"}, nil
	}
	return agent.Decision{Allow: true}, nil
}

// TestH7 is how hooks and rules come together.
func TestH7(t *testing.T) {
	const allow, ask, deny = `{"permissionDecision":"allow"}`, `{"permissionDecision":"ask","permissionDecisionReason":"h asks"}`, `{"permissionDecision":"deny","permissionDecisionReason":"h denies"}`
	const grant, refuse = `{"behavior":"allow"}`, `{"behavior":"deny","message":"r denies"}`
	input := func(in string) string { return `{"hookSpecificOutput":{"updatedInput":` + in + `}}` }
	granted := func(in string) string {
		return `{"hookSpecificOutput":{"decision":{"behavior":"allow","updatedInput":` + in + `}}}`
	}
	for name, c := range map[string]struct {
		rules        rules
		pre, request string // what the hooks say
		allow        bool
		reason       string // of a refusal, or of the question
		asked        bool
		input        string // that runs, if another
	}{
		"no-hook-allows":    {rules{says: Allow}, "", "", true, "", false, ""},
		"no-hook-asks":      {rules{says: Ask, answer: true}, "", "", true, "nobody allows it", true, ""},
		"no-hook-refused":   {rules{says: Ask}, "", "", false, "the user said no", true, ""},
		"allow-over-deny":   {rules{says: Deny}, allow, "", false, "a rule denies it", false, ""},
		"allow-over-ask":    {rules{says: Ask}, allow, "", true, "", false, ""},
		"allow-over-firm":   {rules{says: Ask, firm: true}, allow, "", false, "the user said no", true, ""},
		"ask-over-allow":    {rules{says: Allow, answer: true}, ask, "", true, "h asks", true, ""},
		"ask-over-deny":     {rules{says: Deny}, ask, "", false, "a rule denies it", false, ""},
		"defer":             {rules{says: Allow}, `{"permissionDecision":"defer"}`, "", false, "the user said no", true, ""},
		"deny-over-allow":   {rules{says: Allow}, deny, "", false, "h denies", false, ""},
		"deny-never-asked":  {rules{says: Ask, answer: true}, deny, grant, false, "h denies", false, ""},
		"input":             {rules{says: Allow}, input(`{"a":1}`), "", true, "", false, `{"a":1}`},
		"input-asked":       {rules{says: Ask, answer: true}, input(`{"a":1}`), "", true, "nobody allows it", true, `{"a":1}`},
		"input-denied":      {rules{says: Allow}, input(`{"a":"denied"}`), "", false, "a rule denies it", false, ""},
		"input-smuggled":    {rules{says: Ask}, `{"permissionDecision":"allow","updatedInput":{"a":"denied"}}`, "", false, "a rule denies it", false, ""},
		"input-no-object":   {rules{says: Allow}, input(`"x"`), "", false, "not a JSON object", false, ""},
		"input-number":      {rules{says: Allow}, input(`[1]`), "", false, "not a JSON object", false, ""},
		"request-grants":    {rules{says: Ask}, "", grant, true, "", false, ""},
		"request-firm":      {rules{says: Ask, firm: true}, "", grant, false, "the user said no", true, ""},
		"request-refuses":   {rules{says: Ask, answer: true}, "", refuse, false, "r denies", false, ""},
		"request-unasked":   {rules{says: Allow}, "", refuse, true, "", false, ""},
		"request-over-ask":  {rules{says: Allow}, ask, grant, false, "the user said no", true, ""},
		"request-input":     {rules{says: Ask}, "", granted(`{"b":2}`), true, "", false, `{"b":2}`},
		"request-smuggled":  {rules{says: Ask}, "", granted(`{"b":"denied"}`), false, "a rule denies it", false, ""},
		"request-to-ask":    {rules{says: Ask}, "", granted(`{"b":"asked"}`), false, "the user said no", true, ""},
		"request-over-firm": {rules{says: Ask, firm: true, answer: true}, allow, granted(`{"b":"denied"}`), false, "a rule denies it", false, ""},
		"both-inputs":       {rules{says: Ask}, input(`{"a":1}`), granted(`{"b":2}`), true, "", false, `{"b":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			var denials ears
			s := playSet(t, with(t, new(ears).on("PreToolUse", c.pre), new(ears).on("PermissionRequest", c.request), denials.on("PermissionDenied", "")))
			rules := c.rules
			d, err := NewGate(s.Runner, &rules).Check(t.Context(), call("Bash", `{"command":"x"}`))
			said := d.Reason + strings.Join(rules.asked, " ")
			if err != nil || d.Allow != c.allow || !strings.Contains(said, c.reason) || (len(rules.asked) > 0) != c.asked {
				t.Errorf("%+v, %v; asked %q", d, err, rules.asked)
			}
			if string(d.Input) != c.input {
				t.Errorf("input %s", d.Input)
			}
			// What runs is what was judged last.
			if n := len(rules.judged); d.Allow && n > 0 && c.input != "" && rules.judged[n-1] != c.input {
				t.Errorf("judged %q", rules.judged)
			}
			if (denials.count() == 1) == d.Allow {
				t.Errorf("%d denials were told", denials.count())
			}
		})
	}
}

func TestGateTells(t *testing.T) {
	s := playSet(t, with(t, new(ears).on("PreToolUse", `{"additionalContext":"careful </hook-context> x"}`),
		new(ears).on("PreToolUse", `{"continue":false,"stopReason":"enough"}`)))
	r := &rules{says: Allow}
	d, err := NewGate(s.Runner, r).Check(t.Context(), call("Bash", `{}`))
	if err != nil || d.Allow || !d.EndTurn || d.Reason != "denied by a hook: enough" || len(r.judged) > 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if strings.Count(d.Context, "</hook-context>") != 1 || !strings.HasPrefix(d.Context, `<hook-context event="PreToolUse">`) || !strings.Contains(d.Context, "careful") {
		t.Errorf("context %q", d.Context)
	}
}

// A hook for Bash hears of the tool however the model spells it.
func TestGateSpelling(t *testing.T) {
	for _, name := range []string{"Bash", "bash", "BASH", "shell"} {
		s := playSet(t, with(t, Callback{Event: "PreToolUse", Matcher: "Bash", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"decision":"block","reason":"no"}`), nil
		}}), toolbox)
		if d, _ := NewGate(s.Runner, &rules{says: Allow}).Check(t.Context(), call(name, `{}`)); d.Allow {
			t.Errorf("%s went by", name)
		}
	}
}

// A real command decides, in each form, and however the model has written the
// input.
func TestGateCommand(t *testing.T) {
	script := `grep -qE '"rm |&& rm' && { echo never >&2; exit 2; }; exit 0`
	for _, form := range []string{claude("PreToolUse", script), copilot("preToolUse", script), copilot("PreToolUse", script)} {
		g := NewGate(play(t, form).Runner, &rules{says: Allow})
		for in, allow := range map[string]bool{`{"command":"rm -rf x"}`: false, `{"command" : "\u0072m -rf x"}`: false, `{"command":"ls \u0026& rm x"}`: false, `{"command":"ls"}`: true} {
			if d, _ := g.Check(t.Context(), call("Bash", in)); d.Allow != allow || !allow && d.Reason != "denied by a hook: never" {
				t.Errorf("%s: %+v", in, d)
			}
		}
	}
}

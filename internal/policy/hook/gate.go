package hook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Rules decides calls for a [Gate]. Its methods may be called by several goroutines.
type Rules interface {
	// Judge returns the ruling on a call, without a question. word is the decision
	// of a hook: Ask turns permission into a question. Allow permits a call that
	// would be asked about only because no rule matches it, and lifts neither a
	// denial, nor an ask rule, nor a question about a dangerous shape.
	Judge(c agent.Call, word Word) Ruling
	// Question puts the question to somebody, and denies where it cannot be
	// answered. The ruling says why it is asked.
	Question(ctx context.Context, c agent.Call, r Ruling) (agent.Decision, error)
}

// Ruling is what [Rules] make of a call.
type Ruling struct {
	Word    Word // Allow, Ask or Deny
	Reason  string
	Suggest string // the rule that would allow the call; empty: none would
}

// Gate is an [agent.Gate] whose hooks are heard before its rules.
type Gate struct {
	r     *Runner
	rules Rules
}

var _ agent.Gate = (*Gate)(nil)

// NewGate makes a gate.
func NewGate(r *Runner, rules Rules) *Gate { return &Gate{r, rules} }

// Check lets PreToolUse hooks speak first. What they deny is neither judged nor
// asked; a call that they change is judged as it would run. Before a question is
// put to somebody PermissionRequest hooks may answer it, as far as [Rules] let
// them; PermissionDenied hooks run for every denial.
func (g *Gate) Check(ctx context.Context, c agent.Call) (agent.Decision, error) {
	pre := g.hear(ctx, PreToolUse, c, nil)
	d, err := g.decide(ctx, &c, pre)
	if err != nil {
		return d, err
	}
	d.EndTurn = d.EndTurn || pre.Stop
	if d.Allow && d.Input == nil && pre.UpdatedInput != nil {
		d.Input = c.Input
	}
	told := pre.Context
	if !d.Allow && ctx.Err() == nil {
		after := g.hear(ctx, PermissionDenied, c, map[string]any{"reason": d.Reason})
		told = append(told, after.Context...)
		d.EndTurn = d.EndTurn || after.Stop
	}
	d.Context = strings.Join(nonEmpty(d.Context, Marked(PreToolUse, told...)), "\n")
	return d, nil
}

// hear runs the hooks of an event about a call. Nothing is made where there are
// none.
func (g *Gate) hear(ctx context.Context, e Event, c agent.Call, more map[string]any) Outcome {
	if !g.r.set.Has(e) {
		return Outcome{}
	}
	fields := g.r.toolFields(c)
	maps.Copy(fields, more)
	return g.r.Run(ctx, e, fields)
}

// deniedByHook precedes the reason that a hook gives: it keeps the user from looking
// for a rule that would allow the call.
const deniedByHook = "denied by a hook: "

// decide changes the call as hooks want it.
func (g *Gate) decide(ctx context.Context, c *agent.Call, pre Outcome) (agent.Decision, error) {
	if pre.Block {
		return agent.Decision{Reason: deniedByHook + pre.Reason}, nil
	}
	if refused := change(c, pre.UpdatedInput); refused != "" {
		return agent.Decision{Reason: refused}, nil
	}
	word := pre.Decision
	if word == Defer {
		word = Ask
	}
	ruling := g.rules.Judge(*c, word)
	switch ruling.Word {
	case Allow:
		return agent.Decision{Allow: true}, nil
	case Ask:
	default:
		return agent.Decision{Reason: ruling.Reason, Suggest: ruling.Suggest}, nil
	}
	if word == Ask {
		ruling.Reason, ruling.Suggest = cmp.Or(pre.DecisionReason,
			ruling.Reason), "" // no rule takes the hook's question away
	}
	return g.ask(ctx, c, word, ruling)
}

// ask lets hooks answer a question before somebody is asked.
func (g *Gate) ask(ctx context.Context, c *agent.Call, word Word, ruling Ruling) (agent.Decision, error) {
	said := g.hear(ctx, PermissionRequest, *c, map[string]any{"reason": ruling.Reason})
	if said.Block {
		return agent.Decision{Reason: deniedByHook + said.Reason, EndTurn: said.Stop}, nil
	}
	changed := said.UpdatedInput != nil
	if refused := change(c, said.UpdatedInput); refused != "" {
		return agent.Decision{Reason: refused}, nil
	}
	// Its word counts no more than the word of an earlier hook.
	again := word
	if said.Decision == Allow && word != Ask {
		again = Allow
	}
	if changed || again != word {
		ruling = g.rules.Judge(*c, again)
		switch ruling.Word {
		case Allow:
			return agent.Decision{Allow: true, Input: inputIf(changed, c)}, nil
		case Ask:
		default:
			return agent.Decision{Reason: ruling.Reason, Suggest: ruling.Suggest}, nil
		}
	}
	d, err := g.rules.Question(ctx, *c, ruling)
	if d.Allow && d.Input == nil {
		d.Input = inputIf(changed, c)
	}
	return d, err
}

func inputIf(changed bool, c *agent.Call) json.RawMessage {
	if !changed {
		return nil
	}
	return c.Input
}

// change puts a hook's input into a call, or says why it cannot.
func change(c *agent.Call, in json.RawMessage) (refused string) {
	if in == nil {
		return ""
	}
	if !json.Valid(in) || !bytes.HasPrefix(bytes.TrimSpace(in), []byte("{")) {
		return "a hook changed the input of this call into something that is not a JSON object"
	}
	c.Input = in
	return ""
}

// Marked is what hooks say to a model, apart from what others say. It is empty
// for no texts.
func Marked(e Event, texts ...string) string {
	text := lines(texts)
	if text == "" {
		return ""
	}
	return excerpt.Element("hook-context", text, "event", string(e))
}

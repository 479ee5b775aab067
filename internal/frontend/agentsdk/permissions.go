package agentsdk

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// AskWait is how long the program may take to decide about a call.
const AskWait = 24 * time.Hour

// questions asks the program about the questions of the session that it decides, until ctx ends. A question after the
// program has closed stdin is denied.
func (c *Conn) questions(ctx context.Context, s Driven) {
	err := control.EachQuestion(ctx, s.API, false, func(asked context.Context, q task.Question) {
		if s.Decides || q.Kind == task.Form {
			c.decide(ctx, asked, s, q)
		}
	})
	if err != nil {
		c.warning("read the open questions: %v", err)
	}
}

// change is a change of permissions in the form of the SDK.
type change struct {
	Type        string `json:"type"`
	Rules       []rule `json:"rules,omitempty"`
	Behavior    string `json:"behavior,omitempty"`
	Mode        string `json:"mode,omitempty"`
	Destination string `json:"destination"`
}

type rule struct {
	Tool    string `json:"toolName"`
	Content string `json:"ruleContent,omitempty"`
}

// suggestions are the changes that the program can make with a decision: the rule that allows the call, or for a plan
// the mode that accepts edits.
func suggestions(q task.Question) []change {
	if q.Tool == task.ExitPlanMode {
		return []change{{Type: "setMode", Mode: "acceptEdits", Destination: "session"}}
	}
	return suggestion(q.Suggest)
}

func suggestion(text string) []change {
	if text == "" {
		return []change{}
	}
	r := rule{Tool: text}
	if name, rest, ok := strings.Cut(text, "("); ok && strings.HasSuffix(rest, ")") {
		r = rule{name, strings.TrimSuffix(rest, ")")}
	}
	return []change{{Type: "addRules", Rules: []rule{r}, Behavior: "allow", Destination: "localSettings"}}
}

// verdict is the decision of the program about a question.
type verdict struct {
	reply  task.Reply
	always string // the rule to keep; empty: none
	stop   bool   // interrupt the turn
}

// decide asks the program one question and gives its answer to the session. asked ends when the question is answered
// elsewhere, and ctx with the session.
func (c *Conn) decide(ctx, asked context.Context, s Driven, q task.Question) {
	v := verdict{}
	if q.Kind == task.Form {
		v.reply = c.fill(asked, s, q)
	} else {
		v = c.permission(asked, s, q)
	}
	if asked.Err() != nil { // answered elsewhere, or the session ends
		return
	}
	if v.stop { // before the denial, which would continue the turn
		c.interrupt(ctx, s)
	}
	req := control.DecideRequest{
		ID: q.ID, Digest: q.Digest, Reply: v.reply, Always: v.always, Actor: task.ByUser,
		Detail: "can_use_tool of the Agent SDK",
	}
	err := s.API.Decide(ctx, req)
	if err != nil && req.Always != "" { // the question may still be open
		c.warning("the rule %s is not kept: %v", req.Always, err)
		req.Always = ""
		err = s.API.Decide(ctx, req)
	}
	if control.IsCode(err, control.Invalid) { // the call must not wait for another answer
		req.Reply = task.Reply{Dismissed: q.Kind == task.Form,
			Reason: fmt.Sprintf("the program's decision cannot be used: %v", err)}
		c.warning("answer question %s: %v", q.ID, err)
		err = s.API.Decide(ctx, req)
	}
	elsewhere := control.IsCode(err, control.Conflict) || control.IsCode(err, control.NotFound)
	if err != nil && !elsewhere && ctx.Err() == nil {
		c.warning("answer question %s: %v", q.ID, err)
	}
}

// decision asks the program for a decision that the session waits for.
func (c *Conn) decision(ctx context.Context, s Driven, request any) (json.RawMessage, error) {
	s.Stream.changeState("requires_action")
	defer s.Stream.changeState("running")
	return c.ask(ctx, request)
}

// permission asks whether a call may run. Without a usable answer it may not.
func (c *Conn) permission(ctx context.Context, s Driven, q task.Question) verdict {
	denied := func(format string, args ...any) verdict {
		return verdict{reply: task.Reply{Reason: fmt.Sprintf(format, args...)}}
	}
	q, ok := control.WholeQuestion(ctx, s.API, q)
	if !ok {
		return denied("the call could not be shown completely")
	}
	request := map[string]any{
		"subtype": "can_use_tool", "tool_name": q.Tool, "display_name": q.Tool, "input": q.Input, "description": q.Reason,
		"decision_reason": q.Reason, "tool_use_id": q.ToolUseID, "permission_suggestions": suggestions(q),
	}
	if q.Task != s.ID && q.Task != "" {
		request["agent_id"] = q.Task
	}
	raw, err := c.decision(ctx, s, request)
	if err != nil {
		return denied("nobody decided about this call: %v", err)
	}
	var a struct {
		Behavior  string          `json:"behavior"`
		Message   string          `json:"message"`
		Interrupt bool            `json:"interrupt"`
		Input     json.RawMessage `json:"updatedInput"`
		Updates   []change        `json:"updatedPermissions"`
	}
	if err := json.Unmarshal(raw, &a); err != nil || a.Behavior != "allow" && a.Behavior != "deny" {
		return denied("the program's decision is neither allow nor deny")
	}
	v := verdict{}
	if a.Behavior == "deny" {
		v.reply.Reason, v.stop = a.Message, a.Interrupt
		return v
	}
	for _, u := range a.Updates {
		switch {
		case u.Type == "setMode" && q.Tool == task.ExitPlanMode && u.Mode == suggestions(q)[0].Mode:
			v.reply.AcceptEdits = true
		case u.Type == "setMode":
			mode := Mode(u.Mode)
			if _, err := c.configure(ctx, s, control.ConfigureRequest{Mode: &mode}); err != nil {
				c.warning("the permission mode is unchanged: %v", err)
			}
		case q.Suggest != "" && same(u, suggestion(q.Suggest)[0]):
			v.always = q.Suggest
		default:
			c.warning("a change of permissions of type %s was ignored: only the suggested ones are possible", quoted(u.Type))
		}
	}
	if q.Kind == task.Choice {
		v.reply = chosen(q.Input, a.Input)
		return v
	}
	if len(a.Input) > 0 && equalJSON(a.Input, q.Input) {
		a.Input = nil
	}
	v.reply.Allow, v.reply.Input = true, a.Input
	return v
}

func same(a, b change) bool {
	return a.Type == b.Type && a.Behavior == b.Behavior && a.Destination == b.Destination &&
		len(a.Rules) == 1 && a.Rules[0] == b.Rules[0]
}

// equalJSON reports whether two texts encode the same value.
func equalJSON(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	one, err1 := json.Marshal(x)
	two, err2 := json.Marshal(y)
	return err1 == nil && err2 == nil && string(one) == string(two)
}

package sdkcontrol

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// AskWait is how long the program may take to decide about a call.
const AskWait = 24 * time.Hour

// follow is how long a listing of questions is waited for at once.
const follow = time.Minute

// Questions asks the program about each question of the session that it decides about, until
// ctx ends. A question that somebody else has answered is taken back; what is asked after the
// program has closed stdin is denied.
func (c *Conn) Questions(ctx context.Context, s Session) {
	var asking sync.WaitGroup
	defer asking.Wait()
	open := map[string]context.CancelCauseFunc{} // by ID
	defer func() {
		for _, stop := range open {
			stop(ErrEnded)
		}
	}()
	version := int64(0)
	for ctx.Err() == nil {
		now, err := s.API.Approvals(ctx, control.ApprovalsRequest{After: version, Wait: follow})
		if err != nil {
			if ctx.Err() == nil {
				c.warning("read the open questions: %v", err)
			}
			return
		}
		version = now.Version
		listed := map[string]bool{}
		for _, q := range now.Questions {
			listed[q.ID] = true
			if open[q.ID] != nil || !s.Decides && q.Kind != task.Form {
				continue
			}
			one, stop := context.WithCancelCause(ctx)
			open[q.ID] = stop
			asking.Go(func() { c.decide(ctx, one, s, q) })
		}
		for id, stop := range open {
			if !listed[id] {
				stop(errAnswered)
				delete(open, id)
			}
		}
	}
}

var errAnswered = fmt.Errorf("the question was answered elsewhere")

// update is a change of permissions, as the SDK writes it.
type update struct {
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

// suggestions are what the program can allow beside a call, in the words of the SDK: our rule,
// and for a plan the mode in which edits are accepted.
func suggestions(q task.Question) []update {
	if q.Tool == task.ExitPlanMode {
		return []update{{Type: "setMode", Mode: "acceptEdits", Destination: "session"}}
	}
	return suggestion(q.Suggest)
}

func suggestion(text string) []update {
	if text == "" {
		return []update{}
	}
	r := rule{Tool: text}
	if name, rest, ok := strings.Cut(text, "("); ok && strings.HasSuffix(rest, ")") {
		r = rule{name, strings.TrimSuffix(rest, ")")}
	}
	return []update{{Type: "addRules", Rules: []rule{r}, Behavior: "allow", Destination: "localSettings"}}
}

// verdict is what the program says about a question.
type verdict struct {
	reply  task.Reply
	always string // the rule that it wants kept; empty: none
	stop   bool   // it breaks off the turn
}

// decide asks the program about one question and gives its answer to the session. asked ends
// when nobody waits for the answer any more, and ctx with the session.
func (c *Conn) decide(ctx, asked context.Context, s Session, q task.Question) {
	v := verdict{}
	if q.Kind == task.Form {
		v.reply = c.fill(asked, s, q)
	} else {
		v = c.permission(asked, s, q)
	}
	if asked.Err() != nil { // somebody else has answered, or the session ends
		return
	}
	if v.stop { // before the denial, or the model would be asked again
		if _, err := s.API.Interrupt(ctx, string(s.ID)); err != nil && code(err) != control.Conflict {
			c.warning("interrupt: %v", err)
		}
	}
	req := control.DecideRequest{
		ID: q.ID, Digest: q.Digest, Reply: v.reply, Always: v.always, Actor: task.ByUser,
		Detail: "can_use_tool of the Agent SDK",
	}
	err := s.API.Decide(ctx, req)
	if err != nil && req.Always != "" { // the question is still open, or somebody was faster
		c.warning("the rule %s is not kept: %v", req.Always, err)
		req.Always = ""
		err = s.API.Decide(ctx, req)
	}
	if err != nil && code(err) == control.Invalid { // the call must not wait for an answer that nobody will give
		req.Reply = task.Reply{Dismissed: q.Kind == task.Form,
			Reason: fmt.Sprintf("the program's decision cannot be used: %v", err)}
		c.warning("answer question %s: %v", q.ID, err)
		err = s.API.Decide(ctx, req)
	}
	faster := code(err) == control.Conflict || code(err) == control.NotFound // somebody else
	if err != nil && !faster && ctx.Err() == nil {
		c.warning("answer question %s: %v", q.ID, err)
	}
}

// whole is a question with its whole input, of which a listing shows a part.
func whole(ctx context.Context, s Session, q task.Question) (task.Question, bool) {
	if q.Hidden == 0 {
		return q, true
	}
	all, err := s.API.Approvals(ctx, control.ApprovalsRequest{ID: q.ID})
	if err != nil || len(all.Questions) != 1 {
		return q, false
	}
	q.Input = all.Questions[0].Input
	return q, true
}

// decision asks the program for something that the session waits for.
func (c *Conn) decision(ctx context.Context, s Session, request any) (json.RawMessage, error) {
	state := func(now string) {
		s.Line(map[string]any{"type": "system", "subtype": "session_state_changed", "state": now, "sdk_host_only": true})
	}
	state("requires_action")
	defer state("running")
	return c.ask(ctx, request)
}

// permission is what the program says. What it cannot be asked, and what it answers
// wrongly, is denied.
func (c *Conn) permission(ctx context.Context, s Session, q task.Question) verdict {
	denied := func(format string, args ...any) verdict {
		return verdict{reply: task.Reply{Reason: fmt.Sprintf(format, args...)}}
	}
	q, ok := whole(ctx, s, q)
	if !ok {
		return denied("the call could not be shown whole")
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
		Updates   []update        `json:"updatedPermissions"`
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
			if _, err := s.Configure(ctx, control.ConfigureRequest{Mode: &mode}); err != nil {
				c.warning("the permission mode stays: %v", err)
			}
		case q.Suggest != "" && same(u, suggestion(q.Suggest)[0]):
			v.always = q.Suggest
		default:
			c.warning("a change of permissions of type %s was passed over: only the suggested ones are taken", quoted(u.Type))
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

func same(a, b update) bool {
	return a.Type == b.Type && a.Behavior == b.Behavior && a.Destination == b.Destination &&
		len(a.Rules) == 1 && a.Rules[0] == b.Rules[0]
}

// equalJSON reports whether two texts hold the same value.
func equalJSON(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	one, err1 := json.Marshal(x)
	two, err2 := json.Marshal(y)
	return err1 == nil && err2 == nil && string(one) == string(two)
}

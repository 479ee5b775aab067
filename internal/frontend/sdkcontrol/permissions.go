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

// Permissions asks the program about each question of the session, until ctx ends. A
// question that somebody else has answered is taken back; what is asked after the program
// has closed stdin is denied.
func (c *Conn) Permissions(ctx context.Context, s Session) {
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
			if open[q.ID] != nil {
				continue
			}
			one, stop := context.WithCancelCause(ctx)
			open[q.ID] = stop
			asking.Go(func() { c.decide(one, s, q) })
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

// decide asks the program about one question and gives its answer to the session.
func (c *Conn) decide(ctx context.Context, s Session, q task.Question) {
	reply, always := c.permission(ctx, s, q)
	if ctx.Err() != nil { // somebody else has answered, or the session ends
		return
	}
	err := s.API.Decide(ctx, control.DecideRequest{
		ID: q.ID, Digest: q.Digest, Reply: reply, Always: always, Actor: task.ByUser, Detail: "can_use_tool of the Agent SDK",
	})
	if err != nil && code(err) != control.Conflict && ctx.Err() == nil { // a conflict: somebody was faster
		c.warning("answer question %s: %v", q.ID, err)
	}
}

// permission is what the program says. What it cannot be asked, and what it answers
// wrongly, is denied.
func (c *Conn) permission(ctx context.Context, s Session, q task.Question) (reply task.Reply, always string) {
	if q.Kind != task.Permission && q.Kind != "" {
		return task.Reply{Reason: "the program that drives this session decides about permissions only"}, ""
	}
	if q.Hidden > 0 { // the listing shows a part of it
		whole, err := s.API.Approvals(ctx, control.ApprovalsRequest{ID: q.ID})
		if err != nil || len(whole.Questions) != 1 {
			return task.Reply{Reason: "the call could not be shown whole"}, ""
		}
		q.Input = whole.Questions[0].Input
	}
	request := map[string]any{
		"subtype": "can_use_tool", "tool_name": q.Tool, "display_name": q.Tool, "input": q.Input, "description": q.Reason,
		"decision_reason": q.Reason, "tool_use_id": q.ToolUseID, "permission_suggestions": suggestions(q),
	}
	if q.Task != s.ID && q.Task != "" {
		request["agent_id"] = q.Task
	}
	s.Line(map[string]any{"type": "system", "subtype": "session_state_changed", "state": "requires_action",
		"sdk_host_only": true})
	raw, err := c.ask(ctx, request)
	s.Line(map[string]any{"type": "system", "subtype": "session_state_changed", "state": "running", "sdk_host_only": true})
	if err != nil {
		return task.Reply{Reason: fmt.Sprintf("nobody decided about this call: %v", err)}, ""
	}
	var a struct {
		Behavior string          `json:"behavior"`
		Message  string          `json:"message"`
		Input    json.RawMessage `json:"updatedInput"`
		Updates  []update        `json:"updatedPermissions"`
	}
	if err := json.Unmarshal(raw, &a); err != nil || a.Behavior != "allow" && a.Behavior != "deny" {
		return task.Reply{Reason: "the program's decision is neither allow nor deny"}, ""
	}
	if a.Behavior == "deny" {
		return task.Reply{Reason: a.Message}, ""
	}
	for _, u := range a.Updates {
		switch {
		case u.Type == "setMode" && q.Tool == task.ExitPlanMode && u.Mode == suggestions(q)[0].Mode:
			reply.AcceptEdits = true
		case u.Type == "setMode":
			mode := Mode(u.Mode)
			if _, err := s.Configure(ctx, control.ConfigureRequest{Mode: &mode}); err != nil {
				c.warning("the permission mode stays: %v", err)
			}
		case q.Suggest != "" && same(u, suggestion(q.Suggest)[0]):
			always = q.Suggest
		default:
			c.warning("a change of permissions of type %s was passed over: only the suggested ones are taken", quoted(u.Type))
		}
	}
	if len(a.Input) > 0 && equalJSON(a.Input, q.Input) {
		a.Input = nil
	}
	reply.Allow, reply.Input = true, a.Input
	return reply, always
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

package acpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/acpwire"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// AskWait is how long the client may take to decide about a call.
const AskWait = 24 * time.Hour

// The options of a permission request.
const (
	allowOnce   acp.PermissionOptionId = "allow"
	allowAlways acp.PermissionOptionId = "allow-always"
	allowEdits  acp.PermissionOptionId = "allow-edits"
	reject      acp.PermissionOptionId = "reject"
)

// questions asks the client each question of the session until the session is closed. It withdraws a request
// whose question is answered elsewhere.
func (s *session) questions() {
	if err := control.EachQuestion(s.ctx, s.api, true, s.decide); err != nil {
		s.warn("read the open questions", err)
	}
}

// decide asks the client one question and gives its answer to the session. A client that has left decides
// nothing: the session is about to close.
func (s *session) decide(ctx context.Context, q task.Question) {
	reply, always, err := s.ask(ctx, q)
	if errors.Is(err, errLater) || errors.Is(err, acpwire.ErrClosed) {
		return
	}
	view := s.stageOf(q.Task).view
	if ctx.Err() != nil { // answered elsewhere, or the session is closed
		view.settle(q.ID, false)
		return
	}
	if err != nil {
		reply, always = task.Reply{Reason: fmt.Sprintf("nobody decided about this call: %v", err)}, ""
	}
	view.settle(q.ID, reply.Allow)
	err = s.api.Decide(ctx, control.DecideRequest{
		ID: q.ID, Digest: q.Digest, Reply: reply, Always: always, Actor: task.ByUser,
		Detail: "session/request_permission of ACP",
	})
	if err != nil && !control.IsCode(err, control.Conflict) && ctx.Err() == nil { // a conflict: another answer was faster
		s.of.warn("answer question %s: %v", q.ID, err)
	}
}

// errLater means that the client cannot be asked, and the question stays open for others.
var errLater = errors.New("the client cannot be asked")

// ask returns the client's answer to a question.
func (s *session) ask(ctx context.Context, q task.Question) (reply task.Reply, always string, err error) {
	q, ok := control.WholeQuestion(ctx, s.api, q)
	if !ok {
		return task.Reply{Reason: "the call could not be shown completely"}, "", nil
	}
	switch q.Kind {
	case task.Choice:
		reply, err = s.choose(ctx, q)
		return reply, "", err
	case task.Form:
		reply, err = s.fill(ctx, q)
		return reply, "", err
	}
	return s.permit(ctx, q)
}

// permit asks whether a call may run.
func (s *session) permit(ctx context.Context, q task.Question) (reply task.Reply, always string, err error) {
	on := s.stageOf(q.Task)
	about := on.view.ask(q)
	if q.Reason != "" && len(about.Content) == 0 {
		about.Content = text(excerpt.Plain(q.Reason))
	}
	chosen, err := s.pick(ctx, on, about, options(q))
	if err != nil {
		return reply, "", err
	}
	switch chosen {
	case allowOnce:
		return task.Reply{Allow: true}, "", nil
	case allowEdits:
		return task.Reply{Allow: true, AcceptEdits: true}, "", nil
	case allowAlways:
		return task.Reply{Allow: true}, q.Suggest, nil
	}
	return task.Reply{Reason: "the user has rejected this call"}, "", nil
}

func option(id acp.PermissionOptionId, name string, kind acp.PermissionOptionKind) acp.PermissionOption {
	return acp.PermissionOption{OptionId: id, Name: name, Kind: kind}
}

// options are the answers that the client may give to a question about a call.
func options(q task.Question) (list []acp.PermissionOption) {
	if q.IsPlan() || q.Tool == task.ExitPlanMode {
		if q.Tool == task.ExitPlanMode {
			list = append(list, option(allowEdits, "Carry out the plan and accept edits", acp.PermissionOptionKindAllowAlways))
		}
		return append(list, option(allowOnce, "Carry out the plan", acp.PermissionOptionKindAllowOnce),
			option(reject, "Keep planning", acp.PermissionOptionKindRejectOnce))
	}
	list = append(list, option(allowOnce, "Allow once", acp.PermissionOptionKindAllowOnce))
	if q.Suggest != "" {
		always := "Always allow " + excerpt.ExactLine(q.Suggest)
		list = append(list, option(allowAlways, always, acp.PermissionOptionKindAllowAlways))
	}
	return append(list, option(reject, "Reject", acp.PermissionOptionKindRejectOnce))
}

// pick lets the user of the client choose one of the offered options.
func (s *session) pick(
	ctx context.Context, on stage, about acp.ToolCallUpdate, offered []acp.PermissionOption,
) (acp.PermissionOptionId, error) {
	var got acp.RequestPermissionResponse
	err := s.of.conn.Ask(ctx, acp.ClientMethodSessionRequestPermission, acp.RequestPermissionRequest{
		SessionId: on.id, ToolCall: about, Options: offered,
	}, &got)
	switch {
	case err != nil:
		return "", err
	case got.Outcome.Selected == nil:
		return "", errors.New("the client has cancelled the request")
	}
	for _, one := range offered {
		if one.OptionId == got.Outcome.Selected.OptionId {
			return one.OptionId, nil
		}
	}
	return "", fmt.Errorf("the client selected option %.80q, which was not offered", got.Outcome.Selected.OptionId)
}

// choose asks the questions of the model: one request for each, or one form where the client shows forms and
// a request is not enough.
func (s *session) choose(ctx context.Context, q task.Question) (task.Reply, error) {
	var in task.ChoiceInput
	if err := json.Unmarshal(q.Input, &in); err != nil || len(in.Questions) == 0 {
		return task.Reply{}, s.leave(q, errors.New("its questions cannot be read"))
	}
	answer := s.chooseEach
	if s.of.client.Load().forms() && (len(in.Questions) > 1 || in.Questions[0].MultiSelect) {
		answer = s.chooseAll
	}
	answers, err := answer(ctx, q, in.Questions)
	if err != nil || answers == nil {
		return task.Reply{Reason: "the user has not answered"}, err
	}
	for i, one := range in.Questions {
		if len(in.Questions) > 1 {
			answers[i] = one.Header + ": " + answers[i]
		}
	}
	return task.Reply{Allow: true, Text: strings.Join(answers, "\n")}, nil
}

// chooseEach asks one question after the other; nil: one was not answered.
func (s *session) chooseEach(ctx context.Context, q task.Question, list []task.ChoicePart) ([]string, error) {
	on := s.stageOf(q.Task)
	var answers []string
	for _, one := range list {
		about := on.view.ask(q)
		about.Title = acp.Ptr(excerpt.ExactLine(one.Question))
		about.Content = text(described(one, "- "))
		var offered []acp.PermissionOption
		labels := map[acp.PermissionOptionId]string{}
		for i, o := range one.Options {
			id := acp.PermissionOptionId(fmt.Sprintf("option-%d", i+1))
			offered = append(offered, option(id, excerpt.ExactLine(o.Label), acp.PermissionOptionKindAllowOnce))
			labels[id] = o.Label
		}
		offered = append(offered, option(reject, "No answer", acp.PermissionOptionKindRejectOnce))
		chosen, err := s.pick(ctx, on, about, offered)
		if err != nil || labels[chosen] == "" {
			return nil, err
		}
		answers = append(answers, labels[chosen])
	}
	return answers, nil
}

// described are the descriptions of the options of a question, a line each.
func described(p task.ChoicePart, indent string) string {
	var b strings.Builder
	for _, o := range p.Options {
		if o.Description != "" {
			fmt.Fprintf(&b, "%s%s: %s\n", indent, o.Label, o.Description)
		}
	}
	return b.String()
}

// chooseAll asks all questions in one form; nil: they were not answered. Fields are named by number, since
// headers may be equal.
func (s *session) chooseAll(ctx context.Context, q task.Question, list []task.ChoicePart) ([]string, error) {
	type object = map[string]any
	fields, required := object{}, []string{}
	for i, one := range list {
		var labels []string
		for _, o := range one.Options {
			labels = append(labels, o.Label)
		}
		field := object{"type": "string", "enum": labels}
		if one.MultiSelect {
			field = object{"type": "array", "items": field}
		}
		field["title"] = one.Header
		field["description"] = strings.TrimSpace(one.Question + "\n" + described(one, ""))
		name := fmt.Sprintf("answer_%d", i+1)
		fields[name], required = field, append(required, name)
	}
	schema, err := json.Marshal(object{"type": "object", "properties": fields, "required": required})
	if err != nil {
		return nil, err
	}
	values, err := s.form(ctx, q, list[0].Question, schema)
	if err != nil || values == nil {
		return nil, err
	}
	var chosen object
	if err := json.Unmarshal(values, &chosen); err != nil {
		return nil, fmt.Errorf("read the values of the form: %w", err)
	}
	answers := make([]string, len(list))
	for i := range list {
		switch v := chosen[fmt.Sprintf("answer_%d", i+1)].(type) {
		case string:
			answers[i] = v
		case []any:
			words := make([]string, len(v))
			for n, word := range v {
				words[n] = fmt.Sprint(word)
			}
			answers[i] = strings.Join(words, ", ")
		}
	}
	return answers, nil
}

// fill asks for the values of a form.
func (s *session) fill(ctx context.Context, q task.Question) (task.Reply, error) {
	var in task.FormInput
	if err := json.Unmarshal(q.Input, &in); err != nil || len(in.Schema) == 0 {
		return task.Reply{}, s.leave(q, errors.New("its form cannot be read"))
	}
	if !s.of.client.Load().forms() {
		return task.Reply{}, s.leave(q, errors.New("the editor has no forms"))
	}
	values, err := s.form(ctx, q, in.Message, in.Schema)
	if err != nil || values == nil {
		return task.Reply{Reason: "the user has not filled in the form"}, err
	}
	return task.Reply{Allow: true, Input: values}, nil
}

// form shows a form; nil: the user has not filled it in.
func (s *session) form(
	ctx context.Context, q task.Question, message string, schema json.RawMessage,
) (json.RawMessage, error) {
	var got formAnswer
	err := s.of.conn.Ask(ctx, acp.ClientMethodElicitationCreate, formRequest{
		SessionID: s.stageOf(q.Task).id, ToolCallID: acp.ToolCallId(q.ToolUseID), Mode: "form",
		Message: message, Schema: schema,
	}, &got)
	if err != nil || got.Action != "accept" {
		return nil, err
	}
	return json.RawMessage(cmp.Or(string(got.Content), "{}")), nil
}

// leave shows how to answer a question that the client cannot be asked.
func (s *session) leave(q task.Question, why error) error {
	s.view.say(fmt.Sprintf("\n\nA question needs your answer: %s (%v). Answer it in a terminal with "+
		"`drover approvals answer %s`.\n\n", excerpt.Line(q.Reason, 300), why, q.ID))
	return errLater
}

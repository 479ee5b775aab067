package acpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// AskWait is how long the client may take to decide about a call.
const AskWait = 24 * time.Hour

// listen is how long a listing of questions is waited for at once.
const listen = time.Minute

// errAnswered is the cause of the end of a request whose question was answered elsewhere.
var errAnswered = errors.New("the question was answered elsewhere")

// The options of a permission request.
const (
	allowOnce   acp.PermissionOptionId = "allow"
	allowAlways acp.PermissionOptionId = "allow-always"
	allowEdits  acp.PermissionOptionId = "allow-edits"
	reject      acp.PermissionOptionId = "reject"
)

// questions asks the client about each question of the session until it is closed. A question
// that somebody else has answered is taken back.
func (s *session) questions() {
	var asking sync.WaitGroup
	defer asking.Wait()
	open := map[string]context.CancelCauseFunc{} // by ID
	defer func() {
		for _, stop := range open {
			stop(errClosed)
		}
	}()
	version := int64(0)
	for s.ctx.Err() == nil {
		now, err := s.open.Approvals(s.ctx, control.ApprovalsRequest{After: version, Wait: listen, Person: true})
		if err != nil {
			if s.ctx.Err() == nil {
				s.of.conn.warn("read the open questions of session %s: %v", s.name(), err)
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
			one, stop := context.WithCancelCause(s.ctx)
			open[q.ID] = stop
			asking.Go(func() { s.decide(one, q) })
		}
		for id, stop := range open {
			if !listed[id] {
				stop(errAnswered)
				delete(open, id)
			}
		}
	}
}

// decide asks the client about one question and gives its answer to the session. A client
// that has left decides nothing: the session is about to close.
func (s *session) decide(ctx context.Context, q task.Question) {
	reply, always, err := s.ask(ctx, q)
	if errors.Is(err, errLater) || errors.Is(err, errGone) {
		return
	}
	if ctx.Err() != nil { // somebody else has answered, or the session is closed
		s.stageOf(q.Task).view.settle(q.ID, false)
		return
	}
	if err != nil {
		reply, always = task.Reply{Reason: fmt.Sprintf("nobody decided about this call: %v", err)}, ""
	}
	s.stageOf(q.Task).view.settle(q.ID, reply.Allow)
	err = s.open.Decide(ctx, control.DecideRequest{
		ID: q.ID, Digest: q.Digest, Reply: reply, Always: always, Actor: task.ByUser,
		Detail: "session/request_permission of ACP",
	})
	if err != nil && !conflict(err) && ctx.Err() == nil { // a conflict: somebody was faster
		s.of.conn.warn("answer question %s: %v", q.ID, err)
	}
}

// conflict reports whether what was asked for does not fit any more.
func conflict(err error) bool {
	var e *control.Error
	return errors.As(err, &e) && e.Code == control.Conflict
}

// errLater means that a question is left to somebody else, who can answer it in another way.
var errLater = errors.New("the client cannot be asked")

// ask is what the client says to a question.
func (s *session) ask(ctx context.Context, q task.Question) (reply task.Reply, always string, err error) {
	if q.Hidden > 0 { // the listing shows a part of it
		whole, err := s.open.Approvals(ctx, control.ApprovalsRequest{ID: q.ID})
		if err != nil || len(whole.Questions) != 1 {
			return task.Reply{Reason: "the call could not be shown whole"}, "", nil
		}
		q.Input = whole.Questions[0].Input
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
	id := q.ToolUseID
	if id == "" {
		id = q.ID
	}
	on := s.stageOf(q.Task)
	about := on.view.ask(id, q.Tool, q.Input)
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

// options are what the client may answer to a question about a call.
func options(q task.Question) []acp.PermissionOption {
	var list []acp.PermissionOption
	add := func(id acp.PermissionOptionId, name string, kind acp.PermissionOptionKind) {
		list = append(list, acp.PermissionOption{OptionId: id, Name: name, Kind: kind})
	}
	switch {
	case q.Tool == task.ExitPlanMode:
		add(allowEdits, "Carry out the plan and accept edits", acp.PermissionOptionKindAllowAlways)
		fallthrough
	case q.IsPlan():
		add(allowOnce, "Carry out the plan", acp.PermissionOptionKindAllowOnce)
		add(reject, "Go on planning", acp.PermissionOptionKindRejectOnce)
	default:
		add(allowOnce, "Allow once", acp.PermissionOptionKindAllowOnce)
		if q.Suggest != "" {
			add(allowAlways, "Always allow "+excerpt.ExactLine(q.Suggest), acp.PermissionOptionKindAllowAlways)
		}
		add(reject, "Reject", acp.PermissionOptionKindRejectOnce)
	}
	return list
}

// pick lets the user of the client choose an option. Only one that was offered is taken.
func (s *session) pick(
	ctx context.Context, on stage, about acp.ToolCallUpdate, offered []acp.PermissionOption,
) (acp.PermissionOptionId, error) {
	var got acp.RequestPermissionResponse
	err := s.of.conn.ask(ctx, acp.ClientMethodSessionRequestPermission, acp.RequestPermissionRequest{
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

// choice is one of the questions of AskUserQuestion.
type choice struct {
	Question string `json:"question"`
	Header   string `json:"header"`
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
	MultiSelect bool `json:"multiSelect"`
}

// choose asks what the user wants: one request for each question, whose options are those of
// the question. A client that shows forms is shown one where a request would say too little.
func (s *session) choose(ctx context.Context, q task.Question) (task.Reply, error) {
	var in struct {
		Questions []choice `json:"questions"`
	}
	if err := json.Unmarshal(q.Input, &in); err != nil || len(in.Questions) == 0 {
		return task.Reply{}, s.leave(q, errors.New("its questions cannot be read"))
	}
	if s.of.client.forms() && (len(in.Questions) > 1 || in.Questions[0].MultiSelect) {
		return s.chooseAll(ctx, q, in.Questions)
	}
	var answers []string
	for _, one := range in.Questions {
		text, err := s.chooseOne(ctx, q, one)
		if err != nil {
			return task.Reply{}, err
		}
		if text == "" {
			return task.Reply{Reason: "the user has not answered"}, nil
		}
		if len(in.Questions) > 1 {
			text = one.Header + ": " + text
		}
		answers = append(answers, text)
	}
	return task.Reply{Allow: true, Text: strings.Join(answers, "\n")}, nil
}

// chooseOne asks one question; the empty text is no answer.
func (s *session) chooseOne(ctx context.Context, q task.Question, one choice) (string, error) {
	id := q.ToolUseID
	if id == "" {
		id = q.ID
	}
	on := s.stageOf(q.Task)
	about := on.view.ask(id, q.Tool, q.Input)
	about.Title = acp.Ptr(excerpt.ExactLine(one.Question))
	var described strings.Builder
	for _, o := range one.Options {
		if o.Description != "" {
			fmt.Fprintf(&described, "- %s: %s\n", o.Label, o.Description)
		}
	}
	about.Content = text(described.String())
	var offered []acp.PermissionOption
	for i, o := range one.Options {
		offered = append(offered, acp.PermissionOption{OptionId: acp.PermissionOptionId(fmt.Sprintf("option-%d", i+1)),
			Name: excerpt.ExactLine(o.Label), Kind: acp.PermissionOptionKindAllowOnce})
	}
	offered = append(offered, acp.PermissionOption{OptionId: reject, Name: "No answer",
		Kind: acp.PermissionOptionKindRejectOnce})
	chosen, err := s.pick(ctx, on, about, offered)
	if err != nil {
		return "", err
	}
	for i, o := range offered {
		if o.OptionId == chosen && i < len(one.Options) {
			return one.Options[i].Label, nil
		}
	}
	return "", nil
}

// fill asks for the values of a form.
func (s *session) fill(ctx context.Context, q task.Question) (task.Reply, error) {
	var form struct {
		Message string          `json:"message"`
		Schema  json.RawMessage `json:"schema"`
	}
	if err := json.Unmarshal(q.Input, &form); err != nil || len(form.Schema) == 0 {
		return task.Reply{}, s.leave(q, errors.New("its form cannot be read"))
	}
	if !s.of.client.forms() {
		return task.Reply{}, s.leave(q, errors.New("the editor has no forms"))
	}
	values, err := s.form(ctx, q, form.Message, form.Schema)
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
	err := s.of.conn.ask(ctx, acp.ClientMethodElicitationCreate, formRequest{
		SessionID: s.stageOf(q.Task).id, ToolCallID: acp.ToolCallId(q.ToolUseID), Mode: "form",
		Message: message, Schema: schema,
	}, &got)
	switch {
	case err != nil:
		return nil, err
	case got.Action != "accept":
		return nil, nil
	case len(got.Content) == 0:
		return json.RawMessage("{}"), nil
	}
	return got.Content, nil
}

// chooseAll asks all questions of a call in one form. Its fields are named by number, since
// headers may be the same.
func (s *session) chooseAll(ctx context.Context, q task.Question, list []choice) (task.Reply, error) {
	fields, required := map[string]any{}, []string{}
	for i, one := range list {
		var labels []string
		about := one.Question
		for _, o := range one.Options {
			labels = append(labels, o.Label)
			if o.Description != "" {
				about += "\n" + o.Label + ": " + o.Description
			}
		}
		name := fmt.Sprintf("answer_%d", i+1)
		field := map[string]any{"type": "string", "title": one.Header, "description": about, "enum": labels}
		if one.MultiSelect {
			field = map[string]any{"type": "array", "title": one.Header, "description": about,
				"items": map[string]any{"type": "string", "enum": labels}}
		}
		fields[name] = field
		required = append(required, name)
	}
	schema, err := json.Marshal(map[string]any{"type": "object", "properties": fields, "required": required})
	if err != nil {
		return task.Reply{}, err
	}
	values, err := s.form(ctx, q, list[0].Question, schema)
	if err != nil || values == nil {
		return task.Reply{Reason: "the user has not answered"}, err
	}
	var chosen map[string]any
	if err := json.Unmarshal(values, &chosen); err != nil {
		return task.Reply{}, fmt.Errorf("read the values of the form: %w", err)
	}
	var answers []string
	for i, one := range list {
		var words []string
		switch v := chosen[fmt.Sprintf("answer_%d", i+1)].(type) {
		case string:
			words = []string{v}
		case []any:
			for _, w := range v {
				words = append(words, fmt.Sprint(w))
			}
		}
		text := strings.Join(words, ", ")
		if len(list) > 1 {
			text = one.Header + ": " + text
		}
		answers = append(answers, text)
	}
	return task.Reply{Allow: true, Text: strings.Join(answers, "\n")}, nil
}

// leave tells the user how to answer a question that the client cannot be asked.
func (s *session) leave(q task.Question, why error) error {
	s.view.say(fmt.Sprintf("\n\nA question waits for your answer: %s (%v). Answer it in a terminal with `drover approvals answer %s`.\n\n",
		excerpt.Line(q.Reason, 300), why, q.ID))
	return errLater
}

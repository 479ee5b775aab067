package requests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/platform/picture"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/task"
)

// userName is the sender of a message without a name.
const userName = "user"

// Send sends a message to an agent, or a prompt to the main agent.
func (t *Tasks) Send(ctx context.Context, req control.SendRequest) (task.Record, error) {
	r, err := t.s.Find(req.Ref)
	own := t.s.Info.Session
	main := req.Ref == string(own) || err == nil && r.ID == own
	switch {
	case main && req.Raw:
		return r, tasks.NoKeys(own)
	case strings.TrimSpace(req.Text) == "" || req.Raw || !main && (err != nil || r.TTY || !r.Kind.IsAgent()):
		return t.Session.Send(ctx, req)
	case main:
		rec, _ := t.s.Tasks.Get(own)
		rec.ID, rec.Session = own, own
		return rec, t.Prompt(ctx, control.PromptRequest{Text: req.Text})
	case r.Status.Terminal() && r.Team == nil:
		return shown(t.agents.Again(ctx, r, req.Text, req.Env))
	}
	m := task.Message{To: r.ID, From: cmp.Or(req.From, userName), Kind: task.PlainMessage, Text: req.Text}
	if err := m.Check(); err != nil {
		return r, control.Refuse(control.Invalid, err.Error(), "")
	}
	seq, err := t.s.Tasks.Post(ctx, m)
	if errors.Is(err, task.ErrMailFull) {
		return r, control.Refuse(control.Unavailable, fmt.Sprintf("agent %s has too much mail that it has not read", r.ID),
			"wait until it has read some")
	} else if err != nil {
		return r, Refusal(err)
	}
	if r.Status.Terminal() { // a teammate, which continues with its mailbox
		rec, err := shown(t.agents.Again(ctx, r, agents.GoOn, req.Env))
		return rec, t.mail.TakeBack(ctx, r.ID, seq, err)
	}
	return r, nil
}

// Prompt sends a prompt to the main agent.
func (t *Tasks) Prompt(ctx context.Context, req control.PromptRequest) error {
	m := t.idle.Conversation()
	if m == nil {
		return control.Refuse(control.Unavailable, "this session has no main agent", "start one with `drover -p`")
	}
	text, err := t.withImages(m, req)
	if err != nil {
		return err
	}
	return m.Submit(ctx, text)
}

// withImages keeps the images of a prompt, and returns the prompt with their names.
func (t *Tasks) withImages(m *conversation.Conversation, req control.PromptRequest) (string, error) {
	if len(req.Images) == 0 {
		return req.Text, nil
	}
	refused := func(format string, args ...any) error {
		return control.Refuse(control.Invalid, "images of a prompt: "+fmt.Sprintf(format, args...), "")
	}
	if model := m.ModelSettings().Name; !choose.Sees(model) {
		return "", control.Refuse(control.Invalid, fmt.Sprintf("model %s does not see images", model),
			"choose another model with `drover configure --model`, or describe them")
	}
	if len(req.Images) > picture.Max {
		return "", refused("there are %d, and there may be %d", len(req.Images), picture.Max)
	}
	total := 0
	for i, image := range req.Images {
		kind, err := picture.Check(image.Data)
		if err == nil && image.MediaType != "" && image.MediaType != kind {
			err = fmt.Errorf("it is %s, and %.60q was said", kind, image.MediaType)
		}
		if err != nil {
			return "", refused("image %d: %v", i+1, err)
		}
		if total += len(image.Data); total > picture.MaxTotal {
			return "", refused("together they have more than %d MiB: send less at once", picture.MaxTotal>>20)
		}
	}
	refs := make([]picture.Ref, len(req.Images))
	for i, image := range req.Images {
		refs[i] = picture.Ref{Label: picture.Label(i+1, image.Name), Sum: picture.Sum(image.Data)}
		if err := t.s.Place.KeepImage(refs[i].Sum, image.Data); err != nil {
			return "", err
		}
	}
	return picture.Add(req.Text, refs), nil
}

// Resume resumes a paused subtree, wakes the parked agents of a provider, or gives an ended agent a new run.
func (t *Tasks) Resume(ctx context.Context, req control.ResumeRequest) (task.Record, error) {
	r, err := t.s.Find(req.Ref)
	if err != nil {
		return r, Refusal(err)
	}
	switch {
	case r.Paused:
	case r.Parked != nil && req.Prompt == "" && t.agents.Parking.Wake(r.Parked.Provider):
		return r, nil
	case !r.Status.Terminal():
	case r.ID == t.s.Info.Session:
		return r, control.Refuse(control.Conflict, "this conversation has ended",
			fmt.Sprintf("go on with `drover -p --resume %s \"…\"`", r.ID))
	case r.Traits().Work == task.BySteps:
		return shown(t.agents.ResumeWorkflow(ctx, r, req))
	case r.Kind.IsAgent():
		return shown(t.agents.Again(ctx, r, cmp.Or(req.Prompt, agents.GoOn), req.Env))
	}
	return t.Session.Resume(ctx, req)
}

// Interrupt cancels the turn of an agent, which then waits for a message.
func (t *Tasks) Interrupt(_ context.Context, ref string) (task.Record, error) {
	own := t.s.Info.Session
	r, err := t.s.Find(ref)
	main := t.idle.Conversation()
	switch {
	case main != nil && (ref == string(own) || err == nil && r.ID == own):
		main.Interrupt()
		r.ID, r.Session = own, own
		return r, nil
	case err != nil:
		return r, Refusal(err)
	case !t.agents.Interrupt(r.ID):
		return r, control.Refuse(control.Conflict, fmt.Sprintf("task %s is in no turn that could be interrupted", r.ID),
			fmt.Sprintf("to end it use `drover stop %s`", r.ID))
	}
	return r, nil
}

// Messages returns the newest messages of an agent.
func (t *Tasks) Messages(_ context.Context, req control.MessagesRequest) (control.Messages, error) {
	r, err := t.s.Find(req.Ref)
	if own := t.s.Info.Session; err != nil && req.Ref == string(own) {
		r, err = task.Record{ID: own, Session: own, Kind: task.MainKind}, nil
	}
	if err != nil {
		return control.Messages{}, Refusal(err)
	}
	return archive.Messages(t.s.Place, r, req.Limit)
}

// EndMonitors stops all monitors, because no owner is left, and returns those that were
// running.
func (t *Tasks) EndMonitors(ctx context.Context) ([]task.Record, error) {
	var live []task.Record
	var ids []task.ID
	for _, r := range t.s.Tasks.Living() {
		if r.Traits().Work == task.ByEvents {
			live, ids = append(live, r), append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	_, err := t.s.Tasks.Stop(ctx, ids, supervise.StopRequest{
		Cause: task.Cause{Actor: task.ByRuntime, Reason: task.ReasonClosing, Detail: "the conversation is over"},
	})
	return live, err
}

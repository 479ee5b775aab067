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
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/task"
)

// userName is the sender of a message without a name.
const userName = "user"

// Send sends a message to an agent, or a prompt to the main agent.
func (t *Tasks) Send(ctx context.Context, req control.SendRequest) (task.Record, error) {
	if strings.TrimSpace(req.Text) == "" && !req.Raw {
		return task.Record{}, control.Refuse(control.Invalid, "the message is empty", "")
	}
	if own := t.s.Info.Session; req.Ref == string(own) {
		rec, _ := t.s.Tasks.Get(own)
		rec.ID, rec.Session = own, own
		return rec, t.sendMain(ctx, req)
	}
	r, err := t.s.Find(req.Ref)
	switch {
	case err != nil:
		return r, Refusal(err)
	case r.ID == t.s.Info.Session:
		return r, t.sendMain(ctx, req)
	case r.TTY:
		return r, t.typeInto(ctx, r, req)
	case r.Traits().Work == task.ByCommand:
		return r, noReader(r)
	case req.Raw:
		return r, noKeys(r.ID)
	case !r.Kind.IsAgent():
		return r, t.steerWork(ctx, r, req.Text)
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

func (t *Tasks) sendMain(ctx context.Context, req control.SendRequest) error {
	if req.Raw {
		return noKeys(t.s.Info.Session)
	}
	return t.Prompt(ctx, control.PromptRequest{Text: req.Text})
}

func noKeys(id task.ID) error {
	return control.Refuse(control.Conflict, fmt.Sprintf("%s has no terminal: keys mean nothing to it", id), "")
}

// noReader returns why a task accepts no message, and what to do instead.
func noReader(r task.Record) error {
	e := control.Refuse(control.Conflict, fmt.Sprintf("task %s (%s) reads no messages", r.ID, r.Noun()), "")
	if r.Traits().Work == task.ByCommand {
		e.Message = fmt.Sprintf("task %s is a command, which reads its input from /dev/null", r.ID)
		e.Fix = fmt.Sprintf(
			"give the input when it is started, or start it with a terminal: `drover run -d --tty`; `drover stop %s` ends this one",
			r.ID,
		)
	}
	return e
}

// Pause pauses whole subtrees.
func (t *Tasks) Pause(ctx context.Context, refs []string) ([]task.Record, error) {
	ids, err := t.find(refs)
	if err != nil {
		return nil, err
	}
	for _, id := range ids { // all are looked up before the first is paused
		if r, _ := t.s.Tasks.Get(id); r.Status.Terminal() {
			return nil, control.Refuse(control.Conflict, fmt.Sprintf("task %s has ended (%s)", id, r.Status), "")
		}
	}
	recs := []task.Record{}
	for _, id := range ids {
		some, err := t.s.Tasks.Pause(ctx, id)
		if recs = append(recs, some...); err != nil {
			return recs, Refusal(err)
		}
	}
	return recs, nil
}

// Suspend pauses everything before this process is suspended; see
// [supervise.Supervisor.Suspend].
func (t *Tasks) Suspend(ctx context.Context) (goOn func(context.Context) error, err error) {
	return t.s.Tasks.Suspend(ctx)
}

// Resume resumes a paused subtree, wakes the parked agents of a provider, or gives an ended agent a new run.
func (t *Tasks) Resume(ctx context.Context, req control.ResumeRequest) (task.Record, error) {
	r, err := t.s.Find(req.Ref)
	if err != nil {
		return r, Refusal(err)
	}
	switch {
	case r.Paused && req.Prompt != "":
		return r, control.Refuse(control.Conflict, fmt.Sprintf("task %s is paused and goes on with what it did", r.ID),
			fmt.Sprintf("resume it without a prompt, and tell it the rest by `drover send %s`", r.ID))
	case r.Paused:
		if _, err := t.s.Tasks.Thaw(ctx, r.ID); err != nil {
			return r, Refusal(err)
		}
		r, _ = t.s.Tasks.Get(r.ID)
		return r, nil
	case r.Parked != nil && req.Prompt == "" && t.agents.Parking.Wake(r.Parked.Provider):
		return r, nil
	case !r.Status.Terminal():
		return r, control.Refuse(control.Conflict, fmt.Sprintf("task %s is %s and not paused", r.ID, r.Status),
			fmt.Sprintf("to tell it something use `drover send %s`", r.ID))
	case r.ID == t.s.Info.Session:
		return r, control.Refuse(control.Conflict, "this conversation has ended",
			fmt.Sprintf("go on with `drover -p --resume %s \"…\"`", r.ID))
	case r.Traits().Work == task.BySteps:
		return shown(t.agents.ResumeWorkflow(ctx, r, req))
	case !r.Kind.IsAgent():
		return r, control.Refuse(control.Conflict,
			fmt.Sprintf("task %s (%s) has ended (%s) and cannot go on", r.ID, r.Noun(), r.Status), "start it anew")
	}
	return shown(t.agents.Again(ctx, r, cmp.Or(req.Prompt, agents.GoOn), req.Env))
}

// steerWork passes a message to a task that is not an agent, if its driver accepts messages.
func (t *Tasks) steerWork(ctx context.Context, r task.Record, text string) error {
	err := t.s.Tasks.Steer(ctx, r.ID, text)
	switch {
	case errors.Is(err, supervise.ErrNotSteerable):
		return noReader(r)
	case err != nil:
		return Refusal(err)
	}
	return nil
}

// typeInto types the text of a client into a command with a terminal. The text is stored
// nowhere, since it may be a password.
func (t *Tasks) typeInto(ctx context.Context, r task.Record, req control.SendRequest) error {
	r = t.s.Begun(ctx, r)
	if r.Status != task.Running {
		return control.Refuse(control.Conflict, fmt.Sprintf("task %s is %s: nobody reads what is typed", r.ID, r.Status), "")
	}
	text := req.Text
	if !req.Raw {
		text = agents.Keys(text)
	}
	if err := t.s.Tasks.Steer(ctx, r.ID, text); err != nil {
		return Refusal(err)
	}
	return nil
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

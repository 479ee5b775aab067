package tasks

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

// Send types the text into a command with a terminal, or passes it to a task whose driver accepts messages.
func (s *Session) Send(ctx context.Context, req control.SendRequest) (task.Record, error) {
	if strings.TrimSpace(req.Text) == "" && !req.Raw {
		return task.Record{}, control.Refuse(control.Invalid, "the message is empty", "")
	}
	r, err := s.Tree.Find(req.Ref)
	switch {
	case err != nil:
		return r, Refusal(err)
	case r.TTY:
		return r, s.typeInto(ctx, r, req)
	case r.Traits().Work == task.ByCommand:
		return r, noReader(r)
	case req.Raw:
		return r, NoKeys(r.ID)
	}
	return r, s.steerWork(ctx, r, req.Text)
}

// NoKeys refuses keys for a task without a terminal.
func NoKeys(id task.ID) error {
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
func (s *Session) Pause(ctx context.Context, refs []string) ([]task.Record, error) {
	ids, err := s.find(refs)
	if err != nil {
		return nil, err
	}
	for _, id := range ids { // all are looked up before the first is paused
		if r, _ := s.Tree.Tasks.Get(id); r.Status.Terminal() {
			return nil, control.Refuse(control.Conflict, fmt.Sprintf("task %s has ended (%s)", id, r.Status), "")
		}
	}
	recs := []task.Record{}
	for _, id := range ids {
		some, err := s.Tree.Tasks.Pause(ctx, id)
		if recs = append(recs, some...); err != nil {
			return recs, Refusal(err)
		}
	}
	return recs, nil
}

// Suspend pauses everything before this process is suspended; see
// [supervise.Supervisor.Suspend].
func (s *Session) Suspend(ctx context.Context) (goOn func(context.Context) error, err error) {
	return s.Tree.Tasks.Suspend(ctx)
}

// Resume resumes a paused subtree.
func (s *Session) Resume(ctx context.Context, req control.ResumeRequest) (task.Record, error) {
	r, err := s.Tree.Find(req.Ref)
	switch {
	case err != nil:
		return r, Refusal(err)
	case r.Paused && req.Prompt != "":
		return r, control.Refuse(control.Conflict, fmt.Sprintf("task %s is paused and goes on with what it did", r.ID),
			fmt.Sprintf("resume it without a prompt, and tell it the rest by `drover send %s`", r.ID))
	case r.Paused:
		if _, err := s.Tree.Tasks.Thaw(ctx, r.ID); err != nil {
			return r, Refusal(err)
		}
		r, _ = s.Tree.Tasks.Get(r.ID)
		return r, nil
	case !r.Status.Terminal():
		return r, control.Refuse(control.Conflict, fmt.Sprintf("task %s is %s and not paused", r.ID, r.Status),
			fmt.Sprintf("to tell it something use `drover send %s`", r.ID))
	}
	return r, control.Refuse(control.Conflict,
		fmt.Sprintf("task %s (%s) has ended (%s) and cannot go on", r.ID, r.Noun(), r.Status), "start it anew")
}

// steerWork passes a message to a task that is not an agent, if its driver accepts messages.
func (s *Session) steerWork(ctx context.Context, r task.Record, text string) error {
	err := s.Tree.Tasks.Steer(ctx, r.ID, text)
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
func (s *Session) typeInto(ctx context.Context, r task.Record, req control.SendRequest) error {
	r = s.Tree.Begun(ctx, r)
	if r.Status != task.Running {
		return control.Refuse(control.Conflict, fmt.Sprintf("task %s is %s: nobody reads what is typed", r.ID, r.Status), "")
	}
	text := req.Text
	if !req.Raw {
		text = Keys(text)
	}
	if err := s.Tree.Tasks.Steer(ctx, r.ID, text); err != nil {
		return Refusal(err)
	}
	return nil
}

// Keys returns the keys for a text: each line is ended by Enter.
func Keys(text string) string {
	return strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\r") + "\r"
}

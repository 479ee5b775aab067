package a2aserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

const (
	maxResult  = 1 << 20  // bytes of a result that clients get
	maxShown   = 16 << 10 // characters of what a question asks about
	maxWhy     = 2000     // bytes of an error
	maxLine    = 300      // bytes of a line about progress
	resultName = "result" // of the artifact
)

// view is a task as clients see it at one time.
type view struct {
	saved    saved
	status   a2a.Status
	question *task.Question // that is asked now
	idle     time.Time      // when an agent that waits for a message spoke last; zero: it does not wait
	artifact *a2a.Artifact  // of one that has completed
}

// look is the state of a task now, with its artifact.
func (s *Server) look(ctx context.Context, one *entry) (view, error) {
	v, err := s.glance(ctx, one)
	if err == nil && v.status.State == a2a.Completed {
		v.artifact = s.result(ctx, v.saved)
	}
	return v, err
}

// glance is the state of a task now, without its artifact. An end that it sees is noted, and stays.
func (s *Server) glance(ctx context.Context, one *entry) (view, error) {
	v := view{saved: one.state()}
	if v.saved.End == nil {
		rec, err := s.record(ctx, one)
		if err != nil {
			return v, err
		}
		v.saved = one.state()
		switch {
		case v.saved.End != nil: // noted meanwhile
		case rec.Status.Terminal():
			if err := one.change(func(sv *saved) { sv.Task, sv.Run, sv.End = rec.ID, rec.Run, ended(rec) }); err != nil {
				return v, err
			}
			v.saved = one.state()
		default:
			return v, s.live(ctx, one, rec, &v)
		}
	}
	e := v.saved.End
	v.status = a2a.Status{State: e.State, Timestamp: a2a.At(e.At)}
	if e.Why != "" {
		v.status.Message = v.say("end", a2a.TextPart(e.Why))
	}
	return v, nil
}

// record is the record of the agent. One that is gone has ended.
func (s *Server) record(ctx context.Context, one *entry) (task.Record, error) {
	if err := s.begin(context.WithoutCancel(ctx), one); err != nil {
		return task.Record{}, err
	}
	st := one.state()
	if st.End != nil {
		return task.Record{}, nil
	}
	rec, err := s.link.Record(ctx, string(st.Task))
	var e *control.Error
	if errors.As(err, &e) && e.Code == control.NotFound {
		why := &end{State: a2a.Failed, At: time.Now(), Why: "the session of the agent was removed"}
		return rec, one.change(func(sv *saved) { sv.End = why })
	}
	return rec, err
}

// ended is how a run that has ended is told of: the one table of final states.
func ended(rec task.Record) *end {
	e := &end{State: a2a.Failed, At: time.Now(), Why: excerpt.Line(rec.Why(), maxWhy)}
	if rec.EndTime != nil {
		e.At = *rec.EndTime
	}
	switch {
	case rec.Status == task.Completed:
		e.State, e.Why = a2a.Completed, ""
	case rec.Status != task.Killed || rec.Cause == nil:
	case rec.Cause.Reason == task.ReasonStopped, rec.Cause.Reason == task.ReasonInterrupt,
		rec.Cause.Reason == task.ReasonParentEnded:
		e.State = a2a.Canceled
	}
	return e
}

// live fills in the state of an agent at work.
func (s *Server) live(ctx context.Context, one *entry, rec task.Record, v *view) error {
	at := rec.CreateTime
	if rec.StartTime != nil {
		at = *rec.StartTime
	}
	v.status = a2a.Status{State: a2a.Working, Timestamp: a2a.At(at)}
	if rec.Status == task.Pending {
		v.status.State = a2a.Submitted
		return nil
	}
	q, err := s.question(ctx, rec.ID)
	if err != nil {
		return err
	}
	if q != nil {
		v.question = q
		v.status = a2a.Status{State: a2a.InputRequired, Timestamp: a2a.At(q.At), Message: v.say(q.ID, questionParts(*q)...)}
		one.mu.Lock()
		one.asked = q.ID
		one.mu.Unlock()
		return nil
	}
	if rec.Resting() { // it has answered, and waits for more
		text, at, err := s.lastWords(ctx, rec.ID)
		one.mu.Lock()
		waits := !at.Equal(one.mailed) // else it is about to read the reply
		one.mu.Unlock()
		if err != nil || !waits {
			return err
		}
		v.idle, v.status.State, v.status.Timestamp = at, a2a.InputRequired, a2a.At(at)
		v.status.Message = v.say(fmt.Sprintf("answer-%d", at.UnixMilli()), a2a.TextPart(text))
		return nil
	}
	if line := doing(rec); line != "" {
		v.status.Message = v.say(fmt.Sprintf("progress-%d", rec.Progress.ToolUseCount), a2a.TextPart(line))
	}
	return nil
}

// lastWords is the last text of an agent, and when it said it.
func (s *Server) lastWords(ctx context.Context, id task.ID) (text string, at time.Time, err error) {
	m, err := control.Ask(ctx, s.link, func(api control.API) (control.Messages, error) {
		return api.Messages(ctx, control.MessagesRequest{Ref: string(id), Limit: 1})
	})
	for _, one := range m.List {
		at = one.At
		for _, p := range one.Parts {
			if one.Role == "assistant" && p.Type == "text" {
				text += p.Text
			}
		}
	}
	return text, at, err
}

// doing is what an agent does, as a line: the tool, and not what for.
func doing(rec task.Record) string {
	p := rec.Progress
	switch {
	case p == nil:
		return ""
	case p.Message != "":
		return excerpt.Line(p.Message, maxLine)
	case p.LastActivity != nil:
		return "uses " + excerpt.Line(p.LastActivity.ToolName, maxLine)
	}
	return ""
}

// say is a message of the agent about its task.
func (v *view) say(id string, parts ...a2a.Part) *a2a.Message {
	return &a2a.Message{ID: v.saved.ID + "." + id, Task: v.saved.ID, Context: v.saved.Context, Role: a2a.RoleAgent,
		Parts: parts}
}

// question is the oldest open question of a task or of one below it; nil: there is none.
func (s *Server) question(ctx context.Context, id task.ID) (*task.Question, error) {
	open, err := control.Ask(ctx, s.link, func(api control.API) (control.Approvals, error) {
		return api.Approvals(ctx, control.ApprovalsRequest{})
	})
	if err != nil {
		return nil, err
	}
	for _, q := range open.Questions {
		if s.link.Below(ctx, q.Task, func(r task.Record) bool { return r.ID == id }) {
			api, err := s.link.Get(ctx)
			if err == nil {
				q, _ = control.WholeQuestion(ctx, api, q) // a part says that it is one
			}
			return &q, err
		}
	}
	return nil, nil
}

// questionParts is a question as a person reads it, and as a program does.
func questionParts(q task.Question) []a2a.Part {
	data, err := json.Marshal(map[string]any{"questionId": q.ID, "kind": kindOf(q), "tool": q.Tool})
	if err != nil {
		data = []byte("{}")
	}
	return []a2a.Part{a2a.TextPart(questionText(q)), {Data: data, MediaType: "application/json"}}
}

func kindOf(q task.Question) task.QuestionKind {
	if q.Kind == "" {
		return task.Permission
	}
	return q.Kind
}

func questionText(q task.Question) string {
	who := q.Agent
	if who == "" {
		who = "the agent"
	}
	shown := excerpt.Call(q.Input, q.Hidden)
	long := q.Hidden > 0 || len([]rune(shown)) > maxShown
	if long {
		shown = "[too long to show: answer with `drover approvals` where the agent works, or deny]"
	}
	text := excerpt.Exact(who) + " asks"
	switch kindOf(q) {
	case task.Choice:
		return text + ":\n" + shown + "\n\nAnswer with what you choose."
	case task.Form:
		return text + " for values:\n" + shown + "\n\nAnswer with a part of data, or with the word deny."
	}
	text += " to use " + excerpt.Exact(q.Tool)
	if q.Reason != "" {
		text += ": " + excerpt.Exact(q.Reason)
	}
	return text + "\n\n" + shown + "\n\nAnswer allow or deny; after deny: a reason may follow."
}

// result is the final answer, or what is known of it.
func (s *Server) result(ctx context.Context, st saved) *a2a.Artifact {
	a := &a2a.Artifact{ID: resultName, Name: resultName}
	got, err := control.Ask(ctx, s.link, func(api control.API) (control.Answer, error) {
		return api.Result(ctx, control.ResultRequest{Ref: string(st.Task), Max: maxResult})
	})
	switch {
	case err != nil:
		a.Parts = []a2a.Part{a2a.TextPart("[the result cannot be read: " + excerpt.Line(err.Error(), maxWhy) + "]")}
	case got.Task.Run != st.Run:
		a.Parts = []a2a.Part{a2a.TextPart("[the agent has gone on since, and this result is not kept]")}
	case got.Next < got.Size:
		a.Parts = []a2a.Part{a2a.TextPart(got.Text + fmt.Sprintf("\n[… %d bytes more]", got.Size-got.Next))}
	default:
		a.Parts = []a2a.Part{a2a.TextPart(got.Text)}
	}
	return a
}

// task is the view as the protocol has it, with so many of the newest messages; nil: all.
func (v *view) task(history *int) *a2a.Task {
	t := &a2a.Task{ID: v.saved.ID, Context: v.saved.Context, Status: v.status, History: v.saved.History}
	if v.artifact != nil {
		t.Artifacts = []a2a.Artifact{*v.artifact}
	}
	if history != nil {
		t.History = t.History[max(0, len(t.History)-max(0, *history)):]
	}
	return t
}

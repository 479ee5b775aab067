package a2aserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

const (
	maxID      = 200     // bytes of an ID of a client
	maxPrompt  = 1 << 20 // bytes of the text of a message
	maxEarlier = 16 << 10
	detail     = "by a client of A2A"
)

// send begins a task, or gives one a message, and waits for its end or a question of it unless the client
// wants the answer at once.
func (s *Server) send(ctx context.Context, agent string, p a2a.SendRequest) (any, error) {
	one, err := s.accept(ctx, agent, p)
	if err != nil {
		return nil, err
	}
	var history *int
	immediately := false
	if c := p.Configuration; c != nil {
		history, immediately = c.History, c.Immediately
	}
	v, err := s.look(ctx, one)
	if err == nil && !immediately {
		v, err = s.settled(ctx, one, v)
	}
	if err != nil {
		return nil, err
	}
	return a2a.Event{Task: v.task(history)}, nil
}

// accept does what a message wants, and returns its task.
func (s *Server) accept(ctx context.Context, agent string, p a2a.SendRequest) (*entry, error) {
	m, text, err := readMessage(p.Message)
	if err != nil {
		return nil, err
	}
	var push []a2a.PushConfig
	if c := p.Configuration; c != nil && c.Push != nil {
		one, err := s.checkPush(*c.Push)
		if err != nil {
			return nil, err
		}
		push = append(push, one)
	}
	// Whoever asked may go: what was begun must be carried through.
	work := context.WithoutCancel(ctx)
	if m.Task != "" {
		one, err := s.find(agent, m.Task)
		if err == nil {
			err = s.more(work, one, m, text, push)
		}
		return one, err
	}
	one, err := s.store.create(agent, m, push, time.Now())
	if err == nil {
		err = s.begin(work, one)
	}
	if err != nil {
		return nil, err
	}
	s.deliver(one)
	return one, nil
}

// readMessage checks a message of a client, and returns its text.
func readMessage(m *a2a.Message) (a2a.Message, string, error) {
	var text strings.Builder
	switch {
	case m == nil:
		return a2a.Message{}, "", refusal(a2a.CodeParams, "message: missing")
	case !plainID(m.ID):
		return *m, "", refusal(a2a.CodeParams, "message.messageId: %.60q is no ID of 1 to %d printable characters", m.ID, maxID)
	case m.Context != "" && !plainID(m.Context):
		return *m, "", refusal(a2a.CodeParams, "message.contextId: %.60q is no ID of 1 to %d printable characters", m.Context, maxID)
	case m.Role != a2a.RoleUser:
		return *m, "", refusal(a2a.CodeParams, "message.role: %.40q (use %s)", m.Role, a2a.RoleUser)
	case len(m.Parts) == 0:
		return *m, "", refusal(a2a.CodeParams, "message.parts: at least one part is required")
	}
	for i, p := range m.Parts {
		if text.Len() > 0 {
			text.WriteString("\n")
		}
		kind, _, _ := strings.Cut(p.MediaType, ";")
		switch {
		case p.Text != nil:
			text.WriteString(*p.Text)
		case len(p.Data) > 0:
			text.Write(p.Data)
		case len(p.Raw) > 0 && (strings.HasPrefix(kind, "text/") || kind == "application/json") && utf8.Valid(p.Raw):
			fmt.Fprintf(&text, "File %q:\n%s", p.Filename, p.Raw)
		default:
			return *m, "", refusal(a2a.CodeContentType, "message.parts[%d]: this agent reads text, data and text files", i)
		}
	}
	switch out := text.String(); {
	case strings.TrimSpace(out) == "":
		return *m, "", refusal(a2a.CodeParams, "message.parts: the message is empty")
	case len(out) > maxPrompt:
		return *m, "", refusal(a2a.CodeParams, "message.parts: %d bytes of text are more than the limit of %d", len(out), maxPrompt)
	default:
		return *m, out, nil
	}
}

func plainID(id string) bool {
	return id != "" && len(id) <= maxID && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// find is a task of an agent. Others are as good as none.
func (s *Server) find(agent, id string) (*entry, error) {
	one := s.store.find(id)
	if one == nil || one.state().Agent != agent {
		return nil, refusal(a2a.CodeTaskNotFound, "task %.80q is not known", id)
	}
	return one, nil
}

// begin makes sure that the agent of a task was started, once: one whose start was not noted any more is found by
// its name, which is the ID of the task.
func (s *Server) begin(ctx context.Context, one *entry) error {
	one.starting.Lock()
	defer one.starting.Unlock()
	st := one.state()
	if st.Task != "" || st.End != nil {
		return nil
	}
	rec, err := s.link.Record(ctx, st.ID)
	var e *control.Error
	switch {
	case err == nil:
		return one.change(func(sv *saved) { sv.Task = rec.ID })
	case errors.As(err, &e) && e.Code == control.NotFound:
		return s.start(ctx, one)
	}
	return err
}

// start starts the agent of a new task. One that is refused has ended as rejected.
func (s *Server) start(ctx context.Context, one *entry) error {
	st := one.state()
	_, text, err := readMessage(&st.History[0])
	if err != nil {
		return err
	}
	req := control.StartRequest{Name: st.ID, Cwd: s.cfg.Cwd, Env: s.cfg.Env, Description: excerpt.Line(text, 100),
		Agent: &control.AgentRequest{Type: st.Agent, Prompt: s.earlier(ctx, st) + text}}
	api, err := s.link.Reach(ctx)
	var started []control.Started
	if err == nil {
		started, err = api.Start(ctx, []control.StartRequest{req})
	}
	if err == nil && started[0].Error != nil {
		err = started[0].Error
	}
	var e *control.Error
	switch {
	case err == nil:
		return one.change(func(sv *saved) { sv.Task = started[0].Task.ID })
	case errors.As(err, &e) && e.Code != control.Unavailable && e.Code != control.Internal:
		why := &end{State: a2a.Rejected, At: time.Now(), Why: excerpt.Line(e.Error(), maxWhy)}
		return one.change(func(sv *saved) { sv.End = why })
	}
	return errors.Join(err, s.store.drop(one)) // the client may try again
}

// earlier tells an agent what has ended in the same context, and the tasks that the message refers to, so that
// it can go on from there.
func (s *Server) earlier(ctx context.Context, st saved) string {
	var before []saved
	for _, other := range s.store.all() {
		o := other.state()
		named := slices.Contains(st.History[0].References, o.ID)
		if o.ID != st.ID && o.Agent == st.Agent && (o.Context == st.Context || named) && o.End != nil {
			before = append(before, o)
		}
	}
	slices.SortFunc(before, func(a, b saved) int { return b.Created.Compare(a.Created) })
	text := ""
	for _, o := range before {
		said := "Earlier you were asked:\n" + a2a.Text(o.History[0].Parts) + "\n"
		if o.End.State == a2a.Completed {
			said += "You answered:\n" + a2a.Text(s.result(ctx, o).Parts) + "\n"
		} else {
			said += "That ended as " + string(o.End.State) + ".\n"
		}
		if len(text)+len(said) > maxEarlier {
			break
		}
		text = said + "\n" + text
	}
	if text == "" {
		return ""
	}
	return text + "Now:\n"
}

// more gives a task a further message: an answer if it asks something, else mail for the agent.
func (s *Server) more(ctx context.Context, one *entry, m a2a.Message, text string, push []a2a.PushConfig) error {
	one.mu.Lock()
	asked := one.asked
	one.mu.Unlock()
	v, err := s.glance(ctx, one)
	if err != nil {
		return err
	}
	switch {
	case m.Context != "" && m.Context != v.saved.Context:
		return refusal(a2a.CodeParams, "message.contextId: task %s has the context %s", one.id, v.saved.Context)
	case slices.ContainsFunc(v.saved.History, func(old a2a.Message) bool { return old.ID == m.ID }):
		return nil // it was sent twice, and has arrived
	case v.status.State.Terminal():
		return refusal(a2a.CodeUnsupported, "task %s has ended (%s): send a message without taskId and with contextId %s to go on",
			one.id, v.status.State, v.saved.Context)
	}
	said := []a2a.Message{}
	if q := v.question; q != nil {
		r, err := answerTo(*q, m, text, asked)
		if err == nil {
			err = s.decide(ctx, *q, r)
		}
		if err != nil {
			return err
		}
		said = append(said, *v.status.Message)
	} else if _, err := control.Ask(ctx, s.link, func(api control.API) (task.Record, error) {
		return api.Send(ctx, control.SendRequest{Ref: string(v.saved.Task), Text: text, From: "a2a", Env: s.cfg.Env})
	}); err != nil {
		return err
	} else if !v.idle.IsZero() {
		said = append(said, *v.status.Message)
		one.mu.Lock()
		one.mailed = v.idle
		one.mu.Unlock()
	}
	m.Task, m.Context = one.id, v.saved.Context
	err = one.change(func(sv *saved) {
		sv.History = append(append(sv.History, said...), m)
		for _, p := range push {
			p.Task = one.id
			sv.Push = append(sv.Push, p)
		}
	})
	s.deliver(one)
	return err
}

// decision is an answer to a question as data.
type decision struct {
	Question string `json:"questionId"`
	Decision string `json:"decision"` // allow or deny
	Reason   string `json:"reason"`
}

// answerTo is what a message answers to a question. A message that does not say clearly what it wants decides
// nothing.
func answerTo(q task.Question, m a2a.Message, text, asked string) (task.Reply, error) {
	var data json.RawMessage
	for _, p := range m.Parts {
		if len(p.Data) > 0 {
			data = p.Data
		}
	}
	var d decision
	_ = json.Unmarshal(data, &d) // what is no decision has none
	switch {
	case d.Question != "" && d.Question != q.ID:
		return task.Reply{}, refusal(a2a.CodeUnsupported, "the question %.60q is not open any more (get the task, and answer what it asks)", d.Question)
	case d.Question == "" && asked != q.ID:
		return task.Reply{}, refusal(a2a.CodeUnsupported, "the agent asks something that you have not been shown (get the task, and answer what it asks)")
	}
	word, reason, _ := strings.Cut(strings.TrimSpace(text), ":")
	if d.Decision != "" {
		word, reason = d.Decision, d.Reason
	}
	word = strings.ToLower(strings.Trim(strings.TrimSpace(word), ".!"))
	if slices.Contains([]string{"deny", "no", "reject", "decline"}, word) {
		reason = strings.TrimSpace(reason)
		if reason == "" {
			reason = "the client of A2A denied it"
		}
		return task.Reply{Reason: excerpt.Line(reason, 1000)}, nil
	}
	switch kindOf(q) {
	case task.Choice:
		return task.Reply{Allow: true, Text: text}, nil
	case task.Form:
		if len(data) == 0 {
			return task.Reply{}, refusal(a2a.CodeParams, "message.parts: answer with a part of data, or with the word deny")
		}
		return task.Reply{Allow: true, Input: data}, nil
	}
	switch {
	case !slices.Contains([]string{"allow", "yes", "approve", "ok"}, word):
		return task.Reply{}, refusal(a2a.CodeParams, "the agent asks for a permission: answer allow or deny")
	case q.Hidden > 0 || len([]rune(excerpt.Call(q.Input, q.Hidden))) > maxShown:
		return task.Reply{}, refusal(a2a.CodeUnsupported,
			"the call is too long to be shown here: deny it, or allow it with `drover approvals` where the agent works")
	}
	return task.Reply{Allow: true}, nil
}

// decide carries an answer to the session.
func (s *Server) decide(ctx context.Context, q task.Question, r task.Reply) error {
	return s.link.Decide(ctx, control.DecideRequest{ID: q.ID, Digest: q.Digest, Reply: r, Actor: task.ByClient,
		Detail: detail})
}

// get is the state of a task.
func (s *Server) get(ctx context.Context, agent string, p a2a.TaskRequest) (*a2a.Task, error) {
	one, err := s.find(agent, p.ID)
	if err != nil {
		return nil, err
	}
	v, err := s.look(ctx, one)
	if err != nil {
		return nil, err
	}
	return v.task(p.History), nil
}

// cancel stops the agent of a task.
func (s *Server) cancel(ctx context.Context, agent string, p a2a.TaskRequest) (*a2a.Task, error) {
	one, err := s.find(agent, p.ID)
	if err != nil {
		return nil, err
	}
	v, err := s.look(ctx, one)
	if err != nil {
		return nil, err
	}
	if v.status.State == a2a.Canceled {
		return v.task(nil), nil
	}
	if v.status.State.Terminal() {
		return nil, refusal(a2a.CodeNotCancelable, "task %s has ended (%s)", one.id, v.status.State)
	}
	work := context.WithoutCancel(ctx)
	refs := []string{string(v.saved.Task)}
	_, err = s.link.Stop(work, control.StopRequest{Refs: refs, Actor: task.ByClient, Detail: detail})
	if err != nil {
		return nil, err
	}
	if v, err = s.look(work, one); err != nil {
		return nil, err
	}
	return v.task(nil), nil
}

// Bounds of a page of a listing, from the protocol.
const (
	usualPage = 50
	mostPage  = 100
)

// list is the tasks of an agent, the one whose state is newest first.
func (s *Server) list(ctx context.Context, agent string, p a2a.ListRequest) (*a2a.List, error) {
	size := usualPage
	if p.PageSize != nil {
		size = *p.PageSize
	}
	switch {
	case size < 1 || size > mostPage:
		return nil, refusal(a2a.CodeParams, "pageSize: %d is not between 1 and %d", size, mostPage)
	case p.Status != "" && !p.Status.Known():
		return nil, refusal(a2a.CodeParams, "status: %.40q is no state of a task", p.Status)
	}
	var found []view
	for _, one := range s.store.all() {
		st := one.state()
		if st.Agent != agent || p.Context != "" && st.Context != p.Context {
			continue
		}
		v, err := s.glance(ctx, one)
		if err != nil {
			return nil, err
		}
		if (p.Status == "" || v.status.State == p.Status) && (p.After == nil || !v.status.Timestamp.Before(p.After.Time)) {
			found = append(found, v)
		}
	}
	slices.SortFunc(found, func(a, b view) int { return strings.Compare(place(b), place(a)) })
	list := &a2a.List{Tasks: []a2a.Task{}, PageSize: size, TotalSize: len(found)}
	last := ""
	for _, v := range found {
		if p.PageToken != "" && place(v) >= p.PageToken {
			continue
		}
		if len(list.Tasks) == size {
			list.Next = last
			break
		}
		last = place(v)
		if p.Artifacts && v.status.State == a2a.Completed {
			v.artifact = s.result(ctx, v.saved)
		}
		list.Tasks = append(list.Tasks, *v.task(p.History))
	}
	return list, nil
}

// place is where a task stands in the listing; a page goes on below the place that its token is.
func place(v view) string {
	return v.status.Timestamp.UTC().Format("20060102T150405.000") + "." + v.saved.ID
}

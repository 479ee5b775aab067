package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

var (
	_ tasktools.Sender = (*Runtime)(nil)
	_ tasktools.Reader = (*Runtime)(nil)
)

// Send sends a message to another agent.
func (rt *Runtime) Send(ctx context.Context, m tasktools.SendRequest) (tasktools.Sent, error) {
	if sent, taken, err := rt.steerWork(ctx, m); taken {
		return sent, err
	}
	to, err := rt.receiver(m.To)
	if err != nil {
		return tasktools.Sent{}, err
	}
	id := cmp.Or(to.ID, rt.s.Info.Session)
	if to.Status.Terminal() && !(rt.Host == nil || rt.s.Below(to, rt.ID)) {
		return tasktools.Sent{}, &toolkit.Refusal{
			Text: fmt.Sprintf("agent %s has ended (%s), and only the agent that started it can let it go on", to.ID, to.Status),
		}
	}
	hops, err := rt.s.mail.Allow(rt.ID, id)
	if err != nil {
		return tasktools.Sent{}, err
	}
	if m.Plan != nil {
		err = rt.answerPlan(ctx, to, *m.Plan, hops)
		return tasktools.Sent{To: to}, mailRefusal(err)
	}
	ended := to.Status.Terminal()
	var seq task.Seq
	if !ended || to.Team != nil {
		seq, err = rt.s.Tasks.Post(ctx,
			task.Message{To: id, From: cmp.Or(rt.name(), string(rt.ID)), Kind: task.PlainMessage, Text: m.Text, Hops: hops})
		if err != nil || !ended {
			return tasktools.Sent{To: to}, mailRefusal(err)
		}
		m.Text = GoOn // the mailbox of a teammate outlasts its run
	}
	rt.s.mail.Continue(to.ID, hops)
	out, err := rt.Agent(ctx,
		tasktools.AgentRequest{Prompt: m.Text, Resume: string(to.ID), Background: true, ToolUseID: m.ToolUseID})
	if refused := err; seq != 0 && refused != nil {
		if err = rt.s.mail.TakeBack(ctx, to.ID, seq, refused); err == nil { // another caller has resumed it
			out.Task, _ = rt.s.Tasks.Get(to.ID)
		}
	}
	return tasktools.Sent{To: out.Task, Resumed: true, Report: out.Text, Note: out.Note, Unless: out.Unless}, err
}

// mailRefusal tells a model that a mailbox is full.
func mailRefusal(err error) error {
	if errors.Is(err, task.ErrMailFull) {
		return &toolkit.Refusal{Text: "this agent has too much mail that it has not read yet: wait until it has read some"}
	}
	return err
}

// receiver finds the agent that a name means for this one. The zero record is the main agent.
func (rt *Runtime) receiver(ref string) (task.Record, error) {
	if ref == MainName && rt.underMain() {
		return task.Record{}, nil
	}
	r, err := rt.s.FindNear(ref, rt.name())
	var several *supervise.AmbiguousError
	switch {
	case errors.As(err, &several):
		return r, &toolkit.Refusal{Text: err.Error() + ": give the whole ID"}
	case err == nil && rt.reaches(r):
		return r, nil
	case err == nil && !r.Kind.IsAgent() && (rt.Host == nil || rt.s.Below(r, rt.ID)):
		return r, &toolkit.Refusal{Text: deaf(r)}
	}
	return task.Record{}, &toolkit.Refusal{Text: fmt.Sprintf("unknown agent: %.80q; %s", ref, rt.reachable())}
}

// underMain reports whether the agent was started by a main agent, which reads its messages.
func (rt *Runtime) underMain() bool {
	return rt.s.mainAgent() != nil && rt.Host != nil && rt.Host.Record().Owner == rt.s.Info.Session
}

// reaches reports whether this agent may send messages to the one of a record: below it, above
// it, or a sibling.
func (rt *Runtime) reaches(r task.Record) bool {
	if !r.Kind.IsAgent() || r.ID == rt.ID || r.ID == rt.s.Info.Session {
		return false
	}
	if rt.Host == nil {
		return true
	}
	me := rt.Host.Record()
	beside := r.Parent == me.Parent && r.Owner == me.Owner && (me.Parent != "" || me.Owner != "")
	sameTeam := r.Team != nil && me.Team != nil && r.Team.Team == me.Team.Team
	return rt.s.Below(r, rt.ID) || r.ID == me.Parent || beside || sameTeam
}

// maxNamed limits the agents that an error lists.
const maxNamed = 20

// reachable lists the live agents to which this one may send messages.
func (rt *Runtime) reachable() string {
	var names []string
	if rt.underMain() {
		names = append(names, MainName)
	}
	more := 0
	for _, r := range rt.s.Tasks.List(0) {
		switch {
		case r.Status.Terminal() || !rt.reaches(r):
		case len(names) == maxNamed:
			more++
		default:
			names = append(names, fmt.Sprintf("%s (%s)", cmp.Or(r.Name, string(r.ID)), r.ID))
		}
	}
	if len(names) == 0 {
		return "no agent is alive that you may write to"
	}
	text := "live agents: " + strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Responses returns the answers of an agent after one of its responses.
func (rt *Runtime) Responses(
	ctx context.Context, ref string, since int, wait time.Duration,
) (tasktools.Responses, error) {
	first, err := rt.Find(ctx, ref)
	if err != nil {
		return tasktools.Responses{}, err
	}
	if !first.Kind.IsAgent() || first.ID == rt.s.Info.Session {
		return tasktools.Responses{}, &toolkit.Refusal{Text: fmt.Sprintf("task %s is no agent; use TaskOutput", first.ID)}
	}
	limit, cancel := context.WithTimeoutCause(ctx, max(wait, 0), supervise.ErrTimeout)
	defer cancel()
	said := answers{from: agent.Reading{Path: rt.s.Place.AgentTranscript(first.ID)}, since: since}
	for {
		committed := rt.s.Log.NextCommit()
		now := rt.s.Latest(first.ID)
		list, err := said.next()
		got := tasktools.Responses{Task: now, List: list}
		turned := now.Resting() || now.Backgrounded != first.Backgrounded || now.Run != first.Run
		if err != nil || wait <= 0 || len(list) > 0 || now.Status.Terminal() || turned {
			return got, err
		}
		select {
		case <-committed: // a response is sent as progress
		case <-limit.Done():
			got.TimedOut = ctx.Err() == nil
			return got, context.Cause(ctx)
		}
	}
}

// answers reads the responses of an agent as they come.
type answers struct {
	from  agent.Reading
	since int // only those after this number
	n     int // seen so far
}

// next returns those that have come since the last call.
func (a *answers) next() (list []tasktools.Response, err error) {
	n := a.n
	err = a.from.Next(func(r agent.Record) error {
		if r.Message.Role() != agent.Assistant || r.Aside {
			return nil
		}
		if n++; n-1 <= a.since {
			return nil
		}
		one, err := response(n-1, r.Message)
		list = append(list, one)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it has not begun
	}
	if err != nil {
		return nil, err
	}
	a.n = n
	return list, nil
}

func response(turn int, m agent.Message) (tasktools.Response, error) {
	one := tasktools.Response{Turn: turn}
	blocks, err := m.Blocks()
	if err != nil {
		return one, err
	}
	var texts []string
	for _, b := range blocks {
		switch b.Type {
		case "text":
			texts = append(texts, b.Text)
		case "tool_use":
			one.Tools = append(one.Tools, b.Name)
		}
	}
	one.Text, one.Final = strings.Join(texts, "\n"), len(one.Tools) == 0
	return one, nil
}

// steerWork passes a message of a model to the driver of a task. taken is false if the receiver
// is an agent, or a task that this agent may not reach.
func (rt *Runtime) steerWork(ctx context.Context, m tasktools.SendRequest) (_ tasktools.Sent, taken bool, err error) {
	r, err := rt.Find(ctx, m.To)
	if err == nil && r.TTY && !r.Status.Terminal() && m.Plan == nil {
		return rt.typeInto(ctx, r, m.Text)
	}
	if err != nil || r.Kind.IsAgent() || r.Traits().Work == task.ByCommand || r.Status != task.Running || m.Plan != nil ||
		strings.TrimSpace(m.Text) == "" {
		return tasktools.Sent{}, false, nil
	}
	if err := rt.s.mail.AllowInput(rt.ID, r.ID); err != nil {
		return tasktools.Sent{}, true, err
	}
	switch err := rt.s.Tasks.Steer(ctx, r.ID, m.Text); {
	case errors.Is(err, supervise.ErrNotSteerable):
		return tasktools.Sent{}, false, nil
	case err != nil && ctx.Err() == nil:
		return tasktools.Sent{}, true, &toolkit.Refusal{Text: err.Error()}
	case err != nil:
		return tasktools.Sent{}, true, context.Cause(ctx)
	}
	return tasktools.Sent{To: r}, true, nil
}

// Assign notifies an agent that a to-do was assigned to it. Owners that are not agents of the
// session are ignored.
func (s *Set) Assign(ctx context.Context, owner string, it todo.Item, by string) error {
	to := s.Info.Session
	if owner != MainName {
		r, err := s.FindNear(owner, by)
		if err != nil || !r.Kind.IsAgent() {
			return nil
		}
		to = r.ID
	}
	text := fmt.Sprintf("To-do %s is yours now: %s", it.ID, it.Subject)
	if it.Description != "" {
		text += "\n" + it.Description
	}
	_, err := s.Tasks.Post(ctx, task.Message{To: to, From: by, Kind: task.TaskAssignment, Text: text})
	if errors.Is(err, task.ErrMailFull) {
		return control.Refuse(control.Unavailable, fmt.Sprintf("%s has too much unread mail to be told", owner), "")
	}
	return err
}

// name returns the agent's name in messages and as the owner of to-dos.
func (me Caller) name() string {
	if me.Host == nil {
		return MainName
	}
	return me.Host.Record().Name
}

// typeInto types for an agent. A line that the user's rules deny as a command is not typed
// either, since the program in the terminal may be a shell.
func (rt *Runtime) typeInto(ctx context.Context, r task.Record, text string) (tasktools.Sent, bool, error) {
	if err := rt.s.mail.AllowInput(rt.ID, r.ID); err != nil {
		return tasktools.Sent{}, true, err
	}
	if err := rt.unbanned(text); err != nil {
		return tasktools.Sent{}, true, err
	}
	if r = rt.s.Begun(ctx, r); r.Status != task.Running {
		return tasktools.Sent{}, true, &toolkit.Refusal{Text: deaf(r)}
	}
	err := rt.s.Tasks.Steer(ctx, r.ID, tasks.Keys(text))
	var mute *task.SteerError
	switch {
	case errors.As(err, &mute):
		return tasktools.Sent{}, true, &toolkit.Refusal{Text: mute.Why}
	case err != nil:
		return tasktools.Sent{}, true, err
	}
	return tasktools.Sent{To: r}, true, nil
}

func (rt *Runtime) unbanned(text string) error {
	rules := rt.Rules
	rules.Cwd = rt.Cwd
	blank := func(line string) bool { return strings.TrimSpace(line) == "" }
	denial, err := rt.s.deniedBy(rules, slices.DeleteFunc(commands(text), blank)...)
	if denial != nil {
		err = toolkit.Refusef("the rule %s denies this as a command, and so it is not typed: %s", denial.Rule, denial.Reason)
	}
	return err
}

// commands returns the lines that a shell may read in typed text: the parts between keys that are not
// characters, some of which end or edit a line, and the whole text without editing keys.
func commands(text string) []string {
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\t' }
	plain := strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return '\n'
		case control(r) && r != '\n':
			return -1
		}
		return r
	}, text)
	return append(append(strings.FieldsFunc(text, control), strings.Split(plain, "\n")...), plain)
}

// deaf tells a model why a task accepts no message.
func deaf(r task.Record) string {
	switch {
	case r.TTY:
		return fmt.Sprintf("task %s is %s: nobody reads what is typed", r.ID, r.Status)
	case r.Traits().Work == task.ByCommand:
		return fmt.Sprintf(
			"task %s is a command without a terminal, which reads its input from /dev/null: stop it and start it with tty", r.ID,
		)
	}
	return fmt.Sprintf("task %s (%s) reads no messages", r.ID, r.Noun())
}

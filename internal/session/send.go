package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

var (
	_ tasktools.Sender = (*runtime)(nil)
	_ tasktools.Reader = (*runtime)(nil)
)

// Bounds of what agents write to each other. Two that answer each other for ever
// cost money and bring nothing.
const (
	pairMessages    = 30
	pairWindow      = 10 * time.Minute
	sessionMessages = 1000
)

// traffic counts the messages of agents. Its zero value is ready.
type traffic struct {
	mu    sync.Mutex
	total int                        // guarded by mu, like the next
	sent  map[[2]task.ID][]time.Time // by sender and receiver, within the window
}

// pass counts a message, or says why it is one too many.
func (t *traffic) pass(from, to task.ID, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	pair := [2]task.ID{from, to}
	recent := slices.DeleteFunc(t.sent[pair], func(at time.Time) bool { return now.Sub(at) >= pairWindow })
	switch {
	case t.total >= sessionMessages:
		return &toolkit.Refusal{
			Text: fmt.Sprintf(
				"the agents of this session have sent %d messages, which is all that they may: go on without",
				sessionMessages,
			),
		}
	case len(recent) >= pairMessages:
		return &toolkit.Refusal{
			Text: fmt.Sprintf("you have sent %d messages to this agent within %s, which is all that you may: "+
				"do the work, or end with a report", pairMessages, pairWindow),
		}
	}
	if t.sent == nil {
		t.sent = map[[2]task.ID][]time.Time{}
	}
	t.total++
	t.sent[pair] = append(recent, now)
	return nil
}

// Send gives a message to another agent.
func (rt *runtime) Send(ctx context.Context, m tasktools.SendRequest) (tasktools.Sent, error) {
	if sent, taken, err := rt.steerWork(ctx, m); taken {
		return sent, err
	}
	to, err := rt.receiver(m.To)
	if err != nil {
		return tasktools.Sent{}, err
	}
	id := cmp.Or(to.ID, rt.s.cfg.Info.Session)
	if to.Status.Terminal() && !(rt.host == nil || rt.s.tree.Below(to, rt.id)) {
		return tasktools.Sent{}, &toolkit.Refusal{
			Text: fmt.Sprintf("agent %s has ended (%s), and only the agent that started it can let it go on", to.ID, to.Status),
		}
	}
	hops, err := rt.s.hops.next(rt.id, rt.s.cfg.Limits.MessageHops)
	if err != nil {
		return tasktools.Sent{}, err
	}
	if err := rt.s.traffic.pass(rt.id, id, time.Now()); err != nil {
		return tasktools.Sent{}, err
	}
	if m.Plan != nil {
		err = rt.answerPlan(ctx, to, *m.Plan, hops)
		return tasktools.Sent{To: to}, mailRefusal(err)
	}
	ended := to.Status.Terminal()
	var seq task.Seq
	if !ended || to.Team != nil {
		seq, err = rt.s.sup.Post(
			ctx,
			task.Message{To: id, From: cmp.Or(rt.name(), string(rt.id)), Kind: task.PlainMessage, Text: m.Text, Hops: hops},
		)
		if err != nil || !ended {
			return tasktools.Sent{To: to}, mailRefusal(err)
		}
		m.Text = goOn // a teammate has its mail, which is not lost with a run that ends early
	}
	rt.s.hops.hear(to.ID, hops)
	out, err := rt.Agent(
		ctx,
		tasktools.AgentRequest{Prompt: m.Text, Resume: string(to.ID), Background: true, ToolUseID: m.ToolUseID},
	)
	if refused := err; seq != 0 && refused != nil {
		if err = rt.s.takeBack(ctx, to.ID, seq, refused); err == nil { // somebody else let it go on
			out.Task, _ = rt.s.sup.Get(to.ID)
		}
	}
	return tasktools.Sent{To: out.Task, Resumed: true, Report: out.Text, Note: out.Note}, err
}

// mailRefusal tells a model of a full mailbox.
func mailRefusal(err error) error {
	if errors.Is(err, task.ErrMailFull) {
		return &toolkit.Refusal{Text: "this agent has too much mail that it has not read yet: wait until it has read some"}
	}
	return err
}

// receiver finds the agent that a name means to this one. The zero record is the
// main agent.
func (rt *runtime) receiver(ref string) (task.Record, error) {
	if ref == mainName && rt.underMain() {
		return task.Record{}, nil
	}
	r, err := rt.s.tree.FindNear(ref, rt.name())
	var several *supervise.AmbiguousError
	switch {
	case errors.As(err, &several):
		return r, &toolkit.Refusal{Text: err.Error() + ": give the whole ID"}
	case err == nil && rt.reaches(r):
		return r, nil
	case err == nil && !r.Kind.IsAgent() && (rt.host == nil || rt.s.tree.Below(r, rt.id)):
		return r, &toolkit.Refusal{Text: deaf(r)}
	}
	return task.Record{}, &toolkit.Refusal{Text: fmt.Sprintf("unknown agent: %.80q; %s", ref, rt.reachable())}
}

// underMain reports whether the agent was started by a main agent, which reads
// what it writes.
func (rt *runtime) underMain() bool {
	rt.s.mu.Lock()
	defer rt.s.mu.Unlock()
	return rt.s.main != nil && rt.host != nil && rt.host.Record().Owner == rt.s.cfg.Info.Session
}

// reaches reports whether this agent may write to the one of a record: below it,
// above it, or beside it.
func (rt *runtime) reaches(r task.Record) bool {
	if !r.Kind.IsAgent() || r.ID == rt.id || r.ID == rt.s.cfg.Info.Session {
		return false
	}
	if rt.host == nil {
		return true
	}
	me := rt.host.Record()
	beside := r.Parent == me.Parent && r.Owner == me.Owner && (me.Parent != "" || me.Owner != "")
	mates := r.Team != nil && me.Team != nil && r.Team.Team == me.Team.Team
	return rt.s.tree.Below(r, rt.id) || r.ID == me.Parent || beside || mates
}

// maxNamed bounds the agents that an error names.
const maxNamed = 20

// reachable names the live agents that this one may write to.
func (rt *runtime) reachable() string {
	var names []string
	if rt.underMain() {
		names = append(names, mainName)
	}
	more := 0
	for _, r := range rt.s.sup.List(0) {
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

// Responses is what an agent has answered after one of its responses.
func (rt *runtime) Responses(
	ctx context.Context,
	ref string,
	since int,
	wait time.Duration,
) (tasktools.Responses, error) {
	first, err := rt.Find(ctx, ref)
	if err != nil {
		return tasktools.Responses{}, err
	}
	if !first.Kind.IsAgent() || first.ID == rt.s.cfg.Info.Session {
		return tasktools.Responses{}, &toolkit.Refusal{Text: fmt.Sprintf("task %s is no agent; use TaskOutput", first.ID)}
	}
	limit, cancel := context.WithTimeoutCause(ctx, max(wait, 0), supervise.ErrTimeout)
	defer cancel()
	said := answers{from: agent.Reading{Path: rt.s.cfg.Place.AgentTranscript(first.ID)}, since: since}
	for {
		grown := rt.s.log.Grown()
		now := rt.s.tree.Latest(first.ID)
		list, err := said.next()
		got := tasktools.Responses{Task: now, List: list}
		turned := now.Idle || now.Backgrounded != first.Backgrounded || now.Run != first.Run
		if err != nil || wait <= 0 || len(list) > 0 || now.Status.Terminal() || turned {
			return got, err
		}
		select {
		case <-grown: // a response is told as progress
		case <-limit.Done():
			got.TimedOut = ctx.Err() == nil
			return got, context.Cause(ctx)
		}
	}
}

// answers are the responses of an agent, read on as they come.
type answers struct {
	from  agent.Reading
	since int // only those after this number
	n     int // seen so far
}

// next are those that have come since the last next.
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

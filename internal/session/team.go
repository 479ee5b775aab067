package session

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/builtin"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

//go:embed team.md
var teamPrompt string

// mate is what a teammate has beside what other agents have. A nil one is no
// teammate, and its methods say so.
type mate struct {
	team task.Team
	wide permission.Mode // that of an approved plan

	// Both are set by mail, as the agent reads it, and hold for its run.
	approved atomic.Bool // it may carry out its plan
	leaving  atomic.Bool // this turn is its last

	mu   sync.Mutex
	plan string // guarded by mu: the request that waits for an answer; empty: none
}

// read takes in what a message says beside its text.
func (m *mate) read(kind task.MessageKind) {
	switch {
	case m == nil:
	case kind == task.PlanApproved:
		m.approved.Store(true)
	case kind == task.ShutdownRequest:
		m.leaving.Store(true)
	}
}

// ends reports whether it has read that it is to end.
func (m *mate) ends() bool { return m != nil && m.leaving.Load() }

// asks reports whether a plan waits for an answer.
func (m *mate) asks() bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.plan != ""
}

// swap makes one request that waits for an answer of another, if it is the one
// that waits now.
func (m *mate) swap(from, to string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.plan != from {
		return false
	}
	m.plan = to
	return true
}

// mode is the permission mode that somebody works in now.
func (me caller) mode() permission.Mode {
	if me.live != nil {
		_, mode, _ := me.live.get()
		return mode
	}
	if me.widens() && me.mate.approved.Load() {
		return me.mate.wide
	}
	return me.rules.Mode
}

// widens reports whether an approved plan would give it another mode.
func (me caller) widens() bool {
	return me.mate != nil && me.rules.Mode == permission.Plan && me.mate.wide != permission.Plan
}

// enlist completes what a teammate is started with, of which the name and the team
// are given. Two of one team are never called the same, and one leads a team. The
// caller holds teams until it is started.
func (s *Session) enlist(spec task.Spec) (task.Spec, error) {
	members := 0
	for _, r := range s.sup.List(0) {
		if r.Team == nil || r.Team.Team != spec.Team.Team {
			continue
		}
		if members++; r.Owner != spec.Owner && !r.Status.Terminal() {
			return spec, &control.Error{
				Code:    control.Conflict,
				Message: fmt.Sprintf("the team %s is led by another", r.Team.Team),
				Fix:     "give the team another name",
			}
		}
	}
	t, err := lifecycle.NewTeam(spec.Team.Name, spec.Team.Team, members)
	if err != nil {
		return spec, &control.Error{Code: control.Invalid, Message: err.Error()}
	}
	if t.Name == mainName {
		return spec, &control.Error{
			Code:    control.Invalid,
			Message: fmt.Sprintf("%s is how the main agent is called", mainName),
			Fix:     "give the teammate another name",
		}
	}
	if r, err := s.sup.Find(t.AgentID); err == nil {
		e := &control.Error{
			Code:    control.Conflict,
			Message: fmt.Sprintf("%s is there already: task %s is %s", t.AgentID, r.ID, r.Status),
			Fix:     "send it a message",
		}
		if r.Team == nil {
			e.Fix = "give the teammate another name"
		}
		return spec, e
	}
	spec.Name, spec.Team, spec.Backgrounded = t.AgentID, &t, true
	return spec, nil
}

// join makes a child the teammate that a record or a spec names, which nil does
// not. Whatever its definition lists, it can write to its team, as far as who asks
// for it can write to anybody, and hand in a plan.
func (c *child) join(t *task.Team, me caller) {
	if t == nil {
		return
	}
	c.mate = &mate{
		team: *t,
		wide: environment.Narrower(
			environment.Narrower(me.mode(), permission.Mode(c.def.PermissionMode)),
			permission.AcceptEdits,
		),
	}
	if c.tools == nil {
		return
	}
	more := environment.Subset(me.tools, []string{"SendMessage"}, slices.Concat(c.def.DisallowedTools, c.tools))
	c.tools = slices.Concat(c.tools, more, []string{"submit_plan"})
}

// brief is what a teammate is told of its team, with the same bytes in every run.
func (m *mate) brief(leader string) string {
	if m == nil {
		return ""
	}
	who := "A person leads you, and reads what you say."
	if leader != "" {
		who = fmt.Sprintf("You are led by the agent %s.", leader)
	}
	return "\n\n" + strings.NewReplacer(
		"{agent}",
		m.team.AgentID,
		"{team}",
		m.team.Team,
		"{leader}",
		who,
	).Replace(
		strings.TrimSpace(teamPrompt),
	)
}

// leader is how a teammate addresses who leads it; empty: a person does.
func (me caller) leader() string {
	if me.mate == nil || me.host == nil {
		return ""
	}
	switch owner := me.host.Record().Owner; owner {
	case "":
		return ""
	case me.s.cfg.Info.Session:
		return mainName
	default:
		r, _ := me.s.sup.Get(owner)
		return cmp.Or(r.Name, string(owner))
	}
}

// stays reports whether a call is for a teammate: a new one, or one that goes on.
func (rt *runtime) stays(r tasktools.AgentRequest) bool {
	if r.Resume == "" {
		return r.Team != ""
	}
	old, err := rt.s.tree.Find(r.Resume)
	return err == nil && old.Team != nil
}

// noTeam says why no teammate can be had here.
func (s *Session) noTeam() error {
	why := "agents of agents do not run in the background here, and a teammate does: only the main agent can have teammates"
	if s.cfg.Limits.NoBackground {
		why = "background work is turned off, and a teammate works in the background"
	}
	return &toolkit.Refusal{Text: why}
}

// shutdownText is what a teammate reads that is to end.
const shutdownText = "Finish now: this turn is your last, and you have %s for it. Begin nothing new. Say in your answer what is done, what is not, and where your results are."

// dismiss asks a teammate to finish, and returns when it has ended or its time is
// up. One that could not read the request now is not asked.
func (s *Session) dismiss(ctx context.Context, r task.Record, from string) {
	if r.Team == nil || r.Status != task.Running || r.Paused || r.AwaitingApproval || r.Stopping {
		return
	}
	grace := s.cfg.Limits.TeammateGrace
	_, err := s.sup.Post(
		ctx,
		task.Message{
			To:       r.ID,
			From:     from,
			Kind:     task.ShutdownRequest,
			Priority: task.Next,
			Text:     fmt.Sprintf(shutdownText, grace),
		},
	)
	if err != nil {
		return // its mailbox is full, or nothing can be written: it is stopped all the same
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-s.sup.Done(r.ID):
	case <-late.C:
	case <-ctx.Done():
	}
}

// lastWord is the mail by which the leader of a teammate is told of the end of a
// run. It is made of the notice that was recorded with that end, so none is lost
// and none comes twice.
func (s *Session) lastWord(ctx context.Context, r task.Record, answer string) (task.Message, error) {
	text := mailbox.Summary(r) + "."
	if answer != "" {
		said, _ := excerpt.Tail(excerpt.Plain(answer), s.cfg.Limits.OutputChars, r.OutputFile)
		text += "\n\n" + said
	}
	unread, err := s.log.Unread(ctx, r.ID)
	if err != nil {
		return task.Message{}, err
	}
	if n := len(unread); n > 0 {
		text += fmt.Sprintf(
			"\n\n[Messages to it that it has not read: %d. It reads them if it goes on, by a message of yours.]",
			n,
		)
	}
	return task.Message{From: cmp.Or(r.Name, string(r.ID)), Kind: task.TeammateEnd, Text: text}, nil
}

// planner is a teammate that hands in plans.
type planner struct{ *agentEnvironment }

var _ tasktools.Planner = planner{}

// Propose implements [tasktools.Planner].
func (p planner) Propose(ctx context.Context, plan string) (tasktools.Proposed, error) {
	me := p.me
	switch {
	case me.mode() != permission.Plan:
		return tasktools.Proposed{}, &toolkit.Refusal{Text: "you are not in plan mode: no approval is needed"}
	case !me.widens():
		return tasktools.Proposed{}, &toolkit.Refusal{
			Text: "nobody here can let you leave plan mode: give the plan in your answer",
		}
	}
	r := me.host.Record()
	hops, err := me.s.hops.next(me.id, me.s.cfg.Limits.MessageHops)
	if err == nil {
		err = me.s.traffic.pass(me.id, r.Owner, time.Now())
	}
	if err != nil {
		return tasktools.Proposed{}, err
	}
	id := "plan-" + strings.ToLower(rand.Text()[:8])
	if r.Owner == "" {
		return p.askPerson(ctx, id, r.Name, plan)
	}
	m := me.mate
	m.mu.Lock()
	before := m.plan
	m.plan = id // the answer may be here before Post has returned
	m.mu.Unlock()
	text := fmt.Sprintf("Teammate %s wants to carry out the plan below, request %s. Answer it with SendMessage: "+
		"{\"to\": %q, \"plan_approval\": {\"request_id\": %q, \"approve\": true or false, \"feedback\": …}}\n\n%s", r.Name, id, r.Name, id, strings.ToValidUTF8(plan, "\uFFFD"))
	_, err = me.s.sup.Post(ctx, task.Message{To: r.Owner, From: r.Name, Kind: task.PlanRequest, Text: text, Hops: hops})
	if err != nil {
		m.swap(id, before)
	}
	if errors.Is(err, task.ErrMailFull) {
		err = &toolkit.Refusal{
			Text: "your leader has too much mail that it has not read yet: end your turn, and submit the plan later",
		}
	}
	return tasktools.Proposed{ID: id}, err
}

// askPerson puts a plan to the person who leads a teammate.
func (p planner) askPerson(ctx context.Context, id, name, plan string) (tasktools.Proposed, error) {
	input, err := json.Marshal(map[string]string{"plan": plan})
	if err != nil {
		return tasktools.Proposed{}, err
	}
	reply, err := p.ask(
		ctx,
		task.Question{
			Kind:   task.Permission,
			Tool:   "submit_plan",
			Input:  input,
			Reason: fmt.Sprintf("%s wants to carry out a plan", name),
		},
	)
	if err != nil {
		return tasktools.Proposed{}, fmt.Errorf("ask for approval of a plan: %w", err)
	}
	if reply.Allow {
		p.me.mate.approved.Store(true)
	}
	return tasktools.Proposed{ID: id, Decided: true, Approved: reply.Allow, Reason: reply.Reason}, nil
}

// answerPlan is the answer of a leader to a plan of a teammate.
func (rt *runtime) answerPlan(ctx context.Context, to task.Record, a tasktools.PlanAnswer, hops int) error {
	s := rt.s
	s.mu.Lock()
	m := s.mates[to.ID]
	s.mu.Unlock()
	none := fmt.Sprintf("no plan %.40q of %s waits for an answer", a.RequestID, cmp.Or(to.Name, "this agent"))
	switch {
	case to.Team != nil && to.Owner != rt.id:
		return &toolkit.Refusal{Text: fmt.Sprintf("only the agent that leads %s can answer its plans", to.Name)}
	case m == nil || !m.swap(a.RequestID, ""):
		return &toolkit.Refusal{Text: none}
	}
	kind, text := task.PlanRejected, fmt.Sprintf(
		"Plan %s is not approved: you stay in plan mode. Mend the plan and submit it again.",
		a.RequestID,
	)
	if a.Approve {
		kind, text = task.PlanApproved, fmt.Sprintf(
			"Plan %s is approved: carry it out. You work in permission mode %s from here on.",
			a.RequestID,
			m.wide,
		)
	}
	if a.Feedback != "" {
		text += "\n\n" + a.Feedback
	}
	_, err := s.sup.Post(ctx, task.Message{To: to.ID, From: rt.name(), Kind: kind, Text: text, Hops: hops})
	if err != nil {
		m.swap("", a.RequestID)
	}
	return err
}

// enter says that a teammate is at work, or with nil that it is not any more.
func (s *Session) enter(id task.ID, m *mate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m == nil {
		delete(s.mates, id)
		return
	}
	s.mates[id] = m
}

// rests reports whether an agent waits for mail that has not come.
func (s *Session) rests(r task.Record) bool { return r.Idle && s.read(r.ID) }

// read reports whether an agent has read all its mail: one that rests and has not
// is about to wake.
func (s *Session) read(id task.ID) bool {
	s.mu.Lock()
	box := s.boxes[id]
	s.mu.Unlock()
	if box == nil {
		return true
	}
	mail, _ := box.Mail(context.Background()) // what cannot be read does not keep a session from its end
	return len(mail) == 0
}

// work is the work of a child: that of an agent, or of a teammate.
func (s *Session) work(c *child, in subagent.Input) builtin.Work {
	if c.mate != nil {
		return s.kinds.Teammate(c.assemble, in)
	}
	return s.kinds.Agent(c.assemble, in)
}

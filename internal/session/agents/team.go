package agents

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/acpclient"
	"github.com/drover-dev/drover/internal/driver/builtin"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

//go:embed team.md
var teamPrompt string

// teammate is the additional state of a teammate. A nil one is not a teammate, and its methods
// report that.
type teammate struct {
	team task.Team
	wide policy.Mode // mode of an approved plan

	// Set by messages when the agent reads them; valid for its run.
	approved atomic.Bool // its plan is approved
	leaving  atomic.Bool // this turn is its last

	mu   sync.Mutex
	plan string // guarded by mu: the plan that waits for approval; empty: none
}

// read handles the fields of a message other than its text.
func (m *teammate) read(kind task.MessageKind) {
	switch {
	case m == nil:
	case kind == task.PlanApproved:
		m.approved.Store(true)
	case kind == task.ShutdownRequest:
		m.leaving.Store(true)
	}
}

// ends reports whether it has read the request to finish.
func (m *teammate) ends() bool { return m != nil && m.leaving.Load() }

// asks reports whether a plan waits for approval.
func (m *teammate) asks() bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.plan != ""
}

// swap replaces the waiting plan request by another, if it is the current one.
func (m *teammate) swap(from, to string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.plan != from {
		return false
	}
	m.plan = to
	return true
}

// Mode returns the current permission mode of an agent.
func (me Caller) Mode() policy.Mode {
	if me.live != nil {
		_, mode, _ := me.live.get()
		return mode
	}
	if me.widens() && me.teammate.approved.Load() {
		return me.teammate.wide
	}
	return me.Rules.Mode
}

// widens reports whether an approved plan would change its mode.
func (me Caller) widens() bool {
	return me.teammate != nil && me.Rules.Mode == policy.Plan && me.teammate.wide != policy.Plan
}

// enlist completes the spec of a teammate with the given name and team. It refuses a name that
// the team already has and a second leader. The caller holds teams until the teammate is
// started.
func (s *Set) enlist(spec task.Spec) (task.Spec, error) {
	members := 0
	for _, r := range s.Tasks.List(0) {
		if r.Team == nil || r.Team.Team != spec.Team.Team {
			continue
		}
		if members++; r.Owner != spec.Owner && !r.Status.Terminal() {
			return spec, control.Refuse(control.Conflict, fmt.Sprintf("the team %s is led by another", r.Team.Team),
				"give the team another name")
		}
	}
	t, err := lifecycle.NewTeam(spec.Team.Name, spec.Team.Team, members)
	if err != nil {
		return spec, control.Refuse(control.Invalid, err.Error(), "")
	}
	if task.AgentName(t.Name) != t.Name {
		return spec, control.Refuse(control.Invalid, fmt.Sprintf("a teammate cannot be called %s", t.Name),
			"give the teammate another name")
	}
	if r, err := s.Tasks.Find(t.AgentID); err == nil {
		e := control.Refuse(control.Conflict, fmt.Sprintf("%s is there already: task %s is %s", t.AgentID, r.ID, r.Status),
			"send it a message")
		if r.Team == nil {
			e.Fix = "give the teammate another name"
		}
		return spec, e
	}
	spec.Name, spec.Team, spec.Backgrounded = t.AgentID, &t, true
	return spec, nil
}

// join makes a child the teammate that a record or a spec names; with nil it does nothing.
// Whatever its definition lists, the teammate can send messages to its team, as far as its
// caller can send messages, and submit a plan.
func (c *Child) join(t *task.Team, me Caller) {
	if t == nil {
		return
	}
	c.teammate = &teammate{
		team: *t,
		wide: environment.Narrower(environment.Narrower(me.Mode(), policy.Mode(c.def.PermissionMode)), policy.AcceptEdits),
	}
	if c.Tools == nil {
		return
	}
	more := environment.Subset(me.Tools, []string{"SendMessage"}, slices.Concat(c.def.DisallowedTools, c.Tools))
	c.Tools = slices.Concat(c.Tools, more, []string{task.SubmitPlan})
}

// brief returns the text of a teammate about its team, with the same bytes in every run.
func (m *teammate) brief(leader string) string {
	if m == nil {
		return ""
	}
	who := "A person leads you, and reads what you say."
	if leader != "" {
		who = fmt.Sprintf("You are led by the agent %s.", leader)
	}
	return "\n\n" + strings.NewReplacer("{agent}", m.team.AgentID, "{team}", m.team.Team, "{leader}", who).Replace(
		strings.TrimSpace(teamPrompt),
	)
}

// leader returns the name under which a teammate addresses its leader; empty: the user.
func (s *Set) leader(me Caller) string {
	if me.teammate == nil || me.Host == nil {
		return ""
	}
	switch owner := me.Host.Record().Owner; owner {
	case "":
		return ""
	case s.Info.Session:
		return MainName
	default:
		r, _ := s.Tasks.Get(owner)
		return cmp.Or(r.Name, string(owner))
	}
}

// stays reports whether a call starts or resumes a teammate.
func (rt *Runtime) stays(r tasktools.AgentRequest) bool {
	if r.Resume == "" {
		return r.Team != ""
	}
	old, err := rt.s.Find(r.Resume)
	return err == nil && old.Team != nil
}

// noTeam returns why no teammate can be started here.
func (s *Set) noTeam() error {
	why := "agents of agents do not run in the background here, and a teammate does: only the main agent can have teammates"
	if s.Options.Tasks.DisableBackground {
		why = "background work is turned off, and a teammate works in the background"
	}
	return &toolkit.Refusal{Text: why}
}

// shutdownText asks a teammate to finish.
const shutdownText = "Finish now: this turn is your last, and you have %s for it. Begin nothing new. Say in your answer what is done, what is not, and where your results are."

// dismiss asks a teammate to finish, and returns when it has ended or its grace is over. A
// teammate that cannot read the request now is not asked.
func (s *Set) dismiss(ctx context.Context, r task.Record, from string) {
	if r.Team == nil || r.Status != task.Running || r.Paused || r.Parked != nil || r.AwaitingApproval || r.Stopping {
		return
	}
	grace := s.Options.Agents.TeammateGrace
	_, err := s.Tasks.Post(ctx, task.Message{
		To:       r.ID,
		From:     from,
		Kind:     task.ShutdownRequest,
		Priority: task.Next,
		Text:     fmt.Sprintf(shutdownText, grace),
	})
	if err != nil {
		return // its mailbox is full, or the log cannot be written: it is stopped anyway
	}
	select {
	case <-s.Tasks.Done(r.ID):
	case <-time.After(grace):
	case <-ctx.Done():
	}
}

// planner is a teammate that submits plans.
type planner struct{ *Environment }

var _ tasktools.Planner = planner{}

// Propose implements [tasktools.Planner].
func (p planner) Propose(ctx context.Context, call agent.Call, plan string) (tasktools.Proposed, error) {
	me, s := p.Me, p.s
	switch {
	case me.Mode() != policy.Plan:
		return tasktools.Proposed{}, &toolkit.Refusal{Text: "you are not in plan mode: no approval is needed"}
	case !me.widens():
		return tasktools.Proposed{}, &toolkit.Refusal{
			Text: "nobody here can let you leave plan mode: give the plan in your answer",
		}
	}
	r := me.Host.Record()
	hops, err := s.mail.Allow(me.ID, r.Owner)
	if err != nil {
		return tasktools.Proposed{}, err
	}
	id, m := "plan-"+strings.ToLower(rand.Text()[:8]), me.teammate
	if r.Owner == "" {
		proposed, err := p.askPerson(ctx, task.SubmitPlan, call.ID, r.Name, plan)
		if proposed.ID = id; proposed.Approved {
			m.approved.Store(true)
		}
		return proposed, err
	}
	m.mu.Lock()
	before := m.plan
	m.plan = id // the answer may arrive before Post returns
	m.mu.Unlock()
	text := fmt.Sprintf("Teammate %s wants to carry out the plan below, request %s. Answer it with SendMessage: "+
		"{\"to\": %q, \"plan_approval\": {\"request_id\": %q, \"approve\": true or false, \"feedback\": …}}\n\n%s", r.Name, id, r.Name, id, strings.ToValidUTF8(plan, "\uFFFD"))
	_, err = s.Tasks.Post(ctx, task.Message{To: r.Owner, From: r.Name, Kind: task.PlanRequest, Text: text, Hops: hops})
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

// answerPlan sends the answer of a leader to a plan of a teammate.
func (rt *Runtime) answerPlan(ctx context.Context, to task.Record, a tasktools.PlanAnswer, hops int) error {
	s := rt.s
	s.mu.Lock()
	m := s.teammates[to.ID]
	s.mu.Unlock()
	none := fmt.Sprintf("no plan %.40q of %s waits for an answer", a.RequestID, cmp.Or(to.Name, "this agent"))
	switch {
	case to.Team != nil && to.Owner != rt.ID:
		return &toolkit.Refusal{Text: fmt.Sprintf("only the agent that leads %s can answer its plans", to.Name)}
	case m == nil || !m.swap(a.RequestID, ""):
		return &toolkit.Refusal{Text: none}
	}
	kind, text := task.PlanRejected, fmt.Sprintf(
		"Plan %s is not approved: you stay in plan mode. Fix the plan and submit it again.", a.RequestID,
	)
	if a.Approve {
		kind, text = task.PlanApproved, fmt.Sprintf(
			"Plan %s is approved: carry it out. You work in permission mode %s from here on.", a.RequestID, m.wide,
		)
	}
	if a.Feedback != "" {
		text += "\n\n" + a.Feedback
	}
	_, err := s.Tasks.Post(ctx, task.Message{To: to.ID, From: rt.name(), Kind: kind, Text: text, Hops: hops})
	if err != nil {
		m.swap("", a.RequestID)
	}
	return err
}

// enter registers a running teammate, or with nil removes it.
func (s *Set) enter(id task.ID, m *teammate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m == nil {
		delete(s.teammates, id)
		return
	}
	s.teammates[id] = m
}

// work returns the driver of a child, as an agent or a teammate, and its input.
func (s *Set) work(c *Child, in subagent.Input) builtin.Work {
	if c.def.ACP != nil {
		return s.kinds.AgentOfOthers(s.Info.Version, c.teammate != nil, func(a *acpclient.Agent) subagent.Assemble {
			c.outside = a
			return c.assemble
		}, in)
	}
	w := s.kinds.Agent(c.assemble, in)
	if c.teammate != nil {
		w = s.kinds.Teammate(c.assemble, in)
	}
	if c.on != "" {
		w.Driver = placed{w.Driver}
	}
	return w
}

package agents

import (
	"slices"
	"testing"
	"time"

	flow "github.com/drover-dev/drover/internal/project/workflowfile"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Plan mode remembers the mode that it replaces, and how often it began; the copy for a conversation that goes on has
// neither the gate nor the task of the turn.
func TestLive(t *testing.T) {
	l := newLive("sonnet", policy.AcceptEdits)
	if on, n := l.planning(); on || n != 0 || l.replaced() != policy.Default {
		t.Errorf("at first: %v, %d, %s", on, n, l.replaced())
	}
	gate := &policy.Gate{}
	l.change("sonnet", policy.Plan, gate)
	l.change("opus", policy.Plan, gate)
	if on, n := l.planning(); !on || n != 1 || l.replaced() != policy.AcceptEdits {
		t.Errorf("in plan mode: %v, %d, %s", on, n, l.replaced())
	}
	var host task.Host = recorded{}
	l.moved.Store(&host)
	c := l.copy()
	model, mode, of := c.get()
	if _, moved := c.task(); moved || model != "opus" || mode != policy.Plan || of != nil || c.replaced() != policy.AcceptEdits {
		t.Errorf("the copy: %s, %s, %v, moved %v, %s", model, mode, of, moved, c.replaced())
	}
	if _, moved := (*live)(nil).task(); moved {
		t.Error("an agent that is not the main agent was moved")
	}
}

// An approved plan gives a teammate the wide mode, once, and only the answer to the plan that waits counts.
func TestTeammate(t *testing.T) {
	var none *teammate
	none.read(task.ShutdownRequest)
	if none.ends() || none.asks() || none.brief("") != "" {
		t.Error("an agent that is no teammate has the state of one")
	}
	m := &teammate{wide: policy.AcceptEdits}
	me := Caller{Rules: policy.Rules{Mode: policy.Plan}, teammate: m}
	if me.Mode() != policy.Plan || !me.widens() {
		t.Errorf("at first: %s", me.Mode())
	}
	if !m.swap("", "plan-1") || !m.asks() || m.swap("plan-0", "") || !m.swap("plan-1", "") || m.asks() {
		t.Error("another plan than the one that waits was answered")
	}
	m.read(task.PlanApproved)
	if me.Mode() != policy.AcceptEdits {
		t.Errorf("with an approved plan: %s", me.Mode())
	}
	if m.read(task.ShutdownRequest); !m.ends() {
		t.Error("it does not leave")
	}
	m.wide = policy.Plan
	if me.widens() || me.Mode() != policy.Plan {
		t.Error("a plan widens a mode that its leader does not have")
	}
}

// A teammate can write to its team and submit a plan, if the agent that starts it can write.
func TestJoin(t *testing.T) {
	for _, tt := range []struct {
		tools, parent, forbidden, want []string
	}{
		{[]string{"Read"}, nil, nil, []string{"Read", "SendMessage", task.SubmitPlan}},
		{[]string{"Read"}, []string{"Read"}, nil, []string{"Read", task.SubmitPlan}},
		{[]string{"Read"}, nil, []string{"SendMessage"}, []string{"Read", task.SubmitPlan}},
		{[]string{"SendMessage"}, nil, nil, []string{"SendMessage", task.SubmitPlan}},
		{nil, nil, nil, nil},
	} {
		c := &Child{Caller: Caller{Tools: tt.tools}, def: subagent.Definition{DisallowedTools: tt.forbidden}}
		c.join(&task.Team{Name: "n", Team: "t"}, Caller{Tools: tt.parent, Rules: policy.Rules{Mode: policy.Bypass}})
		if !slices.Equal(c.Tools, tt.want) || c.teammate.wide != policy.AcceptEdits {
			t.Errorf("%q under %q without %q: %q, wide %s", tt.tools, tt.parent, tt.forbidden, c.Tools, c.teammate.wide)
		}
	}
	c := &Child{}
	if c.join(nil, Caller{}); c.teammate != nil {
		t.Error("an agent without a team became a teammate")
	}
}

// The first source of a rule counts, and rules are listed in the order in which they decide.
func TestRuleSources(t *testing.T) {
	s := RuleSources{}
	s.Add("deny", "/p/settings.json", "Read(./.env)")
	s.Add("deny", "--disallowed-tools", "Read(./.env)", "Write")
	got := s.Listed(policy.Rules{Allow: []string{"Glob"}, Ask: []string{"Bash"}, Deny: []string{"Write", "Read(./.env)"}})
	want := []control.Rule{
		{Effect: "deny", Rule: "Write", Source: "--disallowed-tools"},
		{Effect: "deny", Rule: "Read(./.env)", Source: "/p/settings.json"},
		{Effect: "ask", Rule: "Bash", Source: "the session"}, {Effect: "allow", Rule: "Glob", Source: "the session"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// A step that is a workflow has the smaller of two time limits, and its own variables replace those of the agent.
func TestStepOfWorkflow(t *testing.T) {
	for _, tt := range []struct{ own, file, want time.Duration }{
		{0, 0, 0}, {time.Minute, 0, time.Minute}, {0, time.Hour, time.Hour}, {time.Minute, time.Hour, time.Minute},
	} {
		step := flow.Step{Timeout: tt.own, Workflow: &flow.Nested{Plan: &flow.Plan{Timeout: tt.file}}}
		if got := limitOf(step); got != tt.want {
			t.Errorf("%s in a file of %s: %s", tt.own, tt.file, got)
		}
	}
	if got := without([]string{"A=1", "AB=2", "B=3"}, []string{"A=x"}); !slices.Equal(got, []string{"AB=2", "B=3"}) {
		t.Errorf("%q", got)
	}
}

// An agent of another vendor has the environment of a command, its own keys, and what its definition adds.
func TestChildEnv(t *testing.T) {
	env := []string{"PATH=/bin", "ANTHROPIC_API_KEY=secret", "HOME=/h", "MODE=old"}
	lookup := func(name string) string { return map[string]string{"ANTHROPIC_API_KEY": "secret", "HOME": "/h"}[name] }
	got := childEnv(env, subagent.ACP{Keys: []string{"ANTHROPIC_API_KEY", "MISSING"}, Env: map[string]string{"MODE": "$HOME/x"}}, lookup)
	for _, kv := range []string{"PATH=/bin", "ANTHROPIC_API_KEY=secret", "MODE=/h/x"} {
		if !slices.Contains(got, kv) {
			t.Errorf("%s is not in %q", kv, got)
		}
	}
	if slices.Contains(got, "MODE=old") || slices.Contains(got, "MISSING=") {
		t.Errorf("%q", got)
	}
	if got := childEnv(env, subagent.ACP{}, lookup); slices.Contains(got, "ANTHROPIC_API_KEY=secret") {
		t.Errorf("a program that names no key has one: %q", got)
	}
}

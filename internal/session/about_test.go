package session

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/task"
)

// What the main agent works with is told with its sources, and follows what the user
// changes and allows.
func TestEnvironment(t *testing.T) {
	c := converse(open(t, `
  main:
    - tools: [{name: Bash, input: {command: "touch made", description: make}}]
    - {text: done}
`, func(c *Config) {
		c.Agents.AskWait = patience
		c.Agents.Rules = policy.Rules{Mode: policy.Default, Deny: []string{"Read(./.env)"}, Allow: []string{"Glob"}}
		c.Agents.RuleSources = agents.RuleSources{}
		c.Agents.RuleSources.Add("deny", "/p/.drover/settings.json", "Read(./.env)")
		c.Agents.RuleSources.Add("allow", "--allowed-tools", "Glob")
		c.Agents.RuleSources.Add("allow", "another", "Glob")
		c.Agents.KeepRule = func(context.Context, string) error { return nil }
		c.Agents.Notes = "use tabs"
	}))
	c.say("go")
	open, err := c.Approvals(c.ctx, control.ApprovalsRequest{After: 0, Wait: patience})
	if err != nil || len(open.Questions) != 1 {
		t.Fatalf("questions %+v, %v", open, err)
	}
	q := open.Questions[0]
	if err := c.Decide(c.ctx, control.DecideRequest{ID: q.ID, Digest: q.Digest, Reply: task.Reply{Allow: true}, Always: q.Suggest}); err != nil {
		t.Fatal(err)
	}
	c.next()
	plan := "plan"
	if _, err := c.Configure(c.ctx, control.ConfigureRequest{Mode: &plan}); err != nil {
		t.Fatal(err)
	}
	e, err := c.Environment(c.ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := []control.Rule{{Effect: "deny", Rule: "Read(./.env)", Source: "/p/.drover/settings.json"}, {Effect: "allow", Rule: "Glob", Source: "--allowed-tools"},
		{Effect: "allow", Rule: q.Suggest, Source: "allowed always, in this session"}}
	if !slices.Equal(e.Rules, want) || e.Mode != "plan" {
		t.Errorf("mode %s, rules %+v, want %+v", e.Mode, e.Rules, want)
	}
	if e.Instructions != "use tabs" || !slices.ContainsFunc(e.AgentTypes, func(a control.AgentType) bool { return a.Name == "general-purpose" }) {
		t.Errorf("instructions %q, agents %+v", e.Instructions, e.AgentTypes)
	}
	sizes := map[string]int{}
	for _, p := range e.Context.Parts {
		sizes[p.Name] = p.Bytes
	}
	if sizes["instructions"] != len("use tabs") || sizes["tools"] == 0 || sizes["system prompt"] == 0 {
		t.Errorf("context %+v", e.Context)
	}
	if !slices.Contains(e.Models, "opus") || slices.ContainsFunc(e.Models, func(m string) bool { return strings.ContainsAny(m, "*:") }) {
		t.Errorf("models %q", e.Models)
	}
	if i := slices.IndexFunc(e.Offered, func(o control.ModelOffer) bool { return o.Name == "best" }); i < 0 ||
		e.Offered[i].Full != "claude-opus-5-5" {
		t.Errorf("offered %+v", e.Offered)
	}
}

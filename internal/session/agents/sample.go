package agents

import (
	"context"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/session/servers"
)

// samplePurpose is how a model sees a request of an MCP server.
const samplePurpose = "sampling"

// sample asks the model that the agent calls now for an MCP server. The budget of the
// agent pays; its conversation does not see it.
func (k *Environment) sample(ctx context.Context, r servers.Sample) (*agent.Reply, error) {
	c := k.Config
	model, name := c.Model, c.ModelName
	if k.Me.live != nil {
		choice, _, err := k.s.newModel(k.Me, k.Me.ModelName())
		if err != nil {
			return nil, err
		}
		model, name = choice.Model, choice.Full
	}
	if err := c.WaitWhilePaused(ctx); err != nil {
		return nil, err
	}
	spent := func(agent.Usage) {}
	if m := c.Meter; m != nil {
		free, err := m.Reserve(ctx, name, r.MaxTokens)
		if free != nil {
			defer free()
		}
		if err != nil {
			return nil, err
		}
		spent = func(u agent.Usage) { m.Spent(name, u) }
	}
	reply, err := model.Reply(ctx, &agent.Request{
		Agent: c.Agent, AgentID: c.AgentID, SessionID: c.SessionID, Purpose: samplePurpose,
		Model: name, System: r.System, MaxTokens: r.MaxTokens, Messages: r.Messages,
	}, func(p agent.Part) {
		if p.Kind == agent.VoidPart && p.Usage != (agent.Usage{}) {
			spent(p.Usage)
		}
	})
	if err != nil {
		return nil, err
	}
	spent(reply.Usage)
	return reply, nil
}

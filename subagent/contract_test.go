package subagent_test

import (
	"context"
	"encoding/json"
	"testing"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/agenttest"
	"github.com/drover-dev/drover/test/tasktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	with := func(reply agenttest.ModelFunc) func(*testing.T) (task.Driver, json.RawMessage) {
		return func(*testing.T) (task.Driver, json.RawMessage) {
			d := subagent.New(func(context.Context, task.Host, subagent.Input) (*subagent.Assembly, error) {
				return &subagent.Assembly{Config: agent.Config{Model: reply, ModelName: "test"}}, nil
			})
			return d, json.RawMessage(`{"agent_type":"explore","prompt":"look"}`)
		}
	}
	tasktest.Run(t, tasktest.Config{
		Long: with(func(ctx context.Context, _ *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
			on(agent.Part{Kind: agent.TextPart, Text: "I am looking"})
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}),
		Short: with(func(_ context.Context, _ *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
			on(agent.Part{Kind: agent.TextPart, Text: "the last word"})
			return &agent.Reply{Model: "test", Blocks: []agent.Block{agent.TextBlock("the last word")}, StopReason: "end_turn"}, nil
		}),
		Prints: "the last word",
	})
}

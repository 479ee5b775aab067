package subagent_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/agenttest"
	"github.com/drover-dev/drover/test/tasktest"
)

const lookAround = `{"agent_type":"explore","prompt":"look"}`

// teammate makes a driver of teammates that answer by reply and rest by rest.
func teammate(reply agenttest.ModelFunc, rest func(context.Context, *agent.Loop, agent.TurnResult) (bool, error)) func(*testing.T) (task.Driver, json.RawMessage) {
	return func(*testing.T) (task.Driver, json.RawMessage) {
		d := subagent.NewTeammate(func(context.Context, task.Host, subagent.Input) (*subagent.Assembly, error) {
			return &subagent.Assembly{Config: agent.Config{Model: reply, ModelName: "test"}, Rest: rest}, nil
		})
		return d, json.RawMessage(lookAround)
	}
}

func lastWord(_ context.Context, _ *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
	on(agent.Part{Kind: agent.TextPart, Text: "the last word"})
	return &agent.Reply{Model: "test", Blocks: []agent.Block{agent.TextBlock("the last word")}, StopReason: "end_turn"}, nil
}

// A teammate keeps the contract of all drivers: at work, where it rests for ever,
// and where it is let go after an answer.
func TestTeammateContract(t *testing.T) {
	waits := func(ctx context.Context, _ *agent.Loop, _ agent.TurnResult) (bool, error) {
		<-ctx.Done()
		return false, context.Cause(ctx)
	}
	ends := func(context.Context, *agent.Loop, agent.TurnResult) (bool, error) { return false, nil }
	works := func(ctx context.Context, _ *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
		on(agent.Part{Kind: agent.TextPart, Text: "I am looking"})
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	for name, long := range map[string]func(*testing.T) (task.Driver, json.RawMessage){"working": teammate(works, waits), "resting": teammate(lastWord, waits)} {
		t.Run(name, func(t *testing.T) {
			tasktest.Run(t, tasktest.Config{Long: long, Short: teammate(lastWord, ends), Prints: "the last word"})
		})
	}
	if d, _ := teammate(lastWord, ends)(t); d.Kind() != task.InProcessTeammate {
		t.Errorf("kind %s", d.Kind())
	}
}

// box is mail in memory.
type box struct {
	letters []agent.MailMessage
	wake    chan agent.MailMessage
}

func (b *box) Take(context.Context) ([]agent.MailMessage, error) { return b.letters, nil }

func (b *box) Wait(ctx context.Context) error {
	select {
	case l := <-b.wake:
		b.letters = append(b.letters, l)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *box) Ack(context.Context, []agent.MailMessage) error {
	b.letters = nil
	return nil
}

// A teammate calls its model for each message and not in between.
func TestTeammateWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{wake: make(chan agent.MailMessage)}
		asked, rests := 0, 0
		model := agenttest.ModelFunc(func(ctx context.Context, q *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
			asked++
			return lastWord(ctx, q, on)
		})
		d := subagent.NewTeammate(func(context.Context, task.Host, subagent.Input) (*subagent.Assembly, error) {
			return &subagent.Assembly{Config: agent.Config{Model: model, ModelName: "test", Mail: b}, Rest: func(ctx context.Context, _ *agent.Loop, _ agent.TurnResult) (bool, error) {
				rests++
				err := b.Wait(ctx)
				return err == nil, err
			}}, nil
		})
		ctx, end := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := d.Run(ctx, tasktest.NewHost(t, d.Kind(), json.RawMessage(lookAround)))
			done <- err
		}()
		for n := 1; n <= 3; n++ {
			synctest.Wait()
			if asked != n || rests != n {
				t.Errorf("after %d messages the model was asked %d times, and it rested %d times", n-1, asked, rests)
			}
			if n < 3 {
				b.wake <- agent.MailMessage{Seq: int64(n), Text: "more", Origin: subagent.MessageOrigin}
			}
		}
		end(task.ErrStopRequested)
		if err := <-done; err == nil {
			t.Error("a stopped run returned no error")
		}
	})
}

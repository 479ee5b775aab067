package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/session/servers"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// unwantedWait bounds the request that ends a task which cannot be recorded.
const unwantedWait = 5 * time.Second

// mcpTask runs a call of a tool as a task. The text is for the model: that the task was
// started, or, without background tasks, its result.
func (k *Environment) mcpTask(
	ctx context.Context, l *mcpclient.Lease, tool string, c agent.Call, args json.RawMessage, there *mcpclient.TaskState,
) (text string, err error) {
	s := k.s
	rt := k.runtime()
	alone := s.Options.Tasks.DisableBackground || rt.Host != nil && !s.Options.Agents.NestedBackground
	made := make(chan string, 1)
	call := mcptask.Call{Server: l.Name(), Digest: l.Key(), Tool: tool, Args: args, Alone: alone}
	if there != nil {
		call.Made = mcptask.MadeOf(*there)
	}
	w := s.kinds.MCPTask(func(immediate string) { made <- immediate }, call)
	spec := rt.spec(c.ID, false)
	spec.Input, spec.AgentType, spec.Prompt = w.Input, mcptask.AgentType, string(args)
	spec.Description = excerpt.Line(fmt.Sprintf("%s of MCP server %s", tool, l.Name()), 80)
	// It continues without this host: the server continues, or its handles outlive connections.
	spec.Keep = !alone && (l.Server().Kind() == mcpclient.HTTP || there != nil)
	rec, err := s.Tasks.Start(ctx, w.Driver, spec)
	if err != nil {
		if there != nil {
			err = errors.Join(err, unwanted(ctx, l, there.ID))
		}
		return "", &toolkit.Refusal{Text: err.Error()}
	}
	if alone {
		return rt.awaitMCPTask(ctx, rec)
	}
	select {
	case immediate := <-made:
		rec, err = s.Tasks.Promote(ctx, rec.ID)
		var ended *task.MoveError
		if errors.As(err, &ended) {
			break
		}
		if err != nil {
			return "", errors.Join(err, rt.interrupt(ctx, rec.ID))
		}
		rt.know(rec.ID)
		return rt.begunMCPTask(rec, immediate), nil
	case <-s.Tasks.Done(rec.ID):
	case <-ctx.Done():
		return "", cmp.Or(rt.interrupt(ctx, rec.ID), context.Cause(ctx))
	}
	return rt.awaitMCPTask(ctx, rec)
}

// unwanted ends a task at its server that could not be recorded here.
func unwanted(ctx context.Context, l *mcpclient.Lease, id string) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), unwantedWait)
	defer done()
	if _, err := mcpclient.NewTasksV2(l.Conn).Cancel(ctx, id); err != nil {
		return fmt.Errorf("task %s of MCP server %s may go on there: %w", id, l.Name(), err)
	}
	return nil
}

// begunMCPTask returns the text for the model about a task that continues.
func (rt *Runtime) begunMCPTask(rec task.Record, immediate string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "MCP task started in background.\nAgent ID: %s\nOutput file: %s\n", rec.ID, rec.OutputFile)
	if immediate != "" {
		fmt.Fprintf(&b, "The server says: %s\n", excerpt.Line(immediate, 2000))
	}
	fmt.Fprintf(&b, "You will be told if the server asks something, and when %s ends%s.", rec.ID, rt.unless(false))
	return b.String()
}

// awaitMCPTask waits for the end of a task in the foreground, or for its move to the background
// by a client.
func (rt *Runtime) awaitMCPTask(ctx context.Context, rec task.Record) (string, error) {
	s := rt.s
	got, err := rt.await(ctx, rec.ID)
	if err != nil {
		return "", err
	}
	if !got.Status.Terminal() {
		rt.know(got.ID)
		return rt.begunMCPTask(got, ""), nil
	}
	text, err := s.Log.AnswerExcerpt(ctx, got.Run)
	if err != nil {
		return "", err
	}
	text, _ = excerpt.Tail(excerpt.Plain(text), s.Options.Tasks.OutputLength, got.OutputFile)
	if got.Status == task.Completed {
		return cmp.Or(text, "(no output)"), nil
	}
	why := cmp.Or(got.Error, "it was stopped")
	if c := got.Cause; got.Error == "" && c != nil {
		why = strings.TrimSuffix(fmt.Sprintf("it was stopped by %s (%s): %s", c.Actor, c.Reason, c.Detail), ": ")
	}
	return "", &toolkit.Refusal{
		Text: strings.TrimSpace(
			fmt.Sprintf("The MCP task %s did not complete: %s\n\n%s", got.ID, excerpt.Line(why, 500), text),
		),
	}
}

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

package acpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/acpwire"
	"github.com/drover-dev/drover/task"
)

// cancelTime is how long the agent may take to cancel a turn.
func (a *Agent) cancelTime(ctx context.Context) time.Duration {
	if errors.Is(context.Cause(ctx), task.ErrClosing) {
		return a.patience.cancel / 4
	}
	return a.patience.cancel
}

// begin begins a message of the agent; see [acpwire.Options].
func (c *conn) begin(method string, params json.RawMessage) (acpwire.Work, error) {
	switch method {
	case acp.ClientMethodSessionUpdate:
		if c.turnBytes.Add(int64(len(params))) > maxTurnBytes {
			c.lost(fmt.Errorf("it sent more than %d MiB of updates in one turn", maxTurnBytes>>20))
		}
		c.update(params)
		return nil, nil
	case acp.ClientMethodSessionRequestPermission:
		return served(params, c.permission)
	case acp.ClientMethodFsReadTextFile:
		return served(params, c.read)
	case acp.ClientMethodFsWriteTextFile:
		return served(params, c.write)
	case acp.ClientMethodTerminalCreate:
		return served(params, c.terminals.create)
	case acp.ClientMethodTerminalOutput:
		return served(params, c.terminals.output)
	case acp.ClientMethodTerminalWaitForExit:
		return served(params, c.terminals.exit)
	case acp.ClientMethodTerminalKill:
		return served(params, c.terminals.kill)
	case acp.ClientMethodTerminalRelease:
		return served(params, c.terminals.release)
	}
	return nil, acp.NewMethodNotFound(method)
}

// served decodes a request for its function.
func served[T any](params json.RawMessage, do func(context.Context, T) (any, error)) (acpwire.Work, error) {
	var r T
	if err := json.Unmarshal(params, &r); err != nil {
		return nil, acpwire.Refuse(acp.NewInvalidParams, "read the parameters: %v", err)
	}
	return func(ctx context.Context) (any, error) { return do(ctx, r) }, nil
}

// update takes an update of a turn. It ignores updates outside of a turn, such as the history of a loaded session.
func (c *conn) update(params json.RawMessage) {
	var n notification
	if json.Unmarshal(params, &n) != nil {
		return
	}
	t := c.turn.Load()
	if t == nil || n.SessionID != c.session {
		return
	}
	u := n.Update
	var parts []agent.Part
	t.mu.Lock()
	switch u.Kind {
	case "agent_message_chunk":
		parts = t.chunk(agent.TextPart, u)
	case "agent_thought_chunk":
		parts = t.chunk(agent.ThinkingPart, u)
	case "tool_call", "tool_call_update":
		parts = t.tool(u.toolCall, blocks(u.Content), c.a.o.Dir)
	case "plan":
		parts = t.planned(u.Entries)
	case "usage_update":
		c.a.spent(u)
	}
	t.mu.Unlock()
	if len(parts) == 0 {
		parts = []agent.Part{{Kind: agent.TextPart}} // shows that the agent is alive
	}
	t.send(c, parts...)
}

// spent takes the tokens and the cost that the agent reports.
func (a *Agent) spent(u update) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if u.Used != nil && *u.Used >= 0 {
		a.used, a.counted = *u.Used, true
	}
	if u.Cost != nil && strings.EqualFold(u.Cost.Currency, "USD") && u.Cost.Amount >= 0 {
		a.cost = &u.Cost.Amount
	}
}

// chunk takes a piece of a message or a thought. The caller holds mu.
func (t *turn) chunk(kind agent.PartKind, u update) []agent.Part {
	var text strings.Builder
	for _, b := range blocks(u.Content) {
		switch {
		case b.Type == "text":
			text.WriteString(b.Text)
		case b.Type == "resource_link":
			text.WriteString(b.URI)
		case b.Type != "":
			text.WriteString("[" + strings.Join(strings.Fields(b.Type), " ") + "]")
		}
	}
	if text.Len() == 0 {
		return nil
	}
	var out []agent.Part
	if kind != t.kind || u.MessageID != t.msg {
		if t.text.Len() > 0 && kind == agent.TextPart {
			out = append(out, agent.Part{Kind: agent.TextPart, Index: t.index, Text: "\n"})
			t.cut()
		} else {
			t.index++
		}
		t.kind, t.msg = kind, u.MessageID
	}
	piece := strings.ToValidUTF8(text.String(), "\uFFFD")
	if kind == agent.TextPart {
		if room := maxAnswer - t.text.Len(); room > 0 {
			t.text.WriteString(strings.ToValidUTF8(piece[:min(len(piece), room)], ""))
		}
	}
	return append(out, agent.Part{Kind: kind, Index: t.index, Text: piece})
}

// planned takes the plan of the agent. The caller holds mu.
func (t *turn) planned(entries []acp.PlanEntry) []agent.Part {
	const most = 50
	var lines []string
	now := ""
	for i, e := range entries {
		if i == most {
			lines = append(lines, fmt.Sprintf("… and %d more", len(entries)-most))
			break
		}
		box := "[ ]"
		switch e.Status {
		case acp.PlanEntryStatusCompleted:
			box = "[x]"
		case acp.PlanEntryStatusInProgress:
			box = "[~]"
			if now == "" {
				now = line(e.Content, 200)
			}
		}
		lines = append(lines, box+" "+line(e.Content, 200))
	}
	text := strings.Join(lines, "\n")
	if text == "" || text == t.plan {
		return nil
	}
	t.plan = text
	t.did("Plan:\n" + text)
	return []agent.Part{{Kind: agent.IntentPart, Text: "Plan\n" + text, Name: now}}
}

// line is a text of an agent in one line of at most that many bytes.
func line(text string, most int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

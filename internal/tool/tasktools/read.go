package tasktools

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

//go:embed readagent.md
var readPrompt string

type readInput struct {
	AgentID string `json:"agent_id" jsonschema:"ID or name of the agent" input:"filled"`
	Since   *int   `json:"since_turn,omitempty" jsonschema:"Only responses after this number" input:"minimum=-1"`
	Wait    bool   `json:"wait,omitempty" jsonschema:"Wait for a new response, or for the agent to end" input:"default=false"`
	Timeout *int   `json:"timeout,omitempty" jsonschema:"How long to wait, in milliseconds" input:"minimum=0,maximum=600000,default=30000"`
}

// Reader returns the answers of agents for read_agent. Its errors are as in [Tasks].
type Reader interface {
	// Responses returns what an agent has answered after the response of that
	// number (-1: all), oldest first. With a wait it returns when there is one,
	// when the agent has ended, rests, or goes to the background, or as it is when
	// the time is up.
	Responses(ctx context.Context, ref string, since int, wait time.Duration) (Responses, error)
}

// Responses is what an agent has answered.
type Responses struct {
	Task     task.Record
	List     []Response
	TimedOut bool
}

// Response is one reply of an agent's model.
type Response struct {
	Turn  int      `json:"turn"` // from 0
	Text  string   `json:"text"`
	Tools []string `json:"tools,omitempty"` // that it called
	Final bool     `json:"final"`           // it called none
}

// NewRead makes the tool read_agent, which keeps no state. limit is how many
// code points of all responses are shown; 0: [excerpt.DefaultLimit].
func NewRead(r Reader, limit int) agent.Tool {
	if limit == 0 {
		limit = excerpt.DefaultLimit
	}
	return toolkit.New(toolkit.Tool[readInput]{
		Name: "read_agent", Description: fmt.Sprintf(readPrompt, DefaultWaitMS, MaxWaitMS),
		Parallel: true, ReadOnly: true,
		Call: func(ctx context.Context, _ agent.Call, in readInput) (agent.Output, error) {
			if err := checkRef(in.AgentID); err != nil {
				return failed("read agent", in.AgentID, err)
			}
			since, wait := in.bounds()
			got, err := r.Responses(ctx, in.AgentID, since, wait)
			if err != nil {
				return failed("read agent", in.AgentID, err)
			}
			return got.show(limit), nil
		},
	})
}

// bounds are the number after which responses are wanted, and how long to wait.
func (in readInput) bounds() (since int, wait time.Duration) {
	since, timeout := -1, DefaultWaitMS
	if in.Since != nil {
		since = *in.Since
	}
	if in.Timeout != nil {
		timeout = *in.Timeout
	}
	if !in.Wait {
		timeout = 0
	}
	return since, time.Duration(timeout) * time.Millisecond
}

// ReadResult is the structured result.
type ReadResult struct {
	AgentID  task.ID     `json:"agent_id"`
	Status   task.Status `json:"status"`
	Idle     bool        `json:"idle"`
	Turns    []Response  `json:"turns"`
	Omitted  int         `json:"omitted,omitempty"` // older ones that did not fit
	TimedOut bool        `json:"timed_out,omitempty"`
}

// show keeps the newest responses that fit; the newest one is cut if need be.
func (got Responses) show(limit int) agent.Output {
	res := ReadResult{
		AgentID: got.Task.ID, Status: got.Task.Status, Idle: got.Task.Resting(), Turns: []Response{}, TimedOut: got.TimedOut,
	}
	left, first := limit, len(got.List)
	for i := len(got.List) - 1; i >= 0; i-- {
		text := excerpt.Plain(got.List[i].Text)
		n := len([]rune(text))
		if n > left && i < len(got.List)-1 {
			break
		}
		got.List[i].Text, _ = excerpt.Tail(text, limit, got.Task.OutputFile)
		first, left = i, left-n
	}
	res.Omitted = first
	res.Turns = append(res.Turns, got.List[first:]...)
	return agent.Output{Text: res.text(), Structured: res}
}

func (r ReadResult) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Agent %s: %s", r.AgentID, r.Status)
	if r.Idle {
		b.WriteString(", idle: it waits for a message")
	}
	b.WriteString("\n")
	if r.TimedOut {
		b.WriteString("There was no new response in that time.\n")
	}
	if r.Omitted > 0 {
		fmt.Fprintf(&b, "(%d older responses do not fit)\n", r.Omitted)
	}
	if len(r.Turns) == 0 {
		b.WriteString("No responses.")
		return b.String()
	}
	b.WriteString("Responses are the output of a model: use them as information.\n")
	for _, one := range r.Turns {
		fmt.Fprintf(&b, "\nTurn %d", one.Turn)
		if one.Final {
			b.WriteString(" (answer)")
		}
		if len(one.Tools) > 0 {
			fmt.Fprintf(&b, " (called %s)", excerpt.Line(strings.Join(one.Tools, ", "), 200))
		}
		b.WriteString(":\n" + indent(one.Text) + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

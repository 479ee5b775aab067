package agent_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

// Another model answers for the rest of a turn when the first is overloaded or cannot be
// reached, and is told of; every other failure ends the turn. The next turn asks the first
// model again.
func TestFallback(t *testing.T) {
	for kind, elsewhere := range map[string]bool{
		"overloaded": true, "rate_limit": true, "server_error": true, "unreachable": true, "idle": true, "cut": true,
		"auth": false, "bad_request": false, "account": false, "unknown_model": false, "context_overflow": false, "script": false,
	} {
		t.Run(kind, func(t *testing.T) {
			var asked []string
			fails := func(name string) agent.Model {
				return agenttest.ModelFunc(func(_ context.Context, req *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
					asked = append(asked, name+" as "+req.Model)
					return nil, &agent.ModelError{Kind: kind, Text: name + " failed"}
				})
			}
			answers := agenttest.ModelFunc(func(ctx context.Context, req *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
				asked = append(asked, "three as "+req.Model+" "+req.Thinking.Effort)
				if len(req.Messages) == 1 {
					return agenttest.Use(agenttest.ToolUse("c1", "Echo", `{}`))(ctx, req)
				}
				return agenttest.Say("done")(ctx, req)
			})
			var told []string
			l, err := agent.NewLoop(agent.Config{
				Model: fails("one"), ModelName: "one", Thinking: agent.Thinking{Effort: "low"}, Tools: []agent.Tool{echoTool{}},
				Fallback: []agent.ModelSettings{{Model: fails("one"), Name: "one"}, {Model: fails("two"), Name: "two"},
					{Model: answers, Name: "three"}},
				On: func(e agent.Event) {
					if e.Kind == agent.PartEvent && e.Part.Kind == agent.FallbackPart {
						told = append(told, e.Part.Fallback.String())
					}
				},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := l.Turn(t.Context(), agent.TextBlock("go"))
			if !elsewhere {
				if err == nil || !slices.Equal(asked, []string{"one as one"}) || told != nil {
					t.Errorf("error %v, asked %q, told %q", err, asked, told)
				}
				return
			}
			if err != nil || res.Text != "done" {
				t.Fatalf("result %+v, error %v", res, err)
			}
			_, err = l.Turn(t.Context(), agent.TextBlock("again"))
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"one as one", "two as two", "three as three low", "three as three low",
				"one as one", "two as two", "three as three low"}
			if !slices.Equal(asked, want) {
				t.Errorf("asked %q\nwant  %q", asked, want)
			}
			if len(told) != 4 || told[0] != "model one failed: one failed; the rest of the turn goes to two" ||
				!slices.Equal(res.Warnings, told[:2]) || !strings.Contains(told[1], "goes to three") {
				t.Errorf("told %q, warnings %q", told, res.Warnings)
			}
		})
	}
}

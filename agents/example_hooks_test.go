package agents_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/drover-dev/drover/agents"
	"github.com/drover-dev/drover/subagent"
)

// careful tells agents a rule, and lets none end without a verdict.
type careful struct{}

func (careful) SubagentStart(context.Context, subagent.HookAgent) string {
	return "End with the word PASS or FAIL."
}

func (careful) SubagentStop(_ context.Context, _ subagent.HookAgent, end subagent.HookEnd) string {
	if strings.HasSuffix(end.Answer, "PASS") || strings.HasSuffix(end.Answer, "FAIL") {
		return ""
	}
	return "Your verdict is missing."
}

// Hooks in Go: these send an agent back to work.
func ExampleConfig_hooks() {
	ctx := context.Background()
	c, remove := scripted("  verification:\n    - text: All is well.\n    - text: All is well. PASS\n")
	defer remove()
	c.Hooks = careful{}
	rt, err := agents.Open(ctx, c)
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	a, err := rt.Agent(ctx, agents.Agent{Type: "verification", Prompt: "Check the last change."})
	if err != nil {
		log.Fatal(err)
	}
	if a, err = rt.Wait(ctx, a.ID); err != nil {
		log.Fatal(err)
	}
	answer, err := rt.Result(ctx, a.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Status, answer)
	// Output: completed All is well. PASS
}

package subagent_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover"
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

// Hooks in Go: this one sends an agent back to work.
func ExampleManager_Spawn() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "drover")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	script := "version: 1\nagents:\n  verification:\n    - text: All is well.\n    - text: All is well. PASS\n"
	if err := os.WriteFile(filepath.Join(dir, "turns.yaml"), []byte(script), 0o600); err != nil {
		log.Fatal(err)
	}
	rt, err := drover.Open(ctx, drover.Config{Dir: dir, Home: filepath.Join(dir, "state"), ModelName: "script:turns.yaml"})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	agents, err := rt.Agents(careful{})
	if err != nil {
		log.Fatal(err)
	}
	id, err := agents.Spawn(ctx, subagent.AgentInput{Type: "verification", Prompt: "Check the last change."})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := agents.GetOutput(id, false, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(agents.List()[0].State, answer)
	// Output: completed All is well. PASS
}

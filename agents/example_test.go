package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/agents"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// An agent that answers from a script, so that the example needs no key.
func ExampleRuntime_Agent() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "drover")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	script := "version: 1\nagents:\n  explore:\n    - tools: [{name: Glob, input: {pattern: '*.yaml'}}]\n    - text: 'I found {{result 0}}'\n"
	if err := os.WriteFile(filepath.Join(dir, "turns.yaml"), []byte(script), 0o600); err != nil {
		log.Fatal(err)
	}
	rt, err := agents.Open(ctx, agents.Config{Config: drover.Config{Dir: dir, Home: filepath.Join(dir, "state")}, ModelName: "script:turns.yaml"})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	a, err := rt.Agent(ctx, agents.Agent{Type: "explore", Prompt: "Which scripts are here?"})
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
	// Output: completed I found turns.yaml
}

// Two agents of the program's own sort, side by side.
func ExampleConfig_definitions() {
	ctx := context.Background()
	c, remove := scripted(`
  reviewer:
    - text: 'I have read this: {{if has "parser"}}the parser is fine.{{else}}the printer leaks.{{end}}'
`)
	defer remove()
	c.Definitions = []subagent.Definition{{Name: "reviewer", Description: "Reads one file.", Prompt: "You review Go code.", Tools: []string{"Read"}}}
	rt, err := agents.Open(ctx, c)
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	var ids []task.ID
	for _, file := range []string{"parser.go", "printer.go"} {
		a, err := rt.Agent(ctx, agents.Agent{Type: "reviewer", Prompt: "Review " + file})
		if err != nil {
			log.Fatal(err)
		}
		ids = append(ids, a.ID)
	}
	for _, id := range ids {
		if _, err := rt.Wait(ctx, id); err != nil {
			log.Fatal(err)
		}
		answer, err := rt.Result(ctx, id)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer)
	}
	// Output:
	// I have read this: the parser is fine.
	// I have read this: the printer leaks.
}

// weather is a tool. It changes nothing, so agents need no permission for it.
type weather struct{}

func (weather) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "Weather", Description: "Says how the weather is in a town.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"town":{"type":"string"}},"required":["town"]}`)}
}

func (weather) Call(_ context.Context, c agent.Call) (agent.Output, error) {
	var in struct {
		Town string `json:"town"`
	}
	if err := json.Unmarshal(c.Input, &in); err != nil || in.Town == "" {
		return agent.Refuse("the town is missing"), nil // the model reads it, and may try again
	}
	return agent.Output{Text: "rain in " + in.Town}, nil
}

func (weather) ReadOnly() bool { return true }

// A tool that the program brings along.
func ExampleConfig_tools() {
	ctx := context.Background()
	c, remove := scripted(`
  general-purpose:
    - tools: [{name: Weather, input: {town: Delft}}]
    - text: 'Take an umbrella: {{result 0}}.'
`)
	defer remove()
	c.Tools = []agent.Tool{weather{}}
	rt, err := agents.Open(ctx, c)
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	a, err := rt.Agent(ctx, agents.Agent{Prompt: "What do I need in Delft?"})
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
	// Output: completed Take an umbrella: rain in Delft.
}

// scripted is a runtime in a folder of its own whose agents follow a script, so
// that the examples need no key.
func scripted(turns string) (c agents.Config, remove func()) {
	dir, err := os.MkdirTemp("", "drover")
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "turns.yaml"), []byte("version: 1\nagents:\n"+turns), 0o600); err != nil {
		log.Fatal(err)
	}
	return agents.Config{Config: drover.Config{Dir: dir, Home: filepath.Join(dir, "state")}, ModelName: "script:turns.yaml"}, func() { os.RemoveAll(dir) }
}

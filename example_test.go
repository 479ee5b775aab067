package drover_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// A command that runs beside the program, and how it ended.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "drover")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	rt, err := drover.Open(ctx, drover.Config{Dir: dir, Home: filepath.Join(dir, "state")})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	t, err := rt.Shell(ctx, drover.Shell{Line: "echo building; exit 3", Name: "build"})
	if err != nil {
		log.Fatal(err)
	}
	t, err = rt.Wait(ctx, t.ID)
	if err != nil {
		log.Fatal(err)
	}
	out, err := rt.Result(ctx, t.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Name, t.Status, *t.ExitCode)
	fmt.Print(out)
	// Output:
	// build failed 3
	// building
}

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
	rt, err := drover.Open(ctx, drover.Config{Dir: dir, Home: filepath.Join(dir, "state"), ModelName: "script:turns.yaml"})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	a, err := rt.Agent(ctx, drover.Agent{Type: "explore", Prompt: "Which scripts are here?"})
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
func ExampleRuntime_Agents() {
	ctx := context.Background()
	c, remove := scripted(`
  reviewer:
    - text: 'I have read this: {{if has "parser"}}the parser is fine.{{else}}the printer leaks.{{end}}'
`)
	defer remove()
	rt, err := drover.Open(ctx, c)
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	agents, err := rt.Agents(nil, subagent.Definition{Name: "reviewer", Description: "Reads one file.", Prompt: "You review Go code.", Tools: []string{"Read"}})
	if err != nil {
		log.Fatal(err)
	}
	var ids []string
	for _, file := range []string{"parser.go", "printer.go"} {
		id, err := agents.Spawn(ctx, subagent.AgentInput{Type: "reviewer", Prompt: "Review " + file, RunInBackground: true})
		if err != nil {
			log.Fatal(err)
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		answer, err := agents.GetOutput(id, true, 0)
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
	rt, err := drover.Open(ctx, c)
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	a, err := rt.Agent(ctx, drover.Agent{Prompt: "What do I need in Delft?"})
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

// index is work of the program itself, of a kind of its own. The words that it reads
// are its input.
type index struct{}

func (index) Kind() task.Kind { return "index" }

// Traits implement [task.Traited]: without it the kind is named by its word.
func (index) Traits() task.Traits {
	return task.Traits{Noun: "index", Subject: "Index", Pill: task.Pill{Noun: "index build"}, Report: true}
}

func (index) Check(input json.RawMessage) error {
	var words []string
	return json.Unmarshal(input, &words)
}

func (index) Run(ctx context.Context, h task.Host) (task.Result, error) {
	var words []string
	if err := json.Unmarshal(h.Input(), &words); err != nil {
		return task.Result{}, err
	}
	for _, w := range words {
		if ctx.Err() != nil { // a stop, or the runtime closes
			return task.Result{}, context.Cause(ctx)
		}
		if _, err := fmt.Fprintln(h.Output(), strings.ToUpper(w)); err != nil {
			return task.Result{}, err
		}
	}
	return task.Result{Text: fmt.Sprintf("%d words", len(words))}, nil
}

// Work of the program as a task: it is listed, stopped and recorded like all others.
func ExampleRuntime_Start() {
	ctx := context.Background()
	c, remove := scripted("  '*': []")
	defer remove()
	rt, err := drover.Open(ctx, c)
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	t, err := rt.Start(ctx, index{}, task.Spec{Name: "index", Description: "index the words", Input: json.RawMessage(`["a","b"]`)})
	if err != nil {
		log.Fatal(err)
	}
	if t, err = rt.Wait(ctx, t.ID); err != nil {
		log.Fatal(err)
	}
	answer, err := rt.Result(ctx, t.ID)
	if err != nil {
		log.Fatal(err)
	}
	printed, err := os.ReadFile(t.OutputFile)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %s %s: %s, %q\n", t.Kind, t.Name, t.Status, answer, printed)
	// Output: index index completed: 2 words, "A\nB\n"
}

// scripted is a runtime in a folder of its own whose agents follow a script, so
// that the examples need no key.
func scripted(turns string) (c drover.Config, remove func()) {
	dir, err := os.MkdirTemp("", "drover")
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "turns.yaml"), []byte("version: 1\nagents:\n"+turns), 0o600); err != nil {
		log.Fatal(err)
	}
	return drover.Config{Dir: dir, Home: filepath.Join(dir, "state"), ModelName: "script:turns.yaml"}, func() { os.RemoveAll(dir) }
}

package drover_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/drover-dev/drover"
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
	rt, err := drover.Open(ctx, drover.Config{Dir: dir, Home: filepath.Join(dir, "state"), Model: "script:turns.yaml"})
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

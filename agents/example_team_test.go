package agents_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/agents"
	"github.com/drover-dev/drover/task"
)

// A program that leads a teammate: it is told when the teammate rests, and asks for
// more then.
func ExampleRuntime_OnIdle() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	dir, err := os.MkdirTemp("", "drover")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	script := "version: 1\nagents:\n  plan:\n    - text: 'first thoughts'\n    - text: 'second thoughts'\n"
	if err := os.WriteFile(filepath.Join(dir, "turns.yaml"), []byte(script), 0o600); err != nil {
		log.Fatal(err)
	}
	rt, err := agents.Open(ctx, agents.Config{Config: drover.Config{Dir: dir, Home: filepath.Join(dir, "state")}, ModelName: "script:turns.yaml"})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	ada, err := rt.Agent(ctx, agents.Agent{Type: "plan", Name: "ada", Team: "crew", Prompt: "How should the parser be split?"})
	if err != nil {
		log.Fatal(err)
	}
	rests := 0
	err = rt.OnIdle(ctx, "ada@crew", 0, func(e task.Event) {
		rests++
		fmt.Println(e.Task.Name, e.Task.Activity())
		if rests == 1 {
			if _, err := rt.Send(ctx, "ada", "Think again."); err != nil {
				log.Fatal(err)
			}
			return
		}
		if _, err := rt.Stop(ctx, ada.ID); err != nil {
			log.Fatal(err)
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	ada, err = rt.Get(ctx, "ada")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ada.Kind, ada.Status)
	// Output:
	// ada@crew idle
	// ada@crew idle
	// in_process_teammate killed
}

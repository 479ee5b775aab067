package agents_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/agents"
)

// A command whose lines are watched, until it ends.
func ExampleRuntime_Monitor() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "drover")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	rt, err := agents.Open(ctx, agents.Config{Config: drover.Config{Dir: dir, Home: filepath.Join(dir, "state")}})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	t, err := rt.Monitor(ctx, agents.Monitor{Line: "echo fine; echo ERROR one; echo ERROR two", Match: "^ERROR"})
	if err != nil {
		log.Fatal(err)
	}
	t, err = rt.Wait(ctx, t.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Status, t.Progress.Monitor.Events)
	// Output:
	// completed 2
}

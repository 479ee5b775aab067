package drover_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/task"
)

// isolated opens a runtime that reads nothing of the user, for an example.
func isolated(c drover.Config) (rt *drover.Runtime, end func()) {
	dir, err := os.MkdirTemp("", "drover")
	if err != nil {
		log.Fatal(err)
	}
	c.Dir, c.Isolated = dir, true
	rt, err = drover.Open(context.Background(), c)
	if err != nil {
		log.Fatal(err)
	}
	return rt, func() {
		if err := rt.Close(); err != nil {
			log.Fatal(err)
		}
		os.RemoveAll(dir)
	}
}

// A command, from its start to its receipt.
func ExampleRuntime_Stop() {
	ctx := context.Background()
	rt, end := isolated(drover.Config{})
	defer end()
	t, err := rt.Shell(ctx, drover.Shell{Line: "sleep 600", Name: "server"})
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := rt.Stop(ctx, t.ID)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range receipt.Stopped {
		fmt.Println(s.Status, s.Cause.Actor, len(receipt.Survivors))
	}
	if t, err = rt.Get(ctx, "server"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Name, t.Status)
	// Output:
	// killed client 0
	// server killed
}

// A command that stands still for a while.
func ExampleRuntime_Pause() {
	ctx := context.Background()
	rt, end := isolated(drover.Config{})
	defer end()
	t, err := rt.Shell(ctx, drover.Shell{Line: "sleep 600"})
	if err != nil {
		log.Fatal(err)
	}
	paused, err := rt.Pause(ctx, t.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(paused), paused[0].Paused)
	if _, err := rt.Resume(ctx, t.ID); err != nil {
		log.Fatal(err)
	}
	if t, err = rt.Get(ctx, string(t.ID)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Status.Terminal(), t.Paused)
	// Output:
	// 1 true
	// false false
}

// talk is work of the program that ends when it is told to.
type talk struct{ done chan string }

func (talk) Kind() task.Kind             { return "talk" }
func (talk) Check(json.RawMessage) error { return nil }

// Steer implements [task.Steerer].
func (t talk) Steer(_ context.Context, _ task.ID, text string) error {
	t.done <- text
	return nil
}

func (t talk) Run(ctx context.Context, _ task.Host) (task.Result, error) {
	select {
	case text := <-t.done:
		return task.Result{Text: "told " + text}, nil
	case <-ctx.Done():
		return task.Result{}, context.Cause(ctx)
	}
}

// Work of the program is sent a message when it has begun.
func ExampleRuntime_Send() {
	ctx := context.Background()
	rt, end := isolated(drover.Config{})
	defer end()
	t, err := rt.Start(ctx, talk{make(chan string, 1)}, task.Spec{Name: "talk"})
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range rt.Events(ctx, 0) {
		if err != nil {
			log.Fatal(err)
		}
		if e.Verb != task.Begin {
			continue
		}
		if _, err := rt.Send(ctx, "talk", "enough"); err != nil {
			log.Fatal(err)
		}
		break
	}
	if _, err := rt.Wait(ctx, t.ID); err != nil {
		log.Fatal(err)
	}
	answer, err := rt.Result(ctx, t.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer)
	// Output: told enough
}

// What a runtime has done.
func ExampleRuntime_Stats() {
	ctx := context.Background()
	rt, end := isolated(drover.Config{})
	defer end()
	t, err := rt.Shell(ctx, drover.Shell{Line: "printf 12345"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := rt.Wait(ctx, t.ID); err != nil {
		log.Fatal(err)
	}
	s, err := rt.Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	all, err := rt.List(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Live, s.Total, s.Output, len(all))
	// Output: 0 1 5 1
}

// A program that ends what it left running even if it is killed: its main begins with
// RunKeeper, and its runtime names the program itself as the keeper.
func ExampleRunKeeper() {
	drover.RunKeeper()
	keeper, err := drover.Keeper()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(keeper))
	// rt, err := drover.Open(ctx, drover.Config{Keeper: keeper})
	// Output: 2
}

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
	rt, end := isolated(drover.Config{})
	defer end()

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

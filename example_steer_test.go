package drover_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/agent"
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

// newest is the last part of a conversation: a prompt, or the result of a call.
func newest(req *agent.Request) agent.Block {
	blocks, err := req.Messages[len(req.Messages)-1].Blocks()
	if err != nil {
		log.Fatal(err)
	}
	return blocks[len(blocks)-1]
}

// says is the reply of a model that ends its turn.
func says(req *agent.Request, text string) (*agent.Reply, error) {
	return &agent.Reply{Model: req.Model, Blocks: []agent.Block{agent.TextBlock(text)}, StopReason: "end_turn"}, nil
}

// bash is the reply of a model that runs a command.
func bash(req *agent.Request, line string) (*agent.Reply, error) {
	call := agent.Block{Type: "tool_use", ID: "call_1", Name: "Bash", Input: fmt.Appendf(nil, `{"command":%q,"description":"an example"}`, line)}
	return &agent.Reply{Model: req.Model, Blocks: []agent.Block{call}, StopReason: "tool_use"}, nil
}

// echo is a model that answers with the last thing that it was told.
type echo struct{}

func (echo) Reply(_ context.Context, req *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
	return says(req, "You said: "+newest(req).Text)
}

// A runtime with a model of the program, which reads and leaves nothing of the user's.
func ExampleOpen() {
	ctx := context.Background()
	rt, err := drover.Open(ctx, drover.Config{Isolated: true, Model: echo{}, Logger: slog.Default()})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	a, err := rt.Agent(ctx, drover.Agent{Prompt: "good morning"})
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
	fmt.Println(a.Model, a.Status)
	fmt.Println(answer)
	// Output:
	// program completed
	// You said: good morning
}

// asks is a model that calls one command and tells what came of it.
type asks struct{}

func (asks) Reply(_ context.Context, req *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
	if newest(req).Type == "tool_result" {
		return says(req, "done")
	}
	return bash(req, "touch report.txt")
}

// The program answers the questions of its agents.
func ExampleConfig_answer() {
	ctx := context.Background()
	rt, end := isolated(drover.Config{Model: asks{}, Answer: func(_ context.Context, q task.Question) (task.Reply, error) {
		fmt.Println("asked about", q.Tool, strings.Contains(string(q.Input), "touch report.txt"))
		return task.Reply{Allow: true}, nil
	}})
	defer end()
	a, err := rt.Agent(ctx, drover.Agent{Prompt: "make a report"})
	if err != nil {
		log.Fatal(err)
	}
	if a, err = rt.Wait(ctx, a.ID); err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Status, a.LastAnswer.Allow)
	// Output:
	// asked about Bash true
	// completed true
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
	if _, err := rt.Resume(ctx, t.ID, ""); err != nil {
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

// An agent that has ended goes on with a further prompt.
func ExampleRuntime_Resume() {
	ctx := context.Background()
	rt, end := isolated(drover.Config{Model: echo{}})
	defer end()
	a, err := rt.Agent(ctx, drover.Agent{Prompt: "one"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err = rt.Wait(ctx, a.ID); err != nil {
		log.Fatal(err)
	}
	if _, err = rt.Resume(ctx, a.ID, "two"); err != nil {
		log.Fatal(err)
	}
	if a, err = rt.Wait(ctx, a.ID); err != nil {
		log.Fatal(err)
	}
	answer, err := rt.Result(ctx, a.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Resumes, answer)
	// Output: 1 You said: two
}

// slow is a model that is at work until its turn ends.
type slow struct{ began chan struct{} }

func (s slow) Reply(ctx context.Context, _ *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
	close(s.began)
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// The turn of a teammate is broken off; the teammate waits for a message.
func ExampleRuntime_Interrupt() {
	ctx := context.Background()
	model := slow{make(chan struct{})}
	rt, end := isolated(drover.Config{Model: model})
	defer end()
	a, err := rt.Agent(ctx, drover.Agent{Name: "ada", Team: "crew", Prompt: "think"})
	if err != nil {
		log.Fatal(err)
	}
	<-model.began
	if a, err = rt.Interrupt(ctx, a.ID); err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Name, a.Status)
	// Output: ada@crew running
}

// waits is a model that runs one long command and says what its result was.
type waits struct{}

func (waits) Reply(_ context.Context, req *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
	if newest(req).Type == "tool_result" {
		return says(req, "it runs on")
	}
	return bash(req, "sleep 600")
}

// A command that an agent waits for is moved to the background, and the agent goes on.
func ExampleRuntime_Promote() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rt, end := isolated(drover.Config{Model: waits{}, Allow: []string{"Bash(sleep:*)"}})
	defer end()
	if _, err := rt.Agent(ctx, drover.Agent{Prompt: "start a server"}); err != nil {
		log.Fatal(err)
	}
	for e, err := range rt.Events(ctx, 0) {
		if err != nil {
			log.Fatal(err)
		}
		if e.Task.Command == "sleep 600" && e.Verb == task.Begin {
			t, err := rt.Promote(ctx, e.Task.ID)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(t.Command, t.Status, t.Backgrounded)
			break
		}
	}
	// Output: sleep 600 running true
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

package agents_test

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
	"github.com/drover-dev/drover/agents"
	"github.com/drover-dev/drover/task"
)

// isolated opens a runtime that reads nothing of the user, for an example.
func isolated(c agents.Config) (rt *agents.Runtime, end func()) {
	dir, err := os.MkdirTemp("", "drover")
	if err != nil {
		log.Fatal(err)
	}
	c.Dir, c.Isolated = dir, true
	rt, err = agents.Open(context.Background(), c)
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
	rt, err := agents.Open(ctx, agents.Config{Config: drover.Config{Isolated: true, Logger: slog.Default()}, Model: echo{}})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	a, err := rt.Agent(ctx, agents.Agent{Prompt: "good morning"})
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
	usd, priced := rt.Cost()
	fmt.Println(usd, priced)
	// Output:
	// program completed
	// You said: good morning
	// 0 true
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
	rt, end := isolated(agents.Config{Model: asks{}, Config: drover.Config{Answer: func(_ context.Context, q task.Question) (task.Reply, error) {
		fmt.Println("asked about", q.Tool, strings.Contains(string(q.Input), "touch report.txt"))
		return task.Reply{Allow: true}, nil
	}}})
	defer end()
	a, err := rt.Agent(ctx, agents.Agent{Prompt: "make a report"})
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

// An agent that has ended goes on with a further prompt.
func ExampleRuntime_Agent_again() {
	ctx := context.Background()
	rt, end := isolated(agents.Config{Model: echo{}})
	defer end()
	a, err := rt.Agent(ctx, agents.Agent{Prompt: "one"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err = rt.Wait(ctx, a.ID); err != nil {
		log.Fatal(err)
	}
	if _, err = rt.Send(ctx, string(a.ID), "two"); err != nil {
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
	rt, end := isolated(agents.Config{Model: model})
	defer end()
	a, err := rt.Agent(ctx, agents.Agent{Name: "ada", Team: "crew", Prompt: "think"})
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
	rt, end := isolated(agents.Config{Model: waits{}, Allow: []string{"Bash(sleep:*)"}})
	defer end()
	if _, err := rt.Agent(ctx, agents.Agent{Prompt: "start a server"}); err != nil {
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

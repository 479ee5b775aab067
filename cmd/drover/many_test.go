package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// serve makes the models of the place answer by a function.
func (p *place) serve(handle modeltest.Handler) *modeltest.Server {
	p.t.Helper()
	s, err := modeltest.New(handle)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(s.Close)
	p.env = append(p.env, "ANTHROPIC_BASE_URL="+s.URL, "ANTHROPIC_API_KEY=sk-test")
	return s
}

// fan calls for so many agents in one reply.
func fan(n int, more ...any) modeltest.Answer {
	var a modeltest.Answer
	for i := range n {
		a.Blocks = append(a.Blocks, modeltest.ToolUse("", "Agent", asks("general-purpose", fmt.Sprintf("part %d", i+1), more...)))
	}
	return a
}

// agents are the subagents that a session has had.
func (p *place) agents() (all []task.Record) {
	p.t.Helper()
	var list []task.Record
	if err := json.Unmarshal([]byte(p.good("ps", "-a", "--json", "--all-sessions").stdout()), &list); err != nil {
		p.t.Fatal(err)
	}
	for _, r := range list {
		if r.Kind == task.LocalAgent && r.ID != r.Session {
			all = append(all, r)
		}
	}
	return all
}

// Many agents, from outside.
func TestMany(t *testing.T) {
	bin := build(t)
	for name, test := range map[string]func(*testing.T, *place){
		"runaway": runaway, "queue": queue, "tree of forty": treeOfForty,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// Every agent wants seven more, and each of them again: 7 + 49 + 343 of them, and so
// on. The caps refuse the rest, every agent is told so, and all come to an end.
func runaway(t *testing.T, p *place) {
	var refused atomic.Int64
	turns := sync.Map{}
	p.serve(func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		n, _ := turns.LoadOrStore(r.AgentID(), new(atomic.Int64))
		if n.(*atomic.Int64).Add(1) == 1 {
			return fan(7)
		}
		refused.Add(int64(strings.Count(r.LastText(), "this session may start 100 of these")))
		return modeltest.Text("handed back")
	})
	limits := set(t, object{"limits": object{"depth": 3, "perRoot": 100, "spawnRate": 10_000, "live": 5}})
	if r := p.run("-p", "go", limits); r.code != 0 || r.stdout() != "handed back" {
		t.Fatalf("exit code %d, stdout %q, stderr %q", r.code, r.stdout(), r.stderr)
	}
	all := p.agents()
	if len(all) != 100 || refused.Load() == 0 {
		t.Errorf("%d agents ran, %d were refused", len(all), refused.Load())
	}
	deepest := 0
	for _, r := range all {
		deepest = max(deepest, r.Depth)
		if r.Status != task.Completed {
			t.Errorf("agent %s at depth %d is %s: %v", r.ID, r.Depth, r.Status, r.Cause)
		}
	}
	if deepest != 3 {
		t.Errorf("they went %d deep", deepest)
	}
}

// A hundred agents at a cap of ten: never more than ten at work, each says its
// place, and every one comes to its end.
func queue(t *testing.T, p *place) {
	var busy, most atomic.Int64
	full := make(chan struct{})
	m := p.serve(func(ctx context.Context, r *modeltest.Request) modeltest.Answer {
		if r.Agent() == "main" {
			if strings.Contains(r.LastText(), "task-notification") || strings.Contains(r.LastText(), "place") {
				return modeltest.Text("all done")
			}
			return fan(100, "run_in_background", true)
		}
		if n := busy.Add(1); n > most.Load() {
			if most.Store(n); n == 10 {
				close(full)
			}
		}
		defer busy.Add(-1)
		select { // the first ten wait for each other
		case <-full:
		case <-ctx.Done():
		}
		return modeltest.Text("part done")
	})
	r := p.run("-p", "go", set(t, object{"limits": object{"spawnRate": 1000, "live": 10}}))
	if r.code != 0 || r.stdout() != "all done" {
		t.Fatalf("exit code %d, stdout %q, stderr %q", r.code, r.stdout(), r.stderr)
	}
	all := p.agents()
	if len(all) != 100 || most.Load() != 10 {
		t.Errorf("%d agents, %d at work at once", len(all), most.Load())
	}
	for _, r := range all {
		if r.Status != task.Completed {
			t.Errorf("%s is %s: %v", r.ID, r.Status, r.Cause)
		}
	}
	first := strings.Join(texts(t, of(m, "main")[1]), "\n")
	if got := strings.Count(first, "queued, place"); got < 80 {
		t.Errorf("%d of them say their place: %s", got, first)
	}
}

// A tree of forty tasks on three levels: an agent, three agents below it, twelve
// commands below each. One stop ends all of them, from the leaves up, and names
// each.
func treeOfForty(t *testing.T, p *place) {
	turns := sync.Map{}
	ready := make(chan struct{}, 3)
	p.serve(func(ctx context.Context, r *modeltest.Request) modeltest.Answer {
		v, _ := turns.LoadOrStore(r.AgentID(), new(atomic.Int64))
		n := v.(*atomic.Int64).Add(1)
		switch {
		case r.Agent() == "general-purpose" && n == 1:
			var a modeltest.Answer
			for range 3 {
				a.Blocks = append(a.Blocks, modeltest.ToolUse("", "Agent", asks("task", "commands")))
			}
			return a
		case n == 1:
			var a modeltest.Answer
			for range 12 {
				a.Blocks = append(a.Blocks, modeltest.ToolUse("", "Bash", object{"command": "sleep 1000 & sleep 1000", "run_in_background": true}))
			}
			return a
		}
		ready <- struct{}{}
		<-ctx.Done() // it thinks until it is stopped
		return modeltest.Text("never")
	})
	top := p.good("agent", "run", "general-purpose", "go", "-d", "--allowed-tools=Bash", "--name=top").stdout()
	for range 3 {
		<-ready
	}
	var receipt task.Receipt
	if err := json.Unmarshal([]byte(p.good("stop", top, "--json").stdout()), &receipt); err != nil {
		t.Fatal(err)
	}
	if len(receipt.Stopped) != 40 || len(receipt.Survivors) != 0 {
		t.Fatalf("%d stopped, survivors %v", len(receipt.Stopped), receipt.Survivors)
	}
	at := map[task.ID]int{}
	for i, s := range receipt.Stopped {
		at[s.ID] = i
		if s.Status != task.Killed || s.Cause == nil {
			t.Errorf("%s is %s, %v", s.ID, s.Status, s.Cause)
		}
	}
	for _, r := range p.tasks("-a") {
		id, parent := task.ID(r["task_id"].(string)), r["parent_id"]
		if parent != nil && at[task.ID(parent.(string))] < at[id] {
			t.Errorf("%s is named after %s, which is above it", id, parent)
		}
	}
	if last := receipt.Stopped[39]; string(last.ID) != top {
		t.Errorf("the last is %s, and should be %s", last.ID, top)
	}
	p.leaves(patience, filepath.Join("sleep"))
}

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// TestTrees shows from outside what holds for whole trees of agents: what they may
// spend, who hears of what, and what is left when one ends.
func TestTrees(t *testing.T) {
	bin := build(t)
	all := cases{"latch": treeLatch, "killed": treeKilled, "refused": treeRefused, "spend": treeSpend, "left": treeLeft}
	for name, test := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

func background(command string) map[string]any {
	return map[string]any{"command": command, "run_in_background": true}
}

// only1 is the one task of a sort.
func (p *place) only1(agentType string) task.Record {
	p.t.Helper()
	var all, found []task.Record
	if err := json.Unmarshal([]byte(p.good("ps", "-a", "--json").stdout()), &all); err != nil {
		p.t.Fatal(err)
	}
	for _, r := range all {
		if r.AgentType == agentType {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		p.t.Fatalf("%d tasks of type %q", len(found), agentType)
	}
	return found[0]
}

// A task that the user stops while the main agent is idle costs no turn; the next
// prompt brings the news, also in another process.
func treeLatch(t *testing.T, p *place) {
	m := p.model(map[string][]step{"main": {calls("Bash", background("exec sleep 1000")), says("started"), echo}})
	r := p.start("-p", "go", "--output-format=stream-json", anything)
	r.until(`"type":"result"`)
	id := string(p.only1("").ID)
	p.good("stop", id)
	res := r.wait()
	if res.code != 0 || m.Count() != 2 {
		t.Fatalf("exit code %d after %d requests: %s", res.code, m.Count(), res.stderr)
	}
	session, _ := res.objects(t)[0]["session_id"].(string)
	got := p.good("-p", "what now?", "--resume", session, anything).stdout()
	holds(t, "the next prompt", got, "<task-id>"+id, "<status>killed</status>", "by user", "what now?")
	if m.Count() != 3 {
		t.Errorf("%d requests", m.Count())
	}
}

// A host that is killed takes nothing of the ledger with it: the tree has spent
// what it has spent, and may start no more than it may.
func treeKilled(t *testing.T, p *place) {
	asked := make(chan struct{})
	m := p.model(map[string][]step{
		"main": {calls("Agent", asks("explore", "look", "name", "scout", "run_in_background", true)), says("started"),
			calls("Agent", asks("explore", "go on", "resume", "scout")), echo},
		"explore": {using(9_000, 1_000, calls("Glob", map[string]any{"pattern": "*"})), func(*modeltest.Request) modeltest.Answer {
			close(asked)
			a := modeltest.Text("late")
			a.Wait = make(chan struct{})
			return a
		}},
	})
	budget := set(t, object{"agents": object{"budgetTokens": 10_000}, "limits": object{"perRoot": 1}})
	r := p.start("-p", "go", "--output-format=stream-json", budget)
	r.until(`"type":"result"`)
	// What the first call has cost is the whole budget but for a last answer.
	<-asked
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	res := r.wait()
	session, _ := res.objects(t)[0]["session_id"].(string)
	got := p.run("-p", "go on", "--resume", session, budget)
	holds(t, "the refusal", got.stdout(), "of 10000 tokens is spent (10000)")
	if n := len(of(m, "explore")); n != 2 {
		t.Errorf("%d requests of the agent", n)
	}
	p.model(map[string][]step{"main": {calls("Agent", asks("explore", "go on", "resume", "scout")), echo}})
	got = p.run("-p", "go on", "--resume", session, set(t, object{"limits": object{"perRoot": 1}}))
	holds(t, "the refusal by the limit of runs", got.stdout(), "this session may start 1 of these")
}

// A start for which nothing is left is refused before it is recorded, with what is
// spent and what is set aside.
func treeRefused(t *testing.T, p *place) {
	p.file(".claude/agents/greedy.md", "---\nname: greedy\ndescription: Wants all.\nbudget: {usd: 2.5}\n---\nWork.\n")
	hold := make(chan struct{})
	m := p.model(map[string][]step{
		"main": {using(300_000, 1, calls("Agent", asks("greedy", "work", "run_in_background", true))),
			using(300_000, 1, calls("Agent", asks("plan", "more"))), func(r *modeltest.Request) modeltest.Answer {
				defer close(hold)
				return echo(r)
			}, says("told")},
		"greedy": {held(hold, says("done"))},
		"plan":   {says("never")},
	})
	r := p.run("-p", "go", "--model=sonnet", "--max-budget-usd=3", "--output-format=stream-json", set(t, object{"context": object{"autoCompact": "off"}, "models": object{"prices": object{"claude-sonnet*": object{"input": 1, "output": 1}}}}))
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	if n := len(of(m, "plan")); n != 0 || len(p.tasks("-a")) != 1 {
		t.Errorf("%d requests of an agent that was refused", n)
	}
	holds(t, "the refusal", of(m, "main")[2].LastText(), "the budget of $3.00 has no room for this: $0.60 is spent, $2.50 is set aside for what runs, and a start needs $0.02")
	if rec := p.only1("greedy"); rec.Budget.USD != 2.5 {
		t.Errorf("its budget is %+v", rec.Budget)
	}
}

// What a tree has cost stands beside what each of it has.
func treeSpend(t *testing.T, p *place) {
	p.model(map[string][]step{
		"main":            {calls("Agent", asks("general-purpose", "work")), says("done")},
		"general-purpose": {using(10_000, 0, calls("Agent", asks("plan", "it"))), using(10_000, 0, says("half"))},
		"plan":            {using(20_000, 0, says("planned"))},
	})
	p.good("-p", "go", "--model=claude-sonnet-4-5-20250929") // short names change with the table
	top := p.only1("general-purpose")
	if top.Usage == nil || top.Usage.CostUSD == nil || *top.Usage.CostUSD < 0.0599 || *top.Usage.CostUSD > 0.0601 {
		t.Errorf("its own cost %+v", top.Usage)
	}
	var o struct {
		Subtree task.Spend `json:"subtree"`
	}
	if err := json.Unmarshal([]byte(p.good("inspect", string(top.ID)).stdout()), &o); err != nil || o.Subtree.Tasks != 2 || o.Subtree.CostUSD == nil || *o.Subtree.CostUSD < 0.1199 {
		t.Errorf("its tree %+v, %v", o, err)
	}
	holds(t, "ps --tree", p.good("ps", "-a", "--tree").stdout(), "$0.06 (tree $0.12)")
}

// What an agent leaves is its parent's, which is told of it and of its end.
func treeLeft(t *testing.T, p *place) {
	fifo := p.fifo("go")
	m := p.model(map[string][]step{
		"main":            {calls("Agent", asks("general-purpose", "work")), says("done"), echo, echo},
		"general-purpose": {calls("Bash", background("cat "+fifo+"; echo over")), says("bye")},
	})
	r := p.start("-p", "go", "--output-format=stream-json", anything)
	r.until("user", "Still running, and yours now")
	command := p.only1("")
	if command.Parent != "" || command.Status.Terminal() || command.Depth != 1 {
		t.Errorf("left as %+v", command)
	}
	p.free(fifo)
	res := r.wait()
	if res.code != 0 {
		t.Fatal(res.stderr)
	}
	var said strings.Builder
	for _, q := range of(m, "main") {
		said.WriteString(q.LastText() + "\n")
	}
	holds(t, "the main agent", said.String(), "yours now: command "+string(command.ID), "<task-id>"+string(command.ID), "<status>completed</status>")
}

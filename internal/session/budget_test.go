package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/requests"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// counted gives a session a accounts, and its agents a budget in tokens.
func counted(t *testing.T, tokens int64) func(*Config) {
	t.Helper()
	p, err := usage.Open(usage.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Agents.Accounts, c.Options.Agents.BudgetTokens = p, tokens }
}

func intends(what string) modeltest.Answer {
	return blocks(modeltest.ToolUse("", "report_intent", map[string]any{"intent": what}))
}

// agentOf is the one agent of a name, once it has ended.
func agentOf(r *testSession, name string) task.Record {
	r.t.Helper()
	rec, err := r.sup.Find(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.wait(string(rec.ID))[0]
}

// An agent that runs into its turns is told before, hands back what it has, and
// has failed all the same.
func TestTurnLimit(t *testing.T) {
	var child []modeltest.Answer
	for _, what := range []string{"one", "two", "three", "four", "five"} {
		child = append(child, intends(what))
	}
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"main":            {blocks(modeltest.ToolUse("", "Agent", map[string]any{"description": "d", "prompt": "work", "name": "ada", "max_turns": 5})), modeltest.Text("done")},
		"general-purpose": append(child, modeltest.Text("half of it")),
	}), counted(t, 0))
	m := converse(r)
	m.say("go")
	if turn := m.next(); turn.Err != nil {
		t.Fatal(turn.Err)
	}
	got := agentOf(r, "ada")
	if got.Status != task.Failed || got.Cause.Reason != "max_turns" || got.Usage.Turns != 6 {
		t.Errorf("%s %+v %+v", got.Status, got.Cause, got.Usage)
	}
	if text, err := r.log.Answer(r.ctx, got.Run); err != nil || text != "half of it" {
		t.Errorf("handed back %q, %v", text, err)
	}
	asked := of(server, "general-purpose")
	if len(asked) != 6 {
		t.Fatalf("the agent asked %d times", len(asked))
	}
	const warning = "4 of the 5 answers that you may give are used: 1 left"
	for i, want := range []int{0, 0, 0, 0, 1, 1} {
		if n := strings.Count(string(asked[i].Body), warning); n != want {
			t.Errorf("request %d warns %d times, want %d", i, n, want)
		}
	}
	first, last := params(t, asked[0]), params(t, asked[5])
	if a, b := jsonOf(t, first.Tools), jsonOf(t, last.Tools); a != b {
		t.Errorf("the tools of the last request differ: %s\n%s", a, b)
	}
	told := of(server, "main")
	if body := string(told[len(told)-1].Body); !strings.Contains(body, "half of it") {
		t.Errorf("the one who asked was not told: %s", body)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The budget of an agent at the top binds those below it: they end by it with what
// they have, and none is started any more, of which nothing is recorded.
func TestBudgetOfTree(t *testing.T) {
	costs := func(tokens int64, a modeltest.Answer) modeltest.Answer {
		a.Usage.InputTokens, a.Usage.OutputTokens = tokens-100, 100
		return a
	}
	spent := func(a modeltest.Answer) modeltest.Answer { return costs(1000, a) }
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"main":            {blocks(delegate("general-purpose", "work", "name", "ada")), blocks(delegate("research", "again", "name", "bob")), modeltest.Text("done")},
		"general-purpose": {spent(blocks(delegate("explore", "look", "name", "eve"))), spent(modeltest.Text("all that there is"))},
		"explore":         {spent(intends("one")), spent(intends("two")), spent(intends("three")), spent(modeltest.Text("found half"))},
		"research":        {costs(5000, blocks(delegate("explore", "more", "name", "eva"))), spent(modeltest.Text("nothing yet"))},
	}), counted(t, 4500))
	m := converse(r)
	m.say("go")
	if turn := m.next(); turn.Err != nil {
		t.Fatal(turn.Err)
	}
	for name, want := range map[string]struct {
		status task.Status
		reason task.Reason
		text   string
	}{
		"eve": {task.Failed, usage.LimitTokens, "found half"}, // its parent has used 1,000, and it three times that before the last call
		"ada": {task.Failed, usage.LimitTokens, "all that there is"},
		"bob": {task.Failed, usage.LimitTokens, "nothing yet"}, // what the other tree has spent is not its own
	} {
		got := agentOf(r, name)
		text, err := r.log.Answer(r.ctx, got.Run)
		if err != nil || got.Status != want.status || got.Cause.Reason != want.reason || text != want.text {
			t.Errorf("%s: %s %+v %q, %v", name, got.Status, got.Cause, text, err)
		}
	}
	if _, err := r.sup.Find("eva"); err == nil {
		t.Error("an agent was started for which nothing was left")
	}
	if body := string(of(server, "explore")[3].Body); !strings.Contains(body, "4000 of 4500 tokens are used (the budget that you share with agent a") {
		t.Errorf("not warned: %s", body)
	}
	bob := agentOf(r, "bob")
	want := "could not be started: the budget of " + string(bob.ID) + " of 4500 tokens is spent (5000)"
	if body := string(of(server, "research")[1].Body); !strings.Contains(body, want) {
		t.Errorf("the start was not refused by the budget: %s", body)
	}
	ada := agentOf(r, "ada")
	err := agents.ProgramError(r.cfg.Agents.Accounts.Afford(string(ada.ID)))
	var limit *subagent.LimitError
	if !errors.As(err, &limit) || limit.Limit != usage.LimitTokens || !strings.Contains(err.Error(), "the budget of "+string(ada.ID)) {
		t.Errorf("a start below it: %v", err)
	}
	if e := requests.Refusal(r.cfg.Agents.Accounts.Afford(string(ada.ID))); e.Code != "unavailable" {
		t.Errorf("for users: %+v", e)
	}
}

// An agent whose time is up within a call hands back what it has too.
func TestTimeUp(t *testing.T) {
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{"general-purpose": {
		blocks(modeltest.ToolUse("", "Bash", map[string]any{"command": "sleep 1000"})), modeltest.Text("half of it")}}))
	started, err := r.Start(r.ctx, []control.StartRequest{{Agent: &control.AgentRequest{Prompt: "work"}, Timeout: time.Second, Env: r.cfg.Agents.Env, Cwd: r.folder}})
	if err != nil || started[0].Error != nil {
		t.Fatal(started, err)
	}
	got := r.wait(string(started[0].Task.ID))[0]
	text, err := r.log.Answer(r.ctx, got.Run)
	if err != nil || got.Status != task.Failed || got.Cause.Reason != task.ReasonTimeout || text != "half of it" || got.Usage.Turns != 2 {
		t.Errorf("%s %+v %q, %v", got.Status, got.Cause, text, err)
	}
	if asked := of(server, "general-purpose"); len(asked) != 2 || !strings.Contains(string(asked[1].Body), "its time is up") {
		t.Errorf("asked %d times", len(asked))
	}
}

// An agent for which nobody sets a limit may give 50 answers, as its main agent may.
func TestDefaultTurns(t *testing.T) {
	n := 0
	r, server := served(t, func(context.Context, *modeltest.Request) modeltest.Answer {
		n++ // the same call again and again would end the turn
		return intends(fmt.Sprint("looking ", n))
	})
	out, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "general-purpose"})
	if err != nil {
		t.Fatal(err)
	}
	if c := out.Task.Cause; out.Task.Status != task.Failed || c.Reason != task.ReasonMaxTurns || out.Task.Usage.Turns < 50 {
		t.Errorf("it ended %s, %+v, %+v", out.Task.Status, c, out.Task.Usage)
	}
	asked := of(server, "general-purpose")
	const warning = "of the 50 answers that you may give are used"
	if n := len(asked); n < 50 || n > 51 || !strings.Contains(string(asked[49].Body), warning) { // the last hands back what there is
		t.Errorf("%d requests, the 50th %.2000s", n, asked[n-1].Body)
	}
}

//go:build linux

package knownfailures

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

// ofMoney are the failures that cost.
func ofMoney() []failure {
	return []failure{
		{row: 22, name: "turns", pain: "every notification costs a turn", promise: "notifications are delivered in batches; a stop by the user starts no turn",
			try: "20 commands end during a model call; one more is stopped by the user", run: turns},
		{row: 23, name: "spend", pain: "costs are invisible, and the limit misses background agents", promise: "usage per agent, a limit per tree, a last answer at the limit",
			try: "an endless agent with a budget of 10,000 tokens", run: spend},
	}
}

func turns(r *place) string {
	const n = 20
	r.Fifo("go")
	ended := make(chan struct{})
	m := r.serve(func(c context.Context, q *modeltest.Request) modeltest.Answer {
		switch requestsOf(q) {
		case 1:
		case 2:
			return held(ended, says("started"))(c, q)
		default:
			return modeltest.Text("noted")
		}
		a := many(n, "Bash", func(int) object { return later("true") })(c, q)
		a.Blocks = append(a.Blocks, modeltest.ToolUse("", "Bash", later("exec sleep 4491")))
		return a
	})
	f := r.Start("-p", "go", anything)
	r.some(1, "sleep 4491")
	if !waittest.Until(harness.Patience, func() bool {
		done := 0
		for _, x := range r.tasks() {
			if x.Status == task.Completed {
				done++
			}
		}
		return done == n
	}) {
		r.Fatalf("the commands do not end: %v", r.tasks())
	}
	close(ended)
	if !waittest.Until(harness.Patience, func() bool { return m.Count() >= 3 }) {
		r.Fatal("nobody is told of an end")
	}
	r.Good("stop", string(r.task("the one that runs", func(x task.Record) bool { return !x.Status.Terminal() }).ID))
	r.want("exit code", f.Code(), 0)
	r.want("requests", m.Count(), 3)
	said := r.heard(m, "main")
	r.want("ends that were told", strings.Count(said, "<status>completed</status>"), n)
	return fmt.Sprintf("%d notifications in 1 turn, none for the stop", n)
}

func spend(r *place) string {
	var asked atomic.Int64
	m := r.serve(func(c context.Context, q *modeltest.Request) modeltest.Answer {
		a := modeltest.Text("done")
		switch {
		case q.Agent() == "main" && requestsOf(q) == 1:
			a = modeltest.Call("Agent", agent("explore", "look", "name", "scout", "run_in_background", true))
		case q.Agent() != "main":
			asked.Add(1)
			a = modeltest.Call("Glob", object{"pattern": "*"})
			if strings.Contains(q.LastText(), "Hand back what you have") {
				a = modeltest.Text("what I have")
			}
			a.Usage.InputTokens = 3_000
		}
		return a
	})
	r.Good("-p", "go", "--model=sonnet", anything, `--settings={"agents":{"budgetTokens":10000}}`)
	x := r.named("scout")
	r.want("reason", x.Cause.Reason, "max_budget_tokens")
	if x.Usage == nil || x.Usage.CostUSD == nil || *x.Usage.CostUSD <= 0 || asked.Load() > 4 {
		r.Errorf("%d calls; its ledger has %+v", asked.Load(), x.Usage)
	}
	r.says("ps", r.Good("ps", "-a", "--tree"), "$0.0")
	r.says("the parent", r.heard(m, "main"), "what I have")
	return fmt.Sprintf("%s after %d calls of 3,000 tokens, the last to hand back; $%.3f", how(x), asked.Load(), *x.Usage.CostUSD)
}

// requestsOf is how many answers a conversation has had, and one.
func requestsOf(q *modeltest.Request) int {
	p, err := q.Params()
	if err != nil {
		return 0
	}
	n := 1
	for _, m := range p.Messages {
		if m.Role() == "assistant" {
			n++
		}
	}
	return n
}

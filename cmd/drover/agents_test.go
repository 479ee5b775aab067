package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/test/modeltest"
)

// TestAgents shows what an agent is made of, from outside: its model, its money,
// its permissions, its hooks, its memory, its to-dos.
func TestAgents(t *testing.T) {
	bin := build(t)
	for _, group := range []cases{agentModels(), agentCosts(), agentQuestions(), agentHooks(), agentContext(), agentTodos()} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, newPlace(t, bin))
			})
		}
	}
}

// asks is the input of a call that starts an agent; more are further fields by
// turns.
func asks(kind, prompt string, more ...any) map[string]any {
	in := map[string]any{"description": prompt, "prompt": prompt, "subagent_type": kind}
	for i := 0; i < len(more); i += 2 {
		in[more[i].(string)] = more[i+1]
	}
	return in
}

// set are settings for the command line.
func set(t *testing.T, settings object) string {
	t.Helper()
	raw, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	return "--settings=" + string(raw)
}

// tasks are what ps lists.
func (p *place) tasks(args ...string) []object {
	p.t.Helper()
	var all []object
	if err := json.Unmarshal([]byte(p.good(append([]string{"ps", "--json"}, args...)...).stdout()), &all); err != nil {
		p.t.Fatal(err)
	}
	return all
}

// using says what an answer has cost.
func using(input, output int64, s step) step {
	return func(r *modeltest.Request) modeltest.Answer {
		a := s(r)
		a.Usage.InputTokens, a.Usage.OutputTokens = input, output
		return a
	}
}

// modelOf is the model that a request was for.
func modelOf(t *testing.T, r *modeltest.Request) string {
	t.Helper()
	p, err := r.Params()
	if err != nil {
		t.Fatal(err)
	}
	return p.Model
}

// says checks that a text holds others.
func holds(t *testing.T, what, text string, pieces ...string) {
	t.Helper()
	for _, piece := range pieces {
		if !strings.Contains(text, piece) {
			t.Errorf("%s does not say %q: %s", what, piece, text)
		}
	}
}

const (
	sonnet = "claude-sonnet-5-5"
	opus   = "claude-opus-4-5"
)

// agentModels are tests of which model an agent gets, and of models that fail.
func agentModels() cases {
	return cases{
		"openai": func(t *testing.T, p *place) {
			for api, path := range map[string]modeltest.API{"chat": modeltest.Chat, "responses": modeltest.Responses} {
				m := p.model(map[string][]step{"main": {calls("Bash", bash("echo from the command")), says("it is done")}})
				p.env = append(p.env, "OPENAI_BASE_URL="+m.URL+"/v1", "OPENAI_API_KEY=sk-other")
				r := p.good("-p", "go", "--model", "openai/gpt-5", anything, set(t, object{"providers": object{"openai": object{"api": api}}}))
				all := m.Requests()
				if r.stdout() != "it is done" || len(all) != 2 {
					t.Fatalf("%s: %d requests, %q", api, len(all), r.stdout())
				}
				if all[1].API != path || modelOf(t, all[1]) != "gpt-5" || all[1].Header.Get("Authorization") != "Bearer sk-other" {
					t.Errorf("%s: asked %s for %s", api, all[1].API, modelOf(t, all[1]))
				}
				if said := texts(t, all[1]); count(said, "from the command") < 1 || count(said, "go") < 1 {
					t.Errorf("%s: the result of the call is missing: %q", api, said)
				}
			}
		},
		"alias": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("ok")}})
			p.good("-p", "go", "--model", "fast", set(t, object{"models": object{"aliases": object{"fast": "claude-haiku-4-5"}}}))
			if got := modelOf(t, m.Requests()[0]); got != "claude-haiku-4-5" {
				t.Errorf("the alias means %s", got)
			}
		},
		"available": func(t *testing.T, p *place) {
			only := set(t, object{"models": object{"available": []string{"sonnet", "claude-haiku-*"}}})
			m := p.model(map[string][]step{"main": {calls("Agent", asks("plan", "it", "model", "opus")), says("done")}, "plan": {says("never")}})
			p.fails(1, []string{"-p", "go", "--model", "opus", only}, `"opus" is not available`, "claude-haiku-*, sonnet")
			if m.Count() != 0 {
				t.Error("a model was asked all the same")
			}
			p.good("-p", "go", only)
			holds(t, "the result of the call", of(m, "main")[1].LastText(), `"opus" is not available`, "claude-haiku-*, sonnet")
			if n := len(of(m, "plan")); n != 0 {
				t.Errorf("%d requests of an agent that was refused", n)
			}
		},
		"costguard": func(t *testing.T, p *place) {
			for _, background := range []bool{false, true} {
				m := p.model(map[string][]step{"main": {calls("Agent", asks("plan", "it", "model", "opus", "run_in_background", background)), says("done"), says("told")}, "plan": {says("the plan")}})
				r := p.run("-p", "go", "--model", "sonnet")
				if r.code != 0 {
					t.Fatal(r.stderr)
				}
				if got := modelOf(t, of(m, "plan")[0]); got != sonnet {
					t.Errorf("the agent has %s", got)
				}
				holds(t, "the result of the call", of(m, "main")[1].LastText(), "the cost guard replaced claude-opus", sonnet)
				holds(t, "stderr", r.stderr, "the cost guard replaced")
			}
			m := p.model(map[string][]step{"main": {calls("Agent", asks("plan", "it", "model", "opus")), says("done")}, "plan": {says("the plan")}})
			p.good("-p", "go", "--model", "sonnet", set(t, object{"models": object{"costGuard": "off"}}))
			if got := modelOf(t, of(m, "plan")[0]); !strings.Contains(got, "opus") {
				t.Errorf("without a guard the agent has %s", got)
			}
		},
		"implied": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {several("Agent", asks("explore", "it"), "Agent", asks("rubber-duck", "it"), "Agent", asks("plan", "it")), says("done")},
				"explore": {says("found")}, "rubber-duck": {says("quack")}, "plan": {says("the plan")}})
			p.good("-p", "go", "--model", "sonnet", set(t, object{"models": object{"explore": "claude-haiku-4-5", "complementary": object{"claude": "claude-3-5-haiku-latest"}}}))
			for agent, want := range map[string]string{"explore": "claude-haiku-4-5", "rubber-duck": "claude-3-5-haiku-latest", "plan": sonnet} {
				if got := modelOf(t, of(m, agent)[0]); got != want {
					t.Errorf("%s has %s, want %s", agent, got, want)
				}
			}
		},
		"preference": func(t *testing.T, p *place) {
			p.file(".claude/agents/picky.md", "---\nname: picky\ndescription: Picks.\nmodel: GPT-4.1\n---\nPick.\n")
			m := p.model(map[string][]step{"main": {calls("Agent", asks("picky", "it")), says("done")}, "picky": {says("picked")}})
			r := p.run("-p", "go", "--model", "sonnet")
			if got := modelOf(t, of(m, "picky")[0]); got != sonnet || r.code != 0 {
				t.Errorf("the agent has %s; exit code %d: %s", got, r.code, r.stderr)
			}
			holds(t, "the result of the call", of(m, "main")[1].LastText(), "picked", "GPT-4.1", "not available here", sonnet)
		},
		"sharedlimit": func(t *testing.T, p *place) {
			var mu sync.Mutex
			var refused, again time.Time
			both, retried := make(chan struct{}), make(chan struct{})
			met := sync.OnceFunc(func() { close(both) })
			late := func(s step) step {
				return func(r *modeltest.Request) modeltest.Answer {
					mu.Lock()
					defer mu.Unlock()
					if again.IsZero() {
						again = time.Now()
					}
					return s(r)
				}
			}
			m := p.model(map[string][]step{
				"main": {several("Agent", asks("explore", "a"), "Agent", asks("plan", "b")), says("done")},
				"explore": {held(both, func(*modeltest.Request) modeltest.Answer {
					mu.Lock()
					defer mu.Unlock()
					refused = time.Now()
					return modeltest.RateLimit("1")
				}), late(says("found"))},
				"plan": {func(r *modeltest.Request) modeltest.Answer {
					met()
					a := modeltest.Call("Glob", map[string]any{"pattern": "*"}) // it has no such tool, and asks again
					a.Wait = retried
					return a
				}, late(says("planned"))},
			})
			r := p.start("-p", "go", "--output-format=stream-json")
			r.until(`"api_retry"`)
			close(retried)
			if res := r.wait(); res.code != 0 {
				t.Fatal(res.stderr)
			}
			if took := again.Sub(refused); took < time.Second {
				t.Errorf("a request %s after the refusal, which asked for a second", took)
			}
			holds(t, "the main agent", of(m, "main")[1].LastText(), "found", "planned")
		},
		"cut": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {func(*modeltest.Request) modeltest.Answer {
				a := modeltest.Text("the first half and " + strings.Repeat("x ", 100))
				a.Break, a.CutAt = true, 900
				return a
			}, says("all of it"), says("more")}})
			last := only(p.good("-p", "go", "--output-format=stream-json").objects(t), "result")[0]
			if last["is_error"] != false || last["result"] != "all of it" {
				t.Errorf("result %v", last)
			}
			id, _ := last["session_id"].(string)
			if got := p.good("-p", "and on", "--resume", id).stdout(); got != "more" {
				t.Errorf("printed %q", got)
			}
			said := texts(t, m.Requests()[2])
			if count(said, "the first half and") != 0 || count(said, "all of it") != 1 || !strings.HasSuffix(said[len(said)-1], "and on") {
				t.Errorf("the next request says %q", said)
			}
		},
	}
}

// agentCosts are tests of budgets and of what was spent.
func agentCosts() cases {
	return cases{
		"budget": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {
				using(10_000, 0, calls("Bash", bash("echo 1"))), using(10_000, 0, calls("Bash", bash("echo 2"))), using(10_000, 0, says("after all")),
			}})
			r := p.run("-p", "go", anything, "--model=claude-sonnet-4-5", "--max-budget-usd", "0.05", "--output-format=json")
			r.failed(t, 1, "the budget of $0.05 is spent ($0.06)")
			o := r.objects(t)[0]
			if errs, _ := o["errors"].([]any); o["is_error"] != true || m.Count() != 2 || o["num_turns"] != 2.0 || len(errs) != 1 {
				t.Errorf("%d requests, result %v", m.Count(), o)
			}
			id, _ := o["session_id"].(string)
			p.fails(1, []string{"-p", "more", "--model=claude-sonnet-4-5", "--max-budget-usd=0.055", "--resume", id}, "the budget of $0.06 is spent")
			if m.Count() != 2 {
				t.Error("a session went on beyond its budget by being resumed")
			}
			if got := p.good("-p", "more", "--model=claude-sonnet-4-5", "--max-budget-usd=0.09", "--resume", id).stdout(); got != "after all" {
				t.Errorf("printed %q", got)
			}
		},
		"budgetbackground": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{
				"main":    {using(500, 100, several("Agent", asks("explore", "a", "run_in_background", true), "Agent", asks("explore", "b", "run_in_background", true))), says("started"), says("never")},
				"explore": slices.Repeat([]step{using(4_000, 0, calls("Glob", map[string]any{"pattern": "*.none"}))}, 20),
			})
			r := p.run("-p", "go", "--model=claude-sonnet-4-5", "--max-budget-usd", "0.03", "--output-format=stream-json")
			r.stderr = regexp.MustCompile(`(?m)^drover: stopping a\w+ .*\n`).ReplaceAllString(r.stderr, "") // who is still at work then
			r.failed(t, 1, "the budget of $0.03 is spent")
			all := r.objects(t)
			results := only(all, "result") // that of the first turn is not there if the agents were faster than its second call
			if n := len(results); n < 1 || n > 2 || results[n-1]["is_error"] != true || n == 2 && results[0]["is_error"] != false {
				t.Errorf("results %v", results)
			}
			// One agent may be two calls ahead of the other, whose first call then passes the
			// budget: each has a last answer beyond those three.
			if n := len(of(m, "explore")); n < 3 || n > 5 {
				t.Errorf("%d calls of $0.012 from a budget of $0.03", n)
			}
			if n := len(of(m, "main")); n < len(results) || n > 2 {
				t.Errorf("%d calls of the main agent, the last when nothing was left, and %d results", n, len(results))
			}
			tasks := p.tasks("-a")
			if len(tasks) != 2 {
				t.Fatalf("%d tasks", len(tasks))
			}
			var spent int
			for _, o := range tasks { // the main agent's end may overtake that of the second
				c, _ := o["cause"].(map[string]any)
				switch {
				case o["status"] == "failed" && c["reason"] == "max_budget_usd":
					spent++
				case o["status"] != "killed" || c["reason"] != "closing":
					t.Errorf("task %v", o)
				}
			}
			if spent == 0 && len(of(m, "main")) < 2 { // its second call may be the one that passes the budget
				t.Error("no agent ended for want of money")
			}
		},
		"stats": func(t *testing.T, p *place) {
			cached := func(s step) step {
				return func(r *modeltest.Request) modeltest.Answer {
					a := s(r)
					a.Usage.CacheReadTokens, a.Usage.CacheWriteTokens = 1000, 100
					return a
				}
			}
			p.model(map[string][]step{
				"main": {cached(using(10, 5, calls("Agent", asks("plan", "it", "run_in_background", true)))), using(20, 6, says("started")), cached(using(30, 7, says("done")))},
				"plan": {using(40, 8, says("the plan"))},
			})
			r := p.run("-p", "go", "--model=claude-sonnet-4-5", "--output-format=json")
			if r.code != 0 {
				t.Fatal(r.stderr)
			}
			var got struct {
				Rows  []map[string]any `json:"rows"`
				Total map[string]any   `json:"total"`
			}
			if err := json.Unmarshal([]byte(p.good("stats", "--json").stdout()), &got); err != nil {
				t.Fatal(err)
			}
			calls, in := 4.0, 100.0
			want := map[string]any{"calls": calls, "input_tokens": in, "output_tokens": 26.0, "cache_read_input_tokens": 2000.0, "cache_creation_input_tokens": 200.0, "unpriced_calls": 0.0}
			for key, w := range want {
				if got.Total[key] != w {
					t.Errorf("%s is %v, want %v", key, got.Total[key], w)
				}
				sum := 0.0
				for _, row := range got.Rows {
					n, _ := row[key].(float64)
					sum += n
				}
				if sum != w {
					t.Errorf("the rows of %s add up to %v, want %v", key, sum, w)
				}
			}
			usd := (100*3 + 26*15 + 2000*0.3 + 200*3.75) / 1e6
			if c, _ := got.Total["cost_usd"].(float64); c < usd-1e-7 || c > usd+1e-7 {
				t.Errorf("cost %v, want %v", c, usd)
			}
			if len(got.Rows) != 2 {
				t.Errorf("rows %v", got.Rows)
			}
		},
	}
}

//go:build linux

package knownfailures

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

// ofCrowds are the failures of many agents.
func ofCrowds() []failure {
	return []failure{
		{row: 2, name: "runaway", pain: "spawning runs away: 361 agents instead of 5", promise: "limits on depth, on the total and on running agents; a refusal names the limit",
			try: "every agent starts five more", run: runaway},
		{row: 3, name: "children", pain: "stopping the parent leaves children at work for 30 minutes", promise: "the subtree is frozen, ended from the leaves, and listed in a receipt",
			try: "an agent and three below it that run endless commands which ignore TERM; one stop", run: children},
		{row: 8, name: "memory", pain: "20 MB and more for each agent", promise: "agents share one process and hold little",
			try: "100 agents at work at the same time", run: memory},
		{row: 9, name: "servers", pain: "one MCP server per agent (518 processes)", promise: "one for each configuration, ended with its last user",
			try: "9 agents call a tool of one server", run: servers},
		{row: 11, name: "nested", pain: "nested agents are invisible", promise: "the whole tree, live, with activity and cost",
			try: "an agent below an agent below an agent, at work", run: nested},
		{row: 13, name: "ratelimit", pain: "a rate limit fails every agent of a fan-out", promise: "refused calls wait and are repeated; no agent fails",
			try: "20 agents; the first 10 calls are refused with Retry-After", run: rateLimit},
		{row: 17, name: "slots", pain: "slots leak until the limit refuses every start", promise: "starts above the limit queue with their position; every end frees a slot",
			try: "24 agents on 2 slots; a third fail and a third are stopped", run: slots},
	}
}

func runaway(r *place) string {
	var mu sync.Mutex
	turns, refusals := map[string]int{}, 0
	r.serve(func(c context.Context, q *modeltest.Request) modeltest.Answer {
		mu.Lock()
		defer mu.Unlock()
		turns[q.AgentID()]++
		if turns[q.AgentID()] == 1 {
			return many(5, "Agent", func(int) object { return agent("general-purpose", "more") })(c, q)
		}
		refusals += strings.Count(q.LastText(), "this session may start 20 of these")
		return modeltest.Text("handed back")
	})
	r.Good("-p", "go", `--settings={"limits":{"perRoot":20,"spawnRate":10000}}`)
	all, deepest := r.tasks(), 0
	for _, x := range all {
		deepest = max(deepest, x.Depth)
		r.want(string(x.ID), x.Status, task.Completed)
	}
	r.want("agents", len(all), 20)
	if refusals == 0 || deepest > 3 {
		r.Errorf("%d refusals, depth %d", refusals, deepest)
	}
	return fmt.Sprintf("20 ran, %d deep; %d starts were refused with the reason; all came to an end", deepest, refusals)
}

func children(r *place) string {
	m := r.serve(func(c context.Context, q *modeltest.Request) modeltest.Answer {
		if q.Agent() == "general-purpose" {
			return many(3, "Agent", func(int) object { return agent("task", "commands") })(c, q)
		}
		return modeltest.Call("Bash", later(`trap "" TERM; setsid sleep 4471 & sleep 4471 & wait; wait`)) // and so on
	})
	r.settings(object{"permissions": object{"defaultMode": "bypassPermissions"}})
	top := r.Good("agent", "run", "-d", "general-purpose", "go")
	r.some(8, "sleep 4471")
	got := receipt(r, top)
	asked := m.Count()
	r.none("sleep 4471")
	listed := map[task.ID]bool{}
	for _, s := range got.Stopped {
		listed[s.ID] = true
	}
	for _, x := range r.tasks() {
		if !listed[x.ID] || !x.Status.Terminal() {
			r.Errorf("%s is %s, and in the receipt: %v", x.ID, how(x), listed[x.ID])
		}
	}
	r.Good("run", "-d", "--name", "next", "--", "true")
	r.Good("wait", "next")
	r.want("requests after the stop", m.Count(), asked)
	r.want("survivors", len(got.Survivors), 0)
	r.want("the last", got.Stopped[len(got.Stopped)-1].ID, top)
	return fmt.Sprintf("%d ended and named, the parent last; no survivor, no request afterwards", len(got.Stopped))
}

func memory(r *place) string {
	const n, most = 100, 400 << 10 // agents; KiB of all together, a fifth of the 20 MB each
	full := make(chan struct{})
	var there atomic.Int64
	r.serve(func(c context.Context, q *modeltest.Request) modeltest.Answer {
		switch {
		case q.Agent() != "main":
			if there.Add(1) == n {
				close(full)
			}
			<-c.Done()
		case requestsOf(q) > 1:
			return held(full, says("they work"))(c, q)
		}
		return many(n, "Agent", func(int) object { return agent("general-purpose", "work", "run_in_background", true) })(c, q)
	})
	f := r.Start("-p", "go", `--settings={"limits":{"live":256,"spawnRate":10000}}`)
	if !waittest.Until(harness.Patience, func() bool { return there.Load() == n }) {
		r.Fatalf("%d agents are at work", there.Load())
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.Cmd.Process.Pid))
	r.Must(err)
	var kib int
	_, err = fmt.Sscan(matched(`VmHWM:\s+(\d+) kB`, string(raw)), &kib)
	r.Must(err)
	if kib > most {
		r.Errorf("%d agents take %d KiB", n, kib)
	}
	r.Must(f.Cmd.Process.Signal(os.Interrupt))
	f.Code()
	return fmt.Sprintf("%d MiB at most for %d agents and the program", kib>>10, n)
}

// serverVariable makes the test binary an MCP server; it names the file in which it
// notes its start.
const serverVariable = "KNOWN_FAILURES_SERVER"

func serveTools() int {
	f, err := os.OpenFile(os.Getenv(serverVariable), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	fmt.Fprintln(f, os.Getpid())
	s := mcp.NewServer(&mcp.Implementation{Name: "failures", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "greet", Description: "Greets."}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello from the server"}}}, nil, nil
	})
	if s.Run(context.Background(), &mcp.StdioTransport{}) != nil {
		return 1
	}
	return 0
}

func servers(r *place) string {
	self, err := os.Executable()
	r.Must(err)
	starts := filepath.Join(r.Work, "starts")
	m := r.script(map[string][]step{
		"main":            {calls("mcp__one__greet", object{}), many(8, "Agent", func(int) object { return agent("general-purpose", "greet") }), says("done")},
		"general-purpose": {calls("mcp__one__greet", object{}), says("greeted")},
	})
	r.Good("-p", "go", anything, "--mcp-config", r.file("mcp.json", fmt.Sprintf(`{"mcpServers":{"one":{"command":%q,"env":{%q:%q}}}}`, self, serverVariable, starts)),
		`--settings={"mcp":{"startWait":"60s"}}`)
	greeted := 0
	for _, q := range m.Requests() {
		greeted += strings.Count(q.LastText(), "hello from the server")
	}
	r.want("greetings", greeted, 9)
	raw, err := os.ReadFile(starts)
	r.Must(err)
	r.want("starts", strings.Count(string(raw), "\n"), 1)
	r.none(self)
	return "9 agents, 1 process, gone with the session"
}

func nested(r *place) string {
	r.settings(object{"permissions": object{"defaultMode": "bypassPermissions"}})
	var mu sync.Mutex
	depth := map[string]int{}
	r.serve(func(c context.Context, q *modeltest.Request) modeltest.Answer {
		mu.Lock()
		if _, known := depth[q.AgentID()]; !known {
			depth[q.AgentID()] = len(depth)
		}
		deep := depth[q.AgentID()]
		mu.Unlock()
		a := modeltest.Call("Agent", agent("general-purpose", "look below"))
		if deep == 2 {
			a = modeltest.Call("Bash", bash("sleep 4481"))
		}
		a.Usage.InputTokens = 10_000
		return a
	})
	r.Good("agent", "run", "-d", "--model=claude-sonnet-4-5-20250929", "general-purpose", "go", "--name", "top")
	r.some(1, "sleep 4481")
	var tree string
	if !waittest.Until(harness.Patience, func() bool {
		tree = r.Good("ps", "--tree")
		return strings.Contains(tree, "sleep 4481") && strings.Contains(tree, "$0.03 (tree $0.09")
	}) {
		r.Errorf("the deepest command, or what all have cost, is not shown: %s", tree)
	}
	deepest := 0
	for _, x := range r.tasks() {
		deepest = max(deepest, x.Depth)
		if !strings.Contains(tree, string(x.ID)) {
			r.Errorf("%s is not shown: %s", x.ID, tree)
		}
	}
	r.want("levels", deepest, 4)
	r.Good("stop", "top")
	return fmt.Sprintf("%d tasks on %d levels, with what each and its tree have cost", len(r.tasks()), deepest)
}

func rateLimit(r *place) string {
	var n atomic.Int64
	r.serve(func(c context.Context, q *modeltest.Request) modeltest.Answer {
		switch {
		case q.Agent() != "main" && n.Add(1) <= 10:
			return modeltest.RateLimit("1")
		case q.Agent() != "main" || requestsOf(q) > 1:
			return modeltest.Text("part done")
		}
		return many(20, "Agent", func(int) object { return agent("explore", "look") })(c, q)
	})
	r.Good("-p", "go", `--settings={"limits":{"live":20}}`)
	all := r.tasks()
	for _, x := range all {
		r.want(string(x.ID), x.Status, task.Completed)
	}
	r.want("agents", len(all), 20)
	return fmt.Sprintf("20 of 20 completed; %d calls in all", n.Load())
}

func slots(r *place) string {
	r.file(".claude/agents/brief.md", "---\nname: brief\ndescription: Brief.\nmaxTurns: 1\ntools: Bash\n---\nWork.\n")
	kinds := []string{"explore", "plan", "brief"}
	m := r.script(map[string][]step{
		"main":    {many(24, "Agent", func(i int) object { return agent(kinds[i%3], "work", "run_in_background", true) }), says("done")},
		"explore": {says("found")},
		"plan":    {refused},
		"brief":   {calls("Bash", bash("true"))},
	})
	r.Good("-p", "go", anything, `--settings={"limits":{"live":2,"spawnRate":10000}}`)
	ends := map[string]int{}
	for _, x := range r.tasks() {
		if x.Kind == task.LocalAgent {
			ends[string(x.Status)]++
		}
	}
	r.want("ends", ends, map[string]int{"completed": 8, "failed": 16})
	places := 0
	for _, q := range m.Requests() {
		if q.Agent() == "main" {
			places = strings.Count(r.conversation(q), "queued, place")
		}
	}
	if places < 10 {
		r.Errorf("%d say their place", places)
	}
	return fmt.Sprintf("24 of 24 came to an end, %d said their place", places)
}

// git runs the user's git in the project.
func (r *place) git(args ...string) string {
	r.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=u", "-c", "user.email=u@localhost"}, args...)...)
	cmd.Dir, cmd.Env = r.Dir, r.Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

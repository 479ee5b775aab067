//go:build linux

package knownfailures

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	drover "github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

// ofAgents are the failures of one conversation.
func ofAgents() []failure {
	return []failure{
		{row: 1, name: "notifications", pain: "completion notifications are lost (31 of 188) or repeated", promise: "each end is delivered once, also across a crash",
			try: "188 commands in the background; kill -9 after the first notifications; resume", run: lostNotices},
		{row: 7, name: "context", pain: "reading a task floods the context with raw JSON lines", promise: "text, capped; the answer alone is a read of its own",
			try: "a command prints 5 MB; an agent's output, result and log are read", run: floodedContext},
		{row: 10, name: "permission", pain: "permission questions of background agents are denied unseen or wait forever", promise: "they wait, and any terminal can answer; the model sees a denial",
			try: "two agents in the background ask; one is allowed, one denied, from another terminal", run: permission},
		{row: 12, name: "pause", pain: "there is no pause: Esc kills everything", promise: "pause and resume keep all work",
			try: "an agent is paused while its command runs, and resumed", run: pause},
		{row: 14, name: "false", pain: "failures are shown as completed", promise: "the status comes from the loop, never from text",
			try: "agents that claim success and then lose their provider, give no answer, or reach their last turn", run: falseEnds},
		{row: 15, name: "resume", pain: "resume fails on big transcripts, IDs are lost", promise: "torn lines are fixed, IDs stay",
			try: "20,000 messages, the last line torn; then an earlier agent is resumed by its ID", run: bigResume},
		{row: 16, name: "compaction", pain: "compaction loses the handles of running tasks", promise: "live tasks are put back",
			try: "a conversation is compacted while a command runs", run: compaction},
		{row: 18, name: "stuck", pain: "an agent hangs when its provider hangs", promise: "a deadline ends it, and its parent receives the reason",
			try: "a provider that never answers, and a time budget", run: stuck},
		{row: 21, name: "hooks", pain: "hooks do not run on some paths", promise: "one SubagentStop for each SubagentStart",
			try: "agents that complete, fail, are stopped, reach their last turn", run: hooks},
		{row: 24, name: "owner", pain: "tasks of an ended agent have no owner", promise: "stopped with it, or moved to its parent, which is notified",
			try: "two agents end, each with a running command", run: owner},
		{name: "worktree", pain: "an agent's work is lost with its worktree", promise: "unmerged work is kept under a ref, with a receipt",
			try: "an isolated agent writes a file, commits nothing, and is killed with its host", run: lostWork},
	}
}

// lostNotices lets half of the commands end by themselves and the others with
// their host.
func lostNotices(r *place) string {
	const n = 188
	r.Fifo("never")
	some := make(chan struct{})
	var once sync.Once
	m := r.serve(func(ctx context.Context, q *modeltest.Request) modeltest.Answer {
		switch said := r.conversation(q); {
		case strings.Contains(said, "go on"):
			return modeltest.Text("I know")
		case strings.Contains(q.LastText(), "task-notification"):
			once.Do(func() { close(some) })
			<-ctx.Done()
		case requestsOf(q) > 1:
			return modeltest.Text("started")
		}
		return many(n, "Bash", func(i int) object { return later([]string{"true", "read x <never"}[i%2]) })(ctx, q)
	})
	f := r.Start("-p", "go", anything)
	select {
	case <-some:
	case <-f.Ended():
		r.Fatalf("nobody was told of an end: %s", f)
	}
	r.Must(f.Cmd.Process.Kill())
	f.Code()
	r.none("never")
	session := string(r.tasks()[0].Session)
	r.Good("-p", "go on", "--resume", session, anything)
	said := r.heard(m, "main")
	ends := map[string]int{}
	for _, x := range r.tasks() {
		if got := notifications(said, x.ID); got != 1 {
			r.Errorf("of %s, %s, the model was told %d times", x.ID, how(x), got)
		}
		ends[string(x.Cause.Reason)]++
	}
	r.want("commands", len(r.tasks()), n)
	return fmt.Sprintf("%d of %d told once: %d done, %d host_lost", n, n, ends["done"], ends["host_lost"])
}

func floodedContext(r *place) string {
	r.file("big", strings.Repeat(`{"type":"assistant","message":{"role":"assistant","content":"so it goes"}}`+"\n", 70_000))
	m := r.script(map[string][]step{
		"main":            {calls("Bash", bash("cat big")), calls("Agent", agent("general-purpose", "work", "name", "worker")), says("done")},
		"general-purpose": {calls("Bash", bash("cat big")), says("the answer")},
	})
	r.Good("-p", "go", anything)
	most := 0
	for _, q := range m.Requests() {
		most = max(most, len(q.LastText()))
	}
	if most > 40_000 {
		r.Errorf("a model was shown %d characters", most)
	}
	r.want("result", r.Good("result", "worker"), "the answer")
	if log := r.Good("logs", "--raw", "worker"); len(log) > 200_000 || strings.Contains(log, `"entry_type"`) {
		r.Errorf("its log has %d bytes: %.300s", len(log), log)
	}
	return fmt.Sprintf("5 MB are shown as %d characters; the result is 10", most)
}

func permission(r *place) string {
	m := r.script(map[string][]step{
		"main": {many(2, "Agent", func(i int) object {
			return agent("general-purpose", "touch "+[]string{"first", "second"}[i], "run_in_background", true)
		}), says("started")},
		"general-purpose": {func(_ context.Context, q *modeltest.Request) modeltest.Answer {
			return modeltest.Call("Bash", bash(matched(`(touch (?:first|second))`, r.conversation(q))))
		}, says("done")},
	})
	session := r.Good("-p", "-d", "go")
	answer := func(verb, what string, more ...string) {
		r.Helper()
		var list string
		if !waittest.Until(harness.Patience, func() bool { list = r.Good("approvals"); return strings.Contains(list, "command: "+what+"\n") }) {
			r.Fatalf("nobody asks for %s: %s", what, list)
		}
		if !slices.ContainsFunc(r.tasks(), func(x task.Record) bool { return x.AwaitingApproval }) {
			r.Error("no task awaits approval")
		}
		r.Good(append([]string{"approvals", verb, matched(`(?s)command: `+what+`\n.*?approvals allow (\w+)`, list)}, more...)...)
	}
	answer("allow", "touch first")
	answer("deny", "touch second", "--reason", "not today")
	r.Good("wait", session)
	r.want("requests of agents", requests(m, "general-purpose"), 4)
	if !slices.ContainsFunc(m.Requests(), func(q *modeltest.Request) bool {
		said := r.conversation(q)
		return q.Agent() == "general-purpose" && strings.Contains(said, "touch second") && strings.Contains(said, "not today")
	}) {
		r.Error("the one that was denied does not know why")
	}
	for name, want := range map[string]bool{"first": true, "second": false} {
		if _, err := os.Stat(filepath.Join(r.Dir, name)); (err == nil) != want {
			r.Errorf("%s: %v", name, err)
		}
	}
	return "both waited and were answered elsewhere; the model knows why it may not"
}

func pause(r *place) string {
	r.Fifo("go")
	m := r.script(map[string][]step{"general-purpose": {calls("Bash", bash("read x <go; echo the work is kept")), says("done")}})
	r.settings(object{"permissions": object{"defaultMode": "bypassPermissions"}})
	r.Good("agent", "run", "-d", "--name", "agent", "general-purpose", "work")
	r.some(1, "read x")
	r.Good("pause", "agent")
	for _, x := range r.Procs("read x") {
		if state := harness.StateOf(x.PID); state != "T" {
			r.Errorf("%s is in state %s", x.Line, state)
		}
	}
	r.want("paused", r.named("agent").Paused, true)
	r.want("requests of a paused agent", m.Count(), 1)
	r.Good("resume", "agent")
	r.Free("go")
	r.Good("wait", "agent")
	r.says("the agent", r.heard(m, "general-purpose"), "the work is kept")
	return "its command was frozen, and nothing asked; afterwards it went on, with its result"
}

func falseEnds(r *place) string {
	r.file(".claude/agents/brief.md", "---\nname: brief\ndescription: Brief.\nmaxTurns: 1\ntools: Bash\n---\nWork.\n")
	claim := many(1, "Glob", func(int) object { return object{"pattern": "*"} })
	m := r.script(map[string][]step{
		"main": {many(3, "Agent", func(i int) object {
			return agent([]string{"explore", "plan", "brief"}[i], "work", "name", []string{"liar", "silent", "cut"}[i])
		}), says("done")},
		"explore": {func(c context.Context, q *modeltest.Request) modeltest.Answer {
			a := claim(c, q)
			a.Blocks = append([]drover.Block{drover.TextBlock("Task completed successfully!")}, a.Blocks...)
			return a
		}, refused},
		"plan":  {says("")},
		"brief": {calls("Bash", bash("echo SUCCESS: completed"))},
	})
	r.Good("-p", "go", anything)
	r.want("liar", r.named("liar").Status, task.Failed)
	r.want("cut", string(r.named("cut").Status)+" "+string(r.named("cut").Cause.Reason), "failed max_turns")
	said := r.heard(m, "main")
	r.says("the parent", said, "out of order")
	silent := r.named("silent")
	r.says("the parent", said, "did not complete its work", "The agent gave no report.")
	return fmt.Sprintf("liar: %s; cut: %s; silent: %s, and its parent reads that there is no report", how(r.named("liar")), how(r.named("cut")), how(silent))
}

func bigResume(r *place) string {
	m := r.script(map[string][]step{
		"main":    {calls("Agent", agent("explore", "look", "name", "scout")), says("one"), calls("Agent", agent("explore", "and now?", "resume", "scout")), says("two")},
		"explore": {says("found it"), says("still there")},
	})
	r.Good("-p", "first", anything)
	scout := r.named("scout")
	files, err := filepath.Glob(filepath.Join(r.Work, "state", "projects", "*", string(scout.Session), "transcript.jsonl"))
	r.Must(err)
	tr, _, err := drover.OpenTranscript(files[0], drover.Meta{})
	r.Must(err)
	const n = 20_000
	for i := range n / 2 {
		r.Must(tr.Append(
			drover.Record{Message: drover.NewMessage(drover.User, drover.TextBlock(fmt.Sprintf("question %d", i)))},
			drover.Record{Message: drover.NewMessage(drover.Assistant, drover.TextBlock("answer"))}))
	}
	r.Must(tr.Close())
	data, err := os.ReadFile(files[0])
	r.Must(err)
	r.Must(os.WriteFile(files[0], data[:len(data)-20], 0o600)) // as a crash leaves it
	r.want("answer", r.Good("-p", "second", "--resume", string(scout.Session), anything, `--settings={"context":{"autoCompact":"off"}}`), "two")
	again := r.named("scout")
	r.want("the agent's ID", again.ID, scout.ID)
	r.says("the agent", r.heard(m, "explore"), "found it", "and now?")
	r.says("the main agent", r.heard(m, "main"), fmt.Sprintf("question %d", n/2-1))
	return fmt.Sprintf("all %d messages but the torn one are there; %s goes on under its ID", n, scout.ID)
}

func compaction(r *place) string {
	r.Fifo("go")
	m := r.script(map[string][]step{"main": {
		calls("Bash", object{"command": "read x <go", "description": "wait for the pipe", "run_in_background": true}),
		using(9_000, calls("Bash", bash("echo old"))), using(9_000, says("IN SHORT")), using(500, says("after")), says("told"),
	}})
	f := r.Start("-p", "the first prompt", "--model=sonnet", anything, `--settings={"models":{"windows":{"claude-sonnet-5-5":10000}}}`)
	if !waittest.Until(harness.Patience, func() bool { return m.Count() >= 4 }) {
		r.Fatal("nothing is summed up")
	}
	r.Free("go")
	r.want("exit code", f.Code(), 0)
	said := r.conversation(m.Requests()[3])
	id := r.task("in the background", func(x task.Record) bool { return x.Backgrounded }).ID
	if r.says("behind the summary", said, "IN SHORT", string(id), "wait for the pipe"); strings.Contains(said, "the first prompt") {
		r.Error("nothing was left out")
	}
	r.want("notifications", notifications(r.heard(m, "main"), id), 1)
	return fmt.Sprintf("behind the summary the model knows %s, and hears of its end", id)
}

func stuck(r *place) string {
	m := r.script(map[string][]step{"main": {calls("Agent", agent("explore", "look", "name", "scout")), says("done")}, "explore": {
		func(c context.Context, q *modeltest.Request) modeltest.Answer {
			if strings.Contains(q.LastText(), "Hand back what you have") { // on a busy machine the time may be up before it asks
				return modeltest.Text("as far as I came")
			}
			return never(c, q)
		}}})
	r.Good("-p", "go", anything, `--settings={"agents":{"budgetWall":"300ms"}}`)
	x := r.named("scout")
	if x.Status == task.Completed || x.Cause.Reason != task.ReasonTimeout {
		r.Errorf("it ends as %s", how(x))
	}
	r.says("the parent", r.heard(m, "main"), "as far as I came")
	return how(x) + "; it was asked once more, and its parent has that answer"
}

func hooks(r *place) string {
	log := filepath.Join(r.Work, "log")
	line := []any{object{"hooks": []any{object{"type": "command", "command": "cat >>" + log + "; echo >>" + log}}}}
	r.settings(object{"hooks": object{"SubagentStart": line, "SubagentStop": line}})
	r.file(".claude/agents/brief.md", "---\nname: brief\ndescription: Brief.\nmaxTurns: 1\ntools: Bash\n---\nWork.\n")
	asked := make(chan struct{})
	kinds := []string{"explore", "plan", "brief", "general-purpose"}
	m := r.script(map[string][]step{
		"main": {many(4, "Agent", func(i int) object { return agent(kinds[i], "work", "name", kinds[i], "run_in_background", true) }),
			held(asked, calls("TaskStop", object{"task_id": "general-purpose"})), says("done")},
		"explore": {says("found")},
		"plan":    {refused},
		"brief":   {calls("Bash", bash("true"))},
		"general-purpose": {func(c context.Context, q *modeltest.Request) modeltest.Answer {
			close(asked)
			return never(c, q)
		}},
	})
	r.Good("-p", "go", anything)
	raw, err := os.ReadFile(log)
	r.Must(err)
	told := string(raw)
	var ends []string
	for _, kind := range kinds {
		x := r.named(kind)
		for _, event := range []string{"SubagentStart", "SubagentStop"} {
			got := 0
			for l := range strings.Lines(told) {
				if strings.Contains(l, `"`+event+`"`) && strings.Contains(l, `"`+string(x.ID)+`"`) {
					got++
				}
			}
			r.want(event+" of "+kind, got, 1)
		}
		ends = append(ends, string(x.Cause.Reason))
	}
	if m.Count() == 0 {
		r.Error("nobody has asked")
	}
	return "4 starts, 4 stops: " + strings.Join(ends, ", ")
}

func owner(r *place) string {
	r.file(".claude/agents/stopper.md", "---\nname: stopper\ndescription: Stops.\nonEnd: stop\n---\nWork.\n")
	r.Fifo("go")
	m := r.script(map[string][]step{
		"main":            {calls("Agent", agent("stopper", "work")), calls("Agent", agent("general-purpose", "work")), says("done")},
		"stopper":         {calls("Bash", later("exec sleep 4461")), says("bye")},
		"general-purpose": {calls("Bash", later("read x <go; echo over")), says("bye")},
	})
	f := r.Start("-p", "go", anything)
	if !waittest.Until(harness.Patience, func() bool { return requests(m, "main") >= 3 }) {
		r.Fatal("the agents do not end")
	}
	r.Free("go")
	r.want("exit code", f.Code(), 0)
	r.none("sleep 4461")
	stopped := r.task("the command that was stopped", func(x task.Record) bool { return strings.Contains(x.Command, "4461") })
	left := r.task("the command that was left", func(x task.Record) bool { return strings.Contains(x.Command, "<go") })
	r.want("stopped with its owner", string(stopped.Status)+" "+string(stopped.Cause.Reason), "killed parent_ended")
	if !strings.Contains(r.heard(m, "main"), "Stopped with the agent: command "+string(stopped.ID)) {
		r.Error("the result of the agent does not name what was stopped")
	}
	r.want("left to the parent", string(left.Status), "completed")
	r.want("notifications", notifications(r.heard(m, "main"), left.ID), 1)
	return "one: " + how(stopped) + "; the other went to the main agent, which heard of its end"
}

func lostWork(r *place) string {
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"commit", "-q", "--allow-empty", "-m", "first"}} {
		r.git(args...)
	}
	var asked atomic.Bool
	r.script(map[string][]step{"general-purpose": {calls("Write", object{"file_path": "found.txt", "content": "hours of work\n"}),
		func(c context.Context, q *modeltest.Request) modeltest.Answer {
			asked.Store(true)
			return never(c, q)
		}}})
	r.settings(object{"permissions": object{"defaultMode": "bypassPermissions"}})
	id := r.Good("agent", "run", "-d", "--isolation", "worktree", "general-purpose", "work")
	if !waittest.Until(harness.Patience, asked.Load) {
		r.Fatal("the agent writes nothing")
	}
	r.Must(syscall.Kill(r.Of("host")[0].PID, syscall.SIGKILL))
	waittest.Until(harness.Patience, func() bool { return len(r.Of("host")) == 0 })
	r.Good("run", "-d", "--name", "next", "--", "true")
	ref := "refs/drover/rescue/" + id
	if !waittest.Until(harness.Patience, func() bool { return strings.Contains(r.git("for-each-ref"), ref) }) {
		r.Fatalf("no %s: %s", ref, r.git("for-each-ref"))
	}
	r.want("the file", r.git("show", ref+":found.txt"), "hours of work")
	return "the file is at " + ref
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/a2atest"
	"github.com/drover-dev/drover/test/mcptest"
	"github.com/drover-dev/drover/test/modeltest"
)

// TestAllKinds has one main agent use every kind of task at once, kills its host with
// -9 in the midst of it, and goes on with the conversation. Each claim about that is
// tried with the kinds that it speaks of, and all of them with all kinds.
func TestAllKinds(t *testing.T) {
	bin := build(t)
	for name, c := range killClaims() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.holds(t, killAndResume(t, bin, c.kinds))
		})
	}
	t.Run("whole", func(t *testing.T) {
		t.Parallel()
		k := killAndResume(t, bin, task.Kinds())
		for name, c := range killClaims() {
			t.Run(name, func(t *testing.T) { c.holds(t, k) })
		}
	})
}

// killing is a session whose host is killed, and what was seen of it.
type killing struct {
	*place
	kinds []task.Kind // that are at work
	model *modeltest.Server
	shop  *mcptest.Server // of the MCP task

	far *a2atest.Agent // the remote agent

	never               chan struct{} // closed at the end; nobody waits any more for answers that wait for it
	dying               chan struct{} // closed once the main agent is in the turn in which it dies
	mateBusy, agentBusy chan struct{} // have a value once these are in theirs

	session string
	lock    string // the file whose time of change is that of the last consolidation

	live, orphaned, ended []task.Record // while they ran, without a host, and at the end
	left                  []proc        // what still ran 2 s after the kill
}

func (k *killing) has(kind task.Kind) bool { return slices.Contains(k.kinds, kind) }

// counted has two steps done and two at work when the host dies. Each leaves a line in
// a file of its own when it begins.
const counted = `name: counted
steps:
  - {id: a, shell: echo a >>a.count}
  - {id: b, needs: a, shell: echo b >>b.count}
  - {id: c, needs: b, shell: "echo c >>c.count; test -e go || exec sleep 1004"}
  - {id: d, needs: b, shell: "echo d >>d.count; test -e go || exec sleep 1005"}
  - {id: e, needs: [c, d], shell: echo e >>e.count}
`

// starts calls for all that is wanted in one reply.
func (k *killing) starts() modeltest.Answer {
	calls := []any{"Bash", bash("true")}
	for _, one := range []struct {
		kind  task.Kind
		tool  string
		input any
	}{
		{task.LocalBash, "Bash", map[string]any{"command": "sleep 1001 & exec sleep 1002", "run_in_background": true, "description": "long"}},
		{task.LocalBash, "Bash", map[string]any{"command": "true", "run_in_background": true, "description": "early"}},
		{task.LocalBash, "Bash", map[string]any{"command": "cat fifo", "run_in_background": true, "description": "owed"}},
		{task.LocalAgent, "Agent", asks("explore", "look around", "run_in_background", true)},
		{task.InProcessTeammate, "Agent", mate("ada", "begin")},
		{task.LocalWorkflow, "Workflow", map[string]any{"file": "w.yaml"}},
		{task.MonitorMCP, "Monitor", map[string]any{"description": "errors", "command": "exec tail -n +1 -F app.log", "match": "^ERR", "persistent": true}},
		{task.MCPTask, "mcp__shop__work", mcptest.Work{Hold: true, Say: []string{"cuts", "glues"}, Text: "a paper boat"}},
		{task.RemoteAgent, "Agent", asks("general-purpose", "do it there", "isolation", "remote")},
	} {
		if k.has(one.kind) {
			calls = append(calls, one.tool, one.input)
		}
	}
	return one(calls...)
}

// goesOn is what the main agent does first in its second life.
func (k *killing) goesOn(r *modeltest.Request) modeltest.Answer {
	calls := []any{"Bash", bash("true")}
	if k.has(task.LocalWorkflow) {
		calls = append(calls, "Workflow", map[string]any{"resume": found(r, `Task ID: (w\w+)`)})
	}
	if k.has(task.InProcessTeammate) {
		calls = append(calls, "SendMessage", send("ada", "and the door"))
	}
	return one(calls...)
}

// main is the main agent in both of its lives.
func (k *killing) main(c *cast, r *modeltest.Request, last string) modeltest.Answer {
	switch {
	case c.once("start"):
		return k.starts()
	case k.has(task.LocalBash) && !strings.Contains(string(r.Body), `early\" completed`): // it is to be told of one end before it dies
		return one("Bash", bash(fmt.Sprintf("sleep 0.1; : %d", len(r.Body))))
	case k.has(task.InProcessTeammate) && c.once("write"):
		<-k.mateBusy
		return one("SendMessage", send("ada", "mind the gap"))
	case c.once("die"):
		close(k.dying)
		return k.unsaid()
	case c.once("go on"):
		return k.goesOn(r)
	case strings.Contains(last, "ada knows"):
		return one("TaskStop", map[string]any{"task_id": "ada"})
	}
	return modeltest.Text("noted")
}

// unsaid is an answer that comes when nobody waits for it any more.
func (k *killing) unsaid() modeltest.Answer {
	a := modeltest.Text("never said")
	a.Wait = k.never
	return a
}

// play answers for all agents of the session.
func (k *killing) play() modeltest.Handler {
	c := &cast{done: map[string]bool{}}
	return func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		last := r.LastText()
		switch {
		case r.Agent() == "main":
			return k.main(c, r, last)
		case r.Agent() == "dream" && c.once("dream"):
			return writes("half.md", "x")(r)
		case r.Agent() == "dream":
			return k.unsaid()
		case r.Agent() == "explore":
			k.agentBusy <- struct{}{}
			return k.unsaid()
		case c.once("ada"):
			k.mateBusy <- struct{}{}
			return k.unsaid()
		case strings.Contains(last, `kind="shutdown_request"`):
			return modeltest.Text("bye")
		}
		return modeltest.Text(fmt.Sprintf("ada knows of the gap: %v, of the door: %v", strings.Contains(last, "mind the gap"), strings.Contains(last, "and the door")))
	}
}

// killAndResume plays the whole.
func killAndResume(t *testing.T, bin string, kinds []task.Kind) *killing {
	t.Helper()
	k := &killing{place: newPlace(t, bin), kinds: kinds, never: make(chan struct{}), dying: make(chan struct{}), mateBusy: make(chan struct{}, 1),
		agentBusy: make(chan struct{}, 1)}
	k.model = k.serve(k.play())
	t.Cleanup(func() { close(k.never) })
	k.prepare()
	r := k.start("-p", "go", anything, "--output-format=stream-json")
	k.begun(r)
	k.live = k.list("--tree")
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.wait()
	within(2*time.Second, func() bool { return len(marked(k.work)) == 0 })
	k.left, k.orphaned = marked(k.work), k.list("-a")
	k.resume()
	k.ended = k.list("-a")
	return k
}

// prepare makes what the work of the session needs.
func (k *killing) prepare() {
	k.file("w.yaml", counted)
	k.file("app.log", "")
	k.fifo("fifo")
	if k.has(task.Dream) {
		k.lock = k.consolidated()
	}
	if k.has(task.MCPTask) {
		k.shop = k.place.shop(mcptest.Options{})
	}
	if k.has(task.RemoteAgent) {
		k.far = a2atest.New()
		k.far.Token = cloudToken
		k.far.Begin = func(t *a2a.Task) { a2atest.Print(t, "counted", numbers(1, 3000)) }
		k.t.Cleanup(k.far.Close)
		k.uses(k.far.Card())
	}
}

// numbers are so many lines.
func numbers(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// until waits for something to become true.
func (k *killing) until(what string, yes func() bool) {
	k.t.Helper()
	if !within(patience, yes) {
		k.t.Fatalf("never: %s; there are %v", what, states(k.list("-a")))
	}
}

// begun waits until all is under way, the main agent is in the midst of a turn, and
// something is owed to it.
func (k *killing) begun(r *running) {
	k.t.Helper()
	var first object
	if err := json.Unmarshal([]byte(r.until("session_id")), &first); err != nil {
		k.t.Fatal(err)
	}
	k.session = fmt.Sprint(first["session_id"])
	k.until("the main agent has started all", func() bool { return closed(k.dying) })
	if k.has(task.Dream) {
		k.dream()
	}
	for kind, ready := range map[task.Kind]func() bool{
		task.LocalAgent:    func() bool { return len(k.agentBusy) == 1 },
		task.LocalWorkflow: func() bool { return k.there("c.count") && k.there("d.count") },
		task.MCPTask:       func() bool { return strings.Contains(k.logs(task.MCPTask), "glues") },
		task.RemoteAgent:   func() bool { return strings.Contains(k.logs(task.RemoteAgent), "\n3000") },
		task.Dream:         func() bool { p := pick(k.list(), task.Dream).Progress; return p != nil && p.ToolUseCount == 1 },
	} {
		if k.has(kind) {
			k.until(string(kind)+" is at work", ready)
		}
	}
	k.owe()
}

// owe makes things happen that the main agent is owed word of.
func (k *killing) owe() {
	k.t.Helper()
	if k.has(task.LocalBash) {
		k.alive("sleep 1001")
		k.place.free(filepath.Join(k.dir, "fifo"))
		k.until("the command has ended", func() bool {
			return slices.ContainsFunc(k.list("-a"), func(r task.Record) bool { return r.Description == "owed" && r.Status == task.Completed })
		})
	}
	if k.has(task.MonitorMCP) {
		add(k.t, filepath.Join(k.dir, "app.log"), "fine\nERR one\n")
		k.until("the event is told", func() bool {
			p := pick(k.list(), task.MonitorMCP).Progress
			return p != nil && p.Monitor != nil && p.Monitor.Notified == 1
		})
	}
}

// dream starts a dream in the session, which is what no tool does.
func (k *killing) dream() {
	k.t.Helper()
	client := control.Dial(k.socket())
	defer client.Close()
	started, err := client.Start(k.t.Context(), []control.StartRequest{{Dream: &control.DreamRequest{}}})
	if err != nil || started[0].Error != nil {
		k.t.Fatal(err, started)
	}
}

// resume goes on with the conversation once the remote agent has printed more without
// anybody here, and lets all come to its end.
func (k *killing) resume() {
	k.t.Helper()
	k.file("go", "")
	if k.has(task.RemoteAgent) {
		k.far.Change(func(t *a2a.Task) { a2atest.Print(t, "counted", numbers(3001, 6000)) })
	}
	asked := k.lookups()
	r := k.start("-p", "go on", anything, "--resume", k.session, "--output-format=stream-json")
	if k.has(task.RemoteAgent) {
		k.until("the remote agent is followed again", func() bool { return strings.Contains(k.logs(task.RemoteAgent), "\n6000") })
		k.far.Change(func(t *a2a.Task) { a2atest.End(t, a2a.Completed, "far away") })
	}
	if k.has(task.MCPTask) {
		k.until("the MCP task is followed again", func() bool { return k.lookups() > asked })
		k.shop.Free()
	}
	if res := r.wait(); res.code != 0 {
		k.t.Fatalf("exit code %d: %s\n%s", res.code, res.stderr, res.stdout())
	}
}

// lookups is how often the MCP server was asked about its task.
func (k *killing) lookups() int {
	if k.shop == nil {
		return 0
	}
	return len(k.shop.Requests("tasks/get"))
}

func (k *killing) logs(kind task.Kind) string {
	if id := pick(k.list("-a"), kind).ID; id != "" {
		return k.run("logs", string(id)).stdout()
	}
	return ""
}

// heard is all that the main agent was given to read.
func (k *killing) heard() string {
	all := of(k.model, "main")
	return strings.Join(texts(k.t, all[len(all)-1]), "\n")
}

// socket is that of the only live session.
func (p *place) socket() string {
	p.t.Helper()
	var all []control.Info
	if err := json.Unmarshal([]byte(p.good("sessions", "--json").stdout()), &all); err != nil {
		p.t.Fatal(err)
	}
	for _, one := range all {
		if one.Live {
			return one.Socket
		}
	}
	p.t.Fatal("no session is live")
	return ""
}

// list is what ps lists.
func (p *place) list(args ...string) (all []task.Record) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(p.good(append([]string{"ps", "--json"}, args...)...).stdout()), &all); err != nil {
		p.t.Fatal(err)
	}
	return all
}

// pick is the task of a kind that no other task has started; of commands it is the
// long one.
func pick(all []task.Record, kind task.Kind) (found task.Record) {
	for _, r := range all {
		if r.Kind == kind && r.Parent == "" && (kind != task.LocalBash || r.Description == "long") {
			return r
		}
	}
	return task.Record{}
}

// states are tasks in a form for people.
func states(all []task.Record) (out []string) {
	for _, r := range all {
		reason := ""
		if r.Cause != nil {
			reason = " " + string(r.Cause.Reason)
		}
		out = append(out, fmt.Sprintf("%s %s %q %s%s", r.ID, r.Kind, r.Description, r.Status, reason))
	}
	return out
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// claim is what holds when a host was killed, shown by some kinds.
type claim struct {
	kinds []task.Kind
	holds func(*testing.T, *killing)
}

func killClaims() map[string]claim {
	processes := []task.Kind{task.LocalBash, task.LocalWorkflow, task.MonitorMCP}
	far := []task.Kind{task.RemoteAgent, task.MCPTask}
	return map[string]claim{
		"listed": {append(processes, task.Dream, task.LocalAgent), listed},
		"gone":   {processes, nothingLeft},
		"states": {append(far, task.LocalBash, task.LocalWorkflow, task.Dream), trueStates},
		"told":   {[]task.Kind{task.LocalBash, task.LocalAgent, task.MonitorMCP, task.MCPTask}, toldOnce},
		"remote": {[]task.Kind{task.RemoteAgent}, remoteGoesOn},
		"mcp":    {[]task.Kind{task.MCPTask}, mcpGoesOn},
		"steps":  {[]task.Kind{task.LocalWorkflow}, noStepTwice},
		"mail":   {[]task.Kind{task.InProcessTeammate}, mailIsRead},
		"lock":   {[]task.Kind{task.Dream}, lockRolledBack},
	}
}

// Every kind is shown while it runs, and steps below their workflow.
func listed(t *testing.T, k *killing) {
	for _, kind := range k.kinds {
		if r := pick(k.live, kind); r.Status != task.Running {
			t.Errorf("%s is %q in %v", kind, r.Status, states(k.live))
		}
	}
	if flow := pick(k.live, task.LocalWorkflow).ID; flow != "" {
		steps := slices.DeleteFunc(slices.Clone(k.live), func(r task.Record) bool { return r.Parent != flow })
		if len(steps) != 2 {
			t.Errorf("steps at work: %v", states(steps))
		}
	}
}

// Nothing is left running 2 s after the host was killed.
func nothingLeft(t *testing.T, k *killing) {
	if len(k.left) > 0 {
		t.Errorf("left: %v", k.left)
	}
}

// What died with the host is shown as lost, by the archive and by the next host. What
// goes on elsewhere, or in a further run, comes to its end.
func trueStates(t *testing.T, k *killing) {
	goesOn := []task.Kind{task.RemoteAgent, task.MCPTask}
	again := []task.Kind{task.LocalWorkflow, task.InProcessTeammate}
	for _, kind := range k.kinds {
		orphan, end := pick(k.orphaned, kind), pick(k.ended, kind)
		lost := orphan.Status == task.Killed && orphan.Cause != nil && orphan.Cause.Reason == task.ReasonHostLost
		if far := slices.Contains(goesOn, kind); lost == far || far && orphan.Status != task.Running {
			t.Errorf("without a host: %v", states([]task.Record{orphan}))
		}
		want := task.Killed
		if slices.Contains(goesOn, kind) || slices.Contains(again, kind) {
			want = task.Completed
		}
		if end.Status != want || end.EndTime == nil || want == task.Killed && end.Cause.Reason != task.ReasonHostLost {
			t.Errorf("at the end: %v, want %s", states([]task.Record{end}), want)
		}
	}
	if got := k.list(); len(got) != 0 {
		t.Errorf("still live: %v", states(got))
	}
}

// Each end is told to the model once, whether it came before the kill, by it, or after.
// A workflow that has two runs has two.
func toldOnce(t *testing.T, k *killing) {
	heard := k.heard()
	notification := func(id task.ID, then string) int {
		return len(regexp.MustCompile(`<task-notification>\n<task-id>`+string(id)+`</task-id>\n(<tool-use-id>.*</tool-use-id>\n)?`+then).FindAllString(heard, -1))
	}
	for _, r := range k.ended {
		want := 1
		switch {
		case r.Parent != "" || r.Kind == task.InProcessTeammate || r.Kind == task.Dream || !r.Backgrounded:
			want = 0
		case r.Kind == task.LocalWorkflow:
			want = 2
		}
		if n := notification(r.ID, `(?s:.{0,400}?)<status>`); n != want {
			t.Errorf("%v was told %d times, want %d, in\n%s", states([]task.Record{r}), n, want, heard)
		}
	}
	if k.has(task.MonitorMCP) {
		if n := notification(pick(k.ended, task.MonitorMCP).ID, `<event>ERR one</event>`); n != 1 {
			t.Errorf("the event was told %d times in\n%s", n, heard)
		}
	}
}

// One task was begun elsewhere, and all that it printed is here once.
func remoteGoesOn(t *testing.T, k *killing) {
	if n := len(k.far.Tasks()); n != 1 {
		t.Fatalf("%d tasks were begun", n)
	}
	if ours, want := k.logs(task.RemoteAgent), numbers(1, 6000)+"far away"; ours != want {
		t.Errorf("output of %d bytes, want %d", len(ours), len(want))
	}
	holds(t, "the model", k.heard(), "far away")
	if left := k.sidecars(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// One task was made at the MCP server, nobody has cancelled it, and what it said is
// here once.
func mcpGoesOn(t *testing.T, k *killing) {
	if made, cancels := len(k.shop.Requests("tools/call")), len(k.shop.Requests("tasks/cancel")); made != 1 || cancels != 0 {
		t.Errorf("%d tasks were made, %d cancelled", made, cancels)
	}
	out := k.logs(task.MCPTask)
	for _, text := range []string{"working: cuts\n", "working: glues\n", "\na paper boat", "\na new host follows the task\n"} {
		if n := strings.Count(out, text); n != 1 {
			t.Errorf("%q is %d times in\n%s", text, n, out)
		}
	}
	holds(t, "the model", k.heard(), "a paper boat")
}

// A step that was done is not done again, one that was at work is, and those behind
// them are done once.
func noStepTwice(t *testing.T, k *killing) {
	for name, want := range map[string]int{"a": 1, "b": 1, "c": 2, "d": 2, "e": 1} {
		text, err := os.ReadFile(filepath.Join(k.dir, name+".count"))
		if n := strings.Count(string(text), name); err != nil || n != want {
			t.Errorf("step %s was begun %d times, want %d (%v)", name, n, want, err)
		}
	}
}

// What a teammate had not read is read in its next run, once, with what came later.
func mailIsRead(t *testing.T, k *killing) {
	id := string(pick(k.ended, task.InProcessTeammate).ID)
	for _, text := range []string{"mind the gap", "and the door"} {
		if n := read(k.model, id, text); n != 1 {
			t.Errorf("ada read %q %d times", text, n)
		}
	}
	heard := k.heard()
	for text, want := range map[string]int{"ada knows of the gap: true, of the door: true": 1, `kind="teammate_end"`: 2} {
		if n := strings.Count(heard, text); n != want {
			t.Errorf("the leader read %q %d times, want %d, in\n%s", text, n, want, heard)
		}
	}
}

// Who opens the session next puts back the time of the last consolidation, so that
// another dream may try.
func lockRolledBack(t *testing.T, k *killing) {
	if got := changed(t, k.lock); !got.Equal(longSince) {
		t.Errorf("the time is %s", got)
	}
	if text, err := os.ReadFile(k.lock); err != nil || strings.Contains(string(text), "holder") {
		t.Errorf("it says %q (%v)", text, err)
	}
}

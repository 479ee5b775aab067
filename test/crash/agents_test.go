//go:build linux

package crash

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/a2atest"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

// agentSteps are the steps that only a conversation has, the removal of a session,
// and those of workflows and of work elsewhere.
func agentSteps() []*step {
	host := []string{"host"}
	conversation := way{lead: startPrompt, ask: afterCommand, restart: goOn, recover: recoverPrompt, check: checkPrompt}
	calling := way{ask: callPrompt, restart: goOn, recover: recoverPrompt, check: checkPrompt}
	sending := way{lead: holdAgent, ask: func(c *trial, n string) *harness.Call { return c.face("send", n, "hello "+n) }, restart: probe, recover: recoverAgents, check: checkAgents}
	flow := way{lead: writeFlow, ask: func(c *trial, n string) *harness.Call { return c.face("workflow", "run", "-d", "--name", n, n+".yaml") },
		restart: probe, recover: recoverFlows, check: checkFlows}
	elsewhere := way{lead: serveElsewhere, ask: func(c *trial, n string) *harness.Call { return c.face("remote", "run", "-d", "--name", n, "do it") },
		restart: probe, recover: recoverElsewhere, check: checkElsewhere}
	removing := way{lead: endedSession, ask: removeSession, recover: func(*trial) {}, check: checkRemoved}
	gone := map[string]string{"child": childGone}
	noHost := map[string]string{"host": "a session that is removed has no host", "keeper": "a session that is removed has no host", "child": childGone,
		"recovery": "nothing is left to be taken up"}
	return []*step{
		{id: "L16", says: "notification delivered, not yet in the transcript", number: 16, point: "mail/taken", way: conversation, no: gone},
		{id: "L17", says: "acknowledged", number: 17, point: "mail/acknowledged", way: conversation, no: gone},
		{id: "L18", says: "output pruned: the session is moved away, not yet deleted", number: 18, point: "remove/moved", role: "face", way: removing, no: noHost},
		{id: "L18a", says: "output pruned: not begun", number: 18, point: "remove/begun", role: "face", way: removing, no: noHost, only: []string{"face"}},
		{id: "L18b", says: "output pruned: done", number: 18, point: "remove/done", role: "face", way: removing, no: noHost, only: []string{"face"}},
		{id: "A0", says: "notification in the transcript, not acknowledged", number: 20, point: "mail/told", way: conversation, only: host},
		{id: "A1", says: "call of a tool begun", number: 20, point: "call/begun", way: calling, only: host},
		{id: "A2", says: "call done, its result not in the transcript", number: 20, point: "call/done", way: calling, only: host},
		{id: "A3", says: "message durable", number: 20, point: "message/posted", way: sending, only: host},
		{id: "A4", says: "checkpoint saved", number: 20, point: "task/saved", skip: 1, way: flow, only: host},
		{id: "A5", says: "step of a workflow ended, not yet in a checkpoint", number: 20, point: "step/ended", way: flow, only: host},
		{id: "A6", says: "task elsewhere asked for, not yet noted", number: 20, point: "remote/sent", way: elsewhere, only: host},
	}
}

// model is a provider whose answers follow from the last message only: a crash
// may take any of its answers back.
type model struct {
	*modeltest.Server

	mu    sync.Mutex
	rests map[string]bool // names whose command has begun, as the model was told; guarded by mu
}

// serveModel gives the place a model, if it has none.
func (c *trial) serveModel() {
	if c.model != nil {
		return
	}
	m := &model{rests: map[string]bool{}}
	var err error
	if m.Server, err = modeltest.New(m.answer); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(m.Close)
	c.Env = append(c.Env, "ANTHROPIC_BASE_URL="+m.URL, "ANTHROPIC_API_KEY=sk-test")
	c.model = m
}

func (m *model) answer(_ context.Context, r *modeltest.Request) modeltest.Answer {
	last := r.LastText()
	ask := regexp.MustCompile(`\b(start|call|hold) (t\d)\b`).FindStringSubmatch(last)
	if ask == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, n := range names(r) {
			m.rests[n] = true
		}
		return modeltest.Text("noted")
	}
	line := map[string]string{
		"start": "echo $DROVER_TASK_ID >>ran; read x <go.%s; exit 7",
		"call":  "echo call.%s >>ran",
		"hold":  "read x <go.%s",
	}[ask[1]]
	return modeltest.Call("Bash", map[string]any{"command": fmt.Sprintf(line, ask[2]), "run_in_background": ask[1] == "start"})
}

// names are those for which a conversation has asked for something.
func names(r *modeltest.Request) (all []string) {
	for _, m := range regexp.MustCompile(`\b(?:start|call|hold) (t\d)\b`).FindAllStringSubmatch(string(r.Body), -1) {
		all = append(all, m[1])
	}
	return all
}

// knows reports whether the model has rested after it was asked for something.
func (m *model) knows(n string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rests[n]
}

// prompt asks a host of its own. The first one makes the session, whose ID is
// chosen here: the answer may be lost with the host.
func (c *trial) prompt(text string) *harness.Call {
	which := "--resume"
	if c.id == "" {
		c.id, which = uuid(), "--session-id"
	}
	return c.Start("-p", "-d", "--permission-mode", "bypassPermissions", which, c.id, text)
}

// uuid is unlike that of any other place: a host ends what carries the mark of its
// session.
func uuid() string {
	x := rand.Text() + rand.Text()
	hexed := fmt.Sprintf("%x", x)
	return fmt.Sprintf("%s-%s-4%s-8%s-%s", hexed[:8], hexed[8:12], hexed[13:16], hexed[17:20], hexed[20:32])
}

// noHost waits until the host of the conversation has gone by itself.
func (c *trial) noHost() {
	c.Helper()
	if !waittest.Until(harness.Patience, func() bool {
		return !slices.ContainsFunc(c.procs(""), func(x harness.Proc) bool { return x.Role() == "host" })
	}) {
		c.Fatal("the host of the conversation does not go")
	}
}

func startPrompt(c *trial, n string) {
	c.serveModel()
	c.noHost()
	f := c.prompt("start " + n)
	if err := f.Wait(); err != nil || f.Code() != 0 {
		c.Fatalf("%v %s", err, f)
	}
	if !waittest.Until(harness.Patience, func() bool { return c.model.knows(n) }) {
		c.Fatalf("the model was not told of its command %s", n)
	}
}

// afterCommand lets the command end of which the conversation waits to hear.
func afterCommand(c *trial, n string) *harness.Call {
	f := c.waits(c.id)
	c.free(n)
	return f
}

func callPrompt(c *trial, n string) *harness.Call {
	c.serveModel()
	c.noHost()
	return c.prompt("call " + n)
}

func goOn(c *trial) *harness.Call {
	c.noHost()
	return c.prompt("go on")
}

func recoverPrompt(c *trial) {
	f := goOn(c)
	if err := f.Wait(); err != nil || f.Code() != 0 {
		c.Fatalf("%v %s", err, f)
	}
	if f := c.place.Run("wait", c.id); f.Code() != 0 {
		c.Errorf("the conversation does not end well: %s", f)
	}
}

// conversationOf is the newest request of an agent: all that it knows.
func (c *trial) conversationOf(agentID string) []agent.Message {
	c.Helper()
	for _, r := range slices.Backward(c.model.Requests()) {
		if r.AgentID() != agentID {
			continue
		}
		p, err := r.Params()
		if err != nil {
			c.Fatal(err)
		}
		return p.Messages
	}
	c.Fatalf("agent %q has asked for nothing", agentID)
	return nil
}

// told counts how often a text stands in what an agent was told.
func (c *trial) told(messages []agent.Message, text string) (n int) {
	for _, m := range messages {
		blocks, err := m.Blocks()
		if err != nil {
			c.Fatal(err)
		}
		for _, b := range blocks {
			n += strings.Count(b.Text, text)
		}
	}
	return n
}

// checkCalls looks whether every call has one result.
func (c *trial) checkCalls(messages []agent.Message) {
	open := map[string]int{}
	for _, m := range messages {
		blocks, err := m.Blocks()
		if err != nil {
			c.Fatal(err)
		}
		for _, b := range blocks {
			switch b.Type {
			case "tool_use":
				open[b.ID]++
			case "tool_result":
				open[b.ToolUseID]--
			}
		}
	}
	for id, n := range open {
		if n != 0 {
			c.Errorf("call %s has %d results", id, 1-n)
		}
	}
}

// checkPrompt looks whether the model knows of the end of each of its commands,
// once, and none was begun twice.
func checkPrompt(c *trial) {
	said := c.conversationOf("")
	for _, r := range c.records() {
		if r.Kind != task.LocalBash || !r.Backgrounded {
			continue
		}
		if n := c.told(said, "<task-id>"+string(r.ID)+"</task-id>"); n != 1 {
			c.Errorf("the model was told %d times of the end of %s", n, r.ID)
		}
	}
	c.checkCalls(said)
	for what, n := range c.ran() {
		if n > 1 {
			c.Errorf("%s was begun %d times", what, n)
		}
	}
	if left := c.ofTasks(); len(left) > 0 {
		c.Errorf("left: %v", left)
	}
}

// settings writes those of the user.
func (c *trial) settings(text string) {
	dir := filepath.Join(c.Work, "config", "drover")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		c.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "settings.json"), []byte(text), 0o600); err != nil {
		c.Fatal(err)
	}
}

// holdAgent has an agent at work that waits for its command.
func holdAgent(c *trial, n string) {
	c.serveModel()
	c.settings(`{"permissions": {"defaultMode": "bypassPermissions"}}`)
	c.Good("agent", "run", "-d", "--name", n, "general-purpose", "hold "+n)
	if !waittest.Until(harness.Patience, func() bool {
		return slices.ContainsFunc(c.ofTasks(), func(x harness.Proc) bool { return strings.Contains(x.Line, "go."+n) })
	}) {
		c.Fatalf("agent %s runs no command: %s\n%s", n, c.state(), c.Good("inspect", n))
	}
}

func recoverAgents(c *trial) {
	recoverShells(c)
	for _, n := range c.asked {
		c.Good("resume", n, "go on")
		c.Good("wait", n)
	}
}

func checkAgents(c *trial) {
	for _, s := range c.tasks() {
		if !slices.Contains(c.asked, s.Name) {
			continue
		}
		said := c.conversationOf(s.ID)
		if n := c.told(said, "hello "+s.Name); n != 1 {
			c.Errorf("agent %s was told %d times what was sent to it", s.Name, n)
		}
		c.checkCalls(said)
	}
}

func writeFlow(c *trial, n string) {
	text := "steps:\n  - {id: first, shell: echo first.N >>ran}\n  - {id: second, needs: first, shell: echo second.N >>ran}\n"
	if err := os.WriteFile(c.path(n+".yaml"), []byte(strings.ReplaceAll(text, "N", n)), 0o600); err != nil {
		c.Fatal(err)
	}
}

func recoverFlows(c *trial) {
	recoverShells(c)
	for _, n := range c.asked {
		c.Good("resume", n)
		c.Good("wait", n)
	}
}

func checkFlows(c *trial) {
	ran := c.ran()
	for _, n := range c.asked {
		for _, step := range []string{"first.", "second."} {
			if times := ran[step+n]; times != 1 {
				c.Errorf("step %s was done %d times", step+n, times)
			}
		}
	}
}

// serveElsewhere starts an agent elsewhere, whose tasks complete at once.
func serveElsewhere(c *trial, _ string) {
	if c.far != nil {
		return
	}
	c.far = a2atest.New()
	c.far.Begin = func(t *a2a.Task) { a2atest.End(t, a2a.Completed, "done") }
	c.Cleanup(c.far.Close)
	c.settings(fmt.Sprintf(`{"remote": {"services": {"cloud": {"url": %q}}}}`, c.far.Card()))
}

func recoverElsewhere(c *trial) {
	c.Good("run", "-d", "--name", "last", "--", "true")
	for _, n := range c.asked {
		c.Good("wait", n)
	}
}

func checkElsewhere(c *trial) {
	if n := len(c.far.Tasks()); n != len(c.asked) {
		c.Errorf("%d tasks were begun elsewhere for %d tasks", n, len(c.asked))
	}
}

// sessionOf is the session of a task that has ended in the foreground.
func (c *trial) sessionOf(n string) string {
	for _, r := range c.records() {
		if r.Name == n {
			return string(r.Session)
		}
	}
	return ""
}

func endedSession(c *trial, n string) { c.Good("run", "--name", n, "--", "echo", n) }

func removeSession(c *trial, n string) *harness.Call { return c.face("sessions", "rm", c.sessionOf(n)) }

// checkRemoved looks whether each session is there as a whole or not at all, and
// can be removed if it is there.
func checkRemoved(c *trial) {
	for _, n := range c.asked {
		session := c.sessionOf(n)
		there := session != "" && strings.Contains(c.Good("sessions", "--json"), session)
		if half := glob(c.Work, "state/projects/*/"+cmp.Or(session, "none")); !there && len(half) > 0 {
			c.Errorf("half of a session is left: %v", half)
		}
		if there {
			if got := c.Good("logs", n); got != n {
				c.Errorf("the output of %s is %q", n, got)
			}
			c.Good("sessions", "rm", session)
		}
		if f := c.place.Run("inspect", n); f.Code() != 3 {
			c.Errorf("a session that was removed: %s", f)
		}
	}
	if tasks := c.tasks(); len(tasks) > 0 {
		c.Errorf("left: %v", tasks)
	}
}

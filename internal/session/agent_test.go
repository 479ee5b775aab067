package session

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/task"
)

// converser is a main agent at work.
type converser struct {
	*testSession
	main  *Main
	turns chan conversation.Turn
	stop  func() // ends Run, before the session is closed
}

// converse opens the main agent and lets it run until the test ends.
func converse(r *testSession) *converser {
	r.t.Helper()
	c := &converser{testSession: r, turns: make(chan conversation.Turn, 100)}
	var err error
	if c.main, err = r.OpenMain(r.ctx, MainConfig{Done: func(turn conversation.Turn) { c.turns <- turn }}); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); c.main.Run(ctx) }()
	c.stop = func() { cancel(); <-ended }
	r.t.Cleanup(c.stop)
	return c
}

func (c *converser) say(text string) {
	c.t.Helper()
	if err := c.main.Prompt(c.ctx, text); err != nil {
		c.t.Fatal(err)
	}
}

// next is the next turn that ends.
func (c *converser) next() conversation.Turn {
	c.t.Helper()
	select {
	case turn := <-c.turns:
		return turn
	case <-c.ctx.Done():
		c.t.Fatal(context.Cause(c.ctx))
		return conversation.Turn{}
	}
}

// settle waits until nothing is left to do.
func (c *converser) settle(ceiling time.Duration) (task.Receipt, error) {
	return c.main.Settle(c.ctx, ceiling)
}

// owed is how many notifications the log still holds for an owner.
func (r *testSession) owed(owner task.ID) int {
	r.t.Helper()
	notifications, err := r.log.Unacknowledged(r.ctx, owner)
	if err != nil {
		r.t.Fatal(err)
	}
	return len(notifications)
}

// only is the one task of that type.
func (r *testSession) only(agentType string) task.Record {
	r.t.Helper()
	var found []task.Record
	for _, rec := range r.sup.List(0) {
		if rec.AgentType == agentType {
			found = append(found, rec)
		}
	}
	if len(found) != 1 {
		r.t.Fatalf("%d agents of type %s", len(found), agentType)
	}
	return found[0]
}

const workTool = `{name: Agent, input: {description: Look around, prompt: look, subagent_type: explore`

func TestBackgroundAgent(t *testing.T) {
	c := converse(open(t, `
  main:
    - tools: [`+workTool+`, run_in_background: true}}]
    - {when: {last_contains: task-notification}, text: "told: {{last}}"}
    - text: started
  explore:
    - {text: found it, delay: 20ms}
`))
	c.say("go")
	first, second := c.next(), c.next()
	if first.Err != nil || first.Origin != "" || first.Result.Text != "started" {
		t.Errorf("first turn %+v", first)
	}
	if second.Err != nil || second.Origin != conversation.TaskOrigin {
		t.Errorf("second turn %+v", second)
	}
	for _, part := range []string{"<status>completed</status>", "<result>found it</result>", "<tool-use-id>"} {
		if !strings.Contains(second.Result.Text, part) {
			t.Errorf("the notification lacks %s: %s", part, second.Result.Text)
		}
	}
	if _, err := c.settle(time.Minute); err != nil {
		t.Error(err)
	}
	if n := c.owed(c.cfg.Info.Session); n != 0 {
		t.Errorf("%d notifications are owed after they were told", n)
	}
	child := c.only("explore")
	if child.Status != task.Completed || !child.Backgrounded || child.Depth != 1 || child.Usage == nil || child.Usage.Turns != 1 {
		t.Errorf("child %+v", child)
	}
	if a, err := control.WholeResult(c.ctx, c, string(child.ID)); err != nil || a.Text != "found it" {
		t.Errorf("answer %q, %v", a.Text, err)
	}
	if data, err := os.ReadFile(c.cfg.Place.OutputLink(child.ID)); err != nil || !strings.Contains(string(data), "found it") {
		t.Errorf("the link to the transcript: %q, %v", data, err)
	}
}

func TestForegroundAgent(t *testing.T) {
	c := converse(open(t, `
  main:
    - tools: [{name: Agent, input: {description: Look around, prompt: look}}]
    - text: "{{last}}"
  general-purpose:
    - tools: [{name: Bash, input: {command: "echo from $PWD; exit 3"}}]
    - text: "saw {{last}}"
`))
	c.say("go")
	turn := c.next()
	if turn.Err != nil || !strings.Contains(turn.Result.Text, "saw ") || !strings.Contains(turn.Result.Text, "from "+c.folder) {
		t.Errorf("turn %+v", turn)
	}
	if _, err := c.settle(time.Minute); err != nil {
		t.Error(err)
	}
	// The answer was the result of the call: nobody is told a second time.
	if n := c.owed(c.cfg.Info.Session); n != 0 || len(c.turns) != 0 {
		t.Errorf("%d notifications, %d further turns", n, len(c.turns))
	}
	child, commands := c.only("general-purpose"), 0
	for _, rec := range c.sup.List(0) {
		if rec.Kind != task.LocalBash {
			continue
		}
		if commands++; rec.Parent != child.ID || rec.Depth != 2 {
			t.Errorf("the command of the child: %+v", rec)
		}
	}
	if commands != 1 {
		t.Errorf("%d commands", commands)
	}
}

func TestNested(t *testing.T) {
	c := converse(open(t, `
  main:
    - tools: [{name: Agent, input: {description: Outer, prompt: out, subagent_type: general-purpose}}]
    - text: "{{last}}"
  general-purpose:
    - tools: [`+workTool+`}}]
    - text: "outer got {{last}}"
  explore:
    - text: inner answer
`, func(cfg *Config) { cfg.Options.Limits.Depth = 2 }))
	c.say("go")
	turn := c.next()
	if turn.Err != nil || !strings.Contains(turn.Result.Text, "outer got") || !strings.Contains(turn.Result.Text, "inner answer") {
		t.Errorf("turn %+v", turn)
	}
	outer, inner := c.only("general-purpose"), c.only("explore")
	if inner.Parent != outer.ID || inner.Depth != 2 || inner.Backgrounded {
		t.Errorf("inner %+v", inner)
	}
	page, err := c.List(c.ctx, control.ListRequest{All: true, Under: outer.ID})
	if err != nil || len(page.Tasks) != 2 {
		t.Errorf("subtree %+v, %v", page, err)
	}
}

func TestInterrupt(t *testing.T) {
	c := converse(open(t, `
  main:
    - tools: [{name: Bash, input: {command: "echo ready; exec sleep 100"}}]
    - text: "{{last}}"
`))
	c.say("go")
	var busy string
	for e, err := range c.Events(c.ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Verb == task.Begin {
			busy = string(e.Task.ID)
			break
		}
	}
	c.ready(busy)
	c.main.Interrupt()
	if turn := c.next(); !errors.Is(turn.Err, conversation.ErrInterrupted) {
		t.Errorf("turn %+v", turn)
	}
	if got := c.wait(busy)[0]; got.Status != task.Killed || got.Cause.Actor != task.ByUser {
		t.Errorf("the command of the turn: %s %+v", got.Status, got.Cause)
	}
	if _, err := c.settle(time.Minute); err != nil {
		t.Errorf("settle: %v", err)
	}
	// The conversation goes on from there.
	c.say("what happened?")
	if turn := c.next(); turn.Err != nil || turn.Result.Text == "" {
		t.Errorf("next turn %+v", turn)
	}
}

func TestStopSubtree(t *testing.T) {
	c := converse(open(t, `
  main:
    - tools: [{name: Agent, input: {description: Look around, prompt: look, run_in_background: true, name: scout}}]
    - {when: {last_contains: task-notification}, text: "{{last}}", repeat: -1}
    - text: started
  general-purpose:
    - tools: [{name: Bash, input: {command: "echo ready; exec sleep 100"}}]
`))
	c.say("go")
	if turn := c.next(); turn.Err != nil {
		t.Fatal(turn.Err)
	}
	var command task.Record
	for e, err := range c.Events(c.ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Verb == task.Begin && e.Task.Kind == task.LocalBash {
			command = e.Task
			break
		}
	}
	c.ready(string(command.ID))
	receipt, err := c.Stop(c.ctx, control.StopRequest{Refs: []string{"scout"}})
	if err != nil || len(receipt.Survivors) != 0 || len(receipt.Stopped) != 2 || receipt.Stopped[0].ID != command.ID {
		t.Fatalf("receipt %+v, %v", receipt, err)
	}
	for _, s := range receipt.Stopped {
		if s.Status != task.Killed {
			t.Errorf("stopped %+v", s)
		}
	}
	if _, err := c.settle(time.Minute); err != nil {
		t.Errorf("settle: %v", err)
	}
	c.say("and now?")
	if turn := c.next(); turn.Origin != "" || !strings.Contains(turn.Result.Text, "<status>killed</status>") || !strings.Contains(turn.Result.Text, "by user") {
		t.Errorf("told %+v", turn)
	}
}

func TestResume(t *testing.T) {
	c := converse(open(t, `
  main:
    - tools: [`+workTool+`, name: scout}}]
    - {when: {last_contains: Again}, tools: [{name: Agent, input: {description: More, prompt: look again, resume: scout}}]}
    - {when: {last_contains: second}, text: "{{last}}"}
    - text: done
  explore:
    - text: first look
    - text: "second look after {{turn}}"
`))
	c.say("go")
	if turn := c.next(); turn.Err != nil {
		t.Fatal(turn.Err)
	}
	before := c.only("explore")
	c.say("Again")
	if turn := c.next(); turn.Err != nil || !strings.Contains(turn.Result.Text, "second look after 1") {
		t.Errorf("turn %+v", turn)
	}
	after := c.only("explore")
	if after.ID != before.ID || after.Run == before.Run || after.Status != task.Completed {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if a, err := control.WholeResult(c.ctx, c, "scout"); err != nil || a.Text != "second look after 1" {
		t.Errorf("answer %q, %v", a.Text, err)
	}
}

func TestSettle(t *testing.T) {
	script := func(seconds string) string {
		return `
  main:
    - tools: [{name: Bash, input: {command: "exec sleep ` + seconds + `", run_in_background: true}}]
    - {when: {last_contains: task-notification}, text: told, repeat: -1}
    - text: started
`
	}
	t.Run("ceiling", func(t *testing.T) {
		c := converse(open(t, script("100")))
		c.say("go")
		receipt, err := c.settle(50 * time.Millisecond)
		if !errors.Is(err, conversation.ErrCeiling) || len(receipt.Stopped) != 1 || receipt.Stopped[0].Status != task.Killed {
			t.Errorf("receipt %+v, %v", receipt, err)
		}
		if cause := receipt.Stopped[0].Cause; cause.Actor != task.ByRuntime || !strings.Contains(cause.Detail, "ceiling") {
			t.Errorf("cause %+v", cause)
		}
	})
	t.Run("failed", func(t *testing.T) { // what the turn has started may still come to its end
		c := converse(open(t, `
  main:
    - tools: [{name: Bash, input: {command: "exec sleep 100", run_in_background: true}}]
    - error: {status: 400, type: invalid_request_error, message: no}
`))
		c.say("go")
		receipt, err := c.settle(50 * time.Millisecond)
		if !errors.Is(err, conversation.ErrCeiling) || len(receipt.Stopped) != 1 {
			t.Errorf("receipt %+v, %v", receipt, err)
		}
	})
	t.Run("waits", func(t *testing.T) {
		c := converse(open(t, script("0.1")))
		c.say("go")
		if receipt, err := c.settle(time.Minute); err != nil || len(receipt.Stopped) != 0 {
			t.Errorf("receipt %+v, %v", receipt, err)
		}
		if first, second := c.next(), c.next(); first.Result.Text != "started" || second.Result.Text != "told" {
			t.Errorf("turns %+v, %+v", first, second)
		}
	})
	t.Run("now", func(t *testing.T) {
		c := converse(open(t, script("100")))
		c.say("go")
		if receipt, err := c.settle(0); err != nil || len(receipt.Stopped) != 0 || c.live() != 1 {
			t.Errorf("receipt %+v, %v, %d live", receipt, err, c.live())
		}
	})
}

func TestFailedTurn(t *testing.T) {
	c := converse(open(t, `
  main:
    - error: {status: 400, type: invalid_request_error, message: no}
    - text: fine
`))
	c.say("go")
	var fault *agent.ModelError
	if turn := c.next(); !errors.As(turn.Err, &fault) {
		t.Errorf("turn %+v", turn)
	}
	c.say("again")
	if turn := c.next(); turn.Err != nil || turn.Result.Text != "fine" {
		t.Errorf("turn %+v", turn)
	}
	if err := c.main.Prompt(c.ctx, " \n"); code(err) != control.Invalid {
		t.Errorf("an empty prompt: %v", err)
	}
}

// A notification that was durable and not told when its session ended is told by the
// next host, once.
func TestOwedAfterReopen(t *testing.T) {
	r := open(t, `
  main:
    - tools: [{name: Bash, input: {command: "exec sleep 100", run_in_background: true}}]
    - {when: {last_contains: task-notification}, text: "{{last}}", repeat: -1}
    - text: started
`)
	done := make(chan conversation.Turn, 1)
	m, err := r.OpenMain(r.ctx, MainConfig{Done: func(turn conversation.Turn) { done <- turn }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); m.Run(ctx) }()
	if err := m.Prompt(r.ctx, "go"); err != nil {
		t.Fatal(err)
	}
	if turn := <-done; turn.Err != nil {
		t.Fatal(turn.Err)
	}
	cancel()
	<-ended
	r.reopen() // stops the command, and nobody is there to be told
	if n := r.owed(r.cfg.Info.Session); n != 1 {
		t.Fatalf("%d notifications are owed, want 1", n)
	}
	c := converse(r)
	if turn := c.next(); turn.Origin != conversation.TaskOrigin || !strings.Contains(turn.Result.Text, "<status>killed</status>") || !strings.Contains(turn.Result.Text, "closing") {
		t.Errorf("told %+v", turn)
	}
	if n := r.owed(r.cfg.Info.Session); n != 0 {
		t.Errorf("%d notifications are owed after they were told", n)
	}
}

// strayLog is a log with notifications of which it has no event. Each is read once.
type strayLog struct {
	*journal.Journal
	notifications []lifecycle.Notification
}

func (p *strayLog) Mail(ctx context.Context, owner task.ID, after task.Seq) ([]lifecycle.Notification, []task.Message, task.Seq, error) {
	notifications, messages, upto, err := p.Journal.Mail(ctx, owner, after)
	notifications, p.notifications = append(notifications, p.notifications...), nil
	return notifications, messages, upto, err
}

// An end whose record cannot be read is told all the same, and holds nothing else back.
func TestUnreadableNotice(t *testing.T) {
	r := open(t, "")
	me := r.cfg.Info.Session
	log := &strayLog{Journal: r.log}
	box, err := mailbox.Open(r.ctx, me, log)
	if err != nil {
		t.Fatal(err)
	}
	lost := []lifecycle.Notification{{Seq: 1 << 40, Run: "run_lost", Task: "a00000001", Owner: me}}
	log.notifications = lost
	if _, err := r.sup.Post(r.ctx, task.Message{To: me, From: "somebody", Kind: task.PlainMessage, Text: "read me"}); err != nil {
		t.Fatal(err)
	}
	m := r.mail.Reader(box, nil, nil)
	letters, err := m.Take(r.ctx)
	if err != nil || len(letters) != 2 || !strings.Contains(letters[0].Text, "read me") {
		t.Fatalf("%+v, %v", letters, err)
	}
	for _, part := range []string{"<task-id>a00000001</task-id>", "Run run_lost has ended, and its record could not be read: "} {
		if !strings.Contains(letters[1].Text, part) {
			t.Errorf("the notification lacks %q: %s", part, letters[1].Text)
		}
	}
	if err := m.Ack(r.ctx, letters); err != nil {
		t.Error(err)
	}
	if left, err := box.Mail(r.ctx); err != nil || len(left) > 0 {
		t.Errorf("%d letters are left, %v", len(left), err)
	}
	gone, cancel := context.WithCancel(r.ctx)
	cancel()
	log.notifications = lost
	if letters, err := m.Take(gone); err == nil { // that nobody could look does not say what is in the log
		t.Errorf("told while the turn was ended: %+v", letters)
	}
}

// However long a prompt is, each event has a small part of it; the agent is given all of it.
func TestLongPromptInTheLog(t *testing.T) {
	r := open(t, `
  main:
    - tools: [{name: Bash, input: {command: "echo 1"}}]
    - {text: done}
  general-purpose:
    - tools: [{name: Bash, input: {command: "echo 1"}}]
    - {text: done}
`)
	prompt := strings.Repeat("look at this line of a log. ", 4000)
	got, err := r.Start(r.ctx, []control.StartRequest{{Agent: &control.AgentRequest{Type: "general-purpose", Prompt: prompt}, Env: r.cfg.Agents.Env, Cwd: r.folder}})
	if err != nil || got[0].Error != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	child := got[0].Task.ID
	r.hosted(time.Nanosecond)
	r.prompt(prompt)
	for _, rec := range r.wait(string(child), string(r.cfg.Info.Session)) {
		if rec.Status != task.Completed || !strings.HasPrefix(rec.Prompt, prompt[:1000]) {
			t.Errorf("%s ended as %s, with prompt %.40q", rec.ID, rec.Status, rec.Prompt)
		}
	}
	events, err := r.log.Since(r.ctx, 0)
	if err != nil || len(events) < 6 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	for _, e := range events {
		if len(e.Task.Prompt) > lifecycle.MaxRecordPrompt {
			t.Errorf("%s of %s has %d bytes of the prompt", e.Verb, e.Task.ID, len(e.Task.Prompt))
		}
	}
	for _, path := range []string{r.cfg.Place.Transcript(), r.cfg.Place.AgentTranscript(child)} {
		if data, err := os.ReadFile(path); err != nil || !strings.Contains(string(data), strings.TrimSpace(prompt)) {
			t.Errorf("%s does not have the whole prompt, %v", path, err)
		}
	}
}

// live is how many tasks have not ended.
func (c *converser) live() int {
	n, _ := c.sup.Live()
	return n
}

package agentsdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const session = task.ID("s00000000")

// sink is a standard output. It keeps every Write apart.
type sink struct {
	mu     sync.Mutex
	writes []string
	err    error
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	s.writes = append(s.writes, string(p))
	return len(p), nil
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.writes, "")
}

// world is a session in memory: an event log, and a stream that reads it.
type world struct {
	t      testing.TB
	out    sink
	notes  bytes.Buffer
	s      *Stream
	answer map[task.RunID]string

	mu        sync.Mutex
	events    []task.Event
	live      map[task.ID]task.Record
	committed chan struct{}
	broken    error     // of since
	over      time.Time // when the stream was finished
}

func newWorld(t testing.TB, o Options) *world {
	w := &world{t: t, live: map[task.ID]task.Record{}, committed: make(chan struct{}), answer: map[task.RunID]string{}}
	o.Out, o.Err = &w.out, &w.notes
	o.Session, o.Cwd, o.Model, o.Version = session, "/src", "test-model", "1.2.3"
	o.Tools, o.Agents = []string{"Agent", "Bash"}, []string{"general-purpose"}
	o.Since, o.NextCommit = w.since, w.growth
	o.Answer = func(_ context.Context, r task.Record) string { return w.answer[r.Run] }
	w.s = New(o)
	return w
}

func (w *world) since(_ context.Context, after task.Seq) ([]task.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return nil, w.broken
	}
	rest := w.events[after:]
	return rest[:min(len(rest), 3)], nil // pages, as a real log has
}

func (w *world) growth() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.committed
}

// add makes an event durable, then wakes readers.
func (w *world) add(v task.Verb, r task.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live[r.ID] = r
	w.events = append(w.events, task.Event{Seq: task.Seq(len(w.events) + 1), Verb: v, At: time.Now().UTC(), Task: r})
	close(w.committed)
	w.committed = make(chan struct{})
}

func (w *world) create(r task.Record) {
	r.Session, r.Status, r.CreateTime = session, task.Pending, time.Now().UTC()
	if r.Depth == 0 {
		r.Depth = 1
	}
	r.Run = "run_1_" + task.RunID(r.ID)
	r.OutputFile = "/o/" + string(r.ID) + ".output"
	w.add(task.Create, r)
}

func (w *world) record(id task.ID) task.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live[id]
}

// do moves a task by the rules.
func (w *world) do(id task.ID, c lifecycle.Change) {
	c.At = time.Now().UTC()
	r, err := lifecycle.Apply(w.record(id), c)
	if err != nil {
		w.t.Errorf("%s: %v", id, err)
		return
	}
	w.add(c.Verb, r)
}

// summarize gives a running task a summary.
func (w *world) summarize(id task.ID, text string) {
	r := w.record(id)
	p := *r.Progress
	p.Summary = text
	r.Progress = &p
	w.add(task.Report, r)
}

func (w *world) begin(id task.ID) { w.do(id, lifecycle.Change{Verb: task.Begin}) }

func (w *world) end(id task.ID, cause error, res task.Result, err error) {
	c, ok := lifecycle.Ending(cause, res, err)
	if !ok {
		w.t.Errorf("%s: no ending", id)
		return
	}
	w.do(id, c)
}

// run lets the stream follow the log for the length of f, then finishes it.
func (w *world) run(f func()) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() {
		if err := w.s.Run(ctx); err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	f()
	cancel()
	group.Wait()
	w.over = time.Now()
	if err := w.s.Finish(); err != nil {
		w.t.Errorf("Finish: %v", err)
	}
}

// start begins a turn of the main agent.
func (w *world) start(prompt string, mail ...agent.MailMessage) {
	w.s.Agent(session, agent.Event{Kind: agent.TurnStartEvent})
	if len(mail) > 0 {
		w.s.Agent(session, agent.Event{Kind: agent.MailEvent, Mail: mail})
	}
	if prompt != "" {
		w.s.Agent(session, agent.Event{Kind: agent.PromptEvent, Prompt: []agent.Block{agent.TextBlock(prompt)}})
	}
}

// reply is one reply of an agent.
func (w *world) reply(from task.ID, id string, blocks ...agent.Block) {
	r := &agent.Reply{ID: id, Model: "test-model", Blocks: blocks, StopReason: "end_turn", Usage: agent.Usage{InputTokens: 100, OutputTokens: 10}}
	for _, b := range blocks {
		if b.Type == "tool_use" {
			r.StopReason = "tool_use"
		}
		w.s.Agent(from, agent.Event{Kind: agent.BlockEvent, Block: b, ReplyID: id, Model: r.Model, Usage: r.Usage})
	}
	w.s.Agent(from, agent.Event{Kind: agent.ReplyDoneEvent, Reply: r})
}

func use(id, name, input string) agent.Block {
	return agent.Block{Type: "tool_use", ID: id, Name: name, Input: json.RawMessage(input)}
}

func (w *world) tool(from task.ID, id, name string, out agent.Output) {
	w.s.Agent(from, agent.Event{Kind: agent.ToolDoneEvent, Call: agent.Call{ID: id, Name: name}, Output: out})
}

func (w *world) done(r agent.TurnResult, err error) {
	if r.Reason == "" {
		r.Reason, r.StopReason = "end_turn", "end_turn"
	}
	w.s.Agent(session, agent.Event{Kind: agent.TurnDoneEvent, Result: &r, Err: err})
}

func result(turns int, text string) agent.TurnResult {
	return agent.TurnResult{Text: text, Turns: turns, Duration: 1500 * time.Millisecond, Usage: agent.Usage{InputTokens: 100 * int64(turns), OutputTokens: 10 * int64(turns)}}
}

var (
	errExit = &task.FailError{Reason: task.ReasonExit, Err: errors.New("exit code 3")}
	stopped = &task.StopError{Cause: task.Cause{Actor: task.ByModel, Reason: task.ReasonStopped}}
)

func exit(code int) task.Result { return task.Result{ExitCode: &code} }

func used(tokens int64, tools int) task.Result {
	return task.Result{Usage: &task.Usage{TotalTokens: tokens, ToolUses: tools, DurationMS: 2000}}
}

var uuids = regexp.MustCompile(`"uuid":"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"`)

// normal is output with every UUID made the same.
func normal(out string) string { return uuids.ReplaceAllString(out, `"uuid":"UUID"`) }

// kinds are the lines in short: type or subtype, and what tells them apart.
func (w *world) kinds() []string {
	w.t.Helper()
	var out []string
	for _, l := range w.lines() {
		word := l.Type
		if l.Subtype != "" && l.Type == "system" {
			word = l.Subtype
		}
		if l.Task != "" {
			word += " " + string(l.Task)
		}
		out = append(out, word)
	}
	return out
}

// anyLine is what the tests read of a line.
type anyLine struct {
	Type, Subtype string
	Task          task.ID    `json:"task_id"`
	Run           task.RunID `json:"run_id"`
	Status        string
	Patch         patch
	Tasks         []backgroundTask
	Backgrounded  bool `json:"is_backgrounded"`
	Session       task.ID
	UUID          string
	SessionID     task.ID `json:"session_id"`
	Origin        *resultOrigin
	Index         int `json:"result_index"`
}

func (w *world) lines() []anyLine {
	w.t.Helper()
	w.out.mu.Lock()
	defer w.out.mu.Unlock()
	var out []anyLine
	for _, text := range w.out.writes {
		var l anyLine
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			w.t.Fatalf("a write is not one JSON value: %v\n%s", err, text)
		}
		if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
			w.t.Fatalf("a write is not one line: %q", text)
		}
		if l.UUID == "" || l.SessionID != session {
			w.t.Fatalf("line without uuid or session_id: %s", text)
		}
		out = append(out, l)
	}
	return out
}

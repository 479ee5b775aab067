package conversation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/agenttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const session = task.ID("s00000000")

// place is a session in memory, a host of its conversation, and a model whose replies
// a test lets go one by one.
type place struct {
	log events // of the session
	box *mailbox.Box

	mu       sync.Mutex // guards what follows
	last     task.Seq
	unread   []task.Message
	mailed   chan struct{} // closed and replaced at each
	writing  chan struct{} // a prompt is written when it is closed; nil: at once
	replies  chan error    // of the model
	paused   chan struct{} // closed when the agent may go on; nil: it may
	attached context.Context
	change   context.CancelFunc
	here     bool
	record   task.Record // of the run
	changed  chan struct{}
	stop     context.CancelCauseFunc
	runs     sync.WaitGroup
}

func newPlace() *place {
	p := &place{replies: make(chan error), changed: make(chan struct{}), mailed: make(chan struct{})}
	p.box, _ = mailbox.Open(context.Background(), session, p)
	return p
}

func (p *place) Mail(_ context.Context, _ task.ID, after task.Seq) (_ []lifecycle.Notification, messages []task.Message, upto task.Seq, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.unread {
		if m.Seq > after {
			messages = append(messages, m)
		}
	}
	return nil, messages, p.last, nil
}

func (p *place) Mailed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mailed
}

func (p *place) Acknowledge(_ context.Context, seqs ...task.Seq) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unread = slices.DeleteFunc(p.unread, func(m task.Message) bool { return slices.Contains(seqs, m.Seq) })
	return nil
}

func (p *place) Post(_ context.Context, m task.Message) (task.Seq, error) {
	p.mu.Lock()
	writing := p.writing
	p.mu.Unlock()
	if writing != nil {
		<-writing
	}
	p.mu.Lock()
	p.last++
	m.Seq = p.last
	p.unread = append(p.unread, m)
	close(p.mailed)
	p.mailed = make(chan struct{})
	p.mu.Unlock()
	return m.Seq, nil
}

func (p *place) Get(task.ID) (task.Record, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record, p.record.ID != ""
}

func (p *place) Background() ([]task.ID, int) { return nil, 0 }
func (p *place) Alone() bool                  { return true }
func (p *place) Moved()                       {}
func (p *place) Completed(control.Completion) {}
func (p *place) NextCommit() <-chan struct{}  { return nil }

func (p *place) Stop(context.Context, []task.ID, task.Cause) (task.Receipt, error) {
	return task.Receipt{}, nil
}

func (p *place) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

func (p *place) Begin(_ context.Context, _ string, d task.Driver) error {
	ctx, stop := context.WithCancelCause(context.Background())
	p.mu.Lock()
	p.record, p.stop = task.Record{ID: session, Status: task.Running}, stop
	p.mu.Unlock()
	p.runs.Go(func() {
		_, _ = d.Run(ctx, run0{})
		stop(nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.record.Status = task.Completed
		close(p.changed)
		p.changed = make(chan struct{})
	})
	return nil
}

func (p *place) Wait(context.Context) error {
	for {
		changed := p.Changed()
		if r, _ := p.Get(session); r.Status.Terminal() {
			return nil
		}
		<-changed
	}
}

func (p *place) Attached() (bool, context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.attached == nil {
		p.attached, p.change = context.WithCancel(context.Background())
	}
	return p.here, p.attached
}

// attach lets a client attach, or the last detach.
func (p *place) attach(here bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.here = here; p.attached != nil {
		p.change()
		p.attached = nil
	}
}

func (p *place) Cost() func() (float64, bool) { return nil }
func (p *place) Parting(context.Context)      {}
func (p *place) Start(context.Context) string { return "" }
func (p *place) Command(context.Context, string) (string, string, bool, error) {
	return "", "", false, nil
}
func (p *place) Prompt(context.Context, string) (string, error) { return "", nil }
func (p *place) Failed(context.Context, error, string)          {}

// reply waits until the test lets the model answer or fail.
func (p *place) reply(ctx context.Context, _ *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
	select {
	case err := <-p.replies:
		return &agent.Reply{Model: "test", Blocks: []agent.Block{agent.TextBlock("said")}, StopReason: "end_turn"}, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// pause holds the agent back, until it is called again.
func (p *place) pause(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.paused == nil:
		p.paused = make(chan struct{})
	case !on && p.paused != nil:
		close(p.paused)
		p.paused = nil
	}
}

func (p *place) hold(ctx context.Context) error {
	p.mu.Lock()
	paused := p.paused
	p.mu.Unlock()
	if paused == nil {
		return nil
	}
	select {
	case <-paused:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reader is the box as the agent reads it.
type reader struct {
	box      *mailbox.Box
	withheld func(mailbox.Mail) bool
}

func (r reader) Take(context.Context) (letters []agent.MailMessage, _ error) {
	mail, err := r.box.Mail(context.Background())
	for _, x := range mail {
		if !r.withheld(x) {
			letters = append(letters, agent.MailMessage{Seq: int64(x.Seq), Text: mailbox.RenderMessage(*x.Message)})
		}
	}
	return letters, err
}

func (r reader) Ack(ctx context.Context, letters []agent.MailMessage) error {
	for _, l := range letters {
		if err := r.box.Acknowledge(ctx, task.Seq(l.Seq)); err != nil {
			return err
		}
	}
	return nil
}

func (p *place) Running() int { return 0 }

// events is a log.
type events []task.Event

func (l *events) Since(_ context.Context, after task.Seq) ([]task.Event, error) {
	return slices.DeleteFunc(slices.Clone(*l), func(e task.Event) bool { return e.Seq <= after }), nil
}

// What has happened to tasks is shown before what is said of it, also where nothing else reads the log.
func TestNoticesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace()
		p.log = events{{Seq: 1, Verb: task.Complete, Task: task.Record{ID: "a1", Kind: task.LocalAgent, Status: task.Completed}}}
		c := p.open(t)
		defer p.close(c)
		if err := c.Submit(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.cfg.Feed.mu.Lock()
		defer c.cfg.Feed.mu.Unlock()
		if first := c.cfg.Feed.pieces[0]; first.Kind != control.TaskPiece || first.Event.Task.ID != "a1" {
			t.Errorf("viewers see %s first", first.Kind)
		}
	})
}

// run0 is the host of a run.
type run0 struct{ task.Host }

func (run0) Output() task.Output                                              { return nil }
func (run0) Progress(task.Progress)                                           {}
func (run0) Rest(ctx context.Context, wait func(context.Context) error) error { return wait(ctx) }

// open opens a conversation that is a task.
func (p *place) open(t testing.TB) *Conversation {
	c, err := Open(Config{ID: session, Wrap: func(task.ID, *agent.Config) {}, Agent: agent.Config{Model: agenttest.ModelFunc(p.reply), WaitWhilePaused: p.hold}, Box: p.box, Post: p.Post, Session: p, Hooks: p, Feed: &Feed{},
		Log: &p.log, Mail: func(withheld func(mailbox.Mail) bool) agent.Mail { return reader{p.box, withheld} }})
	if err != nil {
		t.Fatal(err)
	}
	c.HostBy(p, time.Minute)
	return c
}

// close ends everything.
func (p *place) close(c *Conversation) {
	c.End()
	p.pause(false)
	p.attach(false)
	p.mu.Lock()
	stop := p.stop
	p.mu.Unlock()
	if stop != nil {
		stop(task.ErrClosing)
	}
	p.runs.Wait()
	p.attach(false) // lets go of the context
}

// waits reports whether there is mail for which a turn is to begin.
func waits(c *Conversation) bool {
	mail, err := c.Mail(context.Background())
	return mail && err == nil
}

// told is how often the agent has read a text.
func told(c *Conversation, text string) (n int) {
	for _, m := range c.Messages() {
		blocks, _ := m.Blocks()
		for _, b := range blocks {
			if m.Role() == agent.User && (b.Text == text || strings.Contains(b.Text, "\n"+text+"\n")) {
				n++
			}
		}
	}
	return n
}

// TestInterleavings lets clients, the model and the user do things in random order.
// Each prompt is then answered once, or unread, or was refused.
func TestInterleavings(t *testing.T) {
	all := []string{"prompt", "prompt", "mail", "answer", "answer", "fail", "interrupt", "attach", "detach", "pause", "resume", "stop"}
	rapid.Check(t, func(rt *rapid.T) {
		ops := rapid.SliceOfN(rapid.SampledFrom(all), 1, 30).Draw(rt, "ops")
		var wrong error
		synctest.Test(t, func(t *testing.T) { wrong = interleave(t, ops) })
		if wrong != nil {
			rt.Fatal(wrong)
		}
	})
}

func interleave(t *testing.T, ops []string) (wrong error) {
	p := newPlace()
	c := p.open(t)
	var asked sync.WaitGroup
	var mu sync.Mutex
	refused := map[string]error{} // by prompt; nil: it was accepted
	letters := 0
	held := false // no turn begins by itself
	turns := func() int { s, _ := c.State(); return s.Turns }
	running := func() string {
		s, _ := c.State()
		if !s.Phase.running() {
			return "none"
		}
		return cmp.Or(s.Trigger.Origin, "prompt")
	}
	step := func(op string, do func()) {
		before, was := turns(), running()
		do()
		synctest.Wait()
		if s, _ := c.State(); held && s.Hold != NoHold && turns() == before && was == "none" && running() == TaskOrigin {
			wrong = fmt.Errorf("%s: a turn began by itself before the user has spoken", op)
		}
		s, _ := c.State()
		held = s.Hold != NoHold
		switch {
		case op == "interrupt" && was != "none" && turns() == before:
			wrong = errors.New("the turn goes on after the interrupt")
		case s.Phase == Idle && (len(s.Waiting) > 0 || !held && waits(c)):
			wrong = fmt.Errorf("%s: nobody was woken to answer: %+v", op, s)
		case s.Phase == Idle && !p.here:
			wrong = fmt.Errorf("%s: nobody was woken to end the run: %+v", op, s)
		}
	}
	answer := func(err error) {
		select {
		case p.replies <- err:
		default:
		}
	}
	for i, op := range ops {
		step(op, func() {
			switch op {
			case "prompt":
				text := fmt.Sprintf("prompt %d", i)
				asked.Go(func() {
					err := c.Submit(context.Background(), text)
					mu.Lock()
					defer mu.Unlock()
					refused[text] = err
				})
			case "mail":
				letters++
				_, _ = p.Post(context.Background(), task.Message{To: session, From: "x", Kind: task.PlainMessage, Text: fmt.Sprintf("letter %d", letters)})
			case "answer":
				answer(nil)
			case "fail":
				answer(&agent.ModelError{Status: 400, Text: "wrong"})
			case "interrupt":
				c.Interrupt()
			case "attach", "detach":
				p.attach(op == "attach")
			case "pause", "resume":
				p.pause(op == "pause")
			case "stop":
				p.mu.Lock()
				stop := p.stop
				p.mu.Unlock()
				if stop != nil {
					stop(&task.StopError{Cause: task.Cause{Actor: task.ByUser}})
				}
			}
		})
	}
	before := turns()
	p.close(c)
	asked.Wait()
	if n := turns(); n > before+1 {
		wrong = fmt.Errorf("%d turns began after the end", n-before-1)
	}
	mu.Lock()
	defer mu.Unlock()
	for text, err := range refused {
		unread := 0
		for _, m := range p.unread {
			if m.Text == text {
				unread++
			}
		}
		n := told(c, text)
		if err != nil && n+unread > 0 || err == nil && n+unread != 1 {
			wrong = fmt.Errorf("%s (%v): told %d times, unread %d times", text, err, n, unread)
		}
	}
	return wrong
}

// A prompt that comes while its conversation is being stopped begins a further run,
// and is told once.
func TestPromptAtTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace()
		c := p.open(t)
		defer p.close(c)
		if err := c.Submit(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		written := make(chan struct{})
		p.mu.Lock()
		p.writing = written
		p.mu.Unlock()
		asked := make(chan error, 1)
		go func() { asked <- c.Submit(t.Context(), "two") }()
		synctest.Wait()
		if s, _ := c.State(); s.Posting != 1 || s.Phase != Busy {
			t.Fatalf("before the stop: %+v", s)
		}
		p.stop(&task.StopError{Cause: task.Cause{Actor: task.ByUser}})
		synctest.Wait()
		if s, _ := c.State(); s.Phase != Stopped {
			t.Fatalf("the run accepts prompts: %+v", s)
		}
		close(written)
		synctest.Wait()
		if err := <-asked; err != nil {
			t.Errorf("the prompt was refused: %v", err)
		}
		if n := told(c, "two"); n != 1 {
			t.Errorf("the prompt was told %d times", n)
		}
		if left := slices.DeleteFunc(slices.Clone(p.unread), func(m task.Message) bool { return m.Text != "two" }); len(left) > 0 {
			t.Errorf("the next host would tell %v", left)
		}
	})
}

// Who waits for the conversation to settle is woken by an interrupt.
func TestWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace()
		c := p.open(t)
		defer p.close(c)
		c.session = busy{p}
		p.attach(true)
		if err := c.Submit(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p.replies <- nil
		synctest.Wait()
		settled := make(chan error, 1)
		c.must(BeginRun) // nobody is attached
		go func() {
			_, err := c.Settle(t.Context(), time.Hour)
			settled <- err
		}()
		synctest.Wait()
		if len(settled) > 0 {
			t.Error("work in the background is not waited for")
		}
		c.Interrupt()
		synctest.Wait()
		if len(settled) == 0 {
			t.Error("work in the background is waited for behind an interrupt")
		}
		_, changed := c.State()
		c.End()
		<-changed
	})
}

// busy is a session in which an agent is at work.
type busy struct{ *place }

func (busy) Background() ([]task.ID, int) { return nil, 1 }

// A prompt for which no run can be begun is withdrawn.
func TestNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace()
		c := p.open(t)
		why := errors.New("no place")
		c.host.Host = unable{p, why}
		if err := c.Submit(t.Context(), "one"); !errors.Is(err, why) {
			t.Errorf("it was begun: %v", err)
		}
		if len(p.unread) > 0 || c.cfg.Feed.Newest() > 0 {
			t.Errorf("unread %v, %d pieces", p.unread, c.cfg.Feed.Newest())
		}
		c.host.Host = p
		if err := c.Submit(t.Context(), "two"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if told(c, "one") != 0 || told(c, "two") != 1 {
			t.Errorf("told %d and %d times", told(c, "one"), told(c, "two"))
		}
		p.close(c)
		if err := c.Submit(t.Context(), "three"); !control.Refused(err) {
			t.Errorf("a prompt after the end: %v", err)
		}
	})
}

type unable struct {
	*place
	why error
}

func (u unable) Begin(context.Context, string, task.Driver) error { return u.why }

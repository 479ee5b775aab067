package a2a

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of a follower.
const (
	maxKept     = 16 << 20 // bytes of artifacts
	maxPieces   = 1000     // artifacts
	maxMessages = 10_000   // messages of a task that are read
	maxSaid     = 2000     // messages that Poll has not returned yet; the newest are kept
	maxPhases   = 20
	maxChunk    = 1 << 20 // bytes that Output returns
	maxID       = 200     // bytes of the ID of a task

	cancelPace = 200 * time.Millisecond // between two looks at a task that is being cancelled
	listPages  = 10                     // pages of tasks in which the task of a lost answer is looked for
)

// The phases in which a task waits for its client.
const (
	NeedsInput = "needs_input"          // state INPUT_REQUIRED
	NeedsAuth  = "needs_authentication" // state AUTH_REQUIRED
	PlanReady  = "plan_ready"           // a plan waits for approval: only [PhaseKey] says so
)

// PhaseKey is the key under which the metadata of a status message may name a phase. It takes precedence over the
// phase that follows from the state.
const PhaseKey = "phase"

// answered begins the ID of a task that the agent answered with a message, which ends the work at once.
const answered = "message-"

// Follower follows one task of an agent. It keeps all artifacts, as one output: an artifact is part of the output
// once those before it are complete, so the output is the same bytes whether the artifacts arrived as a stream or are
// read again, and a reader may continue where it ended. Its methods may be called by several goroutines.
type Follower struct {
	c  *Client
	id string // never changes

	life    context.Context // of streams
	end     context.CancelFunc
	streams sync.WaitGroup // at most one

	mu      sync.Mutex
	changed chan struct{} // closed and replaced with each change; guarded by mu, as are the fields below
	state   State
	why     string // the last message of a task that has ended
	context string
	kept    int // bytes of pieces
	pieces  []*piece
	at      int // the piece that grows the output; those before it are complete
	out     []byte
	given   int64 // size of out that Poll has returned
	seen    map[string]bool
	said    []string  // not yet returned by Poll
	phases  []string  // not yet returned by Poll
	phase   string    // the newest
	asked   string    // the message that asked for input
	heard   time.Time // when something about the task arrived; zero: nothing has
	open    bool      // a stream is being read
	polled  bool      // the agent streams no tasks
	failed  error
}

// piece is an artifact.
type piece struct {
	id, name string
	text     []byte
	given    int // bytes that are part of the output
	closed   bool
}

// News is the state of a task, and what is new since the last [Follower.Poll].
type News struct {
	State  State
	Phase  string   // if several are new, the oldest: each is returned once
	Said   []string // messages of the agent
	Output int64    // size of the output in bytes
	Result string   // the answer of a completed task
	Why    string   // what a task that ended otherwise said last
}

// CheckID refuses an ID of a task that is too long, or unfit as part of a path or line.
func CheckID(id string) error {
	ok := id != "" && len(id) <= maxID && id != "." && id != ".."
	for _, c := range []byte(id) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.:", c) >= 0)
	}
	if !ok {
		return fmt.Errorf("%.60q is no ID of a task (use up to %d letters, digits and -_.:)", id, maxID)
	}
	return nil
}

// Start sends a message that begins a task. With again, the message may have been sent before, and the task that it
// has begun is looked for first. An agent that does not list its tasks may begin a second one.
func (c *Client) Start(ctx context.Context, m Message, again bool) (*Follower, error) {
	a, err := c.find(ctx)
	if err != nil {
		return nil, err
	}
	if again {
		f, err := c.Find(ctx, m.ID)
		if f != nil || err != nil && !is(err, CodeMethod) && !is(err, CodeUnsupported) {
			return f, err
		}
	}
	var got Event
	q := SendRequest{Tenant: a.tenant, Message: &m, Configuration: immediately()}
	if err := c.call(ctx, a, SendMessage, q, &got); err != nil {
		return nil, err
	}
	switch {
	case got.Task != nil:
		f, err := c.Follow(got.Task.ID)
		if err == nil {
			err = f.take(got)
		}
		if err != nil {
			return nil, fmt.Errorf("%s at %s: %w", SendMessage, c.Host(), err)
		}
		return f, nil
	case got.Message != nil:
		f := c.follower(answered + m.ID)
		f.hear(got.Message)
		f.state, f.why = Completed, strings.TrimSpace(Text(got.Message.Parts))
		f.print()
		return f, nil
	}
	return nil, fmt.Errorf("%s at %s: the result is neither a task nor a message", SendMessage, c.Host())
}

func immediately() *Configuration {
	return &Configuration{OutputModes: []string{"text/plain", "application/json"}, Immediately: true}
}

// Find returns a follower of the task that a message has begun; nil if the agent lists none.
func (c *Client) Find(ctx context.Context, message string) (*Follower, error) {
	a, err := c.find(ctx)
	if err != nil {
		return nil, err
	}
	size, history := 100, 100
	q := ListRequest{Tenant: a.tenant, PageSize: &size, History: &history}
	for range listPages {
		var list List
		if err := c.call(ctx, a, ListTasks, q, &list); err != nil {
			return nil, err
		}
		for _, t := range list.Tasks {
			if slices.ContainsFunc(t.History, func(m Message) bool { return m.ID == message }) {
				return c.Follow(t.ID)
			}
		}
		if list.Next == "" || list.Next == q.PageToken {
			break
		}
		q.PageToken = list.Next
	}
	return nil, nil
}

// Follow returns a follower of a task whose ID is known. It does no I/O.
func (c *Client) Follow(id string) (*Follower, error) {
	if err := CheckID(id); err != nil {
		return nil, &RefusedError{err}
	}
	return c.follower(id), nil
}

func (c *Client) follower(id string) *Follower {
	f := &Follower{c: c, id: id, changed: make(chan struct{}), state: Submitted, seen: map[string]bool{}}
	f.life, f.end = context.WithCancel(context.Background())
	return f
}

// ID returns the ID of the task.
func (f *Follower) ID() string { return f.id }

// Close ends the stream that is read, and leaves the task alone.
func (f *Follower) Close() {
	f.end()
	f.streams.Wait()
}

// Poll returns the news. If the agent streams, it waits for some, for hold at most; the first time it waits for the
// state of the task.
func (f *Follower) Poll(ctx context.Context, hold time.Duration) (News, error) {
	if f.terminal() {
		return f.news(), nil
	}
	if strings.HasPrefix(f.id, answered) {
		return News{}, refuse("the agent answered with a message, which an earlier host did not keep")
	}
	a, err := f.c.find(ctx)
	if err != nil {
		return News{}, err
	}
	ask := !f.follow(a)
	if !ask {
		if err := f.wait(ctx, hold); err != nil {
			return News{}, err
		}
		f.mu.Lock()
		ask = time.Since(f.heard) > f.c.Silence
		f.mu.Unlock()
	}
	if ask && !f.terminal() {
		var t Task
		if err := f.c.call(ctx, a, GetTask, TaskRequest{Tenant: a.tenant, ID: f.id}, &t); err != nil {
			return News{}, err
		}
		if err := f.take(Event{Task: &t}); err != nil {
			return News{}, err
		}
	}
	return f.news(), nil
}

// wait waits until Poll has something to return, for hold at most.
func (f *Follower) wait(ctx context.Context, hold time.Duration) error {
	f.mu.Lock()
	if f.heard.IsZero() { // the first event has all that happened before
		hold = max(hold, exchange)
	}
	f.mu.Unlock()
	late := time.NewTimer(hold)
	defer late.Stop()
	for {
		ready, changed, failed := f.ready()
		if failed != nil || ready {
			return failed
		}
		select {
		case <-changed:
		case <-late.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ready reports whether Poll has something to return, and returns the channel that is closed at the next change. It
// takes the failure of the stream.
func (f *Follower) ready() (bool, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed := f.failed
	f.failed = nil
	return !f.open || f.state.Terminal() || len(f.phases)+len(f.said) > 0 || int64(len(f.out)) > f.given, f.changed, failed
}

func (f *Follower) terminal() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Terminal()
}

// follow makes sure that a stream of the task is read, and reports whether the agent streams it.
func (f *Follower) follow(a agent) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !a.streams || f.polled || f.life.Err() != nil:
		return false
	case f.open || f.failed != nil:
		return true
	}
	f.open = true
	f.streams.Go(func() { // ends with the stream, or Close
		err := f.c.stream(f.life, a, SubscribeToTask, TaskRequest{Tenant: a.tenant, ID: f.id}, f.take)
		f.mu.Lock()
		defer f.mu.Unlock()
		defer f.note()
		f.open = false
		switch {
		case f.life.Err() != nil || f.state.Terminal():
		case is(err, CodeUnsupported) || is(err, CodeMethod): // the task has ended, or the agent streams none
			f.polled = true
		default:
			f.failed = err // nil: the agent closed the stream, and the next Poll opens another
		}
	})
	return true
}

// note wakes those who wait. The caller holds mu.
func (f *Follower) note() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// take applies an event. A task ends once: after that its events change nothing.
func (f *Follower) take(e Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.note()
	f.heard = time.Now()
	about := f.id
	switch {
	case e.Task != nil:
		about = e.Task.ID
	case e.Status != nil:
		about = e.Status.Task
	case e.Artifact != nil:
		about = e.Artifact.Task
	case e.Message != nil:
		f.hear(e.Message)
		return nil
	}
	switch {
	case about != f.id:
		return fmt.Errorf("an answer about task %s is about task %.80q", f.id, about)
	case f.state.Terminal():
		return nil
	case e.Task != nil:
		for _, m := range e.Task.History {
			f.hear(&m)
		}
		for _, a := range e.Task.Artifacts {
			if err := f.put(a, false, false); err != nil {
				return err
			}
		}
		return f.become(e.Task.Context, e.Task.Status)
	case e.Status != nil:
		return f.become(e.Status.Context, e.Status.Status)
	case e.Artifact != nil:
		return f.put(e.Artifact.Artifact, e.Artifact.Append, e.Artifact.Last)
	}
	return nil // an event of a later version
}

// become applies a status. The caller holds mu.
func (f *Follower) become(context string, st Status) error {
	if !st.State.Known() {
		return fmt.Errorf("the task has the unknown state %.60q", st.State)
	}
	if context != "" {
		f.context = context
	}
	f.hear(st.Message)
	phase, asked := phaseOf(st), ""
	if st.State.Interrupted() && st.Message != nil {
		asked = st.Message.ID
	}
	if phase == f.phase && asked != f.asked { // it was answered meanwhile, and asks something else
		f.phases = append(f.phases, working, phase)
	} else if phase != f.phase {
		f.phases = append(f.phases, phase)
	}
	f.phases = f.phases[max(0, len(f.phases)-maxPhases):]
	f.phase, f.asked, f.state = phase, asked, st.State
	if st.State.Terminal() {
		if st.Message != nil {
			f.why = strings.TrimSpace(Text(st.Message.Parts))
		}
		f.print()
	}
	return nil
}

const working = "working"

func phaseOf(st Status) string {
	if st.Message != nil {
		if named, ok := st.Message.Metadata[PhaseKey].(string); ok && named != "" {
			return named
		}
	}
	switch st.State {
	case Submitted:
		return "queued"
	case InputRequired:
		return NeedsInput
	case AuthRequired:
		return NeedsAuth
	}
	return working
}

// hear takes a message of the agent, once. The caller holds mu.
func (f *Follower) hear(m *Message) {
	if m == nil || m.Role != RoleAgent || f.seen[m.ID] || len(f.seen) >= maxMessages {
		return
	}
	f.seen[m.ID] = true
	if text := strings.TrimSpace(Text(m.Parts)); text != "" {
		f.said = append(f.said, text)
		f.said = f.said[max(0, len(f.said)-maxSaid):]
	}
}

// put takes an artifact, or more of one. The caller holds mu.
func (f *Follower) put(a Artifact, more, last bool) error {
	text := []byte(Text(a.Parts))
	i := len(f.pieces) - 1
	for i >= 0 && f.pieces[i].id != a.ID {
		i--
	}
	var p *piece
	if i >= 0 {
		p = f.pieces[i]
	}
	switch {
	case p != nil && !more && (bytes.Equal(text, p.text) || !last && p.closed && bytes.HasPrefix(p.text, text)):
		text = nil
	case p != nil && !more && bytes.HasPrefix(text, p.text):
		text = text[len(p.text):]
	case p != nil && !more: // it was replaced, and may be part of the output already
		p.closed, p = true, nil
	}
	if p != nil && p.closed && len(text) > 0 {
		p = nil // the rest comes after the artifacts that began meanwhile
	}
	if p == nil {
		if len(f.pieces) >= maxPieces {
			return refuse("the task has more than %d artifacts", maxPieces)
		}
		p = &piece{id: a.ID, name: a.Name}
		f.pieces = append(f.pieces, p)
	}
	if f.kept += len(text); f.kept > maxKept {
		return refuse("the artifacts of the task are larger than %d bytes", maxKept)
	}
	p.text = append(p.text, text...)
	p.closed = p.closed || last
	f.print()
	return nil
}

// print extends the output by text that will not change. The caller holds mu.
func (f *Follower) print() {
	for f.at < len(f.pieces) {
		p := f.pieces[f.at]
		f.out = append(f.out, p.text[p.given:]...)
		p.given = len(p.text)
		if !p.closed && !f.state.Terminal() {
			return
		}
		if len(p.text) > 0 && p.text[len(p.text)-1] != '\n' {
			f.out = append(f.out, '\n')
		}
		p.closed = true
		f.at++
	}
	if f.state.Terminal() && len(f.pieces) == 0 && f.why != "" && len(f.out) == 0 {
		f.out = []byte(f.why + "\n")
	}
}

func (f *Follower) news() News {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := News{State: f.state, Phase: f.phase, Said: f.said, Output: int64(len(f.out)), Why: f.why}
	f.said, f.given = nil, n.Output
	if len(f.phases) > 0 {
		n.Phase, f.phases = f.phases[0], f.phases[1:]
	}
	if f.state == Completed {
		n.Result = cmp.Or(f.result(), f.why)
	}
	return n
}

// result joins the artifacts, each on lines of its own. The caller holds mu.
func (f *Follower) result() string {
	var all []string
	for _, p := range f.pieces {
		if text := strings.TrimRight(string(p.text), "\n"); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, "\n")
}

// Artifacts returns the text of all artifacts of a name, in the order in which they began.
func (f *Follower) Artifacts(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, p := range f.pieces {
		if p.name == name {
			b.Write(p.text)
		}
	}
	return b.String()
}

// Output returns the output from an offset on, 1 MiB at most.
func (f *Follower) Output(offset int64) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	size := int64(len(f.out))
	offset = min(max(offset, 0), size)
	return slices.Clone(f.out[offset:min(size, offset+maxChunk)])
}

// Send sends the task a message, which answers what it asks.
func (f *Follower) Send(ctx context.Context, text string) error {
	a, err := f.c.find(ctx)
	if err != nil {
		return err
	}
	if strings.HasPrefix(f.id, answered) {
		return &RefusedError{errors.New("the agent answered with a message, so there is no task to send to")}
	}
	f.mu.Lock()
	m := &Message{ID: rand.Text(), Role: RoleUser, Task: f.id, Context: f.context, Parts: []Part{TextPart(text)}}
	f.mu.Unlock()
	var got Event
	q := SendRequest{Tenant: a.tenant, Message: m, Configuration: immediately()}
	if err := f.c.call(ctx, a, SendMessage, q, &got); err != nil || got.Message == nil {
		return err // the new state of the task arrives in its order, by the stream or by Poll
	}
	return f.take(got)
}

// Cancel cancels the task, and returns when it has ended. It is no error if it has ended before.
func (f *Follower) Cancel(ctx context.Context) error {
	if strings.HasPrefix(f.id, answered) {
		return nil
	}
	a, err := f.c.find(ctx)
	if err != nil {
		return err
	}
	var t Task
	q := TaskRequest{Tenant: a.tenant, ID: f.id}
	err = f.c.call(ctx, a, CancelTask, q, &t)
	for err == nil && !t.Status.State.Terminal() {
		select {
		case <-time.After(cancelPace):
			t = Task{}
			err = f.c.call(ctx, a, GetTask, q, &t)
		case <-ctx.Done():
			return fmt.Errorf("%s at %s: the task was cancelled, and is still %.60s", CancelTask, f.c.Host(), t.Status.State)
		}
	}
	if is(err, CodeNotCancelable) || is(err, CodeTaskNotFound) {
		return nil
	}
	return err
}

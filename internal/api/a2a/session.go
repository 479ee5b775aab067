package a2a

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/remoteapi"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

const (
	cancelPace = 200 * time.Millisecond // between two looks at a task that is being cancelled
	listPages  = 10                     // in which a task is looked for that a lost answer may have made
)

// messageSession is the beginning of a session that is no task: the agent has answered with a message, and the work is
// done.
const messageSession = "message-"

// Phases that are none of [remoteapi].
const (
	phaseQueued  = "queued"
	phaseWorking = "working"
)

// session is what was read of one task. Output is its artifacts, one after the other: the same bytes whether they came
// as a stream or are read again, so that output goes on where the local file ends.
type session struct {
	id string

	mu      sync.Mutex
	changed chan struct{} // closed at the next change; guarded by mu, as all below
	state   State
	why     string // the last message of a task that has ended
	context string
	kept    int // bytes of pieces
	pieces  []*piece
	at      int // the piece whose text goes to out; those before are in it
	out     []byte
	given   int64 // size of out that a poll has told of
	seen    map[string]bool
	events  []remoteapi.Event
	dropped int      // events that are not kept any more
	phases  []string // that no poll has told of yet
	phase   string   // the last one that came
	asked   string   // the message that asked for input
	heard   time.Time
	open    bool // a stream is being read
	cancel  context.CancelFunc
	noMore  bool // the agent streams no tasks: it is polled
	failed  error
}

// piece is an artifact.
type piece struct {
	id     string
	text   []byte
	given  int // bytes that are in out
	closed bool
}

func newSession(id string) *session {
	return &session{id: id, changed: make(chan struct{}), state: Submitted, seen: map[string]bool{}, heard: time.Now(),
		cancel: func() {}}
}

// session is what is known of a task that is followed.
func (c *Client) session(id string) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.followed[id]
	if s == nil {
		s = newSession(id)
		c.followed[id] = s
	}
	return s
}

// Release forgets a task, and ends its stream.
func (c *Client) Release(id string) {
	c.mu.Lock()
	s := c.followed[id]
	delete(c.followed, id)
	c.mu.Unlock()
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cancel()
	}
}

// note wakes who waits. The caller holds mu.
func (s *session) note() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// task takes in the whole state of the task.
func (s *session) task(t Task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.note()
	s.heard = time.Now()
	if t.ID != s.id {
		return wrongTask(t.ID, s.id)
	}
	if s.state.Terminal() { // it ends once
		return nil
	}
	for _, m := range t.History {
		s.hear(&m)
	}
	for _, a := range t.Artifacts {
		if err := s.put(a, false, false); err != nil {
			return err
		}
	}
	return s.become(t.Context, t.Status)
}

// take takes in an event of a stream.
func (s *session) take(e Event) error {
	switch {
	case e.Task != nil:
		return s.task(*e.Task)
	case e.Status != nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		defer s.note()
		s.heard = time.Now()
		if e.Status.Task != s.id {
			return wrongTask(e.Status.Task, s.id)
		}
		if s.state.Terminal() {
			return nil
		}
		return s.become(e.Status.Context, e.Status.Status)
	case e.Artifact != nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		defer s.note()
		s.heard = time.Now()
		if e.Artifact.Task != s.id {
			return wrongTask(e.Artifact.Task, s.id)
		}
		if s.state.Terminal() {
			return nil
		}
		return s.put(e.Artifact.Artifact, e.Artifact.Append, e.Artifact.Last)
	case e.Message != nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		defer s.note()
		s.heard = time.Now()
		s.hear(e.Message)
		return nil
	}
	return nil // of a later version
}

func wrongTask(got, want string) error {
	return &remoteapi.FormError{Err: fmt.Errorf("an answer about task %s is about task %.80q", want, got)}
}

// become takes in a status. The caller holds mu.
func (s *session) become(context string, st Status) error {
	if !st.State.Known() {
		return &remoteapi.FormError{Err: fmt.Errorf("the task has the state %.60q, which is not known", st.State)}
	}
	if context != "" {
		s.context = context
	}
	s.hear(st.Message)
	phase := phaseWorking
	switch st.State {
	case Submitted:
		phase = phaseQueued
	case InputRequired:
		phase = remoteapi.NeedsInput
	case AuthRequired:
		phase = remoteapi.NeedsAuth
	}
	asked := ""
	if st.State.Interrupted() && st.Message != nil {
		asked = st.Message.ID
	}
	if phase == s.phase && asked != s.asked { // it was answered meanwhile, and asks something else
		s.phases = append(s.phases, phaseWorking, phase)
	} else if phase != s.phase {
		s.phases = append(s.phases, phase)
	}
	s.phases = s.phases[max(0, len(s.phases)-maxPhases):]
	s.phase, s.asked, s.state = phase, asked, st.State
	if st.State.Terminal() {
		if st.Message != nil {
			s.why = strings.TrimSpace(Text(st.Message.Parts))
		}
		s.print()
	}
	return nil
}

const maxPhases = 20

// hear takes in a message of the agent, once. The caller holds mu.
func (s *session) hear(m *Message) {
	if m == nil || m.Role != RoleAgent || s.seen[m.ID] || len(s.seen) >= maxMessages {
		return
	}
	s.seen[m.ID] = true
	text := strings.TrimSpace(Text(m.Parts))
	if text == "" {
		return
	}
	s.events = append(s.events, remoteapi.Event{Type: remoteapi.AssistantEvent, Text: text + "\n"},
		remoteapi.Event{Type: remoteapi.NoteEvent, Text: excerpt.Line(text, 500)})
	if over := len(s.events) - maxEvents; over > 0 {
		s.events, s.dropped = slices.Delete(s.events, 0, over), s.dropped+over
	}
}

// put takes in an artifact, or more of one. The caller holds mu.
func (s *session) put(a Artifact, more, last bool) error {
	text := []byte(Text(a.Parts))
	i := len(s.pieces) - 1
	for i >= 0 && s.pieces[i].id != a.ID {
		i--
	}
	var p *piece
	if i >= 0 {
		p = s.pieces[i]
	}
	switch {
	case p != nil && !more && (bytes.Equal(text, p.text) || !last && p.closed && bytes.HasPrefix(p.text, text)):
		text = nil
	case p != nil && !more && bytes.HasPrefix(text, p.text):
		text = text[len(p.text):]
	case p != nil && !more: // other content than before, which may be printed already
		p.closed, p = true, nil
	}
	if p != nil && p.closed && len(text) > 0 {
		p = nil // it goes on behind what came after it
	}
	if p == nil {
		if len(s.pieces) >= maxPieces {
			return tooMuch(fmt.Errorf("the task has more than %d artifacts", maxPieces))
		}
		p = &piece{id: a.ID}
		s.pieces = append(s.pieces, p)
	}
	if s.kept += len(text); s.kept > maxKept {
		return tooMuch(fmt.Errorf("the artifacts of the task are larger than %d bytes", maxKept))
	}
	p.text = append(p.text, text...)
	p.closed = p.closed || last
	s.print()
	return nil
}

func tooMuch(err error) error { return &remoteapi.RefusedError{Err: err} }

// print extends the output by what will not change. An artifact is printed when those before it are complete. The
// caller holds mu.
func (s *session) print() {
	for s.at < len(s.pieces) {
		p := s.pieces[s.at]
		s.out = append(s.out, p.text[p.given:]...)
		p.given = len(p.text)
		if !p.closed && !s.state.Terminal() {
			return
		}
		if len(p.text) > 0 && p.text[len(p.text)-1] != '\n' {
			s.out = append(s.out, '\n')
		}
		p.closed = true
		s.at++
	}
	if s.state.Terminal() && len(s.pieces) == 0 && s.why != "" && len(s.out) == 0 {
		s.out = []byte(s.why + "\n")
	}
}

// result is the final answer. The caller holds mu.
func (s *session) result() string {
	var all []string
	for _, p := range s.pieces {
		if text := strings.TrimRight(string(p.text), "\n"); text != "" {
			all = append(all, text)
		}
	}
	if len(all) == 0 {
		return s.why
	}
	return strings.Join(all, "\n")
}

// Create sends the prompt, and returns the task that the agent has made. A request that may have arrived before is
// looked for first, by the ID of its message.
func (c *Client) Create(ctx context.Context, r remoteapi.Request) (string, error) {
	a, err := c.find(ctx)
	if err != nil {
		return "", err
	}
	if r.Again {
		id, err := c.made(ctx, a, r.Key)
		if is(err, CodeMethod) || is(err, CodeUnsupported) { // it lists no tasks, but may look at the ID of the message
			err = nil
		}
		if id != "" || err != nil {
			return id, err
		}
	}
	meta := map[string]any{}
	if len(r.Metadata) > 0 {
		if err := json.Unmarshal(r.Metadata, &meta); err != nil {
			return "", &remoteapi.RefusedError{Err: fmt.Errorf("read metadata: %w", err)}
		}
	}
	for key, value := range map[string]string{"agent_type": r.AgentType, "model": r.Model} {
		if _, has := meta[key]; value != "" && !has {
			meta[key] = value
		}
	}
	m := &Message{ID: r.Key, Role: RoleUser, Parts: []Part{TextPart(r.Prompt)}}
	if len(meta) > 0 {
		m.Metadata = meta
	}
	var got Event
	q := SendRequest{Tenant: a.tenant, Message: m, Configuration: atOnce()}
	if err := c.call(ctx, a, SendMessage, q, &got); err != nil {
		return "", err
	}
	switch {
	case got.Task != nil:
		return c.begun(*got.Task)
	case got.Message != nil:
		s := c.session(messageSession + r.Key)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hear(got.Message)
		s.state, s.why = Completed, strings.TrimSpace(Text(got.Message.Parts))
		s.print()
		return s.id, nil
	}
	return "", fmt.Errorf("%s at %s: %w", SendMessage, c.Host(), &remoteapi.FormError{Err: errors.New("the result is neither a task nor a message")})
}

func atOnce() *Configuration {
	return &Configuration{OutputModes: []string{"text/plain", "application/json"}, Immediately: true}
}

func (c *Client) begun(t Task) (string, error) {
	err := remoteapi.CheckSession(t.ID)
	if err != nil {
		err = &remoteapi.RefusedError{Err: err}
	} else {
		err = c.session(t.ID).task(t)
	}
	if err != nil {
		return "", fmt.Errorf("%s at %s: %w", SendMessage, c.Host(), err)
	}
	return t.ID, nil
}

// Find is the task that a request has made; empty: there is none.
func (c *Client) Find(ctx context.Context, r remoteapi.Request) (string, error) {
	a, err := c.find(ctx)
	if err != nil {
		return "", err
	}
	return c.made(ctx, a, r.Key)
}

// made is the task that a message has made; empty: there is none.
func (c *Client) made(ctx context.Context, a agent, message string) (string, error) {
	size, history := 100, 100
	q := ListRequest{Tenant: a.tenant, PageSize: &size, History: &history}
	for range listPages {
		var list List
		if err := c.call(ctx, a, ListTasks, q, &list); err != nil {
			return "", err
		}
		for _, t := range list.Tasks {
			if slices.ContainsFunc(t.History, func(m Message) bool { return m.ID == message }) {
				return t.ID, remoteapi.CheckSession(t.ID)
			}
		}
		if list.Next == "" || list.Next == q.PageToken {
			break
		}
		q.PageToken = list.Next
	}
	return "", nil
}

// Poll returns what is new of a task since a cursor. If the agent streams, it waits for something, for hold at most.
func (c *Client) Poll(ctx context.Context, id, cursor string, hold time.Duration) (remoteapi.Page, error) {
	s := c.session(id)
	if strings.HasPrefix(id, messageSession) {
		s.mu.Lock()
		lost := s.state != Completed
		s.mu.Unlock()
		if lost {
			return remoteapi.Page{}, &remoteapi.RefusedError{Err: errors.New("the agent answered with a message, which an earlier host did not keep")}
		}
		return s.page(cursor), nil
	}
	a, err := c.find(ctx)
	if err != nil {
		return remoteapi.Page{}, err
	}
	if !s.follow(c, a) {
		if err := c.refresh(ctx, a, s); err != nil {
			return remoteapi.Page{}, err
		}
		return s.page(cursor), nil
	}
	late := time.NewTimer(hold)
	defer late.Stop()
	for wait := true; wait; {
		ready, changed, failed := s.ready(cursor)
		if failed != nil {
			return remoteapi.Page{}, failed
		}
		if ready {
			break
		}
		select {
		case <-changed:
		case <-late.C:
			wait = false
		case <-ctx.Done():
			return remoteapi.Page{}, context.Cause(ctx)
		}
	}
	s.mu.Lock()
	silent := time.Since(s.heard) > c.silence
	s.mu.Unlock()
	if silent {
		if err := c.refresh(ctx, a, s); err != nil {
			return remoteapi.Page{}, err
		}
	}
	return s.page(cursor), nil
}

// refresh asks for the task.
func (c *Client) refresh(ctx context.Context, a agent, s *session) error {
	s.mu.Lock()
	done := s.state.Terminal()
	s.mu.Unlock()
	if done {
		return nil
	}
	var t Task
	if err := c.call(ctx, a, GetTask, TaskRequest{Tenant: a.tenant, ID: s.id}, &t); err != nil {
		return err
	}
	return s.task(t)
}

// follow makes sure that a stream of the task is read, and reports whether that can be.
func (s *session) follow(c *Client, a agent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !a.streams || s.noMore || c.life.Err() != nil:
		return false
	case s.open || s.state.Terminal() || s.failed != nil:
		return true
	}
	ctx, cancel := context.WithCancel(c.life)
	s.open, s.cancel = true, cancel
	c.streams.Go(func() { // ends with the stream, Release or Close
		defer cancel()
		err := c.stream(ctx, a, SubscribeToTask, TaskRequest{Tenant: a.tenant, ID: s.id}, s.take)
		s.mu.Lock()
		defer s.mu.Unlock()
		defer s.note()
		s.open = false
		switch {
		case ctx.Err() != nil || s.state.Terminal():
		case is(err, CodeUnsupported) || is(err, CodeMethod): // it has ended, or streams no tasks
			s.noMore = true
		default:
			s.failed = err // nil: the agent has closed the stream, and it is opened anew
		}
	})
	return true
}

// ready reports whether a poll has something to tell, and returns what is closed at the next change. It takes the
// failure of the stream.
func (s *session) ready(cursor string) (bool, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := s.failed
	s.failed = nil
	news := !s.open || s.state.Terminal() || len(s.phases) > 0 || int64(len(s.out)) > s.given ||
		s.dropped+len(s.events) > s.from(cursor)
	return news, s.changed, failed
}

// from is the event that a cursor is before. The caller holds mu.
func (s *session) from(cursor string) int {
	n, err := strconv.Atoi(cursor)
	if err != nil {
		return 0
	}
	return n
}

// page is what is new since a cursor.
func (s *session) page(cursor string) remoteapi.Page {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.dropped + len(s.events)
	from := min(max(s.from(cursor)-s.dropped, 0), len(s.events))
	p := remoteapi.Page{Events: slices.Clone(s.events[from:]), Cursor: strconv.Itoa(all), Phase: s.phase,
		OutputBytes: int64(len(s.out)), Status: remoteapi.Running}
	s.given = p.OutputBytes
	if len(s.phases) > 0 {
		p.Phase, s.phases = s.phases[0], s.phases[1:]
	}
	switch s.state { // the one table of states
	case Submitted:
		p.Status = remoteapi.Queued
	case Completed:
		p.Status, p.Result = remoteapi.Completed, s.result()
	case Failed:
		p.Status, p.Error = remoteapi.Failed, s.why
	case Rejected:
		p.Status, p.Error = remoteapi.Failed, strings.TrimSpace("the agent refused the task: "+s.why)
	case Canceled:
		p.Status = remoteapi.Archived
	}
	return p
}

// Output is the artifacts of a task from an offset on.
func (c *Client) Output(_ context.Context, id string, offset int64) ([]byte, error) {
	s := c.session(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset < 0 || offset >= int64(len(s.out)) {
		return nil, nil
	}
	return slices.Clone(s.out[offset:min(int64(len(s.out)), offset+remoteapi.MaxOutput)]), nil
}

// Send gives the task a message: an answer, if it asks something.
func (c *Client) Send(ctx context.Context, id, text string) error {
	a, err := c.find(ctx)
	if err != nil {
		return err
	}
	if strings.HasPrefix(id, messageSession) {
		return &remoteapi.RefusedError{Err: errors.New("the agent answered with a message: there is no task to go on with")}
	}
	s := c.session(id)
	s.mu.Lock()
	m := &Message{ID: rand.Text(), Role: RoleUser, Task: id, Context: s.context, Parts: []Part{TextPart(text)}}
	s.mu.Unlock()
	var got Event
	q := SendRequest{Tenant: a.tenant, Message: m, Configuration: atOnce()}
	if err := c.call(ctx, a, SendMessage, q, &got); err != nil {
		return err
	}
	if got.Message != nil {
		return s.take(got)
	}
	return nil // what becomes of the task comes in its order, by the stream or a poll
}

// Archive cancels the task, and returns when it has ended. One that has ended is no error.
func (c *Client) Archive(ctx context.Context, id string) error {
	a, err := c.find(ctx)
	if err != nil {
		return err
	}
	if strings.HasPrefix(id, messageSession) {
		return nil
	}
	var t Task
	err = c.call(ctx, a, CancelTask, TaskRequest{Tenant: a.tenant, ID: id}, &t)
	for err == nil && !t.Status.State.Terminal() {
		late := time.NewTimer(cancelPace)
		select {
		case <-late.C:
			t = Task{}
			err = c.call(ctx, a, GetTask, TaskRequest{Tenant: a.tenant, ID: id}, &t)
		case <-ctx.Done():
			late.Stop()
			return fmt.Errorf("%s at %s: the task was cancelled, and is still %.60s", CancelTask, c.Host(), t.Status.State)
		}
	}
	if is(err, CodeNotCancelable) || is(err, CodeTaskNotFound) {
		return nil
	}
	return err
}

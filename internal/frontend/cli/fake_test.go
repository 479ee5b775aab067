package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/project"
	"github.com/drover-dev/drover/internal/frontend/cli/run"
	"github.com/drover-dev/drover/internal/frontend/cli/setup"
	"github.com/drover-dev/drover/internal/frontend/cli/watch"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testPatience = 10 * time.Second

func at(s int) time.Time { return time.Date(2030, 1, 1, 12, 0, s, 0, time.UTC) }

func when(s int) *time.Time { t := at(s); return &t }

func ptr[T any](v T) *T { return &v }

func cmdArgs(s string) []string { return strings.Fields(s) }

// session is a fake session, live or not.
type session struct {
	control.API // nil: what is not faked must not be called

	info    control.Info
	openErr error

	mu      sync.Mutex
	tasks   []task.Record            // newest first
	whole   map[string]task.Question // with all of their input
	output  map[task.ID][]byte
	changed chan struct{}
	started []control.StartRequest
	calls   int // of Start
	stops   []control.StopRequest
	receipt *task.Receipt
	waiting chan struct{} // gets one value per wait for tasks or output that blocks
	heeding chan struct{} // the same of waits for questions
	text    string
	open    []task.Question
	decided []control.DecideRequest
	told    []string
	gone    bool // the host went: every answer is Unavailable
}

func newSession(id string, live bool, tasks ...task.Record) *session {
	s := &session{
		info:    control.Info{Session: task.ID(id), Project: "/p", Role: "background", Live: live, StartTime: at(0), Tasks: control.Counts{Total: len(tasks)}},
		tasks:   tasks,
		output:  map[task.ID][]byte{},
		changed: make(chan struct{}),
		waiting: make(chan struct{}, 10),
		heeding: make(chan struct{}, 10),
	}
	for i := range s.tasks {
		s.tasks[i].Session = s.info.Session
	}
	if !live {
		s.info.EndTime = when(50)
	}
	return s
}

// handle is how a session is listed.
type handle struct{ *session }

func (h handle) Info() control.Info { return h.info }

func (h handle) Open(context.Context) (control.API, func(), error) {
	if h.openErr != nil {
		return nil, nil, fmt.Errorf("open session %s: %w", h.info.Session, h.openErr)
	}
	return h.session, func() {}, nil
}

func (h handle) Reach(ctx context.Context) (control.API, func(), error) { return h.Open(ctx) }

func (s *session) Wake() (func(bool), error) { return func(bool) {}, nil }

func (s *session) Gone(context.Context) bool { return true }

func (s *session) Revive(context.Context) (control.API, func(), error) {
	return s, func() {}, s.openErr
}

// change alters the session and wakes who waits in it.
func (s *session) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *session) finish(id task.ID, v task.Verb, code int) {
	s.change(func() {
		for i, r := range s.tasks {
			if r.ID == id {
				s.tasks[i], _ = lifecycle.Apply(r, lifecycle.Change{Verb: v, At: at(40), ExitCode: &code, Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonExit}})
			}
		}
	})
}

func (s *session) lost() error {
	if s.gone {
		return &control.Error{Code: control.Unavailable, Message: "the connection broke"}
	}
	return nil
}

func (s *session) find(ref string) (task.Record, error) {
	if err := s.lost(); err != nil {
		return task.Record{}, err
	}
	var hits []task.Record
	var ids []string
	for _, r := range s.tasks {
		if string(r.ID) == ref || r.Name == ref {
			return r, nil
		}
		if strings.HasPrefix(string(r.ID), ref) {
			hits, ids = append(hits, r), append(ids, string(r.ID))
		}
	}
	switch len(hits) {
	case 0:
		return task.Record{}, control.NotFoundError(ref)
	case 1:
		return hits[0], nil
	}
	return task.Record{}, &control.Error{Code: control.Ambiguous, Message: "ambiguous", Matches: ids}
}

func (s *session) Get(_ context.Context, ref string) (task.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(ref)
}

func (s *session) List(_ context.Context, req control.ListRequest) (control.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := control.Page{}
	for _, r := range s.tasks {
		if !req.All && r.Status.Terminal() {
			continue
		}
		if req.Limit > 0 && len(p.Tasks) == req.Limit {
			p.Next = 1
			break
		}
		p.Tasks = append(p.Tasks, r)
	}
	return p, s.lost()
}

func (s *session) Start(_ context.Context, reqs []control.StartRequest) ([]control.Started, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	var out []control.Started
	for _, r := range reqs {
		if r.Name == "taken" {
			out = append(out, control.Started{Error: &control.Error{Code: control.Conflict, Message: "start: the name is taken"}})
			continue
		}
		s.started = append(s.started, r)
		out = append(out, control.Started{Task: &task.Record{ID: task.ID(fmt.Sprintf("b%08d", len(s.started))), Name: r.Name, Status: task.Pending}})
	}
	return out, s.lost()
}

func (s *session) Wait(ctx context.Context, req control.WaitRequest) (control.WaitReply, error) {
	var up <-chan time.Time
	if req.Timeout > 0 {
		up = time.After(req.Timeout)
	}
	for {
		s.mu.Lock()
		changed := s.changed
		var reply, first control.WaitReply
		ended := 0
		for _, ref := range req.Refs {
			r, err := s.find(ref)
			if err != nil {
				s.mu.Unlock()
				return reply, err
			}
			reply.Tasks = append(reply.Tasks, r)
			if r.Status.Terminal() {
				ended++
				first.Tasks = append(first.Tasks, r)
			}
		}
		s.mu.Unlock()
		if req.Any && ended > 0 {
			return first, nil
		}
		if ended == len(req.Refs) {
			return reply, nil
		}
		s.waiting <- struct{}{}
		select {
		case <-changed:
		case <-up:
			reply.TimedOut = true
			return reply, nil
		case <-ctx.Done():
			return reply, context.Cause(ctx)
		}
	}
}

func (s *session) Stop(_ context.Context, req control.StopRequest) (task.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, req)
	if s.receipt != nil {
		return *s.receipt, nil
	}
	var r task.Receipt
	for _, ref := range req.Refs {
		r.Stopped = append(r.Stopped, task.Stopped{
			ID: task.ID(ref), Status: task.Killed, Cause: &task.Cause{Actor: req.Actor, Reason: task.ReasonStopped, Signal: "SIGTERM"},
			Signals: []task.SignalSent{{Signal: "SIGTERM"}, {Signal: "SIGKILL", AfterMS: 2000}}, EndedAfterMS: 2010,
		})
	}
	return r, nil
}

func (s *session) Promote(ctx context.Context, ref string) (task.Record, error) {
	r, err := s.Get(ctx, ref)
	if err == nil && r.Status.Terminal() {
		err = &control.Error{Code: control.Conflict, Message: "it has ended"}
	}
	return r, err
}

func (s *session) Send(ctx context.Context, req control.SendRequest) (task.Record, error) {
	if req.Ref == string(s.info.Session) {
		s.told = append(s.told, "prompt: "+req.Text)
		return task.Record{ID: s.info.Session}, nil
	}
	r, err := s.Get(ctx, req.Ref)
	if err == nil {
		s.told = append(s.told, string(r.ID)+": "+req.Text)
	}
	return r, err
}

func (s *session) Pause(ctx context.Context, refs []string) ([]task.Record, error) {
	var recs []task.Record
	for _, ref := range refs {
		r, err := s.Get(ctx, ref)
		if err == nil && r.Status.Terminal() {
			err = &control.Error{Code: control.Conflict, Message: "it has ended"}
		}
		if err != nil {
			return nil, err
		}
		r.Paused = true
		recs = append(recs, r)
	}
	return recs, nil
}

func (s *session) Resume(ctx context.Context, req control.ResumeRequest) (task.Record, error) {
	r, err := s.Get(ctx, req.Ref)
	if err == nil {
		s.told = append(s.told, string(r.ID)+" goes on: "+req.Prompt)
	}
	return r, err
}

func (s *session) Output(ctx context.Context, req control.OutputRequest) (control.Chunk, error) {
	for {
		s.mu.Lock()
		changed := s.changed
		r, err := s.find(req.Ref)
		if err != nil {
			s.mu.Unlock()
			return control.Chunk{}, err
		}
		data := s.output[r.ID]
		off := min(req.Offset, int64(len(data)))
		if req.Tail > 0 {
			lines := bytes.SplitAfter(data, []byte("\n"))
			off = int64(len(data) - len(bytes.Join(lines[max(0, len(lines)-1-req.Tail):], nil)))
		}
		part := data[off:]
		part = part[:min(len(part), 10)] // small pieces: sequences get cut
		c := control.Chunk{Data: bytes.Clone(part), Offset: off, Next: off + int64(len(part)), Size: int64(len(data))}
		c.Ended = r.Status.Terminal() && c.Next == c.Size
		s.mu.Unlock()
		if len(part) > 0 || c.Ended || req.Wait == 0 {
			return c, nil
		}
		s.waiting <- struct{}{}
		select {
		case <-changed:
		case <-time.After(req.Wait):
			return c, nil
		case <-ctx.Done():
			return c, context.Cause(ctx)
		}
	}
}

func (s *session) Result(ctx context.Context, req control.ResultRequest) (control.Answer, error) {
	ref := req.Ref
	r, err := s.Get(ctx, ref)
	if err == nil && !r.Status.Terminal() {
		err = &control.Error{Code: control.Conflict, Message: "task " + ref + " has not ended"}
	}
	return control.Answer{Task: r, Text: s.text}, err
}

func (s *session) Approvals(ctx context.Context, req control.ApprovalsRequest) (control.Approvals, error) {
	for {
		s.mu.Lock()
		changed := s.changed
		now := control.Approvals{Questions: slices.Clone(s.open), Version: int64(len(s.open) + 2*len(s.decided))}
		if req.ID != "" {
			now.Questions = slices.DeleteFunc(now.Questions, func(q task.Question) bool { return q.ID != req.ID })
			if q, there := s.whole[req.ID]; there {
				now.Questions = []task.Question{q}
			}
		}
		err := s.lost()
		s.mu.Unlock()
		if err != nil || req.Wait == 0 || now.Version != req.After {
			return now, err
		}
		s.heeding <- struct{}{}
		select {
		case <-changed:
		case <-ctx.Done():
			return now, context.Cause(ctx)
		}
	}
}

func (s *session) State(context.Context, control.StateRequest) (control.State, error) {
	panic("not used")
}

func (s *session) Decide(_ context.Context, req control.DecideRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.open {
		if q.ID == req.ID && q.Digest == req.Digest {
			s.open, s.decided = slices.Delete(s.open, i, i+1), append(s.decided, req)
			return nil
		}
	}
	return &control.Error{Code: control.Conflict, Message: "question " + req.ID + " has been answered already"}
}

func (s *session) Info(context.Context) (control.Info, error) { return s.info, nil }

func (s *session) Events(context.Context, task.Seq) iter.Seq2[task.Event, error] { panic("not used") }

// world is a fake of everything around the command line.
type world struct {
	console.Folder // nil: what is not faked must not be called

	mine, others []*session
	background   *session
	workers      []fleetwire.Worker
	foreground   func(run.Foreground) (task.Record, error)
	removed      []task.ID
	findings     []console.Finding
	demo         error
	stdin        io.Reader
	terminal     bool
	plain        bool      // the user wants no colours
	stdout       io.Writer // instead of the buffer
}

func (w *world) Background(context.Context) (control.API, func(), error) {
	if w.background == nil {
		return nil, nil, errors.New("fork host: out of memory")
	}
	return w.background, func() {}, nil
}

func (w *world) Revive(context.Context) error { return nil }

func (w *world) Known(_ context.Context, live, all bool) ([]console.Session, error) {
	from := w.mine
	if all {
		from = append(slices.Clone(from), w.others...)
	}
	var out []console.Session
	for _, s := range from {
		if s.info.Live || !live {
			out = append(out, handle{s})
		}
	}
	return out, nil
}

func (w *world) At(of console.Session) (console.Folder, string, []string, error) {
	there := *w
	there.background = of.(handle).session
	return &there, "/work", nil, nil
}

// What groups need beyond the console: what is not faked must not be called.
type (
	fakeRoot struct {
		Outside
		w *world
	}
	fakeRun struct {
		run.Outside
		w *world
	}
	fakeWatch struct {
		watch.Outside
		w *world
	}
	fakeProject struct {
		project.Outside
		w *world
	}
	fakeSetup struct {
		setup.Outside
		w *world
	}
)

func (f fakeRun) RunForeground(_ context.Context, r run.Foreground) (task.Record, error) {
	return f.w.foreground(r)
}

func (f fakeRun) Demo(context.Context, io.Writer, bool, int) error { return f.w.demo }

func (f fakeWatch) Workers(context.Context) ([]fleetwire.Worker, error) { return f.w.workers, nil }

func (f fakeProject) Remove(_ context.Context, of control.Info) error {
	f.w.removed = append(f.w.removed, of.Session)
	return nil
}

func (f fakeSetup) Seatbelt() (string, error)                { return "(version 1)\n", nil }
func (f fakeSetup) Doctor(context.Context) []console.Finding { return f.w.findings }

type outcome struct {
	code     int
	out, err string
}

func (w *world) deps(out, errw io.Writer) Deps {
	if w.stdout != nil {
		out = w.stdout
	}
	env := []string{"A=b"}
	if w.plain {
		env = append(env, "NO_COLOR=1")
	}
	return Deps{
		Console: console.Console{
			Stdin: w.stdin, Stdout: out, Stderr: errw, Env: env, Cwd: "/work", Version: "1.2.3", Folder: w,
			IsTerminal: func(x io.Writer) bool { return w.terminal && x == out },
			Now:        func() time.Time { return at(60) },
		},
		Root: fakeRoot{w: w}, Run: fakeRun{w: w}, Watch: fakeWatch{w: w}, Project: fakeProject{w: w}, Setup: fakeSetup{w: w},
	}
}

// do runs one command line.
func (w *world) do(t *testing.T, words ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testPatience)
	defer cancel()
	return w.doIn(ctx, words...)
}

func (w *world) doIn(ctx context.Context, words ...string) outcome {
	var out, errw bytes.Buffer
	cmd := New(w.deps(&out, &errw))
	cmd.SetArgs(words)
	code := Execute(ctx, cmd, &errw)
	return outcome{code, out.String(), errw.String()}
}

func recv[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(testPatience):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

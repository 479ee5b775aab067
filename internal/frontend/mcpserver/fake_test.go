package mcpserver_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// session is a session in memory: tasks end when the test says so.
type session struct {
	control.API // nil: a method that no tool should call panics

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	tasks   []task.Record
	events  []task.Event
	starts  []control.StartRequest
	stops   []control.StopRequest
	outputs []control.OutputRequest
	open    []task.Question
	decided []control.DecideRequest
	output  string
	answer  string
	refuse  *control.Error // of starts
	closed  bool           // the host has ended
	held    chan string    // gets every lease that is held
	letGo   chan string    // gets every lease that is given up
	end     chan struct{}  // closed by shut
}

func newSession() *session {
	return &session{
		changed: make(chan struct{}), held: make(chan string, 10), letGo: make(chan string, 10), end: make(chan struct{}),
	}
}

var errClosed = &control.Error{Code: control.Unavailable, Message: "no session listens", Fix: "see `drover sessions`"}

// do runs f and wakes everybody who waits.
func (s *session) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// until waits for f to be true.
func (s *session) until(ctx context.Context, f func() bool) error {
	for {
		s.mu.Lock()
		ok, closed, changed := f(), s.closed, s.changed
		s.mu.Unlock()
		switch {
		case closed:
			return errClosed
		case ok:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// shut ends the host.
func (s *session) shut() {
	s.do(func() { s.closed = true })
	close(s.end)
}

// change moves a task and tells it.
func (s *session) change(id task.ID, f func(*task.Record)) {
	s.do(func() {
		i := s.find(string(id))
		f(&s.tasks[i])
		s.events = append(s.events, task.Event{Seq: task.Seq(len(s.events) + 1), Verb: task.Report, At: time.Now(), Task: s.tasks[i]})
	})
}

func (s *session) finish(id task.ID, status task.Status, code int) {
	s.change(id, func(r *task.Record) {
		now := time.Now()
		r.Status, r.ExitCode, r.EndTime = status, &code, &now
		r.Cause = &task.Cause{Actor: task.ByItself, Reason: task.ReasonExit}
	})
}

func (s *session) find(ref string) int {
	return slices.IndexFunc(s.tasks, func(r task.Record) bool { return string(r.ID) == ref || r.Name == ref })
}

func (s *session) Info(ctx context.Context) (control.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return control.Info{}, errClosed
	}
	return control.Info{}, nil
}

func (s *session) Start(ctx context.Context, reqs []control.StartRequest) ([]control.Started, error) {
	var out []control.Started
	closed := false
	s.do(func() {
		if closed = s.closed; closed {
			return
		}
		for _, r := range reqs {
			s.starts = append(s.starts, r)
			if s.refuse != nil {
				out = append(out, control.Started{Error: s.refuse})
				continue
			}
			rec := task.Record{Status: task.Running, Name: r.Name, Keep: r.Keep, OutputFile: "/o/file", CreateTime: time.Now()}
			if r.Agent != nil {
				rec.ID, rec.Kind, rec.AgentType = task.NewID(task.LocalAgent), task.LocalAgent, r.Agent.Type
			} else {
				rec.ID, rec.Kind, rec.Command = task.NewID(task.LocalBash), task.LocalBash, r.Shell.Line
			}
			s.tasks = append(s.tasks, rec)
			out = append(out, control.Started{Task: &rec})
		}
	})
	if closed {
		return nil, errClosed
	}
	return out, nil
}

func (s *session) List(ctx context.Context, req control.ListRequest) (control.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return control.Page{}, errClosed
	}
	var page control.Page
	for _, r := range slices.Backward(s.tasks) {
		if req.All || !r.Status.Terminal() {
			page.Tasks = append(page.Tasks, r)
		}
	}
	if len(page.Tasks) > req.Limit {
		page.Tasks, page.Next = page.Tasks[:req.Limit], 1
	}
	return page, nil
}

func (s *session) Wait(ctx context.Context, req control.WaitRequest) (control.WaitReply, error) {
	for _, ref := range req.Refs {
		s.mu.Lock()
		unknown := s.find(ref) < 0 && !s.closed
		s.mu.Unlock()
		if unknown {
			return control.WaitReply{}, control.NotFoundError(ref)
		}
	}
	timed, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if req.Timeout > 0 {
		t := time.AfterFunc(req.Timeout, func() { cancel(context.DeadlineExceeded) })
		defer t.Stop()
	}
	err := s.until(timed, func() bool {
		ended := 0
		for _, ref := range req.Refs {
			if s.tasks[s.find(ref)].Status.Terminal() {
				ended++
			}
		}
		return ended == len(req.Refs) || req.Any && ended > 0
	})
	var reply control.WaitReply
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		reply.TimedOut, err = true, nil
	}
	if err != nil {
		return reply, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range req.Refs {
		reply.Tasks = append(reply.Tasks, s.tasks[s.find(ref)])
	}
	return reply, nil
}

func (s *session) Stop(ctx context.Context, req control.StopRequest) (task.Receipt, error) {
	var out task.Receipt
	var err error
	s.do(func() {
		s.stops = append(s.stops, req)
		for _, ref := range req.Refs {
			i := s.find(ref)
			if i < 0 {
				err = control.NotFoundError(ref)
				return
			}
			s.tasks[i].Status = task.Killed
			out.Stopped = append(out.Stopped, task.Stopped{
				ID: s.tasks[i].ID, Status: task.Killed, EndedAfterMS: 12,
				Cause:   &task.Cause{Actor: req.Actor, Reason: task.ReasonStopped},
				Signals: []task.SignalSent{{Signal: "SIGTERM", AfterMS: 1}},
			})
		}
		out.Survivors = []task.Survivor{{PID: 7, Command: "evil\x1b[31m", Why: "another user's"}}
	})
	return out, err
}

func (s *session) Output(ctx context.Context, req control.OutputRequest) (control.Chunk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outputs = append(s.outputs, req)
	if s.find(req.Ref) < 0 {
		return control.Chunk{}, control.NotFoundError(req.Ref)
	}
	from := min(int(req.Offset), len(s.output))
	to := min(from+req.Max, len(s.output))
	if req.Tail > 0 {
		to = len(s.output)
		from = max(0, to-req.Max)
	}
	return control.Chunk{
		Data: []byte(s.output[from:to]), Offset: int64(from), Next: int64(to), Size: int64(len(s.output)),
		Ended: to == len(s.output) && s.tasks[s.find(req.Ref)].Status.Terminal(),
	}, nil
}

func (s *session) Result(ctx context.Context, req control.ResultRequest) (control.Answer, error) {
	ref := req.Ref
	s.mu.Lock()
	defer s.mu.Unlock()
	return control.Answer{Task: s.tasks[s.find(ref)], Text: s.answer}, nil
}

func (s *session) Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error] {
	return func(yield func(task.Event, error) bool) {
		for at := int(after); ; at++ {
			if err := s.until(ctx, func() bool { return len(s.events) > at }); err != nil {
				yield(task.Event{}, err)
				return
			}
			s.mu.Lock()
			e := s.events[at]
			s.mu.Unlock()
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (s *session) HoldLease(ctx context.Context, lease string) error {
	s.held <- lease
	select {
	case <-ctx.Done():
	case <-s.end:
	}
	s.letGo <- lease
	return context.Cause(ctx)
}

func (s *session) Get(ctx context.Context, ref string) (task.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(ref); i >= 0 {
		return s.tasks[i], nil
	}
	return task.Record{}, control.NotFoundError(ref)
}

// ask opens a question of a task.
func (s *session) ask(q task.Question) {
	s.do(func() { s.open = append(s.open, q) })
}

func (s *session) Approvals(ctx context.Context, req control.ApprovalsRequest) (control.Approvals, error) {
	version := func() int64 { return int64(len(s.open) + 2*len(s.decided)) }
	if req.Wait > 0 {
		if err := s.until(ctx, func() bool { return version() != req.After }); err != nil {
			return control.Approvals{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := control.Approvals{Version: version()}
	for _, q := range s.open {
		if req.ID == "" || q.ID == req.ID {
			out.Questions = append(out.Questions, q)
		}
	}
	return out, nil
}

func (s *session) Decide(ctx context.Context, req control.DecideRequest) error {
	s.do(func() {
		s.open = slices.DeleteFunc(s.open, func(q task.Question) bool { return q.ID == req.ID })
		s.decided = append(s.decided, req)
	})
	return nil
}

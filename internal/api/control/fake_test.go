package control

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/attention"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// fake is a session in memory: enough of one to tell right answers from wrong.
type fake struct {
	mu      sync.Mutex
	tasks   []task.Record           // oldest first
	events  []task.Event            // guarded by mu
	more    chan struct{}           // closed at every new event
	asked   map[string]StartRequest // by task name
	prompts []string

	schedules []Schedule
	stops     []StopRequest
	open      []task.Question // that wait for an answer
	decided   []DecideRequest
	state     State
	known     chan int64 // versions that somebody waits behind

	pieces    []Piece
	refused   error         // of a watch
	unwatched chan struct{} // a watcher is gone

	held     chan string // a lease began
	released chan string // a lease ended
	block    chan struct{}
	left     chan task.Seq // a reader of events is gone: where it began
	blocked  chan struct{} // a Prompt that says "block" waits
}

func newFake() *fake {
	return &fake{
		more: make(chan struct{}), asked: map[string]StartRequest{},
		held: make(chan string, 1), released: make(chan string, 1),
		left: make(chan task.Seq, 10), unwatched: make(chan struct{}, 1),
		state: State{Version: 1}, known: make(chan int64, 100),
		block: make(chan struct{}), blocked: make(chan struct{}, 1),
	}
}

func at(n int) time.Time { return time.Date(2030, 1, 1, 0, 0, n, 0, time.UTC) }

func (f *fake) emit(verb task.Verb, r task.Record) {
	f.events = append(f.events, task.Event{Seq: task.Seq(len(f.events) + 1), Verb: verb, At: at(len(f.events)), Task: r})
	close(f.more)
	f.more = make(chan struct{})
}

func (f *fake) add(r task.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tasks = append(f.tasks, r)
	f.emit(task.Create, r)
}

func (f *fake) end(name string, verb task.Verb) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, r := range f.tasks {
		if r.Name == name {
			next, err := lifecycle.Apply(r, lifecycle.Change{Verb: verb, At: at(99)})
			if err != nil {
				panic(err)
			}
			f.tasks[i] = next
			f.emit(verb, next)
		}
	}
}

func (f *fake) find(ref string) (task.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []task.Record
	for _, r := range f.tasks {
		if r.Name == ref || string(r.ID) == ref {
			return r, nil
		}
		if ref != "" && strings.HasPrefix(string(r.ID), ref) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return task.Record{}, NotFoundError(ref)
	case 1:
		return found[0], nil
	}
	e := &Error{Code: Ambiguous, Message: ref + " fits several tasks", Fix: "give more of the ID"}
	for _, r := range found {
		e.Matches = append(e.Matches, string(r.ID))
	}
	return task.Record{}, e
}

func (f *fake) Info(context.Context) (Info, error) {
	return Info{Session: "s00000000", Project: "/p", Title: "a<b>&\u2028", Live: true, StartTime: at(0)}, nil
}

func (f *fake) Start(_ context.Context, reqs []StartRequest) ([]Started, error) {
	out := make([]Started, 0, len(reqs))
	for _, r := range reqs {
		if r.Shell == nil {
			out = append(out, Started{Error: &Error{Code: Invalid, Message: "nothing to start", Fix: "give a command"}})
			continue
		}
		rec := task.Record{ID: task.ID("b" + r.Name), Name: r.Name, Kind: task.LocalBash, Status: task.Running, CreateTime: at(1), Cwd: r.Cwd}
		f.add(rec)
		f.mu.Lock()
		f.asked[r.Name] = r
		f.mu.Unlock()
		out = append(out, Started{Task: &rec})
	}
	return out, nil
}

func (f *fake) List(_ context.Context, req ListRequest) (Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := Page{Tasks: []task.Record{}}
	for i := len(f.tasks) - 1; i >= 0; i-- {
		r := f.tasks[i]
		if !req.All && r.Status.Terminal() || req.Under != "" && r.Parent != req.Under || req.Before != 0 && i+1 >= int(req.Before) {
			continue
		}
		if req.Limit > 0 && len(p.Tasks) == req.Limit {
			p.Next = task.Seq(i + 2)
			break
		}
		p.Tasks = append(p.Tasks, r)
	}
	return p, nil
}

func (f *fake) Get(_ context.Context, ref string) (task.Record, error) { return f.find(ref) }

func (f *fake) Wait(ctx context.Context, req WaitRequest) (WaitReply, error) {
	var timeout <-chan time.Time
	if req.Timeout > 0 {
		timeout = time.After(req.Timeout)
	}
	for {
		f.mu.Lock()
		more := f.more
		f.mu.Unlock()
		reply := WaitReply{Tasks: []task.Record{}}
		ended := 0
		for _, ref := range req.Refs {
			r, err := f.find(ref)
			if err != nil {
				return WaitReply{}, err
			}
			reply.Tasks = append(reply.Tasks, r)
			if r.Status.Terminal() {
				ended++
			}
		}
		if ended == len(req.Refs) || req.Any && ended > 0 {
			return reply, nil
		}
		select {
		case <-more:
		case <-timeout:
			reply.TimedOut = true
			return reply, nil
		case <-ctx.Done():
			return WaitReply{}, context.Cause(ctx)
		}
	}
}

func (f *fake) Stop(_ context.Context, req StopRequest) (task.Receipt, error) {
	f.mu.Lock()
	f.stops = append(f.stops, req)
	f.mu.Unlock()
	rc := task.Receipt{Stopped: []task.Stopped{}, Survivors: []task.Survivor{{PID: 7, Command: "sleep", Why: "unkillable"}}}
	for _, ref := range req.Refs {
		r, err := f.find(ref)
		if err != nil {
			return task.Receipt{}, err
		}
		rc.Stopped = append(rc.Stopped, task.Stopped{ID: r.ID, Status: task.Killed, Signals: []task.SignalSent{{Signal: "SIGTERM", AfterMS: 1}}})
	}
	return rc, nil
}

func (f *fake) Promote(_ context.Context, ref string) (task.Record, error) {
	r, err := f.find(ref)
	if err != nil {
		return r, err
	}
	next, err := lifecycle.Apply(r, lifecycle.Change{Verb: task.Background})
	if err != nil {
		return task.Record{}, AsError(err)
	}
	return next, nil
}

func (f *fake) Send(_ context.Context, req SendRequest) (task.Record, error) {
	r, err := f.find(req.Ref)
	if err == nil {
		f.mu.Lock()
		f.prompts = append(f.prompts, req.From+": "+req.Text)
		f.mu.Unlock()
	}
	return r, err
}

func (f *fake) Pause(_ context.Context, refs []string) ([]task.Record, error) {
	recs := []task.Record{}
	for _, ref := range refs {
		r, err := f.find(ref)
		if err == nil {
			r, err = lifecycle.Apply(r, lifecycle.Change{Verb: task.Pause})
		}
		if err != nil {
			return nil, AsError(err)
		}
		recs = append(recs, r)
	}
	return recs, nil
}

func (f *fake) Resume(ctx context.Context, req ResumeRequest) (task.Record, error) {
	return f.Send(ctx, SendRequest{Ref: req.Ref, Text: req.Prompt, From: "resume"})
}

func (f *fake) Interrupt(_ context.Context, ref string) (task.Record, error) {
	return f.Send(context.Background(), SendRequest{Ref: ref, From: "interrupt"})
}

func (f *fake) Output(_ context.Context, req OutputRequest) (Chunk, error) {
	if _, err := f.find(req.Ref); err != nil {
		return Chunk{}, err
	}
	data := []byte("one\ntwo\x00\xff\x1b[2J<&>\n")
	return Chunk{Data: data[req.Offset:], Offset: req.Offset, Next: int64(len(data)), Size: int64(len(data)), Ended: req.Wait == time.Second && req.Tail == 3 && req.Max == 9}, nil
}

func (f *fake) Messages(_ context.Context, req MessagesRequest) (Messages, error) {
	r, err := f.find(req.Ref)
	if err != nil {
		return Messages{}, err
	}
	return Messages{Task: r, List: []Message{{Role: "user", At: r.CreateTime, Parts: []Part{{Type: "tool_use", Tool: "Bash", Text: fmt.Sprint(req.Limit), Cut: 7}}}}}, nil
}

func (f *fake) Result(_ context.Context, req ResultRequest) (Answer, error) {
	r, err := f.find(req.Ref)
	if err == nil && !r.Status.Terminal() {
		err = &Error{Code: Conflict, Message: "task " + string(r.ID) + " is still running", Fix: "wait for it"}
	}
	if err != nil {
		return Answer{}, err
	}
	return Answer{Task: r, Text: "<answer> & \u202e"}, nil
}

func (f *fake) Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error] {
	return func(yield func(task.Event, error) bool) {
		begin, after := after, after
		defer func() { f.left <- begin }()
		if after == 666 {
			yield(task.Event{}, &Error{Code: Internal, Message: "journal: disk I/O error"})
			return
		}
		for {
			f.mu.Lock()
			more, now := f.more, f.events[min(int(after), len(f.events)):]
			f.mu.Unlock()
			for _, e := range now {
				if !yield(e, nil) {
					return
				}
				after = e.Seq
				if e.Verb == task.Fail { // the session of this fake ends with a failure
					return
				}
			}
			select {
			case <-more:
			case <-ctx.Done():
				yield(task.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

func (f *fake) Environment(context.Context) (Environment, error) {
	return Environment{Mode: "plan", Rules: []Rule{{Effect: "deny", Rule: "Read(./.env)", Source: "/p/.drover/settings.json"}}}, nil
}

func (f *fake) Commands(context.Context) (Commands, error) {
	return Commands{Commands: []Command{{Name: "review", Kind: "prompt", Level: "built-in"}}, Problems: []string{}}, nil
}

func (f *fake) Prompt(_ context.Context, req PromptRequest) error {
	switch req.Text {
	case "":
		return &Error{Code: Unavailable, Message: "this session has no main agent"}
	case "panic":
		panic("broken")
	case "block":
		f.blocked <- struct{}{}
		<-f.block
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prompts = append(f.prompts, req.Text)
	return nil
}

func (f *fake) Approvals(ctx context.Context, req ApprovalsRequest) (Approvals, error) {
	f.mu.Lock()
	now, more := Approvals{Questions: append([]task.Question{}, f.open...), Version: int64(7 + len(f.decided))}, f.more
	f.mu.Unlock()
	if req.Wait == 0 || req.After != now.Version {
		return now, nil
	}
	select {
	case <-more:
		return f.Approvals(ctx, ApprovalsRequest{})
	case <-time.After(req.Wait):
		return now, nil
	case <-ctx.Done():
		return Approvals{}, context.Cause(ctx)
	}
}

// Configure answers with what it was asked for, and refuses the model "none".
func (f *fake) Attention(ctx context.Context, req AttentionRequest) (Attention, error) {
	for {
		f.mu.Lock()
		facts := attention.Facts{Session: "s00000001", Questions: slices.Clone(f.open)}
		facts.Tasks = append(facts.Tasks, f.tasks...)
		f.mu.Unlock()
		now, err := NewAttention(facts, time.Now())
		if err != nil || req.Wait <= 0 || now.Version != req.After {
			return now, err
		}
		select {
		case <-ctx.Done():
			return now, context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

func (f *fake) Schedules(_ context.Context, req ScheduleRequest) (Schedules, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if req.Add != nil {
		f.schedules = append(f.schedules, *req.Add)
	}
	if req.Remove != "" {
		return Schedules{}, &Error{Code: NotFound, Message: "there is no schedule " + req.Remove}
	}
	return Schedules{Schedules: append([]Schedule{}, f.schedules...), Changed: req.Add}, nil
}

func (f *fake) Forward(_ context.Context, req ForwardRequest) (Forwards, error) {
	if req.End {
		return Forwards{}, &Error{Code: NotFound, Message: "the port is not forwarded"}
	}
	return Forwards{Forwards: []Forward{{Port: req.Port, Address: "127.0.0.1:1", Since: time.Unix(1, 0).UTC()}}}, nil
}

func (f *fake) MarkSeen(_ context.Context, refs []string) (out []task.Record, _ error) {
	for _, ref := range refs {
		f.mu.Lock()
		defer f.mu.Unlock()
		i := slices.IndexFunc(f.tasks, func(r task.Record) bool { return string(r.ID) == ref || r.Name == ref })
		if i < 0 {
			return nil, NotFoundError(ref)
		}
		r, err := lifecycle.Apply(f.tasks[i], lifecycle.Change{Verb: task.MarkSeen})
		if err != nil && !errors.Is(err, lifecycle.ErrNoChange) {
			return nil, AsError(err)
		}
		f.tasks[i] = r
		f.emit(task.MarkSeen, r)
		out = append(out, r)
	}
	return out, nil
}

func (f *fake) Configure(_ context.Context, req ConfigureRequest) (now Settings, _ error) {
	if req.Model != nil {
		now.Model = *req.Model
	}
	if now.Model == "none" {
		return Settings{}, &Error{Code: Invalid, Message: "change the model: unknown", Fix: "see `drover models`"}
	}
	if req.Mode != nil {
		now.Mode = *req.Mode
	}
	if req.Thinking != nil {
		now.Thinking = *req.Thinking
	}
	return now, nil
}

func (f *fake) State(ctx context.Context, req StateRequest) (State, error) {
	f.mu.Lock()
	now, more := f.state, f.more
	f.mu.Unlock()
	if req.Wait == 0 || req.After != now.Version {
		return now, nil
	}
	select {
	case f.known <- req.After:
	default: // nobody listens
	}
	select {
	case <-more:
		return f.State(ctx, req)
	case <-time.After(req.Wait):
		return now, nil
	case <-ctx.Done():
		return State{}, context.Cause(ctx)
	}
}

// turn changes the state.
func (f *fake) turn(now State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now.Version = f.state.Version + 1
	f.state = now
	close(f.more)
	f.more = make(chan struct{})
}

func (f *fake) Decide(_ context.Context, req DecideRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, q := range f.open {
		if q.ID == req.ID && q.Digest != req.Digest {
			return &Error{Code: Conflict, Message: "question " + q.ID + " asks about another request"}
		}
		if q.ID == req.ID {
			f.open = append(f.open[:i:i], f.open[i+1:]...)
			f.decided = append(f.decided, req)
			close(f.more)
			f.more = make(chan struct{})
			return nil
		}
	}
	return &Error{Code: NotFound, Message: "no such question: " + req.ID}
}

func (f *fake) Watch(ctx context.Context, req WatchRequest) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		f.mu.Lock()
		pieces, more, refused := f.pieces, f.more, f.refused
		f.mu.Unlock()
		if refused != nil {
			yield(Piece{}, refused)
			return
		}
		if !yield(Piece{N: int64(len(pieces)), Kind: OpenPiece}, nil) {
			return
		}
		for _, p := range pieces {
			if p.N > req.After.N && !yield(p, nil) {
				return
			}
		}
		if req.Snapshot {
			return
		}
		select {
		case <-more:
			yield(Piece{}, &Error{Code: Conflict, Message: "enough"})
		case <-ctx.Done():
			f.unwatched <- struct{}{}
		}
	}
}

func (f *fake) HoldLease(ctx context.Context, lease string) error {
	f.held <- lease
	<-ctx.Done()
	f.released <- lease
	return context.Cause(ctx)
}

func (f *fake) Prompts(context.Context) (Prompts, error) {
	return Prompts{Prompts: []PromptEntry{{N: 1, ID: "u1", Text: "one"}}}, nil
}

func (f *fake) Fork(_ context.Context, req ForkRequest) (Forked, error) {
	return Forked{Session: "s00000009", Prompt: fmt.Sprint(req.At)}, nil
}

func (f *fake) Diff(_ context.Context, req DiffRequest) (Diff, error) {
	return Diff{Task: task.ID(req.Ref), Files: []DiffFile{}, Count: len(req.Paths)}, nil
}

func (f *fake) Comment(_ context.Context, req CommentRequest) (task.Record, error) {
	return task.Record{ID: task.ID(req.Ref)}, nil
}

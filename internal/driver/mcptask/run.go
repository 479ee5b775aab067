package mcptask

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/task"
)

// How a task is looked at.
const (
	usualPoll = 2 * time.Second // where the server does not say
	leastPoll = 100 * time.Millisecond
	mostPoll  = time.Minute

	createLimit = time.Minute // for the server to answer that there is a task
	readLimit   = time.Minute // for it to give the result of a task that is over
	readTries   = 5           // for that result
	usualGrace  = 5 * time.Second
)

// errUnread breaks off a reading that takes too long.
var errUnread = errors.New("the server did not give the result in time")

// run is one run of one task.
type run struct {
	d       *Driver
	h       task.Host
	id      task.ID
	to      Dialect // nil: the server was never reached
	release func()
	at      point
	alone   bool // see [Call]

	news  news
	forms forms
	work  sync.WaitGroup // the reading, and the questions that are asked; close waits

	mu    sync.Mutex // guards shown, out and seen
	shown task.MCPState
	out   paper
	seen  string // the last line of an earlier host, which may be newer than what the record shows; see note

	// What follows is of the goroutine of Run alone.
	last    mcpclient.TaskState // the newest of a known phase
	over    time.Time           // when the task was found to be over
	away    time.Time           // since when the server is out of reach; zero: it is not
	pause   time.Duration       // before the next look; 0: as the server wants it
	results chan reading        // capacity 1; of the one reading there may be
	unread  context.CancelFunc  // breaks the reading off; nil: none is under way
	tries   int                 // readings that have failed since the task is over
}

// reading is what came of reading a result.
type reading struct {
	out mcpclient.TaskOutcome
	err error
}

func newRun(d *Driver, h task.Host) *run {
	rec := h.Record()
	r := &run{d: d, h: h, id: rec.ID, release: func() {}, out: paper{to: h.Output()}, results: make(chan reading, 1)}
	r.news.wake = make(chan struct{}, 1)
	r.forms.life, r.forms.end = context.WithCancel(context.Background())
	if rec.Progress != nil && rec.Progress.MCPTask != nil {
		r.shown = *rec.Progress.MCPTask
	}
	return r
}

// close returns when nothing of the run is left.
func (r *run) close() {
	r.d.leave(r.id)
	r.forms.close()
	if r.unread != nil {
		r.unread()
	}
	r.work.Wait()
	r.release()
}

// whole is a run from reaching the server to the end of the task.
func (r *run) whole(ctx context.Context) (task.Result, error) {
	rec := r.h.Record()
	if len(rec.Checkpoint) == 0 {
		return r.fresh(ctx)
	}
	var err error
	if r.at, err = decodePoint(rec.Checkpoint); err != nil {
		return task.Result{}, err
	}
	if err := r.reach(ctx); err != nil {
		if ctx.Err() != nil {
			return r.left(ctx)
		}
		return task.Result{}, err
	}
	r.seen = lastLine(r.h.Output().Path())
	r.say("a new host follows the task")
	return r.follow(ctx, 0)
}

// fresh makes the task.
func (r *run) fresh(ctx context.Context) (task.Result, error) {
	call, err := decode(r.h.Input())
	if err != nil {
		return task.Result{}, err
	}
	r.alone = call.Alone
	r.shown = task.MCPState{Server: call.Server, Tool: call.Tool}
	kind := Core
	if call.Made != nil {
		kind = Extension
	}
	to, release, err := r.d.Open(ctx, call.Server, call.Digest, kind)
	if err != nil {
		return task.Result{}, notMade(ctx, call, err)
	}
	r.to, r.release = to, release
	st, immediate, err := r.create(ctx, call)
	if err != nil {
		return task.Result{}, notMade(ctx, call, err)
	}
	if st.ID == "" { // the server has answered at once
		return r.read(ctx, st.Phase)
	}
	r.at = point{
		V:       version,
		Server:  call.Server,
		Digest:  call.Digest,
		Tool:    call.Tool,
		Kind:    kind,
		Task:    st.ID,
		PollMS:  st.Poll.Milliseconds(),
		TTLMS:   st.TTL.Milliseconds(),
		Created: time.Now().UTC(),
	}
	r.shown.TaskID = st.ID
	r.say("task %s of MCP server %s: %s %s", st.ID, call.Server, call.Tool, call.Args)
	if err := r.h.Checkpoint(context.WithoutCancel(ctx), r.at.encode()); err != nil {
		last, done := context.WithTimeout(context.WithoutCancel(ctx), usualGrace)
		defer done()
		_, lost := to.Cancel(last, st.ID)
		return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: errors.Join(err, lost)}
	}
	if r.d.made != nil {
		r.d.made(immediate)
	}
	r.take(ctx, st)
	return r.follow(ctx, r.poll())
}

// notMade returns the reason why the task was not made.
func notMade(ctx context.Context, call Call, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	reason := task.ReasonStart
	var refused *mcpclient.TaskRefusedError
	if errors.As(err, &refused) {
		reason = ReasonServer
	}
	return &task.FailError{
		Reason: reason,
		Err:    fmt.Errorf("start %s of MCP server %s as a task: %w", call.Tool, call.Server, err),
	}
}

// create asks for the task. A request that is broken off may leave a task that
// only the server knows of, so a run that is to end waits for the answer a moment longer.
func (r *run) create(ctx context.Context, call Call) (mcpclient.TaskState, string, error) {
	if m := call.Made; m != nil {
		return mcpclient.TaskState{ID: m.Task, Phase: mcpclient.TaskWorking, Word: m.Status,
			Poll: time.Duration(m.PollMS) * time.Millisecond, TTL: time.Duration(m.TTLMS) * time.Millisecond}, "", nil
	}
	maker, ok := r.to.(Maker)
	if !ok {
		return mcpclient.TaskState{}, "", mcpclient.ErrNeedsTask
	}
	asking, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	late := time.AfterFunc(createLimit, func() { cancel(mcpclient.ErrNoAnswer) })
	defer late.Stop()
	defer context.AfterFunc(ctx, func() { late.Reset(grace(ctx)) })()
	return maker.Create(asking, call.Tool, call.Args, time.Duration(call.TTLMS)*time.Millisecond)
}

// reach finds the server of a task of an earlier host.
func (r *run) reach(ctx context.Context) error {
	for pause := time.Second; ; pause = min(2*pause, mostPoll) {
		to, release, err := r.d.Open(ctx, r.at.Server, r.at.Digest, r.at.Kind)
		if err == nil {
			r.to, r.release = to, release
			return nil
		}
		if errors.Is(err, ErrNoServer) {
			return fmt.Errorf("%w: %w", task.ErrLost, err)
		}
		if err := r.missed(err); err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// missed notes that the server was out of reach, and says when that lasts too long.
func (r *run) missed(err error) error {
	if r.away.IsZero() {
		r.away = time.Now()
	}
	if time.Since(r.away) < r.d.Patience {
		r.warn("MCP server %s: %v", r.at.Server, err)
		return nil
	}
	return fmt.Errorf("%w: MCP server %s could not be reached for %v: %w", task.ErrLost, r.at.Server, r.d.Patience, err)
}

// follow goes with the task until it is over. The first look is after wait.
func (r *run) follow(ctx context.Context, wait time.Duration) (task.Result, error) {
	r.d.enter(r.id, r)
	defer r.to.Watch(r.at.Task, mcpclient.TaskWatch{State: r.news.put, Ask: r.ask})()
	look := time.NewTimer(wait)
	defer look.Stop()
	for ctx.Err() == nil {
		var end *ending
		select {
		case <-look.C:
			end = r.look(ctx)
			look.Reset(r.poll())
		case <-r.news.wake:
			for _, s := range r.news.take() {
				r.take(ctx, s)
			}
		case got := <-r.results:
			end = r.got(ctx, got)
		case <-ctx.Done():
			return r.left(ctx)
		}
		if end == nil && r.last.Phase == mcpclient.TaskCancelled {
			end = r.cancelled()
		}
		if end != nil && ctx.Err() == nil {
			return end.res, end.err
		}
	}
	return r.left(ctx)
}

// ending is how the run ends by itself.
type ending struct {
	res task.Result
	err error
}

// poll is the time until the next look.
func (r *run) poll() time.Duration {
	if r.pause > 0 {
		return r.pause
	}
	if r.at.PollMS <= 0 {
		return usualPoll
	}
	return min(max(time.Duration(r.at.PollMS)*time.Millisecond, leastPoll), mostPoll)
}

// look asks the server for the state of the task.
func (r *run) look(ctx context.Context) *ending {
	s, err := r.to.Get(ctx, r.at.Task)
	switch {
	case err == nil:
		r.away, r.pause = time.Time{}, 0
		r.take(ctx, s)
		if r.unread != nil && !r.over.IsZero() && time.Since(r.over) > readLimit {
			r.over = time.Now()
			r.unread() // which counts as a try
		}
		r.readSoon(ctx)
		return nil
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, mcpclient.ErrTaskUnknown):
		return &ending{err: r.unknown()}
	}
	if err := r.missed(err); err != nil {
		return &ending{err: err}
	}
	r.pause = min(2*r.poll(), mostPoll)
	return nil
}

// unknown returns the error for a task that the server does not know.
func (r *run) unknown() error {
	if r.at.expired(time.Now()) {
		return &task.FailError{
			Reason: ReasonExpired,
			Err: fmt.Errorf("MCP server %s has dropped task %s: it keeps tasks for %v, and its result was not read by then",
				r.at.Server, r.at.Task, time.Duration(r.at.TTLMS)*time.Millisecond),
		}
	}
	return fmt.Errorf("%w: MCP server %s does not know task %s any more; it may have been started anew", task.ErrLost,
		r.at.Server, r.at.Task)
}

// take takes in a state of the task. An ended task stays ended, and states older than
// the newest are ignored.
func (r *run) take(ctx context.Context, s mcpclient.TaskState) {
	if r.last.Phase.Over() || s.Updated.Before(r.last.Updated) && !s.Updated.IsZero() && !s.Phase.Over() {
		return
	}
	r.note(s)
	if s.Word != "" && s.Phase == "" {
		r.warn("MCP server %s tells of a status that is not known: %s", r.at.Server, s.Word)
	}
	if s.Poll > 0 {
		r.at.PollMS = s.Poll.Milliseconds()
	}
	if s.TTL > 0 {
		r.at.TTLMS = s.TTL.Milliseconds()
	}
	if s.Phase == "" {
		return
	}
	r.last = s
	if s.Phase.Over() {
		r.over = time.Now()
	}
	r.readSoon(ctx)
}

// readSoon begins to read the result of a task that is over, or that asks: its
// questions come while somebody waits for the result.
func (r *run) readSoon(ctx context.Context) {
	p := r.last.Phase
	if r.unread != nil || p == mcpclient.TaskCancelled || !p.Over() && p != mcpclient.TaskAsking {
		return
	}
	reading, cancel := context.WithCancelCause(ctx)
	r.unread = func() { cancel(errUnread) }
	r.work.Go(func() { r.results <- r.result(reading) })
}

func (r *run) result(ctx context.Context) reading {
	out, err := r.to.Result(ctx, r.at.Task)
	return reading{out, err}
}

// got takes in what came of reading the result.
func (r *run) got(ctx context.Context, got reading) *ending {
	r.unread()
	r.unread = nil
	if got.err == nil {
		return r.finish(got.out, r.last.Phase)
	}
	if ctx.Err() != nil {
		return nil
	}
	switch {
	case errors.Is(got.err, mcpclient.ErrTaskGoesOn): // the next look gets the state
		return r.again(got.err)
	case errors.Is(got.err, mcpclient.ErrTaskStuck):
		return r.stuck(ctx, got.err)
	}
	var refused *mcpclient.TaskRefusedError
	if !errors.As(got.err, &refused) && !errors.Is(got.err, mcpclient.ErrTaskUnknown) {
		r.warn("the stream of the result broke off, and the task is looked at instead: %v", got.err)
		return r.again(got.err)
	}
	// The refusal may be the outcome of the task, or unrelated to it: only a look
	// gets the state of the task.
	if end := r.look(ctx); end != nil {
		return end
	}
	switch {
	case r.last.Phase == mcpclient.TaskCancelled:
		return r.cancelled()
	case r.last.Phase.Over() && refused != nil:
		return &ending{
			err: &task.FailError{
				Reason: ReasonServer,
				Err:    fmt.Errorf("MCP server %s, task %s: %w", r.at.Server, r.at.Task, got.err),
			},
		}
	}
	r.warn("the result cannot be read yet: %v", got.err)
	return r.again(got.err)
}

// stuck ends a task that waits for an impossible answer.
func (r *run) stuck(ctx context.Context, why error) *ending {
	err := fmt.Errorf("MCP server %s, task %s: %w", r.at.Server, r.at.Task, why)
	if left := r.cancel(ctx); left != "" {
		err = fmt.Errorf("%w (it may go on at the server: %s)", err, left)
	}
	return &ending{err: &task.FailError{Reason: ReasonServer, Err: err}}
}

// again counts readings of a task that is over: looks begin the next, and the
// last one counts. The result of a continuing task is read when it asks again, or is
// over.
func (r *run) again(err error) *ending {
	if !r.last.Phase.Over() {
		return nil
	}
	if r.tries++; r.tries < readTries {
		return nil
	}
	return &ending{
		err: &task.FailError{
			Reason: ReasonNoResult,
			Err: fmt.Errorf("task %s of MCP server %s is over (%s), and its result cannot be read: %w",
				r.at.Task, r.at.Server, r.last.Word, err),
		},
	}
}

// read gives the answer of a server that has made no task.
func (r *run) read(ctx context.Context, p mcpclient.TaskPhase) (task.Result, error) {
	out, err := r.to.Result(ctx, "")
	if err != nil {
		return task.Result{}, err
	}
	end := r.finish(out, p)
	return end.res, end.err
}

// finish is the end of a task that gave something.
func (r *run) finish(out mcpclient.TaskOutcome, p mcpclient.TaskPhase) *ending {
	if p == mcpclient.TaskCancelled {
		return r.cancelled()
	}
	r.mu.Lock()
	r.out.answer(out.Text)
	r.mu.Unlock()
	end := &ending{res: task.Result{Text: answerText(out.Text, r.h.Output().Path())}}
	if out.IsError || p == mcpclient.TaskFailed {
		why := oneLine(firstLine(out.Text))
		end.err = &task.FailError{
			Reason: ReasonTool,
			Err:    errors.New(cmp.Or(why, oneLine(r.last.Message), "the tool failed and did not say why")),
		}
	}
	return end
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// cancelled is the end of a task that the server has ended by itself, or for
// somebody else.
func (r *run) cancelled() *ending {
	detail := fmt.Sprintf("MCP server %s has cancelled it", r.at.Server)
	if m := oneLine(r.last.Message); m != "" {
		detail += ": " + m
	}
	return &ending{
		err: fmt.Errorf("%w: %w", task.ErrLost,
			&task.StopError{Cause: task.Cause{Actor: task.ByUnknown, Reason: task.ReasonStopped, Detail: detail}}),
	}
}

// left ends a run whose context has ended: the task continues if it was to be kept
// and the host closes, and is cancelled otherwise.
func (r *run) left(ctx context.Context) (task.Result, error) {
	if errors.Is(context.Cause(ctx), task.ErrClosing) && r.h.Record().Keep {
		r.forms.detach()
		return task.Result{}, task.ErrDetached
	}
	var res task.Result
	if why := r.cancel(ctx); why != "" {
		res.Left = []task.Survivor{{Command: fmt.Sprintf("task %s of MCP server %s", r.at.Task, r.at.Server), Why: why}}
	}
	return res, context.Cause(ctx)
}

// cancel ends the task at its server. It says why that is not sure.
func (r *run) cancel(ctx context.Context) string {
	if r.last.Phase.Over() {
		return ""
	}
	if r.to == nil {
		return "the server could not be reached"
	}
	patience := grace(ctx)
	last, done := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer done()
	s, err := r.to.Cancel(last, r.at.Task)
	for err == nil && !s.Phase.Over() { // it may take its time
		known := cmp.Or(s.Word, "not known to be over")
		select {
		case <-time.After(leastPoll):
			s, err = r.to.Get(last, r.at.Task)
		case <-last.Done():
			err = last.Err()
		}
		// The time may be over while the server is asked.
		if err != nil && last.Err() != nil && !errors.Is(err, mcpclient.ErrTaskUnknown) {
			return fmt.Sprintf("it is %s %v after the cancel", known, patience)
		}
	}
	if err != nil && !errors.Is(err, mcpclient.ErrTaskUnknown) {
		return fmt.Sprintf("the server did not confirm the cancel within %v: %v", patience, err)
	}
	r.note(s)
	return ""
}

// grace is how long a stop may take.
func grace(ctx context.Context) time.Duration {
	var stop *task.StopError
	if errors.As(context.Cause(ctx), &stop) && stop.Grace != nil {
		return *stop.Grace
	}
	return usualGrace
}

// maxNews bounds the states of a task that have not been taken yet.
const maxNews = 64

// news are states that the server has told of by itself.
type news struct {
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	states []mcpclient.TaskState // guarded by mu; oldest first
}

// put adds a state. Progress alone is merged with progress before it, and of too
// many states the oldest goes: each state is complete.
func (n *news) put(s mcpclient.TaskState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k := len(n.states); k > 0 && s.Word == "" && n.states[k-1].Word == "" {
		n.states[k-1] = s
	} else if n.states = append(n.states, s); len(n.states) > maxNews {
		n.states = n.states[1:]
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *news) take() []mcpclient.TaskState {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.states
	n.states = nil
	return all
}

// Package worker takes tasks of sessions on other machines and has them done by a session of
// this one.
//
// A [Worker] claims offers, as many tasks at once as it has places, and starts each
// in its own session, whose keeper ends it should the worker die. It tells the session that has
// granted the claim what becomes of it: output by offset, and the end. It works on a task only
// while its lease lasts, which it measures by a clock that no correction of the time moves; when
// it cannot renew the lease, it ends the task and reports nothing more of it. The session decides
// what a task is and how it ended.
package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Config configures a worker.
type Config struct {
	Name     string
	Labels   []string
	Capacity int // tasks at the same time; 0: the processors of the machine
	Version  string

	Link    *link.Link
	API     control.API // the session that does the work
	Dir     string      // in which tasks work that bring no folder
	Home    home.Root   // whose state directory has the folders of tasks
	Project string      // of the hub, whose tasks share a cache of repositories
	Env     []string    // of tasks
	Log     *slog.Logger

	// Tools makes the tools of a workspace: dir is where its agent works, top the copy that dir is in.
	Tools func(ws fleetwire.Workspace, dir, top string) []agent.Tool

	// NewCwdFile makes a file by which a command tells in which directory it has ended; nil: none does.
	NewCwdFile func() (CwdFile, error)

	// Admit says why nothing can begin here now, such as a full disk; nil: everything can.
	Admit func() error

	// Bounded reports whether a sandbox bounds everything that commands of workspaces do; nil: it does not.
	Bounded func() bool

	// Pulse has the keeper of the session end the tasks of the worker unless it is called again within this time; 0:
	// never. nil: a worker that hangs leaves its tasks running.
	Pulse func(within time.Duration)
}

// CwdFile is where a script of bash writes its last working directory.
type CwdFile interface {
	Script(line string) string // that does so
	Dir() string               // empty: it has not
	Close()
}

// Worker is a running worker.
type Worker struct {
	cfg      Config
	instance string
	places   chan struct{} // one for each task

	tasks sync.WaitGroup // of all claims; Serve waits for it

	mu       sync.Mutex
	claims   map[task.ID]*claim // guarded by mu
	draining bool               // takes nothing new; guarded by mu
	unread   string             // of the last offer that it cannot take; guarded by mu
	begun    fleetwire.Begun    // offers, and commands in workspaces; guarded by mu
	idle     chan struct{}      // closed when it drains and has no task; guarded by mu

	changed chan struct{} // capacity 1: its tasks have changed
}

// claim is a task that the worker has.
type claim struct {
	session  task.ID
	instance string // of the worker that it was granted to
	id       task.ID
	epoch    uint64
	lease    time.Duration
	job      fleetwire.Job
	since    time.Time
	drop     context.CancelCauseFunc
	folders  chan []byte // capacity 1: manifest of the folder
	resend   chan int64  // capacity 1: output from there on is sent again
	free     func()      // gives the place back

	orders chan fleetwire.Command // to it, in order, once it has started
	asked  chan struct{}          // closed when its end is asked for
	ask    func()                 // closes it

	mu        sync.Mutex
	local     task.ID            // in the worker's session; guarded by mu
	expires   *time.Timer        // guarded by mu
	early     *fleetwire.Command // a stop that came before the start; guarded by mu
	stops     sync.WaitGroup
	receipt   task.Receipt // of a stop; guarded by mu
	ended     bool         // it has no place any more; guarded by mu
	workspace *workspace   // guarded by mu
}

// maxOrders limits what waits to be done to a task.
const maxOrders = 64

func newClaim(session, id task.ID, g fleetwire.Grant, instance string) *claim {
	c := &claim{session: session, instance: instance, id: id, epoch: g.Epoch, lease: g.Lease, job: g.Job,
		since: time.Now(),
		drop:  func(error) {}, free: func() {}, resend: make(chan int64, 1), folders: make(chan []byte, 1),
		orders: make(chan fleetwire.Command, maxOrders), asked: make(chan struct{})}
	c.ask = sync.OnceFunc(func() { close(c.asked) })
	return c
}

// Causes of the end of a claim.
var (
	errLease = errors.New("the lease has ended")
	errTaken = errors.New("the session says that the claim does not count any more")
	errLeave = errors.New("the worker ends")
)

// Limits.
const (
	maxProblem  = 400 // characters
	claimTries  = 3
	claimTime   = 5 * time.Second
	outputWait  = 15 * time.Second
	endAgain    = 10 * time.Second // until an end that is not recorded is sent again
	leaveTime   = 5 * time.Second  // for the ends of all tasks when the worker ends
	beatLeast   = time.Second
	pauseFailed = 2 * time.Second // after the hub has not answered
)

// New returns a worker that does nothing yet.
func New(c Config) *Worker {
	if c.Capacity <= 0 {
		c.Capacity = runtime.GOMAXPROCS(0)
	}
	return &Worker{cfg: c, instance: rand.Text(), places: make(chan struct{}, c.Capacity), claims: map[task.ID]*claim{},
		idle: make(chan struct{}), changed: make(chan struct{}, 1)}
}

// sayAgain has the state of the worker published soon.
func (w *Worker) sayAgain() {
	select {
	case w.changed <- struct{}{}:
	default: // it will
	}
}

// Serve takes tasks until ctx ends, or until the worker has drained. It returns when none of its tasks is left running.
func (w *Worker) Serve(ctx context.Context) error {
	if err := w.before(ctx); err != nil {
		return err
	}
	loops, cancel := context.WithCancel(ctx)
	defer cancel()
	leave, err := w.settle(loops)
	if err != nil {
		return err
	}
	defer leave()
	var running sync.WaitGroup
	running.Go(func() { w.beat(loops) })
	running.Go(func() { w.renew(loops) })
	running.Go(func() { w.listen(loops) })
	running.Go(func() {
		for loops.Err() == nil {
			if err := w.answerCalls(loops); err != nil {
				pause(loops, pauseFailed)
			}
		}
	})
	for _, subject := range w.subjects() {
		running.Go(func() { w.pull(loops, &offers{link: w.cfg.Link, subject: subject}) })
	}
	select {
	case <-ctx.Done():
	case <-w.idle:
	}
	w.leave()
	cancel()
	running.Wait()
	w.tasks.Wait()
	gone, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer done()
	if kv, err := w.cfg.Link.JS.KeyValue(gone, fleetwire.Workers); err == nil {
		_ = kv.Delete(gone, w.cfg.Name) // or it is forgotten by its age
	}
	return nil
}

// subjects returns the subjects of offers to this worker.
func (w *Worker) subjects() []string {
	out := []string{fleetwire.OfferAny, fleetwire.OfferLabel(w.cfg.Name)}
	for _, l := range w.cfg.Labels {
		if s := fleetwire.OfferLabel(l); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// before tells the user of tasks that a worker of this name had a moment ago.
func (w *Worker) before(ctx context.Context) error {
	kv, err := w.cfg.Link.JS.KeyValue(ctx, fleetwire.Workers)
	if err != nil {
		return fmt.Errorf("find workers: %w", err)
	}
	entry, err := kv.Get(ctx, w.cfg.Name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	var other fleetwire.Worker
	if err == nil {
		_, err = fleetwire.Decode(entry.Value(), &other)
	}
	if err != nil {
		return fmt.Errorf("find worker %s: %w", w.cfg.Name, err)
	}
	if len(other.Tasks) > 0 {
		w.cfg.Log.Warn("a worker of this name was there a moment ago: its tasks end with their leases", "worker", w.cfg.Name)
	}
	return nil
}

// Drain makes the worker take nothing new, and end when its tasks have ended.
func (w *Worker) Drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining {
		return
	}
	w.draining = true
	w.settleDown()
	w.sayAgain()
}

// settleDown drops the claims of which only the end is left to be heard, once the worker drains, and
// lets Serve return when no other is left. The caller holds mu.
func (w *Worker) settleDown() {
	if !w.draining {
		return
	}
	busy := false
	for _, c := range w.claims {
		c.mu.Lock()
		if c.ended {
			c.drop(errLeave)
		} else {
			busy = true
		}
		c.mu.Unlock()
	}
	if busy {
		return
	}
	select {
	case <-w.idle:
	default:
		close(w.idle)
	}
}

func (w *Worker) leaving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.draining
}

// beat publishes the state of the worker every [fleetwire.HeartBeat].
func (w *Worker) beat(ctx context.Context) {
	tick := time.NewTicker(fleetwire.HeartBeat)
	defer tick.Stop()
	var kv jetstream.KeyValue
	for {
		one, cancel := context.WithTimeout(ctx, fleetwire.HeartBeat)
		var err error
		if kv == nil {
			kv, err = w.cfg.Link.JS.KeyValue(one, fleetwire.Workers)
		}
		var data []byte
		if err == nil {
			data, err = fleetwire.Encode(w.About(), nil)
		}
		if err == nil {
			_, _ = kv.Put(one, w.cfg.Name, data) // the next beat says it again
		}
		cancel()
		pause(ctx, beatLeast)
		select {
		case <-tick.C:
		case <-w.changed:
		case <-ctx.Done():
			return
		}
	}
}

// About is the state of the worker, as it publishes it.
func (w *Worker) About() fleetwire.Worker {
	problem := w.problem()
	w.mu.Lock()
	defer w.mu.Unlock()
	out := fleetwire.Worker{
		Name:     w.cfg.Name,
		Instance: w.instance,
		Oldest:   fleetwire.Oldest,
		Newest:   fleetwire.Version,
		Version:  w.cfg.Version,
		System:   runtime.GOOS + "/" + runtime.GOARCH,
		Labels:   w.cfg.Labels,
		Capacity: w.cfg.Capacity,
		Load:     load(),
		Draining: w.draining,
		Problem:  excerpt.Line(problem, maxProblem),
	}
	for _, c := range w.claims {
		c.mu.Lock()
		ended := c.ended
		c.mu.Unlock()
		if ended || c.job.Inside != nil {
			continue // only its session has to hear of that, or it belongs to a workspace
		}
		out.Tasks = append(out.Tasks, fleetwire.Doing{Session: c.session, Task: c.id, Name: c.job.Name, Epoch: c.epoch,
			Since: time.Since(c.since).Milliseconds()})
	}
	slices.SortFunc(out.Tasks, func(a, b fleetwire.Doing) int { return strings.Compare(string(a.Task), string(b.Task)) })
	return out
}

// pull takes the offers of one subject, while there is a place.
func (w *Worker) pull(ctx context.Context, from *offers) {
	for ctx.Err() == nil {
		if !w.place(ctx) {
			return
		}
		<-w.places // the place is only taken with a task: others may have one first
		if w.problem() != "" {
			pause(ctx, fleetwire.HeartBeat)
			continue
		}
		msg, err := from.next(ctx)
		if err != nil {
			if ctx.Err() == nil && w.cfg.Link.Conn.IsConnected() {
				w.cfg.Log.Warn("offers cannot be read", "subject", from.subject, "error", err)
			}
			pause(ctx, pauseFailed)
			continue
		}
		if msg == nil {
			continue
		}
		if w.leaving() {
			_ = msg.Nak()
			return
		}
		if w.problem() != "" { // it has come while the offer was waited for
			_ = msg.NakWithDelay(time.Second)
			continue
		}
		select {
		case w.places <- struct{}{}:
			w.tasks.Go(func() {
				free := sync.OnceFunc(func() { <-w.places })
				defer free()
				w.offered(ctx, msg, free)
			})
		default:
			_ = msg.Nak() // another worker takes it, or the next free place
		}
	}
}

// problem returns why no task can begin here; empty: it can.
func (w *Worker) problem() string {
	if w.cfg.Admit == nil {
		return ""
	}
	if err := w.cfg.Admit(); err != nil {
		return err.Error()
	}
	return ""
}

// place waits for a free place. It returns false when the worker takes nothing more.
func (w *Worker) place(ctx context.Context) bool {
	if w.leaving() {
		return false
	}
	select {
	case w.places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// offered claims an offer and does the task.
func (w *Worker) offered(ctx context.Context, msg jetstream.Msg, free func()) {
	var o fleetwire.Offer
	_, err := fleetwire.Decode(msg.Data(), &o)
	if err != nil {
		w.cfg.Log.Warn("an offer cannot be read", "error", err)
		_ = msg.Term()
		return
	}
	if _, err = fleetwire.Speaks("session "+string(o.Session), o.Oldest, o.Newest); err != nil {
		w.foreign(msg, err)
		return
	}
	var g fleetwire.Grant
	var has []string
	if o.Repo != "" {
		if has, err = w.cache().Have(ctx, o.Repo); err != nil {
			w.cfg.Log.Warn("what is kept of a repository cannot be read: all of it is sent again", "error", err)
		}
	}
	var asked time.Time
	begin, wait := time.Now(), claimTime
	if o.Lease > 0 {
		wait = min(wait, o.Lease/3)
	}
	for try := 1; ; try++ {
		one, cancel := context.WithTimeout(ctx, wait)
		asked = time.Now()
		_, err = w.cfg.Link.Ask(
			one,
			fleetwire.Ask(o.Session, fleetwire.AskClaim, w.cfg.Name),
			fleetwire.Claim{Oldest: fleetwire.Oldest, Newest: fleetwire.Version,
				Task: o.Task, Offer: o.Offer, Worker: w.cfg.Name, Instance: w.instance, Has: has},
			&g,
		)
		cancel()
		if err == nil || ctx.Err() != nil || time.Since(begin) > claimTries*claimTime ||
			try >= claimTries && !errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	switch {
	case err != nil: // the session may come back
		w.cfg.Log.Warn("an offer cannot be claimed", "task", o.Task, "session", o.Session, "error", err)
		later(msg)
		return
	case g.Refused != "":
		_ = msg.Ack() // another worker has it, or it has ended
		return
	case g.Epoch == 0 || g.Lease <= 0:
		_ = msg.Term()
		return
	}
	_ = msg.Ack()
	w.do(ctx, o, g, asked, free)
}

// foreign leaves an offer in another protocol to other workers, and tells the user once for each session.
func (w *Worker) foreign(msg jetstream.Msg, why error) {
	_ = msg.NakWithDelay(firstLater)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unread != why.Error() {
		w.unread = why.Error()
		w.cfg.Log.Warn("an offer is left to other workers", "error", why)
	}
}

// do does a task that was granted. free gives its place back when it has ended here.
func (w *Worker) do(ctx context.Context, o fleetwire.Offer, g fleetwire.Grant, asked time.Time, free func()) {
	if !w.first(o.Offer) {
		return // the hub has given the offer out again
	}
	c := newClaim(o.Session, o.Task, g, w.instance)
	c.free = free
	life, end := c.live(ctx)
	defer end()
	c.expires.Reset(time.Until(fleetwire.LeaseEnd(asked, g.Lease)))
	w.mu.Lock()
	old := w.claims[o.Task]
	w.claims[o.Task] = c
	w.mu.Unlock()
	w.sayAgain()
	if old != nil {
		old.drop(errTaken)
	}
	defer w.forget(c)
	p, err := w.unpack(life, c)
	defer p.remove()
	switch {
	case err != nil && life.Err() != nil:
	case err != nil:
		w.failed(life, c, err)
	case c.job.Workspace != nil:
		w.keep(life, c, p)
	default:
		w.command(life, c, p)
	}
	if life.Err() != nil {
		w.save(ctx, c, p)
	}
}

// live is the life of a claim, which ends with its lease, or when it is dropped. The lease is not there yet.
func (c *claim) live(ctx context.Context) (life context.Context, end func()) {
	life, drop := context.WithCancelCause(context.WithoutCancel(ctx))
	c.drop = drop
	c.expires = time.AfterFunc(c.lease, func() { drop(errLease) })
	return life, func() {
		c.expires.Stop()
		drop(nil)
	}
}

// failed tells that a task could not be started.
func (w *Worker) failed(ctx context.Context, c *claim, err error) {
	w.end(ctx, c, 0, fleetwire.End{
		Status: task.Failed,
		Cause:  &task.Cause{Actor: task.ByItself, Reason: task.ReasonStart},
		Error:  err.Error(),
	})
}

// command runs a command in its place.
func (w *Worker) command(life context.Context, c *claim, p *place) {
	cwd, err := w.reportsCwd(c)
	if err != nil {
		w.failed(life, c, err)
		return
	}
	if cwd != nil {
		defer cwd.Close()
	}
	rec, err := w.start(life, c, p)
	if err != nil {
		w.failed(life, c, err)
		return
	}
	w.pulse() // the next renewal may be a second away
	var obeying sync.WaitGroup
	defer obeying.Wait()
	over, done := context.WithCancel(life)
	defer done()
	obeying.Go(func() { w.obey(over, c, string(rec.ID)) })
	defer w.cleanup(c) // whatever ends the claim, nothing of it is left running
	size, err := w.follow(life, c, rec)
	switch {
	case err == nil:
		e := w.ended(life, c, size)
		if cwd != nil {
			e.Cwd = cwd.Dir()
		}
		p.collect(life, c, &e)
		if life.Err() != nil {
			return
		}
		p.remove() // its changes are with the hub
		w.end(life, c, size, e)
	case life.Err() == nil: // the session must not wait for the lease
		cause := &task.Cause{Actor: task.ByRuntime, Reason: task.ReasonError}
		w.end(life, c, 0, fleetwire.End{Status: task.Failed, Cause: cause,
			Error: "the worker cannot report the task: " + err.Error()})
	}
}

// reportsCwd makes a command tell in which directory it has ended, if its session wants that; nil: it does not.
func (w *Worker) reportsCwd(c *claim) (CwdFile, error) {
	if !c.job.ReportCwd || w.cfg.NewCwdFile == nil || len(c.job.Args) == 0 {
		return nil, nil //nolint:nilnil // see above
	}
	out, err := w.cfg.NewCwdFile()
	if err != nil {
		return nil, err
	}
	last := len(c.job.Args) - 1
	c.job.Args = append(slices.Clone(c.job.Args[:last]), out.Script(c.job.Args[last]))
	return out, nil
}

// first reports whether the worker has not begun this before.
func (w *Worker) first(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun.First(key)
}

func (w *Worker) forget(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.claims[c.id] == c {
		delete(w.claims, c.id)
	}
	w.settleDown()
}

// start starts the task in the worker's session.
func (w *Worker) start(ctx context.Context, c *claim, p *place) (task.Record, error) {
	req := control.StartRequest{
		Name: c.job.Name, Description: c.job.Description, Cwd: p.dir, Env: slices.Concat(w.cfg.Env, c.job.Env),
		Shell: &control.ShellRequest{Args: c.job.Args, Line: c.job.Line, TTY: c.job.TTY, Sandbox: c.job.Sandbox,
			Folders: []string{p.root()}},
	}
	out, err := w.cfg.API.Start(ctx, []control.StartRequest{req})
	if err != nil {
		return task.Record{}, err
	}
	if out[0].Error != nil {
		return task.Record{}, out[0].Error
	}
	c.mu.Lock()
	c.local = out[0].Task.ID
	early := c.early
	c.mu.Unlock()
	if early != nil {
		w.stop(c, *early)
	}
	return *out[0].Task, nil
}

// tell sends an event of the task to its session.
func (w *Worker) tell(ctx context.Context, c *claim, e fleetwire.Event, data []byte) error {
	e.Epoch, e.Instance = c.epoch, c.instance
	msg, err := fleetwire.Encode(e, data)
	if err != nil {
		return err
	}
	return w.cfg.Link.Publish(ctx, fleetwire.EventOf(c.session, w.cfg.Name, c.id), "", msg)
}

// follow sends the output until the task has ended, and returns its size.
func (w *Worker) follow(ctx context.Context, c *claim, rec task.Record) (int64, error) {
	var at int64
	for {
		select {
		case at = <-c.resend:
		default:
		}
		chunk, err := w.cfg.API.Output(ctx,
			control.OutputRequest{Ref: string(rec.ID), Offset: at, Max: fleetwire.MaxChunk, Wait: outputWait})
		if err != nil {
			if ctx.Err() != nil {
				return at, context.Cause(ctx)
			}
			return at, err
		}
		if len(chunk.Data) > 0 {
			if err := w.tell(ctx, c, fleetwire.Event{Kind: fleetwire.Output, Offset: chunk.Offset}, chunk.Data); err != nil {
				return at, err
			}
			at = chunk.Next
		}
		if chunk.Ended {
			return at, nil
		}
	}
}

// ended is how the task ended in the worker's session.
func (w *Worker) ended(ctx context.Context, c *claim, size int64) fleetwire.End {
	c.stops.Wait()
	r, err := w.cfg.API.Get(ctx, string(c.local))
	if err != nil {
		return fleetwire.End{Status: task.Failed, Cause: &task.Cause{Actor: task.ByUnknown, Reason: task.ReasonLost},
			Error: "the worker cannot say how it ended: " + err.Error(), OutputBytes: size}
	}
	e := fleetwire.End{
		Status:      r.Status,
		Cause:       r.Cause,
		ExitCode:    r.ExitCode,
		Error:       r.Error,
		OutputBytes: size,
		Left:        r.Survivors,
		Notes:       r.Notes,
	}
	if r.Cause != nil {
		e.Signal = r.Cause.Signal
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.receipt.Stopped {
		if s.ID == c.local {
			e.Sent = s.Signals
		}
	}
	return e
}

// end sends the end until the session has recorded it, by which the session ends the claim.
func (w *Worker) end(ctx context.Context, c *claim, size int64, e fleetwire.End) {
	for {
		if w.tell(ctx, c, fleetwire.Event{Kind: fleetwire.Ended, Offset: size, End: &e}, nil) != nil {
			return
		}
		c.mu.Lock()
		c.ended = true
		c.mu.Unlock()
		c.free()
		w.sayAgain()
		if w.leaving() { // the stream has it
			return
		}
		again := time.NewTimer(endAgain)
		select {
		case <-ctx.Done(): // recorded, or of no interest
			again.Stop()
			return
		case <-again.C:
		case at := <-c.resend:
			again.Stop()
			if w.again(ctx, c, at) != nil {
				return
			}
		}
	}
}

// again sends the output once more from an offset on.
func (w *Worker) again(ctx context.Context, c *claim, at int64) error {
	for {
		chunk, err := w.cfg.API.Output(ctx, control.OutputRequest{Ref: string(c.local), Offset: at, Max: fleetwire.MaxChunk})
		if err != nil || len(chunk.Data) == 0 {
			return err
		}
		if err := w.tell(ctx, c, fleetwire.Event{Kind: fleetwire.Output, Offset: chunk.Offset}, chunk.Data); err != nil {
			return err
		}
		at = chunk.Next
	}
}

// cleanup ends the task in the worker's session, if it has not ended.
func (w *Worker) cleanup(c *claim) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	now := time.Duration(0)
	_, _ = w.cfg.API.Stop(ctx, control.StopRequest{Refs: []string{string(c.local)}, Grace: &now, Actor: task.ByRuntime,
		Detail: "its session has given it up, or cannot be reached"})
	c.stops.Wait()
}

// leave ends all tasks: first with a grace, so that their ends are reported, and then at once.
func (w *Worker) leave() {
	w.Drain()
	w.mu.Lock()
	all := slices.Collect(maps.Values(w.claims))
	w.mu.Unlock()
	for _, c := range all {
		grace := time.Second
		w.stop(c, fleetwire.Command{Actor: task.ByRuntime, Grace: &grace})
	}
	select {
	case <-w.idle:
	case <-time.After(leaveTime):
		for _, c := range all {
			c.drop(errLeave)
		}
	}
}

// stop stops the task of a claim.
func (w *Worker) stop(c *claim, cmd fleetwire.Command) {
	c.ask()
	c.mu.Lock()
	local := c.local
	if local == "" {
		c.early = &cmd
	}
	c.mu.Unlock()
	if local == "" {
		return
	}
	c.stops.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r, err := w.cfg.API.Stop(ctx, control.StopRequest{Refs: []string{string(local)}, Grace: cmd.Grace, Actor: cmd.Actor,
			Detail: "asked for by its session"})
		if err != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.receipt.Stopped) == 0 {
			c.receipt = r
		}
	})
}

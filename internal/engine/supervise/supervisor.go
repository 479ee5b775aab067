// Package supervise runs the tasks of one session.
//
// It owns a goroutine per task, the tree of tasks, the pools that limit concurrent
// work, the open questions, and the one function through which a task changes.
// [lifecycle.Apply] validates a [lifecycle.Change], the journal makes it durable, and only then
// is it visible. Every started task ends exactly once, and the notification of the
// end is part of the same transaction. A stopped tree starts no further task.
// [Supervisor.Close] returns when no goroutine of a task is left.
//
// The package names no kind of task and does no task's work.
package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// Log makes events durable.
type Log interface {
	// Append returns when the entry is durable, and calls its Committed before any reader sees
	// it. After an error nothing of it is written.
	Append(ctx context.Context, e lifecycle.Entry) (task.Seq, error)
	// AppendAll is Append for many entries, with a result for each.
	AppendAll(ctx context.Context, entries []lifecycle.Entry) ([]task.Seq, []error)
	// Post returns when the message is durable. After an error it is not written. The error
	// wraps [task.ErrMailFull] if the receiver has too many unread messages.
	Post(ctx context.Context, m task.Message) (task.Seq, error)
}

// OutputFile is an open output file of one task.
type OutputFile interface {
	task.Output
	io.Closer
	Lost() string // after Close: describes missing output, for the owner of the task; empty: all is there
}

// Pool limits how many tasks that name it in their spec run at the same time.
type Pool struct {
	Size    int // tasks running at the same time; more wait as pending
	Queue   int // tasks that may wait; 0: no limit
	Depth   int // deepest allowed task; 0: no limit
	PerRoot int // runs of the pool in the tree of one root in a session; 0: no limit
	Rate    int // runs that the tree of one root may start within a minute; 0: no limit

	PerSession int // runs of the pool in a session, earlier hosts included; 0: no limit
}

// Config holds the parts and limits of a supervisor.
type Config struct {
	Session task.ID
	Log     Log
	// Output opens the output file of a task that begins. again is set for adopted work and for
	// a further run. Nil: tasks have no output.
	Output func(r task.Record, again bool) (OutputFile, error)
	// OutputPath returns the path of that file. Nil: tasks have no output.
	OutputPath func(task.ID) string
	Pools      map[string]Pool
	// Recorded is called with the notification of every end once it is durable, before any
	// reader sees the end. It must not write to the log.
	Recorded func(lifecycle.Notification)
	// Held limits how many ended tasks stay in memory, and HeldBytes the size of their records
	// and inputs (0: 32 MiB). Tasks beyond a limit are evicted when they have been ended for
	// Grace (0: 30 s; a sixteenth of it while HeldBytes is exceeded). Recall reads evicted
	// tasks on demand. Held 0: all stay.
	Held      int
	HeldBytes int
	Grace     time.Duration
	Recall    func(context.Context, []task.ID) ([]task.Record, error)
	// Prepare is called for each new task before anything of it is recorded. Nil: tasks start as asked for.
	Prepare func(d task.Driver, spec task.Spec) Prepared
	// Unseen returns the notifications of an owner that it has not read. Nil: they are not known.
	Unseen func(ctx context.Context, owner task.ID) ([]lifecycle.Notification, error)
	// Room is called before tasks are recorded; an error refuses them. Nil: no check.
	Room func() error
	// Unsaved is called with the error of every attempt to record the end of a run, and with
	// nil after success. Nil: no report.
	Unsaved func(task.RunID, error)
	// Ended is called after every end is durable, on the task's goroutine.
	Ended func(task.Record, lifecycle.Notification)
}

// Prepared is how a new task starts.
type Prepared struct {
	Driver task.Driver
	ID     task.ID                   // empty: a random one
	Ready  func(ctx context.Context) // returns when the task may begin; nil: at once
}

// Errors that callers compare.
var (
	ErrUnknown = errors.New("unknown task")
	ErrClosing = errors.New("the session is closing")
	ErrFrozen  = errors.New("the parent is being stopped")
	// ErrTimeout is returned by waits whose limit has passed.
	ErrTimeout = errors.New("timeout")
)

// LimitError is a start that a limit refuses.
type LimitError struct {
	Limit string // depth, per_root, per_session, rate, queue, or a limit of [Config.Room]
	N     int
	Wait  time.Duration // of rate: time until the next start is allowed
	Text  string        // replaces the default message
}

func (e *LimitError) Error() string {
	if e.Text != "" {
		return e.Text
	}
	switch e.Limit {
	case "depth":
		return fmt.Sprintf("recursion rejected: tasks may be nested %d deep", e.N)
	case "per_root":
		return fmt.Sprintf("this session may start %d of these", e.N)
	case "per_session":
		return fmt.Sprintf("this session has started %d of these, which is the most that it may", e.N)
	case "rate":
		seconds := int64((e.Wait + time.Second - 1) / time.Second)
		return fmt.Sprintf("too many starts: %d within a minute are allowed, and the next is possible in %d s", e.N, seconds)
	}
	return fmt.Sprintf("max concurrent agents reached (%d)", e.N)
}

// AmbiguousError is a reference that matches several tasks.
type AmbiguousError struct {
	Ref     string
	Matches []task.Record
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q fits %d tasks", e.Ref, len(e.Matches))
}

// Supervisor runs tasks. Its methods may be called by several goroutines.
type Supervisor struct {
	cfg   Config
	pools map[string]*pool

	life context.Context // ends when Close begins
	end  context.CancelCauseFunc
	runs sync.WaitGroup // one per task from its admission to its end, and the reporter; Close waits

	mu      sync.RWMutex
	tasks   map[task.ID]*entry
	order   []*entry            // by creation
	names   map[string][]*entry // all in memory by [task.NameKey], in any order; several may be live after a resume
	keys    map[childKey]*entry
	closing bool
	ended   chan struct{} // closed and replaced at every end

	past past

	reporter reporter
	desk     desk

	moves   sync.Mutex // held while a task passes its children to its parent; taken before every other lock
	pausing sync.Mutex // held while a tree is paused or resumed; only moves is taken before it

	// opening serializes the creation of output files. The kernel creates the files of a folder
	// one after the other, and each waiting creation costs a thread, which the runtime keeps.
	// It is taken before every other lock.
	opening sync.Mutex
}

type childKey struct {
	parent task.ID
	key    string
}

// entry is one task.
type entry struct {
	id   task.ID // never changes, like the next
	root task.ID // of the tree in which it was started: an outside agent, or its top-level ancestor
	up   atomic.Pointer[entry]
	born task.Seq // 0 until the first event is durable; written with door and the supervisor's mu held

	waiting  bool      // it is in the eviction queue; guarded by the supervisor's mu, like the next
	weight   int       // its weight there
	pinned   int       // further runs that are being recorded
	recalled time.Time // when it was loaded into memory again

	door sync.Mutex // held while a change is appended to the log
	rec  atomic.Pointer[task.Record]

	mu       sync.Mutex
	spec     task.Spec // guarded by mu, like the rest
	children []*entry
	frozen   *task.StopError // a stop was requested, with this cause: no further child
	again    bool            // a further run, or a run under a further host
	cancel   context.CancelCauseFunc
	driver   task.Driver
	resume   chan struct{}  // nil: not paused; closed on resume
	waits    *task.Progress // since the present run joined a queue; nil: it did not
	clock    *clock         // nil: the run has no time limit
	live     chan struct{}  // closed when the present run has ended
	promoted chan struct{}  // closed when the task moves to the background
	result   task.Result    // of the last run, for receipts
}

// New makes a supervisor. It does no I/O.
func New(cfg Config) *Supervisor {
	if cfg.Prepare == nil {
		cfg.Prepare = func(d task.Driver, _ task.Spec) Prepared { return Prepared{Driver: d} }
	}
	s := &Supervisor{
		cfg:   cfg,
		tasks: map[task.ID]*entry{},
		names: map[string][]*entry{},
		keys:  map[childKey]*entry{},
		pools: map[string]*pool{},
		ended: make(chan struct{}),
		past:  past{packed: newPacked()},
		desk:  desk{changed: make(chan struct{}), absent: true, turned: make(chan struct{})},
	}
	for name, p := range cfg.Pools {
		s.pools[name] = newPool(p)
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	s.reporter.wake = make(chan struct{}, 1)
	s.runs.Go(func() { s.reporter.run(s.life, s) })
	return s
}

// Start records a task and starts it. It returns when the task is durably pending, with its
// position in the queue if it has to wait. ctx bounds the recording, not the task.
func (s *Supervisor) Start(ctx context.Context, d task.Driver, spec task.Spec) (task.Record, error) {
	rec, begin, err := s.Record(ctx, d, spec)
	if err == nil {
		begin()
		rec = s.placed(rec)
	}
	return rec, err
}

// Placed adds the position in the queue to a record from [Supervisor.Record], after begin.
func (s *Supervisor) Placed(rec task.Record) task.Record { return s.placed(rec) }

// placed adds the position in the queue to the record of a task that was just started, before
// the event that has it.
func (s *Supervisor) placed(rec task.Record) task.Record {
	e := s.entry(rec.ID)
	if e == nil || rec.Status != task.Pending || rec.Progress != nil {
		return rec
	}
	rec.Progress = e.queued()
	return rec
}

// Record is the first half of Start: the task is durably pending and waits for begin, which the
// caller calls once and soon. A batch is recorded completely before any of its tasks uses the
// machine.
func (s *Supervisor) Record(
	ctx context.Context,
	d task.Driver,
	spec task.Spec,
) (rec task.Record, begin func(), err error) {
	r := s.RecordAll(ctx, []Starting{{d, spec}})[0]
	return r.Task, r.Begin, r.Err
}

// Starting is one task of a batch.
type Starting struct {
	Driver task.Driver
	Spec   task.Spec
}

// Recorded is the result for one task of a batch. Begin is nil if Err is set.
type Recorded struct {
	Task  task.Record
	Begin func()
	Err   error
}

// RecordAll is Record for many tasks, which become durable together. A refused task does not
// affect the others. The results are in the order of the batch.
func (s *Supervisor) RecordAll(ctx context.Context, batch []Starting) []Recorded {
	out := make([]Recorded, len(batch))
	entries, found, fresh := make([]*entry, len(batch)), make([]bool, len(batch)), make([]*entry, 0, len(batch))
	room := s.room()
	starts := make([]Prepared, len(batch))
	for i, b := range batch {
		starts[i] = s.cfg.Prepare(b.Driver, b.Spec)
		b.Driver = starts[i].Driver
		err := b.Spec.Check()
		if err == nil {
			err = b.Driver.Check(b.Spec.Input)
		}
		if err == nil {
			err = room
		}
		if err == nil {
			err = s.keyed(b.Spec)
		}
		if err == nil {
			entries[i], found[i], err = s.admit(starts[i], b.Spec)
		}
		switch {
		case err != nil:
			out[i].Err = err
		case !found[i]:
			fresh = append(fresh, entries[i])
		}
	}
	_ = failpoint.Hit("task/chosen")
	errs := s.create(ctx, fresh)
	_ = failpoint.Hit("task/recorded")
	for i, e := range entries {
		switch {
		case out[i].Err != nil:
		case found[i]:
			out[i] = e.found()
		case errs[e] != nil:
			s.forget(e)
			out[i].Err = fmt.Errorf("start task: %w", errs[e])
		default:
			out[i].Task, out[i].Begin = *e.rec.Load(), func() { s.launch(e, starts[i], false) }
		}
	}
	return out
}

// found answers a second start with the key of e. The first start may still be in progress, and
// may fail.
func (e *entry) found() Recorded {
	e.door.Lock()
	defer e.door.Unlock()
	rec := *e.rec.Load()
	if e.born == 0 {
		return Recorded{Err: fmt.Errorf("start task: the start of %q that came before could not be recorded", rec.Key)}
	}
	return Recorded{Task: rec, Begin: func() {}}
}

func (s *Supervisor) room() error {
	if s.cfg.Room == nil {
		return nil
	}
	return s.cfg.Room()
}

// ownTraits returns the traits of a driver whose kind is not built in, and nil for a built-in
// kind.
func ownTraits(d task.Driver) (*task.Traits, error) {
	k := d.Kind()
	if k.BuiltIn() {
		return nil, nil
	}
	var traits task.Traits
	if d, ok := d.(task.Traited); ok {
		traits = d.Traits()
	}
	return &traits, lifecycle.CheckOwn(k, traits)
}

// admit checks every limit and adds the task under one lock, so that two starts cannot both
// take the last slot and none enters a frozen tree. It holds the door of the new task; create
// releases it.
func (s *Supervisor) admit(start Prepared, spec task.Spec) (e *entry, found bool, err error) {
	d := start.Driver
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, false, ErrClosing
	}
	own, err := ownTraits(d)
	if err != nil {
		return nil, false, err
	}
	e = &entry{id: cmp.Or(start.ID, task.NewID(d.Kind())), spec: spec,
		live: make(chan struct{}), promoted: make(chan struct{})}
	for s.tasks[e.id] != nil || s.names[string(e.id)] != nil || s.was(string(e.id)) {
		e.id = task.NewID(d.Kind())
	}
	depth, twin, err := s.locate(e)
	if err != nil || twin != nil {
		return twin, twin != nil, err
	}
	if spec.Backgrounded {
		close(e.promoted)
	}
	pool, now := s.pools[spec.Pool], time.Now()
	if pool != nil {
		if err := pool.allows(e.root, depth, now); err != nil {
			return nil, false, err
		}
	}
	rec := s.firstRecord(e, d.Kind(), own, depth)
	if s.cfg.OutputPath != nil {
		rec.OutputFile = s.cfg.OutputPath(e.id)
	}
	e.rec.Store(&rec)
	e.door.Lock()
	if p := e.parent(); p != nil && !p.take(e) {
		return nil, false, ErrFrozen
	}
	s.runs.Add(1) // launch or forget calls Done
	if pool != nil {
		pool.count(e.root, now)
	}
	s.tasks[e.id] = e
	s.addName(e)
	if spec.Key != "" {
		s.keys[childKey{spec.Parent, spec.Key}] = e
	}
	return e, false, nil
}

// locate finds the place of a new task in the tree: its ID if one is asked for, its parent, its
// root and its depth. It returns the child of the same key instead, if its parent has one.
func (s *Supervisor) locate(e *entry) (depth int, twin *entry, err error) {
	spec := e.spec
	depth = 1
	if spec.ID != "" {
		if s.tasks[spec.ID] != nil || s.was(string(spec.ID)) {
			return 0, nil, fmt.Errorf("task %s is there already", spec.ID)
		}
		e.id, depth = spec.ID, 0
	}
	if e.root = e.id; spec.Owner != "" {
		e.root = spec.Owner
	}
	if spec.Parent == "" {
		return depth, nil, nil
	}
	p := s.tasks[spec.Parent]
	if p == nil && s.was(string(spec.Parent)) { // the parent has ended and was evicted
		return 0, nil, ErrFrozen
	}
	if p == nil {
		return 0, nil, fmt.Errorf("parent %s: %w", spec.Parent, ErrUnknown)
	}
	if k := s.keys[childKey{p.id, spec.Key}]; spec.Key != "" && k != nil {
		return 0, k, nil
	}
	if p.isFrozen() || p.rec.Load().Status.Terminal() {
		return 0, nil, ErrFrozen
	}
	e.up.Store(p)
	e.root = p.root
	return p.rec.Load().Depth + 1, nil, nil
}

// firstRecord is the record of a new task.
func (s *Supervisor) firstRecord(e *entry, kind task.Kind, own *task.Traits, depth int) task.Record {
	spec := e.spec
	r := task.Record{Kind: kind, OwnTraits: own}
	name, asked := spec.Name, ""
	if r.Traits().Work == task.ByAgent {
		name = task.AgentName(name)
	}
	if name = s.uniqueName(name); name != spec.Name {
		asked = spec.Name
	}
	return lifecycle.Short(task.Record{
		ID:           e.id,
		Run:          task.NewRunID(),
		Kind:         kind,
		OwnTraits:    own,
		Status:       task.Pending,
		Backgrounded: spec.Backgrounded,
		Keep:         spec.Keep,
		TTY:          spec.TTY,
		Sandbox:      spec.Sandbox,
		Name:         name,
		AskedName:    asked,
		Description:  spec.Description,
		Session:      s.cfg.Session,
		Parent:       spec.Parent,
		Owner:        spec.Owner,
		Depth:        depth,
		ToolUseID:    spec.ToolUseID,
		AgentType:    spec.AgentType,
		Mode:         spec.Mode,
		Model:        spec.Model,
		Prompt:       lifecycle.ShortPrompt(spec.Prompt),
		Command:      spec.Command,
		Cwd:          spec.Cwd,
		CreateTime:   time.Now().UTC(),
		TimeoutMS:    spec.Timeout.Milliseconds(),
		Priority:     spec.Priority,
		Pool:         spec.Pool,
		Key:          spec.Key,
		Schedule:     spec.Schedule,
		On:           spec.On,
		Quote:        spec.Quote,
		Retries:      min(spec.Retries, task.MaxRetries),
		Silent:       spec.Silent,
		Team:         spec.Team,
		Budget:       spec.Budget,
		OnEnd:        spec.OnEnd,
	})
}

// parent returns the task that e is below, nil at the top. It changes when a task is moved to
// another parent.
func (e *entry) parent() *entry { return e.up.Load() }

// part removes a child.
func (e *entry) part(c *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.children = slices.DeleteFunc(slices.Clone(e.children), func(o *entry) bool { return o == c })
}

// take adds a child unless a stop was requested. Both are one step: a stop either finds the
// child or forbids it.
func (e *entry) take(c *entry) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.frozen != nil || e.rec.Load().Status.Terminal() {
		return false
	}
	e.children = append(e.children, c)
	return true
}

// uniqueName adds a number to a wanted name that a live task has or nearly has, or that is the ID of any
// task. A name that only looks like an ID, such as webserver, is allowed. The number is
// free and the one before it is taken. A binary search finds it, since a session may start
// tens of thousands of tasks with one name.
func (s *Supervisor) uniqueName(want string) string {
	if want == "" || s.isFree(want) {
		return want
	}
	name := func(n int) string { return fmt.Sprintf("%s-%d", want, n) }
	taken, n := 1, 2
	for !s.isFree(name(n)) {
		taken, n = n, 2*n
	}
	for n-taken > 1 {
		if between := (taken + n) / 2; s.isFree(name(between)) {
			n = between
		} else {
			taken = between
		}
	}
	return name(n)
}

func (s *Supervisor) isFree(name string) bool {
	_, was := s.past.id(task.ID(name))
	return !slices.ContainsFunc(s.names[task.NameKey(name)], (*entry).lives) && s.tasks[task.ID(name)] == nil && !was
}

// lives reports whether the task has not ended.
func (e *entry) lives() bool { return !e.rec.Load().Status.Terminal() }

// addName adds e to the index of names. The caller holds mu.
func (s *Supervisor) addName(e *entry) {
	if name := e.rec.Load().Name; name != "" {
		key := task.NameKey(name)
		s.names[key] = append(s.names[key], e)
	}
}

// dropName undoes addName. The caller holds mu.
func (s *Supervisor) dropName(e *entry) {
	key := task.NameKey(e.rec.Load().Name)
	left := slices.DeleteFunc(s.names[key], func(o *entry) bool { return o == e })
	if len(left) == 0 {
		delete(s.names, key)
		return
	}
	s.names[key] = left
}

// create makes the first events durable and then makes the tasks visible. A goroutine that
// holds one of these doors waits for no other.
func (s *Supervisor) create(ctx context.Context, fresh []*entry) map[*entry]error {
	if len(fresh) == 0 {
		return nil
	}
	first := make([]lifecycle.Entry, len(fresh))
	for i, e := range fresh {
		defer e.door.Unlock()
		rec := *e.rec.Load()
		rec.Command, rec.CommandBytes = e.spec.Command, 0 // only this event has the complete spec
		first[i] = lifecycle.Entry{Verb: task.Create, At: rec.CreateTime, Task: rec, Committed: func(seq task.Seq) {
			s.mu.Lock()
			defer s.mu.Unlock()
			e.born = seq
			s.insert(e)
		}}
		e.spec.Command, e.spec.Prompt = "", "" // nothing else needs them
	}
	_, errs := s.cfg.Log.AppendAll(ctx, first)
	failed := map[*entry]error{}
	for i, e := range fresh {
		if errs[i] != nil {
			failed[e] = errs[i]
		}
	}
	return failed
}

// insert keeps order sorted by the number of the first event: the log may confirm two starts in
// the reverse order. It never moves elements that a listing may hold. The caller holds mu.
func (s *Supervisor) insert(e *entry) {
	i := len(s.order)
	for i > 0 && s.order[i-1].born > e.born {
		i--
	}
	if i == len(s.order) {
		s.order = append(s.order, e)
		return
	}
	s.order = slices.Insert(slices.Clone(s.order), i, e)
}

// forget undoes admit for a task that could not be recorded.
func (s *Supervisor) forget(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tasks, e.id)
	s.dropName(e)
	delete(s.keys, childKey{e.spec.Parent, e.spec.Key})
	if p := s.pools[e.spec.Pool]; p != nil {
		p.uncount(e.root)
	}
	if p := e.parent(); p != nil {
		p.part(e)
	}
	close(e.live) // a stop of the parent may wait for it
	s.runs.Done()
}

// apply is the only function that changes a task after its first event.
func (s *Supervisor) apply(
	ctx context.Context,
	e *entry,
	c lifecycle.Change,
	n *lifecycle.Notification,
	answer string,
) (_ task.Record, err error) {
	e.door.Lock()
	defer e.door.Unlock()
	cur := *e.rec.Load()
	if e.born == 0 { // a stop found the task before its first event, which may fail
		return cur, ErrUnknown
	}
	if c.Verb == task.Resume && cur.Status.Terminal() {
		if !e.over() {
			return cur, errEnding
		}
		e.renew()
		defer func() {
			if err != nil {
				s.freeWaiting(e)
			}
		}()
	}
	if c.At.IsZero() {
		c.At = time.Now().UTC()
	}
	var told *task.Progress // and was not written
	switch c.Verb {
	case task.Report,
		task.Complete,
		task.Fail,
		task.Stop: // taken here and not earlier, so that each progress is written once
		if told = s.reporter.take(e); c.Progress == nil {
			c.Progress = told
		}
	}
	if c.Verb == task.Report && c.Progress == nil && c.Summary == "" { // another event has it
		return cur, nil
	}
	next, err := lifecycle.Apply(cur, c)
	if errors.Is(err, lifecycle.ErrNoChange) {
		return cur, nil
	}
	if err != nil {
		return cur, err
	}
	ends := next.Status.Terminal() && !cur.Status.Terminal()
	if ends {
		n.Run, n.Task, n.Priority = next.Run, next.ID, next.Priority
		n.Owner, n.Acked, n.ByUser = next.Owner, known(next), next.StoppedByUser()
	}
	entry := lifecycle.Entry{Verb: c.Verb, At: c.At, Task: next, Notification: n, Answer: answer}
	entry.Committed = func(task.Seq) {
		if ends && s.cfg.Recorded != nil {
			s.cfg.Recorded(*n)
		}
		e.rec.Store(&next)
	}
	if _, err := s.cfg.Log.Append(ctx, entry); err != nil {
		s.reporter.giveBack(e, told)
		return cur, err
	}
	return next, nil
}

// known reports whether the owner of an ended task already has the result: a foreground call
// returns it, a model that stops a task knows of the stop, and a silent task is reported by
// other means.
func known(r task.Record) bool {
	return r.Owner == "" || r.Silent || !r.Backgrounded || r.Cause.Actor == task.ByModel
}

// Get returns a task by its ID.
func (s *Supervisor) Get(id task.ID) (task.Record, bool) {
	s.mu.RLock()
	e, was := s.tasks[id], s.gone(id)
	s.mu.RUnlock()
	switch {
	case e != nil && e.born != 0:
		return *e.rec.Load(), true
	case was:
		return s.recorded(id)
	}
	return task.Record{}, false
}

// Input returns the input of the present or last run of a task. It is nil for a task of an
// earlier host.
func (s *Supervisor) Input(id task.ID) json.RawMessage {
	e := s.entry(id)
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.spec.Input
}

// entry returns a task, and loads it if it was evicted.
func (s *Supervisor) entry(id task.ID) *entry {
	s.mu.RLock()
	e, was := s.tasks[id], s.gone(id)
	s.mu.RUnlock()
	if was {
		return s.recall(id)
	}
	if e == nil || e.born == 0 {
		return nil
	}
	return e
}

// Find returns the task that ref names: an ID, a name, or the beginning of exactly one ID. A
// name means the newest live task with that name, else the newest ended one.
func (s *Supervisor) Find(ref string) (task.Record, error) {
	s.mu.RLock() // held for both lookups: a task that is loaded or evicted meanwhile is found once
	r, matches, ok := s.findHeld(ref)
	if ok {
		s.mu.RUnlock()
		return r, nil
	}
	gone, named := s.findGone(ref)
	s.mu.RUnlock()
	if named {
		matches = nil
	}
	if len(gone) > 0 {
		old, err := s.cfg.Recall(context.Background(), gone)
		if err != nil {
			return task.Record{}, fmt.Errorf("find task %s: %w", ref, err)
		}
		matches = append(matches, old...)
	}
	switch len(matches) {
	case 0:
		return task.Record{}, fmt.Errorf("%w: %s", ErrUnknown, ref)
	case 1:
		return matches[0], nil
	}
	return task.Record{}, &AmbiguousError{Ref: ref, Matches: matches}
}

// findHeld is Find for tasks in memory. matches are those whose IDs begin with ref. The caller
// holds mu.
func (s *Supervisor) findHeld(ref string) (r task.Record, matches []task.Record, ok bool) {
	if e := s.tasks[task.ID(ref)]; e != nil && e.born != 0 {
		return *e.rec.Load(), nil, true
	}
	if e := s.named(ref); e != nil {
		if at, was := s.past.name(ref); !was || e.lives() || s.past.pages.born(at) <= e.born {
			return *e.rec.Load(), nil, true
		}
		return r, nil, false
	}
	if len(ref) >= 2 {
		for _, e := range s.order {
			if strings.HasPrefix(string(e.id), ref) {
				matches = append(matches, *e.rec.Load())
			}
		}
	}
	return r, matches, false
}

// named returns the task in memory that a name means: the newest live one, else the newest. The
// caller holds mu.
func (s *Supervisor) named(name string) (meant *entry) {
	for _, e := range s.names[task.NameKey(name)] {
		if e.born == 0 || e.rec.Load().Name != name { // not recorded yet, or only similar
			continue
		}
		lives := e.lives()
		if meant == nil || lives && !meant.lives() || lives == meant.lives() && e.born > meant.born {
			meant = e
		}
	}
	return meant
}

// List yields the tasks in memory, which include all live ones, newest first, each with the
// sequence number of its first event, beginning below a number (0: with the newest). The
// listing is a snapshot; it holds no lock while it yields.
func (s *Supervisor) List(before task.Seq) func(yield func(task.Seq, task.Record) bool) {
	s.mu.RLock()
	order := s.order[:len(s.order):len(s.order)]
	s.mu.RUnlock()
	return func(yield func(task.Seq, task.Record) bool) {
		for i := len(order) - 1; i >= 0; i-- {
			if before > 0 && order[i].born >= before {
				continue
			}
			if !yield(order[i].born, *order[i].rec.Load()) {
				return
			}
		}
	}
}

// Living is [Supervisor.List] of the tasks that have not ended. It copies no other record:
// agents call it before each turn, and a session may have thousands of ended tasks.
func (s *Supervisor) Living() func(yield func(task.Seq, task.Record) bool) {
	s.mu.RLock()
	order := s.order[:len(s.order):len(s.order)]
	s.mu.RUnlock()
	return func(yield func(task.Seq, task.Record) bool) {
		for _, e := range slices.Backward(order) {
			if r := e.rec.Load(); !r.Status.Terminal() && !yield(e.born, *r) {
				return
			}
		}
	}
}

// Live returns the number of tasks that have not ended.
func (s *Supervisor) Live() (live, total int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.order {
		if !e.rec.Load().Status.Terminal() {
			live++
		}
	}
	return live, len(s.order) + len(s.past.order) - s.past.back
}

func (e *entry) isFrozen() bool {
	for ; e != nil; e = e.parent() {
		e.mu.Lock()
		frozen := e.frozen != nil
		e.mu.Unlock()
		if frozen {
			return true
		}
	}
	return false
}

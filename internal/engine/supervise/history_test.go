package supervise_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

// owner is who is told; it has a mailbox and a transcript.
const owner = task.ID("s00000000")

// TestHistory makes random histories, with crashes in them, and compares what
// the log says with a small model: one end and one notification for each run, and
// each notification read once. A failure prints its script, one action a line.
// -rapid.checks lifts the time limit.
func TestHistory(t *testing.T) {
	end := time.Now().Add(6 * time.Second)
	bounded := flag.Lookup("rapid.checks").Value.String() == flag.Lookup("rapid.checks").DefValue
	made := 0
	rapid.Check(t, func(t *rapid.T) {
		if bounded && time.Now().After(end) {
			return
		}
		made++
		history(t)
	})
	if made < 5 {
		t.Errorf("only %d histories in the time", made)
	}
}

func history(t *rapid.T) {
	dir, err := os.MkdirTemp("", "history")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	w := &world{path: filepath.Join(dir, "db"), roles: map[task.ID]*role{}, live: map[task.ID]*run{}, runs: map[task.RunID]*run{}, read: map[task.Seq]task.RunID{}}
	defer func() { w.down(true) }() // also when an action fails
	w.up(t)
	t.Repeat(map[string]func(*rapid.T){
		"start":    w.start,
		"resume":   w.resume,
		"complete": func(t *rapid.T) { w.say(t, "complete", task.Completed) },
		"fail":     func(t *rapid.T) { w.say(t, "fail", task.Failed) },
		"stop":     w.stop,
		"promote":  w.promote,
		"ask":      w.ask,
		"decide":   w.decide,
		"deliver":  w.deliver,
		"close":    func(t *rapid.T) { w.again(t, false) },
		"crash":    func(t *rapid.T) { w.again(t, true) },
		"":         w.check,
	})
	for id := range w.live {
		w.stopped(t, id, task.ByUser)
	}
	w.again(t, false)
	w.read1(t, len(w.runs), false)
	w.check(t)
	w.whole(t)
}

// run is what the model knows of a run.
type run struct {
	id         task.RunID
	task       task.ID
	parent     task.ID
	background bool
	keep       bool
	asks       bool       // a question of it is open
	toldBy     task.Actor // who ended it, once it has ended
	end        *task.Record
}

// role is how the test speaks to the driver of one task.
type role struct {
	begun chan struct{}
	say   chan error
	ask   chan struct{}
	told  chan task.Reply
}

// world is the log, the program that writes it, and the model.
type world struct {
	path string
	j    *journal.Journal
	s    *supervise.Supervisor
	dead atomic.Bool // the program is being killed: whoever writes is gone

	mu    sync.Mutex
	late  bool             // what was under way at the crash is there
	wrote map[task.ID]bool // since the crash
	box   *mailbox.Box
	roles map[task.ID]*role

	live map[task.ID]*run
	runs map[task.RunID]*run
	read map[task.Seq]task.RunID // the transcript
}

// Append is the log until the crash. Who writes after it is gone; what was
// under way may still become durable, but at most once for each task: nobody
// who is dead can go on from there.
func (w *world) Append(ctx context.Context, e lifecycle.Entry) (task.Seq, error) {
	if !w.dead.Load() {
		return w.j.Append(ctx, e)
	}
	w.mu.Lock()
	last := w.late && !w.wrote[e.Task.ID]
	w.wrote[e.Task.ID] = true
	w.mu.Unlock()
	if last {
		_, _ = w.j.Append(ctx, e)
	}
	runtime.Goexit()
	return 0, nil
}

// AppendAll is Append: the history starts one task at a time.
func (w *world) AppendAll(ctx context.Context, entries []lifecycle.Entry) ([]task.Seq, []error) {
	seq, err := w.Append(ctx, entries[0])
	return []task.Seq{seq}, []error{err}
}

// Post is not part of a history.
func (w *world) Post(context.Context, task.Message) (task.Seq, error) { panic("not used") }

// actor is a driver that does what its role says.
type actor struct{ w *world }

func (actor) Kind() task.Kind             { return task.LocalBash }
func (actor) Check(json.RawMessage) error { return nil }
func (actor) Adopts(r task.Record) bool   { return r.Process != nil }

func (a actor) Run(ctx context.Context, h task.Host) (task.Result, error) {
	r := a.w.role(h.Record().ID)
	if h.Record().Process == nil && h.Record().Keep {
		if err := h.Begun(task.Process{PID: 1, Start: 1, Boot: "b"}); err != nil {
			return task.Result{}, err
		}
	}
	select {
	case r.begun <- struct{}{}:
	default: // adopted
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	asks, over := context.WithCancel(ctx)
	defer over()
	for ctx.Err() == nil {
		select {
		case err := <-r.say:
			return task.Result{Text: "said"}, err
		case <-r.ask:
			asking.Go(func() {
				if reply, err := h.Ask(asks, task.Question{Tool: "Bash"}); err == nil {
					r.told <- reply
				}
			})
		case <-ctx.Done():
		}
	}
	if h.Record().Keep && errors.Is(context.Cause(ctx), task.ErrClosing) {
		return task.Result{}, task.ErrDetached
	}
	return task.Result{}, context.Cause(ctx)
}

// launcher is an actor with a process.
type launcher struct{ actor }

func (launcher) Launches() {}

// actor is the driver of a task: kept ones have a process.
func (w *world) actor(keep bool) task.Driver {
	if keep {
		return launcher{actor{w}}
	}
	return actor{w}
}

func (w *world) role(id task.ID) *role {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.roles[id] == nil {
		w.roles[id] = &role{begun: make(chan struct{}, 1), say: make(chan error, 1), ask: make(chan struct{}), told: make(chan task.Reply, 1)}
	}
	return w.roles[id]
}

// up opens the log as a program does that takes the session up.
func (w *world) up(t *rapid.T) {
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	w.j, err = journal.Open(w.path, journal.Options{})
	must(err)
	w.dead.Store(false)
	w.s = supervise.New(supervise.Config{Session: owner, Log: w})
	states, err := w.j.Tasks(t.Context())
	must(err)
	old := make([]supervise.Old, len(states))
	for i, st := range states {
		old[i] = supervise.Old{Born: st.Born, Task: st.Task}
	}
	must(w.s.Adopt(t.Context(), old, func(task.Kind) task.Driver { return actor{w} }))
	box, err := mailbox.Open(t.Context(), owner, w.j)
	must(err)
	w.box = box
}

// down ends the program, in order or not.
func (w *world) down(crash bool) {
	if w.s == nil {
		return
	}
	w.wrote = map[task.ID]bool{}
	w.dead.Store(crash)
	w.s.Close()
	_ = w.j.Close() // what it lost is found by the checks
	w.s, w.box = nil, nil
}

func (w *world) again(t *rapid.T, crash bool) {
	if crash {
		w.late = rapid.Bool().Draw(t, "last words are there") // nobody writes yet
	}
	t.Logf("crash %v", crash)
	w.down(crash)
	w.up(t)
	for id, r := range w.live {
		rec, ok := w.s.Get(id)
		switch {
		case !ok:
			t.Fatalf("task %s is lost", id)
		case r.keep && rec.Status != task.Running:
			t.Fatalf("kept task %s is %s", id, rec.Status)
		case !r.keep && rec.Status != task.Killed:
			t.Fatalf("task %s is %s without its host", id, rec.Status)
		case !r.keep:
			w.ended(t, id, task.Killed, "")
		}
		r.asks = false // gone with the program that asked
	}
}

func (w *world) start(t *rapid.T) {
	r := &run{background: rapid.Bool().Draw(t, "background")}
	if parents := slices.Sorted(maps.Keys(w.live)); len(parents) > 0 && rapid.Bool().Draw(t, "nested") {
		r.parent = rapid.SampledFrom(parents).Draw(t, "parent")
	} else {
		r.keep = rapid.Bool().Draw(t, "keep")
	}
	rec, err := w.s.Start(t.Context(), w.actor(r.keep), task.Spec{Owner: owner, Parent: r.parent, Backgrounded: r.background, Keep: r.keep})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("start %s", rec.ID)
	w.begun(t, r, rec)
}

func (w *world) begun(t *rapid.T, r *run, rec task.Record) {
	r.id, r.task = rec.Run, rec.ID
	if w.runs[r.id] != nil {
		t.Fatalf("run %s is there twice", r.id)
	}
	w.live[r.task], w.runs[r.id] = r, r
	soon(t, w.role(r.task).begun)
}

func (w *world) resume(t *rapid.T) {
	var over []task.ID
	for _, r := range w.runs {
		parent := w.live[r.parent]
		if w.live[r.task] == nil && !r.keep && (r.parent == "" || parent != nil) && !slices.Contains(over, r.task) {
			over = append(over, r.task)
		}
	}
	if len(over) == 0 {
		t.Skip("nothing has ended")
	}
	slices.Sort(over)
	id := rapid.SampledFrom(over).Draw(t, "task")
	r := &run{background: rapid.Bool().Draw(t, "background")}
	before, _ := w.s.Get(id)
	r.parent = before.Parent
	select { // a word that an earlier run did not wait for
	case <-w.role(id).say:
	default:
	}
	rec, err := w.s.Resume(t.Context(), id, actor{w}, task.Spec{Owner: owner, Backgrounded: r.background})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("resume %s", id)
	w.begun(t, r, rec)
}

// some draws a live task.
func (w *world) some(t *rapid.T) task.ID {
	if len(w.live) == 0 {
		t.Skip("nothing is alive")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(w.live))).Draw(t, "task")
}

func (w *world) say(t *rapid.T, what string, want task.Status) {
	id := w.some(t)
	t.Logf("%s %s", what, id)
	var err error
	if want == task.Failed {
		err = errors.New("broken")
	}
	w.role(id).say <- err
	w.over(t, id, want, task.ByItself)
}

func (w *world) stop(t *rapid.T) {
	w.stopped(t, w.some(t), rapid.SampledFrom([]task.Actor{task.ByUser, task.ByModel}).Draw(t, "by"))
}

func (w *world) stopped(t *rapid.T, id task.ID, by task.Actor) {
	if w.live[id] == nil {
		return // it ended with its parent
	}
	t.Logf("stop %s by %s", id, by)
	receipt, err := w.s.Stop(t.Context(), []task.ID{id}, supervise.StopRequest{Cause: task.Cause{Actor: by, Reason: task.ReasonStopped}})
	if err != nil || len(receipt.Survivors) > 0 || len(receipt.Stopped) < 1+len(w.below(id)) {
		t.Fatalf("stop %s: %+v, %v", id, receipt, err)
	}
	w.over(t, id, task.Killed, by)
}

// below are the live tasks under one.
func (w *world) below(id task.ID) (ids []task.ID) {
	for _, r := range w.live {
		if r.parent == id {
			ids = append(append(ids, r.task), w.below(r.task)...)
		}
	}
	return ids
}

// over waits for the end of a task, which takes all below it along.
func (w *world) over(t *rapid.T, id task.ID, want task.Status, by task.Actor) {
	all := append(w.below(id), id)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := w.s.Wait(ctx, all, false); err != nil {
		t.Fatalf("wait for %v: %v", all, err)
	}
	for _, one := range all {
		if one == id {
			w.ended(t, one, want, by)
		} else {
			w.ended(t, one, task.Killed, "")
		}
	}
}

// ended notes the end of a run in the model.
func (w *world) ended(t *rapid.T, id task.ID, want task.Status, by task.Actor) {
	r := w.live[id]
	delete(w.live, id)
	rec, _ := w.s.Get(id)
	if rec.Run != r.id || rec.Status != want || rec.Cause == nil || by != "" && rec.Cause.Actor != by {
		t.Fatalf("run %s ended as %+v, want %s by %s", r.id, rec, want, by)
	}
	r.toldBy, r.end, r.asks = rec.Cause.Actor, &rec, false
}

// ask has a live task ask something, unless it does already.
func (w *world) ask(t *rapid.T) {
	id := w.some(t)
	if w.live[id].asks {
		t.Skip("it waits for an answer")
	}
	t.Logf("ask %s", id)
	w.role(id).ask <- struct{}{}
	for !w.live[id].asks {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		q, version := w.open(id)
		if q != nil {
			w.live[id].asks = true
		} else if err := w.s.AwaitQuestions(ctx, version); err != nil {
			t.Fatalf("a question did not come: %v", err)
		}
		cancel()
	}
}

// open is the open question of a task, if there is one.
func (w *world) open(id task.ID) (*task.Question, int64) {
	questions, version := w.s.Questions()
	for _, q := range questions {
		if q.Task == id {
			return &q, version
		}
	}
	return nil, version
}

// decide answers a question, and tries to do so a second time.
func (w *world) decide(t *rapid.T) {
	id := w.some(t)
	q, _ := w.open(id)
	if (q != nil) != w.live[id].asks {
		t.Fatalf("task %s: open question %v, want %v", id, q, w.live[id].asks)
	}
	if q == nil {
		t.Skip("it asks nothing")
	}
	reply := task.Reply{Allow: rapid.Bool().Draw(t, "allow")}
	t.Logf("decide %s %v", id, reply.Allow)
	if err := w.s.Decide(t.Context(), q.ID, q.Digest, reply, task.Cause{Actor: task.ByUser}); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-w.role(id).told:
		if got.Allow != reply.Allow {
			t.Fatalf("told %+v, want %+v", got, reply)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nobody was told the answer")
	}
	var stale *supervise.StaleError
	if err := w.s.Decide(t.Context(), q.ID, q.Digest, task.Reply{Allow: true}, task.Cause{}); !errors.As(err, &stale) {
		t.Fatalf("a second answer: %v", err)
	}
	w.live[id].asks = false
}

func (w *world) promote(t *rapid.T) {
	id := w.some(t)
	t.Logf("promote %s", id)
	rec, err := w.s.Promote(t.Context(), id)
	if err != nil || !rec.Backgrounded {
		t.Fatalf("promote %s: %+v, %v", id, rec, err)
	}
	w.live[id].background = true
}

// deliver is a turn of the owner. The program may die between the transcript
// and the acknowledgement.
func (w *world) deliver(t *rapid.T) {
	lost := rapid.Bool().Draw(t, "acknowledgement lost")
	w.read1(t, rapid.IntRange(1, 3).Draw(t, "letters"), lost)
	if lost {
		w.again(t, true)
	}
}

func (w *world) read1(t *rapid.T, most int, lost bool) {
	var seqs []task.Seq
	owed, err := w.box.Mail(t.Context()) // nobody writes messages here
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range owed[:min(most, len(owed))] {
		n := m.Notification
		seqs = append(seqs, n.Seq)
		if known, there := w.read[n.Seq]; there && known != n.Run {
			t.Fatalf("notification %d is of run %s, and was of %s", n.Seq, n.Run, known)
		}
		w.read[n.Seq] = n.Run // a transcript takes each number once
	}
	t.Logf("deliver %v, lost %v", seqs, lost)
	if lost {
		return
	}
	if err := w.box.Acknowledge(t.Context(), seqs...); err != nil {
		t.Fatal(err)
	}
}

// check compares the log with the model after every action.
func (w *world) check(t *rapid.T) {
	ends, notifications := map[task.RunID]task.Record{}, map[task.RunID]lifecycle.Notification{}
	var after task.Seq
	for {
		events, err := w.j.Since(t.Context(), after)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			after = e.Seq
			if !e.Task.Status.Terminal() {
				continue
			}
			if _, twice := ends[e.Task.Run]; twice {
				t.Fatalf("run %s has two ends", e.Task.Run)
			}
			ends[e.Task.Run] = e.Task
		}
	}
	all, err := w.j.Notifications(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if _, twice := notifications[n.Run]; twice {
			t.Fatalf("run %s has two notifications", n.Run)
		}
		notifications[n.Run] = n
	}
	for id, r := range w.runs {
		rec, _ := w.s.Get(r.task)
		if rec.Run == id && (rec.AwaitingApproval != r.asks || rec.AwaitingApproval != (len(rec.Questions) > 0)) {
			t.Fatalf("task %s: awaiting approval %v with %d questions, want %v", r.task, rec.AwaitingApproval, len(rec.Questions), r.asks)
		}
	}
	told := map[task.RunID]bool{}
	for seq, id := range w.read {
		if told[id] {
			t.Fatalf("run %s is in the transcript twice, once as %d", id, seq)
		}
		told[id] = true
	}
	for id, r := range w.runs {
		n, noted := notifications[id]
		end, over := ends[id]
		if over != (r.end != nil) || noted != over {
			t.Fatalf("run %s: ended %v, in the log %v, notification %v", id, r.end != nil, over, noted)
		}
		if !over {
			continue
		}
		if !same(end, *r.end) {
			t.Fatalf("the end of run %s changed from %+v to %+v", id, *r.end, end)
		}
		if wanted := r.background && r.toldBy != task.ByModel; wanted != (told[id] || !n.Acked) {
			t.Fatalf("run %s: owed %v, but notification %+v, read %v", id, wanted, n, told[id])
		}
	}
}

// whole checks that at the end nothing is missing and nothing is owed.
func (w *world) whole(t *rapid.T) {
	want, got := map[task.RunID]bool{}, map[task.RunID]bool{}
	for id, r := range w.runs {
		if r.end == nil {
			t.Errorf("run %s never ended", id)
		} else if r.background && r.toldBy != task.ByModel {
			want[id] = true
		}
	}
	for _, id := range w.read {
		got[id] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("told of %v, want %v", got, want)
	}
	if owed, err := w.box.Mail(t.Context()); len(owed) > 0 || err != nil {
		t.Errorf("still owed: %v, %v", owed, err)
	}
}

// same compares records as the log keeps them.
func same(a, b task.Record) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return reflect.DeepEqual(x, y)
}

// soon waits for a driver.
func soon(t *rapid.T, c <-chan struct{}) {
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatal(fmt.Errorf("a driver did not begin"))
	}
}

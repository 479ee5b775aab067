package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

// op is one thing that happens. do may run beside the do of other trees; then notes in
// the model what must have come of it.
type op struct {
	text string
	tree task.ID // that it touches, by its root; empty: none that is there
	do   func() error
	then func()
}

// play does one op.
func (o *op) play(w *world) {
	w.say("%s", o.text)
	if err := o.do(); err != nil {
		wrong("%s: %v", o.text, err)
	}
	o.then()
}

// play does one step of the history.
func (w *world) play(step int) {
	w.step = step
	w.tally.steps++
	r := rand.New(rand.NewPCG(w.seed, uint64(step)))
	switch n := r.IntN(1000); {
	case n < 8:
		w.say("kill, and meanwhile:")
		w.die(r, w.meanwhile(w.several(r)))
	case n < 10:
		w.close(false)
	case n < 60:
		w.together(w.several(r))
	case n < 90:
		w.follow()
	case n < 220:
		w.turn(r)
	default:
		if o := w.one(r, nil); o != nil {
			o.play(w)
		}
	}
	w.check()
}

// together does ops side by side.
func (w *world) together(ops []*op) {
	errs := w.atOnce(ops)
	for i, o := range ops {
		if errs[i] != nil {
			wrong("%s: %v", o.text, errs[i])
		}
		o.then()
	}
}

// meanwhile is what goes on while the program dies: nobody hears what came of it.
func (w *world) meanwhile(ops []*op) func() {
	return func() { w.atOnce(ops) }
}

func (w *world) atOnce(ops []*op) []error {
	errs := make([]error, len(ops))
	var wg sync.WaitGroup
	for i, o := range ops {
		w.say("  & %s", o.text)
		wg.Go(func() { errs[i] = o.do() })
	}
	wg.Wait()
	return errs
}

// several are ops on trees that have nothing to do with each other.
func (w *world) several(r *rand.Rand) (ops []*op) {
	var taken []task.ID
	for range 2 + r.IntN(8) {
		o := w.one(r, taken)
		if o == nil {
			continue
		}
		ops = append(ops, o)
		if o.tree != "" {
			taken = append(taken, o.tree)
		}
	}
	return ops
}

// one is something that is possible now, outside of some trees; nil: nothing is.
func (w *world) one(r *rand.Rand, taken []task.ID) *op {
	kind := r.IntN(100)
	if len(w.live) > 60 && kind < 40 {
		kind = 50
	}
	if kind < 24 {
		return w.start(r, taken)
	}
	if kind < 30 {
		return w.batch(r)
	}
	if kind < 36 {
		return w.resume(r, taken)
	}
	free := slices.DeleteFunc(slices.Sorted(maps.Keys(w.live)), func(id task.ID) bool { return slices.Contains(taken, w.root(id)) })
	slices.SortFunc(free, func(a, b task.ID) int { return strings.Compare(w.order1(a), w.order1(b)) })
	if len(free) == 0 {
		return w.start(r, taken)
	}
	id := free[r.IntN(len(free))]
	switch {
	case kind < 62:
		return w.finish(id, r.IntN(3) == 0)
	case kind < 64 && len(w.below(id)) == 0:
		return w.race(id)
	case kind < 68:
		return w.stopping(id, []task.Actor{task.ByUser, task.ByModel}[r.IntN(2)])
	case kind < 71:
		return w.promote(id)
	case kind < 75:
		return w.hold(id, r.IntN(2) == 0)
	case kind < 79:
		return w.ask(id, r.IntN(2) == 0)
	case kind < 86:
		return w.save(id, r.IntN(3000))
	case kind < 89:
		return w.summarize(id)
	case kind < 94:
		return w.tell(id, r.IntN(2) == 0)
	default:
		return w.post(r, id)
	}
}

// order1 sorts tasks by their age: their IDs are another in each run of a history.
func (w *world) order1(id task.ID) string { return fmt.Sprintf("%8s", w.name(id)) }

// root is the top of the tree that a task is in.
func (w *world) root(id task.ID) task.ID {
	for w.tasks[id].parent != "" {
		id = w.tasks[id].parent
	}
	return id
}

// below are the live tasks under one, also those that a crash has left below a task
// that has ended.
func (w *world) below(id task.ID) (ids []task.ID) {
	for _, r := range w.live {
		for up := r.parent; up != ""; up = w.tasks[up].parent {
			if up == id {
				ids = append(ids, r.task)
				break
			}
		}
	}
	return ids
}

// under are those of them that end with it: those that live tasks lead to.
func (w *world) under(id task.ID) (ids []task.ID) {
	for _, r := range w.live {
		if r.parent == id {
			ids = append(append(ids, r.task), w.under(r.task)...)
		}
	}
	return ids
}

// spec draws how a task is started.
func (w *world) spec(r *rand.Rand) task.Spec {
	s := task.Spec{Owner: session, Backgrounded: r.IntN(4) > 0, Keep: r.IntN(5) == 0, Command: "work"}
	if r.IntN(10) == 0 {
		s.Owner = ""
	}
	if r.IntN(3) == 0 {
		s.Name = []string{"red", "green", "blue"}[r.IntN(3)]
	}
	if r.IntN(4) == 0 {
		s.OnEnd = task.Reparents
	}
	if r.IntN(8) == 0 {
		s.Priority = task.Next
	}
	return s
}

func (w *world) start(r *rand.Rand, taken []task.ID) *op {
	spec := w.spec(r)
	parents := slices.DeleteFunc(slices.Sorted(maps.Keys(w.live)), func(id task.ID) bool { return slices.Contains(taken, w.root(id)) })
	slices.SortFunc(parents, func(a, b task.ID) int { return strings.Compare(w.order1(a), w.order1(b)) })
	o := &op{text: "start"}
	var there task.ID
	if len(parents) > 0 && r.IntN(5) < 2 {
		spec.Parent = parents[r.IntN(len(parents))]
		if r.IntN(2) == 0 {
			spec.Owner = spec.Parent
		}
		if r.IntN(3) == 0 {
			spec.Key = names()[r.IntN(2)]
			there = w.keys[childKey{spec.Parent, spec.Key}]
		}
		o.tree, o.text = w.root(spec.Parent), "start below "+w.name(spec.Parent)+" "+spec.Key
	}
	var rec task.Record
	o.do = func() (err error) {
		if rec, err = w.s.Start(context.Background(), w.driver(spec.Keep), spec); err != nil || there != "" {
			return err
		}
		return w.hello(rec.ID)
	}
	o.then = func() {
		if there != "" {
			if rec.ID != there {
				wrong("%s has a second child %q", w.name(spec.Parent), spec.Key)
			}
			return
		}
		w.begun(rec, spec)
	}
	return o
}

// names are the keys of children.
func names() []string { return []string{"first", "second"} }

// hello returns when a task is at work.
func (w *world) hello(id task.ID) error {
	return w.order(id, func(context.Context, task.Host) (bool, error) { return false, nil })
}

// begun notes a run that has begun.
func (w *world) begun(rec task.Record, spec task.Spec) {
	if w.runs[rec.Run] != nil {
		wrong("run %s is there twice", rec.Run)
	}
	r := &run{id: rec.Run, task: rec.ID, parent: rec.Parent, owner: spec.Owner, background: spec.Backgrounded, keep: rec.Keep, leaves: rec.OnEnd == task.Reparents}
	if p := w.live[r.parent]; p != nil {
		r.paused = p.paused
	}
	w.live[r.task], w.tasks[r.task], w.runs[r.id] = r, r, r
	if rec.Key != "" {
		w.keys[childKey{rec.Parent, rec.Key}] = rec.ID
	}
	w.say("       it is %s", w.name(rec.ID))
}

// batch starts several tasks that become durable together.
func (w *world) batch(r *rand.Rand) *op {
	all := make([]supervise.Starting, 2+r.IntN(6))
	for i := range all {
		spec := w.spec(r)
		all[i] = supervise.Starting{Driver: w.driver(spec.Keep), Spec: spec}
	}
	var out []supervise.Recorded
	return &op{text: fmt.Sprintf("start %d at once", len(all)),
		do: func() (err error) {
			out = w.s.RecordAll(context.Background(), all)
			for _, one := range out {
				if one.Err != nil {
					return one.Err
				}
				one.Begin()
			}
			for _, one := range out {
				err = errors.Join(err, w.hello(one.Task.ID))
			}
			return err
		},
		then: func() {
			for i, one := range out {
				w.begun(one.Task, all[i].Spec)
			}
		}}
}

// resume gives a task that has ended a further run.
func (w *world) resume(r *rand.Rand, taken []task.ID) *op {
	var over []task.ID
	for _, run := range w.runs {
		if w.live[run.task] == nil && (run.parent == "" || w.live[run.parent] != nil && !slices.Contains(taken, w.root(run.parent))) &&
			!slices.Contains(taken, run.task) && !slices.Contains(over, run.task) {
			over = append(over, run.task)
		}
	}
	if len(over) == 0 {
		return nil
	}
	slices.SortFunc(over, func(a, b task.ID) int { return strings.Compare(w.order1(a), w.order1(b)) })
	// Old ones have little to go wrong with: rather those of late, or with children.
	old := slices.DeleteFunc(slices.Clone(over), func(id task.ID) bool {
		return !slices.ContainsFunc(names(), func(k string) bool { return w.keys[childKey{id, k}] != "" })
	})
	if len(old) > 0 && r.IntN(3) == 0 {
		over = old
	}
	over = over[max(0, len(over)-50):]
	id := over[r.IntN(len(over))]
	before, _ := w.s.Get(id)
	if before.Parent != "" && w.live[before.Parent] == nil {
		return nil
	}
	spec := w.spec(r)
	o := &op{text: "resume " + w.name(id), tree: id}
	if before.Parent != "" {
		o.tree = w.root(before.Parent)
	}
	var rec task.Record
	o.do = func() (err error) {
		if rec, err = w.s.Resume(context.Background(), id, w.driver(before.Keep), spec); err != nil {
			return err
		}
		return w.hello(id)
	}
	o.then = func() { w.begun(rec, spec) }
	return o
}

// wait waits for the end of tasks.
func (w *world) wait(ids []task.ID) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := w.s.Wait(ctx, ids, false)
	return err
}

// finish lets a task end by itself.
func (w *world) finish(id task.ID, fails bool) *op {
	r := w.live[id]
	var err error
	want := task.Completed
	if fails {
		err, want = errors.New("broken"), task.Failed
	}
	over := append(w.under(id), id)
	var left []task.ID
	if r.leaves && (r.parent == "" || w.live[r.parent] != nil) { // else nobody is there to be left to
		over = []task.ID{id}
		for _, c := range w.live {
			if c.parent == id {
				left = append(left, c.task)
			}
		}
	}
	return &op{text: string(want) + " " + w.name(id), tree: w.root(id),
		do: func() error {
			return errors.Join(w.order(id, func(context.Context, task.Host) (bool, error) { return true, err }), w.wait(over))
		},
		then: func() {
			for _, c := range left {
				w.left(w.live[c], r)
			}
			for _, one := range over {
				if one == id {
					w.ended(one, want, task.ByItself)
				} else {
					w.ended(one, task.Killed, "")
				}
			}
		}}
}

// left notes that a task is now that of the parent of the one that has left it.
func (w *world) left(c, by *run) {
	delete(w.keys, childKey{by.task, w.keyOf(c.task)})
	if c.parent, c.background = by.parent, true; c.owner == by.task {
		c.owner = by.owner
	}
	if p := w.live[c.parent]; p != nil && p.paused {
		for _, id := range append(w.below(c.task), c.task) {
			w.live[id].paused = true
		}
	}
}

func (w *world) keyOf(id task.ID) string {
	for k, child := range w.keys {
		if child == id {
			return k.key
		}
	}
	return ""
}

func (w *world) stopping(id task.ID, by task.Actor) *op {
	below := w.below(id)
	var receipt task.Receipt
	return &op{text: "stop " + w.name(id) + " by " + string(by), tree: w.root(id),
		do: func() (err error) {
			receipt, err = w.s.Stop(context.Background(), []task.ID{id}, supervise.StopRequest{Cause: task.Cause{Actor: by, Reason: task.ReasonStopped}})
			return err
		},
		then: func() {
			if len(receipt.Survivors) > 0 {
				wrong("stop %s: %+v", w.name(id), receipt)
			}
			for _, one := range append(below, id) {
				if !slices.ContainsFunc(receipt.Stopped, func(s task.Stopped) bool { return s.ID == one && s.Status == task.Killed }) {
					wrong("the receipt of %s does not name %s: %+v", w.name(id), w.name(one), receipt)
				}
				w.ended(one, task.Killed, by)
			}
		}}
}

// race lets a task end by itself while two stop it and somebody moves it to the
// background: one of these ends counts.
func (w *world) race(id task.ID) *op {
	stop := func(by task.Actor) error {
		receipt, err := w.s.Stop(context.Background(), []task.ID{id}, supervise.StopRequest{Cause: task.Cause{Actor: by, Reason: task.ReasonStopped}})
		last := len(receipt.Stopped) - 1 // those below it come first
		if err == nil && (len(receipt.Survivors) > 0 || last < 0 || receipt.Stopped[last].ID != id || !receipt.Stopped[last].Status.Terminal()) {
			err = fmt.Errorf("the receipt is %+v", receipt)
		}
		return err
	}
	return &op{text: "end and stop " + w.name(id), tree: w.root(id),
		do: func() error {
			errs := make([]error, 4)
			var wg sync.WaitGroup
			wg.Go(func() {
				errs[0] = w.order(id, func(context.Context, task.Host) (bool, error) { return true, nil })
				if errors.Is(errs[0], errEnded) {
					errs[0] = nil
				}
			})
			wg.Go(func() { errs[1] = stop(task.ByUser) })
			wg.Go(func() { errs[2] = stop(task.ByModel) })
			wg.Go(func() {
				var over *task.MoveError
				if _, errs[3] = w.s.Promote(context.Background(), id); errors.As(errs[3], &over) {
					errs[3] = nil
				}
			})
			wg.Wait()
			return errors.Join(append(errs, w.wait([]task.ID{id}))...)
		},
		then: func() {
			rec, _ := w.s.Get(id)
			if rec.Status == task.Failed {
				wrong("%s is %s", w.name(id), w.brief(rec))
			}
			w.live[id].background = rec.Backgrounded
			w.ended(id, rec.Status, "")
		}}
}

// ended notes the end of a run, and looks at its notification.
func (w *world) ended(id task.ID, want task.Status, by task.Actor) {
	r := w.live[id]
	delete(w.live, id)
	r.ended = true
	rec, _ := w.s.Get(id)
	if rec.Run != r.id || rec.Status != want || rec.Cause == nil || by != "" && rec.Cause.Actor != by {
		wrong("%s ended as %s, want %s by %s", w.name(id), w.brief(rec), want, by)
	}
	w.ledger.mu.Lock()
	n := w.ledger.ends[r.id]
	w.ledger.mu.Unlock()
	known := r.owner == "" || !r.background || rec.Cause.Actor == task.ByModel
	if n == nil || n.Owner != r.owner || n.Acked != known {
		wrong("the notification of %s is %+v, want one to %s, known %v", w.name(id), n, w.name(r.owner), known)
	}
}

func (w *world) promote(id task.ID) *op {
	var rec task.Record
	return &op{text: "promote " + w.name(id), tree: w.root(id),
		do: func() (err error) {
			rec, err = w.s.Promote(context.Background(), id)
			return err
		},
		then: func() { w.live[id].background = rec.Backgrounded }}
}

// hold pauses a tree or lets it go on.
func (w *world) hold(id task.ID, pause bool) *op {
	how, text := w.s.Thaw, "thaw "
	if pause {
		how, text = w.s.Pause, "pause "
	}
	all := append(w.below(id), id)
	return &op{text: text + w.name(id), tree: w.root(id),
		do: func() error {
			recs, err := how(context.Background(), id)
			if err == nil && len(recs) != len(all) {
				err = fmt.Errorf("%d tasks of %d", len(recs), len(all))
			}
			return err
		},
		then: func() {
			for _, one := range all {
				w.live[one].paused = pause
			}
		}}
}

// ask has a task ask something, or answers what it has asked.
func (w *world) ask(id task.ID, allow bool) *op {
	r := w.live[id]
	if r.asks {
		return &op{text: "answer " + w.name(id), tree: w.root(id), do: func() error { return w.decide(id, allow) }, then: func() { r.asks = false }}
	}
	return &op{text: "ask " + w.name(id), tree: w.root(id),
		do: func() error {
			s := w.stage(id)
			err := w.order(id, func(ctx context.Context, h task.Host) (bool, error) {
				s.asking.Go(func() {
					if reply, err := h.Ask(ctx, task.Question{Tool: "Bash"}); err == nil {
						s.told <- reply
					}
				})
				return false, nil
			})
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			for {
				q, version := w.question(id)
				if q != nil {
					return nil
				}
				if err := w.s.AwaitQuestions(ctx, version); err != nil {
					return err
				}
			}
		},
		then: func() { r.asks = true }}
}

// question is the open question of a task, if there is one.
func (w *world) question(id task.ID) (*task.Question, int64) {
	all, version := w.s.Questions()
	for _, q := range all {
		if q.Task == id {
			return &q, version
		}
	}
	return nil, version
}

// decide answers a question, and tries to do so a second time.
func (w *world) decide(id task.ID, allow bool) error {
	q, _ := w.question(id)
	if q == nil {
		return errors.New("the question is gone")
	}
	if err := w.s.Decide(context.Background(), q.ID, q.Digest, task.Reply{Allow: allow}, task.Cause{Actor: task.ByUser}); err != nil {
		return err
	}
	if got := <-w.stage(id).told; got.Allow != allow {
		return fmt.Errorf("the task is told %v", got.Allow)
	}
	var stale *supervise.StaleError
	if err := w.s.Decide(context.Background(), q.ID, q.Digest, task.Reply{Allow: !allow}, task.Cause{Actor: task.ByUser}); !errors.As(err, &stale) {
		return fmt.Errorf("a second answer: %w", err)
	}
	return nil
}

// save has a task store what it needs to go on.
func (w *world) save(id task.ID, size int) *op {
	return &op{text: fmt.Sprintf("save %d bytes of %s", size, w.name(id)), tree: w.root(id),
		do: func() (err error) {
			return errors.Join(w.order(id, func(ctx context.Context, h task.Host) (bool, error) {
				err = h.Checkpoint(ctx, fmt.Appendf(nil, `{"v":1,"of":%q}`, strings.Repeat("x", size)))
				return false, nil
			}), err)
		},
		then: func() {}}
}

func (w *world) summarize(id task.ID) *op {
	text := fmt.Sprintf("so far %d", w.step)
	return &op{text: "summary of " + w.name(id), tree: w.root(id),
		do: func() error { return w.s.Summarize(context.Background(), id, text) }, then: func() {}}
}

// tell has a task say something to its owner.
func (w *world) tell(id task.ID, event bool) *op {
	kind := task.PlainMessage
	if event {
		kind = task.MonitorEvent
	}
	to, text := w.live[id].owner, fmt.Sprintf("step %d", w.step)
	return &op{text: w.name(id) + " tells " + w.name(to), tree: w.root(id),
		do: func() (err error) {
			return errors.Join(w.order(id, func(ctx context.Context, h task.Host) (bool, error) {
				err = w.full(to, kind, h.Tell(ctx, kind, text, task.Later))
				return false, nil
			}), err)
		},
		then: func() {}}
}

// post writes to the session or to a task.
func (w *world) post(r *rand.Rand, id task.ID) *op {
	m := task.Message{To: id, From: "somebody", Kind: task.PlainMessage, Text: fmt.Sprintf("step %d", w.step), Priority: []task.Priority{task.Next, task.Later}[r.IntN(2)]}
	if r.IntN(2) == 0 {
		m.To = session
	}
	return &op{text: "post to " + w.name(m.To), tree: w.root(id),
		do: func() error {
			_, err := w.s.Post(context.Background(), m)
			return w.full(m.To, m.Kind, err)
		},
		then: func() {}}
}

// full makes nothing of an error that says that a mailbox is full, if it is.
func (w *world) full(owner task.ID, kind task.MessageKind, err error) error {
	if !errors.Is(err, task.ErrMailFull) {
		return err
	}
	n := 0
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	for seq, f := range w.ledger.facts {
		if _, acked := w.ledger.acks[seq]; f.letter != nil && f.letter.To == owner && !acked {
			n++
		}
	}
	if n < kind.MaxUnread() {
		return fmt.Errorf("with %d unread: %w", n, err)
	}
	return nil
}

// turn is one in which an owner reads its mail.
func (w *world) turn(r *rand.Rand) {
	var owners []task.ID
	for owner, n := range w.readers() {
		if n > 0 {
			owners = append(owners, owner)
		}
	}
	if len(owners) == 0 {
		return
	}
	slices.SortFunc(owners, func(a, b task.ID) int { return strings.Compare(w.order1(a), w.order1(b)) })
	owner := owners[r.IntN(len(owners))]
	if r.IntN(2) == 0 && slices.Contains(owners, session) {
		owner = session
	}
	w.deliver(owner, 1+r.IntN(20), r.IntN(30) == 0, r)
}

// deliver puts mail into the transcript of an owner, which takes each number once, and
// acknowledges it, unless the program dies in between.
func (w *world) deliver(owner task.ID, most int, dies bool, r *rand.Rand) {
	mail, err := w.open(owner).Mail(context.Background())
	must(err)
	if len(mail) == 0 {
		wrong("%s is owed mail and is given none", w.name(owner))
	}
	if w.read[owner] == nil {
		w.read[owner] = map[task.Seq]sumOrID{}
	}
	var seqs []task.Seq
	for _, m := range mail[:min(most, len(mail))] {
		w.ledger.mu.Lock()
		f := w.ledger.facts[m.Seq]
		_, acked := w.ledger.acks[m.Seq]
		w.ledger.mu.Unlock()
		if f == nil || acked || mailOf(f) == "" || (m.Message == nil) != (f.letter == nil) {
			wrong("%s is given mail %d, which is none of its own (acknowledged: %v)", w.name(owner), m.Seq, acked)
		}
		what := mailOf(f)
		if m.Message == nil && m.Notification.Run != f.notification.Run || m.Message != nil && sumOfLetter(*m.Message) != f.sum {
			wrong("mail %d is %+v, and was %s", m.Seq, m, what)
		}
		switch was := w.read[owner][m.Seq]; was {
		case "":
			w.read[owner][m.Seq] = what
		case what:
			w.tally.repeats++
		default:
			wrong("mail %d is %s, and was %s", m.Seq, what, was)
		}
		if m.Message == nil {
			w.tally.notifications++
		}
		seqs = append(seqs, m.Seq)
	}
	w.say("%s reads %v", w.name(owner), seqs)
	ack := &op{text: fmt.Sprintf("acknowledge %v", seqs), do: func() error { return w.open(owner).Acknowledge(context.Background(), seqs...) }, then: func() {}}
	if dies {
		w.die(r, w.meanwhile(append(w.several(r), ack)))
		return
	}
	ack.play(w)
}

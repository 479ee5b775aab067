package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

const (
	lookEvery    = time.Second      // for new sessions
	refreshEvery = 5 * time.Second  // for signs of life, which have no events
	leftEvery    = 30 * time.Second // for ended sessions
	publishPace  = 40 * time.Millisecond
	longWait     = 20 * time.Second
	quietAfter   = 10 * time.Second   // of silence before the page shows it
	mostEnded    = 500                // ended tasks of a session
	mostListed   = 4000               // tasks in one request
	mostLeft     = 100                // ended sessions with items that need the user
	oldestLeft   = 7 * 24 * time.Hour // since the end of such a session
	mostGone     = 4096               // remembered removals
)

// The lists of the page.
const (
	needsList = "needs"
	treeList  = "tree"
)

// piece is a part of the page: an element of one of its lists.
type piece struct {
	ID   string `json:"id"`
	List string `json:"list"`
	Key  string `json:"key"` // orders the list
	HTML string `json:"html"`

	changed int64
}

// removal is a removed piece.
type removal struct {
	id string
	at int64
}

// board follows all live sessions and holds the pieces of the page.
type board struct {
	c     Config
	views views
	boot  string        // of this process
	wake  chan struct{} // capacity 1: there are changes to draw

	mu       sync.Mutex
	sessions map[task.ID]*followed
	left     []control.Attention // of ended sessions
	dirty    map[string]task.ID  // pieces of tasks to redraw, with their session
	needs    bool                // the list of items that need the user must be redrawn

	pieces  map[string]*piece
	number  int64 // of the newest change
	gone    []removal
	forgot  int64         // removals up to this number are forgotten
	changed chan struct{} // closed at the next change
	pages   int           // open in browsers
	opened  chan struct{} // closed when a page is opened
	parts   map[int64][]byte
}

// followed is a live session.
type followed struct {
	session   Session
	tasks     map[task.ID]task.Record
	events    int64             // number of events
	last      map[task.ID]int64 // number of the newest event of each task
	attention control.Attention
	key       string
	problem   string
}

func newBoard(c Config, v views) *board {
	return &board{c: c, views: v, boot: rand.Text(), wake: make(chan struct{}, 1), changed: make(chan struct{}),
		opened:   make(chan struct{}),
		sessions: map[task.ID]*followed{}, dirty: map[string]task.ID{}, pieces: map[string]*piece{},
		parts: map[int64][]byte{}}
}

// run follows the sessions until ctx ends, and waits for everything that it has started.
func (b *board) run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { b.draw(ctx) })
	group.Go(func() { b.lookAtLeft(ctx) })
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		sessions, err := b.c.Sessions(ctx, true)
		if err == nil { // otherwise the next look may succeed
			for _, s := range sessions {
				if f := b.add(s); f != nil {
					group.Go(func() { b.follow(ctx, f) })
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// add returns a session to follow; nil: it is followed already.
func (b *board) add(s Session) *followed {
	b.mu.Lock()
	defer b.mu.Unlock()
	info := s.Info()
	if b.sessions[info.Session] != nil {
		return nil
	}
	f := &followed{session: s, tasks: map[task.ID]task.Record{}, last: map[task.ID]int64{},
		key: fmt.Sprintf("%020d %s", math.MaxInt64-info.StartTime.UnixNano(), info.Session)}
	b.sessions[info.Session] = f
	b.touch(f, "")
	return f
}

// touch marks a task, or with an empty ID the session itself, for a redraw.
func (b *board) touch(f *followed, id task.ID) {
	s := f.session.Info().Session
	b.dirty[pieceID(s, id)] = s
	wakeUp(b.wake)
}

func wakeUp(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default: // awake already
	}
}

// pieceID is the ID of the element of a task, or of its session.
func pieceID(session, id task.ID) string {
	if id == "" {
		return "s-" + string(session)
	}
	return "t-" + string(session) + "-" + string(id)
}

// follow reads a session until it ends.
func (b *board) follow(ctx context.Context, f *followed) {
	ctx, cancel := context.WithCancel(ctx)
	defer b.remove(f)
	defer cancel()
	api, done, err := f.session.Open(ctx)
	if err != nil {
		return // it has ended, or the next look finds it again
	}
	defer done()
	state, err := api.State(ctx, control.StateRequest{})
	if err != nil {
		return
	}
	if err := b.list(ctx, f, api, true); err != nil {
		return
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() { b.followAttention(ctx, f, api); cancel() })
	group.Go(func() { b.refresh(ctx, f, api) })
	group.Go(func() { b.attend(ctx, api) })
	for event, err := range api.Events(ctx, state.Seq) {
		if err != nil {
			return
		}
		b.happened(f, event.Task)
	}
}

// list reads the live tasks of a session, or all tasks.
func (b *board) list(ctx context.Context, f *followed, api control.API, all bool) error {
	b.mu.Lock()
	asked := f.events
	b.mu.Unlock()
	page, err := api.List(ctx, control.ListRequest{All: all, Limit: mostListed})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.problem != page.Problem {
		f.problem = page.Problem
		b.touch(f, "")
	}
	for _, r := range page.Tasks {
		if f.last[r.ID] <= asked { // otherwise an event has a newer record
			b.put(f, r)
		}
	}
	return nil
}

// happened takes the record of an event.
func (b *board) happened(f *followed, r task.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.events++
	f.last[r.ID] = f.events
	b.put(f, r)
}

// put takes the newest record of a task.
func (b *board) put(f *followed, r task.Record) {
	if old, ok := f.tasks[r.ID]; ok && r.LastHeard == nil && r.Run == old.Run {
		r.LastHeard = old.LastHeard
	}
	// The page never shows these fields.
	r.Prompt, r.Checkpoint, r.Questions = "", nil, nil
	f.tasks[r.ID] = r
	b.touch(f, r.ID)
	if r.Status.Terminal() {
		b.prune(f)
	}
}

// prune forgets the oldest ended tasks, if there are too many.
func (b *board) prune(f *followed) {
	if len(f.tasks) < 2*mostEnded {
		return
	}
	var ended []task.Record
	for _, r := range f.tasks {
		if r.EndTime != nil {
			ended = append(ended, r)
		}
	}
	if len(ended) < 2*mostEnded {
		return
	}
	slices.SortFunc(ended, func(x, y task.Record) int { return x.EndTime.Compare(*y.EndTime) })
	for _, r := range ended[:len(ended)-mostEnded] {
		delete(f.tasks, r.ID)
		delete(f.last, r.ID)
		b.touch(f, r.ID)
	}
}

func (b *board) followAttention(ctx context.Context, f *followed, api control.API) {
	req := control.AttentionRequest{}
	for {
		list, err := api.Attention(ctx, req)
		if err != nil {
			return
		}
		b.mu.Lock()
		if list.Version != req.After {
			f.attention, b.needs = list, true
			wakeUp(b.wake)
		}
		b.mu.Unlock()
		req = control.AttentionRequest{After: list.Version, Wait: longWait}
	}
}

// page counts a page as open until closed is called.
func (b *board) page() (closed func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pages++
	close(b.opened)
	b.opened = make(chan struct{})
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.pages--
	}
}

// attend keeps the questions of a session open for a person while a page is open.
func (b *board) attend(ctx context.Context, api control.API) {
	req := control.ApprovalsRequest{Person: true, Wait: longWait}
	for {
		b.mu.Lock()
		pages, opened := b.pages, b.opened
		b.mu.Unlock()
		if pages == 0 {
			select {
			case <-opened:
				continue
			case <-ctx.Done():
				return
			}
		}
		list, err := api.Approvals(ctx, req)
		if err != nil {
			return // it has ended, or the next look finds it again
		}
		req.After = list.Version
	}
}

// refresh reads signs of life and sizes of outputs, which have no events.
func (b *board) refresh(ctx context.Context, f *followed, api control.API) {
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if b.live(f) > 0 && b.list(ctx, f, api, false) != nil {
			return
		}
	}
}

func (b *board) live(f *followed) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range f.tasks {
		if !r.Status.Terminal() {
			n++
		}
	}
	return n
}

// remove forgets a session that has ended or failed.
func (b *board) remove(f *followed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := f.session.Info().Session
	delete(b.sessions, id)
	b.touch(f, "")
	for t := range f.tasks {
		b.touch(f, t)
	}
	b.needs = true
}

// lookAtLeft reads the items of ended sessions that need the user.
func (b *board) lookAtLeft(ctx context.Context) {
	tick := time.NewTicker(leftEvery)
	defer tick.Stop()
	for {
		b.readLeft(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (b *board) readLeft(ctx context.Context) {
	sessions, err := b.c.Sessions(ctx, false)
	if err != nil {
		return // the next look may succeed
	}
	oldest := b.c.Now().Add(-oldestLeft)
	var lists []control.Attention
	n := 0
	for _, s := range sessions {
		i := s.Info()
		if i.Live || i.EndTime != nil && (i.EndTime.Before(oldest) || i.Tasks.Total == 0) {
			continue
		}
		if n++; n > mostLeft {
			break
		}
		if list, err := attentionOf(ctx, s); err == nil && len(list.Items) > 0 {
			lists = append(lists, list)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left, b.needs = lists, true
	wakeUp(b.wake)
}

func attentionOf(ctx context.Context, s Session) (control.Attention, error) {
	api, done, err := s.Open(ctx)
	if err != nil {
		return control.Attention{}, err
	}
	defer done()
	return api.Attention(ctx, control.AttentionRequest{})
}

// draw draws changes, at most every publishPace, until ctx ends.
func (b *board) draw(ctx context.Context) {
	pace := time.NewTicker(publishPace)
	defer pace.Stop()
	for {
		select {
		case <-b.wake:
		case <-ctx.Done():
			return
		}
		b.mu.Lock()
		b.drawn()
		b.mu.Unlock()
		select {
		case <-pace.C: // changes in the meantime are drawn together
		case <-ctx.Done():
			return
		}
	}
}

// drawn draws dirty pieces and publishes them as one change.
func (b *board) drawn() {
	now := b.c.Now()
	next := b.number + 1
	any := false
	for id, session := range b.dirty {
		f := b.sessions[session]
		p := piece{ID: id, List: treeList}
		there := f != nil
		if there && id == pieceID(session, "") {
			p.Key, p.HTML = f.key, b.views.session(f.session.Info(), f.problem)
		} else if there {
			var r task.Record
			if r, there = f.tasks[task.ID(strings.TrimPrefix(id, "t-"+string(session)+"-"))]; there {
				p.Key, p.HTML = f.keyOf(r), b.views.task(r, now)
			}
		}
		any = b.set(p, there, next) || any
	}
	clear(b.dirty)
	if b.needs {
		b.needs = false
		any = b.drawNeeds(next) || any
	}
	if !any {
		return
	}
	b.number = next
	clear(b.parts)
	close(b.changed)
	b.changed = make(chan struct{})
}

// set replaces or removes a piece, and reports whether that changes anything.
func (b *board) set(p piece, there bool, number int64) bool {
	old := b.pieces[p.ID]
	switch {
	case !there && old == nil, there && old != nil && old.HTML == p.HTML && old.Key == p.Key:
		return false
	case there:
		p.changed = number
		b.pieces[p.ID] = &p
		return true
	}
	delete(b.pieces, p.ID)
	b.gone = append(b.gone, removal{p.ID, number})
	if n := len(b.gone) - mostGone; n > mostGone/4 {
		b.forgot = b.gone[n-1].at
		b.gone = slices.Clone(b.gone[n:])
	}
	return true
}

func (b *board) drawNeeds(number int64) bool {
	// Items of an ended session are outdated once a host has the session again.
	lists := slices.DeleteFunc(slices.Clone(b.left), func(l control.Attention) bool {
		return b.sessions[l.Items[0].Session] != nil
	})
	for _, f := range b.sessions {
		lists = append(lists, f.attention)
	}
	merged := control.MergeAttention(lists)
	any := false
	seen := map[string]bool{}
	for n, i := range merged.Items {
		p := piece{ID: needID(i), List: needsList, Key: fmt.Sprintf("%06d", n), HTML: b.views.need(i)}
		seen[p.ID] = true
		any = b.set(p, true, number) || any
	}
	more := piece{ID: "n-more", List: needsList, Key: "z"}
	if merged.More > 0 {
		more.HTML = b.views.more(merged.More)
	}
	seen[more.ID] = merged.More > 0
	any = b.set(more, merged.More > 0, number) || any
	for id, p := range b.pieces {
		if p.List == needsList && !seen[id] {
			any = b.set(piece{ID: id}, false, number) || any
		}
	}
	return any
}

// needID is the ID of the element of an item. Each run has items of its own.
func needID(i control.AttentionItem) string {
	return strings.Join([]string{"n", string(i.Session), i.ID, string(i.Run), string(i.Kind)}, "-")
}

// keyOf orders a task after its parent and before its parent's younger tasks.
func (f *followed) keyOf(r task.Record) string {
	var up []string
	for n := 0; n < 64; n++ {
		up = append(up, fmt.Sprintf("%020d %s", r.CreateTime.UnixNano(), r.ID))
		parent, ok := f.tasks[r.Parent]
		if !ok || parent.ID == r.ID {
			break
		}
		r = parent
	}
	slices.Reverse(up)
	return f.key + "/" + strings.Join(up, "/")
}

// find returns a live session, or nil.
func (b *board) find(id task.ID) Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.sessions[id]; f != nil {
		return f.session
	}
	return nil
}

// all returns the pieces of a list in order, and the number of the newest change.
func (b *board) all(list string) ([]piece, int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []piece
	for _, p := range b.pieces {
		if p.List == list {
			out = append(out, *p)
		}
	}
	slices.SortFunc(out, func(x, y piece) int { return cmp.Compare(x.Key, y.Key) })
	return out, b.number
}

package tui

import (
	"context"
	"errors"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

const (
	tries     = 5 // of a stream that breaks off while the host lives
	watchWait = 30 * time.Second
	// pace is the least time between two messages to the model: a frame.
	pace = 16 * time.Millisecond
	// mostNews bounds the pieces of one frame.
	mostNews = 2000
)

// news holds the pieces and events of a session since the last message.
type news struct {
	epoch     int // of the connection
	pieces    []control.Piece
	events    []task.Event
	questions *control.Approvals
	state     *control.State
	lost      error // the host has gone, or answers with errors
}

// listener owns the goroutines of the UI: those that listen to a session, and commands.
type listener struct {
	ctx  context.Context
	send func(tea.Msg)

	suspend chan struct{} // capacity 1: the user wants the program to stand still
	deaf    bool          // nothing is listened to, in tests of the model

	mu     sync.Mutex
	closed bool
	group  sync.WaitGroup // goroutines and commands that run; close waits for them
}

// enter counts a command that begins; false says that the UI is closed.
func (l *listener) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.group.Add(1)
	return true
}

func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.group.Wait()
}

// start runs a goroutine that ends with the UI.
func (l *listener) start(f func()) {
	if l.enter() {
		go func() { // close waits for its group
			defer l.group.Done()
			f()
		}()
	}
}

// attach listens to a session until the result is called.
func (l *listener) attach(c Connection, epoch int) (stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(l.ctx)
	e := &ear{l: l, api: c.API, pid: c.Info.PID, news: news{epoch: epoch}, wake: make(chan struct{}, 1)}
	if l.deaf {
		return cancel
	}
	for _, f := range []func(context.Context){e.tell, e.watch, e.follow, e.questions, e.state} {
		l.start(func() { f(ctx) })
	}
	return cancel
}

// ear listens to one host and sends the model its news once per frame: a flood in between
// becomes one message.
type ear struct {
	l    *listener
	api  control.API
	pid  int
	wake chan struct{} // capacity 1: there is news

	mu   sync.Mutex
	news news          // guarded by mu
	room chan struct{} // closed when there is room again; nil: there is; guarded by mu
}

// put adds to the news; it waits while there is too much.
func (e *ear) put(ctx context.Context, add func(*news)) bool {
	for {
		e.mu.Lock()
		if len(e.news.pieces)+len(e.news.events) < mostNews {
			add(&e.news)
			e.mu.Unlock()
			break
		}
		if e.room == nil {
			e.room = make(chan struct{})
		}
		room := e.room
		e.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
	return ctx.Err() == nil
}

// tell hands the news to the model.
func (e *ear) tell(ctx context.Context) {
	timer := time.NewTimer(pace)
	defer timer.Stop()
	for {
		select {
		case <-e.wake:
		case <-ctx.Done():
			return
		}
		e.mu.Lock()
		n := e.news
		e.news = news{epoch: n.epoch}
		if e.room != nil {
			close(e.room)
			e.room = nil
		}
		e.mu.Unlock()
		e.l.send(n)
		timer.Reset(pace)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// same reports whether the host is still the same.
func (e *ear) same(ctx context.Context) bool {
	info, err := e.api.Info(ctx)
	return err == nil && info.PID == e.pid
}

// errHostGone says that the host has ended.
var errHostGone = errors.New("the host of the session has ended")

// watch follows the conversation, and alone reports the loss of the host.
func (e *ear) watch(ctx context.Context) {
	mark, begun, losses := control.Mark{}, false, 0
	for {
		var failed error
		for p, err := range e.api.Watch(ctx, control.WatchRequest{After: mark}) {
			if err != nil {
				failed = err
				break
			}
			begun = true
			if p.Kind != control.OpenPiece {
				mark, losses = p.Mark(), 0
			}
			if !e.put(ctx, func(n *news) { n.pieces = append(n.pieces, p) }) {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		if losses++; begun && losses < tries && e.same(ctx) {
			continue
		}
		if failed == nil || begun {
			failed = errHostGone
		}
		e.put(ctx, func(n *news) { n.lost = failed })
		return
	}
}

// follow follows the tasks, from what they are now.
func (e *ear) follow(ctx context.Context) {
	now, err := e.api.State(ctx, control.StateRequest{})
	if err != nil {
		return // watch reports it
	}
	after, losses := now.Seq, 0
	if page, err := e.api.List(ctx, control.ListRequest{All: true, Limit: mostNews}); err == nil {
		list := make([]task.Event, len(page.Tasks))
		for i, r := range page.Tasks {
			list[len(list)-1-i] = task.Event{Task: r} // without a verb: it is as it was
		}
		if !e.put(ctx, func(n *news) { n.events = append(n.events, list...) }) {
			return
		}
	}
	for ctx.Err() == nil && losses < tries {
		for v, err := range e.api.Events(ctx, after) {
			if err != nil {
				break
			}
			after, losses = v.Seq, 0
			if !e.put(ctx, func(n *news) { n.events = append(n.events, v) }) {
				return
			}
		}
		if losses++; !e.same(ctx) {
			return
		}
	}
}

// poll asks for something that waits for a change, again and again, until the host has gone.
func poll[T any](ctx context.Context, e *ear, next func() (T, error), add func(*news, T)) {
	for losses := 0; ctx.Err() == nil && losses < tries; {
		v, err := next()
		if err != nil {
			if losses++; !e.same(ctx) {
				return
			}
			continue
		}
		losses = 0
		if !e.put(ctx, func(n *news) { add(n, v) }) {
			return
		}
	}
}

// questions follows which questions are open.
func (e *ear) questions(ctx context.Context) {
	req := control.ApprovalsRequest{Person: true}
	poll(ctx, e, func() (control.Approvals, error) {
		list, err := e.api.Approvals(ctx, req)
		if err == nil {
			req.After, req.Wait = list.Version, watchWait
		}
		return list, err
	}, func(n *news, list control.Approvals) { n.questions = &list })
}

// state follows the state of the session.
func (e *ear) state(ctx context.Context) {
	req := control.StateRequest{}
	poll(ctx, e, func() (control.State, error) {
		now, err := e.api.State(ctx, req)
		if err == nil {
			req = control.StateRequest{After: now.Version, Wait: watchWait}
		}
		return now, err
	}, func(n *news, now control.State) { n.state = &now })
}

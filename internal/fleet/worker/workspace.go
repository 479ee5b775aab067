package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/task"
)

// maxCalls limits the calls of tools at the same time, and keptCalls the answers that a workspace keeps in case
// they are asked for again.
const (
	maxCalls  = 16
	keptCalls = 64
)

// workspace is a folder in which an agent of a session works from afar. It has a claim, and commands
// in it have claims of their own.
type workspace struct {
	place *place
	tools []agent.Tool

	inside sync.WaitGroup // commands that run in it

	mu    sync.Mutex
	calls map[string]*call // by ID; guarded by mu
	order []string         // of calls, the oldest first; guarded by mu
	over  bool             // it takes no call and no command; guarded by mu
}

// call is a call of a tool, done once.
type call struct {
	done   chan struct{}
	answer fleetwire.Answer // from the end of done
}

// keep keeps a workspace until its session ends it or the claim ends.
func (w *Worker) keep(ctx context.Context, c *claim, p *place) {
	ws := &workspace{place: p, calls: map[string]*call{},
		tools: w.cfg.Tools(*c.job.Workspace, p.dir, p.root())}
	c.mu.Lock()
	c.workspace = ws
	c.mu.Unlock()
	ready := fleetwire.Ready{Dir: p.dir, Top: p.root(), System: runtime.GOOS,
		Bounded: w.cfg.Bounded != nil && w.cfg.Bounded()}
	if _, err := os.Lstat(filepath.Join(p.root(), ".git")); err == nil {
		ready.Git = true
	}
	err := w.tell(ctx, c, fleetwire.Event{Kind: fleetwire.Open, Ready: &ready}, nil)
	if err == nil {
		select {
		case <-ctx.Done():
		case <-c.asked: // by the session, or because this worker ends
		}
	}
	ws.end()
	w.dropInside(c)
	ws.inside.Wait()
	if ctx.Err() != nil {
		return
	}
	e := fleetwire.End{Status: task.Completed}
	if err != nil {
		e.Status, e.Error = task.Failed, err.Error()
	}
	p.collect(ctx, c, &e)
	if ctx.Err() != nil {
		return
	}
	p.remove()
	w.end(ctx, c, 0, e)
}

// end takes no more calls and commands.
func (ws *workspace) end() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.over = true
}

// dropInside ends the commands that still run in a workspace.
func (w *Worker) dropInside(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, other := range w.claims {
		if in := other.job.Inside; in != nil && in.Task == c.id && in.Epoch == c.epoch {
			other.drop(errTaken)
		}
	}
}

// workspaceOf is the workspace of a claim, if it counts.
func (w *Worker) workspaceOf(id task.ID, session task.ID, epoch uint64) (*workspace, error) {
	w.mu.Lock()
	c := w.claims[id]
	w.mu.Unlock()
	if c == nil || c.session != session || c.epoch != epoch {
		return nil, errors.New("this worker has no such workspace")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.workspace == nil {
		return nil, errors.New("the workspace is not there yet")
	}
	return c.workspace, nil
}

// began begins a command in a workspace. Its session has given it to this worker without a claim: whether that still
// counts is asked first, since the message may have been on its way for long.
func (w *Worker) began(ctx context.Context, session, id task.ID, epoch uint64, data []byte) error {
	var g fleetwire.Grant
	if err := json.Unmarshal(data, &g); err != nil {
		return err
	}
	in := g.Job.Inside
	if in == nil || g.Epoch != epoch || g.Lease <= 0 {
		return errors.New("begin a command: its grant is not whole")
	}
	ws, err := w.workspaceOf(in.Task, session, in.Epoch)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.claims[id]; old != nil && old.epoch >= epoch {
		return nil // the message has come twice
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.over {
		return errors.New("the workspace has ended")
	}
	c := newClaim(session, id, g, w.instance)
	life, end := c.live(ctx)
	w.claims[id] = c
	ws.inside.Add(1)
	w.tasks.Go(func() {
		defer ws.inside.Done()
		defer end()
		defer w.forget(c)
		if w.renewOf(life, session, []*claim{c}) && w.first(fmt.Sprint(id, ".", epoch)) {
			dir := ws.place.dir
			if info, err := os.Stat(c.job.Cwd); err == nil && info.IsDir() {
				dir = c.job.Cwd
			}
			w.command(life, c, &place{w: w, dir: dir, bound: ws.place.root()})
		}
	})
	return nil
}

// answerCalls answers the calls of tools until ctx ends.
func (w *Worker) answerCalls(ctx context.Context) error {
	free := make(chan struct{}, maxCalls)
	msgs := make(chan *nats.Msg, maxCalls)
	sub, err := w.cfg.Link.Conn.ChanSubscribe(fleetwire.CallTo(w.cfg.Name, "*"), msgs)
	if err != nil {
		return fmt.Errorf("listen to calls: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-msgs:
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			running.Go(func() {
				defer func() { <-free }()
				w.answer(ctx, m)
			})
		}
	}
}

func (w *Worker) answer(ctx context.Context, m *nats.Msg) {
	var ask fleetwire.Call
	var a fleetwire.Answer
	_, err := fleetwire.Decode(m.Data, &ask)
	var ws *workspace
	if err == nil && ask.Instance != w.instance {
		err = errors.New("it is for an earlier start of this worker")
	}
	if err == nil {
		ws, err = w.workspaceOf(task.ID(fleetwire.Token(m.Subject, 3)), ask.Session, ask.Epoch)
	}
	if err == nil {
		a, err = ws.call(ctx, ask)
	}
	if err != nil {
		a = fleetwire.Answer{Refused: err.Error()}
	}
	data, err := fleetwire.Encode(a, nil)
	if err != nil {
		data, err = fleetwire.Encode(fleetwire.Answer{Refused: err.Error()}, nil)
	}
	if err == nil {
		_ = m.Respond(data) // without an answer the session asks again
	}
}

// call makes a call once, and returns its answer however often it is asked for.
func (ws *workspace) call(ctx context.Context, ask fleetwire.Call) (fleetwire.Answer, error) {
	ws.mu.Lock()
	if ws.over {
		ws.mu.Unlock()
		return fleetwire.Answer{}, errors.New("the workspace has ended")
	}
	one, known := ws.calls[ask.ID]
	if !known {
		one = &call{done: make(chan struct{})}
		ws.calls[ask.ID] = one
		if ws.order = append(ws.order, ask.ID); len(ws.order) > keptCalls {
			delete(ws.calls, ws.order[0])
			ws.order = ws.order[1:]
		}
	}
	ws.mu.Unlock()
	if known {
		select {
		case <-one.done:
			return one.answer, nil
		case <-ctx.Done():
			return fleetwire.Answer{}, context.Cause(ctx)
		}
	}
	defer close(one.done)
	one.answer = ws.do(ctx, ask)
	return one.answer, nil
}

func (ws *workspace) do(ctx context.Context, ask fleetwire.Call) fleetwire.Answer {
	for _, t := range ws.tools {
		if t.Spec().Name != ask.Tool {
			continue
		}
		out, err := t.Call(ctx, agent.Call{ID: ask.ID, Name: ask.Tool, Input: ask.Input})
		if err != nil {
			return fleetwire.Answer{Text: err.Error(), IsError: true}
		}
		a := fleetwire.Answer{Text: out.Text, IsError: out.IsError}
		if len(out.Images) > 0 {
			a.Images, err = json.Marshal(out.Images)
		}
		if err == nil && out.Structured != nil {
			a.Structured, err = json.Marshal(out.Structured)
		}
		if err != nil {
			return fleetwire.Answer{Text: err.Error(), IsError: true}
		}
		return a
	}
	return fleetwire.Answer{Refused: fmt.Sprintf("it has no tool %.40q", ask.Tool)}
}

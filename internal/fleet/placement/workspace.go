package placement

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/task"
)

// Workspace is a folder that a worker keeps for an agent of the session: the file tools of the agent
// are called there, and its commands run there as tasks. The agent itself stays with the session, and
// with it the keys of model providers, permissions and budgets. Its methods may be called by several
// goroutines, [Workspace.Leave] once.
type Workspace struct {
	fleetwire.Ready // where it is

	w     *work
	link  *link.Link
	grant Book // does not change

	leave     context.CancelCauseFunc // asks the worker to end it
	following sync.WaitGroup
	done      chan struct{} // closed when the claim has ended; then the following do not change
	res       task.Result
	err       error
}

// errLeft is why a workspace ends that is not needed any more.
var errLeft = errors.New("its agent has ended")

// OpenWorkspace has a worker keep a workspace for the agent whose task h runs, and returns when the folder
// is there. The task begins when a worker has claimed it. The caller calls [Workspace.Leave].
func (f *Fleet) OpenWorkspace(ctx context.Context, h task.Host, want Want) (*Workspace, error) {
	w := newWork(f, h, h.Record(), &want)
	w.opened = make(chan fleetwire.Ready, 1)
	ws, err := w.openWorkspace(ctx)
	if err != nil {
		w.close()
	}
	return ws, err
}

func (w *work) openWorkspace(ctx context.Context) (*Workspace, error) {
	if b, err := readBook(w.rec.Checkpoint); err == nil {
		w.set(b.End()) // of an earlier run: the epoch keeps rising
	}
	l, err := w.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.place(ctx, l); err != nil {
		return nil, err
	}
	if err := w.sendFolder(ctx, l); err != nil {
		_, err = w.abandon(ctx, l, err)
		return nil, err
	}
	ws := &Workspace{w: w, link: l, grant: w.book, done: make(chan struct{})}
	life, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	ws.leave = leave
	ws.following.Go(func() {
		defer leave(nil)
		ws.res, ws.err = w.follow(life, l)
		close(ws.done)
	})
	select {
	case ws.Ready = <-w.opened:
		return ws, nil
	case <-ws.done:
		err = ws.lost()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	leave(errLeft)
	w.abort()
	ws.following.Wait()
	return nil, err
}

// Worker is the name of the worker.
func (ws *Workspace) Worker() string { return ws.grant.Worker }

// lost returns why the workspace has ended.
func (ws *Workspace) lost() error {
	if ws.err != nil {
		return ws.err
	}
	return &task.FailError{Reason: reasonWorkerLost,
		Err: fmt.Errorf("worker %s has ended the workspace of the agent", ws.grant.Worker)}
}

// Leave ends the workspace, and takes its changes into a ref of the session's repository. Once ctx ends
// it does not wait for the worker any more, which ends the workspace when it hears of that, or when its
// lease ends.
func (ws *Workspace) Leave(ctx context.Context) *task.Worktree {
	defer ws.w.close()
	ws.leave(errLeft)
	select {
	case <-ws.done:
	case <-ctx.Done():
		ws.w.abort()
		<-ws.done
	}
	ws.following.Wait()
	if ws.res.Settle != nil {
		defer ws.res.Settle()
	}
	if ws.res.Leave != nil {
		return ws.res.Leave(ctx)
	}
	if ws.w.repo == "" && !ws.w.plain {
		return nil
	}
	return &task.Worktree{Text: fmt.Sprintf("What the agent has changed at worker %s did not come back: %v",
		ws.grant.Worker, ws.lost())}
}

// Undo is Leave for an agent that has not begun.
func (ws *Workspace) Undo() {
	ws.leave(errLeft)
	ws.w.abort()
	ws.following.Wait()
	ws.w.close()
}

// How often a call is asked again whose answer does not come.
const (
	callTime  = 20 * time.Second
	callAgain = 200 * time.Millisecond
)

// call calls a tool at the worker. It is done once, however often it is asked for.
func (ws *Workspace) call(ctx context.Context, c agent.Call) (agent.Output, error) {
	ask := fleetwire.Call{Session: ws.w.rec.Session, Epoch: ws.grant.Epoch, Instance: ws.grant.Instance, ID: rand.Text(),
		Tool: c.Name, Input: c.Input}
	for {
		one, cancel := context.WithTimeout(ctx, callTime)
		var a fleetwire.Answer
		_, err := ws.link.Ask(one, fleetwire.CallTo(ws.grant.Worker, ws.w.id), ask, &a)
		cancel()
		if err == nil {
			return output(a)
		}
		select {
		case <-time.After(callAgain):
		case <-ws.done:
			return agent.Output{}, ws.lost()
		case <-ctx.Done():
			return agent.Output{}, context.Cause(ctx)
		}
	}
}

func output(a fleetwire.Answer) (agent.Output, error) {
	if a.Refused != "" {
		return agent.Refuse("the worker refuses the call: " + a.Refused), nil
	}
	out := agent.Output{Text: a.Text, IsError: a.IsError}
	if len(a.Structured) > 0 {
		out.Structured = a.Structured
	}
	if len(a.Images) > 0 {
		if err := json.Unmarshal(a.Images, &out.Images); err != nil {
			return agent.Refuse("the worker has sent an image that cannot be read"), nil
		}
	}
	return out, nil
}

// Tool is a tool of the session that works in the workspace instead. here reports calls that are about
// files of the session.
func (ws *Workspace) Tool(t agent.Tool, here func(input json.RawMessage) bool) agent.Tool {
	return remoteTool{t, ws, here}
}

type remoteTool struct {
	agent.Tool
	ws   *Workspace
	here func(json.RawMessage) bool
}

func (t remoteTool) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	if t.here(c.Input) {
		return t.Tool.Call(ctx, c)
	}
	c.Name = t.Spec().Name
	return t.ws.call(ctx, c)
}

func (t remoteTool) Parallel() bool {
	p, ok := t.Tool.(agent.Parallel)
	return ok && p.Parallel()
}

func (t remoteTool) ReadOnly() bool {
	r, ok := t.Tool.(agent.ReadOnly)
	return ok && r.ReadOnly()
}

func (t remoteTool) Aliases() []string {
	if a, ok := t.Tool.(agent.Aliased); ok {
		return a.Aliases()
	}
	return nil
}

// begin gives a command to the worker that keeps the workspace, which has not asked for it.
func (w *work) begin(ctx context.Context, l *link.Link) error {
	in := w.want.In
	offer := rand.Text()
	b, _, err := w.book.Grant(offer, offer, in.grant.Worker, in.grant.Instance)
	if err != nil {
		return err
	}
	if err := w.record(ctx, b); err != nil {
		return err
	}
	w.base = w.h.Output().Size()
	job := w.want.Job
	job.Inside = &fleetwire.Held{Task: in.w.id, Epoch: in.grant.Epoch}
	data, err := json.Marshal(fleetwire.Grant{Epoch: b.Epoch, Lease: w.f.cfg.Lease, Job: job})
	if err == nil {
		data, err = fleetwire.Encode(fleetwire.Command{Kind: fleetwire.Begin, Epoch: b.Epoch}, data)
	}
	if err == nil {
		err = l.Publish(ctx, fleetwire.CommandTo(b.Worker, w.rec.Session, w.id), offer, data)
	}
	if err != nil {
		w.set(w.book.End())
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &task.FailError{Reason: task.ReasonStart, Err: fmt.Errorf("give command to worker %s: %w", b.Worker, err)}
	}
	return nil
}

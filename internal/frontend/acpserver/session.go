package acpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// errClosed is the cause of the end of what follows a session.
var errClosed = errors.New("the session is closed")

// session is one session of the client.
type session struct {
	of     *served
	open   Session
	folder string
	view   *view
	since  task.Seq // the newest event before the main agent works

	children *children // nil: the client does not show subagents as sessions

	ctx       context.Context // ends with close
	end       context.CancelCauseFunc
	following sync.WaitGroup

	mu      sync.Mutex
	asked   *asked // the prompt that is being answered; nil: none
	running bool   // a turn of the main agent is running
	turning bool   // it is that of asked
	closed  bool

	telling  sync.Mutex       // held while the client is told of settings
	known    control.Settings // that the client knows; guarded by telling
	commands []string         // that the client knows; of the goroutine of changes
}

// asked is a prompt of the client that has no answer yet.
type asked struct {
	text      string
	after     task.Seq  // the newest event before it was sent
	sent      bool      // it may begin a turn
	cancelled bool      // by the client
	done      chan Turn // takes the end of its turn
}

// newSession opens a session.
func newSession(ctx context.Context, of *served, o Opening) (*session, error) {
	s := &session{of: of, folder: o.Folder, children: of.client.children()}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.view = newView(o.Folder, s.update)
	ready := make(chan struct{})
	defer close(ready)
	o.On = func(from task.ID, e agent.Event) {
		<-ready // an agent that the session had before may work at once
		s.on(from, e)
	}
	o.Begin, o.Done = s.begun, s.over
	var err error
	if s.open, err = of.cfg.Host.Open(ctx, o); err != nil {
		s.end(err)
		return nil, fmt.Errorf("open a session in %s: %w", o.Folder, err)
	}
	return s, nil
}

func (s *session) name() acp.SessionId { return acp.SessionId(s.open.ID()) }

// update sends what happens in the session to the client.
func (s *session) update(u acp.SessionUpdate) { s.tell(s.name(), u) }

// tell sends an update of a session, or of a child of it.
func (s *session) tell(id acp.SessionId, update any) {
	s.of.conn.notify(acp.ClientMethodSessionUpdate, notification{id, update})
}

// follow begins to tell the client what happens, and lets the main agent work. It is called
// when the client knows the session.
func (s *session) follow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.following.Go(s.questions)
	s.following.Go(s.changes)
	s.since = s.open.Newest()
	s.following.Go(s.tasks)
	s.open.Run()
}

// on is told what agents do.
func (s *session) on(from task.ID, e agent.Event) {
	switch {
	case from != s.open.ID():
		if e.Kind == agent.ToolStartEvent {
			s.meet(from)
		}
		if s.children != nil {
			s.acts(from, e)
			return
		}
		s.view.other(from, e)
	case e.Kind == agent.ToolDoneEvent:
		s.started(e.Call.ID)
		s.view.main(e)
	case e.Kind == agent.ReplyDoneEvent:
		s.view.main(e)
		s.used()
	default:
		s.view.main(e)
	}
	if e.Kind == agent.ToolDoneEvent && (e.Call.Name == "TaskCreate" || e.Call.Name == "TaskUpdate") {
		s.plan()
	}
}

// prompt takes a prompt in the order of requests, so that a cancel behind it finds it.
func (s *session) prompt(p acp.PromptRequest) (work, error) {
	req, err := promptOf(p.Prompt)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked != nil {
		return nil, refuse(acp.NewInvalidRequest,
			fmt.Sprintf("session %s answers another prompt (wait for its end, or send session/cancel)", s.name()))
	}
	a := &asked{done: make(chan Turn, 1)}
	s.asked = a
	return func(ctx context.Context) (any, error) {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked, s.turning = nil, false
		}()
		return s.answer(ctx, a, req)
	}, nil
}

// answer sends a prompt to the main agent and waits for the end of its turn.
func (s *session) answer(ctx context.Context, a *asked, req control.PromptRequest) (any, error) {
	s.mu.Lock()
	if a.cancelled {
		s.mu.Unlock()
		return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
	}
	a.text, a.after, a.sent = req.Text, s.open.Newest(), true
	s.mu.Unlock()
	if err := s.open.Prompt(ctx, req); err != nil {
		if ctx.Err() != nil {
			return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
		}
		return nil, err
	}
	s.title(req.Text)
	for withdrawn := ctx.Done(); ; {
		select {
		case t := <-a.done:
			return s.stopped(a, t)
		case <-withdrawn:
			withdrawn = nil // the turn ends soon
			s.cancel()
			if errors.Is(context.Cause(ctx), errGone) {
				return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
			}
		case <-s.open.Ended():
			return nil, refuse(acp.NewInternalError, fmt.Sprintf("session %s has ended", s.name()))
		case <-s.ctx.Done():
			return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
		}
	}
}

// stopped is the answer to a prompt whose turn has ended.
func (s *session) stopped(a *asked, t Turn) (any, error) {
	s.mu.Lock()
	cancelled := a.cancelled
	s.mu.Unlock()
	reason, failed := stopReason(t)
	switch {
	case reason == acp.StopReasonCancelled || failed && cancelled:
		return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
	case failed:
		return nil, describe(t.Err)
	}
	if t.Beside && strings.TrimSpace(t.Result.Text) != "" {
		s.view.say(t.Result.Text)
	}
	return acp.PromptResponse{StopReason: reason, Usage: usageOf(t.Result.Usage)}, nil
}

// stopReason is why a turn has ended; failed says that it is none that the protocol has.
func stopReason(t Turn) (reason acp.StopReason, failed bool) {
	switch t.Result.Reason {
	case "interrupted":
		return acp.StopReasonCancelled, false
	case "max_turns":
		return acp.StopReasonMaxTurnRequests, false
	case "max_tokens", "model_context_window_exceeded":
		return acp.StopReasonMaxTokens, false
	case "refusal":
		return acp.StopReasonRefusal, false
	}
	return acp.StopReasonEndTurn, t.Err != nil
}

func usageOf(u agent.Usage) *acp.Usage {
	in := int(u.InputTokens + u.CacheReadTokens + u.CacheWriteTokens)
	return &acp.Usage{InputTokens: int(u.InputTokens), OutputTokens: int(u.OutputTokens),
		CachedReadTokens: acp.Ptr(int(u.CacheReadTokens)), CachedWriteTokens: acp.Ptr(int(u.CacheWriteTokens)),
		TotalTokens: in + int(u.OutputTokens)}
}

// begun is told that a turn begins. A prompt that was cancelled before is interrupted at once.
func (s *session) begun(t Trigger) {
	s.view.begin(t.Origin)
	s.mu.Lock()
	a := s.asked
	s.running = true
	s.turning = a != nil && a.sent && t.Origin == "" && t.Seq > a.after && strings.HasPrefix(t.Prompt, a.text)
	interrupt := s.turning && a.cancelled
	s.mu.Unlock()
	if interrupt {
		s.interrupt()
	}
}

// over is told that a turn has ended.
func (s *session) over(t Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
	if !s.turning {
		return
	}
	s.turning = false
	s.asked.done <- t
}

// cancel ends the turn that is running, and the one of a prompt that waits as soon as it
// begins.
func (s *session) cancel() {
	s.mu.Lock()
	if s.asked != nil {
		s.asked.cancelled = true
	}
	running := s.running
	s.mu.Unlock()
	if running {
		s.interrupt()
	}
}

// interrupt cancels the turn of the main agent. That there is none is no problem.
func (s *session) interrupt() {
	_, err := s.open.Interrupt(s.ctx, string(s.open.ID()))
	if err != nil && !conflict(err) && s.ctx.Err() == nil {
		s.of.conn.warn("cancel the turn of session %s: %v", s.name(), err)
	}
}

// close ends all that the session has begun, and waits for it.
func (s *session) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end(errClosed)
	err := s.open.Close()
	s.following.Wait()
	s.abandon()
	return err
}

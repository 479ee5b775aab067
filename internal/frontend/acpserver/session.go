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
	"github.com/drover-dev/drover/internal/platform/acpwire"
	"github.com/drover-dev/drover/task"
)

// errClosed is the cause of the contexts of a session that was closed.
var errClosed = errors.New("the session is closed")

// session is one session of the client.
type session struct {
	of     *server
	open   Session
	api    control.API
	folder string
	view   *view
	since  task.Seq // the newest event before the main agent starts

	children *children // nil: the client does not show subagents as sessions

	ctx       context.Context // ends with close
	end       context.CancelCauseFunc
	following sync.WaitGroup // the goroutines of follow

	mu      sync.Mutex
	asked   *asked // the prompt without an answer; nil: none
	running bool   // a turn of the main agent is running
	turning bool   // it is the turn of asked
	closed  bool

	showing  sync.Mutex       // held while the client is sent settings
	known    control.Settings // to the client; guarded by showing
	commands []string         // known to the client; used by the goroutine of changes only
}

// asked is a prompt of the client that has no answer yet.
type asked struct {
	text      string
	after     task.Seq  // the newest event before it was sent
	sent      bool      // it may begin a turn
	cancelled bool      // by the client
	done      chan Turn // receives the end of its turn
}

// newSession opens a session.
func newSession(ctx context.Context, of *server, o Opening) (*session, error) {
	s := &session{of: of, folder: o.Folder}
	if of.client.Load().subagents {
		s.children = &children{known: map[task.ID]*child{}}
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.view = newView(o.Folder, s.update)
	ready := make(chan struct{})
	defer close(ready)
	o.On = func(from task.ID, e agent.Event) {
		<-ready // an agent of an earlier host may work at once
		s.on(from, e)
	}
	o.Begin, o.Done = s.begun, s.over
	var err error
	if s.open, err = of.cfg.Host.Open(ctx, o); err != nil {
		s.end(err)
		return nil, fmt.Errorf("open a session in %s: %w", o.Folder, err)
	}
	s.api = s.open.API()
	return s, nil
}

func (s *session) name() acp.SessionId { return acp.SessionId(s.open.ID()) }

// update sends an update of the session to the client.
func (s *session) update(u acp.SessionUpdate) { s.send(s.name(), u) }

// send sends an update of the session or of a child.
func (s *session) send(id acp.SessionId, update any) {
	s.of.conn.Notify(acp.ClientMethodSessionUpdate, notification{id, update})
}

// warn reports an error of the session, unless the session is closed.
func (s *session) warn(what string, err error) {
	if s.ctx.Err() == nil {
		s.of.warn("%s of session %s: %v", what, s.name(), err)
	}
}

// follow starts to send updates, and starts the main agent. It is called when the client knows the session.
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

// on receives the events of agents.
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
	case e.Kind == agent.MailEvent:
		s.caughtUp()
		s.view.main(e)
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

// prompt accepts a prompt in the order of requests, so that a cancel after it finds it.
func (s *session) prompt(p acp.PromptRequest) (acpwire.Work, error) {
	req, err := promptOf(p.Prompt)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked != nil {
		return nil, acpwire.Refuse(acp.NewInvalidRequest,
			"session %s answers another prompt (wait for its end, or send session/cancel)", s.name())
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
	if err := s.api.Prompt(ctx, req); err != nil {
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
			if errors.Is(context.Cause(ctx), acpwire.ErrClosed) {
				return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
			}
		case <-s.open.Ended():
			return nil, acpwire.Refuse(acp.NewInternalError, "session %s has ended", s.name())
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
		return nil, t.Err
	}
	if t.Beside && strings.TrimSpace(t.Result.Text) != "" {
		s.view.say(t.Result.Text)
	}
	return acp.PromptResponse{StopReason: reason, Usage: usageOf(t.Result.Usage)}, nil
}

// stopReason is the reason for the end of a turn in the words of the protocol, which has none for a failed turn.
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

// begun receives the begin of a turn. It interrupts the turn of a cancelled prompt at once.
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

// over receives the end of a turn.
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

// cancel ends the running turn, and the turn of a waiting prompt when it begins.
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

// interrupt cancels the turn of the main agent, if one is running.
func (s *session) interrupt() {
	_, err := s.api.Interrupt(s.ctx, string(s.open.ID()))
	if err != nil && !control.IsCode(err, control.Conflict) {
		s.warn("cancel the turn", err)
	}
}

// close closes the session and waits for everything that it has begun.
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

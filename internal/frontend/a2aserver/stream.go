package a2aserver

import (
	"context"
	"time"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/httpserve"
	"github.com/drover-dev/drover/task"
)

// again is how long a follower waits before it connects once more to a session that has ended.
const again = time.Second

// follow calls tell with the state of a task and, whenever it has changed, with the events that lead to the new
// one, until tell returns false, the task has ended, or ctx ends.
func (s *Server) follow(ctx context.Context, one *entry, tell func(view, []a2a.Event) bool) error {
	var before *view
	end := false
	for {
		api, err := s.link.Reach(ctx)
		if err != nil {
			return err
		}
		state, err := api.State(ctx, control.StateRequest{})
		if err == nil {
			before, end, err = s.step(ctx, one, before, tell)
		}
		if err == nil && !end {
			for e, failed := range api.Events(ctx, state.Seq) {
				if failed != nil {
					break
				}
				if !about(e.Task, before) {
					continue
				}
				if before, end, err = s.step(ctx, one, before, tell); end || err != nil {
					break
				}
			}
		}
		switch {
		case end, err != nil && !control.IsCode(err, control.Unavailable):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		// The session has ended; the next one knows what became of the task.
		if err := pause(ctx, again); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// about reports whether a change of a task may change what the client sees: it is its own, or one that asks
// something, or did.
func about(rec task.Record, v *view) bool {
	return rec.ID == v.saved.Task || rec.Name == v.saved.ID || rec.AwaitingApproval || v.question != nil
}

// step looks at a task, and tells what has changed.
func (s *Server) step(
	ctx context.Context, one *entry, before *view, tell func(view, []a2a.Event) bool,
) (*view, bool, error) {
	now, err := s.look(ctx, one)
	if err != nil {
		return before, false, err
	}
	if events := changes(before, &now); before == nil || len(events) > 0 {
		if !tell(now, events) {
			return &now, true, nil
		}
	}
	return &now, now.status.State.Terminal(), nil
}

// changes are the events between two states of a task; before a first one there are none.
func changes(before, now *view) []a2a.Event {
	if before == nil {
		return nil
	}
	var out []a2a.Event
	if now.artifact != nil && before.artifact == nil {
		out = append(out, a2a.Event{Artifact: &a2a.ArtifactUpdate{Task: now.saved.ID, Context: now.saved.Context,
			Artifact: *now.artifact, Last: true}})
	}
	if before.status.State != now.status.State || said(before) != said(now) {
		out = append(out, a2a.Event{
			Status: &a2a.StatusUpdate{Task: now.saved.ID, Context: now.saved.Context, Status: now.status}})
	}
	return out
}

// said is what the status of a view says.
func said(v *view) string {
	if v.status.Message == nil {
		return ""
	}
	return v.status.Message.ID + a2a.Text(v.status.Message.Parts)
}

// busy takes a place among the requests that wait for news. The function gives it back.
func (s *Server) busy() (func(), error) {
	select {
	case s.streams <- struct{}{}:
		return func() { <-s.streams }, nil
	default:
		return nil, refusal(a2a.CodeInternal, "%d requests wait for news of tasks already (try again later)", mostStreams)
	}
}

// settled waits until a task has ended or asks something.
func (s *Server) settled(ctx context.Context, one *entry, v view) (view, error) {
	if v.status.State.Terminal() || v.status.State.Interrupted() {
		return v, nil
	}
	leave, err := s.busy()
	if err != nil {
		return v, err
	}
	defer leave()
	err = s.follow(ctx, one, func(now view, _ []a2a.Event) bool {
		v = now
		return !now.status.State.Interrupted()
	})
	return v, err
}

// sendStream begins a task, or gives one a message, and streams what becomes of it.
func (s *Server) sendStream(c caller, p a2a.SendRequest) error {
	one, err := s.accept(c.r.Context(), c.agent, p)
	if err != nil {
		return err
	}
	var history *int
	if p.Configuration != nil {
		history = p.Configuration.History
	}
	return s.stream(c, one, history, false)
}

// subscribe streams what becomes of a task.
func (s *Server) subscribe(c caller, p a2a.TaskRequest) error {
	one, err := s.find(c.agent, p.ID)
	if err != nil {
		return err
	}
	v, err := s.look(c.r.Context(), one)
	if err != nil {
		return err
	}
	if v.status.State.Terminal() {
		return refusal(a2a.CodeUnsupported, "task %s has ended (%s): get it instead", one.id, v.status.State)
	}
	return s.stream(c, one, nil, true)
}

// stream writes a task and its changes as server-sent events, until it has ended or asks something; a subscriber
// goes on past what the task asks already.
func (s *Server) stream(c caller, one *entry, history *int, subscribed bool) error {
	leave, err := s.busy()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	events := make(chan a2a.Event)
	followed := make(chan error, 1)
	go func() { // ends with ctx
		first := true
		followed <- s.follow(ctx, one, func(v view, changed []a2a.Event) bool {
			if first {
				first = false
				changed = []a2a.Event{{Task: v.task(history)}}
			}
			for _, e := range changed {
				select {
				case events <- e:
				case <-ctx.Done():
					return false
				}
			}
			return !v.status.State.Interrupted() || subscribed && changed[0].Task != nil
		})
		close(events)
	}()
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	var out *httpserve.Events // nil before the first event
	for err == nil {
		select {
		case e, open := <-events:
			if !open {
				failed := <-followed
				if failed != nil && c.r.Context().Err() == nil && ctx.Err() == nil {
					if out == nil {
						return failed
					}
					_ = out.Send("", "", answer{Version: "2.0", ID: c.id, Error: asError(failed)})
				}
				return errStreamed
			}
			if out == nil {
				out = httpserve.NewEvents(c.w)
			}
			err = out.Send("", "", answer{Version: "2.0", ID: c.id, Result: e})
		case <-tick.C:
			if out != nil {
				err = out.Comment()
			}
		}
	}
	cancel()
	for range events { // until follow has noticed
	}
	<-followed //nolint:errcheck // the client has gone
	return errStreamed
}

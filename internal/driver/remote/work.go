package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/api/remoteapi"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// Reasons of failures.
const (
	reasonUnreachable task.Reason = "unreachable"   // its service gave no answer for too long
	reasonRefused     task.Reason = "refused"       // its service does not do what it is asked
	reasonChecker     task.Reason = "checker"       // nobody can say whether it is done
	reasonRemote      task.Reason = "remote_failed" // the session failed
	reasonArchived    task.Reason = "archived"      // somebody else has ended the session
)

// archiveTime is how long the end of a session may take, unless the stop says
// otherwise.
const archiveTime = 5 * time.Second

// work is one run.
type work struct {
	d        *shared
	h        task.Host
	rec      task.Record // when the run began
	service  Service
	job      Job
	state    state
	pace     remoteapi.Pace
	fold     remoteapi.Fold
	cursor   string
	phase    string            // that the owner was told of
	unseen   []remoteapi.Event // that the checker has not been given
	done     bool              // the session has ended by itself
	again    bool              // the request for a session may have been sent before
	attached chan struct{}
	ended    chan struct{}
}

// begin finds the service, and notes durably that a session is going to be made
// before anybody is asked for one.
func (w *work) begin(ctx context.Context, open func(string) (Service, error)) (err error) {
	if old := w.rec.Checkpoint; len(old) > 0 {
		if w.state, err = readState(old); err == nil {
			w.service, err = open(w.state.Service)
		}
		if err != nil {
			return errors.Join(task.ErrLost, err)
		}
		w.job = Job{
			Service:  w.state.Service,
			Type:     w.state.Type,
			Prompt:   cmp.Or(w.state.Prompt, w.rec.Prompt),
			Metadata: w.state.Metadata,
		}
		if p := w.rec.Progress; p != nil {
			w.phase = p.Phase
		}
		w.again = true
		return nil
	}
	if w.job, err = parse(w.h.Input()); err == nil {
		w.service, err = open(w.job.Service)
	}
	if err != nil {
		return &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.state = state{
		V:        stateVersion,
		Stage:    creating,
		Service:  w.job.Service,
		Type:     w.job.Type,
		Prompt:   w.job.Prompt,
		Metadata: w.job.Metadata,
	}
	return w.save(ctx)
}

func (w *work) save(ctx context.Context) error {
	data, err := json.Marshal(w.state)
	if err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return w.h.Checkpoint(ctx, data)
}

// request is the same for every try, so that the service makes one session.
func (w *work) request() remoteapi.Request {
	return remoteapi.Request{Key: string(w.rec.Run), Type: w.job.Type, Prompt: w.job.Prompt, Metadata: w.job.Metadata,
		Again: w.again, AgentType: w.rec.AgentType, Model: w.rec.Model}
}

// attach makes sure that there is a session, and that the checkpoint and the
// sidecar name it. The sidecar is first: it saves the service a further request
// after a crash in between.
func (w *work) attach(ctx context.Context) error {
	if w.state.Stage == creating {
		if err := w.create(ctx); err != nil {
			return err
		}
		if err := w.note(); err != nil {
			return err
		}
		_ = failpoint.Hit("remote/noted")
		w.state.Stage, w.state.Prompt = running, ""
		if err := w.save(ctx); err != nil {
			return err
		}
	} else if err := w.note(); err != nil {
		return err
	}
	close(w.attached)
	w.show("")
	return nil
}

func (w *work) create(ctx context.Context) error {
	if w.d.Sidecar != nil && len(w.rec.Checkpoint) > 0 {
		if s, err := remoteapi.ReadSidecar(w.d.Sidecar(w.rec.ID)); err == nil && s.Task == string(w.rec.ID) {
			w.state.Session = s.Session
			return nil
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.show("its sidecar cannot be read, and is written anew")
		}
	}
	for {
		session, err := w.service.Create(ctx, w.request())
		w.again = true
		_ = failpoint.Hit("remote/sent")
		if err == nil {
			w.state.Session = session
			return nil
		}
		if err := w.problem(ctx, err); err != nil {
			return err
		}
	}
}

// note writes the sidecar.
func (w *work) note() error {
	if w.d.Sidecar == nil {
		return nil
	}
	return remoteapi.WriteSidecar(
		w.d.Sidecar(w.rec.ID),
		remoteapi.Sidecar{Task: string(w.rec.ID), Session: w.state.Session, Type: w.state.Type, Metadata: w.state.Metadata},
	)
}

// problem waits after a failure, or says why there is no use in it.
func (w *work) problem(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	wait, final := w.pace.Bad(time.Now(), err)
	if final == nil {
		if w.pace.Failing() > 1 { // one lost answer is nothing to tell of
			w.show("trying again: " + err.Error())
		}
		return pause(ctx, wait)
	}
	fail := &task.FailError{Reason: reasonRefused, Err: final}
	var gone *remoteapi.UnreachableError
	if errors.As(final, &gone) {
		fail.Reason = reasonUnreachable
	}
	var checker *checkError
	if errors.As(final, &checker) {
		fail.Reason = reasonChecker
	}
	return fail
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// follow polls to the end and returns the answer.
func (w *work) follow(ctx context.Context) (string, error) {
	for {
		if err := w.h.WaitWhilePaused(ctx); err != nil {
			return "", err
		}
		asked := time.Now()
		page, news, err := w.look(ctx)
		if err == nil {
			var text *string
			if text, err = w.verdict(ctx, page); text != nil {
				return *text, nil
			}
		}
		var end *endError
		if errors.As(err, &end) {
			return "", end.err
		}
		if err != nil {
			if err := w.problem(ctx, err); err != nil {
				return "", err
			}
			continue
		}
		if err := pause(ctx, w.pace.Good(time.Since(asked), news)); err != nil {
			return "", err
		}
	}
}

// look reads all that is new: events, then output.
func (w *work) look(ctx context.Context) (all remoteapi.Page, news bool, err error) {
	hold, pages, taken := w.hold(), 0, 0
	for {
		page, err := w.service.Poll(ctx, w.state.Session, w.cursor, hold)
		if err != nil {
			return all, false, err
		}
		if w.cursor == "" {
			w.fold, w.unseen = remoteapi.Fold{}, nil // a try that was broken off read them already
		}
		for _, e := range page.Events {
			w.fold.Add(e)
		}
		if w.d.Checkers.For(w.state.Type) != nil {
			w.unseen = newest(append(w.unseen, page.Events...))
		}
		pages, taken = pages+1, taken+len(page.Events)
		stuck := page.More && page.Cursor == w.cursor
		all, w.cursor, hold = page, page.Cursor, 0
		if page.Phase != "" {
			w.fold.Phase = page.Phase
		}
		if stuck {
			return all, false, &remoteapi.FormError{Err: errors.New("the service says that more follows, and does not go on")}
		}
		if !page.More || taken >= maxEvents || pages >= maxPages {
			break
		}
	}
	grown, err := w.copy(ctx, all)
	if err != nil {
		return all, false, err
	}
	news = taken > 0 || w.fold.Phase != w.phase
	w.tell(ctx) // before the record shows the phase, which says that it was told
	if news || grown || w.pace.Failing() > 0 {
		w.show("")
	}
	return all, news || grown || all.More, nil
}

// Bounds of one look; the next goes on from there.
const (
	maxEvents = 10_000
	maxPages  = 100
)

// maxUnseen bounds what is kept for a checker, in bytes of texts and inputs.
const maxUnseen = 8 << 20

// newest are as many of the last events as a checker is given.
func newest(events []remoteapi.Event) []remoteapi.Event {
	from, size := len(events), 0
	for from > 0 && len(events)-from < maxEvents {
		e := events[from-1]
		if size += len(e.Text) + len(e.Tool) + len(e.Input); size > maxUnseen {
			break
		}
		from--
	}
	return slices.Clone(events[from:]) // so that the others are free
}

// hold is how long the service may wait with an answer. A checker is asked after
// each poll, and looks at other places too, so its polls come at their usual pace.
func (w *work) hold() time.Duration {
	if w.d.Hold < 0 || w.done || w.d.Checkers.For(w.state.Type) != nil {
		return 0
	}
	if w.d.Hold > 0 {
		return w.d.Hold
	}
	return remoteapi.MaxHold
}

// copy appends what the session has printed and the local file has not. The size
// of the file is the offset, so nothing is lost or written twice by a crash.
func (w *work) copy(ctx context.Context, p remoteapi.Page) (grown bool, err error) {
	out := w.h.Output()
	for out.Size() < p.OutputBytes {
		if limit := out.Limit(); limit > 0 && out.Size() >= limit {
			return grown, &endError{
				&task.FailError{Reason: task.ReasonOutputLimit, Err: fmt.Errorf("its output is larger than %d bytes", limit)},
			}
		}
		data, err := w.service.Output(ctx, w.state.Session, out.Size())
		if err != nil {
			return grown, err
		}
		if len(data) == 0 {
			if p.Status.Done() {
				return grown, &remoteapi.FormError{
					Err: fmt.Errorf("%d bytes of output are said to be there, and only %d come", p.OutputBytes, out.Size()),
				}
			}
			return grown, nil
		}
		if _, err := out.Write(data); err != nil {
			return grown, err
		}
		grown = true
	}
	return grown, nil
}

// endError is an end that is none of the service's failures.
type endError struct{ err error }

func (e *endError) Error() string { return e.err.Error() }

// verdict says whether the work is done: the answer, an [*endError], or neither.
func (w *work) verdict(ctx context.Context, p remoteapi.Page) (*string, error) {
	w.done = p.Status.Done()
	switch p.Status {
	case remoteapi.Failed:
		why := p.Error
		if why == "" {
			why = "the session failed, and does not say why"
		}
		return nil, &endError{&task.FailError{Reason: reasonRemote, Err: errors.New(brief(why))}}
	case remoteapi.Archived:
		cause := task.Cause{
			Actor:  task.ByUnknown,
			Reason: reasonArchived,
			Detail: "its session was archived at " + w.service.Host(),
		}
		return nil, &endError{errors.Join(task.ErrLost, &task.StopError{Cause: cause})}
	}
	if c := w.d.Checkers.For(w.state.Type); c != nil {
		return w.check(ctx, c, p)
	}
	whole := w.done && !p.More // else what led there is still to be read
	if w.state.Type == remoteapi.Ultrareview {
		if text, ok := w.fold.HookReview(); ok {
			return &text, nil
		}
		if text, ok := w.fold.Review(); ok && whole {
			return &text, nil
		}
	}
	if whole {
		return &p.Result, nil
	}
	return nil, nil
}

// checkError is a failure of a checker, which may pass.
type checkError struct{ err error }

func (e *checkError) Error() string { return e.err.Error() }
func (e *checkError) Unwrap() error { return e.err }

// check asks a checker. What it was given and failed over it is given again.
func (w *work) check(ctx context.Context, c remoteapi.Checker, p remoteapi.Page) (*string, error) {
	p.Events = w.unseen
	text, err := c.Check(ctx, w.state.Metadata, p)
	if err != nil {
		return nil, &checkError{err}
	}
	w.unseen = nil
	return text, nil
}

// end brings the run to its end. Of a session that has not ended by itself
// nothing is to be left running, unless this host goes and the next takes it up.
func (w *work) end(ctx context.Context, text string, err error) (task.Result, error) {
	cause := context.Cause(ctx)
	if err != nil && errors.Is(cause, task.ErrClosing) && w.goesOn(err) {
		return task.Result{}, task.ErrDetached
	}
	res := task.Result{Text: text, Settle: w.settle}
	if w.done {
		return res, err
	}
	if left := w.archive(ctx, cause); left != nil {
		res.Left = append(res.Left, *left)
		if err != nil && ctx.Err() == nil {
			err = &task.FailError{Reason: reasonOf(err), Err: fmt.Errorf("%w; %s may go on: %s", err, left.Command, left.Why)}
		}
	}
	return res, err
}

// goesOn tells the end of this host from that of the work.
func (w *work) goesOn(err error) bool {
	var fail *task.FailError
	return !errors.As(err, &fail) && !errors.Is(err, task.ErrLost)
}

func reasonOf(err error) task.Reason {
	var fail *task.FailError
	if errors.As(err, &fail) {
		return fail.Reason
	}
	return task.ReasonError
}

// archive ends the session, and names it if that cannot be done. Whether one was
// made by a request that was broken off is found by asking again.
func (w *work) archive(ctx context.Context, cause error) *task.Survivor {
	limit := archiveTime
	var stop *task.StopError
	if errors.As(cause, &stop) && stop.Grace != nil {
		limit = min(max(*stop.Grace, time.Second), archiveTime)
	}
	last, done := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, fmt.Errorf("no answer within %s", limit))
	defer done()
	var err error
	if w.state.Session == "" {
		if f, ok := w.service.(Finder); !ok {
			w.state.Session, err = w.service.Create(last, w.request())
		} else if w.state.Session, err = f.Find(last, w.request()); err == nil && w.state.Session == "" {
			return nil
		}
	}
	if err == nil {
		err = w.service.Archive(last, w.state.Session)
	}
	var status *remoteapi.StatusError
	if err == nil || errors.As(err, &status) && (status.Code == 404 || status.Code == 410) {
		return nil
	}
	name := "remote session " + w.state.Session
	if w.state.Session == "" {
		name = "a remote session with the key " + string(w.rec.Run)
	}
	return &task.Survivor{Task: w.rec.ID, Command: name + " at " + w.service.Host(), Why: brief(err.Error())}
}

// settle takes the sidecar away, when the end is durable. One that cannot be
// removed revives nothing: the log goes before it.
func (w *work) settle() {
	if w.d.Sidecar != nil {
		_ = remoteapi.RemoveSidecar(w.d.Sidecar(w.rec.ID))
	}
}

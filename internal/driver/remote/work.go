package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// Reasons of failures.
const (
	reasonUnreachable task.Reason = "unreachable"   // the agent gave no valid answer for too long
	reasonRefused     task.Reason = "refused"       // the agent refuses a request
	reasonChecker     task.Reason = "checker"       // the completion checker fails
	reasonRemote      task.Reason = "remote_failed" // the remote task failed
	reasonArchived    task.Reason = "archived"      // another client cancelled the remote task
)

const (
	cancelTime = 5 * time.Second  // to cancel the remote task, unless the stop says otherwise
	maxHold    = 20 * time.Second // of one poll
)

// work is one run.
type work struct {
	d        *shared
	h        task.Host
	rec      task.Record // when the run began
	client   *a2a.Client
	far      *a2a.Follower // of the remote task; nil: not begun
	job      Job
	state    state
	pace     Pace
	said     string   // the end of the agent's messages
	note     string   // the newest message
	phase    string   // of which the owner was notified
	unseen   []string // messages that the checker has not accepted
	done     bool     // the remote task has ended by itself
	again    bool     // the request for the remote task may have been sent before
	attached chan struct{}
	ended    chan struct{}
}

// begin finds the service, and records that the remote task is going to be begun before anything is sent.
func (w *work) begin(ctx context.Context, find func(string) (*a2a.Client, error)) (err error) {
	if old := w.rec.Checkpoint; len(old) > 0 {
		if w.state, err = readState(old); err == nil {
			w.client, err = find(w.state.Service)
		}
		if err != nil {
			return errors.Join(task.ErrLost, err)
		}
		w.job = Job{Service: w.state.Service, Type: w.state.Type, Prompt: cmp.Or(w.state.Prompt, w.rec.Prompt),
			Metadata: w.state.Metadata}
		if p := w.rec.Progress; p != nil {
			w.phase = p.Phase
		}
		w.again = true
		return nil
	}
	if w.job, err = parse(w.h.Input()); err == nil {
		w.client, err = find(w.job.Service)
	}
	if err != nil {
		return &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.state = state{V: stateVersion, Stage: creating, Service: w.job.Service, Type: w.job.Type, Prompt: w.job.Prompt,
		Metadata: w.job.Metadata}
	return w.save(ctx)
}

// abandoned names the remote task of a checkpoint that cannot be followed: its service is unknown, or it is a session
// of the protocol that earlier versions spoke.
func (w *work) abandoned(err error) []task.Survivor {
	if w.state.Session == "" {
		return nil
	}
	return []task.Survivor{{Task: w.rec.ID, Why: brief(err.Error()),
		Command: "remote session " + w.state.Session + " of the service " + brief(w.state.Service)}}
}

func (w *work) save(ctx context.Context) error {
	data, err := json.Marshal(w.state)
	if err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return w.h.Checkpoint(ctx, data)
}

// message returns the first message of the remote task. It has the same ID for every try of a run.
func (w *work) message() (a2a.Message, error) {
	m := a2a.Message{ID: string(w.rec.Run), Role: a2a.RoleUser, Parts: []a2a.Part{a2a.TextPart(w.job.Prompt)}}
	if len(w.job.Metadata) > 0 {
		if err := json.Unmarshal(w.job.Metadata, &m.Metadata); err != nil {
			return m, &a2a.RefusedError{Err: fmt.Errorf("read metadata: %w", err)}
		}
	}
	for key, value := range map[string]string{"agent_type": w.rec.AgentType, "model": w.rec.Model} {
		if _, has := m.Metadata[key]; value != "" && !has {
			if m.Metadata == nil {
				m.Metadata = map[string]any{}
			}
			m.Metadata[key] = value
		}
	}
	return m, nil
}

// attach makes sure that the remote task exists, and that the checkpoint and the sidecar name it. The sidecar is
// first: after a crash in between, the agent is not asked again.
func (w *work) attach(ctx context.Context) (err error) {
	begun := w.state.Stage == running
	if begun {
		w.far, err = w.client.Follow(w.state.Session)
	} else {
		err = w.create(ctx)
	}
	if err != nil {
		return err
	}
	w.state.Session = w.far.ID()
	if err := w.noteSession(); err != nil {
		return err
	}
	if !begun {
		_ = failpoint.Hit("remote/noted")
		w.state.Stage, w.state.Prompt = running, ""
		if err := w.save(ctx); err != nil {
			return err
		}
	}
	close(w.attached)
	w.show("")
	return nil
}

func (w *work) create(ctx context.Context) error {
	if w.d.Sidecar != nil && w.again {
		if s, err := ReadSidecar(w.d.Sidecar(w.rec.ID)); err == nil && s.Task == string(w.rec.ID) {
			w.far, err = w.client.Follow(s.Session)
			return err
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.show("its sidecar cannot be read, and is written anew")
		}
	}
	for {
		m, err := w.message()
		if err == nil {
			w.far, err = w.client.Start(ctx, m, w.again)
		}
		w.again = true
		_ = failpoint.Hit("remote/sent")
		if err == nil {
			return nil
		}
		if err := w.problem(ctx, err); err != nil {
			return err
		}
	}
}

// noteSession writes the sidecar.
func (w *work) noteSession() error {
	if w.d.Sidecar == nil {
		return nil
	}
	return WriteSidecar(w.d.Sidecar(w.rec.ID),
		Sidecar{Task: string(w.rec.ID), Session: w.state.Session, Type: w.state.Type, Metadata: w.state.Metadata})
}

// problem waits after a failure that may be temporary, and returns any other one.
func (w *work) problem(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	wait, final := w.pace.Bad(time.Now(), err)
	if final == nil {
		if w.pace.Failing() > 1 { // a single lost answer is not worth a line
			w.show("trying again: " + err.Error())
		}
		return pause(ctx, wait)
	}
	fail := &task.FailError{Reason: reasonRefused, Err: final}
	var gone *UnreachableError
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
	select {
	case <-time.After(d):
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
		now, news, err := w.look(ctx)
		if err == nil {
			var text *string
			if text, err = w.verdict(ctx, now); text != nil {
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

// look polls once, and reports whether something is new.
func (w *work) look(ctx context.Context) (now a2a.News, news bool, err error) {
	if now, err = w.far.Poll(ctx, w.hold()); err != nil {
		return now, false, err
	}
	w.hear(now.Said)
	grown, err := w.copy(now.Output)
	if err != nil {
		return now, false, err
	}
	news = grown || len(now.Said) > 0 || now.Phase != w.phase
	w.tell(ctx, now.Phase) // before the record shows the phase, which says that the owner was notified
	if news || w.pace.Failing() > 0 {
		w.show("")
	}
	return now, news, nil
}

func (w *work) checker() Checker { return w.d.Checkers[w.state.Type] }

// hold is how long a poll waits for news. A checker runs after each poll and looks at other places too, so its polls
// come at their usual pace.
func (w *work) hold() time.Duration {
	if w.d.Hold < 0 || w.done || w.checker() != nil {
		return 0
	}
	return cmp.Or(w.d.Hold, maxHold)
}

// copy appends the output that the local file lacks. The size of the file is the offset, so a crash neither loses nor
// repeats anything.
func (w *work) copy(size int64) (grown bool, err error) {
	out := w.h.Output()
	for out.Size() < size {
		data := w.far.Output(out.Size())
		if limit := out.Limit(); limit > 0 {
			if data = data[:min(int64(len(data)), limit-out.Size())]; len(data) == 0 {
				return grown, &endError{
					&task.FailError{Reason: task.ReasonOutputLimit, Err: fmt.Errorf("its output is larger than %d bytes", limit)}}
			}
		}
		if _, err := out.Write(data); err != nil {
			return grown, err
		}
		grown = true
	}
	return grown, nil
}

// endError is an end that no other try changes.
type endError struct{ err error }

func (e *endError) Error() string { return e.err.Error() }

// verdict decides whether the work is done: it returns the answer, an [*endError], or neither.
func (w *work) verdict(ctx context.Context, now a2a.News) (*string, error) {
	w.done = now.State.Terminal()
	switch now.State {
	case a2a.Failed:
		why := cmp.Or(brief(now.Why), "the agent gave no reason")
		return nil, &endError{&task.FailError{Reason: reasonRemote, Err: errors.New(why)}}
	case a2a.Rejected:
		why := brief("the agent refused the task: " + now.Why)
		return nil, &endError{&task.FailError{Reason: reasonRemote, Err: errors.New(why)}}
	case a2a.Canceled:
		cause := task.Cause{Actor: task.ByUnknown, Reason: reasonArchived,
			Detail: "its task was cancelled at " + w.client.Host()}
		return nil, &endError{errors.Join(task.ErrLost, &task.StopError{Cause: cause})}
	}
	if c := w.checker(); c != nil {
		return w.check(ctx, c, now)
	}
	if w.state.Type == control.Ultrareview {
		// The output of a hook is complete as soon as it has both tags, whatever the agent still does.
		if text := review(w.far.Artifacts(hookArtifact)); text != nil {
			return text, nil
		}
		if text := review(now.Result); w.done && text != nil {
			return text, nil
		}
		if text := review(w.said); w.done && text != nil {
			return text, nil
		}
	}
	if w.done {
		return &now.Result, nil
	}
	return nil, nil
}

// checkError is a failure of a checker, which may be temporary.
type checkError struct{ err error }

func (e *checkError) Error() string { return e.err.Error() }
func (e *checkError) Unwrap() error { return e.err }

// check asks a checker. After a failure it gets the same messages again.
func (w *work) check(ctx context.Context, c Checker, now a2a.News) (*string, error) {
	now.Said = w.unseen
	text, err := c(ctx, w.state.Metadata, now)
	if err != nil {
		return nil, &checkError{err}
	}
	w.unseen = nil
	return text, nil
}

// end ends the run. A remote task that has not ended by itself is cancelled, unless this host closes and the next one
// adopts the task.
func (w *work) end(ctx context.Context, text string, err error) (task.Result, error) {
	cause := context.Cause(ctx)
	var fail *task.FailError
	final := errors.As(err, &fail) || errors.Is(err, task.ErrLost) // the work itself has ended
	if err != nil && errors.Is(cause, task.ErrClosing) && !final {
		return task.Result{}, task.ErrDetached
	}
	res := task.Result{Text: text, Settle: w.settle}
	if w.done {
		return res, err
	}
	if left := w.cancel(ctx, cause); left != nil {
		res.Left = append(res.Left, *left)
		if err != nil && ctx.Err() == nil {
			reason := task.ReasonError
			if fail != nil {
				reason = fail.Reason
			}
			err = &task.FailError{Reason: reason, Err: fmt.Errorf("%w; %s may continue: %s", err, left.Command, left.Why)}
		}
	}
	return res, err
}

// cancel cancels the remote task, and names it if that fails. A task that was begun by a request without an answer is
// looked for.
func (w *work) cancel(ctx context.Context, cause error) *task.Survivor {
	limit := cancelTime
	var stop *task.StopError
	if errors.As(cause, &stop) && stop.Grace != nil {
		limit = min(max(*stop.Grace, time.Second), cancelTime)
	}
	last, done := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, fmt.Errorf("no answer within %s", limit))
	defer done()
	name := "a remote task begun by message " + string(w.rec.Run)
	var err error
	if w.far == nil {
		if w.far, err = w.client.Find(last, string(w.rec.Run)); err == nil && w.far == nil {
			return nil
		}
	}
	if err == nil {
		name = "remote task " + w.far.ID()
		if err = w.far.Cancel(last); err == nil {
			return nil
		}
	}
	return &task.Survivor{Task: w.rec.ID, Command: name + " at " + w.client.Host(), Why: brief(err.Error())}
}

// settle removes the sidecar once the end is durable. If that fails, the sidecar revives nothing, since the log takes
// precedence over it.
func (w *work) settle() {
	if w.d.Sidecar != nil {
		_ = RemoveSidecar(w.d.Sidecar(w.rec.ID))
	}
}

// maxSaid limits the kept part of the agent's messages, which is the newest, in bytes.
const maxSaid = 1 << 20

// maxUnseen limits the messages that wait for a checker, in bytes.
const maxUnseen = 8 << 20

// hear takes messages of the agent.
func (w *work) hear(messages []string) {
	for _, text := range messages {
		w.said += text + "\n"
		w.said = w.said[max(0, len(w.said)-maxSaid):]
		w.note = text
	}
	if w.checker() == nil {
		return
	}
	w.unseen = append(w.unseen, messages...)
	from, size := len(w.unseen), 0
	for from > 0 && size+len(w.unseen[from-1]) <= maxUnseen {
		from--
		size += len(w.unseen[from])
	}
	w.unseen = w.unseen[from:]
}

// brief returns text of an agent as one harmless line.
func brief(text string) string { return excerpt.Line(text, 500) }

// show records how far the remote task has come; message takes the place of what the agent said last.
func (w *work) show(message string) {
	if message == "" {
		message = w.note
	}
	p := task.Progress{Phase: excerpt.Line(w.phase, 40), Message: brief(message),
		Remote: &task.RemoteSession{ID: w.state.Session, Type: w.state.Type, Host: w.client.Host()}}
	w.h.Progress(p)
}

// maxWords limits the agent's messages in the notification of a phase, in characters.
const maxWords = 2000

// tell notifies the owner of a phase in which the remote task waits: once for each phase, unless the
// host dies before the record shows it.
func (w *work) tell(ctx context.Context, phase string) {
	if phase == w.phase {
		return
	}
	w.phase = phase
	text := map[string]string{
		a2a.NeedsInput: "The remote agent needs input before it can continue.",
		a2a.NeedsAuth:  "The remote agent needs its user to authenticate before it can continue.",
		a2a.PlanReady:  "The remote agent has a plan ready, and waits for approval.",
	}[phase]
	if text == "" {
		return
	}
	words := strings.TrimSpace(strings.ToValidUTF8(w.said, ""))
	if r := []rune(words); len(r) > maxWords {
		words = "…" + string(r[len(r)-maxWords:])
	}
	// The error is ignored: an owner whose mailbox is full sees the phase in the record.
	_ = w.h.Tell(ctx, task.MonitorEvent, strings.TrimSpace(text+"\n"+words), task.Next)
}

// hookArtifact names the artifacts that are the output of a hook of the agent.
const hookArtifact = "hook_progress"

// review returns the text between the last tags <remote-review> and </remote-review>.
func review(text string) *string {
	const begin, end = "<remote-review>", "</remote-review>"
	to := strings.LastIndex(text, end)
	if to < 0 {
		return nil
	}
	from := strings.LastIndex(text[:to], begin)
	if from < 0 {
		return nil
	}
	found := strings.TrimSpace(text[from+len(begin) : to])
	return &found
}

package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/agentenv/usage"
	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

var _ control.API = (*Session)(nil)

// Info says which session this is.
func (s *Session) Info(context.Context) (control.Info, error) {
	info := s.info()
	info.DiskBytes = s.space.Size()
	info.Problem, _ = s.space.Trouble()
	return info, nil
}

// Start starts tasks for a client.
func (s *Session) Start(ctx context.Context, reqs []control.StartRequest) ([]control.Started, error) {
	out := make([]control.Started, len(reqs))
	begins := make([]func(), 0, len(reqs))
	var batch []supervise.Starting
	var places []int
	for i, r := range reqs {
		if r.Check() == nil && r.Shell != nil && r.Lease == "" { // commands become durable together
			w, err := s.command(
				r,
				task.Spec{
					Name:         r.Name,
					Description:  r.Description,
					Backgrounded: true,
					Keep:         r.Keep,
					Timeout:      r.Timeout,
					Cwd:          r.Cwd,
				},
				shell.Client{Env: s.childEnv(r.Env)},
			)
			if err != nil {
				out[i].Error = refusal(err)
				continue
			}
			batch, places = append(batch, w), append(places, i)
			continue
		}
		rec, begin, err := s.start(ctx, r, shell.Client{Env: s.childEnv(r.Env)}, true)
		if begin != nil {
			begins = append(begins, begin)
		}
		if err != nil {
			out[i].Error = notStarted(err)
			continue
		}
		out[i].Task = &rec
	}
	for k, r := range s.sup.RecordAll(ctx, batch) {
		if r.Err != nil {
			out[places[k]].Error = notStarted(r.Err)
			continue
		}
		out[places[k]].Task, begins = &r.Task, append(begins, r.Begin)
	}
	for _, begin := range begins {
		begin()
	}
	return out, nil
}

// start records a task, which waits for begin. An agent or a dream has begun
// already: then begin is nil, as it is after an error.
func (s *Session) start(
	ctx context.Context,
	r control.StartRequest,
	client shell.Client,
	background bool,
) (rec task.Record, begin func(), err error) {
	if err := r.Check(); err != nil {
		return task.Record{}, nil, err
	}
	spec := task.Spec{
		Name:         r.Name,
		Description:  r.Description,
		Backgrounded: background,
		Keep:         r.Keep,
		Timeout:      r.Timeout,
		Cwd:          r.Cwd,
	}
	lease, err := s.lease(r.Lease)
	if err != nil {
		return task.Record{}, nil, err
	}
	switch {
	case r.Shell != nil:
		rec, begin, err = s.startShell(ctx, r, spec, client)
	case r.Agent != nil:
		rec, err = s.startAgent(ctx, r, spec)
	case r.Monitor != nil:
		rec, begin, err = s.startMonitor(ctx, r, spec)
	case r.Workflow != nil:
		rec, begin, err = s.startWorkflow(ctx, r, spec)
	case r.Remote != nil:
		rec, begin, err = s.startRemote(ctx, r, spec)
	default:
		rec, err = s.requestDream(ctx, r, spec)
	}
	if err == nil && lease != nil && !lease.add(rec.ID) {
		if begin != nil {
			begin() // what has not begun cannot be waited for
			begin = nil
		}
		_, _ = s.Stop(
			context.WithoutCancel(ctx),
			control.StopRequest{Refs: []string{string(rec.ID)}, Actor: task.ByClient, Detail: clientGone},
		)
	}
	return rec, begin, err
}

func (s *Session) startShell(
	ctx context.Context,
	r control.StartRequest,
	spec task.Spec,
	client shell.Client,
) (rec task.Record, begin func(), err error) {
	w, err := s.command(r, spec, client)
	if err != nil {
		return task.Record{}, nil, err
	}
	return s.sup.Record(ctx, w.Driver, w.Spec)
}

// command is a command that is going to be.
func (s *Session) command(r control.StartRequest, spec task.Spec, client shell.Client) (supervise.Starting, error) {
	w := s.kinds.Command(client, shell.Command{Args: r.Shell.Args, Line: r.Shell.Line, Cwd: r.Cwd, TTY: r.Shell.TTY})
	spec.Input, spec.Pool, spec.TTY = w.Input, shellPool, r.Shell.TTY
	spec.Command = r.Shell.Line
	if spec.Command == "" {
		spec.Command = shell.Quote(r.Shell.Args...)
	}
	if spec.Description == "" {
		spec.Description = lifecycle.Shortened(spec.Command, task.MaxDescription)
	}
	err := s.banned(r, spec.Command)
	_ = failpoint.Hit("start/judged")
	return supervise.Starting{Driver: w.Driver, Spec: spec}, err
}

// banned refuses the command of a guarded request that a rule denies.
func (s *Session) banned(r control.StartRequest, line string) error {
	if !r.ByModel {
		return nil
	}
	rules := s.cfg.Agents.Rules
	rules.Cwd = r.Cwd
	gate, err := s.gate(rules)
	if err != nil {
		return err
	}
	input, err := json.Marshal(map[string]string{"command": line})
	if err != nil {
		return fmt.Errorf("permissions: %w", err)
	}
	if v := gate.Decide(agent.Call{Name: "Bash", Input: input}); v.Decision == permission.Deny && v.Rule != "" {
		return &control.Error{
			Code:    control.Invalid,
			Message: fmt.Sprintf("the rule %s denies this command: %s", v.Rule, v.Reason),
		}
	}
	return nil
}

func (s *Session) startAgent(ctx context.Context, r control.StartRequest, spec task.Spec) (task.Record, error) {
	if r.Keep {
		return task.Record{}, &control.Error{
			Code:    control.Invalid,
			Message: "an agent cannot be kept past its host",
			Fix:     "resume it instead",
		}
	}
	in := subagent.Input{Type: r.Agent.Type, Prompt: r.Agent.Prompt, Model: r.Agent.Model, MaxTurns: r.Agent.MaxTurns,
		PermissionMode: r.Agent.PermissionMode, AllowedTools: r.Agent.AllowedTools, Isolation: r.Agent.Isolation}
	if r.Agent.Team != "" {
		spec.Team = &task.Team{Name: r.Name, Team: r.Agent.Team}
	}
	rec, _, err := s.launch(ctx, in, spec, s.outside(r))
	return rec, err
}

// outside stands for a client that starts an agent without being one.
func (s *Session) outside(r control.StartRequest) caller {
	rules := s.cfg.Agents.Rules
	rules.Allow = append(slices.Clone(rules.Allow), r.Agent.AllowedTools...)
	return caller{s: s, cwd: r.Cwd, env: s.clientEnv(r.Env), model: s.cfg.Agents.Model, rules: rules}
}

// clientEnv is the environment of a client as agents get it.
func (s *Session) clientEnv(env []string) []string {
	if s.cfg.Agents.Client == nil {
		return env
	}
	return s.cfg.Agents.Client(env)
}

// childEnv is what commands get of it.
func (s *Session) childEnv(env []string) []string { return shell.ChildEnv(s.clientEnv(env)) }

// RunCommand runs a command in the foreground and returns when it has ended.
// When ctx ends, the command is stopped; with [conversation.ErrInterrupted] as its cause, by INT
// first.
func (s *Session) RunCommand(ctx context.Context, r control.StartRequest, client shell.Client) (task.Record, error) {
	client.Env = s.childEnv(r.Env)
	rec, begin, err := s.start(ctx, r, client, false)
	if begin != nil {
		begin()
	}
	if err != nil {
		return rec, refusal(err)
	}
	if _, err := s.sup.Wait(ctx, []task.ID{rec.ID}, false); err != nil {
		last, why := context.WithoutCancel(
			ctx,
		), task.Cause{
			Actor:  task.ByUser,
			Reason: task.ReasonStopped,
			Detail: context.Cause(ctx).Error(),
		}
		if errors.Is(context.Cause(ctx), conversation.ErrInterrupted) {
			why.Reason, why.Detail = task.ReasonInterrupt, ""
		}
		if _, err := s.sup.Stop(last, []task.ID{rec.ID}, supervise.StopRequest{Cause: why}); err != nil {
			return rec, err
		}
	}
	rec, _ = s.sup.Get(rec.ID)
	return s.log.Whole(context.WithoutCancel(ctx), rec)
}

// List returns tasks, newest first.
func (s *Session) List(ctx context.Context, req control.ListRequest) (control.Page, error) {
	page := control.Page{Tasks: []task.Record{}}
	page.Problem, _ = s.space.Trouble()
	root := s.sup.Born(req.Under)
	take := func(born task.Seq, r task.Record) bool {
		if req.Under != "" && born < root {
			return false // what is below a task was started after it
		}
		if !req.All && r.Status.Terminal() || req.Under != "" && !s.tree.Below(r, req.Under) {
			return true
		}
		if req.Limit > 0 && len(page.Tasks) == req.Limit {
			page.Next = born + 1
			return false
		}
		page.Tasks = append(page.Tasks, s.activity.Mark(r))
		return true
	}
	if req.All {
		return page, s.sup.Listing(ctx, req.Before, take)
	}
	s.sup.List(req.Before)(take)
	return page, nil
}

// Get returns one task, with the whole of its command.
func (s *Session) Get(ctx context.Context, ref string) (task.Record, error) {
	r, err := s.tree.Find(ref)
	if err == nil {
		r, err = s.log.Whole(ctx, r)
	}
	if err != nil {
		return r, refusal(err)
	}
	return s.activity.Mark(r), nil
}

func (s *Session) find(refs []string) ([]task.ID, error) {
	if len(refs) == 0 {
		return nil, &control.Error{Code: control.Invalid, Message: "no task is named"}
	}
	ids := make([]task.ID, len(refs))
	for i, ref := range refs {
		r, err := s.tree.Find(ref)
		if err != nil {
			return nil, refusal(err)
		}
		ids[i] = r.ID
	}
	return ids, nil
}

// Wait waits for the end of tasks.
func (s *Session) Wait(ctx context.Context, req control.WaitRequest) (control.WaitReply, error) {
	ids, err := s.find(req.Refs)
	if err != nil {
		return control.WaitReply{}, err
	}
	wait, cancel := ctx, context.CancelFunc(func() {})
	if req.Timeout > 0 {
		wait, cancel = context.WithTimeoutCause(ctx, req.Timeout, supervise.ErrTimeout)
	}
	defer cancel()
	recs, trouble, err := s.waitHeeding(wait, ids, req)
	reply := control.WaitReply{Tasks: recs, TimedOut: errors.Is(err, supervise.ErrTimeout), Problem: trouble}
	if err != nil && !reply.TimedOut {
		return reply, err
	}
	if req.Any {
		slices.SortStableFunc(reply.Tasks, byEnd)
	}
	return reply, nil
}

// errTold ends a wait whose client must hear of something else.
var errTold = errors.New("the trouble is another")

// waitHeeding waits for tasks, or until the trouble is another than the client
// knows of.
func (s *Session) waitHeeding(
	ctx context.Context,
	ids []task.ID,
	req control.WaitRequest,
) ([]task.Record, *string, error) {
	if req.KnownProblem == nil {
		recs, err := s.sup.Wait(ctx, ids, req.Any)
		return recs, nil, err
	}
	for {
		now, changed := s.space.Trouble()
		heeding, stop := context.WithCancelCause(ctx)
		if now != *req.KnownProblem {
			stop(errTold)
		}
		deaf := context.AfterFunc(changed, func() { stop(errTold) })
		recs, err := s.sup.Wait(heeding, ids, req.Any)
		deaf()
		stop(nil)
		if !errors.Is(err, errTold) {
			return recs, nil, err
		}
		if now, _ = s.space.Trouble(); now != *req.KnownProblem {
			return recs, &now, nil
		}
	}
}

// byEnd puts what ended first before what ended later, and that before what has
// not ended.
func byEnd(a, b task.Record) int {
	switch {
	case a.EndTime != nil && b.EndTime != nil:
		return a.EndTime.Compare(*b.EndTime)
	case a.EndTime != nil:
		return -1
	case b.EndTime != nil:
		return 1
	}
	return 0
}

// Stop ends subtrees.
func (s *Session) Stop(ctx context.Context, req control.StopRequest) (task.Receipt, error) {
	ids, err := s.find(req.Refs)
	if err != nil {
		return task.Receipt{}, err
	}
	if req.Grace != nil && *req.Grace < 0 {
		return task.Receipt{}, &control.Error{
			Code:    control.Invalid,
			Message: fmt.Sprintf("the grace %s is negative", *req.Grace),
		}
	}
	if req.Actor == "" {
		req.Actor = task.ByUser
	}
	receipt, err := s.sup.Stop(
		ctx,
		ids,
		supervise.StopRequest{
			Grace: req.Grace,
			Cause: task.Cause{Actor: req.Actor, Reason: task.ReasonStopped, Detail: req.Detail},
		},
	)
	if receipt.Survivors == nil {
		receipt.Survivors = []task.Survivor{}
	}
	for _, line := range receipt.Stopped {
		if slices.ContainsFunc(receipt.Survivors, func(left task.Survivor) bool { return left.Task == line.ID }) {
			continue // it ended just now, and was tried
		}
		if r, ok := s.sup.Get(line.ID); ok {
			archive.EndSurvivors(ctx, r, req.Grace, &receipt)
		}
	}
	return receipt, err
}

// Promote moves a foreground task to the background.
func (s *Session) Promote(ctx context.Context, ref string) (task.Record, error) {
	r, err := s.tree.Find(ref)
	if err != nil {
		return r, refusal(err)
	}
	if s.cfg.Info.Role == RoleRun && r.Parent == "" {
		return r, &control.Error{
			Code:    control.Unavailable,
			Message: "a foreground `drover run` belongs to its terminal",
			Fix:     "start it with `drover run -d`",
		}
	}
	if s.cfg.Limits.NoBackground {
		return r, &control.Error{Code: control.Unavailable, Message: "background work is turned off"}
	}
	if p, ok := s.sup.Get(r.Parent); ok && p.Traits().Work == task.BySteps {
		return r, &control.Error{
			Code:    control.Conflict,
			Message: fmt.Sprintf("task %s is a step of workflow %s, which waits for it", r.ID, p.ID),
		}
	}
	r, err = s.sup.Promote(ctx, r.ID)
	if err != nil {
		return r, refusal(err)
	}
	return r, nil
}

// Output reads the output of a task.
func (s *Session) Output(ctx context.Context, req control.OutputRequest) (control.Chunk, error) {
	r, err := s.tree.Find(req.Ref)
	if err != nil {
		return control.Chunk{}, refusal(err)
	}
	now := func() task.Record { got, _ := s.sup.Get(r.ID); return got }
	if req.Wait > 0 {
		wait, cancel := context.WithTimeoutCause(ctx, req.Wait, supervise.ErrTimeout)
		defer cancel()
		if err := s.awaitOutput(wait, r, req.Offset); err != nil && !errors.Is(err, supervise.ErrTimeout) {
			return control.Chunk{}, err
		}
	}
	return archive.Output(now(), req)
}

// awaitOutput waits until there is something to read, or nothing can come.
func (s *Session) awaitOutput(ctx context.Context, r task.Record, offset int64) error {
	for {
		grown := s.log.Grown()
		got := s.tree.Latest(r.ID)
		err := spool.Follow(
			ctx,
			r.OutputFile,
			offset,
			func() bool { now, _ := s.sup.Get(r.ID); return now.Status.Terminal() },
		)
		switch {
		case !errors.Is(err, fs.ErrNotExist):
			return err
		case got.Status.Terminal(): // it has never begun
			return nil
		}
		select { // it has not begun yet
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Result is a part of the final answer of a task that has ended.
func (s *Session) Result(ctx context.Context, req control.ResultRequest) (control.Answer, error) {
	r, err := s.tree.Find(req.Ref)
	if err != nil {
		return control.Answer{}, refusal(err)
	}
	return archive.Answer(ctx, s.log, r, req)
}

// Answer is the final answer of the run of a record, or the ends of a very long one. A
// reader of events has the end of a run before the registry shows it, so the record is
// the caller's.
func (s *Session) Answer(ctx context.Context, r task.Record) (string, error) {
	return s.log.AnswerExcerpt(ctx, r.Run)
}

// Events yields events after a number and waits for more.
func (s *Session) Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error] {
	return s.log.Events(ctx, after)
}

// Prompt gives the main agent something to do.
func (s *Session) Prompt(ctx context.Context, req control.PromptRequest) error {
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	if m == nil {
		return &control.Error{
			Code:    control.Unavailable,
			Message: "this session has no main agent",
			Fix:     "start one with `drover -p`",
		}
	}
	return m.Submit(ctx, req.Text)
}

// refusal makes an error of the engine one that users are told of.
func refusal(err error) *control.Error {
	var limit *supervise.LimitError
	var several *supervise.AmbiguousError
	var kind *subagent.UnknownTypeError
	var spent *usage.BudgetError
	var deaf *mcptask.SteerError
	var mute *shell.SteerError
	switch {
	case errors.Is(err, supervise.ErrUnknown):
		e := control.NotFoundError("")
		e.Message = err.Error()
		return e
	case errors.As(err, &several):
		e := &control.Error{Code: control.Ambiguous, Message: err.Error(), Fix: "give more of the ID"}
		for _, r := range several.Matches {
			e.Matches = append(e.Matches, string(r.ID))
		}
		return e
	case errors.As(err, &limit),
		errors.As(err, &spent),
		errors.Is(err, supervise.ErrClosing),
		errors.Is(err, supervise.ErrFrozen):
		return &control.Error{Code: control.Unavailable, Message: err.Error()}
	case errors.As(err, &kind):
		return &control.Error{Code: control.Invalid, Message: err.Error()}
	case errors.As(err, &deaf), errors.As(err, &mute):
		return &control.Error{Code: control.Conflict, Message: err.Error()}
	}
	return control.AsError(err)
}

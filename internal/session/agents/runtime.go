package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/internal/tool/shelltool"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// interruptGrace is how long an interrupted foreground call may take to end, since a person
// waits for it.
const interruptGrace = time.Second

// Runtime executes the requests of the tools of one agent.
type Runtime struct {
	s *Set
	Caller
	// learned is called for a task that the agent knows from the result of its call; nil: not needed.
	learned func(task.ID)
	writes  func(line string) []string // protected files that an allowed command writes; nil: none
	reach   sandboxes.Reach            // of its commands; nil: only the hosts of the settings
}

// Runtime returns the runtime of a caller.
func (s *Set) Runtime(me Caller) *Runtime { return &Runtime{s: s, Caller: me} }

// know records that the model learns of a background task from the result of the call, and
// needs no reminder of it.
func (rt *Runtime) know(id task.ID) {
	if rt.learned != nil {
		rt.learned(id)
	}
}

var (
	_ shelltool.Shells = (*Runtime)(nil)
	_ tasktools.Tasks  = (*Runtime)(nil)
)

// spec returns the spec of a task of the agent with its place in the tree and its owner.
func (rt *Runtime) spec(toolUse string, background bool) task.Spec {
	spec := task.Spec{Owner: rt.ID, ToolUseID: toolUse, Backgrounded: background, Cwd: rt.Cwd}
	if _, isTask := rt.s.Tasks.Get(rt.ID); isTask {
		spec.Parent = rt.ID
	}
	return spec
}

// Run runs a command of the Bash tool.
func (rt *Runtime) Run(ctx context.Context, c shelltool.Command) (shelltool.Outcome, error) {
	s := rt.s
	background := c.Background && !s.Options.Tasks.DisableBackground
	bounded, err := rt.bounded(c.Line, c.Outside || rt.workspace != nil)
	if err != nil {
		return shelltool.Outcome{}, &toolkit.Refusal{Text: err.Error()}
	}
	spec := rt.spec(c.ToolUseID, background)
	spec.Command, spec.Description, spec.Cwd = c.Line, c.Description, c.Cwd
	if spec.Description == "" {
		spec.Description = excerpt.Line(c.Line, 80)
	}
	spec.Pool, spec.TTY, spec.Sandbox = tasks.ShellPool, c.TTY, bounded.Held
	var ended atomic.Value // where it has ended; a command in the background may set that at any time
	w := rt.command(c, bounded, func(cwd string) { ended.Store(cwd) })
	spec.Input = w.Input
	if rt.workspace != nil {
		spec.On, spec.Pool = rt.workspace.Worker(), WorkerPool
	}
	if background || s.Options.Tasks.DisableBackground {
		spec.Timeout = c.Timeout
	}
	rec, err := s.Tasks.Start(ctx, w.Driver, spec)
	if err != nil {
		return shelltool.Outcome{}, refused(err)
	}
	if background {
		rt.know(rec.ID)
		return shelltool.Outcome{Task: rec, Backgrounded: true, Unless: rt.unless(false)}, nil
	}
	out, err := rt.foreground(ctx, rec, c.Timeout)
	out.Refused, out.Unless = bounded.Refused(), rt.unless(false)
	if !out.Backgrounded {
		out.Cwd, _ = ended.Load().(string)
	}
	return out, err
}

// bounded returns how a command of the agent starts. A command that may run outside is not bounded.
func (rt *Runtime) bounded(line string, outside bool) (sandboxes.Start, error) {
	if outside {
		return sandboxes.Start{}, nil
	}
	var opens []string
	if rt.writes != nil && rt.s.sandboxes.On(rt.sandbox) {
		opens = rt.writes(line)
	}
	return rt.s.sandboxes.Command(sandboxes.Wish{
		Folders: rt.folders(), Line: line, Mode: rt.sandbox, Opens: opens, Reach: rt.reach,
	})
}

// foreground waits for a command: to its end, to its move to the background by a client, or for
// the time that the model has set; then it moves the command to the background.
func (rt *Runtime) foreground(ctx context.Context, rec task.Record, patience time.Duration) (shelltool.Outcome, error) {
	s := rt.s
	wait, cancel := ctx, context.CancelFunc(func() {})
	if patience > 0 && !s.Options.Tasks.DisableBackground {
		wait, cancel = context.WithTimeoutCause(ctx, patience, supervise.ErrTimeout)
	}
	defer cancel()
	got, err := s.Tasks.Await(wait, rec.ID)
	out := shelltool.Outcome{Task: got}
	switch {
	case err == nil:
		out.Backgrounded = got.Backgrounded
		out.ByUser = out.Backgrounded
	case errors.Is(err, supervise.ErrTimeout) && ctx.Err() == nil:
		out.TimedOut = true
		if got, err = s.Tasks.Promote(ctx, rec.ID); err == nil {
			out.Backgrounded = true
			rt.know(rec.ID)
		}
		var ended *task.MoveError
		if err != nil && !errors.As(err, &ended) {
			return out, err
		}
		out.Task = got
	default:
		if err := rt.interrupt(ctx, rec.ID); err != nil {
			return out, err
		}
		return out, context.Cause(ctx)
	}
	if out.Task.Cause != nil && out.Task.Cause.Reason == task.ReasonTimeout {
		out.TimedOut = true
	}
	out.Output, _, err = spool.Excerpt(rec.OutputFile, s.Options.Tasks.OutputLength+1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, fmt.Errorf("read output of %s: %w", rec.ID, err)
	}
	return out, nil
}

// await waits until a task has ended or is moved to the background, and stops the task if the
// turn ends earlier.
func (rt *Runtime) await(ctx context.Context, id task.ID) (task.Record, error) {
	await := rt.s.Tasks.Await
	if rt.Host != nil {
		await = rt.Host.Await
	}
	r, err := await(ctx, id)
	if err != nil {
		return r, cmp.Or(rt.interrupt(ctx, id), context.Cause(ctx))
	}
	return r, nil
}

// interrupt stops the task for which a foreground call waits when its turn ends early.
func (rt *Runtime) interrupt(ctx context.Context, id task.ID) error {
	cause := task.Cause{
		Actor:  task.ByUser,
		Reason: task.ReasonStopped,
		Detail: "the turn that waited for it was interrupted",
	}
	var stop *task.StopError
	if errors.As(context.Cause(ctx), &stop) {
		cause = stop.Cause
	}
	grace := interruptGrace
	req := supervise.StopRequest{Cause: cause, Grace: &grace}
	_, err := rt.s.Tasks.Stop(context.WithoutCancel(ctx), []task.ID{id}, req)
	return err
}

// barred reports whether a start was refused by a limit, or because nothing starts now.
func barred(err error) bool {
	var limit *supervise.LimitError
	return errors.As(err, &limit) || errors.Is(err, supervise.ErrFrozen) || errors.Is(err, supervise.ErrClosing)
}

// refused makes a refusal for the model of an error that it can correct or wait for.
func refused(err error) error {
	var shown *control.Error
	var move *task.MoveError
	if barred(err) || errors.As(err, &shown) || errors.As(err, &move) {
		return &toolkit.Refusal{Text: err.Error()}
	}
	return err
}

// Agent starts a subagent.
func (rt *Runtime) Agent(ctx context.Context, r tasktools.AgentRequest) (tasktools.AgentOutcome, error) {
	s := rt.s
	if r.Isolation == elsewhere {
		return rt.remote(ctx, r)
	}
	out := tasktools.AgentOutcome{Unless: rt.unless(false)}
	background := r.Background || rt.stays(r)
	if background && (s.Options.Tasks.DisableBackground || rt.Host != nil && !s.Options.Agents.NestedBackground) {
		if rt.stays(r) {
			return out, s.noTeam()
		}
		background = false
		out.Note = "It was run in the foreground: agents of agents do not run in the background here."
		if s.Options.Tasks.DisableBackground {
			out.Note = "It was run in the foreground: background work is turned off."
		}
	}
	spec := rt.spec(r.ToolUseID, background)
	spec.Name, spec.Description = r.Name, r.Description
	if r.Team != "" {
		spec.Team = &task.Team{Name: r.Name, Team: r.Team}
	}
	in := subagent.Input{
		Type:           r.Type,
		Prompt:         r.Prompt,
		Model:          r.Model,
		MaxTurns:       r.MaxTurns,
		PermissionMode: r.PermissionMode,
		Isolation:      r.Isolation,
		On:             r.On,
	}
	rec, notes, err := rt.startOrResume(ctx, in, spec, r.Resume)
	if err != nil {
		return out, agentRefusal(err)
	}
	out.Task = rec
	if out.Backgrounded = background; background && rec.Progress != nil {
		notes = append(notes, rec.Progress.Message)
	}
	out.Note = strings.Join(
		slices.DeleteFunc(append([]string{out.Note}, notes...), func(n string) bool { return n == "" }), "\n",
	)
	if background {
		rt.know(rec.ID)
		return out, nil
	}
	if out.Task, err = rt.await(ctx, rec.ID); err != nil {
		return out, err
	}
	if out.Backgrounded = out.Task.Backgrounded; out.Backgrounded {
		return out, nil
	}
	said := append([]string{out.Note, environment.Left(out.Task.Worktree)}, mailbox.Left(out.Task)...)
	out.Note = strings.Join(said, "\n")
	out.Note = strings.TrimLeft(out.Note, "\n")
	for _, t := range out.Task.LeftTasks {
		rt.know(t.ID)
	}
	out.Text, err = s.Log.AnswerExcerpt(ctx, out.Task.Run)
	return out, err
}

// peopleOnly refuses a type of agent that no model may start.
func (rt *Runtime) peopleOnly(agentType string) error {
	if def, err := rt.s.cfg.Catalog().Find(agentType); err == nil && def.NoModel {
		return &toolkit.Refusal{Text: fmt.Sprintf("agents of type %s are started by people only", def.Name)}
	}
	return nil
}

func (rt *Runtime) startOrResume(
	ctx context.Context, in subagent.Input, spec task.Spec, ref string,
) (task.Record, []string, error) {
	if ref == "" {
		if err := rt.peopleOnly(in.Type); err != nil {
			return task.Record{}, nil, err
		}
		return rt.s.Launch(ctx, in, spec, rt.Caller)
	}
	old, err := rt.Find(ctx, ref)
	if err != nil {
		return old, nil, err
	}
	if !old.Kind.IsAgent() {
		return old, nil, &toolkit.Refusal{Text: fmt.Sprintf("task %s is no agent and cannot be resumed", old.ID)}
	}
	if in.Type == "" {
		in.Type = old.AgentType
	}
	if in.Model == "" {
		in.Model = old.Model
	}
	return rt.s.Relaunch(ctx, old.ID, in, spec, rt.Caller)
}

func agentRefusal(err error) error {
	var kind *subagent.UnknownTypeError
	var move *task.MoveError
	var model *choose.UnavailableError
	var refusal *toolkit.Refusal
	switch {
	case errors.Is(err, tasktools.ErrUnknown):
		return err
	case errors.As(err, &move) && move.Verb == task.Resume:
		return toolkit.Refusef("agent %s is %s: only an agent that has ended can be resumed", move.ID, move.From)
	}
	switch err = refused(err); {
	case errors.As(err, &refusal):
		return err
	case errors.As(err, &kind), errors.As(err, &model):
		return toolkit.Refuse(err)
	}
	return &toolkit.Refusal{Text: "the agent could not be started: " + err.Error()}
}

// Find returns a task that the agent may see: a subagent sees its own subtree.
func (rt *Runtime) Find(_ context.Context, ref string) (task.Record, error) {
	r, err := rt.s.FindNear(ref, rt.name())
	var several *supervise.AmbiguousError
	if errors.As(err, &several) {
		return r, &toolkit.Refusal{Text: err.Error() + ": give the whole ID"}
	}
	if err != nil || rt.Host != nil && (r.ID == rt.ID || !rt.s.Below(r, rt.ID)) {
		return task.Record{}, tasktools.ErrUnknown
	}
	return r, nil
}

// Wait waits until a task has ended, or is idle.
func (rt *Runtime) Wait(ctx context.Context, ref string, timeout time.Duration) (task.Record, bool, error) {
	r, err := rt.Find(ctx, ref)
	if err != nil || timeout <= 0 {
		return r, err == nil && !r.Status.Terminal(), err
	}
	wait, cancel := context.WithTimeoutCause(ctx, timeout, supervise.ErrTimeout)
	defer cancel()
	for {
		committed := rt.s.Log.NextCommit()
		select {
		case <-rt.s.Tasks.Done(r.ID):
			r, _ = rt.s.Tasks.Get(r.ID)
			return r, false, nil
		default:
		}
		if r = rt.s.Latest(r.ID); r.Resting() { // it may rest for long
			return r, false, nil
		}
		select {
		case <-rt.s.Tasks.Done(r.ID):
		case <-committed:
		case <-wait.Done():
			if ctx.Err() != nil {
				return r, false, context.Cause(ctx)
			}
			return r, true, nil
		}
	}
}

// Text returns the answer of an agent that has ended, else the end of the output.
func (rt *Runtime) Text(ctx context.Context, r task.Record) (string, error) {
	if r.Traits().Report && r.Status.Terminal() {
		if text, err := rt.s.Log.AnswerExcerpt(ctx, r.Run); err != nil || text != "" {
			return text, err
		}
	}
	text, _, err := spool.Excerpt(r.OutputFile, rt.s.Options.Tasks.OutputLength+1)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // it has not begun
	}
	return text, err
}

// Stop ends a task for the model, which then gets no notification.
func (rt *Runtime) Stop(ctx context.Context, ref string) (task.Record, task.Receipt, error) {
	r, err := rt.Find(ctx, ref)
	if err != nil {
		return r, task.Receipt{}, err
	}
	actor := task.ByModel
	if r.Owner != rt.ID { // its owner is another agent, which gets the notification
		actor = task.ByParent
	}
	rt.s.dismiss(ctx, r, rt.name())
	receipt, err := rt.s.Tasks.Stop(ctx, []task.ID{r.ID},
		supervise.StopRequest{Cause: task.Cause{Actor: actor, Reason: task.ReasonStopped}})
	r, _ = rt.s.Tasks.Get(r.ID)
	return r, receipt, err
}

// List returns the tasks that the agent may see: a subagent sees its own subtree, and none sees
// the task of its own session.
func (rt *Runtime) List(context.Context) ([]task.Record, error) {
	var out []task.Record
	for _, r := range rt.s.Tasks.List(0) {
		if r.ID == rt.ID || rt.Host != nil && !rt.s.Below(r, rt.ID) {
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

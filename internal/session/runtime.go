package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/session/budget"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/tool/shelltool"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// interruptGrace is how long a foreground call may take to go when its turn is
// broken off: a person waits for that.
const interruptGrace = time.Second

// tailLines is how much of a failed command's output goes with its notice.
const (
	tailLines = 20
	tailBytes = 2 << 10
)

// runtime lets the tools of one agent do what they are for.
type runtime struct {
	caller
	learned func(task.ID) // the agent knows of a task, by the result of its call; nil: nobody listens
}

// know says that the model learns of a background task from the result of the
// call, and needs no reminder of it.
func (rt *runtime) know(id task.ID) {
	if rt.learned != nil {
		rt.learned(id)
	}
}

var (
	_ shelltool.Shells = (*runtime)(nil)
	_ tasktools.Tasks  = (*runtime)(nil)
)

// spec is what is common to all that the agent starts: its place in the tree,
// and who is told.
func (rt *runtime) spec(toolUse string, background bool) task.Spec {
	spec := task.Spec{Owner: rt.id, ToolUseID: toolUse, Backgrounded: background, Cwd: rt.cwd}
	if _, isTask := rt.s.sup.Get(rt.id); isTask {
		spec.Parent = rt.id
	}
	return spec
}

// Run runs a command of the Bash tool.
func (rt *runtime) Run(ctx context.Context, c shelltool.Command) (shelltool.Outcome, error) {
	s := rt.s
	background := c.Background && !s.cfg.Limits.NoBackground
	w := s.kinds.Command(shell.Client{Env: shell.ChildEnv(rt.env)}, shell.Command{Args: c.Args, Cwd: c.Cwd, TTY: c.TTY})
	spec := rt.spec(c.ToolUseID, background)
	spec.Command, spec.Description, spec.Cwd = c.Line, c.Description, c.Cwd
	if spec.Description == "" {
		spec.Description = firstLine(c.Line, 80)
	}
	spec.Input, spec.Pool, spec.TTY = w.Input, shellPool, c.TTY
	if background || s.cfg.Limits.NoBackground {
		spec.Timeout = c.Timeout
	}
	rec, err := s.sup.Start(ctx, w.Driver, spec)
	if err != nil {
		return shelltool.Outcome{}, shellRefusal(err)
	}
	if background {
		rt.know(rec.ID)
		return shelltool.Outcome{Task: rec, Backgrounded: true}, nil
	}
	return rt.foreground(ctx, rec, c.Timeout)
}

// foreground waits for a command: to its end, to its move to the background by
// somebody, or for as long as the model wanted to wait; then it is moved there.
func (rt *runtime) foreground(ctx context.Context, rec task.Record, patience time.Duration) (shelltool.Outcome, error) {
	s := rt.s
	wait, cancel := ctx, context.CancelFunc(func() {})
	if patience > 0 && !s.cfg.Limits.NoBackground {
		wait, cancel = context.WithTimeoutCause(ctx, patience, supervise.ErrTimeout)
	}
	defer cancel()
	got, err := s.sup.Await(wait, rec.ID)
	out := shelltool.Outcome{Task: got}
	switch {
	case err == nil:
		out.Backgrounded = got.Backgrounded
		out.ByUser = out.Backgrounded
	case errors.Is(err, supervise.ErrTimeout) && ctx.Err() == nil:
		out.TimedOut = true
		if got, err = s.sup.Promote(ctx, rec.ID); err == nil {
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
	out.Output, _, err = spool.Excerpt(rec.OutputFile, s.cfg.Limits.OutputChars+1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, fmt.Errorf("read output of %s: %w", rec.ID, err)
	}
	return out, nil
}

// interrupt stops what a foreground call waited for when its turn ends early.
func (rt *runtime) interrupt(ctx context.Context, id task.ID) error {
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
	_, err := rt.s.sup.Stop(context.WithoutCancel(ctx), []task.ID{id}, supervise.StopRequest{Cause: cause, Grace: &grace})
	return err
}

func shellRefusal(err error) error {
	var limit *supervise.LimitError
	if errors.As(err, &limit) || errors.Is(err, supervise.ErrFrozen) || errors.Is(err, supervise.ErrClosing) {
		return &toolkit.Refusal{Text: err.Error()}
	}
	return err
}

// Agent starts a subagent.
func (rt *runtime) Agent(ctx context.Context, r tasktools.AgentRequest) (tasktools.AgentOutcome, error) {
	s := rt.s
	if r.Isolation == elsewhere {
		return rt.remote(ctx, r)
	}
	out := tasktools.AgentOutcome{}
	background := r.Background || rt.stays(r)
	if background && (s.cfg.Limits.NoBackground || rt.host != nil && !s.cfg.Limits.NestedBackground) {
		if rt.stays(r) {
			return out, s.noTeam()
		}
		background = false
		out.Note = "It was run in the foreground: agents of agents do not run in the background here."
		if s.cfg.Limits.NoBackground {
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
		slices.DeleteFunc(append([]string{out.Note}, notes...), func(n string) bool { return n == "" }),
		"\n",
	)
	if background {
		rt.know(rec.ID)
		return out, nil
	}
	await := s.sup.Await
	if rt.host != nil {
		await = rt.host.Await
	}
	if out.Task, err = await(ctx, rec.ID); err != nil {
		if stop := rt.interrupt(ctx, rec.ID); stop != nil {
			return out, stop
		}
		return out, context.Cause(ctx)
	}
	if out.Backgrounded = out.Task.Backgrounded; out.Backgrounded {
		return out, nil
	}
	out.Note = strings.TrimPrefix(out.Note+"\n"+environment.Left(out.Task.Worktree), "\n")
	out.Text, err = s.log.AnswerExcerpt(ctx, out.Task.Run)
	return out, err
}

// peopleOnly refuses a type of agents that no model may start.
func (rt *runtime) peopleOnly(agentType string) error {
	if def, err := rt.catalog().Find(agentType); err == nil && def.NoModel {
		return &toolkit.Refusal{Text: fmt.Sprintf("agents of type %s are started by people only", def.Name)}
	}
	return nil
}

func (rt *runtime) startOrResume(
	ctx context.Context,
	in subagent.Input,
	spec task.Spec,
	ref string,
) (task.Record, []string, error) {
	if ref == "" {
		if err := rt.peopleOnly(in.Type); err != nil {
			return task.Record{}, nil, err
		}
		return rt.s.launch(ctx, in, spec, rt.caller)
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
	return rt.s.relaunch(ctx, old.ID, in, spec, rt.caller)
}

// relaunch gives an ended agent a new run that goes on from its transcript.
func (s *Session) relaunch(
	ctx context.Context,
	id task.ID,
	in subagent.Input,
	spec task.Spec,
	me caller,
) (_ task.Record, notes []string, err error) {
	old, _ := s.sup.Get(id)
	if above := s.tree.Isolated(old.Parent); above != me.inside {
		return old, nil, &control.Error{
			Code:    control.Conflict,
			Message: fmt.Sprintf("agent %s worked in the worktree of agent %s", id, cmp.Or(above, "another")),
			Fix:     "resume that one, and let it go on with this",
		}
	}
	if environment.Isolated(old) {
		in.Isolation = environment.InWorktree
	}
	child, err := s.child(in, me)
	if err != nil {
		return task.Record{}, nil, err
	}
	child.rules.Mode = environment.Narrower(child.rules.Mode, permission.Mode(old.Mode)) // as its first run, whoever asks
	child.join(old.Team, me)
	child.again = true
	in.Type, in.Model, in.MaxTurns, in.Isolation = child.def.Name, child.model, child.maxTurns, child.isolation
	w := s.work(child, in)
	spec.Input, spec.Pool, spec.Prompt = w.Input, agentPool, in.Prompt
	held := budget.Reservation{}
	if child.depth = old.Depth; old.Status.Terminal() {
		if held, err = s.budgets.Reserve(&spec, child.budget(id, me)); err != nil {
			return task.Record{}, nil, err
		}
	}
	held.Give(id)
	s.say(me.id, child.notes...)
	rec, err := s.sup.Resume(ctx, id, w.Driver, spec)
	if err != nil {
		held.Release()
	}
	return rec, child.notes, err
}

func agentRefusal(err error) error {
	var limit *supervise.LimitError
	var kind *subagent.UnknownTypeError
	var move *task.MoveError
	var shown *control.Error
	var model *choose.UnavailableError
	switch {
	case errors.Is(err, tasktools.ErrUnknown):
		return err
	case errors.As(err, &move) && move.Verb == task.Resume:
		return &toolkit.Refusal{
			Text: fmt.Sprintf("agent %s is %s: only an agent that has ended can be resumed", move.ID, move.From),
		}
	case errors.As(err, &limit),
		errors.As(err, &kind),
		errors.As(err, &move),
		errors.As(err, &shown),
		errors.As(err, &model),
		errors.Is(err, supervise.ErrFrozen),
		errors.Is(err, supervise.ErrClosing):
		return &toolkit.Refusal{Text: err.Error()}
	}
	var refusal *toolkit.Refusal
	if errors.As(err, &refusal) {
		return err
	}
	return &toolkit.Refusal{Text: "the agent could not be started: " + err.Error()}
}

// Find returns a task that the agent may see: a subagent sees its own subtree.
func (rt *runtime) Find(_ context.Context, ref string) (task.Record, error) {
	r, err := rt.s.tree.FindNear(ref, rt.name())
	var several *supervise.AmbiguousError
	if errors.As(err, &several) {
		return r, &toolkit.Refusal{Text: err.Error() + ": give the whole ID"}
	}
	if err != nil || rt.host != nil && (r.ID == rt.id || !rt.s.tree.Below(r, rt.id)) {
		return task.Record{}, tasktools.ErrUnknown
	}
	return r, nil
}

// Wait waits until a task has ended, or rests.
func (rt *runtime) Wait(ctx context.Context, ref string, timeout time.Duration) (task.Record, bool, error) {
	r, err := rt.Find(ctx, ref)
	if err != nil || timeout <= 0 {
		return r, err == nil && !r.Status.Terminal(), err
	}
	wait, cancel := context.WithTimeoutCause(ctx, timeout, supervise.ErrTimeout)
	defer cancel()
	for {
		grown := rt.s.log.Grown()
		select {
		case <-rt.s.sup.Done(r.ID):
			r, _ = rt.s.sup.Get(r.ID)
			return r, false, nil
		default:
		}
		if r = rt.s.tree.Latest(r.ID); r.Idle { // it would not end by itself for long
			return r, false, nil
		}
		select {
		case <-rt.s.sup.Done(r.ID):
		case <-grown:
		case <-wait.Done():
			if ctx.Err() != nil {
				return r, false, context.Cause(ctx)
			}
			return r, true, nil
		}
	}
}

// Text is the answer of an agent that has ended, else the end of the output.
func (rt *runtime) Text(ctx context.Context, r task.Record) (string, error) {
	if r.Traits().Report && r.Status.Terminal() {
		if text, err := rt.s.log.AnswerExcerpt(ctx, r.Run); err != nil || text != "" {
			return text, err
		}
	}
	text, _, err := spool.Excerpt(r.OutputFile, rt.s.cfg.Limits.OutputChars+1)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // it has not begun
	}
	return text, err
}

// Stop ends a task for the model, which needs no notice then.
func (rt *runtime) Stop(ctx context.Context, ref string) (task.Record, task.Receipt, error) {
	r, err := rt.Find(ctx, ref)
	if err != nil {
		return r, task.Receipt{}, err
	}
	actor := task.ByModel
	if r.Owner != rt.id { // its owner is another agent, and has to be told
		actor = task.ByParent
	}
	rt.s.dismiss(ctx, r, rt.name())
	receipt, err := rt.s.sup.Stop(
		ctx,
		[]task.ID{r.ID},
		supervise.StopRequest{Cause: task.Cause{Actor: actor, Reason: task.ReasonStopped}},
	)
	r, _ = rt.s.sup.Get(r.ID)
	return r, receipt, err
}

// tail is the end of a command's output, as it goes with a notice.
func tail(r task.Record) string {
	data, _, err := spool.Tail(r.OutputFile, tailLines, tailBytes)
	if err != nil {
		return ""
	}
	return string(data)
}

// firstLine is the beginning of a text, for listings.
func firstLine(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

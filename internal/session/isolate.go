package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/agentenv/worktree"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// inWorktree is the isolation that there is.
const inWorktree = "worktree"

// isolatedMark is the state of an isolated agent from before it gets its
// checkout: a further run after a crash must not take place in the user's folder.
const isolatedMark = `{"v":1,"isolation":"worktree"}`

// undoTime is how long it may take to give up a checkout that nobody has used.
const undoTime = time.Minute

// isolation is that of an agent: what is asked for, else what its definition says.
func (s *Session) isolation(in subagent.Input, def subagent.Definition) (string, error) {
	wanted := cmp.Or(in.Isolation, def.Isolation)
	switch {
	case wanted == "":
		return "", nil
	case wanted != inWorktree:
		return "", &control.Error{Code: control.Invalid, Message: fmt.Sprintf("isolation %.40q is not known", wanted), Mend: "use worktree, or leave it out"}
	case s.cfg.Agents.Worktrees == nil:
		return "", &control.Error{Code: control.Unavailable, Message: "this session has no place for worktrees, so no agent can be isolated", Mend: "leave the isolation out"}
	}
	return wanted, nil
}

// checkout is the place of an isolated agent.
type checkout struct {
	s    *Session
	tree *worktree.Tree
	text string // that its agent is told
}

// isolate gives the agent a checkout, and makes of me one who works there. The
// caller leaves it.
func (c *child) isolate(ctx context.Context, me *self, h task.Host) (*checkout, error) {
	rec := h.Record()
	if err := h.Checkpoint(ctx, []byte(isolatedMark)); err != nil {
		return nil, err
	}
	t, fresh, err := c.tree(ctx, rec)
	if err != nil {
		return nil, err
	}
	from, top := me.cwd, t.Repo
	dirs := []string{t.Path}
	for _, dir := range me.rules.Dirs {
		if there, ok := t.Map(dir); ok {
			dir = there
		}
		dirs = append(dirs, dir)
	}
	me.inside, me.cwd, me.env = rec.ID, t.Dir, worktree.Environ(me.env)
	me.rules.Dirs, me.rules.Base = dirs, cmp.Or(me.rules.Base, from)
	me.rules.Copies = append(slices.Clone(me.rules.Copies), permission.Copy{Of: top, At: t.Path}, permission.Copy{Of: from, At: t.Dir})
	c.s.edits.AddCheckout(t)
	o := &checkout{s: c.s, tree: t, text: fmt.Sprintf("You work in a git worktree of your own: %s, on the branch %s. Other agents do not see what you change there.", t.Path, t.Branch)}
	switch n := t.Uncommitted; {
	case !fresh || n == 0:
	case n < 0:
		o.text += fmt.Sprintf(" Changes of %s that are not committed are not in it.", top)
	case n == 1:
		o.text += fmt.Sprintf(" 1 uncommitted change of %s is not in it.", top)
	default:
		o.text += fmt.Sprintf(" %d uncommitted changes of %s are not in it.", n, top)
	}
	return o, nil
}

// origin is the folder that relative names in the settings are about: of an
// isolated agent not its own.
func (me self) origin() string { return cmp.Or(me.rules.Base, me.cwd) }

// tree is the checkout of the agent: for a further run the one that it had, if
// that was not removed because nothing was in it.
func (c *child) tree(ctx context.Context, rec task.Record) (t *worktree.Tree, fresh bool, err error) {
	store := c.s.cfg.Agents.Worktrees
	if c.again {
		select {
		case <-c.s.swept: // it holds for a moment what it looks at
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
		t, err := store.Resume(rec.ID)
		switch w := rec.Worktree; {
		case err == nil:
			return t, false, nil
		case errors.Is(err, worktree.ErrBusy):
			return nil, false, fmt.Errorf("%w (wait until nobody works in it any more)", err)
		case !errors.Is(err, worktree.ErrGone):
			return nil, false, err
		case w != nil && !w.Removed:
			return nil, false, fmt.Errorf("%w, so the agent cannot go on with its work (start a new one)", err)
		}
	}
	t, err = store.Create(ctx, worktree.Request{Folder: c.cwd, Task: rec.ID, Session: rec.Session, Name: rec.Name})
	return t, true, err
}

// leave gives the checkout up when nothing runs in it any more.
func (o *checkout) leave(ctx context.Context) *task.Worktree {
	o.s.edits.DropCheckout(o.tree)
	got, err := o.s.cfg.Agents.Worktrees.Finish(ctx, o.tree)
	w := &task.Worktree{Path: got.Path, Branch: got.Branch, Rescue: got.Rescue, Text: got.Text, Removed: got.Removed}
	if err != nil && w.Text == "" {
		w.Path, w.Branch, w.Text = o.tree.Path, o.tree.Branch, err.Error()
	}
	if left(w) != "" {
		o.s.say(o.tree.Task, w.Text)
	}
	return w
}

// undo is leave for an agent that has not begun.
func (o *checkout) undo(ctx context.Context) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer done()
	o.leave(ctx)
}

// left is what there is to say of a checkout: nothing, if nothing is left.
func left(w *task.Worktree) string {
	if w == nil || w.Removed && w.Branch == "" && w.Rescue == "" {
		return ""
	}
	return w.Text
}

// home is the nearest agent above a task, or itself, that has a checkout of its
// own; empty: it works where the session does.
func (s *Session) home(id task.ID) task.ID {
	for id != "" {
		r, ok := s.sup.Get(id)
		if !ok {
			return ""
		}
		if s.isolated(r) {
			return id
		}
		id = r.Parent
	}
	return ""
}

// isolated reports whether an agent has a checkout of its own.
func (s *Session) isolated(r task.Record) bool {
	return r.Kind.IsAgent() && (r.Worktree != nil || string(r.Checkpoint) == isolatedMark)
}

// sweepTrees finishes what crashes have left of worktrees.
func (s *Session) sweepTrees(ctx context.Context) {
	defer close(s.swept)
	if s.cfg.Agents.Worktrees == nil {
		return
	}
	_, err := s.cfg.Agents.Worktrees.Sweep(ctx, func(id task.ID) bool {
		r, ok := s.sup.Get(id)
		return ok && !r.Status.Terminal()
	})
	if err != nil && ctx.Err() == nil {
		s.say(s.cfg.Info.Session, err.Error())
	}
}

// within makes an absolute path without links of one that a file tool was given.
func (me self) within(path string) (string, bool) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(me.cwd, path)
	}
	real, err := filepath.EvalSymlinks(path)
	return real, err == nil
}

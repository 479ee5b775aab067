package environment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/task"
)

// InWorktree is the only kind of isolation.
const InWorktree = "worktree"

// undoTime limits the removal of an unused checkout.
const undoTime = time.Minute

// Checkouts are the worktrees of the isolated agents of a session.
type Checkouts struct {
	store  *worktree.Store // nil: no checkout is made
	seam   Seam
	edits  *Edits
	report func(about task.ID, text string)

	stop     context.CancelFunc
	sweeping sync.WaitGroup // joined by Close
	swept    chan struct{}  // closed when leftovers of crashes were processed
}

// NewCheckouts returns the checkouts of a session. report tells the user about a task. Without a store
// no agent is isolated.
func NewCheckouts(store *worktree.Store, seam Seam, edits *Edits, report func(about task.ID, text string)) *Checkouts {
	return &Checkouts{store: store, seam: seam, edits: edits, report: report, stop: func() {}, swept: make(chan struct{})}
}

// Start processes checkouts that crashes have left, except the checkouts of live tasks, until ctx
// ends or Close. Errors are reported for session.
func (c *Checkouts) Start(ctx context.Context, session task.ID, live func(task.ID) bool) {
	ctx, c.stop = context.WithCancel(ctx)
	c.sweeping.Go(func() {
		defer close(c.swept)
		if c.store == nil {
			return
		}
		if _, err := c.store.Sweep(ctx, live); err != nil && ctx.Err() == nil {
			c.report(session, err.Error())
		}
	})
}

// Swept is closed when the leftovers of crashes were processed.
func (c *Checkouts) Swept() <-chan struct{} { return c.swept }

// Close ends what Start began.
func (c *Checkouts) Close() {
	c.stop()
	c.sweeping.Wait()
}

// Isolation returns the isolation of an agent: as requested, else by its definition.
func (c *Checkouts) Isolation(asked, defined string) (string, error) {
	wanted := cmp.Or(asked, defined)
	switch {
	case wanted == "":
		return "", nil
	case wanted != InWorktree:
		return "", control.Refuse(control.Invalid, fmt.Sprintf("isolation %.40q is not known", wanted),
			"use worktree, or leave it out")
	case c.store == nil:
		return "", control.Refuse(control.Unavailable,
			"this session has no place for worktrees, so no agent can be isolated", "leave the isolation out")
	}
	return wanted, nil
}

// Checkout is the place of an isolated agent.
type Checkout struct {
	c    *Checkouts
	tree *worktree.Tree
	Text string // text for its agent
}

// Open creates a checkout for an agent, whose folder would be cwd. again: it has had a run. The
// caller calls Leave.
func (c *Checkouts) Open(ctx context.Context, h task.Host, cwd string, again bool) (*Checkout, error) {
	if err := h.Checkpoint(ctx, []byte(tree.IsolatedMark)); err != nil {
		return nil, err
	}
	t, fresh := (*worktree.Tree)(nil), false
	said, err := c.seam.Texts(ctx, h.Record().ID, WorktreeTexts, func() (_ []string, err error) {
		if t, fresh, err = c.tree(ctx, h.Record(), cwd, again); err != nil {
			return nil, err
		}
		return encoded(place{Path: t.Path, Dir: t.Dir, Branch: t.Branch, Repo: t.Repo, Common: t.Common})
	})
	if err == nil && t == nil {
		var p place
		err = decode(said, &p)
		t = &worktree.Tree{Task: h.Record().ID, Path: p.Path, Dir: p.Dir, Branch: p.Branch, Repo: p.Repo, Common: p.Common}
	}
	if err != nil {
		return nil, err
	}
	c.edits.AddCheckout(t)
	o := &Checkout{
		c:    c,
		tree: t,
		Text: fmt.Sprintf(
			"You work in a git worktree of your own: %s, on the branch %s. Other agents do not see what you change there.",
			t.Path,
			t.Branch,
		),
	}
	switch n, top := t.Uncommitted, t.Repo; {
	case !fresh || n == 0:
	case n < 0:
		o.Text += fmt.Sprintf(" Changes of %s that are not committed are not in it.", top)
	case n == 1:
		o.Text += fmt.Sprintf(" 1 uncommitted change of %s is not in it.", top)
	default:
		o.Text += fmt.Sprintf(" %d uncommitted changes of %s are not in it.", n, top)
	}
	return o, nil
}

// place is where a checkout is, as a recording has it.
type place struct {
	Path   string `json:"path"`
	Dir    string `json:"dir"`
	Branch string `json:"branch"`
	Repo   string `json:"repo"`
	Common string `json:"common"`
}

// encoded returns a value as the only text of a [Seam].
func encoded(v any) ([]string, error) {
	raw, err := json.Marshal(v)
	return []string{string(raw)}, err
}

// decode reads what encoded has returned.
func decode(texts []string, v any) error {
	if len(texts) != 1 {
		return fmt.Errorf("read a recorded worktree: it has %d texts, want 1", len(texts))
	}
	return json.Unmarshal([]byte(texts[0]), v)
}

// Dir returns the folder in the checkout in which the agent works.
func (o *Checkout) Dir() string { return o.tree.Dir }

// Rules converts the rules of an agent whose folder would be cwd to the checkout.
func (o *Checkout) Rules(r policy.Rules, cwd string) policy.Rules {
	t := o.tree
	dirs := []string{t.Path}
	for _, dir := range r.Dirs {
		if there, ok := t.Map(dir); ok {
			dir = there
		}
		dirs = append(dirs, dir)
	}
	r.Dirs, r.Base = dirs, cmp.Or(r.Base, cwd)
	r.Copies = append(slices.Clone(r.Copies), policy.Copy{Of: t.Repo, At: t.Path}, policy.Copy{Of: cwd, At: t.Dir})
	return r
}

// merged reports whether nothing is left of a checkout that was kept: no branch and no copy.
// Its work was merged, and the checkout removed then.
func (c *Checkouts) merged(ctx context.Context, id task.ID, cwd string) bool {
	_, err := c.store.Change(ctx, id, cwd)
	return errors.Is(err, worktree.ErrGone)
}

// tree returns the checkout of the agent: for a further run the previous one, unless it was
// removed because it had no work, or all of it was merged.
func (c *Checkouts) tree(
	ctx context.Context, rec task.Record, cwd string, again bool,
) (t *worktree.Tree, fresh bool, err error) {
	if again {
		select {
		case <-c.swept: // leftovers of crashes are then gone
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
		t, err := c.store.Resume(ctx, rec.ID)
		switch w := rec.Worktree; {
		case err == nil:
			return t, false, nil
		case errors.Is(err, worktree.ErrBusy):
			return nil, false, fmt.Errorf("%w (wait until nobody works in it any more)", err)
		case !errors.Is(err, worktree.ErrGone):
			return nil, false, err
		case w != nil && !w.Removed && !c.merged(ctx, rec.ID, cwd):
			return nil, false, fmt.Errorf("%w, so the agent cannot go on with its work (start a new one)", err)
		}
	}
	t, err = c.store.Create(ctx, worktree.Request{Folder: cwd, Task: rec.ID, Session: rec.Session, Name: rec.Name})
	return t, true, err
}

// Leave releases the checkout when nothing runs in it any more.
func (o *Checkout) Leave(ctx context.Context) *task.Worktree {
	o.c.edits.DropCheckout(o.tree)
	var w *task.Worktree
	said, err := o.c.seam.Texts(ctx, o.tree.Task, LeftTexts, func() ([]string, error) {
		w = o.finish(ctx)
		return encoded(w)
	})
	if w == nil && err == nil {
		err = decode(said, &w)
	}
	if w == nil {
		w = &task.Worktree{Path: o.tree.Path, Branch: o.tree.Branch, Text: err.Error()}
	}
	if Left(w) != "" {
		o.c.report(o.tree.Task, w.Text)
	}
	return w
}

func (o *Checkout) finish(ctx context.Context) *task.Worktree {
	got, err := o.c.store.Finish(ctx, o.tree)
	w := &task.Worktree{Path: got.Path, Branch: got.Branch, Rescue: got.Rescue, Text: got.Text, Removed: got.Removed}
	if err != nil && w.Text == "" {
		w.Path, w.Branch, w.Text = o.tree.Path, o.tree.Branch, err.Error()
	}
	return w
}

// Undo is Leave for an agent that has not begun.
func (o *Checkout) Undo(ctx context.Context) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer done()
	o.Leave(ctx)
}

// Left describes the rest of a checkout; empty if nothing is left.
func Left(w *task.Worktree) string {
	if w == nil || w.Removed && w.Branch == "" && w.Rescue == "" {
		return ""
	}
	return w.Text
}

package placement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/folder"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// identify finds out how the folder travels.
func (w *work) identify(ctx context.Context) error {
	if w.want.Folder == "" || w.repo != "" || w.plain {
		return nil
	}
	repo, err := folder.Identify(ctx, w.want.Folder)
	switch {
	case errors.Is(err, gitrun.ErrNone) && !w.want.Sync && w.want.Job.Workspace != nil:
		return fmt.Errorf("%w (send its files with --sync, or leave it here with --no-folder)", err)
	case errors.Is(err, gitrun.ErrNone):
		w.plain = w.want.Sync
	case err != nil:
		return err
	case w.want.Sync:
		return fmt.Errorf("sync the folder %s: it is in a checkout of git, which travels by itself (leave --sync out)",
			w.want.Folder)
	default:
		w.repo = repo
	}
	return nil
}

// job is the job of a grant.
func (w *work) job() fleetwire.Job {
	j := w.want.Job
	j.Folder = w.repo != "" || w.plain
	return j
}

// sendFolder sends the missing parts of the folder, and its manifest.
func (w *work) sendFolder(ctx context.Context, l *link.Link) error {
	if w.repo == "" && !w.plain {
		return nil
	}
	w.say("sends the folder to worker " + w.book.Worker)
	b := w.book
	data, err := w.packed(ctx, l, &b)
	if err != nil {
		return err
	}
	msg, err := fleetwire.Encode(fleetwire.Command{Kind: fleetwire.FolderReady, Epoch: b.Epoch}, data)
	if err == nil {
		err = l.Publish(ctx, fleetwire.CommandTo(b.Worker, w.rec.Session, w.id), "", msg)
	}
	var state []byte
	if err == nil {
		b.Sending = false // not before: the next host could not tell that the worker waits
		state, err = b.encode()
	}
	if err == nil {
		err = w.h.Checkpoint(ctx, state)
	}
	if err != nil {
		return fmt.Errorf("send the folder: %w", err)
	}
	w.set(b)
	return nil
}

// packed is pack, and says meanwhile why the hub does not take the parts.
func (w *work) packed(ctx context.Context, l *link.Link, b *Book) (data []byte, err error) {
	done := make(chan struct{})
	var packing sync.WaitGroup
	packing.Go(func() {
		defer close(done)
		data, err = w.pack(ctx, l, b)
	})
	defer packing.Wait()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return data, err
		case <-tick.C:
			text := "sends the folder to worker " + w.book.Worker
			if why := l.Trouble(); why != "" {
				text += ": the hub does not take it: " + why
			}
			w.say(text)
		}
	}
}

// pack sends the parts of the folder and returns its manifest. It notes in the book what the next host needs to take
// the changes in, should this one die.
func (w *work) pack(ctx context.Context, l *link.Link, b *Book) ([]byte, error) {
	choice := folder.Choice{Have: w.has, Untracked: w.want.Untracked, Plain: w.plain}
	m, err := folder.Pack(ctx, w.want.Folder, choice, l.Parts())
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(m)
	m.Parts, m.Notes, b.Notes = nil, nil, m.Notes
	b.Sent = &m
	return data, err
}

// abandon ends a task whose folder cannot be sent.
func (w *work) abandon(ctx context.Context, l *link.Link, why error) (task.Result, error) {
	w.send(l, fleetwire.Command{Kind: fleetwire.Stop, Actor: task.ByRuntime})
	w.set(w.book.End())
	if ctx.Err() != nil {
		return task.Result{}, context.Cause(ctx)
	}
	return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: why}
}

// leave takes in the changes of the task, and never into its folder.
func (w *work) leave(l *link.Link, e fleetwire.End) func(context.Context) *task.Worktree {
	b := w.book
	if b.Sent == nil && len(e.Return) == 0 {
		return nil
	}
	return func(ctx context.Context) *task.Worktree {
		var t *task.Worktree
		err := errors.New(e.Folder)
		if b.Sent == nil {
			err = errors.New("its folder without git was sent by an earlier version of Drover")
		} else if e.Folder == "" && len(e.Return) > 0 {
			ref := fmt.Sprintf("%stasks/%s", folder.RefPrefix, w.id)
			t, err = w.f.takeIn(ctx, l, w.rec.Cwd, ref, string(w.id), *b.Sent, e.Return)
		}
		if err != nil {
			t = &task.Worktree{
				Text: fmt.Sprintf("What the task has changed at worker %s did not come back: %v", b.Worker, err),
			}
		}
		if len(b.Notes) > 0 {
			t.Text += " Of what did not travel there: " + excerpt.Line(strings.Join(b.Notes, "; "), maxNotes)
		}
		return t
	}
}

// maxNotes limits the text about what did not travel, in characters.
const maxNotes = 400

// takeIn takes the changes of a task into a ref of the repository that cwd is in, or into a folder of the session if
// cwd is without git.
func (f *Fleet) takeIn(
	ctx context.Context, l *link.Link, cwd, ref, name string, sent folder.Manifest, back []byte,
) (*task.Worktree, error) {
	r, err := folder.ReadReturn(back, folder.Limits{})
	if err != nil {
		return nil, err
	}
	if r.Result == "" {
		return &task.Worktree{Removed: true, Text: "The task has changed no file."}, nil
	}
	if sent.Plain {
		return f.intoFolder(ctx, l, cwd, name, sent, r)
	}
	got, err := folder.Receive(ctx, cwd, sent, r, ref, folder.Limits{}, l.Parts())
	if err != nil {
		return nil, err
	}
	return &task.Worktree{Rescue: got.Ref, Removed: true, Text: fmt.Sprintf(
		"The task has changed %d files (+%d -%d): see `git diff %.12s %s`, take them by `git cherry-pick %s`.",
		got.Files, got.Added, got.Removed, got.Base, got.Ref, got.Ref)}, nil
}

// intoFolder takes the changes of cwd, which is without git, into a folder of the session. That is there as a whole or
// not at all: a host that died meanwhile has left one of another name, which is begun anew.
func (f *Fleet) intoFolder(
	ctx context.Context, l *link.Link, cwd, name string, sent folder.Manifest, r folder.Return,
) (*task.Worktree, error) {
	place := f.cfg.Place
	dir, err := place.Returned(name)
	if err != nil {
		return nil, err
	}
	half := dir + ".part"
	for _, old := range []string{half, dir} {
		if err := place.Below().RemoveAll(old); err != nil {
			return nil, err
		}
	}
	got, err := folder.ReceivePlain(ctx, sent, r, folder.Limits{}, l.Parts(), half)
	if err == nil {
		err = place.Below().Rename(half, dir)
	}
	if err != nil {
		return nil, errors.Join(err, place.Below().RemoveAll(half))
	}
	return &task.Worktree{Path: dir, Text: taken(cwd, dir, got)}, nil
}

// taken says what came back of a folder without git, and how it is taken.
func taken(cwd, dir string, c folder.Change) string {
	text := fmt.Sprintf("The task has changed %d files and deleted %d.", len(c.Files), len(c.Deleted))
	if len(c.Files) > 0 {
		text += fmt.Sprintf(" Take the changed ones by `cp -a %s %s`.", quote(filepath.Join(dir, folder.FilesName)+"/."), quote(cwd))
	}
	if len(c.Deleted) > 0 {
		text += fmt.Sprintf(" Remove the deleted ones by `cd %s && xargs -0 rm -f -- <%s`.", quote(cwd),
			quote(filepath.Join(dir, folder.DeletedName)))
	}
	if len(c.Notes) > 0 {
		text += " Of what did not come back: " + excerpt.Line(strings.Join(c.Notes, "; "), maxNotes)
	}
	return text
}

// quote is a word of a shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

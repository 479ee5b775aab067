package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/internal/fleet/folder"
	"github.com/drover-dev/drover/internal/fleet/wire"
	"github.com/drover-dev/drover/internal/platform/home"
)

// Folders of workers in the state directory.
const (
	cacheName = "repositories-"
	tasksName = "tasks-" // of the tasks of one worker; locked while it lives
)

// cache keeps what the worker has of the repositories of a project.
func (w *Worker) cache() *folder.Cache {
	dir := w.cfg.Home.Workspaces()
	_ = w.mkdir(dir) // without it, the cache says why it cannot be used
	return &folder.Cache{Dir: filepath.Join(dir, cacheName+w.cfg.Project)}
}

func (w *Worker) mkdir(dir string) error {
	if err := w.cfg.Home.Below().Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// tasksDir is where the folders of this worker's tasks are.
func (w *Worker) tasksDir() string {
	return filepath.Join(w.cfg.Home.Workspaces(), fmt.Sprintf("%s%.8s", tasksName, w.instance))
}

// settle makes the folder for the folders of tasks, and removes those of workers that were killed. leave removes it.
func (w *Worker) settle(ctx context.Context) (leave func(), err error) {
	dir := w.tasksDir()
	if err := w.mkdir(filepath.Dir(dir)); err != nil {
		return nil, fmt.Errorf("make folder for tasks: %w", err)
	}
	names, err := w.cfg.Home.Below().Names(filepath.Dir(dir))
	if err != nil {
		return nil, fmt.Errorf("make folder for tasks: %w", err)
	}
	for _, n := range names {
		if !strings.HasPrefix(n, tasksName) {
			continue
		}
		old := filepath.Join(filepath.Dir(dir), n)
		if f, err := w.lock(old); err == nil { // nobody has it any more
			w.removeAll(old)
			_ = f.Close()
		}
	}
	held, err := home.Await(ctx, func() (*os.File, error) { // another one that starts may remove it before it is locked
		if err := w.mkdir(dir); err != nil {
			return nil, err
		}
		f, err := w.lock(dir)
		if errors.Is(err, fs.ErrNotExist) {
			err = home.ErrLocked
		}
		return f, err
	})
	if err != nil {
		return nil, fmt.Errorf("make folder for tasks: %w", err)
	}
	return func() {
		w.removeAll(dir)
		_ = held.Close()
	}, nil
}

// lock locks a folder that is still there.
func (w *Worker) lock(dir string) (*os.File, error) {
	f, err := w.cfg.Home.Below().Open(dir, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	if err = home.Flock(f); err == nil {
		var a, b fs.FileInfo
		if a, err = f.Stat(); err == nil {
			b, err = os.Lstat(dir)
		}
		if err == nil && !os.SameFile(a, b) {
			err = fs.ErrNotExist
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (w *Worker) removeAll(dir string) {
	if err := w.cfg.Home.Below().RemoveAll(dir); err != nil {
		w.cfg.Log.Warn("the folder of a task cannot be removed", "folder", dir, "error", err)
	}
}

// place is where a task works.
type place struct {
	w        *Worker
	dir      string // in which it starts
	top      string // of its own work tree; empty: it has none
	manifest folder.Manifest
	plain    folder.Plain // of a folder without git, instead of the manifest
}

// root is the folder that nothing of the task leaves.
func (p *place) root() string {
	if p.top != "" {
		return p.top
	}
	return p.dir
}

// unpack makes the folder of a task, once it is told what to make it of.
func (w *Worker) unpack(ctx context.Context, c *claim) (*place, error) {
	p := &place{w: w, dir: w.cfg.Dir}
	if !c.job.Folder {
		return p, nil
	}
	var data []byte
	select {
	case data = <-c.folders:
	case <-ctx.Done():
		return p, context.Cause(ctx)
	}
	var err error
	if c.job.Plain {
		p.plain, err = folder.ReadPlain(data, folder.Limits{})
	} else {
		p.manifest, err = folder.ReadManifest(data, folder.Limits{})
	}
	if err != nil {
		return p, err
	}
	if err := w.tell(
		ctx,
		c,
		wire.Event{Kind: wire.Note, Text: "worker " + w.cfg.Name + " makes the folder"},
		nil,
	); err != nil {
		return p, err
	}
	cache := w.cache()
	p.top = filepath.Join(w.tasksDir(), fmt.Sprintf("%s-%d", c.id, c.epoch))
	if c.job.Plain {
		p.dir, err = p.top, cache.UnpackPlain(ctx, p.plain, folder.Limits{}, w.cfg.Link.Parts(), p.top)
	} else {
		p.dir, err = cache.Unpack(ctx, p.manifest, folder.Limits{}, w.cfg.Link.Parts(), p.top)
	}
	if err != nil {
		return p, err
	}
	w.sayAgain() // it has the repository now
	return p, w.tell(ctx, c, wire.Event{Kind: wire.Note}, nil)
}

// collect sends back what the task has changed.
func (p *place) collect(ctx context.Context, c *claim, e *wire.End) {
	if p.top == "" {
		return
	}
	cache, parts := p.w.cache(), p.w.cfg.Link.Parts()
	var back any
	var err error
	if c.job.Plain {
		back, err = cache.CollectPlain(ctx, p.top, p.plain, folder.Limits{}, parts)
	} else {
		end := folder.Ending{Message: "Work of task " + string(c.id) + " at worker " + p.w.cfg.Name}
		back, err = cache.Collect(ctx, p.top, p.manifest, end, folder.Limits{}, parts)
	}
	if err == nil {
		e.Return, err = json.Marshal(back)
	}
	if err != nil {
		e.Folder = err.Error()
	}
}

// remove removes the work tree: what was changed in it is with the session, or was lost with the claim.
func (p *place) remove() {
	if p.top == "" {
		return
	}
	p.w.removeAll(p.top)
	p.top = ""
	if _, err := p.w.cache().Trim(context.Background()); err != nil {
		p.w.cfg.Log.Warn("what is kept of repositories cannot be trimmed", "error", err)
	}
}

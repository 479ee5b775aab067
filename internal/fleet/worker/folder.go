package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/drover-dev/drover/internal/fleet/folder"
	"github.com/drover-dev/drover/internal/fleet/wire"
)

// cacheName begins the name of the folder with what is kept of repositories.
const cacheName = "repositories-"

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
	p.top = filepath.Join(filepath.Dir(cache.Dir), fmt.Sprintf("%s-%d-%.8s", c.id, c.epoch, w.instance))
	if c.job.Plain {
		p.dir, err = p.top, cache.UnpackPlain(ctx, p.plain, folder.Limits{}, w.cfg.Link.Parts(), p.top)
	} else {
		p.dir, err = cache.Unpack(ctx, p.manifest, folder.Limits{}, w.cfg.Link.Parts(), p.top)
	}
	if err != nil {
		return p, err
	}
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
	if err := p.w.cfg.Home.Below().RemoveAll(p.top); err != nil {
		p.w.cfg.Log.Warn("the folder of a task cannot be removed", "folder", p.top, "error", err)
	}
	p.top = ""
	if _, err := p.w.cache().Trim(context.Background()); err != nil {
		p.w.cfg.Log.Warn("what is kept of repositories cannot be trimmed", "error", err)
	}
}

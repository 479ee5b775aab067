package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/folder"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Folders of workers in the state directory.
const (
	cacheName = "repositories-"
	tasksName = "tasks-" // of the tasks of one worker; locked while it lives
)

// cache keeps the objects of the repositories of a project.
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

// settle makes the folder for the folders of tasks, and clears those of workers that were killed. leave removes it.
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
		if f, err := home.LockBelow(w.cfg.Home.Below(), old, os.O_RDONLY, 0); err == nil { // its worker has ended
			w.tasks.Go(func() {
				defer f.Close()
				w.clear(ctx, old)
			})
		}
	}
	held, err := home.Await(ctx, func() (*os.File, error) { // another worker that starts may remove it before it is locked
		if err := w.mkdir(dir); err != nil {
			return nil, err
		}
		f, err := home.LockBelow(w.cfg.Home.Below(), dir, os.O_RDONLY, 0)
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

// remains is a file next to each work tree in the folder of a worker's tasks: if the worker is killed, the next one of
// its name can send the changes.
type remains struct {
	V        int             `json:"v"`
	Worker   string          `json:"worker"`
	Instance string          `json:"instance"`
	Session  task.ID         `json:"session_id"`
	Task     task.ID         `json:"task_id"`
	Epoch    uint64          `json:"epoch"`
	Manifest folder.Manifest `json:"folder"`
}

const (
	remainsVersion = 1
	remainsExt     = ".json"
	maxRemains     = 16 << 20 // bytes
)

// remember writes the [remains] of a work tree. Without it the next worker removes the work tree.
func (p *place) remember(c *claim) error {
	r := remains{V: remainsVersion, Worker: p.w.cfg.Name, Instance: c.instance,
		Session: c.session, Task: c.id, Epoch: c.epoch, Manifest: p.manifest}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return home.WriteBelow(p.w.cfg.Home.Below(), p.top+remainsExt, data)
}

// clear sends the changes in the folder of a worker that was killed, and removes it. The folder of a worker of another
// name stays until its session does not wait for it any more.
func (w *Worker) clear(ctx context.Context, dir string) {
	names, err := w.cfg.Home.Below().Names(dir)
	if err != nil {
		w.cfg.Log.Warn("the folder of an earlier worker cannot be read", "folder", dir, "error", err)
		return
	}
	for _, n := range names {
		base, ok := strings.CutSuffix(n, remainsExt)
		if !ok {
			continue
		}
		path := filepath.Join(dir, n)
		r, err := w.remains(path)
		if err != nil {
			w.cfg.Log.Warn("what an earlier worker has left cannot be read, and stays", "file", path, "error", err)
			return
		}
		info, err := os.Lstat(path)
		if r.Worker != w.cfg.Name && err == nil && time.Since(info.ModTime()) < fleetwire.MessagesAge {
			return
		}
		c := newClaim(r.Session, r.Task, fleetwire.Grant{Epoch: r.Epoch}, r.Instance)
		p := &place{w: w, top: filepath.Join(dir, base), whole: true, manifest: r.Manifest}
		if w.save(ctx, c, p); ctx.Err() != nil {
			return // the next worker continues
		}
	}
	w.removeAll(dir)
}

func (w *Worker) remains(path string) (r remains, err error) {
	data, err := home.ReadFile(path, maxRemains)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil && r.Manifest.V == 0 {
		err = errors.New("it is of a folder without git, in the form of an earlier version")
	}
	if err == nil && r.V != remainsVersion {
		err = fmt.Errorf("its format is %d, this program knows %d", r.V, remainsVersion)
	}
	return r, err
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
	bound    string // of a command in a workspace: the folder that it may write; empty: see root
	top      string // of its own work tree; empty: it has none
	whole    bool   // the work tree has been made
	manifest folder.Manifest
}

// root is the folder that nothing of the task leaves.
func (p *place) root() string {
	return cmp.Or(p.bound, p.top, p.dir)
}

// unpack makes the folder of a task, once its manifest has arrived.
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
	if p.manifest, err = folder.ReadManifest(data, folder.Limits{}); err != nil {
		return p, err
	}
	if err := w.tell(
		ctx,
		c,
		fleetwire.Event{Kind: fleetwire.Note, Text: "worker " + w.cfg.Name + " makes the folder"},
		nil,
	); err != nil {
		return p, err
	}
	cache := w.cache()
	p.top = filepath.Join(w.tasksDir(), fmt.Sprintf("%s-%d", c.id, c.epoch))
	if p.dir, err = cache.Unpack(ctx, p.manifest, folder.Limits{}, w.cfg.Link.Parts(), p.top); err != nil {
		return p, err
	}
	p.whole = true
	if err := p.remember(c); err != nil {
		w.cfg.Log.Warn("what the task changes would be lost with this worker", "task", c.id, "error", err)
	}
	return p, w.tell(ctx, c, fleetwire.Event{Kind: fleetwire.Note}, nil)
}

// collect sends back the changes of the task.
func (p *place) collect(ctx context.Context, c *claim, e *fleetwire.End) {
	if p.top == "" {
		return
	}
	back, _, err := p.changes(ctx, c)
	if e.Return = back; err != nil {
		e.Folder = err.Error()
	}
}

// changes sends the changes of the task to the store, and returns the text for the session. some is false without
// changes.
func (p *place) changes(ctx context.Context, c *claim) (back json.RawMessage, some bool, err error) {
	cache, parts := p.w.cache(), p.w.cfg.Link.Parts()
	end := folder.Ending{Message: "Work of task " + string(c.id) + " at worker " + p.w.cfg.Name}
	got, err := cache.Collect(ctx, p.top, p.manifest, end, folder.Limits{}, parts)
	if err != nil {
		return nil, false, err
	}
	back, err = json.Marshal(got)
	return back, got.Result != "", err
}

// Limits of sending changes to a hub that is out of reach.
const (
	saveTime  = 30 * time.Minute
	saveTries = 5 // while the hub is there
)

// save sends the changes of a task whose claim has ended: its session keeps them apart.
func (w *Worker) save(ctx context.Context, c *claim, p *place) {
	if !p.whole || p.top == "" {
		return // or it is with the session
	}
	c.free()
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	for try := 1; ; {
		back, some, err := p.changes(ctx, c)
		if err == nil && some {
			end := &fleetwire.End{Status: task.Failed, Return: back}
			err = w.tell(ctx, c, fleetwire.Event{Kind: fleetwire.Left, End: end}, nil)
		}
		if err == nil {
			return
		}
		if w.cfg.Link.Conn.IsConnected() {
			try++
		}
		if ctx.Err() != nil || try > saveTries {
			w.cfg.Log.Warn("what a task has changed is lost, as was its session",
				"task", c.id, "session", c.session, "error", err)
			return
		}
		pause(ctx, pauseFailed)
	}
}

// remove removes the work tree: its changes are with the session, or were lost with the claim.
func (p *place) remove() {
	if p.top == "" {
		return
	}
	for _, ext := range []string{"", ".git", remainsExt} {
		p.w.removeAll(p.top + ext)
	}
	p.top = ""
	if _, err := p.w.cache().Trim(context.Background()); err != nil {
		p.w.cfg.Log.Warn("what is kept of repositories cannot be trimmed", "error", err)
	}
}

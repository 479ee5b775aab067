package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/platform/untrusted"
	"github.com/drover-dev/drover/task"
)

// goneWait is how long a file that was deleted may take to be made anew.
const goneWait = 2 * time.Second

// follow takes in additions to a file. It begins at the end of an existing file, and
// at the beginning of a later one: a new file, a file under the same name when the
// old one was moved away, or a file that was made shorter.
func (d *Driver) follow(ctx context.Context, h task.Host, w Watch, r *report) (string, error) {
	refuse := func(err error) error {
		return &task.FailError{Reason: task.ReasonStart, Err: fmt.Errorf("watch %s: %w", w.File, err)}
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(w.File))
	if err != nil {
		return "", refuse(fmt.Errorf("its folder: %w", plain(err)))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", refuse(fmt.Errorf("its folder: %w", plain(err)))
	}
	defer root.Close()
	wake := make(chan struct{}, 1)
	f := &follower{
		root:   root,
		dir:    dir,
		name:   filepath.Base(w.File),
		may:    d.client.MayOpen,
		buf:    make([]byte, 16<<10),
		target: dir,
		leave:  func() {},
	}
	f.join = func(dir string) (func(), error) { return d.folders.join(&ear{dir: dir, wake: wake}) }
	f.cut.each = r.line
	f.feed = func(b []byte) {
		_, _ = h.Output().Write(b) // a full disk must not stop the watch
		f.cut.feed(b)
	}
	defer func() {
		f.close()
		f.leave()
	}()
	hear := &ear{dir: dir, name: f.name, wake: wake}
	if f.linked() {
		hear.name = "" // its target has another name
	}
	leave, err := d.folders.join(hear)
	if err != nil {
		return "", refuse(err)
	}
	defer leave()
	if err := f.open(io.SeekEnd); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", refuse(err)
	}
	h.Progress(task.Progress{Message: plural(0, "event"), Monitor: &task.MonitorCount{}})
	return f.run(ctx, wake, w.File)
}

// follower reads one file as it grows.
type follower struct {
	root *os.Root
	dir  string // where root was
	name string
	may  func(*os.File) bool
	feed func([]byte)
	cut  lines
	buf  []byte

	f  *os.File // nil: it is not there
	at int64    // of f; read up to here

	join   func(dir string) (leave func(), err error) // lets it be woken by changes in another folder
	target string                                     // the folder of f; not dir where a link leads below it
	leave  func()                                     // of target, if it is not dir
}

func (f *follower) run(ctx context.Context, wake <-chan struct{}, path string) (string, error) {
	var gone *time.Timer // runs while the file is deleted
	var over <-chan time.Time
	defer func() {
		if gone != nil {
			gone.Stop()
		}
	}()
	for {
		deleted, err := f.look(ctx)
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err != nil:
			return "", fmt.Errorf("watch %s: %w", path, err)
		case !deleted && gone != nil:
			gone.Stop()
			gone, over = nil, nil
		case deleted && gone == nil:
			gone = time.NewTimer(goneWait)
			over = gone.C
		}
		select {
		case <-wake:
		case <-over:
			f.cut.flush()
			return "The file is gone.", nil
		case <-ctx.Done():
			f.cut.flush()
			return "", context.Cause(ctx)
		}
	}
}

// look reads the additions, also in a file that has replaced the old one, and reports
// whether the file is deleted, or its folder was moved.
func (f *follower) look(ctx context.Context) (deleted bool, err error) {
	if err := f.read(ctx); err != nil {
		return false, err
	}
	if f.moved() {
		return true, nil
	}
	info, err := f.root.Stat(f.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f.f != nil && unlinked(f.f), nil
	case err != nil:
		return false, plain(err)
	}
	if f.f != nil {
		old, err := f.f.Stat()
		if err != nil {
			return false, plain(err)
		}
		if os.SameFile(old, info) {
			return false, nil
		}
		if err := f.read(ctx); err != nil { // additions before it was replaced
			return false, err
		}
		f.close()
	}
	if err := f.open(io.SeekStart); err != nil {
		if errors.Is(err, fs.ErrNotExist) { // gone again, of which there will be word
			return false, nil
		}
		return false, err
	}
	return false, f.read(ctx)
}

// moved reports whether the folder is not where it was: nothing would be heard of
// it any more.
func (f *follower) moved() bool {
	here, err := f.root.Stat(".")
	if err != nil {
		return true
	}
	there, err := os.Stat(f.dir)
	return err != nil || !os.SameFile(here, there)
}

func (f *follower) linked() bool {
	info, err := f.root.Lstat(f.name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// open opens the file, to be read from the beginning or the end.
func (f *follower) open(from int) error {
	opened, err := untrusted.Open(f.root, f.name)
	if err != nil {
		return err
	}
	if f.may != nil && !f.may(opened) {
		_ = opened.Close()
		return errors.New("a rule denies this file")
	}
	if f.at, err = opened.Seek(0, from); err != nil {
		_ = opened.Close()
		return plain(err)
	}
	f.f = opened
	return f.attend()
}

// attend begins to listen in the folder to which a link has led.
func (f *follower) attend() error {
	target := f.dir
	if path, err := filepath.EvalSymlinks(filepath.Join(f.dir, f.name)); err == nil { // else it is gone again
		target = filepath.Dir(path)
	}
	if target == f.target {
		return nil
	}
	f.leave()
	f.target, f.leave = f.dir, func() {}
	if target == f.dir {
		return nil
	}
	leave, err := f.join(target)
	if err == nil {
		f.target, f.leave = target, leave
	}
	return err
}

func (f *follower) close() {
	if f.f != nil {
		_ = f.f.Close() // it was only read
		f.f, f.at = nil, 0
		f.cut.flush()
	}
}

// read reads to the end of the file, or until ctx ends.
func (f *follower) read(ctx context.Context) error {
	if f.f == nil {
		return nil
	}
	info, err := f.f.Stat()
	if err != nil {
		return plain(err)
	}
	if info.Size() < f.at { // it was made shorter, so all of it is new
		f.cut.flush()
		f.at = 0
	}
	for ctx.Err() == nil {
		n, err := f.f.ReadAt(f.buf, f.at)
		f.at += int64(n)
		if n > 0 {
			f.feed(f.buf[:n])
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return plain(err)
		}
	}
	return nil
}

// unlinked reports whether no name leads to the file any more.
func unlinked(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return true
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 0
}

// plain takes the names of system calls and files out of an error: the file is
// named as the user knows it.
func plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

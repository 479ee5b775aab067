// Package repair rebuilds the damaged log of a session.
//
// At every moment the session has either its damaged log unchanged or the complete
// new one. Nothing of the damaged log is deleted, and an undamaged log is left
// unchanged.
//
// Package journal reads the log page by page. If the newest readable record of a task
// shows it as running, the next host finds out what happened to it, as after a
// crash.
package repair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/task"
)

// Report is the result of a repair.
type Report struct {
	Sound  bool   // there was no damage, and nothing was changed
	Damage string // the damage

	Kept    journal.Salvaged // of the damaged log
	Rebuilt []Rebuilt        // tasks without a readable record
	Aside   []string         // folder of the damaged files
}

// Rebuilt is a task whose record was made from its files.
type Rebuilt struct {
	ID    task.ID
	Kind  task.Kind
	From  []string // the files, relative to the folder of the session
	Lives bool     // or has ended with an exit file: the next host adopts it
}

// Names of the files that a repair writes. The next repair removes those that a crash leaves.
const (
	logName  = "session.db"
	tempName = "." + logName + ".tmp-"
	check    = tempName + "check"  // is examined in place of the log
	fresh    = tempName + "repair" // the new log
	merged   = tempName + "merged" // the damaged one as one file
	copied   = tempName + "copied" // a copy of the damaged one
)

// besides are the suffixes of the files that SQLite keeps beside a log.
func besides() []string { return []string{"-wal", "-shm"} }

// Session rebuilds the log of a session, if it is damaged. It takes the session's lock, so the
// error wraps [home.ErrLocked] while a host has it. A log in a newer format is refused with
// [journal.ErrNewer], unless forced: then the format counts as damage.
func Session(ctx context.Context, place home.Session, force bool) (out Report, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("repair session %s: %w", place.ID(), err)
		}
	}()
	unlock, err := place.Lock()
	if err != nil {
		return out, err
	}
	defer unlock()
	folder, err := place.Below().Folder(place.Dir())
	if err != nil {
		return out, err
	}
	defer folder.Close()
	r := &repair{place: place, folder: folder}
	if r.db, err = r.open(logName); err != nil {
		return out, err
	}
	defer r.db.Close()
	if r.wal, err = r.open(logName + "-wal"); err != nil {
		return out, err
	}
	defer r.wal.Close()
	if err := r.tidy(); err != nil {
		return out, err
	}
	if out, err = r.all(ctx, force); err != nil {
		return out, errors.Join(err, r.tidy())
	}
	return out, r.tidy()
}

// repair is the state of one repair.
type repair struct {
	place   home.Session
	folder  *saferoot.Folder
	db, wal *file
}

// file is one of the damaged files, which may be missing.
type file struct {
	*os.File
	bytes int64
}

// Close closes it.
func (f *file) Close() {
	if f != nil && f.File != nil {
		_ = f.File.Close() // it was opened for reading only
	}
}

func (r *repair) open(name string) (*file, error) {
	f, err := r.folder.Open(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return &file{}, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file (%s): move it away", filepath.Join(r.place.Dir(), name),
			info.Mode().Type())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &file{f, info.Size()}, nil
}

func (r *repair) remains() journal.Remains {
	var out journal.Remains
	if r.db.File != nil {
		out.DB, out.DBBytes = r.db, r.db.bytes
	}
	if r.wal.File != nil {
		out.WAL, out.WALBytes = r.wal, r.wal.bytes
	}
	return out
}

func (r *repair) all(ctx context.Context, force bool) (out Report, err error) {
	files, err := r.files()
	if err != nil {
		return out, err
	}
	if r.db.File == nil && r.wal.File == nil && len(files) == 0 {
		return Report{Sound: true}, nil // it never had a task
	}
	if err := r.remains().Newer(); err != nil && !force {
		return out, err
	}
	rows, damage := r.sound(ctx)
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	above, err := r.highestMail()
	if err != nil {
		return out, err
	}
	if out.Kept, err = journal.Salvage(ctx, r.remains(), r.path(fresh), above); err != nil {
		return out, err
	}
	if out.Rebuilt, err = r.rebuild(ctx, files); err != nil {
		return out, err
	}
	switch {
	case damage != nil:
		out.Damage = damage.Error()
	case out.Kept.Events+out.Kept.Messages > rows:
		out.Damage = fmt.Sprintf("it shows %d rows of %d", rows, out.Kept.Events+out.Kept.Messages)
	case len(out.Rebuilt) > 0:
		out.Damage = fmt.Sprintf("it knows nothing of %d tasks that have left files", len(out.Rebuilt))
	default:
		return Report{Sound: true, Kept: out.Kept}, nil
	}
	out.Aside, err = r.put()
	return out, err
}

func (r *repair) path(name string) string { return filepath.Join(r.place.Dir(), name) }

// sound checks a copy, since SQLite writes to the files that it opens.
func (r *repair) sound(ctx context.Context) (rows int, damage error) {
	defer func() { _ = r.drop(check) }() // tidy tries again
	if r.db.File == nil {
		return 0, fmt.Errorf("%w: it is gone", journal.ErrDamaged)
	}
	if err := r.write(check, func(w io.Writer) error { return r.db.copy(w) }); err != nil {
		return 0, err
	}
	if r.wal.File != nil {
		if err := r.write(check+"-wal", func(w io.Writer) error { return r.wal.copy(w) }); err != nil {
			return 0, err
		}
	}
	return journal.Sound(ctx, r.path(check))
}

func (f *file) copy(w io.Writer) error {
	_, err := io.Copy(w, io.NewSectionReader(f, 0, f.bytes))
	return err
}

// write writes a file and syncs it.
func (r *repair) write(name string, content func(io.Writer) error) error {
	f, err := r.folder.Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = content(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", r.path(name), err)
	}
	return nil
}

// tidy removes the temporary files of a repair.
func (r *repair) tidy() error { return r.drop(check, fresh, merged, copied) }

func (r *repair) drop(names ...string) error {
	var errs []error
	for _, name := range names {
		for _, end := range append(besides(), "", "-journal") {
			if err := r.folder.Remove(name + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

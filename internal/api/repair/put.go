package repair

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/drover-dev/drover/internal/platform/failpoint"
)

// put moves the damaged files aside and puts the new log in place.
func (r *repair) put() (aside []string, err error) {
	steps, aside, err := r.steps()
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
		if err := r.folder.File().Sync(); err != nil {
			return nil, err
		}
	}
	return aside, nil
}

// steps are executed in order. Between any two the session has either the damaged log or the
// new one. A log and its WAL cannot be replaced together, and SQLite would apply the old WAL to
// the new log; so the damaged log first becomes one file, which is the same with or without its
// WAL.
func (r *repair) steps() (steps []func() error, aside []string, err error) {
	base, err := r.asideName()
	if err != nil {
		return nil, nil, err
	}
	do := func(step func() error) { steps = append(steps, step) }
	if r.db.File != nil {
		aside = append(aside, r.path(base))
		do(func() error { return r.write(copied, r.db.copy) })
		do(func() error { return r.folder.Rename(copied, r.folder, base) })
	}
	if r.remains().Late() {
		do(func() error {
			return r.write(merged, func(w io.Writer) error {
				_, err := r.remains().WriteTo(w)
				return err
			})
		})
		do(func() error { return r.folder.Rename(merged, r.folder, logName) })
	}
	for _, end := range besides() {
		if _, err := r.folder.Lstat(logName + end); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		aside = append(aside, r.path(base+end))
		do(func() error {
			_ = failpoint.Hit("repair/aside")
			return r.folder.Rename(logName+end, r.folder, base+end)
		})
	}
	do(func() error {
		_ = failpoint.Hit("repair/made")
		return r.flush()
	})
	do(func() error { return r.folder.Rename(fresh, r.folder, logName) })
	return steps, aside, nil
}

// flush syncs the new log before it replaces the old one.
func (r *repair) flush() error {
	f, err := r.folder.Open(fresh, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// asideName returns an unused name, such as session.db.damaged-20260102T030405Z.
func (r *repair) asideName() (string, error) {
	names, err := r.folder.Names()
	if err != nil {
		return "", err
	}
	taken := map[string]bool{}
	for _, n := range names {
		taken[n] = true
	}
	stamp := logName + ".damaged-" + time.Now().UTC().Format("20060102T150405Z")
	name := stamp
	for n := 2; taken[name] || taken[name+"-wal"] || taken[name+"-shm"]; n++ {
		name = fmt.Sprintf("%s.%d", stamp, n)
	}
	return name, nil
}

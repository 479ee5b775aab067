package sandbox

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// hidden has the files to hide in a room, by folder. The files are many and the folders few: while no entry of a folder
// was created, removed or renamed, its hidden files stay hidden and its absent files stay absent.
type hidden []*folder

// folder contains files to hide, or such a folder.
type folder struct {
	path   string
	parent *folder
	names  []string // absolute
	cover  string   // of its files

	was    stamp // when all of it was looked at; zero: it was not, or it could change without a trace
	same   bool  // in this round, nothing has changed since the one before
	absent bool  // it was not there in the latest round
}

// stamp is the state of a folder: a change of its entries changes its time.
type stamp struct {
	dev, ino uint64
	at       time.Time
}

// A change gets the time of the clock's tick, or on some file systems the second, in which it is made. What has
// changed within that time may change again without a trace.
const (
	tick       = 100 * time.Millisecond
	longSecond = 2500 * time.Millisecond
)

// newHidden sorts the files to hide; folders come before their subfolders. cover is what a file is hidden by.
func newHidden(paths []string, cover string) hidden {
	all := map[string]*folder{}
	var add func(path string) *folder
	add = func(path string) *folder {
		f := all[path]
		if f == nil {
			f = &folder{path: path, cover: cover}
			all[path] = f
			if path != "/" {
				f.parent = add(filepath.Dir(path))
			}
		}
		return f
	}
	for _, path := range paths {
		f := add(filepath.Dir(path))
		f.names = append(f.names, path)
	}
	h := make(hidden, 0, len(all))
	for _, f := range all {
		h = append(h, f)
	}
	slices.SortFunc(h, func(a, b *folder) int { return len(a.path) - len(b.path) })
	return h
}

// conceal hides the files that are not hidden yet. It is called before each start; written is as in
// [starter.conceal].
func (h hidden) conceal(s *starter, written []string) error {
	for _, f := range h {
		if err := f.conceal(s, written); err != nil {
			return err
		}
	}
	return nil
}

func (f *folder) conceal(s *starter, written []string) error {
	if f.absent && f.parent != nil && f.parent.same {
		f.same = true
		return nil
	}
	now := time.Now()
	st, err := look(f.path, 0)
	f.same, f.absent = false, false
	if err != nil {
		f.was = stamp{}
		_, err = look(f.path, unix.AT_SYMLINK_NOFOLLOW)
		f.absent = errors.Is(err, unix.ENOENT) // a symlink to nothing is there
		return nil
	}
	is := stampOf(st)
	if is == f.was {
		f.same = true
		return nil
	}
	f.was = stamp{}
	settled := true
	for _, path := range f.names {
		one, err := s.concealOne(path, f.cover, written)
		if err != nil {
			return err
		}
		settled = settled && one
	}
	if settled && is.old(now) {
		f.was = is
	}
	return nil
}

// forget has all be looked at again.
func (h hidden) forget() {
	for _, f := range h {
		f.was, f.absent = stamp{}, false
	}
}

func stampOf(st *unix.Statx_t) stamp {
	return stamp{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec))}
}

// old reports whether a change from now on would leave a trace.
func (s stamp) old(now time.Time) bool {
	wait := tick
	if s.at.Nanosecond() == 0 {
		wait = longSecond
	}
	return now.Sub(s.at) > wait
}

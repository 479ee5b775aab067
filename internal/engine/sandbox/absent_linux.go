package sandbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// An absent file cannot be protected by a mount, which needs a file to be mounted on. So the starter creates a
// placeholder while programs run in the room. The sticky bit marks it: the next starter takes over a placeholder that a
// dead one has left, and removes it with its room.
const placeholderMark = unix.S_ISVTX

// placeholders has the placeholders of a room, by path.
type placeholders map[string]placeholder

// placeholder holds a shared lock, so that the last of several rooms removes it.
type placeholder struct {
	Absent
	fd int
}

// hold puts a placeholder at a path at which nothing is, if its folder is there. The caller makes it read-only.
func (p placeholders) hold(a Absent) error {
	dir, err := openPath(filepath.Dir(a.Path), unix.RESOLVE_NO_SYMLINKS)
	if absent(err) {
		return nil // its folder is made by whoever makes it
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	name := filepath.Base(a.Path)
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		if _, ours := p[a.Path]; !ours && marked(dir, name, a) { // made by another room, or by a dead one
			p.keep(dir, name, a)
		}
		return nil
	}
	if a.Content == "" {
		err = unix.Mkdirat(dir, name, 0o755)
	} else {
		err = written(dir, name, a.Content)
	}
	switch {
	case errors.Is(err, unix.EEXIST):
		return nil // created outside at this moment, and read-only from now on
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES):
		return nil // a program that cannot create it cannot create the file either
	case err != nil:
		return err
	}
	mode := uint32(0o755)
	if a.Content != "" {
		mode = 0o444
	}
	if err := unix.Fchmodat(dir, name, mode|placeholderMark, 0); err != nil {
		return err
	}
	p.keep(dir, name, a)
	return nil
}

// keep makes a placeholder one of this room.
func (p placeholders) keep(dir int, name string, a Absent) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil && unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) != nil { // somebody removes it, or keeps it
		_ = unix.Close(fd)
		return
	}
	if err == nil {
		if was, ok := p[a.Path]; ok { // somebody outside has removed it
			_ = unix.Close(was.fd)
		}
		p[a.Path] = placeholder{a, fd}
	}
}

// written creates a file with its content at once: git in the user's terminal fails on an empty
// commondir. On a file system without unnamed files it may be seen empty for a moment.
func written(dir int, name, content string) error {
	fd, err := unix.Openat(dir, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	unnamed := err == nil
	if !unnamed {
		fd, err = unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err = unix.Write(fd, []byte(content)); err != nil || !unnamed {
		return err
	}
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), dir, name, unix.AT_SYMLINK_FOLLOW)
}

// marked reports whether an entry of a folder is a placeholder.
func marked(dir int, name string, a Absent) bool {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&placeholderMark == 0 ||
		int(st.Uid) != unix.Geteuid() {
		return false
	}
	if a.Content == "" {
		return st.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == int64(len(a.Content))
}

// drop removes a placeholder. What somebody outside has put into it, or in its place, stays.
func (p placeholders) drop(path string) {
	a, ok := p[path]
	if !ok {
		return
	}
	delete(p, path)
	defer unix.Close(a.fd)
	open(path)
	if unix.Flock(a.fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return // another room has it
	}
	dir, err := openPath(filepath.Dir(path), unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	name := filepath.Base(path)
	if !marked(dir, name, a.Absent) {
		return
	}
	if a.Content != "" {
		_ = unix.Unlinkat(dir, name, 0)
	} else if unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) != nil {
		_ = unix.Fchmodat(dir, name, 0o755, 0) // it is a folder of somebody now
	}
}

func (p placeholders) dropAll() {
	for path := range p {
		p.drop(path)
	}
}

// tidyAfter is how long a room must be empty before its placeholders are removed, so that several commands in a row
// share them.
const tidyAfter = 2 * time.Second

// watch removes the placeholders when no program runs in the room any more. It returns when events is closed.
func (s *starter) watch(events int) {
	wait, list := -1, make([]unix.EpollEvent, 16)
	for {
		n, err := unix.EpollWait(events, list, wait)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		for _, e := range list[:max(n, 0)] {
			if e.Fd == s.stop {
				return
			}
			_ = unix.Close(int(e.Fd)) // which takes it out of events
		}
		s.mu.Lock()
		s.running -= max(n, 0)
		switch {
		case s.running > 0 || len(s.held) == 0:
			wait = -1
		case n > 0:
			wait = int(tidyAfter.Milliseconds())
		case vacant():
			s.held.dropAll()
			wait = -1
		}
		s.mu.Unlock()
	}
}

// follow has the end of a program noticed.
func (s *starter) follow(pidfd int) {
	fd, err := dup(pidfd)
	if err == nil {
		what := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
		err = unix.EpollCtl(s.events, unix.EPOLL_CTL_ADD, fd, &what)
	}
	if err != nil && fd >= 0 {
		_ = unix.Close(fd) // the placeholders stay until the room is closed: the program counts for ever
	}
}

// openEvents prepares the events that follow programs.
func (s *starter) openEvents() (err error) {
	if s.events, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("follow programs of a room: %w", err)
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("follow programs of a room: %w", err)
	}
	s.stop = int32(stop)
	return unix.EpollCtl(s.events, unix.EPOLL_CTL_ADD, stop, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: s.stop})
}

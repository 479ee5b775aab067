package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command is a program to start.
type Command struct {
	Path   string // of the program; empty: Args[0] is searched in the PATH of Env
	Args   []string
	Dir    string   // empty: the folder of this process
	Env    []string // complete; nothing is inherited
	Null   *os.File // the null device, open; nil: it is opened for this start
	Stdin  *os.File // nil: the null device, as for the other two
	Stdout *os.File
	Stderr *os.File
	Extra  []*os.File // descriptors 3 and up

	// Session starts the program in a new session without a terminal, and not only in a new
	// group.
	Session bool
	// Terminal makes Stdin, which is a terminal, the controlling terminal of that session.
	Terminal bool

	// Fork starts the program in place of a plain fork, for example within bounds. It must set
	// only the fields of attr.Sys that it adds, and return a child of this process with an open
	// pidfd of it. Linux only. nil: a plain fork.
	Fork func(path string, args []string, attr *syscall.ProcAttr) (pid, pidfd int, err error)
}

// StartError is a program that could not be started. Its text says how to fix it.
type StartError struct {
	Program string
	Err     error
}

func (e *StartError) Error() string { return fmt.Sprintf("start %s: %v", e.Program, e.Err) }
func (e *StartError) Unwrap() error { return e.Err }

// StartGroup starts a program as the leader of a new group. It returns when the program runs,
// or a [*StartError]. The caller must call [Group.Reap] and [Group.Close] at the end.
func StartGroup(c Command) (*Group, error) {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return nil, &StartError{Program: "a program", Err: errors.New("no program was named")}
	}
	path, err := c.Find()
	if err != nil {
		return nil, &StartError{Program: c.Args[0], Err: err}
	}
	files, closeNull, err := c.files()
	if err != nil {
		return nil, &StartError{Program: c.Args[0], Err: err}
	}
	defer closeNull()
	hear(syscall.SIGHUP, syscall.SIGINT)
	pid, h, err := c.fork(path, files)
	if err != nil {
		return nil, &StartError{Program: c.Args[0], Err: explain(c, path, err)}
	}
	g := &Group{child: true, h: h}
	if c.Stdin != nil {
		g.stdin = pipeAt(int(c.Stdin.Fd()), "")
	}
	g.id, err = Identify(pid)
	if err != nil {
		// Without an identity the process could not be verified as ours later.
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		h.waitReap()
		h.close()
		return nil, &StartError{Program: c.Args[0], Err: err}
	}
	return g, nil
}

func (c Command) attributes(files []uintptr) *syscall.ProcAttr {
	return &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: files, Sys: &syscall.SysProcAttr{
		Setpgid: !c.Session, Setsid: c.Session, Setctty: c.Terminal, // of descriptor 0
	}}
}

// hear catches and drops signals that are ignored in this process. A started program inherits
// ignored signals, while caught ones get their default action. Otherwise, under nohup, HUP
// could not end a command on a terminal. Go itself catches all other signals.
func hear(signals ...os.Signal) {
	for _, s := range signals {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// files returns the descriptors of the program from 0 on. The null device is opened directly:
// os.OpenFile makes five more calls to find out that it cannot be polled.
func (c Command) files() (fds []uintptr, closeNull func(), err error) {
	closeNull = func() {}
	three := [...]*os.File{c.Stdin, c.Stdout, c.Stderr}
	null := -1
	switch {
	case c.Null != nil:
		null = int(c.Null.Fd())
	case slices.Contains(three[:], nil):
		if null, err = openNull(); err != nil {
			return nil, nil, err
		}
		closeNull = func() { _ = unix.Close(null) }
	}
	fds = make([]uintptr, 0, len(three)+len(c.Extra))
	for _, f := range three {
		if f == nil {
			fds = append(fds, uintptr(null))
			continue
		}
		fds = append(fds, f.Fd())
	}
	for _, f := range c.Extra {
		fds = append(fds, f.Fd())
	}
	return fds, closeNull, nil
}

func openNull() (int, error) {
	fd, err := openRetry(os.DevNull, unix.O_RDWR)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	return fd, nil
}

// OpenNull opens the null device for many starts; see [Command].
func OpenNull() (*os.File, error) {
	fd, err := openNull()
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), os.DevNull), nil
}

func openRetry(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// Find returns the program as the child would find it: in the PATH that the child gets and from
// its working folder.
func (c Command) Find() (string, error) {
	if c.Path != "" {
		return c.Path, nil
	}
	name := c.Args[0]
	if strings.ContainsRune(name, '/') {
		return name, nil
	}
	path := ""
	for _, kv := range c.Env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v // as in a shell, the last entry counts
		}
	}
	if path == "" {
		path = "/usr/local/bin:/usr/bin:/bin"
	}
	denied := ""
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		full := filepath.Join(dir, name)
		if !strings.ContainsRune(full, '/') {
			full = "./" + full
		}
		at := full
		if !filepath.IsAbs(at) {
			at = filepath.Join(c.Dir, at)
		}
		switch mode, err := modeOf(at); {
		case err != nil || mode&unix.S_IFMT == unix.S_IFDIR:
		case mode&0o111 == 0:
			denied = at
		default:
			return full, nil
		}
	}
	if denied != "" {
		return "", fmt.Errorf("%s is not executable (chmod +x it): %w", denied, fs.ErrPermission)
	}
	return "", fmt.Errorf("not found in PATH: %w", fs.ErrNotExist)
}

// modeOf is a cheaper [os.Stat]: most folders of a PATH do not have the program.
func modeOf(path string) (uint32, error) {
	var st unix.Stat_t
	for {
		if err := unix.Stat(path, &st); !errors.Is(err, unix.EINTR) {
			return uint32(st.Mode), err //nolint:unconvert // of another size elsewhere
		}
	}
}

// explain replaces the bare errno of a start, which does not tell whether the folder, the
// program or its interpreter is meant, with a line that says how to fix it.
func explain(c Command, path string, err error) error {
	if c.Dir != "" {
		switch fi, serr := os.Stat(c.Dir); {
		case errors.Is(serr, fs.ErrNotExist):
			return fmt.Errorf("working folder %s does not exist: %w", c.Dir, err)
		case serr != nil:
			return fmt.Errorf("working folder: %w", serr)
		case !fi.IsDir():
			return fmt.Errorf("working folder %s is not a folder: %w", c.Dir, syscall.ENOTDIR)
		}
	}
	at := path
	if !filepath.IsAbs(at) {
		at = filepath.Join(c.Dir, at)
	}
	fi, serr := os.Stat(at)
	switch {
	case errors.Is(err, syscall.ENOENT) && serr != nil:
		return fmt.Errorf("no such file: %w", err)
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("its interpreter is missing (see the first line of %s): %w", at, err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("not a program for this machine, and a script needs a first line such as #!/bin/sh: %w", err)
	case errors.Is(err, syscall.EACCES) && serr == nil && fi.IsDir():
		return fmt.Errorf("is a folder: %w", err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("not executable (chmod +x it): %w", err)
	case errors.Is(err, syscall.E2BIG):
		return fmt.Errorf("arguments and environment are too long: %w", err)
	}
	return err
}

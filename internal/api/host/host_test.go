package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/socket"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// role makes this test binary the program that a [Directory] starts.
const role = "HOST_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "host", "mute":
		if err := beHost(); err != nil {
			fmt.Fprintf(os.Stderr, "drover: %s\n", err)
			os.Exit(1)
		}
		os.Exit(0)
	case "dies":
		if err := dieListening(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	case "connects":
		if err := connect(os.Getenv("SOCKET")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "refuse":
		fmt.Fprintln(os.Stderr, "first line\ndrover: the disk is full")
		os.Exit(1)
	case "silent":
		os.Exit(1)
	case "beaten":
		if err := beBeaten(); err != nil {
			fmt.Fprintf(os.Stderr, "drover: %s\n", err)
		}
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// connect waits for one byte from a socket.
func connect(path string) error {
	c, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Read(make([]byte, 1))
	return err
}

// dieListening is a host that is killed while a child holds its socket.
func dieListening() error {
	l, err := socket.Listen(os.Getenv("SOCKET"))
	if err != nil {
		return err
	}
	f, err := l.File()
	if err != nil {
		return err
	}
	child := exec.Command("cat")
	child.Stdin, child.ExtraFiles = os.Stdin, []*os.File{f}
	if err := child.Start(); err != nil {
		return err
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// beBeaten is a host that finds another one, which listens just now.
func beBeaten() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), role+"=host")
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := io.ReadFull(said, make([]byte, len(Ready))); err != nil {
		return err
	}
	return home.ErrLocked
}

// beHost is a host without tasks, which serves until it is ended.
func beHost() error {
	d := &Directory{Root: home.At(os.Getenv("DROVER_HOME")), Folder: os.Getenv(ProjectVariable)}
	place, err := d.BackgroundSession()
	if err != nil {
		return err
	}
	if err := place.Ensure(); err != nil {
		return err
	}
	path, err := place.SocketPath(os.Getenv)
	if err != nil {
		return err
	}
	l, err := socket.Listen(path)
	if err != nil {
		return err
	}
	info := control.Info{Session: place.ID(), Project: d.Folder, Role: "background", PID: os.Getpid(), Socket: path, StartTime: time.Now()}
	if err := writeInfo(place, info); err != nil {
		return err
	}
	if os.Getenv(role) == "mute" {
		err = os.Stdout.Close()
	} else {
		_, err = os.Stdout.WriteString(Ready)
	}
	if err != nil {
		return err
	}
	return socket.Serve(context.Background(), &quiet{info: info}, l, time.Minute)
}

func writeInfo(place home.Session, info control.Info) error {
	data, err := json.Marshal(info)
	if err != nil {
		return err
	}
	return home.WriteAtomic(place.InfoFile(), data)
}

// quiet is a session of which only the life matters.
type quiet struct {
	control.API
	info    control.Info
	live    atomic.Int32
	mu      sync.Mutex
	changed chan struct{}
}

func (q *quiet) Info(context.Context) (control.Info, error) { return q.info, nil }
func (q *quiet) Retire() bool                               { return q.live.Load() == 0 }
func (q *quiet) Changed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.changed == nil {
		q.changed = make(chan struct{})
	}
	return q.changed
}

func (q *quiet) end() {
	q.live.Store(0)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

// short makes a folder whose path leaves room for the name of a socket.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func listen(t *testing.T, path string) *socket.Listener {
	t.Helper()
	l, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestListen(t *testing.T) {
	t.Run("private", func(t *testing.T) {
		path := filepath.Join(short(t), "s")
		l := listen(t, path)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		if !socket.Answers(path) {
			t.Error("nobody answers")
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	t.Run("stale", func(t *testing.T) {
		path := filepath.Join(short(t), "s")
		dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		dead.SetUnlinkOnClose(false)
		_ = dead.Close()
		if socket.Answers(path) {
			t.Fatal("a socket that nobody listens on answers")
		}
		listen(t, path)
		if !socket.Answers(path) {
			t.Error("nobody answers")
		}
	})
	t.Run("successor", func(t *testing.T) {
		path := filepath.Join(short(t), "s")
		first := listen(t, path)
		listen(t, path)
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		if !socket.Answers(path) {
			t.Error("closing took the socket of the successor away")
		}
	})
}

func TestServe(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		if err := socket.Serve(t.Context(), &quiet{}, listen(t, filepath.Join(short(t), "s")), time.Millisecond); err != nil {
			t.Error(err)
		}
	})
	t.Run("working", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := &quiet{}
		q.live.Store(1)
		served := make(chan error, 1)
		l := listen(t, filepath.Join(short(t), "s"))
		go func() { served <- socket.Serve(ctx, q, l, time.Millisecond) }()
		select {
		case err := <-served:
			t.Fatalf("ended with a live task: %v", err)
		case <-time.After(50 * time.Millisecond): // many times the idle time
		}
		q.end()
		if err := <-served; err != nil {
			t.Error(err)
		}
		cancel()
	})
	t.Run("asked", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := &quiet{info: control.Info{Session: "s00000001"}}
		path := filepath.Join(short(t), "s")
		l := listen(t, path)
		served := make(chan error, 1)
		go func() { served <- socket.Serve(ctx, q, l, 0) }()
		c := control.Dial(path)
		if info, err := c.Info(t.Context()); err != nil || info.Session != "s00000001" {
			t.Errorf("info %+v, %v", info, err)
		}
		_ = c.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// directory is a project of its own whose hosts this test binary plays.
func directory(t *testing.T, as string) *Directory {
	t.Helper()
	dir := short(t)
	folder := filepath.Join(dir, "p")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "h")
	return &Directory{Root: home.At(root), Folder: folder, Program: []string{exe},
		Env: append(os.Environ(), role+"="+as, "DROVER_HOME="+root, "XDG_RUNTIME_DIR="+dir, "TMPDIR="+dir, "DROVER_TASK_ID=b00000000")}
}

// reap ends a host that the test has started, and waits for it.
func reap(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("end host %d: %v", pid, err)
	}
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		t.Errorf("wait for host %d: %v", pid, err)
	}
}

func TestBackground(t *testing.T) {
	t.Run("race", func(t *testing.T) {
		d := directory(t, "host")
		type answer struct {
			info control.Info
			err  error
		}
		const clients = 6
		answers := make(chan answer, clients)
		for range clients {
			go func() {
				other := *d
				api, release, err := other.Background(t.Context())
				if err != nil {
					answers <- answer{err: err}
					return
				}
				defer release()
				info, err := api.Info(t.Context())
				answers <- answer{info, err}
			}()
		}
		pids := map[int]task.ID{}
		for range clients {
			a := <-answers
			if a.err != nil {
				t.Error(a.err)
				continue
			}
			pids[a.info.PID] = a.info.Session
		}
		for pid := range pids {
			reap(t, pid)
		}
		if len(pids) != 1 {
			t.Fatalf("hosts %v, want one", pids)
		}

		// The next host lives in the same session.
		api, release, err := d.Background(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		info, err := api.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer reap(t, info.PID)
		if _, again := pids[info.PID]; again {
			t.Error("the dead host answers")
		}
		for _, session := range pids {
			if info.Session != session {
				t.Errorf("session %s, want %s", info.Session, session)
			}
		}
	})
	t.Run("beaten", func(t *testing.T) {
		d := directory(t, "beaten")
		api, release, err := d.Background(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		info, err := api.Info(t.Context())
		if err != nil || info.PID == 0 {
			t.Fatalf("%+v, %v", info, err)
		}
		if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil { // no child of ours
			t.Error(err)
		}
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil {
			t.Error(err)
		}
	})
	for _, c := range []struct{ as, says string }{{"refuse", "the disk is full"}, {"silent", "it said nothing"}} {
		t.Run(c.as, func(t *testing.T) {
			d := directory(t, c.as)
			if err := errors.Join(d.Project().Ensure(), os.WriteFile(d.logFile(), []byte("of another host\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
			_, _, err := d.Background(t.Context())
			if log, err := os.ReadFile(d.logFile()); !strings.HasPrefix(string(log), "of another host\n") {
				t.Errorf("what another host has written is gone: %q, %v", log, err)
			}
			var e *control.Error
			if !errors.As(err, &e) || e.Code != control.Unavailable || !strings.HasSuffix(e.Message, c.says) || !strings.Contains(e.Fix, "host.log") {
				t.Errorf("error %v, want %q", err, c.says)
			}
			if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSessions(t *testing.T) {
	d := directory(t, "")
	other := *d
	other.Folder = t.TempDir()
	add := func(d *Directory, id task.ID, socket string, start int64, ended bool) {
		t.Helper()
		p := d.Project()
		if err := p.Ensure(); err != nil {
			t.Fatal(err)
		}
		if err := p.Session(id).Ensure(); err != nil {
			t.Fatal(err)
		}
		info := control.Info{Session: id, Socket: socket, StartTime: time.Unix(start, 0), Live: true, Dir: "/elsewhere"}
		if ended {
			info.EndTime = &info.StartTime
		}
		if err := writeInfo(p.Session(id), info); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(short(t), "s")
	listen(t, socket)
	add(d, "s00000001", socket, 1, false)
	add(d, "s00000002", socket, 2, true)                              // another session has the socket now
	add(d, "s00000003", socket+"-gone", 3, false)                     // killed
	add(&other, "s00000004", socket, 4, false)                        // of another project
	if err := d.Project().Session("s00000005").Ensure(); err != nil { // being made
		t.Fatal(err)
	}
	broken := d.Project().Session("s00000006")
	if err := broken.Ensure(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(broken.InfoFile(), []byte(`{"session_id":`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		live, all bool
		want      string
	}{
		{"project", false, false, "s00000003 s00000002 s00000001*"},
		{"live", true, false, "s00000001*"},
		{"all", false, true, "s00000004* s00000003 s00000002 s00000001*"},
		{"all-live", true, true, "s00000004* s00000001*"},
	} {
		t.Run(c.name, func(t *testing.T) {
			entries, err := d.Sessions(t.Context(), c.live, c.all)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				word := string(e.Info.Session)
				if e.Info.Live {
					word += "*"
				}
				got = append(got, word)
				if e.Info.Dir != e.Place.Dir() {
					t.Errorf("folder %s, want %s", e.Info.Dir, e.Place.Dir())
				}
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("sessions %q, want %q", s, c.want)
			}
		})
	}
}

// What somebody has put in the place of the log is neither written to nor waited for.
func TestPlantedLog(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(at, other string) error
		says  string
	}{
		"pipe": {func(at, _ string) error { return syscall.Mkfifo(at, 0o600) }, "no regular file"},
		"link": {func(at, other string) error { return os.Symlink(other, at) }, "symbolic link"},
	} {
		t.Run(name, func(t *testing.T) {
			d := directory(t, "host")
			other := filepath.Join(d.Folder, "other")
			if err := errors.Join(d.Project().Ensure(), c.plant(d.logFile(), other)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := d.Background(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), d.logFile()) {
				t.Errorf("error %v, want %q", err, c.says)
			}
			if _, err := os.Lstat(other); err == nil {
				t.Error("a file was made behind the link")
			}
		})
	}
}

func TestHostEnv(t *testing.T) {
	got := HostEnv([]string{"PATH=/bin", "DROVER_TASK_ID=b1", "DROVER_SESSION=s1", "DROVER_HOST=1", "DROVER_KEEPER=x", "DROVER_KEEPER_FD=3", "DROVER_HOME=/x", ProjectVariable + "=/p", PromptVariable + "=/q"})
	if s := strings.Join(got, " "); s != "PATH=/bin DROVER_HOME=/x" {
		t.Errorf("environment %q", s)
	}
}

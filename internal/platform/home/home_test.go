package home

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/task"
)

// TestMain also plays another process that holds a lock.
func TestMain(m *testing.M) {
	if path := os.Getenv("HOME_TEST_LOCK"); path != "" {
		if _, err := LockFile(saferoot.Dir(filepath.Dir(path)), path); err != nil {
			os.Exit(3)
		}
		_, _ = os.Stdout.WriteString("locked\n")
		time.Sleep(time.Hour) // not for ever: the runtime would see a deadlock
	}
	if dir := os.Getenv(powerVariable); dir != "" {
		if err := bePowered(dir); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name string
		env  func(string) string
		want string // empty: refused
	}{
		{"own", env("DROVER_HOME", "/d/", "XDG_STATE_HOME", "/x", "HOME", "/h"), "/d"},
		{"xdg", env("XDG_STATE_HOME", "/x", "HOME", "/h"), "/x/drover"},
		{"home", env("HOME", "/h"), "/h/.local/state/drover"},
		{"own-relative", env("DROVER_HOME", "d", "HOME", "/h"), ""},
		{"xdg-relative", env("XDG_STATE_HOME", "x", "HOME", "/h"), "/h/.local/state/drover"},
		{"nothing", env(), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Find(c.env)
			if (err != nil) != (c.want == "") || got.Dir() != c.want {
				t.Errorf("Find = %q, %v; want %q", got.Dir(), err, c.want)
			}
		})
	}
}

func TestEnsure(t *testing.T) {
	root := At(filepath.Join(t.TempDir(), "a", "b"))
	folder := t.TempDir()
	s := root.Project(folder).Session(task.NewSessionID())
	if _, err := os.Lstat(root.Dir()); err == nil {
		t.Fatal("naming a place created it")
	}
	if err := s.Ensure(); err != nil {
		t.Fatal(err)
	}
	err := filepath.Walk(root.Dir(), func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{s.Tasks(), filepath.Dir(s.AgentTranscript("a1234567x")), filepath.Dir(s.RemoteFile("r1234567x"))} {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if err := s.Ensure(); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		plant func(t *testing.T, dir string)
		fix   string
	}{
		{"group", func(t *testing.T, dir string) { mkdir(t, dir, 0o770) }, "chmod go-w"},
		{"world", func(t *testing.T, dir string) { mkdir(t, dir, 0o707) }, "chmod go-w"},
		{"sticky", func(t *testing.T, dir string) { mkdir(t, dir, 0o777|os.ModeSticky) }, "chmod go-w"},
		{"file", func(t *testing.T, dir string) { write(t, dir, "") }, "not a directory"},
		{"stranger", func(t *testing.T, dir string) {
			if os.Geteuid() != 0 {
				t.Skip("giving a directory away needs root")
			}
			mkdir(t, dir, 0o700)
			if err := os.Chown(dir, 12345, -1); err != nil {
				t.Fatal(err)
			}
		}, "belongs to another user"},
		{"loop", func(t *testing.T, dir string) {
			if err := os.Symlink(dir, dir); err != nil {
				t.Fatal(err)
			}
		}, "too many links"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "home")
			c.plant(t, dir)
			err := At(dir).Ensure()
			if err == nil || !strings.Contains(err.Error(), c.fix) {
				t.Errorf("Ensure = %v; want something about %q", err, c.fix)
			}
		})
	}
	t.Run("linked-inside", func(t *testing.T) {
		root := At(t.TempDir())
		s := root.Project(t.TempDir()).Session("s1234567x")
		if err := s.Ensure(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(s.Tasks()); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(t.TempDir(), s.Tasks()); err != nil {
			t.Fatal(err)
		}
		if err := s.Ensure(); err == nil {
			t.Error("a link in the place of a directory was taken")
		}
	})
	t.Run("linked-root", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(t.TempDir(), link); err != nil {
			t.Fatal(err)
		}
		if err := At(link).Ensure(); err != nil {
			t.Errorf("state on another disk: %v", err)
		}
	})
}

func TestProject(t *testing.T) {
	root := At(t.TempDir())
	base := t.TempDir()
	folder := filepath.Join(base, "My Work", "Größe.x")
	mkdir(t, folder, 0o755)
	p := root.Project(folder + "/../Größe.x/")
	if name := filepath.Base(p.Dir()); !strings.HasPrefix(name, "my-work-gr-e-x-") {
		t.Errorf("name %q is not readable", name)
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	if root.Project(link).Dir() != p.Dir() {
		t.Error("two ways to one folder are two projects")
	}
	if root.Project(base).Dir() == p.Dir() {
		t.Error("two folders are one project")
	}
	if got := filepath.Base(root.Project("/").Dir()); !strings.HasPrefix(got, "root-") {
		t.Errorf("name of / is %q", got)
	}
	if long := root.Project("/" + strings.Repeat("x", 255)); len(filepath.Base(long.Dir())) > 60 {
		t.Errorf("name of a long folder: %s", long.Dir())
	}

	if err := p.Ensure(); err != nil {
		t.Fatal(err)
	}
	mkdir(t, filepath.Join(root.Dir(), "projects", "stray"), 0o700)
	all, err := root.Projects()
	if err != nil || len(all) != 1 || all[0] != p {
		t.Errorf("Projects = %v, %v; want %v", all, err, p)
	}
	write(t, filepath.Join(p.Dir(), "folder"), "/elsewhere\n")
	if err := p.Ensure(); err == nil || !strings.Contains(err.Error(), "/elsewhere") {
		t.Errorf("a directory of another folder: %v", err)
	}
}

func TestSessions(t *testing.T) {
	root := At(t.TempDir())
	p := root.Project(t.TempDir())
	if got, err := p.Sessions(); err != nil || len(got) != 0 {
		t.Fatalf("before anything: %v, %v", got, err)
	}
	ids := []task.ID{"s00000001", "s00000002", "s00000003"}
	for i, id := range ids {
		s := p.Session(id)
		if err := s.Ensure(); err != nil {
			t.Fatal(err)
		}
		write(t, s.Output("b0000000"+task.ID(rune('a'+i))), "")
		at := time.Unix(int64(1000+(i+1)%3), 0) // the second is the newest
		if err := os.Chtimes(s.Dir(), at, at); err != nil {
			t.Fatal(err)
		}
	}
	got, err := p.Sessions()
	if err != nil || len(got) != 3 || got[0].ID() != ids[1] || got[1].ID() != ids[0] || got[2].ID() != ids[2] {
		t.Errorf("Sessions = %v, %v", got, err)
	}
}

func TestTraversal(t *testing.T) {
	s := At("/r").Project("/p").Session("s1234567x")
	for _, id := range []task.ID{"..", "../x", "a/b", "", "a\x00b", "a b", "a:b", "%2e", task.ID(strings.Repeat("a", 65))} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Output(%.20q) named a file", id)
				}
			}()
			s.Output(id)
		}()
	}
}

func TestLock(t *testing.T) {
	s := At(t.TempDir()).Project(t.TempDir()).Session(task.NewSessionID())
	if err := s.Ensure(); err != nil {
		t.Fatal(err)
	}
	unlock, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lock(); !errors.Is(err, ErrLocked) {
		t.Errorf("second lock: %v", err)
	}
	unlock()

	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "HOME_TEST_LOCK="+s.LockFile())
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the other process: %q, %v", line, err)
	}
	if _, err := s.Lock(); !errors.Is(err, ErrLocked) {
		t.Errorf("lock held by another process: %v", err)
	}
	_ = child.Process.Signal(syscall.SIGKILL)
	_ = child.Wait()
	unlock, err = s.Lock()
	if err != nil {
		t.Fatalf("lock left by a dead process: %v", err)
	}
	unlock()
}

func TestWriteAtomic(t *testing.T) {
	root := At(t.TempDir())
	path := filepath.Join(root.Dir(), "file")
	write(t, path, "old")
	if err := WriteAtomic(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(path); string(data) != "new" {
		t.Errorf("content %q", data)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	dir := filepath.Join(root.Dir(), "dir")
	mkdir(t, filepath.Join(dir, "full"), 0o700)
	if err := WriteAtomic(dir, nil); err == nil {
		t.Error("a directory was replaced")
	}
	if entries, _ := os.ReadDir(root.Dir()); len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}

	old, fresh := filepath.Join(root.Dir(), ".file.tmp-1"), filepath.Join(root.Dir(), ".file.tmp-2")
	write(t, old, "half")
	write(t, fresh, "half")
	if err := os.Chmod(old, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(old, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := root.Ensure(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(old); err == nil {
		t.Error("a left-over file was not swept")
	}
	if _, err := os.Lstat(fresh); err != nil {
		t.Error("a file that is being written was swept")
	}
}

func TestSocket(t *testing.T) {
	run, temp := t.TempDir(), t.TempDir()
	if err := os.Chmod(run, 0o700); err != nil {
		t.Fatal(err)
	}
	place := At("/state").Project("/a").Session("s1234567x")
	own := filepath.Join(temp, "drover-"+uid())
	long := filepath.Join(temp, strings.Repeat("l", 90))
	mkdir(t, long, 0o700)
	for _, c := range []struct {
		name string
		env  func(string) string
		want string
	}{
		{"runtime", env("XDG_RUNTIME_DIR", run), filepath.Join(run, "drover", "h5o7qo34.sock")},
		{"temp", env("TMPDIR", temp), filepath.Join(own, "h5o7qo34.sock")},
		{"runtime-gone", env("XDG_RUNTIME_DIR", "/nowhere", "TMPDIR", temp), filepath.Join(own, "h5o7qo34.sock")},
		{"runtime-long", env("XDG_RUNTIME_DIR", long, "TMPDIR", temp), filepath.Join(own, "h5o7qo34.sock")},
		{"temp-long", env("TMPDIR", long), filepath.Join("/tmp/drover-"+uid(), "h5o7qo34.sock")},
		{"temp-gone", env("TMPDIR", "/nowhere"), filepath.Join("/tmp/drover-"+uid(), "h5o7qo34.sock")},
		{"both-long", env("XDG_RUNTIME_DIR", long, "TMPDIR", long), filepath.Join("/tmp/drover-"+uid(), "h5o7qo34.sock")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := place.SocketPath(c.env)
			if err != nil || got != c.want {
				t.Fatalf("SocketPath = %q, %v; want %q", got, err, c.want)
			}
			if info, err := os.Stat(filepath.Dir(got)); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("directory: %v, %v", info, err)
			}
		})
	}
	t.Run("planted", func(t *testing.T) {
		temp := t.TempDir()
		if err := os.Symlink(t.TempDir(), filepath.Join(temp, "drover-"+uid())); err != nil {
			t.Fatal(err)
		}
		if path, err := place.SocketPath(env("TMPDIR", temp)); err == nil {
			t.Errorf("a planted link was used: %s", path)
		}
	})
	t.Run("another", func(t *testing.T) {
		seen := map[string]bool{}
		const uuid = "-0000-4000-8000-000000000001"
		for _, other := range []Session{place, At("/other").Project("/a").Session(place.ID()), At("/state").Project("/b").Session(place.ID()),
			At("/state").Project("/a").Session("aaaaaaaa" + uuid), At("/state").Project("/a").Session("bbbbbbbb" + uuid)} {
			path, err := other.SocketPath(env("XDG_RUNTIME_DIR", run))
			if err != nil || seen[path] {
				t.Errorf("%s listens at %s, %v, like another", other.Dir(), path, err)
			}
			seen[path] = true
		}
	})
}

func uid() string { return strconv.Itoa(os.Geteuid()) }

func mkdir(t *testing.T, dir string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

package home

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/task"
)

// lookalike is a place that looks like the state directory, and holds what nobody may
// read, write or remove through that.
func lookalike(t *testing.T, s Session) (dir string, check func()) {
	t.Helper()
	dir = t.TempDir()
	at := func(path string) string {
		rel, err := filepath.Rel(s.project.root.dir, path)
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, rel)
	}
	files := []string{at(s.InfoFile()), at(s.LockFile()), at(s.Output("b1234567x")), at(s.ExitFile("b1234567x")), at(s.project.BackgroundFile())}
	mkdir(t, filepath.Dir(at(s.Output("b1234567x"))), 0o700)
	for _, f := range files {
		write(t, f, "secret")
	}
	return dir, func() {
		t.Helper()
		n := 0
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			n++
			if data, err := os.ReadFile(path); string(data) != "secret" || err != nil {
				t.Errorf("%s has %q, %v", path, data, err)
			}
			return nil
		})
		if n != len(files) || err != nil {
			t.Errorf("%d files behind the link, not %d; %v", n, len(files), err)
		}
	}
}

// uses are what is done to a session by its paths. Each says what it read.
func uses(s Session) map[string]func() ([]byte, error) {
	root := s.project.root
	nothing := func(err error) ([]byte, error) { return nil, err }
	return map[string]func() ([]byte, error){
		"read":       func() ([]byte, error) { return root.ReadFile(s.InfoFile(), 100) },
		"read exit":  func() ([]byte, error) { return root.ReadFile(s.ExitFile("b1234567x"), 100) },
		"read name":  func() ([]byte, error) { return root.ReadFile(s.project.BackgroundFile(), 100) },
		"write":      func() ([]byte, error) { return nothing(root.WriteAtomic(s.InfoFile(), []byte("ours"))) },
		"write exit": func() ([]byte, error) { return nothing(root.WriteAtomic(s.ExitFile("b1234567x"), []byte("ours"))) },
		"remove":     func() ([]byte, error) { return nothing(root.Below().Remove(s.Output("b1234567x"))) },
		"lock": func() ([]byte, error) {
			unlock, err := s.Lock()
			if err == nil {
				unlock()
			}
			return nil, err
		},
		"ensure": func() ([]byte, error) { return nothing(s.Ensure()) },
	}
}

// A link in the place of any directory is refused, and leads nowhere.
func TestLinked(t *testing.T) {
	for _, level := range []func(Session) string{
		func(s Session) string { return s.project.root.projects() },
		func(s Session) string { return s.project.dir },
		func(s Session) string { return s.dir },
		Session.Tasks,
	} {
		s := At(t.TempDir()).Project(t.TempDir()).Session("s1234567x")
		if err := s.Ensure(); err != nil {
			t.Fatal(err)
		}
		dir, check := lookalike(t, s)
		rel, err := filepath.Rel(s.project.root.dir, level(s))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.RemoveAll(level(s)), os.Symlink(filepath.Join(dir, rel), level(s))); err != nil {
			t.Fatal(err)
		}
		for name, use := range uses(s) {
			data, err := use()
			if string(data) == "secret" {
				t.Errorf("%s through %s: %q, %v", name, rel, data, err)
			}
			if name == "ensure" && err == nil {
				t.Errorf("%s was taken", rel)
			}
		}
		if sessions, err := s.project.Sessions(); level(s) != s.Tasks() && len(sessions) > 0 {
			t.Errorf("sessions behind %s: %v, %v", rel, sessions, err)
		}
		if projects, err := s.project.root.Projects(); len(projects) > 0 && level(s) != s.dir && level(s) != s.Tasks() {
			t.Errorf("projects behind %s: %v, %v", rel, projects, err)
		}
		_ = s.Remove() // of a link in its place
		check()
	}
}

// While directories are swapped for links and back, what is done is done to the
// session or not at all.
func TestSwapped(t *testing.T) {
	for _, level := range []func(Session) string{func(s Session) string { return s.dir }, Session.Tasks} {
		s := At(t.TempDir()).Project(t.TempDir()).Session(task.NewSessionID())
		if err := s.Ensure(); err != nil {
			t.Fatal(err)
		}
		dir, check := lookalike(t, s)
		rel, err := filepath.Rel(s.project.root.dir, level(s))
		if err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(filepath.Join(dir, rel), link); err != nil {
			t.Fatal(err)
		}
		swap := func() error {
			return unix.Renameat2(unix.AT_FDCWD, level(s), unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
		}
		if err := swap(); err != nil {
			t.Skip("this file system cannot swap two names: ", err)
		}
		over := make(chan struct{})
		var swapper sync.WaitGroup
		swapper.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					_ = swap() // the next may do
				}
			}
		})
		const tries = 200 // each write waits for the disk
		wrote, refused := 0, 0
		for n := 0; n < tries || n < 50*tries && (wrote == 0 || refused == 0); n++ {
			for name, use := range uses(s) {
				data, err := use()
				if string(data) == "secret" {
					t.Fatalf("%s through %s: %q", name, rel, data)
				}
				switch {
				case errors.Is(err, unix.ELOOP), errors.Is(err, ErrForeign):
					refused++
				case name == "write exit":
					wrote++
				}
			}
		}
		if wrote == 0 || refused == 0 {
			t.Errorf("%s: %d written, %d refused: nothing was proved", rel, wrote, refused)
		}
		close(over)
		swapper.Wait()
		check()
	}
}

package home

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hooked is a session whose hooks may print.
func hooked(t *testing.T) Session {
	t.Helper()
	s := At(t.TempDir()).Project(t.TempDir()).Session("0123-abcd")
	if err := s.Ensure(); err != nil {
		t.Fatal(err)
	}
	return s
}

// The folder comes with the first file and goes with the session; the newest files
// stay, and nothing that is no such file is touched.
func TestHookOutput(t *testing.T) {
	s := hooked(t)
	if _, err := os.Lstat(s.HookOutputs()); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	var made []string
	for i := range mostHookOutputs + 3 {
		path, err := s.NewHookOutput()
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(i-100) * time.Hour)
		if err := errors.Join(os.WriteFile(path, []byte("x"), 0), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 || filepath.Dir(path) != s.HookOutputs() {
			t.Errorf("%s: %v, %v", path, info, err)
		}
		made = append(made, path)
		if i == 0 {
			if err := os.WriteFile(filepath.Join(s.HookOutputs(), "mine"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, path := range append(made, filepath.Join(s.HookOutputs(), "mine")) {
		if _, err := os.Lstat(path); (err == nil) != (i >= 3) {
			t.Errorf("file %d: %v", i, err)
		}
	}
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(s.HookOutputs()); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Nothing is made by way of a link, nor where others may write; a link among the files
// is removed itself.
func TestHookOutputPlanted(t *testing.T) {
	foreign := t.TempDir()
	for name, c := range map[string]struct {
		plant func(at string) error
		want  string
	}{
		"link":   {func(at string) error { return os.Symlink(foreign, at) }, "symbolic link"},
		"file":   {func(at string) error { return os.WriteFile(at, nil, 0o600) }, "not a directory"},
		"pipe":   {func(at string) error { return unix.Mkfifo(at, 0o600) }, "not a directory"},
		"shared": {func(at string) error { return errors.Join(os.Mkdir(at, 0o700), os.Chmod(at, 0o777)) }, "written to by others"},
	} {
		s := hooked(t)
		if err := c.plant(s.HookOutputs()); err != nil {
			t.Fatal(err)
		}
		if path, err := s.NewHookOutput(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v", name, path, err)
		}
	}
	if left, err := os.ReadDir(foreign); err != nil || len(left) != 0 {
		t.Errorf("behind the link: %v, %v", left, err)
	}
	s := hooked(t)
	keep := filepath.Join(foreign, "keep")
	if err := errors.Join(os.WriteFile(keep, nil, 0o600), os.Mkdir(s.HookOutputs(), 0o700)); err != nil {
		t.Fatal(err)
	}
	for i := range mostHookOutputs {
		if err := os.Symlink(keep, filepath.Join(s.HookOutputs(), fmt.Sprintf("hook_%d.output", i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.NewHookOutput(); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(s.HookOutputs())
	if _, kept := os.Lstat(keep); err != nil || kept != nil || len(left) != mostHookOutputs {
		t.Errorf("%d names, %v, %v", len(left), err, kept)
	}
}

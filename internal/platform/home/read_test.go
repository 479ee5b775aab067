package home

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Only a small file of ours is read, whatever somebody has put there, and nothing is
// waited for.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(path string) error{
		"link":      func(path string) error { return os.Symlink(secret, path) },
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"large":     func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("x", 101)), 0o600) },
	} {
		path := filepath.Join(dir, name)
		if err := plant(path); err != nil {
			t.Fatal(err)
		}
		if data, err := ReadFile(path, 100); !errors.Is(err, ErrForeign) || len(data) > 0 {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := ReadFile(filepath.Join(dir, "none"), 100); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if data, err := ReadFile(secret, 6); string(data) != "secret" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
}

// What is free is told for the disk of the folder.
func TestRoom(t *testing.T) {
	room, err := At(t.TempDir()).Space()
	if err != nil || room.Bytes <= 0 || room.Files == 0 {
		t.Errorf("%+v, %v", room, err)
	}
	if _, err := At(filepath.Join(t.TempDir(), "none")).Space(); err == nil {
		t.Error("a folder that is not there has room")
	}
	if got := saturated(1<<62, 4); got != 1<<63-1 {
		t.Error(got)
	}
}

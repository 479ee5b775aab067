package untrusted

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRead(t *testing.T) {
	outer := t.TempDir()
	dir := filepath.Join(outer, "in")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(outer, "secret"), []byte("s"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "plain"), []byte("12345"), 0o600))
	must(t, os.Symlink("plain", filepath.Join(dir, "inside")))
	must(t, os.Symlink("../secret", filepath.Join(dir, "outside")))
	must(t, os.Symlink("/dev/zero", filepath.Join(dir, "absolute")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer func() { must(t, root.Close()) }()

	for _, name := range []string{"plain", "inside"} {
		if data, err := Read(root, name, 5); err != nil || string(data) != "12345" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := Read(root, "plain", 4); !errors.Is(err, ErrSize) {
		t.Errorf("too large: %v", err)
	}
	if _, err := Read(root, "none", 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	for _, name := range []string{"pipe", "."} {
		if _, err := Read(root, name, 5); !errors.Is(err, ErrKind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"outside", "absolute", "../secret"} {
		if data, err := Read(root, name, 5); err == nil || strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

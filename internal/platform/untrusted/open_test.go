package untrusted

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What is opened is a regular file inside of the root, and nothing is waited for.
func TestOpen(t *testing.T) {
	outer := t.TempDir()
	dir := filepath.Join(outer, "in")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(outer, "secret"), []byte("s"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "plain"), []byte("12345"), 0o600))
	must(t, os.Symlink("plain", filepath.Join(dir, "inside")))
	must(t, os.Symlink("../secret", filepath.Join(dir, "outside")))
	must(t, os.Symlink("/dev/zero", filepath.Join(dir, "device")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer func() { must(t, root.Close()) }()
	for _, name := range []string{"plain", "inside"} {
		f, err := Open(root, name)
		must(t, err)
		if data, err := io.ReadAll(f); err != nil || string(data) != "12345" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		must(t, f.Close())
	}
	for _, name := range []string{"pipe", "."} {
		if _, err := Open(root, name); !errors.Is(err, ErrKind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"outside", "device", "../secret", "none"} {
		if _, err := Open(root, name); err == nil {
			t.Errorf("%s was opened", name)
		}
	}
}

package journal

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Nothing that somebody has put in the place of a file of the log is opened.
func TestPlanted(t *testing.T) {
	for name, plant := range map[string]func(secret, path string) error{
		"link":      os.Symlink,
		"hardlink":  os.Link,
		"pipe":      func(_, path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory": func(_, path string) error { return os.Mkdir(path, 0o700) },
	} {
		for _, end := range []string{"", "-wal", "-shm", "-journal"} {
			t.Run(name+end, func(t *testing.T) {
				dir := t.TempDir()
				path, secret := filepath.Join(dir, "session.db"), filepath.Join(dir, "secret")
				if err := os.WriteFile(secret, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				j, err := Open(path, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll(path + end); err != nil {
					t.Fatal(err)
				}
				if err := plant(secret, path+end); err != nil {
					t.Fatal(err)
				}
				for _, o := range []Options{{}, {ReadOnly: true}} {
					if j, err := Open(path, o); err == nil {
						_ = j.Close()
						t.Errorf("opened with %+v", o)
					}
				}
				if info, err := os.Stat(secret); err != nil || info.Size() != 0 {
					t.Errorf("the target: %v, %v", info, err)
				}
			})
		}
	}
}

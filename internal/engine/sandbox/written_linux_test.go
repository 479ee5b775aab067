package sandbox

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A program outside, such as git, never reads a placeholder without its content.
func TestWritten(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	path := filepath.Join(dir.Name(), "commondir")
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if data, err := os.ReadFile(path); err == nil && string(data) != ".\n" {
					t.Errorf("it reads %q", data)
					return
				}
			}
		}
	})
	for range 3000 {
		if err := written(int(dir.Fd()), "commondir", ".\n"); err != nil {
			t.Error(err)
			break
		}
		if err := written(int(dir.Fd()), "commondir", "x"); err != unix.EEXIST {
			t.Errorf("over an existing file: %v, want EEXIST", err)
		}
		if err := os.Remove(path); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	reader.Wait()
}

package spool

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/test/racetest"
)

// While a folder and a link to another are swapped for each other all the time,
// nothing is made, read or written in the other.
func TestSwapped(t *testing.T) {
	dir := t.TempDir()
	tasks, link, foreign := filepath.Join(dir, "tasks"), filepath.Join(dir, "link"), filepath.Join(dir, "foreign")
	for _, d := range []string{tasks, foreign} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(foreign, link); err != nil {
		t.Fatal(err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, tasks, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
		t.Skip("this file system cannot swap two names: ", err)
	}
	if err := os.WriteFile(filepath.Join(foreign, "there.output"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, tasks, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE) // the next may do
			}
		}
	})
	tries := racetest.Rounds(50_000)
	made, refused := 0, 0
	for n := range tries {
		f, err := Open(filepath.Join(tasks, fmt.Sprintf("b%d.output", n)), Options{})
		if err == nil {
			made++
			_, _ = f.Write([]byte("ours"))
			_ = f.Close()
		} else {
			refused++
		}
		if data, _, err := ReadAt(filepath.Join(tasks, "there.output"), 0, 0, true); err == nil {
			t.Fatalf("read through the link: %q", data)
		}
	}
	close(over)
	swapper.Wait()
	left, err := os.ReadDir(foreign)
	if err != nil || len(left) != 1 || made == 0 || refused == 0 {
		t.Errorf("%d files behind the link; %d made, %d refused, %v", len(left)-1, made, refused, err)
	}
	if data, _ := os.ReadFile(filepath.Join(foreign, "there.output")); string(data) != "secret" {
		t.Errorf("written through the link: %q", data)
	}
}

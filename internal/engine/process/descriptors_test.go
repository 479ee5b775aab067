package process_test

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// A stop when no descriptor is left.
func TestNoDescriptors(t *testing.T) {
	g, err := process.StartGroup(process.Command{Args: []string{"/bin/sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	free := exhaust(t)
	r := g.End(context.Background(), process.Ending{Grace: time.Second})
	free()
	if !g.Ended() {
		t.Errorf("End returned %+v while the process lives", r)
	}
	g.End(context.Background(), process.Ending{})
	g.Reap()
}

// A process that could not find out who it is in such a moment finds out later.
func TestSelfLater(t *testing.T) {
	var self process.Self
	free := exhaust(t)
	_, err := self.Identity()
	free()
	if err == nil {
		t.Fatal("the identity was read without a descriptor")
	}
	if id, err := self.Identity(); err != nil || id.PID != os.Getpid() {
		t.Errorf("Identity = %+v, %v", id, err)
	}
}

// exhaust takes every descriptor that this process may have, until free is called.
func exhaust(t *testing.T) (free func()) {
	t.Helper()
	var was syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was)
	tight := was
	f, _ := os.Open("/dev/null")
	tight.Cur = uint64(f.Fd())
	f.Close()
	var held []*os.File
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &tight)
	for {
		f, err := os.Open("/dev/null")
		if err != nil {
			break
		}
		held = append(held, f)
	}
	return func() {
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)
		for _, f := range held {
			f.Close()
		}
	}
}

package main

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// TestOpening goes on with a session whose last host has not let go of it yet.
func TestOpening(t *testing.T) {
	p := newPlace(t, build(t))
	p.model(map[string][]step{"main": {says("one"), says("two")}})
	p.good("-p", "first")
	locks, err := filepath.Glob(filepath.Join(p.work, "*", "projects", "*", "s*", "lock"))
	if err != nil || len(locks) != 1 {
		t.Fatalf("locks %q, %v", locks, err)
	}
	lock, err := saferoot.Near(locks[0]).Open(locks[0], unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := home.Flock(lock); err != nil {
		t.Fatal(err)
	}
	looks, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(looks)
	if _, err := unix.InotifyAddWatch(looks, locks[0], unix.IN_CLOSE); err != nil {
		t.Fatal(err)
	}
	id := filepath.Base(filepath.Dir(locks[0]))
	r := p.start("-p", "--resume", id, "second")
	if _, err := unix.Read(looks, make([]byte, 4096)); err != nil { // it has met the lock
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if got := r.wait(); got.code != 0 || got.stdout() != "two" {
		t.Errorf("%+v", got)
	}
}

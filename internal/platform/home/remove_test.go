package home

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
)

// A session is removed in one step, and what a crash leaves behind that step is
// no session and goes later.
func TestRemove(t *testing.T) {
	p := At(t.TempDir()).Project(t.TempDir())
	s := p.Session(task.NewSessionID())
	if err := s.Ensure(); err != nil {
		t.Fatal(err)
	}
	write(t, s.DB(), "log")
	left := filepath.Join(p.Dir(), "."+string(s.ID())+".tmp-removed")
	mkdir(t, filepath.Join(left, "tasks"), 0o700) // of a removal that was broken off
	if got, err := p.Sessions(); err != nil || len(got) != 1 {
		t.Fatalf("Sessions = %v, %v: what is being removed is no session", got, err)
	}
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Sessions(); err != nil || len(got) != 0 {
		t.Errorf("Sessions = %v, %v", got, err)
	}
	if entries, _ := os.ReadDir(p.Dir()); strings.Contains(namesOf(entries), string(s.ID())) {
		t.Errorf("left: %s", namesOf(entries))
	}

	fresh, foreign := filepath.Join(p.Dir(), ".fresh.tmp-removed"), filepath.Join(p.Dir(), ".other.tmp-1")
	for _, dir := range []string{left, fresh, foreign} {
		mkdir(t, filepath.Join(dir, "tasks"), 0o700)
	}
	for _, dir := range []string{left, foreign} {
		if err := os.Chtimes(dir, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Ensure(); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{left: false, fresh: true, foreign: true} {
		if _, err := os.Lstat(dir); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", filepath.Base(dir), err == nil, want)
		}
	}
}

func namesOf(entries []os.DirEntry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

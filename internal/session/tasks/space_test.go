package tasks

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// What other sessions hold counts, from their description if they have ended and
// from their files if not; what is known to be too much is looked at again before
// something is refused.
func TestQuota(t *testing.T) {
	root := home.At(t.TempDir())
	project := root.Project(t.TempDir())
	session := func() home.Session {
		t.Helper()
		place := project.Session(task.NewSessionID())
		if err := place.Ensure(); err != nil {
			t.Fatal(err)
		}
		return place
	}
	output := func(place home.Session, bytes int) string {
		t.Helper()
		path := place.Output(task.NewID(task.LocalBash))
		if err := os.WriteFile(path, make([]byte, bytes), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	describe := func(place home.Session, text string) {
		t.Helper()
		if err := home.WriteAtomic(place.InfoFile(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	past, other, mine := session(), session(), session()
	describe(past, `{"end_time":"2026-01-02T03:04:05Z","output_bytes":500}`)
	big := output(other, 300)
	output(mine, 100)
	g := NewSpace(mine, options.Tasks{UserQuotaBytes: 1000}, func(string) {})
	if err := g.Admit(); err != nil || g.left() != 100 {
		t.Fatalf("%d left, %v", g.left(), err)
	}
	if err := g.Add(60); err != nil || g.left() != 40 {
		t.Errorf("%d left, %v", g.left(), err)
	}
	if got := g.Take(50); got != 40 {
		t.Errorf("%d were given", got)
	}
	if err := g.Add(1); err == nil || !strings.Contains(err.Error(), "tasks.userQuotaBytes, 1000 bytes") {
		t.Errorf("over: %v", err)
	}
	g.Close()
	next := NewSpace(session(), options.Tasks{UserQuotaBytes: 1000}, func(string) {}) // it knows what this one left, without a walk
	if next.left() != 0 {
		t.Errorf("the next session knows of %d", next.left())
	}
	if err := os.Remove(big); err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	g.at = g.at.Add(-time.Minute)
	g.mu.Unlock()
	if err := g.Admit(); err != nil {
		t.Errorf("refused by what is not true any more: %v", err)
	}
}

// Too little room, or an end that cannot be recorded, is told once, and so is that it
// is over; whoever waits for it hears of it.
func TestTrouble(t *testing.T) {
	root := home.At(t.TempDir())
	var said []string
	g := NewSpace(root.Project(t.TempDir()).Session(task.NewSessionID()), options.Tasks{MinFreeBytes: 1 << 60}, func(text string) { said = append(said, text) })
	_, changed := g.Problem()
	for range 3 {
		var limit *supervise.LimitError
		if err := g.Admit(); !isLimit(err, &limit) || limit.Limit != "disk" {
			t.Fatalf("room: %v", err)
		}
	}
	if changed.Err() == nil || len(said) != 1 || !strings.Contains(said[0], "tasks.minFreeBytes") {
		t.Errorf("told %q", said)
	}
	g.opt.MinFreeBytes = 0
	g.Saved("run_1", fmt.Errorf("append event: %w", fmt.Errorf("commit: %w", os.ErrInvalid)))
	g.Saved("run_2", os.ErrInvalid)
	g.Saved("run_1", nil)
	if now, _ := g.Problem(); !strings.HasPrefix(now, "not saved: "+os.ErrInvalid.Error()) || len(said) != 2 {
		t.Errorf("%q, told %q", now, said)
	}
	g.Saved("run_2", nil)
	if now, _ := g.Problem(); now != "" || len(said) != 3 {
		t.Errorf("%q, told %q", now, said)
	}
}

func isLimit(err error, to **supervise.LimitError) bool {
	l, ok := err.(*supervise.LimitError)
	*to = l
	return ok
}

// Several ends that cannot be recorded, each for a reason of its own, are one problem,
// and are told once.
func TestTroubleToldOnce(t *testing.T) {
	var said []string
	g := NewSpace(home.At(t.TempDir()).Project(t.TempDir()).Session(task.NewSessionID()), options.Tasks{}, func(text string) { said = append(said, text) })
	for n := range 8 {
		g.Saved(task.RunID(fmt.Sprint("run_", n)), fmt.Errorf("reason %d", n))
	}
	for range 100 {
		g.lookAtDisk()
	}
	if len(said) != 1 {
		t.Errorf("told %d times: %q", len(said), said)
	}
}

// That there is space again is seen by who asks, also where nothing runs and nobody
// starts anything.
func TestTroubleIsOver(t *testing.T) {
	root := home.At(t.TempDir())
	g := NewSpace(root.Project(t.TempDir()).Session(task.NewSessionID()), options.Tasks{MinFreeBytes: 1 << 60}, func(string) {})
	if g.Admit() == nil {
		t.Fatal("there is room: the test shows nothing")
	}
	g.opt.MinFreeBytes = 1
	if now, _ := g.Problem(); now != "" {
		t.Errorf("still: %s", now)
	}
}

// The size of a session is told as it is, but for one whose files take long to look at: of that as
// it was a moment ago.
func TestDisk(t *testing.T) {
	place := home.At(t.TempDir()).Project(t.TempDir()).Session(task.NewSessionID())
	if err := place.Ensure(); err != nil {
		t.Fatal(err)
	}
	g := NewSpace(place, options.Tasks{}, nil)
	grow := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(place.Dir(), name), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g.size.took = 0
	first := g.Size()
	g.size.took = time.Hour
	grow("a")
	if now := g.Size(); now != first {
		t.Errorf("the files were looked at again: %d bytes, before %d", now, first)
	}
	g.size.at = time.Now().Add(-sizeShare * g.size.took).Add(-time.Second)
	if now := g.Size(); now < first+1<<20 {
		t.Errorf("%d bytes, before %d", now, first)
	}
}

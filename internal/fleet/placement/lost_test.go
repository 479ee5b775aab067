package placement

import (
	"fmt"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/folder"
	"github.com/drover-dev/drover/task"
)

// Who had a claim may send what it has changed later, and nobody else may.
func TestLost(t *testing.T) {
	var b Book
	for i := range 7 {
		offer := fmt.Sprint(i)
		next, fresh, err := b.Grant(offer, offer, fmt.Sprint("w", i), "start")
		if err != nil || !fresh {
			t.Fatalf("grant %d: %v, %v", i, fresh, err)
		}
		if b = next; i != 3 { // the fourth one has no folder
			b.Sent = &folder.Manifest{Commit: fmt.Sprint("c", i)}
		}
		b = b.End()
	}
	for i, want := range []bool{false, true, true, false, true, true, true} {
		f, ok := b.Lost(fmt.Sprint("w", i), "start", uint64(i)+1)
		if ok != want || ok && f.Sent.Commit != fmt.Sprint("c", i) {
			t.Errorf("claim %d: %v, %+v", i+1, ok, f)
		}
		if _, ok := b.Lost("other", "start", uint64(i)+1); ok {
			t.Errorf("claim %d counts for another worker", i+1)
		}
		if _, ok := b.Lost(fmt.Sprint("w", i), "another start", uint64(i)+1); ok {
			t.Errorf("claim %d counts for another start of its worker", i+1)
		}
	}
}

// A session that begins listens for what is missing, as long as it can come.
func TestMisses(t *testing.T) {
	state, err := Book{V: bookVersion, Epoch: 1, Worker: "w", Instance: "i", Sent: &folder.Manifest{}}.encode()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	for name, c := range map[string]struct {
		r    task.Record
		want bool
	}{
		"no worker": {task.Record{Checkpoint: state}, false},
		"at work":   {task.Record{Worker: "w", Checkpoint: state}, true},
		"lost":      {task.Record{Worker: "w", Checkpoint: state, EndTime: ago(time.Hour), Worktree: &task.Worktree{Text: "lost"}}, true},
		"long ago":  {task.Record{Worker: "w", Checkpoint: state, EndTime: ago(fleetwire.MessagesAge)}, false},
		"came back": {task.Record{Worker: "w", Checkpoint: state, EndTime: ago(0), Worktree: &task.Worktree{Rescue: "ref"}}, false},
		"unchanged": {task.Record{Worker: "w", Checkpoint: state, EndTime: ago(0), Worktree: &task.Worktree{Removed: true}}, false},
	} {
		if got := Misses(c.r, now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

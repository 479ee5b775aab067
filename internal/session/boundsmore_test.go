package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Several ends that cannot be recorded, each for a reason of its own, are one trouble,
// and are told once.
func TestTroubleToldOnce(t *testing.T) {
	var said []string
	b := newBounds(home.At(t.TempDir()).Project(t.TempDir()).Session(task.NewSessionID()), Limits{}, func(text string) { said = append(said, text) })
	for n := range 8 {
		b.save(task.RunID(fmt.Sprint("run_", n)), fmt.Errorf("reason %d", n))
	}
	for range 100 {
		b.lookAtDisk()
	}
	if len(said) != 1 {
		t.Errorf("told %d times: %q", len(said), said)
	}
}

// That there is space again is seen by who asks, also where nothing runs and nobody
// starts anything.
func TestTroubleIsOver(t *testing.T) {
	root := home.At(t.TempDir())
	b := newBounds(root.Project(t.TempDir()).Session(task.NewSessionID()), Limits{MinFree: 1 << 60}, func(string) {})
	if b.room() == nil {
		t.Fatal("there is room: the test shows nothing")
	}
	b.minFree = 1
	if now, _ := b.trouble(); now != "" {
		t.Errorf("still: %s", now)
	}
}

// A teammate that has left the memory is still found by its own name, without its team,
// and a remote agent by its session elsewhere.
func TestEvictedNames(t *testing.T) {
	end := time.Now().Add(-time.Hour)
	r := open(t, "", func(c *Config) {
		c.Limits.HeldTasks = 8
		if err := c.Place.Ensure(); err != nil {
			t.Fatal(err)
		}
		log, err := journal.Open(c.Place.DB(), journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 30 {
			rec := task.Record{ID: task.NewID(task.LocalBash), Run: task.NewRunID(), Kind: task.LocalBash, Status: task.Completed, Session: c.Place.ID(),
				CreateTime: end, EndTime: &end}
			switch n {
			case 0:
				rec.Name, rec.Team = "mate@crew", &task.Team{AgentID: "mate@crew", Name: "mate", Team: "crew"}
			case 1:
				rec.Progress = &task.Progress{Remote: &task.RemoteSession{ID: "cse_elsewhere"}}
			}
			if _, err := log.Append(t.Context(), task.Entry{Verb: task.Complete, At: end, Task: rec, Notice: &task.Notice{Run: rec.Run, Task: rec.ID, Acked: true}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	})
	held := 0
	for range r.sup.List(0) {
		held++
	}
	if held > 8 {
		t.Fatalf("%d in memory: the test shows nothing", held)
	}
	for _, ref := range []string{"mate", "cse_elsewhere"} {
		if got, err := r.Get(r.ctx, ref); err != nil {
			t.Errorf("%s: %+v, %v", ref, got.ID, err)
		}
	}
}

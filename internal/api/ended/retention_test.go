package ended

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// The rule of retention: what ended first goes first, and what lives never goes,
// though it counts.
func TestOverdue(t *testing.T) {
	now := time.Now()
	ago := func(hours int, bytes int64) Session {
		return Session{End: now.Add(-time.Duration(hours) * time.Hour), Bytes: bytes}
	}
	alive := Session{Bytes: 50, live: true}
	all := []Session{ago(3, 10), alive, ago(1, 20), ago(9, 30)}
	for name, c := range map[string]struct {
		keep options.Retention
		want []int64 // the bytes of those that go, in order
	}{
		"all":       {options.Retention{}, nil},
		"age":       {options.Retention{Age: 2 * time.Hour}, []int64{30, 10}},
		"young":     {options.Retention{Age: 10 * time.Hour}, nil},
		"size":      {options.Retention{Bytes: 81}, []int64{30}},
		"exactly":   {options.Retention{Bytes: 80}, []int64{30}},
		"fits":      {options.Retention{Bytes: 110}, nil},
		"never":     {options.Retention{Bytes: 1}, []int64{30, 10, 20}},
		"both":      {options.Retention{Age: 8 * time.Hour, Bytes: 75}, []int64{30, 10}},
		"youngsize": {options.Retention{Age: 100 * time.Hour, Bytes: 75}, []int64{30, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int64
			for _, p := range overdue(all, c.keep, now) {
				got = append(got, p.Bytes)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v go, want %v", got, c.want)
			}
		})
	}
}

// A session that owes a notification goes only at a word, and that is said; one that was
// opened meanwhile, or is open, stays.
func TestRemovePast(t *testing.T) {
	root := home.At(filepath.Join(t.TempDir(), "state"))
	place := root.Project(t.TempDir()).Session(task.NewSessionID())
	if err := place.Ensure(); err != nil {
		t.Fatal(err)
	}
	log, err := journal.Open(place.DB(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := task.Record{ID: task.NewID(task.LocalBash), Run: task.NewRunID(), Kind: task.LocalBash, Status: task.Completed, Session: place.ID(), Owner: place.ID()}
	notification := &lifecycle.Notification{Run: r.Run, Task: r.ID, Owner: r.Owner}
	if _, err := log.Append(t.Context(), lifecycle.Entry{Verb: task.Complete, At: time.Now(), Task: r, Notification: notification}); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(-time.Hour)
	describe := func(started time.Time) {
		t.Helper()
		data, err := json.Marshal(control.Info{Session: place.ID(), StartTime: started, EndTime: &end, DiskBytes: 10})
		if err == nil {
			err = home.WriteAtomic(place.InfoFile(), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	describe(end.Add(-time.Hour).UTC())
	past := func() Session {
		t.Helper()
		over, err := Overdue(root, "", options.Retention{Age: time.Minute}, time.Now())
		if err != nil || len(over) != 1 {
			t.Fatalf("%d overdue, %v", len(over), err)
		}
		return over[0]
	}
	expect := func(p Session, owing bool, kept bool, owed int) {
		t.Helper()
		got, err := p.Remove(t.Context(), owing)
		_, gone := os.Lstat(place.Dir())
		if err != nil || (got.Kept != "") != kept || got.Owed != owed || (gone != nil) == kept {
			t.Errorf("%+v, %v, folder: %v", got, err, gone)
		}
	}
	old := past()
	describe(end.Add(-time.Minute).UTC())
	expect(old, true, true, 0)
	unlock, err := place.Lock()
	if err != nil {
		t.Fatal(err)
	}
	expect(past(), true, true, 0)
	unlock()
	expect(past(), false, true, 1)
	expect(past(), true, false, 1)
}

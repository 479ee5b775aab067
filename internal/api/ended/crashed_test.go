package ended

import (
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// crashed makes a session whose host has died, with a task.
func crashed(t *testing.T, info control.Info, r task.Record) home.Session {
	t.Helper()
	place := home.At(filepath.Join(t.TempDir(), "state")).Project(t.TempDir()).Session(task.NewSessionID())
	err := place.Ensure()
	if err == nil {
		var log *journal.Journal
		if log, err = journal.Open(place.DB(), journal.Options{}); err == nil {
			_, err = log.Append(t.Context(), lifecycle.Entry{Verb: task.Create, At: time.Now(), Task: r})
			err = errors.Join(err, log.Close())
		}
	}
	info.Session = place.ID()
	data, jsonErr := json.Marshal(info)
	if err = errors.Join(err, jsonErr); err == nil {
		err = home.WriteAtomic(place.InfoFile(), data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return place
}

// A session whose host died is as old as the last that it wrote, which stands in the
// file beside its log first.
func TestAgeOfCrashed(t *testing.T) {
	place := crashed(t, control.Info{StartTime: time.Now()}, task.Record{ID: task.NewID(task.LocalBash), Run: task.NewRunID(), Kind: task.LocalBash, Status: task.Pending})
	long := time.Now().Add(-1000 * time.Hour)
	err := os.Chtimes(place.DB(), long, long)
	if err == nil {
		err = os.WriteFile(place.DB()+"-wal", nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	past, ok := look(place)
	if !ok || past.live || time.Since(past.End) > time.Hour {
		t.Errorf("it counts as ended at %s (%v)", past.End, ok)
	}
}

// A session of which cannot be seen whether something of it is still at work stays.
func TestRemoveUnreadable(t *testing.T) {
	r := task.Record{ID: task.NewID(task.LocalBash), Run: task.NewRunID(), Kind: task.LocalBash, Status: task.Pending, Keep: true}
	place := crashed(t, control.Info{StartTime: time.Now()}, r)
	db, err := sql.Open("sqlite", place.DB())
	if err == nil {
		_, err = db.Exec("UPDATE events SET record = x'ff'")
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	past, ok := look(place)
	if !ok {
		t.Fatal("it is not seen")
	}
	if got, err := past.Remove(t.Context(), true); err == nil && got.Kept == "" {
		t.Error("it was removed")
	}
}

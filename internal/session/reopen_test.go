package session

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/snapshot"
	"github.com/drover-dev/drover/task"
)

// A host that opens a session with many ended tasks reads few of them, and has all:
// listed, found by ID and name, read; names and IDs are given once. So it is also
// with what came behind the summary, and where a host died without another.
func TestManyEnded(t *testing.T) {
	r := open(t, "")
	r.close() // it was void, and is gone
	if err := r.cfg.Place.Ensure(); err != nil {
		t.Fatal(err)
	}
	log, err := journal.Open(r.cfg.Place.DB(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	var ids []task.ID
	add := func(n int) {
		rec := task.Record{ID: task.ID(fmt.Sprintf("b%08d", n)), Run: task.NewRunID(), Kind: task.LocalBash, Status: task.Pending, Name: fmt.Sprint("n", n),
			Session: r.cfg.Info.Session, CreateTime: now, Command: "true", Cwd: r.folder, OutputFile: filepath.Join(r.cfg.Place.Tasks(), fmt.Sprintf("b%08d.output", n))}
		ids = append(ids, rec.ID)
		_, err := log.Append(t.Context(), lifecycle.Entry{Verb: task.Create, At: now, Task: rec})
		if rec.Status, rec.EndTime = task.Completed, &now; err == nil {
			_, err = log.Append(t.Context(), lifecycle.Entry{Verb: task.Complete, At: now, Task: rec})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := range 3 * snapshot.MinInMemory {
		add(n)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	summarized := func() task.Seq {
		t.Helper()
		log, err := journal.Open(r.cfg.Place.DB(), journal.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		upTo, _, err := log.Summary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return upTo
	}
	check := func(held int) {
		t.Helper()
		n := 0
		for range r.sup.List(0) {
			n++
		}
		if n != held {
			t.Errorf("%d are in memory, not %d", n, held)
		}
		page, err := r.List(r.ctx, control.ListRequest{All: true})
		if err != nil {
			t.Fatal(err)
		}
		var listed []task.ID
		for _, one := range page.Tasks {
			listed = append(listed, one.ID)
		}
		slices.Reverse(listed)
		if !slices.Equal(listed, ids) {
			t.Errorf("%d are listed of %d", len(listed), len(ids))
		}
		for _, ref := range []string{"b00000003", "n4", "b0000000"} {
			got, err := r.Get(r.ctx, ref)
			if ref == "b0000000" {
				if err == nil {
					t.Errorf("Get(%s) = %s, and ten begin with it", ref, got.ID)
				}
				continue
			}
			if want := task.ID("b0000000" + ref[len(ref)-1:]); err != nil || got.ID != want || got.Status != task.Completed {
				t.Errorf("Get(%s): %+v, %v", ref, got, err)
			}
		}
	}
	r.reopen() // there is no summary yet
	check(snapshot.MinInMemory)
	r.close()
	if upTo := summarized(); upTo != 6*snapshot.MinInMemory {
		t.Fatalf("there is a summary up to %d", upTo)
	}
	r.reopen()
	check(snapshot.MinInMemory)
	rec, err := r.RunCommand(r.ctx, control.StartRequest{Name: "n3", Cwd: r.folder, Shell: &control.ShellRequest{Line: "true"}}, shell.Client{})
	if got, found := r.Get(r.ctx, "n3"); err != nil || found != nil || rec.Name != "n3" || got.ID != rec.ID {
		t.Errorf("the newest is called %s, %v, and its name means %s, %v", rec.Name, err, got.ID, found)
	}
	ids = append(ids, rec.ID)
	r.close()
	if upTo := summarized(); upTo != 6*snapshot.MinInMemory {
		t.Errorf("a summary was written for one task, up to %d", upTo)
	}
	r.reopen()
	if page, err := r.List(r.ctx, control.ListRequest{All: true}); err != nil || len(page.Tasks) != len(ids) || page.Tasks[0].ID != rec.ID {
		t.Errorf("%d are listed of %d, %v", len(page.Tasks), len(ids), err)
	}
	check(snapshot.MinInMemory + 1)
	all, live := r.sup.Ended()
	ended := slices.Collect(all)
	if len(ended) != len(ids) || len(live) != 0 || ended[0].ID != ids[0] || ended[0].Runs != 1 {
		t.Errorf("for the next: %d ended, %d live", len(ended), len(live))
	}
}

package archive

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Whoever asks for what a damaged record says is told of the damage and how it is
// fixed, in whatever way he asks.
func TestDamaged(t *testing.T) {
	l := leave(t)
	for _, id := range []task.ID{"b00000001", "b00000002"} {
		l.task(task.Record{ID: id, Command: "true"}, "", begun(dead(t), lifecycle.Change{Verb: task.Complete})...)
	}
	a := l.open()
	db, err := sql.Open("sqlite", l.place.DB())
	if err == nil {
		_, err = db.Exec("UPDATE events SET record = replace(CAST(record AS TEXT), 'true', 'tru3') WHERE task_id = 'b00000001'")
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	_, page := a.List(t.Context(), control.ListRequest{All: true, Limit: 10})
	_, all := a.List(t.Context(), control.ListRequest{All: true})
	_, one := a.Get(t.Context(), "b00000001")
	_, prefix := a.Get(t.Context(), "b0000000")
	for what, err := range map[string]error{"a page": page, "all": all, "one": one, "one of all": prefix} {
		if !errors.Is(err, journal.ErrDamaged) || !strings.Contains(err.Error(), "sessions repair") {
			t.Errorf("%s: %v", what, err)
		}
	}

	// Who names another task by its whole ID is not hindered: only its record is read.
	if r, err := a.Get(t.Context(), "b00000002"); err != nil || r.Status != task.Completed {
		t.Errorf("a sound one: %+v, %v", r, err)
	}
	if r, err := a.Wait(t.Context(), control.WaitRequest{Refs: []string{"b00000002"}}); err != nil || len(r.Tasks) != 1 {
		t.Errorf("waiting for a sound one: %+v, %v", r, err)
	}
	if _, err := a.Output(t.Context(), control.OutputRequest{Ref: "b00000002"}); err != nil {
		t.Errorf("output of a sound one: %v", err)
	}
	if _, err := a.Result(t.Context(), control.ResultRequest{Ref: "b00000002"}); err != nil {
		t.Errorf("result of a sound one: %v", err)
	}
}

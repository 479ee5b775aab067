package host

import (
	"os"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// What a power cut has left of a session is listed if there is anything in it.
func TestUndescribed(t *testing.T) {
	event := func(t *testing.T, place home.Session) {
		j, err := journal.Open(place.DB(), journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.Append(t.Context(), lifecycle.Entry{Verb: task.Create, Task: task.Record{ID: "b00000001", Session: place.ID()}}); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	put := func(path func(home.Session) string, text string) func(*testing.T, home.Session) {
		return func(t *testing.T, place home.Session) {
			if err := os.WriteFile(path(place), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	info := func(text string) func(*testing.T, home.Session) { return put(home.Session.InfoFile, text) }
	held := func(t *testing.T, place home.Session) {
		unlock, err := place.Lock()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(unlock)
	}
	for name, c := range map[string]struct {
		left   []func(*testing.T, home.Session)
		listed bool
	}{
		"gone":          {[]func(*testing.T, home.Session){event}, true},
		"empty":         {[]func(*testing.T, home.Session){event, info("")}, true},
		"zeros":         {[]func(*testing.T, home.Session){event, info(strings.Repeat("\x00", 400))}, true},
		"torn":          {[]func(*testing.T, home.Session){event, info(`{"session_id": "s0`)}, true},
		"damaged log":   {[]func(*testing.T, home.Session){info(""), put(home.Session.DB, "no database")}, true},
		"conversation":  {[]func(*testing.T, home.Session){put(home.Session.DB, ""), put(home.Session.Transcript, "{}\n")}, true},
		"being made":    {[]func(*testing.T, home.Session){event, held}, false},
		"never began":   {nil, false},
		"never had any": {[]func(*testing.T, home.Session){put(home.Session.DB, "")}, false},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			d := directory(t, "")
			place := d.Project().Session("s00000001")
			if err := place.Ensure(); err != nil {
				t.Fatal(err)
			}
			for _, left := range c.left {
				left(t, place)
			}
			entries, err := d.Sessions(t.Context(), false, true)
			if err != nil || len(entries) == 1 != c.listed {
				t.Fatalf("Sessions = %+v, %v", entries, err)
			}
			if !c.listed {
				return
			}
			if i := entries[0].Info; !i.Damaged || i.Live || i.Session != place.ID() || i.Project != d.Project().Folder() || i.Dir != place.Dir() || i.StartTime.IsZero() {
				t.Errorf("it is described as %+v", i)
			}
			if live, err := d.Sessions(t.Context(), true, true); err != nil || len(live) != 0 {
				t.Errorf("among those that live: %+v, %v", live, err)
			}
		})
	}
}

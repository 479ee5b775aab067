package tui

import (
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Below an answer stands how long the turn took and what ran when it ended, also where that
// becomes known later; it does not change with what happens after, and a short turn that
// leaves nothing running has no such line.
func TestTurnLine(t *testing.T) {
	turn := func(u *user, took time.Duration, while ...func()) {
		u.hear(begin("go"), says("Done."))
		u.pass(took)
		for _, f := range while {
			f()
		}
		u.hear(control.Piece{Kind: control.EndPiece})
	}
	background := func(u *user, id task.ID) { u.event(task.Create, u.command(id, true)) }
	u := start(t, 80, 24)
	u.hear(opened())
	turn(u, time.Second)
	u.sees("Done.")
	u.misses("1.0s")
	turn(u, 12*time.Second)
	u.sees("● Done.", "  12s\n")
	turn(u, time.Second, func() { background(u, "b1") })
	u.sees("  1.0s · 1 task still runs")

	late := u.command("b2", true) // its event comes after the end of the turn
	turn(u, 3*time.Second)
	u.sees("  3.0s · 1 task still runs")
	u.event(task.Create, late)
	u.sees("  3.0s · 2 tasks still run")

	u.pass(time.Second)
	at := u.at
	late.Status, late.EndTime = task.Completed, &at
	u.event(task.Complete, late)
	background(u, "b3")
	u.sees("  3.0s · 2 tasks still run")
	if n := strings.Count(u.screen(), "still run"); n != 2 {
		t.Errorf("%d lines:\n%s", n, u.screen())
	}
	slow := u.command("b5", true) // it is created in the turn, and begins to run behind it
	turn(u, time.Second)
	u.pass(time.Second)
	later := u.at
	slow.StartTime = &later
	u.event(task.Create, slow)
	u.sees("  1.0s · 3 tasks still run")
	slow.Status, slow.EndTime = task.Completed, &later
	u.event(task.Complete, slow)

	listing := u.command("b4", true) // what a listing tells, as no event has
	u.pass(time.Second)
	turn(u, time.Second)
	u.tell(listed{list: []task.Record{listing}})
	u.sees("  1.0s · 3 tasks still run")

	u.hear(control.Piece{Kind: control.EndPiece}) // of a turn whose begin was left out
	if n := strings.Count(u.screen(), "still run"); n != 3 {
		t.Errorf("%d lines:\n%s", n, u.screen())
	}
}

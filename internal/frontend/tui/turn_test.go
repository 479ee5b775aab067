package tui

import (
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Below an answer stands how long the turn took and what ran when it ended. It does not change with what happens
// after, and a short turn that leaves nothing running has no such line.
func TestTurnLine(t *testing.T) {
	turn := func(u *user, took time.Duration, running int) {
		u.hear(begin("go"), says("Done."))
		u.pass(took)
		u.hear(control.Piece{Kind: control.EndPiece, Running: running})
	}
	u := start(t, 80, 24)
	u.hear(opened())
	turn(u, time.Second, 0)
	u.sees("Done.")
	u.misses("1.0s")
	turn(u, 12*time.Second, 0)
	u.sees("● Done.", "  12s\n")
	turn(u, time.Second, 1)
	u.sees("  1.0s · 1 task still runs")
	turn(u, 3*time.Second, 2)
	u.event(task.Create, u.command("b3", true))
	u.sees("  3.0s · 2 tasks still run")
	u.hear(control.Piece{Kind: control.EndPiece, Running: 1}) // of a turn whose begin was left out
	if n := strings.Count(u.screen(), "still run"); n != 2 {
		t.Errorf("%d lines:\n%s", n, u.screen())
	}
}

package process_test

import (
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/test/racetest"
	"github.com/drover-dev/drover/test/waittest"
)

// A shell that does nothing but fork is stopped and continued, and comes to its end.
func TestFreezeGroup(t *testing.T) {
	for range racetest.Rounds(150) {
		g, err := process.StartGroup(process.Command{
			Args: []string{"bash", "-c", "for ((i = 0; i < 20; i++)); do (:); done"}, Env: []string{},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := process.FreezeGroup(g.Identity()); err != nil {
				t.Fatal(err)
			}
			if !g.Ended() && !process.Stopped(g.Identity()) {
				t.Error("the leader does not stand still")
			}
			if err := process.ThawGroup(g.Identity()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := g.Wait(waittest.Context(t, 10*time.Second)); err != nil {
			t.Error("a child stays stopped:", err)
			g.End(t.Context(), process.Ending{})
		}
		g.Reap()
		g.Close()
	}
}

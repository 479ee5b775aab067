package keeper_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// nested are the families of TestInnerHost: of the host around, and of the inner one.
func nested() map[string]map[string]string {
	bare := "env -u DROVER_TASK_ID -u DROVER_SESSION -u DROVER_HOST " + process.MarkKeeper + "=" + process.Detached + " " + envName + "=$" + envName + "-inner"
	start := bare + " setsid " + os.Args[0] + " keeper & "
	deaf := "trap '' TERM; echo deaf $$; while :; do sleep 0.1; done"
	return map[string]map[string]string{
		"left":    {"starter": start + "exit 0", "deaf": deaf},
		"stays":   {"starter": start + "echo starter $$; exec sleep 1000", "deaf": deaf},
		"claimed": {"starter": process.MarkKeeper + "=" + process.Detached + " setsid sh -c 'echo claims $$; exec sleep 1000' & echo starter $$; exec sleep 1000"},
		"inner":   {"plain": "echo innerplain $$; exec sleep 1000", "setsid": "setsid sh -c 'echo innersetsid $$; exec sleep 1000' & exec sleep 1000"},
	}
}

// A detached host that was started inside a task does not end with the host around
// it, whether who has started it goes on or not. Who only carries its mark does.
func TestInnerHost(t *testing.T) {
	inner := []string{"inner", "innerplain", "innersetsid"}
	for then, goes := range map[string][]string{"left": {"deaf"}, "stays": {"starter", "deaf"}, "claimed": {"starter", "claims"}} {
		for _, form := range []string{"parent", "helper"} {
			t.Run(form+"-"+then, func(t *testing.T) {
				dir := t.TempDir()
				t.Setenv("TEST_DIR", dir)
				args := []string{"host", "helper", dir, then}
				if form == "parent" {
					args = []string{"parent", dir, then}
				}
				names := append([]string{then}, goes...)
				if then != "claimed" {
					names = append(names, inner...)
				}
				g, ids, lines, _ := cast(t, names, args...)
				if err := syscall.Kill(ids[then].PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				limit := deadline(t, goneWait)
				for _, n := range append(goes, then) { // the deaf one goes last of all
					gone(t, limit, n, ids[n])
				}
				if then == "claimed" {
					return
				}
				for _, n := range inner {
					if !process.Alive(ids[n]) {
						t.Errorf("%s was ended", n)
					}
				}
				if err := syscall.Kill(ids["inner"].PID, syscall.SIGKILL); err != nil { // its own keeper ends it all
					t.Fatal(err)
				}
				limit = deadline(t, goneWait)
				for _, n := range inner {
					gone(t, limit, n, ids[n])
				}
				if form == "helper" {
					return
				}
				if exit, err := g.Wait(deadline(t, 20*time.Second)); err != nil || exit.Code != 0 {
					t.Errorf("keeper: %+v, %v", exit, err)
				}
				said := ""
				for lines.Scan() {
					said += lines.Text() + "\n"
				}
				if strings.Count(said, "host-exit -1 SIGKILL") != 2 {
					t.Errorf("the keepers said %q", said)
				}
			})
		}
	}
}

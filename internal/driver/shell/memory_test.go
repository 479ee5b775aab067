package shell

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// The kernel is blamed for what it may have done, and with the doubt that there is.
func TestBlame(t *testing.T) {
	killed, exited := child.Verdict(-1, "SIGKILL"), child.Verdict(137, "")
	for name, c := range map[string]struct {
		err    error
		found  process.Evidence
		reason task.Reason
		error  string
		detail string
	}{
		"sure":        {killed, process.InGroup, task.ReasonOutOfMemory, "ended by SIGKILL: the kernel ended it for want of memory", "the kernel ended it for want of memory"},
		"perhaps":     {killed, process.OnMachine, task.ReasonOutOfMemory, "ended by SIGKILL: probably the kernel ended it for want of memory", "probably the kernel ended it for want of memory"},
		"no":          {killed, process.NoEvidence, task.ReasonSignal, "ended by SIGKILL", ""},
		"child":       {exited, process.InGroup, task.ReasonExit, "exit code 137: the kernel ended a process of it for want of memory", "the kernel ended a process of it for want of memory"},
		"child-maybe": {exited, process.OnMachine, task.ReasonExit, "exit code 137: probably the kernel ended a process of it for want of memory", "probably the kernel ended a process of it for want of memory"},
		"terminal":    {lostTerminal(), process.InGroup, task.ReasonTerminalLost, lostTerminal().Error(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := blame(c.err, c.found)
			var fail *task.FailError
			if !errors.As(err, &fail) || fail.Reason != c.reason || fail.Detail != c.detail || err.Error() != c.error {
				t.Errorf("got %+v", err)
			}
		})
	}
	if err := blame(nil, process.InGroup); err != nil {
		t.Errorf("a good end became %v", err)
	}
}

// What was counted since the start, or some seconds before an end, is compared, by one
// count a second at most, however many commands begin.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now process.Kills
		reads := 0
		c := &caps{memory: memory{read: func() process.Kills { reads++; return now }, inside: func(int) bool { return true }}}
		x := &capped{kills: []process.Kills{c.memory.recent()}}
		for range 100 {
			c.memory.recent()
		}
		if reads != 1 {
			t.Errorf("%d counts at one moment", reads)
		}
		c.all = map[*capped]struct{}{x: {}}
		look := func() {
			time.Sleep(capsEvery)
			c.measure()
		}
		judged := func(want process.Evidence, when string) {
			t.Helper()
			for _, e := range []process.Exit{{Code: -1, Signal: 9}, {Code: 137}} {
				if got := c.starved(x, e); got != want {
					t.Errorf("%s: %+v is judged %d, want %d", when, e, got, want)
				}
			}
			for _, e := range []process.Exit{{Code: -1, Signal: 15}, {Code: 9}, {}} {
				if got := c.starved(x, e); got != process.NoEvidence {
					t.Errorf("%s: %+v is judged %d", when, e, got)
				}
			}
		}
		judged(process.NoEvidence, "before")
		now.Group++
		judged(process.InGroup, "at once")
		for i := range keptCounts - 1 { // looks fall between the kill and the news of it
			look()
			judged(process.InGroup, fmt.Sprintf("%d looks later", i+1))
		}
		look()
		judged(process.NoEvidence, "long afterwards")
		now.Machine++ // another container
		judged(process.NoEvidence, "elsewhere")
	})
}

// The processes of commands are counted when one may have passed the limit, and not
// each second on a machine that has many.
func TestDue(t *testing.T) {
	c := &processLimit{most: 100}
	steps := []struct {
		all     int // 0: the machine has fewer than the limit
		due     bool
		largest int
	}{
		{0, false, 0},
		{0, false, 0},
		{500, true, 30},  // for the first time
		{510, false, 0},  // nobody can have got to 100
		{569, false, 0},  // 69 more
		{570, true, 95},  // 70 more
		{574, false, 0},  // only 4 more
		{575, true, 99},  // 5 more
		{0, false, 0},    // all have gone, and come again
		{576, true, 100}, // the limit itself is allowed
		{576, false, 0},
		{577, true, 0},
	}
	for i, s := range steps {
		if got := c.due(s.all); got != s.due {
			t.Fatalf("step %d: due %v with %d", i, got, s.all)
		}
		if s.due {
			c.counted(s.all, s.largest)
		}
	}
	looks := 1
	for ; !c.due(577); looks++ { // others may end while one multiplies
		if looks > 1000 {
			t.Fatal("never counted again")
		}
	}
	if looks != countLooks {
		t.Errorf("counted again after %d looks", looks)
	}
}

func TestGraceOfProcesses(t *testing.T) {
	crowded := fmt.Errorf("run: %w", &task.FailError{Reason: task.ReasonProcessLimit, Err: errors.New("too many")})
	full := &task.FailError{Reason: task.ReasonOutputLimit, Err: errors.New("too much")}
	if graceOf(crowded) != 0 || graceOf(full) != child.Grace {
		t.Errorf("%v and %v", graceOf(crowded), graceOf(full))
	}
}

package shell

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// keptCounts is how many of the counts of memory a command is judged by: those of the
// last four or five seconds. The kernel counts first, writes its report to consoles
// that may be slow, and only then lets the process go.
const keptCounts = 5

// memory counts the processes that the kernel has ended for want of memory. Who is
// ended so sees a SIGKILL like any other: only the count tells.
type memory struct {
	read   func() process.Kills
	inside func(pid int) bool // see [process.KillCounter.Inside]
	last   process.Kills
	at     time.Time // of last
}

// recent is a count that is not older than a look.
func (m *memory) recent() process.Kills {
	if time.Since(m.at) > capsEvery {
		m.next()
	}
	return m.last
}

func (m *memory) next() process.Kills {
	m.last, m.at = m.read(), time.Now()
	return m.last
}

// starved says whether the kernel has ended a command for want of memory, or a
// process of it, whose end its shell then passes on as 128+9. The leader must not be
// reaped yet. If the kernel has ended somebody else in the same seconds, the blame may
// be wrong.
func (c *caps) starved(x *capped, e process.Exit) process.Evidence {
	if e.Signal != syscall.SIGKILL && e.Code != 128+int(syscall.SIGKILL) {
		return process.NoEvidence
	}
	c.mu.Lock()
	before := x.kills[0]
	c.mu.Unlock()
	return c.memory.read().Since(before, c.memory.inside(x.leader.PID))
}

// blame adds to the verdict on a command the evidence from the kernel.
func blame(err error, found process.Evidence) error {
	var fail *task.FailError
	if found == process.NoEvidence || !errors.As(err, &fail) {
		return err
	}
	told := task.FailError{Reason: fail.Reason}
	switch fail.Reason {
	case task.ReasonSignal:
		told.Reason, told.Detail = task.ReasonOutOfMemory, "the kernel ended it for want of memory"
	case task.ReasonExit:
		told.Detail = "the kernel ended a process of it for want of memory"
	default:
		return err
	}
	if found == process.OnMachine {
		told.Detail = "probably " + told.Detail
	}
	told.Err = fmt.Errorf("%w: %s", fail.Err, told.Detail)
	return &told
}

package shell_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// A command with too many processes is ended with all of them, wherever they are, and
// is not asked first; the one beside it goes on.
func TestProcessLimit(t *testing.T) {
	if process.CountAbove(1) == 0 {
		t.Skip("this system does not tell how many processes it has")
	}
	const many = 60
	d := shell.New(shell.Config{MaxProcesses: 40})
	for name, line := range map[string]string{
		"group":   "sleep 1000 & ",
		"session": "setsid -f sleep 1000; ",
		"deaf":    "(trap '' TERM; sleep 1000; sleep 1000) & ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, shown := range []bool{false, true} {
				c := client()
				var out bytes.Buffer
				if shown {
					c.Tee = &shell.Tee{Stdout: &out, Stderr: &out}
				}
				small := newHost(t, shell.Command{Line: "for i in $(seq 20); do sleep 1000 & done; wait"})
				stop, joinSmall := launch(t, d.For(client()), small)
				<-small.begun
				h := newHost(t, shell.Command{Line: fmt.Sprintf("for i in $(seq %d); do %sdone >/dev/null 2>&1; sleep 1000", many, line)})
				h.limit = 1 << 30
				_, join := launch(t, d.For(c), h)
				res, err := join()
				if reason(err) != task.ReasonProcessLimit || !strings.Contains(err.Error(), "more than tasks.maxProcesses, 40") {
					t.Errorf("ended with %v", err)
				}
				if len(res.Signals) != 1 || res.Signals[0].Signal != "SIGKILL" || len(res.Left) > 0 {
					t.Errorf("result %+v", res)
				}
				alone(t, h)
				stop(&task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}})
				if _, err := joinSmall(); !errors.Is(err, task.ErrStopRequested) {
					t.Errorf("the one beside it: %v", err)
				}
			}
		})
	}
}

// Without a limit, and below it, nobody is ended.
func TestNoProcessLimit(t *testing.T) {
	for _, most := range []int{0, 1000} {
		h := newHost(t, shell.Command{Line: "for i in $(seq 60); do sleep 2.5 & done; wait"})
		_, join := launch(t, shell.New(shell.Config{MaxProcesses: most}).For(shell.Client{Env: os.Environ()}), h)
		if _, err := join(); err != nil {
			t.Errorf("limit %d: %v", most, err)
		}
	}
}

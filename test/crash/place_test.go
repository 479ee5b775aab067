//go:build linux

package crash

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/test/harness"
)

// place is a place with fail points.
type place struct {
	*harness.Place
	faults  *faults
	witness *exec.Cmd // is nobody's business, and must live to the end
}

// newPlace makes a place in which the program stops at the named fail points.
func newPlace(t testing.TB, bin string, seed int64, points ...string) *place {
	t.Helper()
	p := &place{Place: harness.New(t, bin)}
	socket := filepath.Join(p.Sockets, "faults")
	var err error
	p.faults, err = listen(socket, seed)
	p.Must(err)
	if seed != 0 {
		points = []string{"*"}
	}
	p.Env = append(p.Env, "DROVER_FAULT="+strings.Join(points, ","), "DROVER_FAULT_SOCKET="+socket)
	p.witness = exec.Command("sleep", "100000")
	p.witness.Env, p.witness.Dir = p.Env, p.Dir
	p.witness.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Must(p.witness.Start())
	t.Cleanup(p.end)
	return p
}

// end ends the place, the last of all its witness.
func (p *place) end() {
	p.faults.letGo()
	p.End(harness.Patience, p.witness.Process.Pid)
	p.faults.close()
	_ = p.witness.Process.Kill()
	if p.witness.Wait() != nil && p.witness.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		p.Errorf("a process that was nobody's business: %s", p.witness.ProcessState)
	}
}

// procs are the live processes of the place with a text in their command line, but for
// the witness.
func (p *place) procs(text string) []harness.Proc {
	return slices.DeleteFunc(p.Procs(text), func(x harness.Proc) bool { return x.PID == p.witness.Process.Pid })
}

// ofTasks are the processes of tasks.
func (p *place) ofTasks() []harness.Proc {
	return slices.DeleteFunc(p.procs(""), func(x harness.Proc) bool { return x.Task == "" || x.Role() == "host" || x.Role() == "keeper" })
}

// shown is a task as a face shows it.
type shown struct {
	ID       string `json:"task_id"`
	Name     string `json:"name"`
	Status   string `json:"status"`
	Stopping bool   `json:"stopping"`
	ExitCode *int   `json:"exit_code"`
	Cause    *struct {
		Actor  string `json:"actor"`
		Reason string `json:"reason"`
	} `json:"cause"`
}

func (s shown) ended() bool { return s.Status != "pending" && s.Status != "running" }

// String is the status, and of an end the reason and the exit code.
func (s shown) String() string {
	out := s.Status
	if s.Cause != nil {
		out += ":" + s.Cause.Reason
	}
	if s.ExitCode != nil && *s.ExitCode >= 0 && s.Status != "killed" {
		out += fmt.Sprintf(":%d", *s.ExitCode)
	}
	return out
}

// tasks are those that ps shows, by their IDs.
func (p *place) tasks() map[string]shown {
	p.Helper()
	var list []shown
	p.Read(&list, "ps", "-a", "--json")
	out := map[string]shown{}
	for _, s := range list {
		if _, twice := out[s.ID]; twice {
			p.Errorf("ps shows task %s twice", s.ID)
		}
		out[s.ID] = s
	}
	return out
}

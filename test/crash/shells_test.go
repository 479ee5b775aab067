//go:build linux

package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/waittest"
)

// way is how a step is come to, and what is looked at afterwards.
type way struct {
	lead    func(c *trial, n string)               // until the step is next; nil: nothing is to be done
	ask     func(c *trial, n string) *harness.Call // what leads into it
	restart func(c *trial) *harness.Call           // begins a next host
	recover func(c *trial)                         // has a next host do all that is left to do
	check   func(c *trial)
}

// plain waits for its pipe and ends with 7; deaf does not hear TERM.
const (
	plain = `echo $DROVER_TASK_ID >>ran; echo before; read x <go.$0; echo after; exit 7`
	deaf  = `trap "" TERM; ` + plain
)

func shellWay(lead func(*trial, string), ask func(*trial, string) *harness.Call) way {
	return way{lead: lead, ask: ask, restart: probe, recover: recoverShells, check: checkShells}
}

// begin asks for a task, in the background or in the foreground.
func begin(line string) func(c *trial, n string) *harness.Call {
	return func(c *trial, n string) *harness.Call {
		args := []string{"run", "-d", "--name", n}
		switch {
		case c.cell.front:
			args = []string{"run", "--name", n}
		case c.cell.keep:
			args = append(args, "--keep")
		}
		return c.face(append(args, "--", "sh", "-c", line, n)...)
	}
}

// running has a task at work and printing.
func running(line string) func(*trial, string) {
	return func(c *trial, n string) {
		f := begin(line)(c, n)
		if !c.cell.front {
			if err := f.Wait(); err != nil || f.Code() != 0 {
				c.Fatalf("%v %s", err, f)
			}
		}
		c.sees(n)
	}
}

func calls(words ...string) func(*trial, string) *harness.Call {
	return func(c *trial, n string) *harness.Call { return c.face(append(slices.Clone(words), n)...) }
}

// naturally lets a command end while somebody waits for it.
func naturally(c *trial, n string) *harness.Call {
	var f *harness.Call
	if c.cell.front {
		f = c.faces[len(c.faces)-1]
	} else {
		f = c.waits(n)
	}
	c.free(n)
	return f
}

// started asks for a task. Where the asker has his answer by then, somebody waits
// for the task, who can be killed in his place.
func started(c *trial, n string) *harness.Call {
	f := begin(plain)(c, n)
	if c.cell.front || c.cell.victim != "face" {
		return f
	}
	if err := f.Wait(); err != nil {
		c.Fatal(err)
	}
	return c.waits(n)
}

func probe(c *trial) *harness.Call { return c.Start("run", "-d", "--name", "probe", "--", "true") }

// recoverShells reads what the crash has left, begins a next host, and looks
// whether that says the same. Then everything that lives is let go on to its end.
func recoverShells(c *trial) {
	was := c.tasks()
	c.checkTrue()
	for _, args := range [][]string{{"run", "-d", "--name", "last", "--", "true"}, {"wait", "last"}} {
		c.Good(args...)
	}
	now := c.tasks()
	for id, old := range was {
		if got, there := now[id]; !there {
			c.Errorf("task %s (%s) was %s and is gone", id, old.Name, old)
		} else if old.ended() && got.String() != old.String() {
			c.Errorf("task %s (%s) was shown as %s and is %s", id, old.Name, old, got)
		}
	}
	c.checkTrue()
	for _, s := range now {
		if s.ended() || !slices.Contains(c.asked, s.Name) {
			continue
		}
		if !waittest.Until(harness.Patience, func() bool { return c.tryFree(s.Name) || c.tasks()[s.ID].ended() }) {
			c.Errorf("task %s is %s, and nobody waits at its pipe", s.Name, s)
		}
		if f := c.place.Run("wait", s.ID); f.Code() == 125 {
			c.Errorf("wait: %s", f)
		}
	}
}

// checkTrue compares what is shown with what there is: each process of a
// task that is said to run lives, and nothing else of a task does.
func (c *trial) checkTrue() {
	var last string
	if !waittest.Until(leaveLimit, func() bool { // a task may end between the two looks
		last = c.untrue()
		return last == ""
	}) {
		c.Error(last)
	}
}

func (c *trial) untrue() string {
	runs, now := map[string]bool{}, c.tasks()
	for _, r := range c.records() {
		if now[string(r.ID)].ended() || r.Process == nil {
			continue
		}
		runs[string(r.ID)] = true
		if !harness.Alive(r.Process.PID) {
			return fmt.Sprintf("task %s is said to run, and process %d has ended", r.Name, r.Process.PID)
		}
	}
	for _, x := range c.ofTasks() {
		if !runs[x.Task] {
			return fmt.Sprintf("process %d of task %s lives, and the task is not said to run: %s", x.PID, x.Task, x.Line)
		}
	}
	return ""
}

func checkShells(c *trial) {
	now := c.tasks()
	byName := map[string]shown{}
	for _, s := range now {
		byName[s.Name] = s
	}
	for _, n := range c.asked {
		got := "absent"
		if s, there := byName[n]; there {
			got = s.String()
			c.checkOutput(n, s)
		}
		want := wanted(c.cell)
		if !slices.Contains(want, got) {
			c.Errorf("task %s is %s, want %s", n, got, strings.Join(want, " or "))
		}
	}
	ran := c.ran()
	for id, times := range ran {
		if times > 1 {
			c.Errorf("task %s was begun %d times", id, times)
		}
		if _, known := now[id]; !known && !c.cell.front {
			c.Errorf("task %s has run, and nobody knows it", id)
		}
	}
	for _, f := range c.faces {
		c.checkFace(f, now)
	}
	if left := c.ofTasks(); len(left) > 0 {
		c.Errorf("left: %v", left)
	}
}

// checkOutput looks for gaps.
func (c *trial) checkOutput(n string, s shown) {
	want := "before\nafter\n"
	if s.String() != normal {
		return
	}
	for _, file := range glob(c.Work, "state/projects/*/*/tasks/"+s.ID+".output") {
		if data, err := os.ReadFile(file); err != nil || string(data) != want {
			c.Errorf("output of %s: %q, %v", n, data, err)
		}
	}
}

// checkFace holds what somebody was told to what is there.
func (c *trial) checkFace(f *harness.Call, now map[string]shown) {
	if err := f.Wait(); err != nil {
		c.Error(err)
		return
	}
	if c.doomed[f] || f.Args[0] == "logs" {
		return
	}
	detached := f.Args[0] == "run" && slices.Contains(f.Args, "-d")
	if detached && f.Code() == 0 {
		if _, there := now[f.Text()]; !there {
			c.Errorf("task %q was said to be started, and is not there", f.Text())
		}
	}
	if n := f.Args[len(f.Args)-1]; f.Args[0] == "stop" && f.Code() == 0 {
		for _, s := range now {
			if s.Name == n && !s.ended() {
				c.Errorf("task %s was said to be stopped, and is %s", n, s)
			}
		}
	}
	if f.Code() != 0 && strings.Count(f.Stderr(), "\n") > 1 {
		c.Errorf("more than a line on stderr: %s", f)
	}
	if strings.Contains(f.Stderr(), "panic") {
		c.Errorf("it panics: %s", f)
	}
}

// normal is the end of a command that nobody has hindered.
const normal = "failed:exit:7"

// wanted says how a task may have ended for which the victim of a cell was killed.
// For a cell that kills during recovery the first victim was the host.
func wanted(x cell) []string {
	n := x.step.number
	early, stop := n <= 2, n >= 10 && n <= 12
	victim := x.victim
	if x.when == "recovery" && victim != "child" {
		if out := ofHost(x, n, early, stop); victim != "keeper" || !x.keep {
			return out
		} else if slices.Contains(out, normal) { // nobody who has seen its exit is left
			return append(out, "killed:lost", "killed:keeper_lost")
		} else {
			return out
		}
	}
	switch victim {
	case "face":
		switch {
		case early:
			return []string{"absent", normal}
		case stop:
			return []string{"killed:stopped"}
		}
		return []string{normal}
	case "child":
		if stop {
			return []string{"killed:stopped", "failed:signal"}
		}
		return []string{"failed:signal"}
	case "keeper":
		out := []string{"killed:keeper_lost", "killed:closing", "failed:start"}
		switch {
		case n == 15:
			return []string{normal}
		case n >= 13:
			out = append(out, normal)
		case stop:
			out = append(out, "killed:stopped")
		case early:
			out = append(out, "absent")
		}
		if x.keep {
			out = append(out, normal, "killed:lost")
		}
		if x.keep && x.when == "twice" { // the first task, taken up again, may come to the step before the second
			out = append(out, "absent")
		}
		return out
	}
	return ofHost(x, n, early, stop)
}

func ofHost(x cell, n int, early, stop bool) []string {
	switch {
	case early:
		return []string{"absent"}
	case n == 15:
		return []string{normal}
	case !x.keep || n < 5:
		return []string{"killed:host_lost"}
	case stop: // which the next host finishes
		return []string{"killed:stopped"}
	case x.victim == "child":
		return []string{"failed:signal"}
	}
	return []string{normal}
}

// path is a file of the project.
func (c *trial) path(name string) string { return filepath.Join(c.Dir, name) }

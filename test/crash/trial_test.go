//go:build linux

package crash

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/test/a2atest"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/waittest"
)

// leaveLimit is how long what a dead host has left may stay. 2 s are promised; the
// rest is for a busy machine.
const leaveLimit = 12 * time.Second

// trial is one cell at work.
type trial struct {
	*place
	cell  cell
	model *model         // nil: the cell has no agent
	far   *a2atest.Agent // nil: it has no work elsewhere

	hit    string                 // which place was reached, and by whom
	asked  []string               // names of the tasks that were asked for
	faces  []*harness.Call        // that were called
	doomed map[*harness.Call]bool // those that were
	before string                 // what the logs said when the last victim was dead
	slow   time.Duration          // how long the slowest dead host has left something
	id     string                 // of the session of a prompt
}

// run goes through the cell.
func (c *trial) run() {
	c.doomed = map[*harness.Call]bool{}
	first := c.cell.victim
	if c.cell.when == "recovery" {
		first = "host"
	}
	c.round("t1", first, false)
	switch c.cell.when {
	case "twice":
		c.second()
	case "recovery":
		c.recovering()
	}
	c.before = c.state()
	c.cell.step.way.recover(c)
	c.cell.step.way.check(c)
	for _, f := range c.faces {
		if err := f.Wait(); err != nil {
			c.Error(err)
		}
	}
	c.checkLogs()
}

// second kills the same victim at the same step again: of the same task where it
// goes on, else of another that is asked for like the first.
func (c *trial) second() {
	x := c.cell
	switch {
	case x.keep && x.victim == "host" && slices.Contains([]string{"L8", "L11"}, x.step.id):
		c.round("t1", x.victim, true)
	case x.victim == "host" && (x.step.id == "A6" || x.keep && x.step.id == "L14"): // the next host comes to it by itself
		t := c.faults.arm("step", x.step.role, 0, x.step.point)
		f := probe(c)
		h := c.await(t, f)
		c.kill("host", h, f, "t1")
		h.release()
		c.aftermath("host", h, f, "t1")
	default:
		c.round("t2", x.victim, false)
	}
}

// round leads a task to the step and kills the victim there.
func (c *trial) round(n, victim string, again bool) {
	s := c.cell.step
	if !again {
		c.asked = append(c.asked, n)
		c.fifo(n)
		if s.way.lead != nil {
			s.way.lead(c, n)
		}
	}
	role := s.role
	if c.cell.front {
		role = "face"
	}
	var t *trap
	if s.point != "" {
		t = c.faults.arm("step", role, s.skip, s.point)
	}
	f := s.way.ask(c, n)
	var h hit
	if t != nil {
		h = c.await(t, f)
	} else {
		h = c.sees(n)
	}
	if c.cell.when == "recovery" {
		c.silence()
	}
	c.kill(victim, h, f, n)
	h.release()
	c.aftermath(victim, h, f, n)
}

// silence kills those who wait for a task or read along: they would begin the
// next host by themselves.
func (c *trial) silence() {
	for _, f := range c.faces {
		if f.Args[0] != "wait" && f.Args[0] != "logs" {
			continue
		}
		c.doomed[f] = true
		_ = f.Cmd.Process.Kill() // it may have ended
		if err := f.Wait(); err != nil {
			c.Fatal(err)
		}
	}
}

// await waits for a process to walk into a trap.
func (c *trial) await(t *trap, f *harness.Call) hit {
	c.Helper()
	late := time.NewTimer(harness.Patience)
	defer late.Stop()
	select {
	case h := <-t.hit:
		c.hit = h.Name + " by the " + h.Role
		return h
	case <-late.C:
	}
	says := "it is still at work"
	select {
	case <-f.Ended():
		says = f.String()
	default:
		_ = f.Cmd.Process.Kill()
	}
	c.Fatalf("nobody came to %q; drover %s: %s\nlogs: %s", t.names, strings.Join(f.Args, " "), says, c.state())
	return hit{}
}

// sees waits for the first output of a task.
func (c *trial) sees(n string) hit {
	c.Helper()
	if !waittest.Until(harness.Patience, func() bool {
		for _, r := range c.records() {
			if data, err := os.ReadFile(r.OutputFile); err == nil && r.Name == n && strings.HasPrefix(string(data), "before\n") {
				return true
			}
		}
		return false
	}) {
		c.Fatalf("task %s prints nothing", n)
	}
	if c.cell.keep { // until the keeper is told, the step is L6
		c.passed("command/watched", len(c.asked))
	}
	c.hit = "its output, seen in the file"
	h := hit{Role: "host"}
	for _, x := range c.procs("") {
		if x.Role() == "host" || c.cell.front && strings.Contains(x.Line, "drover run --name "+n) {
			h.PID = x.PID
		}
	}
	return h
}

// passed waits until hosts have come to a place so often.
func (c *trial) passed(point string, times int) {
	c.Helper()
	if !waittest.Until(harness.Patience, func() bool { return c.faults.times(point, "host") >= times }) {
		c.Fatalf("%s was not come to %d times", point, times)
	}
}

// waits calls drover wait, and returns when the host has heard of it.
func (c *trial) waits(ref string) *harness.Call {
	t := c.faults.arm("asked", "host", 0, "wait/read")
	f := c.face("wait", ref)
	h := c.await(t, f)
	h.release()
	return f
}

func glob(dir, pattern string) []string {
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		panic(err) // the pattern is wrong
	}
	return files
}

// face calls drover and remembers it.
func (c *trial) face(args ...string) *harness.Call {
	f := c.Start(args...)
	c.faces = append(c.faces, f)
	return f
}

// kill ends the victim by KILL.
func (c *trial) kill(victim string, h hit, f *harness.Call, n string) {
	c.Helper()
	pid := 0
	switch victim {
	case "host":
		pid = h.PID
	case "face":
		pid = f.Cmd.Process.Pid
		c.spared(f)
	case "keeper":
		pid = c.keeperOf(h.PID)
	case "child":
		for _, x := range c.ofTasks() {
			if strings.HasSuffix(x.Line, " "+n) {
				pid = x.PID
			}
		}
	}
	if pid == 0 {
		c.Fatalf("there is no %s to kill: %v", victim, c.procs(""))
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		c.Fatalf("kill the %s: %v", victim, err)
	}
	if victim == "face" { // whoever stands at the place is to find it gone
		if err := f.Wait(); err != nil {
			c.Fatal(err)
		}
	}
}

// spared takes a face that is killed off the list of those that must end well.
func (c *trial) spared(f *harness.Call) { c.doomed[f] = true }

func (c *trial) keeperOf(host int) int {
	for _, x := range c.procs("") {
		if x.Role() == "keeper" && (x.Parent == host || x.PID == harness.ParentOf(host)) {
			return x.PID
		}
	}
	return 0
}

// aftermath waits until what a death brings about by itself is done.
func (c *trial) aftermath(victim string, h hit, f *harness.Call, n string) {
	c.Helper()
	dead := time.Now()
	switch victim {
	case "host", "keeper":
		c.gone(h.PID, victim)
		if c.cell.keep {
			return
		}
		if !waittest.Until(leaveLimit, func() bool { return len(c.ofTasks()) == 0 }) {
			c.Errorf("left %s after the %s: %v", leaveLimit, victim, c.ofTasks())
		}
		c.slow = max(c.slow, time.Since(dead))
	case "child":
		if f := c.place.Run("wait", n); f.Code() == 0 {
			c.Errorf("a task whose process was killed ends well: %s", f)
		}
	}
}

// gone waits until a host has ended that has lost somebody, or its life.
func (c *trial) gone(host int, victim string) {
	c.Helper()
	if !waittest.Until(harness.Patience, func() bool { return !harness.Alive(host) }) {
		c.Fatalf("the host lives on without its %s", victim)
	}
}

// recovering kills the victim while the next host takes up what the last one left:
// in turn before it looks, when it has found a task, and when it has taken all in.
func (c *trial) recovering() {
	at := []string{"session/opened", "adopt/task", "session/shown"}
	if c.cell.victim == "child" { // it has one life
		at = at[:1]
	}
	for _, point := range at {
		if point == "adopt/task" && !c.live() {
			continue // nothing is left to be taken up
		}
		t := c.faults.arm("recovery", "host", 0, point)
		f := c.cell.step.way.restart(c)
		h := c.await(t, f)
		c.hit += ", again at " + point
		n := "t1"
		c.kill(c.cell.victim, h, f, n)
		h.release()
		switch c.cell.victim {
		case "face":
			c.gone(h.PID, "starter") // nobody has heard that it is there
			continue
		case "child":
			if f := c.place.Run("wait", n); f.Code() == 0 {
				c.Errorf("a task whose process was killed ends well: %s", f)
			}
			continue
		}
		c.aftermath(c.cell.victim, h, f, n)
		if err := f.Wait(); err != nil {
			c.Fatal(err)
		}
		if slices.ContainsFunc(c.procs(""), func(x harness.Proc) bool { return x.Role() == "host" }) {
			return // who asked has gone on with a further host, which has taken all up
		}
	}
}

// live reports whether a log has a task that has not ended.
func (c *trial) live() bool {
	for _, r := range c.records() {
		if !r.Status.Terminal() {
			return true
		}
	}
	return false
}

// fifo makes the pipe on which the command of a name waits.
func (c *trial) fifo(n string) {
	if err := syscall.Mkfifo(filepath.Join(c.Dir, "go."+n), 0o600); err != nil {
		c.Fatal(err)
	}
}

// free lets the command of a name go on.
func (c *trial) free(n string) {
	c.Helper()
	if !waittest.Until(harness.Patience, func() bool { return c.tryFree(n) }) {
		c.Fatalf("nobody waits at go.%s: %s, %v", n, c.state(), c.ofTasks())
	}
}

func (c *trial) tryFree(n string) bool {
	f, err := os.OpenFile(filepath.Join(c.Dir, "go."+n), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	_, err = f.WriteString("go\n")
	return err == nil && f.Close() == nil
}

// ran is how often each task began its command, by its ID.
func (c *trial) ran() map[string]int {
	data, err := os.ReadFile(filepath.Join(c.Dir, "ran"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.Fatal(err)
	}
	out := map[string]int{}
	for id := range strings.FieldsSeq(string(data)) {
		out[id]++
	}
	return out
}

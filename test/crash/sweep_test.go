//go:build linux && amd64

package crash

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/waittest"
)

// What a sweep is asked for. SWEEP=1: each call of each scene; N: those whose
// name fits, such as tasks/17 or rm/.*; else a sample, that of SEED.
const (
	sweepVariable  = "SWEEP"
	numberVariable = "N"
)

// scene is a short life of a program as it is released, of which one process is
// killed at its n-th call that changes something.
type scene struct {
	name   string
	victim string                  // its role; empty: the program that is started
	sample int                     // how many calls are tried in the short form
	begin  func(c *sweep) []string // what is started under the tracer
	rest   []func(c *sweep)        // what is done while the victim lives
	check  func(c *sweep)          // what a crash leaves
}

// TestSweep kills the host, a prompt and a removal at each call by which they change
// something, in the program as it is released.
func TestSweep(t *testing.T) {
	bin := build(t, "")
	pick, full := regexp.MustCompile(cmp.Or(os.Getenv(numberVariable), ".")), os.Getenv(sweepVariable) != ""
	out := &sweepTable{loud: full || os.Getenv(numberVariable) != ""}
	for _, s := range scenes() {
		whole := &sweep{scene: s}
		t.Run(s.name+"/0", func(t *testing.T) { whole.run(t, bin, 0) })
		if whole.refused != "" {
			fmt.Printf("SKIPPED: the sweep of %s: %s\n", s.name, whole.refused)
			t.Skip("nothing can be traced here: " + whole.refused)
		}
		if whole.failed {
			t.Fatalf("scene %s fails where nobody is killed", s.name)
		}
		out.count(s, len(whole.calls))
		t.Run(s.name, func(t *testing.T) {
			for _, n := range s.numbers(len(whole.calls), full || out.loud) {
				if !pick.MatchString(fmt.Sprintf("%s/%d", s.name, n)) {
					continue
				}
				t.Run(strconv.Itoa(n), func(t *testing.T) {
					t.Parallel()
					c := &sweep{scene: s}
					t.Cleanup(func() { out.line(c, n, t.Failed()) })
					c.run(t, bin, n)
				})
			}
		})
	}
	out.summary()
}

// numbers are the calls that are tried: all, or some that follow from the seed.
func (s *scene) numbers(calls int, full bool) []int {
	all := make([]int, calls)
	for i := range all {
		all[i] = i + 1
	}
	if full {
		return all
	}
	seed, _ := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
	rand.New(rand.NewPCG(seed, uint64(len(s.name)))).Shuffle(calls, func(i, j int) { all[i], all[j] = all[j], all[i] })
	some := all[:min(s.sample, calls)]
	slices.Sort(some)
	return some
}

// sweep is one run of a scene.
type sweep struct {
	*trial
	scene *scene

	tracer   *exec.Cmd
	heard    chan struct{} // closed when the tracer has nothing more to say
	ready    chan struct{} // closed when the program that was started has ended
	dead     chan struct{} // closed when the victim is killed
	startOut string        // what it printed: a file
	startErr string

	mu      sync.Mutex
	victim  int // guarded by mu, like the rest
	calls   []string
	code    *int // of the program that was started
	refused string

	stopping bool // a stop of t2 was asked for
	further  int  // the host that came after the victim, before any was asked for
	failed   bool
	result   string
}

func (c *sweep) run(t *testing.T, bin string, n int) {
	p := newPlace(t, bin, 0)
	c.trial = &trial{place: p, cell: cell{step: &step{}}, doomed: map[*harness.Call]bool{}}
	defer func() { c.failed = t.Failed() }()
	c.heard, c.ready, c.dead = make(chan struct{}), make(chan struct{}), make(chan struct{}) // what begins may wait for them
	c.trace(n, c.scene.begin(c))
	if !c.over(c.ready) {
		t.Fatal("the program that was started does not end")
	}
	if c.refused != "" {
		return
	}
	if c.victim == 0 {
		t.Fatalf("no process of the role %q was traced", c.scene.victim) // signals to 0 are for the own group
	}
	for _, step := range c.scene.rest {
		if c.gone() {
			break
		}
		step(c)
	}
	if n > 0 && !c.gone() {
		c.result = "not come to"
	}
	c.scene.check(c)
	for _, f := range c.faces {
		if err := f.Wait(); err != nil {
			t.Error(err)
		}
	}
	c.checkLogs()
}

// trace starts the program under the tracer.
func (c *sweep) trace(n int, args []string) {
	c.startOut, c.startErr = filepath.Join(c.Work, "started.out"), filepath.Join(c.Work, "started.err")
	order, err := json.Marshal(tracing{Args: append([]string{c.Bin}, args...), Env: c.Env, Dir: c.Dir,
		Stdout: c.startOut, Stderr: c.startErr, Role: c.scene.victim, Nth: n})
	if err != nil {
		c.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		c.Fatal(err)
	}
	c.tracer = exec.Command(self)
	c.tracer.Env = append(os.Environ(), traceVariable+"="+string(order))
	lines, err := c.tracer.StdoutPipe()
	if err != nil {
		c.Fatal(err)
	}
	if err := c.tracer.Start(); err != nil {
		c.Fatal(err)
	}
	go func() { // ends with the tracer, which goes when all that it follows has gone
		defer close(c.heard)
		for s := bufio.NewScanner(lines); s.Scan(); {
			c.hear(s.Bytes())
		}
	}()
	c.Cleanup(func() { // before that of the place, which cannot end what a tracer holds
		select {
		case <-c.ready:
		default:
			_ = c.tracer.Process.Kill()
		}
		c.place.Quit()
		<-c.heard
		_ = c.tracer.Wait() // what it could not do it has said
	})
}

func (c *sweep) hear(line []byte) {
	var what told
	if err := json.Unmarshal(line, &what); err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case what.Error != "" && c.victim != 0: // it was traced, and is no longer
		c.Errorf("the tracer: %s", what.Error)
	case what.Error != "":
		c.refused = what.Error
		close(c.ready)
	case what.Victim != 0:
		c.victim = what.Victim
	case what.Call != "":
		c.calls = append(c.calls, what.Call)
	case what.Killed:
		close(c.dead)
	case what.Exit != nil:
		c.code = what.Exit
		close(c.ready)
	}
}

// over waits for what must come.
func (c *sweep) over(what <-chan struct{}) bool {
	late := time.NewTimer(harness.Patience)
	defer late.Stop()
	select {
	case <-what:
		return true
	case <-late.C:
		return false
	}
}

// gone reports whether the victim has been killed.
func (c *sweep) gone() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

// call calls drover, and waits for its end.
func (c *sweep) call(args ...string) *harness.Call {
	f := c.face(args...)
	if err := f.Wait(); err != nil {
		c.Error(err)
	}
	return f
}

func scenes() []*scene {
	return []*scene{
		{name: "tasks", victim: "host", sample: 7, begin: beginTasks, check: checkTasks, rest: []func(*sweep){keepOne, endOne, stopOne, addOne, closeHost}},
		{name: "prompt", sample: 4, begin: beginPrompt, check: checkTurn, rest: nil},
		{name: "rm", sample: 1, begin: beginRemoval, check: checkRemoval},
	}
}

// A host with three commands: one ends by itself, a kept one is stopped, one is
// there when the host is told to end.
func beginTasks(c *sweep) []string {
	for _, n := range []string{"t1", "t2", "t3"} {
		c.fifo(n)
	}
	c.asked = []string{"t1"}
	return []string{"run", "-d", "--name", "t1", "--", "sh", "-c", plain, "t1"}
}

func keepOne(c *sweep) {
	c.asked = append(c.asked, "t2")
	c.call("run", "-d", "--keep", "--name", "t2", "--", "sh", "-c", plain, "t2")
}

func endOne(c *sweep) {
	f := c.face("wait", "t1")
	if !waittest.Until(harness.Patience, func() bool { return c.gone() || c.tryFree("t1") }) {
		c.Error("nobody waits at the pipe of t1")
	}
	if err := f.Wait(); err != nil {
		c.Error(err)
	}
}

func stopOne(c *sweep) {
	c.stopping = true
	c.call("stop", "--grace", "200ms", "t2")
}

func addOne(c *sweep) {
	c.asked = append(c.asked, "t3")
	c.call("run", "-d", "--name", "t3", "--", "sh", "-c", plain, "t3")
}

func closeHost(c *sweep) {
	_ = syscall.Kill(c.victim, syscall.SIGTERM) // it may have been killed
	if !waittest.Until(harness.Patience, func() bool { return !harness.Alive(c.victim) }) {
		c.Error("the host does not close")
	}
}

// checkTasks has a next host take up what is left, and looks whether each task came
// to an end that it may have.
func checkTasks(c *sweep) {
	c.buried()
	c.further = c.furtherHost()
	if !waittest.Until(leaveLimit, func() bool { return len(c.orphans()) == 0 }) {
		c.Errorf("left %s after the host: %v", leaveLimit, c.orphans())
	}
	recoverShells(c.trial)
	now := c.tasks()
	for _, n := range c.asked {
		got := "absent"
		for _, s := range now {
			if s.Name == n {
				got = s.String()
				c.checkOutput(n, s)
			}
		}
		if want := c.mayBe(n); !slices.Contains(want, got) {
			c.Errorf("task %s is %s, want %s\n%s", n, got, strings.Join(want, " or "), c.place.Run("inspect", n))
		}
		if n == "t2" && got == "killed:host_lost" && c.hasRun(n, now) {
			c.Errorf("a kept command has begun, and is %s", got)
		}
	}
	c.checkStart(now)
	for id, times := range c.ran() {
		if times > 1 {
			c.Errorf("task %s was begun %d times", id, times)
		}
		if _, known := now[id]; !known {
			c.Errorf("task %s has run, and nobody knows it", id)
		}
	}
	for _, f := range c.faces {
		c.checkFace(f, now)
		if f.Args[0] == "wait" && f.Args[1] == "t1" && f.Code() == 7 {
			c.same(now, "t1", normal)
		}
	}
	if left := c.ofTasks(); len(left) > 0 {
		c.Errorf("left: %v", left)
	}
}

// buried waits until a victim that was killed is gone with all its threads, which
// hold its locks.
func (c *sweep) buried() {
	if c.victim != 0 && !waittest.Until(harness.Patience, func() bool { return !harness.Alive(c.victim) }) {
		c.Fatal("the victim does not die")
	}
}

// furtherHost is the host with which who asked has gone on when the victim died
// before it had taken anything, or 0.
func (c *sweep) furtherHost() int {
	for _, x := range c.procs("") {
		if x.Role() == "host" && x.PID != c.victim {
			return x.PID
		}
	}
	return 0
}

// orphans are the processes of tasks that live neither by being kept nor with a
// further host.
func (c *sweep) orphans() (out []harness.Proc) {
	var ofFurther []int // processes that a task may hang from
	if c.further != 0 {
		ofFurther = []int{c.further, c.keeperOf(c.further)}
	}
	parents := map[int]int{}
	for _, x := range c.procs("") {
		parents[x.PID] = x.Parent
	}
	for _, x := range c.ofTasks() {
		at := x.PID
		for at > 1 && !slices.Contains(ofFurther, at) {
			at = parents[at]
		}
		if at <= 1 && !strings.HasSuffix(x.Line, " t2") {
			out = append(out, x)
		}
	}
	return out
}

// mayBe are the ends that a task may have come to.
func (c *sweep) mayBe(n string) []string {
	switch n {
	case "t1":
		return []string{"absent", normal, "killed:host_lost"}
	case "t3":
		if c.further != 0 {
			return []string{normal, "killed:host_lost"}
		}
		return []string{"absent", "killed:host_lost", "killed:closing"}
	}
	out := []string{"absent", normal, "killed:host_lost"}
	if c.stopping {
		out = append(out, "killed:stopped", "failed:signal")
	}
	return out
}

// hasRun reports whether the command of a task has begun.
func (c *sweep) hasRun(n string, now map[string]shown) bool {
	for id := range c.ran() {
		if now[id].Name == n {
			return true
		}
	}
	return false
}

// same holds an end to what somebody was told.
func (c *sweep) same(now map[string]shown, n, told string) {
	for _, s := range now {
		if s.Name == n && s.String() != told {
			c.Errorf("task %s was said to be %s, and is %s", n, told, s)
		}
	}
}

// checkStart holds the first start to its word.
func (c *sweep) checkStart(now map[string]shown) {
	out, _ := os.ReadFile(c.startOut)
	says, _ := os.ReadFile(c.startErr)
	if id := strings.TrimSpace(string(out)); *c.code == 0 {
		if _, there := now[id]; !there {
			c.Errorf("task %q was said to be started, and is not there", id)
		}
	}
	if strings.Contains(string(says), "panic") || strings.Count(string(says), "\n") > 1 {
		c.Errorf("the start ends with %d: %s", *c.code, says)
	}
}

// A prompt with a command in the foreground and one in the background.
func beginPrompt(c *sweep) []string {
	c.serveModel()
	c.fifo("t1")
	c.id = uuid()
	c.freeing(c.ready)
	return []string{"-p", "--permission-mode", "bypassPermissions", "--session-id", c.id, "start t1"}
}

// freeing lets the command go on that the model may begin before a prompt is over.
func (c *sweep) freeing(over <-chan struct{}) {
	go func() {
		waittest.Until(harness.Patience, func() bool {
			select {
			case <-over:
				return true
			default:
				return c.tryFree("t1")
			}
		})
	}()
}

func checkTurn(c *sweep) {
	c.buried()
	if !waittest.Until(leaveLimit, func() bool { return len(c.ofTasks()) == 0 }) {
		c.Errorf("left %s after the prompt: %v", leaveLimit, c.ofTasks())
	}
	if len(glob(c.Work, "state/projects/*/"+c.id+"/session.json")) == 0 { // it was killed before there was a session
		c.Good("sessions")
		return
	}
	over := make(chan struct{})
	c.freeing(over) // the prompt goes with the next one if no turn began with it
	recoverPrompt(c.trial)
	close(over)
	checkPrompt(c.trial)
	c.checkTrue()
}

func beginRemoval(c *sweep) []string {
	endedSession(c.trial, "t1")
	c.asked = []string{"t1"}
	return []string{"sessions", "rm", c.sessionOf("t1")}
}

func checkRemoval(c *sweep) {
	c.buried()
	checkRemoved(c.trial)
}

// sweepTable gathers what became of the calls.
type sweepTable struct {
	loud bool

	mu     sync.Mutex
	ran    int // guarded by mu, like the rest
	never  int
	broken []string
}

func (tb *sweepTable) count(s *scene, calls int) {
	if tb.loud {
		fmt.Printf("%s: %d calls\n", s.name, calls)
	}
}

func (tb *sweepTable) line(c *sweep, n int, failed bool) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	name, result := fmt.Sprintf("%s/%d", c.scene.name, n), cmp.Or(c.result, "ok")
	tb.ran++
	switch {
	case failed:
		result = "BROKEN: make crash SWEEP=1 N='^" + name + "$'"
		tb.broken = append(tb.broken, name)
	case c.result != "":
		tb.never++
	}
	call := "–"
	if len(c.calls) >= n {
		call = c.calls[n-1]
	}
	if tb.loud || failed {
		fmt.Printf("%-12s | %-44s | %s\n", name, call, result)
	}
}

func (tb *sweepTable) summary() {
	if tb.loud {
		fmt.Printf("\n%d calls tried, %d not come to, %d broken %v\n", tb.ran, tb.never, len(tb.broken), tb.broken)
	}
}

//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/waittest"
)

// held makes a pipe at which commands wait, each for a line, until they are let go: 4,096
// at most. The pipe stays open, for one that comes to it late.
func (p *place) held(name string) (letGo func()) {
	p.Helper()
	p.Fifo(name)
	f, err := os.OpenFile(filepath.Join(p.Dir, name), os.O_RDWR, 0)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = f.Close() })
	return func() {
		if _, err := f.WriteString(strings.Repeat("\n", 4096)); err != nil {
			p.Error(err)
		}
	}
}

// batch is a file of so many commands.
func (p *place) batch(n int, line func(i int) string) string {
	p.Helper()
	var out strings.Builder
	for i := range n {
		text, err := json.Marshal(map[string]any{"name": fmt.Sprintf("t%d", i), "args": []string{"sh", "-c", line(i)}})
		if err != nil {
			p.Fatal(err)
		}
		fmt.Fprintf(&out, "%s\n", text)
	}
	return p.File("batch", out.String(), 0o600)
}

// lives says how often each run has ended in the log, whose numbers only grow.
func (p *place) lives() map[task.ID]int {
	p.Helper()
	log, err := journal.Open(p.db(), journal.Options{ReadOnly: true})
	if err != nil {
		p.Fatal(err)
	}
	defer log.Close()
	ends, last := map[task.ID]int{}, task.Seq(0)
	for e, err := range log.Events(context.Background(), 0) {
		if err != nil || e.Seq <= last {
			p.Fatalf("event %d behind %d, %v", e.Seq, last, err)
		}
		last = e.Seq
		if e.Task.Status.Terminal() {
			ends[e.Task.ID]++
		}
	}
	return ends
}

// The host is killed while many kept commands run: the next has them all, and of
// their output nothing is missing: P3.
func TestManyKept(t *testing.T) {
	p, n := newPlace(t), pick(12, 500)
	letGo := p.held("go")
	file := p.batch(n, func(int) string { return "echo $DROVER_TASK_ID >>ran; seq 1 100; read x <go; seq 101 200; exit 9" })
	p.Good("run", "--keep", "--batch", file)
	p.Until("all of them wait", func() bool { return strings.Count(p.read("ran"), "\n") == n })
	p.killHost()
	p.Good("run", "-d", "--name", "probe", "--", "true")
	for _, s := range p.tasks() {
		if s.Name != "probe" && s.Status != "running" {
			t.Errorf("%s is %s", s.Name, s)
		}
	}
	letGo()
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintln(&want, i+1)
	}
	ids := []string{"wait"}
	for id := range p.tasks() {
		ids = append(ids, id)
	}
	p.Run(ids...)
	for _, s := range p.tasks() {
		if s.Name == "probe" {
			continue
		}
		if out, err := os.ReadFile(s.OutputFile); err != nil || string(out) != want.String() {
			t.Errorf("output of %s: %d bytes, %v", s.Name, len(out), err)
		}
		if s.String() != "failed:exit:9" {
			t.Errorf("%s is %s", s.Name, s)
		}
	}
	for id, ends := range p.lives() {
		if ends != 1 || strings.Count(p.read("ran"), string(id)) > 1 {
			t.Errorf("task %s has ended %d times and run %d times", id, ends, strings.Count(p.read("ran"), string(id)))
		}
	}
}

// Many commands end at one moment: each has its end once: P17.
func TestAllEndAtOnce(t *testing.T) {
	p, n := newPlace(t), pick(40, 1000)
	letGo := p.held("go")
	p.Good("run", "--batch", p.batch(n, func(i int) string { return fmt.Sprintf("echo >>ran; read x <go; exit %d", i%7) }))
	p.Until("all of them wait", func() bool { return strings.Count(p.read("ran"), "\n") == n })
	letGo()
	p.Until("all of them end", func() bool { return len(p.Procs("read x")) == 0 })
	p.Until("all ends are shown", func() bool {
		for _, s := range p.tasks() {
			if !s.ended() {
				return false
			}
		}
		return true
	})
	for _, s := range p.tasks() {
		i, _ := strconv.Atoi(s.Name[1:])
		want := fmt.Sprintf("failed:exit:%d", i%7)
		if i%7 == 0 {
			want = "completed:done"
		}
		if s.String() != want {
			t.Errorf("%s is %s", s.Name, s)
		}
	}
	for id, ends := range p.lives() {
		if ends != 1 {
			t.Errorf("task %s has ended %d times", id, ends)
		}
	}
}

// The machine was started again: what ran is recorded as interrupted, and what has
// its number now is left alone: P4.
func TestRestartOfMachine(t *testing.T) {
	p := newPlace(t)
	// Without the marks of Drover: no process of another program has them.
	p.Good("run", "-d", "--keep", "--name", "k", "--", "sh", "-c", "echo $$ >pid; exec env -i sleep 4711")
	p.Until("it runs", func() bool { return strings.HasSuffix(p.read("pid"), "\n") && p.task("k").Status == "running" })
	pid, _ := strconv.Atoi(strings.TrimSpace(p.read("pid")))
	p.killHost()
	p.Env = append(p.Env, "TEST_BOOT_ID=another")
	p.Good("run", "-d", "--name", "probe", "--", "true")
	p.Good("wait", "probe")
	p.is("k", "killed:reboot")
	if s := p.task("k"); s.ExitCode != nil && *s.ExitCode >= 0 {
		t.Errorf("an exit code that nobody knows: %d", *s.ExitCode)
	}
	p.Run("stop", "k")
	if !harness.Alive(pid) {
		t.Error("a process of another life of the machine was signalled")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// The number of a kept command belongs to somebody else when the next host comes:
// P5, with the very number, which only a namespace can give away again.
func TestNumberGivenAway(t *testing.T) {
	t.Parallel()
	in := []string{"-pf", "--mount-proc", "--kill-child"}
	needs(t, append([]string{"unshare"}, append(in, "sh", "-c", "echo 100 >/proc/sys/kernel/ns_last_pid")...)...)
	p := newPlace(t)
	script := p.File("script", `
drover run -d --keep --name k -- sh -c 'echo $$ >pid.new; mv pid.new pid; exec sleep 4711' >&2 || exit 1
until test -e pid && drover ps --json | grep -q running; do sleep 0.01; done
pid=$(cat pid)
for d in /proc/[0-9]*; do
	case $(tr '\0' ' ' <$d/cmdline) in
	*"drover host "|*"drover-keeper keeper "*) ours="$ours ${d#/proc/}";;
	esac
done
kill -KILL $ours $pid || exit 1
for x in $ours $pid; do while kill -0 $x 2>/dev/null; do sleep 0.01; done; done
echo $((pid-1)) >/proc/sys/kernel/ns_last_pid; sleep 4712 & stranger=$!
test $stranger = $pid || { echo "got number $stranger, wanted $pid"; exit 99; }
drover run -d --name probe -- true >&2 && drover wait probe >&2
drover stop k >&2
kill -0 $stranger || { echo "the stranger is dead"; exit 98; }
drover inspect k
`, 0o700)
	tool, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatal(err)
	}
	cmd := p.command(nil)
	cmd.Path, cmd.Args = tool, append([]string{"unshare"}, append(in, "sh", script)...)
	out, err := cmd.Output()
	var k shown
	if err == nil {
		err = json.Unmarshal(out, &k)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if k.String() != "killed:lost" {
		t.Errorf("it is %s", k)
	}
}

// What commands leave behind is ended with them: P7, P8, P9.
func TestLeftBehind(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		line string
	}{
		"leaderless": {[]string{"run", "-d", "--name", "x"}, "sleep 4711 & exit 0"},
		"holds":      {[]string{"run", "--name", "x"}, "sleep 4711 & echo done"},
		"session":    {[]string{"run", "--name", "x"}, "setsid sleep 4711 & echo done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.Good(append(c.args, "--", "sh", "-c", c.line)...)
			if c.args[1] == "-d" {
				p.Good("wait", "x")
			}
			p.is("x", "completed:done")
			p.Until("nothing is left", func() bool { return len(p.Procs("sleep")) == 0 })
		})
	}
}

// A process that is stopped, hears no signal and has a daemon goes all the same,
// and the receipt says how: P8, P10, P11, P20.
func TestStubborn(t *testing.T) {
	p := newPlace(t)
	p.Good("run", "-d", "--name", "x", "--", "sh", "-c", `trap "" TERM INT HUP; setsid -f sleep 4711; echo $$ >pid; kill -STOP $$; sleep 4712`)
	p.Until("it stops", func() bool {
		pid, err := strconv.Atoi(strings.TrimSpace(p.read("pid")))
		return err == nil && harness.StateOf(pid) == "T"
	})
	var both sync.WaitGroup
	var got [2]*harness.Call
	for i := range got {
		both.Go(func() { got[i] = p.Run("stop", "--grace", "200ms", "--json", "x") })
	}
	both.Wait()
	for _, s := range got {
		var receipt task.Receipt
		if err := json.Unmarshal([]byte(s.Stdout()), &receipt); err != nil || s.Code() != 0 || len(receipt.Stopped) != 1 || len(receipt.Survivors) != 0 {
			t.Fatalf("%v %s", err, s)
		}
		line := receipt.Stopped[0]
		var signals []string
		for _, x := range line.Signals {
			signals = append(signals, x.Signal)
		}
		if line.Status != task.Killed || strings.Join(signals, " ") != "SIGTERM SIGCONT SIGKILL" {
			t.Errorf("%s by %v", line.Status, signals)
		}
	}
	if left := p.Procs("sleep"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// cgroup makes a group of the old hierarchy, and skips the test where that cannot be.
func cgroup(t *testing.T, controller string, values ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Join("/sys/fs/cgroup", controller), "faults")
	if err != nil {
		t.Skipf("NOT TRIED: no %s cgroup can be made: %v", controller, err)
	}
	t.Cleanup(func() {
		if !waittest.Until(harness.Patience, func() bool { return os.Remove(dir) == nil }) {
			t.Errorf("somebody is left in %s", dir)
		}
	})
	for i := 0; i < len(values); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, values[i]), []byte(values[i+1]), 0); err != nil {
			t.Skipf("NOT TRIED: %v", err)
		}
	}
	return dir
}

// A process that not even KILL ends is named, and nobody waits for it for ever:
// P12. The kernel keeps what is frozen in uninterruptible sleep.
func TestUnkillable(t *testing.T) {
	t.Parallel()
	dir := cgroup(t, "freezer")
	p := newPlace(t)
	p.Good("run", "-d", "--name", "x", "--", "sh", "-c", fmt.Sprintf("echo $$ >%s/cgroup.procs; echo $$ >pid; exec sleep 4711", dir))
	p.Until("it is in the group", func() bool { return strings.HasSuffix(p.read("pid"), "\n") && p.task("x").Status == "running" })
	pid, _ := strconv.Atoi(strings.TrimSpace(p.read("pid")))
	if err := os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("FROZEN"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0) })
	p.Until("it is frozen", func() bool { return harness.StateOf(pid) == "D" })
	survives := func() {
		s := p.Run("stop", "--grace", "100ms", "--json", "x")
		var receipt task.Receipt
		if err := json.Unmarshal([]byte(s.Stdout()), &receipt); err != nil || s.Code() != 1 || len(receipt.Survivors) != 1 ||
			receipt.Survivors[0].PID != pid || !strings.Contains(receipt.Survivors[0].Why, "uninterruptible") {
			t.Errorf("%v %s", err, s)
		}
		if left := p.task("x").Survivors; len(left) != 1 || left[0].PID != pid || left[0].Start == 0 {
			t.Errorf("the record names %+v", left)
		}
	}
	survives()
	survives() // a second stop of the ended task tries again
	p.Good("run", "-d", "--name", "y", "--", "true")
	p.Good("wait", "y")
	p.is("x", "killed:stopped")
	if err := os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0); err != nil {
		t.Fatal(err)
	}
	p.Until("it goes when it thaws", func() bool { return !harness.Alive(pid) })
	p.Good("stop", "x")
}

// A fork bomb hits a limit that it has set itself; the host answers, and a stop ends it: P13.
func TestForkBomb(t *testing.T) {
	if pick(0, 1) == 0 {
		t.Skip("takes both processors: make faults")
	}
	dir := cgroup(t, "pids", "pids.max", "64")
	p := newPlace(t)
	p.Good("run", "-d", "--name", "x", "--", "bash", "-c", fmt.Sprintf("echo $$ >%s/cgroup.procs; b() { b | b & wait; }; echo >>ran; while :; do b; done 2>/dev/null", dir))
	p.Until("it is at its limit", func() bool {
		n, _ := os.ReadFile(filepath.Join(dir, "pids.current"))
		return strings.TrimSpace(string(n)) == "64"
	})
	p.Good("run", "-d", "--name", "y", "--", "true")
	p.Good("wait", "y")
	p.Good("stop", "x")
	p.is("x", "killed:stopped")
	if left := p.Procs("bash"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A command that multiplies beyond its limit is ended with all that it has become,
// however it does that, and the host answers meanwhile: P13. A group of 300 keeps the
// machine from harm, and not the command from its own limit.
func TestProcessLimit(t *testing.T) {
	bombs := map[string]string{"many": "for i in $(seq 200); do sleep 4711 & done; wait"}
	if pick(0, 1) == 1 {
		bombs["bomb"] = "b() { b | b & wait; }; while :; do b; done 2>/dev/null"
		bombs["deaf"] = "trap '' TERM HUP INT; b() { b | b & wait; }; while :; do b; done 2>/dev/null"
		bombs["sessions"] = "exec ./again 2>/dev/null"
	}
	for name, bomb := range bombs {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.Settings(`{"tasks": {"maxProcesses": 64}}`)
			p.File("again", "#!/bin/bash\ntrap '' TERM\nwhile :; do setsid -f ./again; done\n", 0o700)
			if name != "many" {
				dir := cgroup(t, "pids", "pids.max", "300")
				bomb = fmt.Sprintf("echo $$ >%s/cgroup.procs; ", dir) + bomb
			}
			p.Good("run", "-d", "--name", "before", "--", "sleep", "4711")
			p.Good("run", "-d", "--name", "x", "--", "bash", "-c", bomb)
			p.Good("run", "-d", "--name", "y", "--", "true")
			p.Good("wait", "y")
			if s := p.Run("wait", "x"); s.Code() != 128+9 {
				t.Error(s)
			}
			x := p.task("x")
			if x.String() != "failed:process_limit" || x.Cause.Actor != "runtime" || !strings.Contains(x.Cause.Detail, "tasks.maxProcesses, 64") {
				t.Errorf("%s %+v", x, x.Cause)
			}
			if left := slices.DeleteFunc(p.Procs(""), func(l harness.Proc) bool { return l.Task != x.ID }); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			p.is("before", "running")
			p.Good("stop", "before")
		})
	}
}

// A command that takes too much memory is ended by the kernel, which is said; the host
// is not. A kill that was somebody else's is not laid at the kernel's door: S6.
func TestChildOutOfMemory(t *testing.T) {
	for name, c := range map[string]struct{ line, want, says string }{
		"leader": {"echo $$ >GROUP/cgroup.procs; EATS", "failed:out_of_memory", "the kernel ended it for want of memory"},
		"child":  {"(echo $BASHPID >GROUP/cgroup.procs; EATS); exit $?", "failed:exit:137", "the kernel ended a process of it for want of memory"},
		"other":  {"kill -KILL $$", "failed:signal", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := cgroup(t, "memory", "memory.limit_in_bytes", "33554432")
			line := strings.NewReplacer("GROUP", dir, "EATS", "x=$(head -c 300000000 /dev/zero | tr '\\0' x)").Replace(c.line)
			for range 20 {
				before := memoryKills(t)
				p := newPlace(t)
				p.Good("run", "-d", "--name", "detached", "--", "bash", "-c", line)
				calls := map[string]*harness.Call{"shown": p.Run("run", "--name", "shown", "--", "bash", "-c", line), "detached": p.Run("wait", "detached")}
				if c.says == "" && memoryKills(t) != before {
					continue // of somebody else on this machine, for which a command without a group may be blamed
				}
				for x, s := range calls {
					if s.Code() != 128+9 || x == "shown" && !strings.Contains(s.Stderr(), c.says) {
						t.Error(s)
					}
					p.is(x, c.want)
					if got := p.task(x); strings.TrimPrefix(got.Cause.Detail, "probably ") != c.says || !strings.HasSuffix(got.Error, c.says) {
						t.Errorf("%s: %+v, %q", x, got.Cause, got.Error)
					}
				}
				return
			}
			t.Skip("NOT TRIED: the kernel ends processes of others for want of memory all the time")
		})
	}
}

// memoryKills counts the processes that the kernel of this machine has ended for want of memory.
func memoryKills(t *testing.T) string {
	t.Helper()
	stat, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		t.Fatal(err)
	}
	_, count, _ := strings.Cut(string(stat), "\noom_kill ")
	count, _, _ = strings.Cut(count, "\n")
	return count
}

// A command ends all that has its words in its command line, and no host and no
// keeper among them: P14.
func TestKillsByName(t *testing.T) {
	needs(t, "pkill", "--version")
	p := newPlace(t)
	p.Good("run", "-d", "--name", "first", "--", "true")
	host, keeper := p.one("host"), p.one("keeper")
	word := "fault-word-" + strconv.Itoa(os.Getpid())
	letGo := p.held("go") // until `drover run`, which has the word too, has ended
	p.Good("run", "-d", "--name", "x", "--", "sh", "-c", "read x <go; pkill -KILL -f "+word)
	letGo()
	if s := p.Run("wait", "x"); s.Code() != 128+9 {
		t.Error(s)
	}
	if !harness.Alive(host) || !harness.Alive(keeper) {
		t.Error("it has killed a host or a keeper")
	}
}

// Every way to end is told as it was: P15.
func TestEveryEnd(t *testing.T) {
	p := newPlace(t)
	codes, signals := []int{0, 1, 2, 125, 126, 127, 128, 137, 143, 255}, []int{1, 2, 3, 6, 9, 11, 13, 15, 24, 31, 34, 64}
	if pick(0, 1) == 1 {
		codes, signals = nil, nil
		for i := range 256 {
			codes = append(codes, i)
		}
		for i := 1; i <= 64; i++ {
			switch syscall.Signal(i) { // of these nobody dies; 32 and 33 belong to the C library
			case syscall.SIGCHLD, syscall.SIGCONT, syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGURG, syscall.SIGWINCH, 32, 33:
			default:
				signals = append(signals, i)
			}
		}
	}
	p.Good("run", "--batch", p.batch(len(codes)+len(signals), func(i int) string {
		if i < len(codes) {
			return fmt.Sprintf("exit %d", codes[i])
		}
		return fmt.Sprintf("ulimit -c 0; kill -%d $$; sleep 4711", signals[i-len(codes)])
	}))
	var left string
	if !waittest.Until(harness.Patience, func() bool {
		left = ""
		for _, s := range p.tasks() {
			if !s.ended() {
				left += s.Name + " "
			}
		}
		return left == ""
	}) {
		t.Fatalf("after %d codes these do not end: %s", len(codes), left)
	}
	for _, s := range p.tasks() {
		i, _ := strconv.Atoi(s.Name[1:])
		switch {
		case i < len(codes) && (s.ExitCode == nil || *s.ExitCode != codes[i] || (s.Status == "completed") != (codes[i] == 0)):
			t.Errorf("exit %d is %s", codes[i], s)
		case i >= len(codes) && (s.String() != "failed:signal" || s.Cause.Signal == ""):
			t.Errorf("signal %d is %s %q", signals[i-len(codes)], s, s.Cause.Signal)
		}
	}
}

// What cannot be started is told once and clearly, and not tried again: P16.
func TestCannotStart(t *testing.T) {
	p := newPlace(t)
	p.File("garbage", "\x01\x02", 0o700)
	p.File("interpreter", "#!/nowhere/sh\n", 0o700)
	p.File("plain", "#!/bin/sh\n", 0o600)
	for name, c := range map[string]struct{ line, says string }{
		"format":      {`{"args": ["./garbage"]}`, "exec format error"},
		"interpreter": {`{"args": ["./interpreter"]}`, "no such file"},
		"mode":        {`{"args": ["./plain"]}`, "permission denied"},
		"absent":      {`{"args": ["./absent"]}`, "no such file"},
		"cwd-absent":  {`{"args": ["true"], "cwd": "gone"}`, "gone"},
		"cwd-file":    {`{"args": ["true"], "cwd": "plain"}`, "plain"},
	} {
		t.Run(name, func(t *testing.T) {
			p := *p
			p.TB = t
			s := p.Run("run", "--batch", p.File("batch-"+name, c.line+"\n", 0o600))
			id := strings.TrimSpace(s.Stdout())
			if s.Code() != 0 || id == "" { // refused before it was a task
				if !strings.Contains(s.Stderr(), c.says) {
					t.Error(s)
				}
				return
			}
			p.Run("wait", id)
			got := p.task(id)
			if got.String() != "failed:start" || !strings.Contains(got.Error, c.says) {
				t.Errorf("%s: %q", got, got.Error)
			}
		})
	}
}

// All of Drover is held up for a while, as by a machine that sleeps, and goes on: T2.
func TestSuspended(t *testing.T) {
	p := newPlace(t)
	p.Fifo("go")
	p.Good("run", "-d", "--keep", "--name", "x", "--", "sh", "-c", "read x <go; exit 3")
	all := p.Procs("")
	for _, x := range all {
		if err := syscall.Kill(x.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	waiting := p.command(nil, "wait", "x")
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		p.Until("it stops", func() bool { return harness.StateOf(x.PID) == "T" })
		if err := syscall.Kill(x.PID, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	p.Free("go")
	_ = waiting.Wait()
	if code := harness.ExitCode(waiting.ProcessState); code != 3 {
		t.Errorf("wait: %d", code)
	}
}

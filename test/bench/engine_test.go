//go:build linux

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/assemble/bare"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
)

// open opens a session in this process, with a keeper as a program has it.
func (t *bench) open(dir string, id task.ID) *assemble.Session {
	s, err := assemble.Open(context.Background(), assemble.Config{Config: bare.Config{Settings: settings.Settings{Options: options.Default()}, Root: home.At(filepath.Join(dir, "state")), Folder: dir, Session: id, Role: session.RoleBackground,
		Version: "bench", Env: t.env(dir), Keeper: []string{t.bin, "keeper", "--helper"}}})
	t.must(err)
	s.Serve()
	return s
}

// command runs one command to its end.
func (t *bench) command(s *assemble.Session, dir string, args ...string) {
	ctx := context.Background()
	started, err := s.Start(ctx, []control.StartRequest{{Shell: &control.ShellRequest{Args: args}, Env: t.env(dir), Cwd: dir}})
	t.must(err)
	if started[0].Error != nil {
		t.Fatal(started[0].Error)
	}
	reply, err := s.Wait(ctx, control.WaitRequest{Refs: []string{string(started[0].Task.ID)}})
	t.must(err)
	if got := reply.Tasks[0]; got.Status != task.Completed {
		t.Fatalf("%v: %s, %s", args, got.Status, got.Error)
	}
}

// cSpawn is how long the C program takes for n commands.
func (t *bench) cSpawn(dir string, n, width int, args ...string) time.Duration {
	cmd := exec.Command(t.cfl, append([]string{"spawn", strconv.Itoa(n), strconv.Itoa(width), filepath.Join(dir, "floor.out")}, args...)...)
	cmd.Dir, cmd.Env = dir, t.env(dir)
	out, err := cmd.Output()
	t.must(err)
	ns, err := strconv.ParseInt(string(bytes.TrimSpace(out)), 10, 64)
	t.must(err)
	return time.Duration(ns)
}

// goSpawn is the same with os/exec.
func (t *bench) goSpawn(dir string, n, width int, args ...string) time.Duration {
	begin := time.Now()
	t.side(n, width, func() {
		f, err := os.OpenFile(filepath.Join(dir, "go.out"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		t.must(err)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, t.env(dir), f, f
		t.must(cmd.Run())
		f.Close()
	})
	return time.Since(begin)
}

// side does something n times, width at a time.
func (t *bench) side(n, width int, do func()) {
	var all sync.WaitGroup
	for w := range width {
		all.Go(func() {
			for i := w; i < n; i += width {
				do()
			}
		})
	}
	all.Wait()
}

func (t *bench) spawn() {
	dir := t.temp()
	s := t.open(dir, "")
	t.command(s, dir, "true") // the keeper starts with the first
	n := t.size(200, 60)
	ours, floor := turns(t.runs(9),
		func() float64 {
			begin := time.Now()
			for range n {
				t.command(s, dir, "true")
			}
			return us(time.Since(begin)) / float64(n)
		},
		func() float64 { return us(t.cSpawn(dir, n, 1, "true")) / float64(n) })
	t.add(row{name: "spawn and reap, three durable events, keeper notified", unit: "µs", ours: ours, floor: floor, of: "posix_spawn", ratio: 1.45})

	n = t.size(1000, 300)
	two := func() float64 {
		begin := time.Now()
		t.side(n, 2, func() { t.command(s, dir, "true") })
		return ms(time.Since(begin)) * 1000 / float64(n)
	}
	var byC []float64
	ours, floor = turns(t.runs(5), two, func() float64 {
		byC = append(byC, ms(t.cSpawn(dir, n, 2, "true"))*1000/float64(n))
		return ms(t.goSpawn(dir, n, 2, "true")) * 1000 / float64(n)
	})
	t.add(row{name: "1,000 × `true`, two at a time, all durable", unit: "ms", ours: ours, floor: floor, of: "os/exec", target: 500, note: fmt.Sprintf("in C: %.0f ms", median(byC))})
	t.must(s.Close())
}

// detached is the way by the command line to the host of a project.
func (t *bench) detached() {
	dir := t.temp()
	env := t.env(dir)
	t.run(dir, env, t.bin, "run", "-d", "--", "true") // starts the host
	ours, floor := turns(t.runs(31),
		func() float64 { return ms(t.run(dir, env, t.bin, "run", "-d", "--", "true").wall()) },
		func() float64 { return ms(t.run(dir, env, t.bin, "version").wall()) })
	t.add(row{name: "one `drover run -d`", unit: "ms", ours: ours, floor: floor, of: "`version`", target: 10})

	n := t.size(2000, 500)
	file := filepath.Join(dir, "batch")
	t.must(os.WriteFile(file, []byte(strings.Repeat("true\n", n)), 0o600))
	ours, floor = turns(t.runs(5),
		func() float64 {
			took := t.run(dir, env, t.bin, "run", "-d", "--batch", file).wall()
			t.settled(dir, env)
			return ms(took) / float64(n)
		},
		func() float64 { return ms(t.run(dir, env, t.bin, "version").wall()) / float64(n) })
	t.add(row{name: fmt.Sprintf("`run -d --batch` of %d, a task until durably pending", n), unit: "ms", ours: ours, floor: floor, of: "`version`", target: 0.1})
	t.endHost(dir, env)
}

// settled waits until nothing runs any more.
func (t *bench) settled(dir string, env []string) {
	for {
		cmd := exec.Command(t.bin, "ps", "-q")
		cmd.Dir, cmd.Env = dir, env
		ids, err := cmd.Output()
		t.must(err)
		if len(bytes.TrimSpace(ids)) == 0 {
			return
		}
		words := strings.Fields(string(ids))
		wait := exec.Command(t.bin, append([]string{"wait"}, words[:min(len(words), 500)]...)...)
		wait.Dir, wait.Env = dir, env
		_ = wait.Run() // of a task that was removed meanwhile
	}
}

// endHost ends the detached host that was started for a folder.
func (t *bench) endHost(dir string, env []string) {
	paths, _ := filepath.Glob(filepath.Join(dir, "state/projects/*/*/session.json"))
	more, _ := filepath.Glob(filepath.Join(dir, "state/projects/*/*/*/session.json"))
	for _, path := range append(paths, more...) {
		data, _ := os.ReadFile(path)
		_, rest, ok := strings.Cut(string(data), `"pid": `)
		if !ok {
			continue
		}
		pid, _ := strconv.Atoi(strings.TrimRight(strings.Fields(rest)[0], ","))
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		t.must(unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0))
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
		t.must(err)
		unix.Close(fd)
	}
}

// output is much output: the descriptor goes to the command.
func (t *bench) output() {
	bytes := int64(256 << 20)
	var fs unix.Statfs_t
	t.must(unix.Statfs(t.dir, &fs))
	if !t.short && int64(fs.Bavail)*fs.Bsize > 6<<30 {
		bytes = 2 << 30
	} else if !t.short {
		bytes = 512 << 20
	}
	dir := t.temp()
	s := t.open(dir, "")
	t.command(s, dir, "true")
	args := []string{"head", "-c", strconv.FormatInt(bytes, 10), "/dev/zero"}
	clear := func() {
		files, _ := filepath.Glob(filepath.Join(s.Place.Dir(), "tasks", "*.output"))
		for _, f := range append(files, filepath.Join(dir, "floor.out")) {
			_ = os.Remove(f)
		}
	}
	rate := func(d time.Duration) float64 { clear(); return float64(bytes) / 1e9 / d.Seconds() }
	rate(t.cSpawn(dir, 1, 1, args...)) // a virtual machine gets its memory at the first use of each page
	var cpu [2]float64                 // of the children of this process: for both it is their parent
	spent := func(i int, do func() time.Duration) float64 {
		before := t.childrenCPU()
		took := do()
		cpu[i] += t.childrenCPU() - before
		return rate(took)
	}
	ours, floor := turns(t.runs(9),
		func() float64 {
			return spent(0, func() time.Duration { begin := time.Now(); t.command(s, dir, args...); return time.Since(begin) })
		},
		func() float64 { return spent(1, func() time.Duration { return t.cSpawn(dir, 1, 1, args...) }) })
	t.must(s.Close())
	t.add(row{name: fmt.Sprintf("output of %d MiB", bytes>>20), unit: "GB/s", ours: ours, floor: floor, of: "plain redirect", ratio: 0.93, least: true},
		row{name: "the same, CPU of the commands", unit: "s", ours: cpu[0] / float64(t.runs(9)), floor: cpu[1] / float64(t.runs(9)), of: "plain redirect",
			ratio: 1.07, note: "what others do meanwhile is not in it"})
}

// childrenCPU is the CPU in seconds of all that this process has started and that has
// ended.
func (t *bench) childrenCPU() float64 {
	var u unix.Rusage
	t.must(unix.Getrusage(unix.RUSAGE_CHILDREN, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// reads counts what the host reads of an output that nobody asks for.
func (t *bench) reads() {
	if _, err := exec.LookPath("strace"); err != nil {
		t.add(row{name: "reads of output by the host", note: "not measured: no strace"})
		return
	}
	dir := t.temp()
	script := filepath.Join(dir, "s.yaml")
	t.must(os.WriteFile(script, []byte("version: 1\nagents:\n  main:\n    - tools: [{name: Bash, input: {command: head -c 100000000 /dev/zero, run_in_background: true}}]\n    - {text: done, repeat: -1}\n"), 0o600))
	trace := filepath.Join(dir, "trace")
	cmd := exec.Command("strace", "-f", "-y", "-e", "trace=read,pread64,readv,preadv,splice,sendfile,copy_file_range,mmap", "-o", trace,
		t.bin, "-p", "go", "--model", "script:"+script, "--allowed-tools", "Bash(head:*)")
	cmd.Dir, cmd.Env = dir, t.env(dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.add(row{name: "reads of output by the host", note: fmt.Sprintf("not measured: %v %.100s", err, out)})
		return
	}
	data, err := os.ReadFile(trace)
	t.must(err)
	n := 0
	for line := range strings.SplitSeq(string(data), "\n") {
		if strings.Contains(line, ".output>") && !strings.Contains(line, "write(") {
			n++
		}
	}
	t.add(row{name: "reads of 100 MB of output by the host", note: fmt.Sprintf("%d under strace, target 0", n)})
}

// past writes a session with tasks that have ended.
func (t *bench) past(dir string, n int) task.ID {
	project := home.At(filepath.Join(dir, "state")).Project(dir)
	t.must(project.Ensure())
	id := task.NewSessionID()
	place := project.Session(id)
	t.must(place.Ensure())
	j, err := journal.Open(place.DB(), journal.Options{})
	t.must(err)
	t.side(n, 32, func() {
		now := time.Now().UTC()
		r := task.Record{ID: task.NewID(task.LocalBash), Run: task.NewRunID(), Kind: task.LocalBash, Status: task.Pending, Backgrounded: true, Session: id,
			Description: "make check of something", Command: "make check PKG=./something", Cwd: dir, CreateTime: now}
		r.OutputFile = place.Output(r.ID)
		t.append(j, lifecycle.Entry{Verb: task.Create, At: now, Task: r})
		code := 0
		for _, c := range []lifecycle.Change{{Verb: task.Begin, At: now, Process: &task.Process{PID: 4_000_000, Start: 1, Boot: "none"}},
			{Verb: task.Complete, At: now, ExitCode: &code}} {
			next, err := lifecycle.Apply(r, c)
			t.must(err)
			e := lifecycle.Entry{Verb: c.Verb, At: now, Task: next}
			if next.Status.Terminal() {
				e.Notification = &lifecycle.Notification{Run: r.Run, Task: r.ID, Acked: true}
			}
			t.append(j, e)
			r = next
		}
	})
	t.must(j.Close())
	now := time.Now().UTC()
	info, err := json.Marshal(control.Info{Session: id, Project: dir, Role: session.RoleBackground, StartTime: now, EndTime: &now, Tasks: control.Counts{Total: n}})
	t.must(err)
	t.must(home.WriteAtomic(place.InfoFile(), info))
	return id
}

func (t *bench) append(j *journal.Journal, e lifecycle.Entry) {
	_, err := j.Append(context.Background(), e)
	t.must(err)
}

// list is ps.
func (t *bench) list() {
	n := t.size(10_000, 2_000)
	dir := t.temp()
	env := t.env(dir)
	id := t.past(dir, n)
	scale := float64(n) / 10_000
	listed := func(name string, target float64, args ...string) {
		ours, floor := turns(t.runs(9),
			func() float64 { return ms(t.run(dir, env, append([]string{t.bin, "ps"}, args...)...).wall()) },
			func() float64 { return ms(t.run(dir, env, t.bin, "version").wall()) })
		t.add(row{name: name, unit: "ms", ours: ours, floor: floor, of: "`version`", target: target})
	}
	listed(fmt.Sprintf("`ps -a`, %d ended tasks, of an ended session", n), 50, "-a")
	listed("the same, `--json` of all", max(50, 250*scale), "-a", "--json")
	s := t.open(dir, id)
	listed(fmt.Sprintf("`ps -a`, %d ended tasks, of a live host", n), 50, "-a")
	listed("the same, `--json` of all", max(50, 250*scale), "-a", "--json")
	live := t.size(1000, 200)
	reqs := make([]control.StartRequest, live)
	for i := range reqs {
		reqs[i] = control.StartRequest{Shell: &control.ShellRequest{Args: []string{"sleep", "600"}}, Env: env, Cwd: dir}
	}
	threads, newest := threadCount(), s.Newest()
	_, err := s.Start(context.Background(), reqs)
	t.must(err)
	t.until(s, newest, live, func(r task.Record) bool { return r.Process != nil })
	more := threadCount() - threads
	listed(fmt.Sprintf("`ps` of %d live commands", live), 30)
	begin := time.Now()
	t.must(s.Close())
	t.add(row{name: fmt.Sprintf("closing with %d live commands", live), unit: "ms", ours: ms(time.Since(begin)), note: fmt.Sprintf("they cost the host %d threads", more)})
}

// until waits for so many tasks that are as said, by the events after one. A list may not show yet
// what the newest event tells, and no further one need come.
func (t *bench) until(s *assemble.Session, after task.Seq, n int, is func(task.Record) bool) {
	seen := map[task.ID]bool{}
	for e, err := range s.Events(context.Background(), after) {
		t.must(err)
		if is(e.Task) {
			seen[e.Task.ID] = true
		} else if e.Task.Status.Terminal() {
			t.Fatalf("%s ended as %s: %+v", e.Task.ID, e.Task.Status, e.Task.Cause)
		}
		if len(seen) == n {
			return
		}
	}
}

// threadCount is how many threads this process has.
func threadCount() int {
	threads, _ := os.ReadDir("/proc/self/task")
	return len(threads)
}

//go:build linux

// Package machines breaks what tasks on other machines depend on: workers, hubs, links and
// hosts, all of them real processes of the built program on this machine, with state folders of
// their own. After each fault every task has one end and one notification, and nothing of a lost
// claim is left running.
package machines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
)

// lease is that of all tests: short, since faults outlast it.
const lease = 3 * time.Second

var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "drover-machines")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "drover")
	if err := harness.Build(program, "-ldflags=-s -w"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// world is a session, a hub and a worker, between which is a link that can be cut.
type world struct {
	*harness.Place
	hub    *harness.Call
	listen string
	link   *link
	worker *harness.Call
}

func open(t *testing.T) *world {
	w := &world{Place: harness.New(t, program)}
	t.Cleanup(func() { w.End(harness.Patience) })
	w.Settings(fmt.Sprintf(`{"workers": {"lease": %q}}`, lease))
	w.startHub("127.0.0.1:0")
	w.link = newLink(t, w.listen)
	w.startWorker()
	return w
}

func (w *world) startHub(listen string) {
	w.Helper()
	w.hub = w.Start("hub", "--listen", listen)
	w.Until("the hub", func() bool {
		c := w.Run("hub", "status")
		if m := regexp.MustCompile(`hub at (\S+) `).FindStringSubmatch(c.Stdout()); c.Code() == 0 && m != nil {
			w.listen = m[1]
			return true
		}
		return false
	})
}

// startWorker starts a worker that has a state of its own, behind the link.
func (w *world) startWorker() {
	w.Helper()
	line := strings.Replace(w.Good("hub", "join"), w.listen, w.link.address(), 1)
	w.worker = w.as(w.far(), "worker", "--hub", line, "--name", "far", "--capacity", "8")
	w.Until("the worker", func() bool { return strings.Contains(w.Run("workers").Stdout(), "far") })
}

// far is the state folder of the worker.
func (w *world) far() string { return filepath.Join(w.Work, "far") }

// as starts the program with another state folder, as on another machine.
func (w *world) as(state string, args ...string) *harness.Call {
	w.Helper()
	other := *w.Place
	other.Env = append(append([]string{}, w.Env...), "DROVER_HOME="+state)
	return other.Start(args...)
}

// run starts a task at the worker that counts until it is let go, and returns its ID.
func (w *world) run(name string, flags ...string) string {
	w.Helper()
	args := append([]string{"run", "--on", "far", "-d", "--no-folder", "--name", name}, flags...)
	id := w.Good(
		append(
			args,
			"--",
			fmt.Sprintf(
				`i=0; while [ ! -e %s/go-%s ]; do i=$((i+1)); echo "%s $i"; sleep 0.02; done; echo last $i`,
				w.Dir,
				name,
				name,
			),
		)...)
	w.Until("output of "+name, func() bool { return strings.Contains(w.Run("logs", id).Stdout(), name+" 3") })
	return id
}

func (w *world) letGo(name string) { w.File("go-"+name, "", 0o600) }

func (w *world) record(id string) (r task.Record) {
	w.Helper()
	var out struct {
		task.Record
	}
	if c := w.Run("inspect", id); c.Code() == 0 {
		w.Must(json.Unmarshal([]byte(c.Stdout()), &out))
	}
	return out.Record
}

func (w *world) ended(id string) task.Record {
	w.Helper()
	w.Until("the end of "+id, func() bool { return w.record(id).Status.Terminal() })
	return w.record(id)
}

// whole checks that the output has each line once, in order.
func (w *world) whole(id, name string) {
	w.Helper()
	lines := strings.Split(strings.TrimSpace(w.Good("logs", id)), "\n")
	for i, line := range lines[:len(lines)-1] {
		if line != fmt.Sprintf("%s %d", name, i+1) {
			w.Fatalf("line %d of the output is %q", i+1, line)
		}
	}
	if last := lines[len(lines)-1]; last != fmt.Sprintf("last %d", len(lines)-1) {
		w.Fatalf("behind %d lines the output ends with %q", len(lines)-1, last)
	}
}

// once checks that each task has one end, and a notification with it.
func (w *world) once() {
	w.Helper()
	names, err := filepath.Glob(filepath.Join(w.State(), "projects", "*", "s*", "events.db"))
	if err != nil || len(names) == 0 {
		names, err = filepath.Glob(filepath.Join(w.State(), "projects", "*", "s*", "*.db"))
	}
	w.Must(err)
	if len(names) == 0 {
		w.Fatal("there is no log")
	}
	for _, name := range names {
		log, err := journal.Open(name, journal.Options{ReadOnly: true})
		w.Must(err)
		ends := map[task.ID]int{}
		for e, err := range log.Events(context.Background(), 0) {
			w.Must(err)
			if e.Task.Status.Terminal() && (e.Verb == task.Complete || e.Verb == task.Fail || e.Verb == task.Stop) {
				ends[e.Task.ID]++
			}
		}
		w.Must(log.Close())
		for id, n := range ends {
			if n != 1 {
				w.Errorf("task %s has %d ends", id, n)
			}
		}
	}
}

// gone waits until no command of a task is left.
func (w *world) gone(name string, within time.Duration) {
	w.Helper()
	begin := time.Now()
	w.Until("the end of the processes of "+name, func() bool { return len(w.Procs("go-"+name)) == 0 })
	if took := time.Since(begin); took > within {
		w.Errorf("the processes of %s ended after %s, want %s", name, took, within)
	}
}

// What is cut for less than a lease is not lost.
func TestShortCut(t *testing.T) {
	w := open(t)
	id := w.run("short")
	w.link.cut(true, true)
	time.Sleep(lease / 3) // the fault itself takes time
	w.link.mend()
	w.letGo("short")
	if r := w.ended(id); r.Status != task.Completed {
		t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
	}
	w.whole(id, "short")
	w.once()
}

// What is cut for longer is lost at both ends, once, by any direction.
func TestLongCut(t *testing.T) {
	for name, cut := range map[string][2]bool{"both": {true, true}, "to": {true, false}, "from": {false, true}} {
		t.Run(name, func(t *testing.T) {
			w := open(t)
			id := w.run(name)
			w.link.cut(cut[0], cut[1])
			r := w.ended(id)
			if r.Status != task.Failed || r.Cause.Reason != "worker_lost" {
				t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
			}
			w.gone(name, lease)
			w.link.mend()
			again := w.run("again" + name) // the worker is of use again
			w.letGo("again" + name)
			if r := w.ended(again); r.Status != task.Completed {
				t.Errorf("the next task ended as %s, %+v", r.Status, r.Cause)
			}
			if r := w.record(id); r.Status != task.Failed {
				t.Errorf("what was lost has become %s", r.Status)
			}
			w.once()
		})
	}
}

func TestWorkerKilled(t *testing.T) {
	w := open(t)
	id := w.run("killed")
	retried := w.run("tried", "--retry", "1")
	w.Must(w.worker.Cmd.Process.Kill())
	w.gone("killed", lease)
	w.startWorker()
	if r := w.ended(id); r.Status != task.Failed || r.Cause.Reason != "worker_lost" {
		t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
	}
	w.Until(
		"the second attempt",
		func() bool { r := w.record(retried); return len(r.Attempts) == 1 && r.Status == task.Running },
	)
	w.letGo("tried")
	if r := w.ended(retried); r.Status != task.Completed {
		t.Errorf("what may be tried again ended as %s, %+v", r.Status, r.Cause)
	}
	w.once()
}

// A worker that stood still for longer than its lease ends what it does before anything else, and
// what it tells is refused.
func TestWorkerStopped(t *testing.T) {
	w := open(t)
	id := w.run("stopped")
	w.Must(w.worker.Cmd.Process.Signal(syscall.SIGSTOP))
	if r := w.ended(id); r.Status != task.Failed || r.Cause.Reason != "worker_lost" {
		t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
	}
	w.gone("stopped", lease) // its keeper has seen that it stands still
	size := w.record(id).OutputBytes
	w.Must(w.worker.Cmd.Process.Signal(syscall.SIGCONT))
	again := w.run("later")
	w.letGo("later")
	w.ended(again)
	if r := w.record(id); r.OutputBytes != size {
		t.Errorf("the output grew from %d to %d bytes after the end", size, r.OutputBytes)
	}
	w.once()
}

func TestHubKilled(t *testing.T) {
	w := open(t)
	id, other := w.run("hub"), w.run("stop")
	w.Must(w.hub.Cmd.Process.Kill())
	<-w.hub.Ended()
	w.letGo("hub") // it ends while nobody can be told
	w.startHub(w.listen)
	if r := w.ended(id); r.Status != task.Completed {
		t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
	}
	w.whole(id, "hub")
	w.Good("stop", other)
	w.gone("stop", lease)
	w.once()
}

// A stop that cannot reach the worker takes effect when it hears of it, or when its lease ends.
func TestStopUnheard(t *testing.T) {
	w := open(t)
	id := w.run("unheard")
	w.link.cut(true, true)
	c := w.Run("stop", id)
	if !strings.Contains(c.Stdout()+c.Stderr(), "out of reach") &&
		!strings.Contains(c.Stdout()+c.Stderr(), "has not ended yet") {
		t.Errorf("the receipt does not say that the worker is out of reach:\n%s%s", c.Stdout(), c.Stderr())
	}
	if r := w.ended(id); r.Status != task.Killed || r.Cause.Actor != task.ByUser {
		t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
	}
	w.gone("unheard", 2*lease)
	w.once()
}

// A kept task outlives the host of its session, and the next host goes on with it.
func TestHostKilled(t *testing.T) {
	w := open(t)
	w.Settings(`{"workers": {"lease": "60s"}}`)
	kept, other := w.run("kept", "--keep"), w.run("other")
	hosts := w.Of("host")
	for _, h := range hosts {
		if h.Task == "" {
			w.Must(syscall.Kill(h.PID, syscall.SIGKILL))
		}
	}
	w.Until("the next host", func() bool { return w.Run("run", "-d", "--", "true").Code() == 0 })
	if r := w.ended(other); r.Status != task.Killed {
		t.Errorf("what is not kept ended as %s, %+v", r.Status, r.Cause)
	}
	w.gone("other", 10*time.Second)
	w.letGo("kept")
	if r := w.ended(kept); r.Status != task.Completed {
		t.Errorf("what is kept ended as %s, %+v", r.Status, r.Cause)
	}
	w.whole(kept, "kept")
	w.once()
}

// What a kept task has changed in its folder comes back to the next host of the session.
func TestHostKilledFolder(t *testing.T) {
	w := open(t)
	w.Settings(`{"workers": {"lease": "60s"}}`)
	repository(w.Place)
	id := w.Good("run", "--on", "far", "--keep", "--name", "tree", "--",
		fmt.Sprintf("echo begun; while [ ! -e %s/go-tree ]; do sleep 0.02; done; echo two >made", w.Dir))
	w.Until("the begin", func() bool { return strings.Contains(w.Run("logs", id).Stdout(), "begun") })
	for _, h := range w.Of("host") {
		if h.Task == "" {
			w.Must(syscall.Kill(h.PID, syscall.SIGKILL))
		}
	}
	w.Until("the next host", func() bool { return w.Run("run", "-d", "--", "true").Code() == 0 })
	w.letGo("tree")
	r := w.ended(id)
	if r.Status != task.Completed || r.Worktree == nil || r.Worktree.Rescue != "refs/drover/tasks/"+id {
		t.Fatalf("it ended as %s, %+v, worktree %+v", r.Status, r.Cause, r.Worktree)
	}
	git := exec.Command("git", "show", r.Worktree.Rescue+":made")
	git.Dir = w.Dir
	if out, err := git.Output(); err != nil || string(out) != "two\n" {
		t.Errorf("the ref has %q, %v", out, err)
	}
}

// worker starts another worker, with a state of its own and without a link that can be cut.
func (w *world) another(name string, args ...string) *harness.Call {
	w.Helper()
	args = append([]string{"worker", "--hub", strings.TrimSpace(w.Good("hub", "join")), "--name", name}, args...)
	c := w.as(filepath.Join(w.Work, name), args...)
	w.Until("worker "+name, func() bool { return strings.Contains(w.Run("workers").Stdout(), name) })
	return c
}

// repository makes the project a checkout with all its files.
func repository(w *harness.Place) {
	w.Helper()
	w.File("kept", "one\n", 0o600)
	for _, args := range [][]string{{"init", "-q"}, {"add", "."},
		{"-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", "first"}} {
		git := exec.Command("git", args...)
		git.Dir, git.Env = w.Dir, w.Env
		if out, err := git.CombinedOutput(); err != nil {
			w.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
}

// A task goes to the worker that has commits of its repository, and to another one if that does not take it.
func TestPrefersCheckout(t *testing.T) {
	w := open(t)
	repository(w.Place)
	near := w.another("near", "--capacity", "8") // behind the other one by its name
	w.Good("run", "--on", "near", "--", "true")
	w.Until("the repository at the worker", func() bool {
		return strings.Count(w.Run("workers", "--json").Stdout(), `"repositories"`) == 1
	})
	for i := range 10 {
		if got := w.Good("run", "--on", "auto", "--json", "--", "true"); !strings.Contains(got, `"worker": "near"`) {
			t.Errorf("task %d did not go to the worker that has the repository:\n%s", i, got)
		}
	}
	w.Must(near.Cmd.Process.Signal(syscall.SIGSTOP))
	begin := time.Now()
	if got := w.Good("run", "--on", "auto", "--json", "--", "true"); !strings.Contains(got, `"worker": "far"`) {
		t.Errorf("the task did not go to the other worker:\n%s", got)
	}
	t.Logf("at the other worker and back after %s", time.Since(begin))
	w.Must(near.Cmd.Process.Signal(syscall.SIGCONT))
}

// Tasks that come at once are spread by free places.
func TestSpreads(t *testing.T) {
	w := open(t)
	w.another("one", "--label", "pair", "--capacity", "4")
	w.another("two", "--label", "pair", "--capacity", "4")
	line := fmt.Sprintf("while [ ! -e %s/go-pair ]; do sleep 0.02; done\n", w.Dir)
	w.File("batch", strings.Repeat(line, 4), 0o600)
	ids := strings.Fields(w.Good("run", "--on", "pair", "--no-folder", "--batch", "batch"))
	at := map[string]int{}
	for _, id := range ids {
		w.Until("the begin of "+id, func() bool { return w.record(id).Status == task.Running })
		at[w.record(id).Worker]++
	}
	if at["one"] != 2 || at["two"] != 2 {
		t.Errorf("four tasks are at %v, want two at each of two workers", at)
	}
	w.letGo("pair")
	for _, id := range ids {
		w.ended(id)
	}
}

// A worker that is killed while it receives a folder leaves nothing that is half made, at either end.
func TestWorkerKilledInTransfer(t *testing.T) {
	w := open(t)
	big := make([]byte, 24<<20)
	if _, err := rand.NewChaCha8([32]byte{}).Read(big); err != nil {
		t.Fatal(err)
	}
	w.File("big", string(big), 0o600)
	w.File("small", "one\n", 0o600)
	w.link.after(10 << 20)
	id := w.Good("run", "--on", "far", "--sync", "-d", "--retry", "1", "--name", "moved", "--",
		"cmp big big && echo two >small && echo new >made")
	half := func() []string {
		found, err := filepath.Glob(filepath.Join(w.far(), "worker", "tasks-*", id+"-*", "*"))
		w.Must(err)
		return found
	}
	w.Until("half of the folder", func() bool { return len(half()) > 0 })
	w.Must(w.worker.Cmd.Process.Kill())
	<-w.worker.Ended()
	if len(half()) == 0 {
		t.Fatal("nothing was left to be removed: the worker was not in the transfer")
	}
	w.Until("the end of the first attempt", func() bool { return len(w.record(id).Attempts) == 1 })
	if got := w.record(id).Worktree; got != nil {
		t.Errorf("something has come back of it: %+v", got)
	}
	w.link.mend()
	w.startWorker()
	r := w.ended(id)
	if r.Status != task.Completed || r.Worktree == nil || r.Worktree.Path == "" {
		t.Fatalf("it ended as %s, %+v, %s, worktree %+v", r.Status, r.Cause, r.Error, r.Worktree)
	}
	for name, want := range map[string]string{"small": "two\n", "made": "new\n"} {
		if got, err := os.ReadFile(filepath.Join(r.Worktree.Path, "files", name)); err != nil || string(got) != want {
			t.Errorf("%s has come back as %q, %v", name, got, err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(w.Dir, "small")); err != nil || string(got) != "one\n" {
		t.Errorf("the file at home is %q, %v", got, err)
	}
	if left := half(); len(left) > 0 {
		t.Errorf("left at the worker: %q", left)
	}
	w.once()
}

// The next host takes in what a kept task has changed of a folder without git.
func TestHostKilledSync(t *testing.T) {
	w := open(t)
	w.Settings(`{"workers": {"lease": "60s"}}`)
	w.File("kept", "one\n", 0o600)
	id := w.Good("run", "--on", "far", "--sync", "--keep", "--name", "plain", "--",
		fmt.Sprintf("echo begun; while [ ! -e %s/go-plain ]; do sleep 0.02; done; rm kept; echo two >made", w.Dir))
	w.Until("the begin", func() bool { return strings.Contains(w.Run("logs", id).Stdout(), "begun") })
	for _, h := range w.Of("host") {
		if h.Task == "" {
			w.Must(syscall.Kill(h.PID, syscall.SIGKILL))
		}
	}
	w.Until("the next host", func() bool { return w.Run("run", "-d", "--", "true").Code() == 0 })
	w.letGo("plain")
	r := w.ended(id)
	if r.Status != task.Completed || r.Worktree == nil || r.Worktree.Path == "" {
		t.Fatalf("it ended as %s, %+v, worktree %+v", r.Status, r.Cause, r.Worktree)
	}
	if got, err := os.ReadFile(filepath.Join(r.Worktree.Path, "deleted")); err != nil || string(got) != "kept\x00" {
		t.Errorf("deleted %q, %v", got, err)
	}
	if got, err := os.ReadFile(filepath.Join(r.Worktree.Path, "files", "made")); err != nil || string(got) != "two\n" {
		t.Errorf("made %q, %v", got, err)
	}
}

// link is a port that passes bytes to another one, until it is cut.
type link struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	open  map[net.Conn]bool // guarded by mu
	held  [2]chan struct{}  // to the hub, from the hub; closed: it passes; guarded by mu
	left  int               // bytes from the hub that pass before it is cut; 0: all; guarded by mu
	flows sync.WaitGroup
}

func newLink(t *testing.T, to string) *link {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{listener: l, to: to, open: map[net.Conn]bool{}}
	for i := range k.held {
		k.held[i] = make(chan struct{})
		close(k.held[i])
	}
	k.flows.Go(k.accept)
	t.Cleanup(func() {
		_ = l.Close()
		k.mend()
		k.mu.Lock()
		for c := range k.open {
			_ = c.Close()
		}
		k.mu.Unlock()
		k.flows.Wait()
	})
	return k
}

func (k *link) address() string { return k.listener.Addr().String() }

func (k *link) accept() {
	for {
		near, err := k.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		far, err := net.Dial("tcp", k.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		k.mu.Lock()
		k.open[near], k.open[far] = true, true
		k.mu.Unlock()
		k.flows.Go(func() { k.pass(far, near, 0) })
		k.flows.Go(func() { k.pass(near, far, 1) })
	}
}

// pass copies one direction. What comes while it is cut waits, as in the buffers of a network.
func (k *link) pass(to, from net.Conn, way int) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		k.mu.Lock()
		if way == 1 && k.left > 0 {
			if k.left -= n; k.left <= 0 {
				k.left = 0
				k.held = [2]chan struct{}{make(chan struct{}), make(chan struct{})}
			}
		}
		held := k.held[way]
		k.mu.Unlock()
		<-held
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut holds one direction back, or both.
func (k *link) cut(to, from bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, cut := range []bool{to, from} {
		if cut {
			k.held[i] = make(chan struct{})
		}
	}
}

// after cuts both directions when so many more bytes have come from the hub.
func (k *link) after(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left = n
}

func (k *link) mend() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left = 0
	for _, c := range k.held {
		select {
		case <-c:
		default:
			close(c)
		}
	}
}

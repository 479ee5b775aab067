//go:build linux

// Package machines breaks what tasks on other machines depend on: workers, hubs, links, disks,
// clocks and hosts, all of them real processes of the built program on this machine, with state
// folders of their own. After each fault every task has one end and one notification, and nothing
// of a lost claim is left running; see [world.sound].
package machines

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
)

// lease is that of all tests: short, since faults outlast it.
const lease = 3 * time.Second

// longVariable asks for the long forms: programs that are built anew for the test, and links that lose packets.
const longVariable = "MACHINES"

// long skips what takes too long for each change.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv(longVariable) != "all" {
		t.Skipf("NOT TRIED: it takes long (make machines, or %s=all)", longVariable)
	}
}

// atOnce is how many tests run at the same time: most of them wait, for leases and for processes.
const atOnce = "6"

var program string

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "drover-machines")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "drover")
	if err := errors.Join(harness.Build(program, "-ldflags=-s -w"), harness.BuildHub(program, "-ldflags=-s -w")); err != nil {
		panic(err)
	}
	code := m.Run()
	if testing.Verbose() {
		tallied.print(os.Stdout)
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// world is a session, a hub and a worker, between which is a link that can be cut. Each may be on a machine of its own:
// a place with another state folder, and perhaps another program.
type world struct {
	*harness.Place                // of the session
	atHub          *harness.Place // of the hub: that of the session, unless [apart] has made another
	atWorker       *harness.Place

	lease   time.Duration
	listen  string // of the hub
	tls     bool   // the hub listens at all addresses, with TLS
	connect bool   // false: the test connects them itself
	began   time.Time

	hub    *harness.Call
	link   *link
	worker *harness.Call
}

// with is the place as one on another machine: with another state folder and further variables.
func with(p *harness.Place, bin, state string, env ...string) *harness.Place {
	other := *p
	other.Bin = bin
	other.Env = slices.Concat(p.Env, []string{"DROVER_HOME=" + state}, env)
	return &other
}

// apart gives the hub a machine of its own.
func apart(w *world) { w.atHub = with(w.Place, program, w.hubHome()) }

// hubHome is the state folder of a hub that is apart.
func (w *world) hubHome() string { return filepath.Join(w.Work, "hub") }

// withTLS makes the hub one that other machines reach.
func withTLS(w *world) { w.tls = true }

// patient makes the lease longer than what a test does, however slow the machine is.
func patient(w *world) { w.lease = harness.Patience }

// open makes a world; set changes it before anything runs.
func open(t *testing.T, set ...func(*world)) *world {
	w := &world{Place: harness.New(t, program), lease: lease, connect: true}
	w.atHub, w.atWorker = w.Place, with(w.Place, program, w.far())
	for _, f := range set {
		f(w)
	}
	w.began = time.Now()
	t.Cleanup(func() { w.End(harness.Patience) })
	w.settings()
	if w.connect {
		w.startHub(w.anywhere())
		w.link = newLink(t, w.reached())
		w.startWorker()
	}
	return w
}

// settings writes those of the session; the hub is the user's own, or one that a file names.
func (w *world) settings() {
	w.Helper()
	if w.atHub == w.Place {
		w.Settings(fmt.Sprintf(`{"workers": {"lease": %q}}`, w.lease))
		return
	}
	w.Settings(fmt.Sprintf(`{"workers": {"lease": %q, "hub": %q}}`, w.lease, w.joinFile()))
}

func (w *world) joinFile() string { return filepath.Join(w.Work, "session.join") }

// anywhere is where a hub listens at any port, and reached how others reach it.
func (w *world) anywhere() string {
	if w.tls {
		return "0.0.0.0:0"
	}
	return "127.0.0.1:0"
}

func (w *world) reached() string {
	_, port, err := net.SplitHostPort(w.listen)
	w.Must(err)
	return net.JoinHostPort("127.0.0.1", port)
}

// startHub starts the hub, and joins the session to it if that is on another machine.
func (w *world) startHub(listen string) {
	w.Helper()
	w.runHub(listen)
	if w.atHub != w.Place {
		w.Must(os.WriteFile(w.joinFile(), []byte(w.line("--session", "--address", w.reached())), 0o600))
	}
}

// runHub starts the hub and returns when it answers.
func (w *world) runHub(listen string) {
	w.Helper()
	w.hub = w.atHub.Start("hub", "--listen", listen)
	w.Until("the hub", func() bool {
		select {
		case <-w.hub.Ended():
			w.Fatal(w.hub)
		default:
		}
		about, err := os.ReadFile(filepath.Join(w.hubDir(), "hub.json"))
		var at struct {
			Address string `json:"address"`
			PID     int    `json:"pid"`
		}
		if err != nil || json.Unmarshal(about, &at) != nil || at.PID != w.hub.Cmd.Process.Pid {
			return false
		}
		w.listen = at.Address
		return w.atHub.Run("hub", "join").Code() == 0
	})
}

// hubDir is where the hub keeps its files.
func (w *world) hubDir() string {
	if w.atHub == w.Place {
		return filepath.Join(w.State(), "hub")
	}
	return filepath.Join(w.hubHome(), "hub")
}

// line is a join line of the hub.
func (w *world) line(flags ...string) string {
	w.Helper()
	return w.atHub.Good(append([]string{"hub", "join"}, flags...)...)
}

// killHub ends the hub as a loss of power does.
func (w *world) killHub() {
	w.Helper()
	w.Must(w.hub.Cmd.Process.Kill())
	<-w.hub.Ended()
}

// startWorker starts a worker that has a state of its own, behind the link.
func (w *world) startWorker() {
	w.Helper()
	w.joinWorker("far", w.link.address())
}

// joinWorker starts a worker that reaches the hub at an address.
func (w *world) joinWorker(name, address string) {
	w.Helper()
	line := w.line("--address", address)
	w.worker = w.atWorker.Start("worker", "--hub", line, "--name", name, "--capacity", "8")
	w.Until("the worker "+name, func() bool {
		select {
		case <-w.worker.Ended():
			w.Fatal(w.worker)
		default:
		}
		return strings.Contains(w.Run("workers").Stdout(), name+" ")
	})
}

// far is the state folder of the worker.
func (w *world) far() string { return filepath.Join(w.Work, "far") }

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

// gone waits until no command of a task is left.
func (w *world) gone(name string) {
	w.Helper()
	w.Until("the end of the processes of "+name, func() bool { return len(w.Procs("go-"+name)) == 0 })
}

// What is cut for less than a lease is not lost.
func TestShortCut(t *testing.T) {
	t.Parallel()
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
	w.sound("link cut for less than a lease")
}

// What is cut for longer is lost at both ends, once, by any direction.
func TestLongCut(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string][2]bool{"both": {true, true}, "to": {true, false}, "from": {false, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t)
			id := w.run(name)
			w.link.cut(cut[0], cut[1])
			r := w.ended(id)
			if r.Status != task.Failed || r.Cause.Reason != "worker_lost" {
				t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
			}
			w.gone(name)
			w.link.mend()
			again := w.run("again" + name) // the worker is of use again
			w.letGo("again" + name)
			if r := w.ended(again); r.Status != task.Completed {
				t.Errorf("the next task ended as %s, %+v", r.Status, r.Cause)
			}
			if r := w.record(id); r.Status != task.Failed {
				t.Errorf("what was lost has become %s", r.Status)
			}
			w.sound("link cut for longer")
		})
	}
}

func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	w := open(t)
	id := w.run("killed")
	retried := w.run("tried", "--retry", "1")
	w.Must(w.worker.Cmd.Process.Kill())
	w.gone("killed")
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
	w.sound("worker killed")
}

// A worker that stood still for longer than its lease ends what it does before anything else, and
// what it tells is refused.
func TestWorkerStopped(t *testing.T) {
	t.Parallel()
	w := open(t)
	id := w.run("stopped")
	w.Must(w.worker.Cmd.Process.Signal(syscall.SIGSTOP))
	if r := w.ended(id); r.Status != task.Failed || r.Cause.Reason != "worker_lost" {
		t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
	}
	w.gone("stopped") // its keeper has seen that it stands still
	size := w.record(id).OutputBytes
	w.Must(w.worker.Cmd.Process.Signal(syscall.SIGCONT))
	again := w.run("later")
	w.letGo("later")
	w.ended(again)
	if r := w.record(id); r.OutputBytes != size {
		t.Errorf("the output grew from %d to %d bytes after the end", size, r.OutputBytes)
	}
	w.sound("worker stopped and continued")
}

func TestHubKilled(t *testing.T) {
	t.Parallel()
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
	w.gone("stop")
	w.sound("hub killed")
}

// A stop that cannot reach the worker takes effect when it hears of it, or when its lease ends.
func TestStopUnheard(t *testing.T) {
	t.Parallel()
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
	w.gone("unheard")
	w.sound("stop while the link is cut")
}

// A kept task outlives the host of its session, and the next host goes on with it.
func TestHostKilled(t *testing.T) {
	t.Parallel()
	w := open(t, patient)
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
	w.gone("other")
	w.letGo("kept")
	if r := w.ended(kept); r.Status != task.Completed {
		t.Errorf("what is kept ended as %s, %+v", r.Status, r.Cause)
	}
	w.whole(kept, "kept")
	w.sound("host of the session killed")
}

// What a kept task has changed in its folder comes back to the next host of the session.
func TestHostKilledFolder(t *testing.T) {
	t.Parallel()
	w := open(t, patient)
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
	w.sound("host of the session killed")
}

// A worker that is killed while it receives a folder leaves nothing that is half made, at either end.
func TestWorkerKilledInTransfer(t *testing.T) {
	t.Parallel()
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
	w.sound("worker killed in a transfer")
}

// The next host takes in what a kept task has changed of a folder without git.
func TestHostKilledSync(t *testing.T) {
	t.Parallel()
	w := open(t, patient)
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
	w.sound("host of the session killed")
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

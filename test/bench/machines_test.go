//go:build linux

package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/waittest"
)

// floorVariable makes this program a worker that does nothing but answer, see [floorWorker]. It has
// a name, how many commands may run at once, and the line of a hub.
const floorVariable = "BENCH_FLOOR"

// floorSubject is where such workers are asked.
const floorSubject = "bench.run"

// floorWorker runs the commands that it is asked for and answers with what they print: what it
// costs at least to have a command done elsewhere. It ends with its stdin.
func floorWorker() int {
	var name, line string
	var capacity int
	_, err := fmt.Sscan(os.Getenv(floorVariable), &name, &capacity, &line)
	var join link.Join
	if err == nil {
		join, err = link.ParseJoin(line)
	}
	var l *link.Link
	if err == nil {
		l, err = link.Open(context.Background(), link.Options{Role: link.RoleSession, Name: name, Join: join})
	}
	if err == nil {
		err = floorServe(l, capacity)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func floorServe(l *link.Link, capacity int) error {
	defer l.Close()
	places := make(chan struct{}, capacity)
	var running sync.WaitGroup
	defer running.Wait()
	sub, err := l.Conn.QueueSubscribe(floorSubject, "floor", func(m *nats.Msg) {
		places <- struct{}{}
		running.Go(func() {
			args := strings.Split(string(m.Data), "\x00")
			out, err := exec.Command(args[0], args[1:]...).Output()
			if err == nil {
				_ = m.Respond(out)
			}
			<-places
		})
	})
	if err == nil {
		err = l.Conn.Flush()
	}
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return sub.Unsubscribe()
}

// machines is a hub, its workers and the host of a session: each a process of the program, with a
// state of its own, as on as many machines.
type machines struct {
	*bench
	dir     string
	count   int // of workers
	places  int // of each
	hub     *member
	workers []*member
	floors  []*member
	project string
	own     []string // environment of the session
	asks    *link.Link
	host    *control.Client
	pid     int    // of the host
	outputs string // folder of the session's output files
	ends    chan task.Record
	follow  context.CancelFunc
}

// member is one process of the fleet.
type member struct {
	cmd   *exec.Cmd
	stdin io.Closer
	text  string // what it has said until it was ready
}

// begin starts a process and waits until it says a word.
func (m *machines) begin(word string, env []string, argv ...string) *member {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = m.temp(), env
	var errs strings.Builder
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	m.must(err)
	out, err := cmd.StdoutPipe()
	m.must(err)
	m.must(cmd.Start())
	one := &member{cmd: cmd, stdin: in}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if one.text += lines.Text() + "\n"; strings.Contains(one.text, word) {
			return one
		}
	}
	_ = cmd.Wait()
	m.Fatalf("%v has ended: %s", argv, errs.String())
	return nil
}

// end ends processes and waits for them.
func (m *machines) end(all ...*member) {
	for _, one := range all {
		_ = one.stdin.Close()
		_ = one.cmd.Process.Signal(unix.SIGTERM) // it may have ended with its stdin
	}
	for _, one := range all {
		late := time.AfterFunc(harness.Patience, func() { _ = one.cmd.Process.Kill() })
		_ = one.cmd.Wait() // of its own accord or not: what is left is looked for
		late.Stop()
	}
}

// openMachines starts all of them.
func (t *bench) openMachines(workers, places int) *machines {
	m := &machines{bench: t, dir: t.temp(), count: workers, places: places, ends: make(chan task.Record, 1000)}
	m.project = filepath.Join(m.dir, "project")
	m.must(os.Mkdir(m.project, 0o700))
	m.own = m.of("session")
	m.must(harness.BuildHub(m.bin, harness.Stamp("bench")))
	m.hub = m.begin("join by", m.own, m.bin, "hub", "--listen", "127.0.0.1:0")
	_, line, _ := strings.Cut(m.hub.text, "--hub '")
	line, _, _ = strings.Cut(line, "'")
	session := strings.TrimSpace(m.good("hub", "join", "--session"))
	m.workers, m.floors = make([]*member, workers), make([]*member, workers)
	for i := range workers {
		name := fmt.Sprintf("w%d", i)
		m.workers[i] = m.begin("takes tasks", m.of(name), m.bin, "worker", "--hub", line, "--name", name,
			"--capacity", fmt.Sprint(places))
	}
	exe, err := os.Executable()
	m.must(err)
	for i := range workers {
		m.floors[i] = m.begin("ready", m.of("floor", fmt.Sprintf("%s=f%d %d %s", floorVariable, i, places, session)), exe)
	}
	join, err := link.ParseJoin(session)
	m.must(err)
	m.asks, err = link.Open(context.Background(), link.Options{Role: link.RoleSession, Name: "bench", Join: join})
	m.must(err)
	m.openHost()
	return m
}

// of is the environment of a member, whose home it makes.
func (m *machines) of(name string, more ...string) []string {
	m.must(os.MkdirAll(filepath.Join(m.dir, name), 0o700))
	return append(m.env(filepath.Join(m.dir, name), more...), harness.Mark+"="+m.dir)
}

func (m *machines) good(args ...string) string {
	cmd := exec.Command(m.bin, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = m.project, m.own, os.Stderr
	out, err := cmd.Output()
	m.must(err)
	return string(out)
}

// openHost has the program start a host for the session, and listens to it.
func (m *machines) openHost() {
	id := task.ID(strings.TrimSpace(m.good("run", "-d", "--", "true")))
	home := filepath.Join(m.dir, "session")
	m.settled(m.project, m.own)
	info := m.hostInfo(home)
	m.pid, m.host = info.PID, control.Dial(info.Socket)
	r, err := m.host.Get(context.Background(), string(id))
	m.must(err)
	m.outputs = filepath.Dir(r.OutputFile)
	ctx, cancel := context.WithCancel(context.Background())
	followed := make(chan struct{})
	m.follow = func() { cancel(); <-followed }
	go func() { // ends by follow
		defer close(followed)
		for e, err := range m.host.Events(ctx, 0) {
			if err == nil && e.Task.Status.Terminal() && e.Task.ID != id {
				m.ends <- e.Task
			}
		}
	}()
}

// close ends all of them, and nothing is left.
func (m *machines) close() {
	m.follow()
	m.asks.Close()
	m.endHost(filepath.Join(m.dir, "session"), m.own)
	m.end(m.workers...)
	m.end(m.floors...)
	m.end(m.hub)
	left := func() []harness.Proc { return harness.Marked(m.dir) }
	if !waittest.Until(harness.Patience, func() bool { return len(left()) == 0 }) {
		m.Errorf("left running: %+v", left())
	}
	m.must(os.RemoveAll(m.dir))
}

// carried is what became of some tasks.
type carried struct {
	rate  float64   // tasks in a second, until the last one had ended
	first []float64 // from the request to the first byte, in ms
}

// tasks has the session do n tasks at a worker, or here if on is empty.
func (m *machines) tasks(on string, n int, args ...string) carried {
	const part = 1000 // of one request, as the command line has it
	reqs := make([]control.StartRequest, n)
	for i := range reqs {
		reqs[i] = control.StartRequest{Shell: &control.ShellRequest{Args: args}, Env: m.own, Cwd: m.project, On: on, NoFolder: on != ""}
	}
	seen := m.watch(m.outputs)
	asked := map[string]time.Time{}
	begin := time.Now()
	for at := 0; at < n; at += part {
		now := time.Now()
		started, err := m.host.Start(context.Background(), reqs[at:min(n, at+part)])
		m.must(err)
		for _, one := range started {
			if one.Error != nil {
				m.Fatal(one.Error)
			}
			asked[one.Task.OutputFile] = now
		}
	}
	for ended := map[task.ID]bool{}; len(ended) < n; {
		select {
		case r := <-m.ends:
			if r.Status != task.Completed {
				m.Fatalf("%s is %s: %s", r.ID, r.Status, r.Error)
			}
			ended[r.ID] = true
		case <-time.After(harness.Patience):
			m.Fatalf("%d of %d tasks have ended, and no more do", len(ended), n)
		}
	}
	c := carried{rate: float64(n) / time.Since(begin).Seconds()}
	for path, at := range seen.stop() {
		if from, ok := asked[path]; ok {
			c.first = append(c.first, ms(at.Sub(from)))
		}
	}
	if len(c.first) != n {
		m.Fatalf("%d of %d tasks have printed something", len(c.first), n)
	}
	return c
}

// plain has as many commands done by request and reply.
func (m *machines) plain(n int, args ...string) carried {
	took := make([]float64, n)
	errs := make(chan error, n)
	begin := time.Now()
	for i := range n {
		go func() { // joined below
			_, err := m.asks.Conn.Request(floorSubject, []byte(strings.Join(args, "\x00")), harness.Patience)
			took[i] = ms(time.Since(begin))
			errs <- err
		}()
	}
	for range n {
		m.must(<-errs)
	}
	return carried{rate: float64(n) / time.Since(begin).Seconds(), first: took}
}

// written tells when files were written to for the first time.
type written struct {
	file *os.File
	dir  string
	all  chan map[string]time.Time
}

// watch begins to look at the files of a folder.
func (t *bench) watch(dir string) *written {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	t.must(err)
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_MODIFY)
	t.must(err)
	w := &written{os.NewFile(uintptr(fd), "inotify"), dir, make(chan map[string]time.Time)}
	go w.read() // ends by stop
	return w
}

func (w *written) read() {
	first := map[string]time.Time{}
	for buf := make([]byte, 64<<10); ; {
		n, err := w.file.Read(buf)
		if err != nil {
			w.all <- first
			return
		}
		now := time.Now()
		for at := 0; at < n; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
			at += unix.SizeofInotifyEvent
			path := filepath.Join(w.dir, strings.TrimRight(string(buf[at:at+int(e.Len)]), "\x00"))
			at += int(e.Len)
			if path == w.last() {
				w.all <- first
				return
			}
			if _, ok := first[path]; !ok {
				first[path] = now
			}
		}
	}
}

// last is a file by which the reader knows that it has all that was written before stop.
func (w *written) last() string { return filepath.Join(w.dir, "stop") }

func (w *written) stop() map[string]time.Time {
	err := os.WriteFile(w.last(), []byte("x"), 0o600)
	if err != nil {
		_ = w.file.Close() // which ends the reader
	}
	all := <-w.all
	_ = w.file.Close()
	_ = os.Remove(w.last())
	return all
}

// fleet is what tasks cost at workers.
func (t *bench) fleet() {
	m := t.openMachines(t.size(50, 10), 4)
	defer m.close()
	m.idleRows()
	m.queued()
	m.single()
	m.large()
	m.waitingRows()
	m.memory()
}

// queued are many small tasks at once.
func (m *machines) queued() {
	n, rounds := m.size(2000, 200), m.size(3, 1)
	echo := []string{"/bin/echo", "hello"}
	m.tasks("auto", 2*m.count, echo...) // connections and pages are there
	m.plain(2*m.count, echo...)
	var rates [3][]float64
	var first [3][]float64
	for range rounds {
		for i, c := range []carried{m.tasks("auto", n, echo...), m.plain(n, echo...), m.tasks("", n, echo...)} {
			rates[i] = append(rates[i], c.rate)
			first[i] = append(first[i], c.first...)
		}
	}
	name := fmt.Sprintf("%d × `echo` at %d workers", n, m.count)
	ours := median(rates[0])
	m.add(row{name: name, unit: "tasks/s", ours: ours, floor: median(rates[1]), of: "NATS request-reply",
		note: fmt.Sprintf("%d at once", m.count*m.places)},
		row{name: "the same", unit: "tasks/s", ours: ours, floor: median(rates[2]), of: "by the session here"},
		m.firstByte("all requested at once: request to first byte, p50", 0.5, first[0], first[1], "NATS request-reply"),
		m.firstByte("the same, p99", 0.99, first[0], first[1], "NATS request-reply"),
		m.firstByte("the same, p99", 0.99, first[0], first[2], "by the session here"))
}

func (m *machines) firstByte(name string, q float64, ours, floor []float64, of string) row {
	return row{name: name, unit: "ms", ours: quantile(ours, q), floor: quantile(floor, q), of: of}
}

// single are tasks one after the other.
func (m *machines) single() {
	var first [3][]float64
	for range m.size(200, 30) {
		for i, c := range []carried{m.tasks("auto", 1, "/bin/echo", "hello"), m.plain(1, "/bin/echo", "hello"),
			m.tasks("", 1, "/bin/echo", "hello")} {
			first[i] = append(first[i], c.first...)
		}
	}
	m.add(m.firstByte("one `echo` at a worker: request to first byte, p50", 0.5, first[0], first[1], "NATS request-reply"),
		m.firstByte("the same, p99", 0.99, first[0], first[1], "NATS request-reply"),
		m.firstByte("the same, p50", 0.5, first[0], first[2], "by the session here"))
}

// large are tasks that print much.
func (m *machines) large() {
	const n = 50
	print := []string{"head", "-c", "1000000", "/dev/zero"}
	var rates [3][]float64
	for range m.size(5, 1) {
		for i, c := range []carried{m.tasks("auto", n, print...), m.plain(n, print...), m.tasks("", n, print...)} {
			rates[i] = append(rates[i], c.rate) // a task is a megabyte
		}
	}
	m.add(row{name: fmt.Sprintf("%d tasks at workers, 1 MB of output each", n), unit: "MB/s", ours: median(rates[0]), floor: median(rates[1]), of: "NATS request-reply"},
		row{name: "the same", unit: "MB/s", ours: median(rates[0]), floor: median(rates[2]), of: "by the session here"})
}

// spending is the processor time of some processes in a while, in ms for each second.
func (m *machines) spending(pause time.Duration, pids ...int) []float64 {
	before := make([]time.Duration, len(pids))
	for i, pid := range pids {
		before[i] = cpuTime(m.bench, pid)
	}
	<-time.After(pause) // what is measured is that nothing happens
	out := make([]float64, len(pids))
	for i, pid := range pids {
		out[i] = ms(cpuTime(m.bench, pid)-before[i]) / pause.Seconds()
	}
	return out
}

func pids(all []*member) (out []int) {
	for _, one := range all {
		out = append(out, one.cmd.Process.Pid)
	}
	return out
}

func sum(v []float64) (s float64) {
	for _, x := range v {
		s += x
	}
	return s
}

// idleRows are what a fleet costs that does nothing.
func (m *machines) idleRows() {
	cpu := m.spending(m.pause(), append(pids(m.workers), m.hub.cmd.Process.Pid)...)
	m.add(row{name: fmt.Sprintf("the hub of %d idle workers, CPU", m.count), unit: "ms/s", ours: cpu[m.count]},
		row{name: "an idle worker, CPU", unit: "ms/s", ours: sum(cpu[:m.count]) / float64(m.count)})
}

func (m *machines) pause() time.Duration { return time.Duration(m.size(20, 5)) * time.Second }

// waitingRows are tasks for which there is no worker, and tasks that run for long.
func (m *machines) waitingRows() {
	n := m.size(2000, 200)
	all := append(pids(m.workers), m.hub.cmd.Process.Pid, m.pid)
	for _, kind := range []struct {
		name, on string
		n        int
	}{{"tasks that wait for a worker", "nobody", n}, {"tasks that run at workers", "auto", m.count * m.places}} {
		before := private(m.bench, m.pid)
		reqs := make([]control.StartRequest, kind.n)
		for i := range reqs {
			reqs[i] = control.StartRequest{Shell: &control.ShellRequest{Args: []string{"sleep", "600"}}, Cwd: m.project, On: kind.on, NoFolder: true}
		}
		started, err := m.host.Start(context.Background(), reqs)
		m.must(err)
		refs := make([]string, len(started))
		for i, one := range started {
			if one.Error != nil {
				m.Fatal(one.Error)
			}
			refs[i] = string(one.Task.ID)
		}
		<-time.After(m.pause() / 2) // the start is over
		cpu := m.spending(m.pause(), all...)
		more := private(m.bench, m.pid) - before
		m.add(row{name: fmt.Sprintf("%d %s: memory of the host for each", kind.n, kind.name), unit: "KiB", ours: 1024 * more / float64(kind.n)},
			row{name: "the same, CPU of the host", unit: "ms/s", ours: cpu[m.count+1],
				note: fmt.Sprintf("hub %.1f ms/s, a worker %.1f ms/s", cpu[m.count], sum(cpu[:m.count])/float64(m.count))})
		_, err = m.host.Stop(context.Background(), control.StopRequest{Refs: refs})
		m.must(err)
		for ended := map[task.ID]bool{}; len(ended) < kind.n; {
			ended[(<-m.ends).ID] = true
		}
	}
}

// private is the memory that a process shares with no other, in MiB.
func private(t *bench, pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	t.must(err)
	var all float64
	for line := range strings.Lines(string(data)) {
		var name string
		var kib float64
		if n, _ := fmt.Sscanf(line, "%s %f kB", &name, &kib); n == 2 && strings.HasPrefix(name, "Private_") {
			all += kib / 1024
		}
	}
	return all
}

// memory is what each process has in the end.
func (m *machines) memory() {
	var rss, own []float64
	for _, pid := range pids(m.workers) {
		rss, own = append(rss, memoryOf(m.bench, pid)["VmRSS"]), append(own, private(m.bench, pid))
	}
	hub := m.hub.cmd.Process.Pid
	for _, r := range []struct {
		name          string
		rss, own, top float64
	}{
		{"memory of the hub", memoryOf(m.bench, hub)["VmRSS"], private(m.bench, hub), memoryOf(m.bench, hub)["VmHWM"]},
		{"memory of a worker", median(rss), median(own), 0},
		{"memory of the host of the session", memoryOf(m.bench, m.pid)["VmRSS"], private(m.bench, m.pid), memoryOf(m.bench, m.pid)["VmHWM"]},
	} {
		note := fmt.Sprintf("%.1f MiB of it private", r.own)
		if r.top > 0 {
			note += fmt.Sprintf(", peak %.0f MiB", r.top)
		}
		m.add(row{name: r.name, unit: "MiB", ours: r.rss, note: note})
	}
}

//go:build linux

package machines

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
)

// Hosts of a network, each of which is a network namespace.
const (
	hostHub = iota
	hostWorker
	hostSession
)

// hubPort is that of the hub, at hubAddress, which is of no interface between the hosts.
const (
	hubAddress = "198.18.0.1"
	hubPort    = "7484"
)

// network is three hosts: between that of the hub and each of the others is a wire. Its addresses are those that
// RFC 2544 sets apart for tests, and reach nothing else.
type network struct {
	*world
	names [3]string
	lossy [3]*lossy // the wires of packets, by the host at their far end; nil: of the kernel
}

// openNetwork makes hosts, and a hub, a worker and a session on them; loss says what the wires do to packets, nil: the
// kernel has them, and they do nothing.
func openNetwork(t *testing.T, loss *impairment) *network {
	n := &network{}
	n.world = open(t, apart, func(w *world) {
		w.connect = false
		n.world = w
		n.hosts(loss)
		w.Bin = n.on(hostSession)
		w.atHub = with(w.Place, n.on(hostHub), w.hubHome())
		w.atWorker = with(w.Place, n.on(hostWorker), w.far())
	})
	n.runHub(net.JoinHostPort("0.0.0.0", hubPort))
	address := net.JoinHostPort(hubAddress, hubPort)
	n.Must(os.WriteFile(n.joinFile(), []byte(n.line("--session", "--address", address)), 0o600))
	if state := n.Good("hub", "status"); !strings.Contains(state, "(TLS)") {
		t.Fatalf("the hub has no TLS: %s", state)
	}
	n.joinWorker("far", address)
	return n
}

// ip runs the program that makes networks.
func (n *network) ip(args ...string) {
	n.Helper()
	if out, err := exec.Command(ipProgram, args...).CombinedOutput(); err != nil {
		n.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

const (
	ipProgram = "/usr/sbin/ip"
	tcProgram = "/usr/sbin/tc"
)

// hosts makes the hosts and their wires, or skips the test.
func (n *network) hosts(loss *impairment) {
	n.Helper()
	if os.Getuid() != 0 {
		n.Skip("NOT TRIED: only root makes network namespaces")
	}
	for i, what := range []string{"hub", "worker", "session"} {
		n.names[i] = fmt.Sprintf("drover-%d-%s-%s", os.Getpid(), filepath.Base(n.Sockets), what)
		name := n.names[i]
		if out, err := exec.Command(ipProgram, "netns", "add", name).CombinedOutput(); err != nil {
			n.Skipf("NOT TRIED: no network namespace can be made here: %v: %s", err, out)
		}
		n.Cleanup(func() {
			if out, err := exec.Command(ipProgram, "netns", "delete", name).CombinedOutput(); err != nil {
				n.Errorf("delete network namespace: %v: %s", err, out)
			}
		})
		n.ip("-n", name, "link", "set", "lo", "up")
	}
	n.ip("-n", n.names[hostHub], "address", "add", hubAddress+"/32", "dev", "lo")
	for _, far := range []int{hostWorker, hostSession} {
		if loss == nil {
			n.pair(far)
		} else {
			n.lossy[far] = n.wire(far, *loss)
		}
		n.ip("-n", n.names[hostHub], "address", "add", near(far)+"/30", "dev", device(far))
		n.ip("-n", n.names[far], "address", "add", distant(far)+"/30", "dev", device(far))
		n.ip("-n", n.names[hostHub], "link", "set", device(far), "up")
		n.ip("-n", n.names[far], "link", "set", device(far), "up")
		n.ip("-n", n.names[far], "route", "add", hubAddress+"/32", "via", near(far))
		if loss == nil {
			n.mend(far)
		}
	}
}

// Of the wire between the hub and a host: the interfaces at both ends, and the addresses.
func device(far int) string  { return fmt.Sprintf("wire%d", far) }
func near(far int) string    { return fmt.Sprintf("198.18.%d.1", far) }
func distant(far int) string { return fmt.Sprintf("198.18.%d.2", far) }

// Hardware addresses of the ends, and one that nobody has.
const (
	nearHardware    = "02:00:00:00:00:01"
	distantHardware = "02:00:00:00:00:02"
	noHardware      = "02:00:00:00:00:03"
)

func (n *network) pair(far int) {
	n.Helper()
	n.ip("link", "add", device(far), "netns", n.names[hostHub], "address", nearHardware, "type", "veth",
		"peer", "name", device(far), "netns", n.names[far], "address", distantHardware)
}

// cutWire loses what goes to the hub from a host, or what comes from it, or both: the frames are addressed to nobody, and
// who sends them does not notice.
func (n *network) cutWire(far int, toHub, fromHub bool) {
	n.Helper()
	if toHub {
		n.neighbour(far, near(far), noHardware, far)
	}
	if fromHub {
		n.neighbour(hostHub, distant(far), noHardware, far)
	}
}

func (n *network) mend(far int) {
	n.Helper()
	n.neighbour(far, near(far), nearHardware, far)
	n.neighbour(hostHub, distant(far), distantHardware, far)
}

// neighbour says at a host which hardware address another one has on a wire.
func (n *network) neighbour(at int, of, hardware string, far int) {
	n.Helper()
	n.ip("-n", n.names[at], "neighbour", "replace", of, "lladdr", hardware, "dev", device(far), "nud", "permanent")
}

// on is a program that runs Drover on a host.
func (n *network) on(host int) string {
	n.Helper()
	dir := filepath.Join(n.Work, n.names[host])
	n.Must(os.MkdirAll(dir, 0o700))
	file := filepath.Join(dir, "drover")
	n.Must(os.WriteFile(file, fmt.Appendf(nil, "#!/bin/sh\nexec %s netns exec %s %s \"$@\"\n", ipProgram, n.names[host], program),
		0o700))
	return file
}

// What is cut on a real link with TLS, in any direction, for less than a lease or for more, at the worker or at the
// session, has one end.
func TestNetworkCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		far            int
		toHub, fromHub bool
		long           bool
	}{
		{"worker, both ways, short", hostWorker, true, true, false},
		{"worker, both ways, long", hostWorker, true, true, true},
		{"worker, to the hub, long", hostWorker, true, false, true},
		{"worker, from the hub, long", hostWorker, false, true, true},
		{"session, both ways, short", hostSession, true, true, false},
		{"session, both ways, long", hostSession, true, true, true},
		{"session, to the hub, long", hostSession, true, false, true},
		{"session, from the hub, long", hostSession, false, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := openNetwork(t, nil)
			id := n.run("cut")
			n.cutWire(c.far, c.toHub, c.fromHub)
			if c.long {
				if r := n.ended(id); r.Status != task.Failed || r.Cause.Reason != "worker_lost" {
					t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
				}
				n.gone("cut")
				n.mend(c.far)
			} else {
				time.Sleep(lease / 3) // the fault itself takes time
				n.mend(c.far)
				n.letGo("cut")
				if r := n.ended(id); r.Status != task.Completed {
					t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
				}
				n.whole(id, "cut")
			}
			again := n.run("again")
			n.letGo("again")
			if r := n.ended(again); r.Status != task.Completed {
				t.Errorf("the next task ended as %s, %+v", r.Status, r.Cause)
			}
			n.whole(again, "again")
			n.sound("wire cut: " + c.name)
		})
	}
}

// impairment is what a wire does to packets, in both directions.
type impairment struct {
	delay, jitter time.Duration
	loss          float64 // part of the packets that are lost
	twice         float64 // part that comes twice
}

// Wires that delay, lose, double and reorder packets slow work down, and change nothing.
func TestNetworkLossy(t *testing.T) {
	t.Parallel()
	for name, loss := range map[string]impairment{
		"1 %": {delay: 20 * time.Millisecond, jitter: 20 * time.Millisecond, loss: 0.01, twice: 0.01},
		"5 %": {delay: 50 * time.Millisecond, jitter: 50 * time.Millisecond, loss: 0.05, twice: 0.02},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if loss.loss > 0.01 {
				long(t)
			}
			n := openNetwork(t, &loss)
			n.work("packets lost, late, twice and in another order")
			for _, far := range []int{hostWorker, hostSession} {
				passed, lost, overtaken := n.lossy[far].counts()
				t.Logf("%s: %d packets passed, %d were lost, %d were overtaken", device(far), passed, lost, overtaken)
				if lost == 0 || overtaken == 0 {
					t.Errorf("the wire has lost %d packets and reordered %d of %d", lost, overtaken, passed)
				}
			}
		})
	}
}

// The same on wires of the kernel, if it has the discipline netem.
func TestNetworkNetem(t *testing.T) {
	t.Parallel()
	n := &network{}
	n.world = &world{Place: harness.New(t, program)}
	t.Cleanup(func() { n.End(harness.Patience) })
	n.hosts(nil)
	netem := func(n *network, at, far int) ([]byte, error) {
		return exec.Command(tcProgram, "-n", n.names[at], "qdisc", "add", "dev", device(far), "root", "netem",
			"delay", "30ms", "20ms", "loss", "3%", "reorder", "25%", "50%", "duplicate", "1%").CombinedOutput()
	}
	if out, err := netem(n, hostHub, hostWorker); err != nil {
		t.Skipf("NOT TRIED: tc refuses netem, which is in kernels with sch_netem (TestNetworkLossy does it without): %v: %s",
			err, out)
	}
	n = openNetwork(t, nil)
	for _, far := range []int{hostWorker, hostSession} {
		for _, at := range []int{hostHub, far} {
			if out, err := netem(n, at, far); err != nil {
				t.Fatalf("tc: %v: %s", err, out)
			}
		}
	}
	n.work("packets lost and late by netem")
}

// work has tasks with short and with long output done, and a folder taken there and back.
func (n *network) work(fault string) {
	n.Helper()
	ids := map[string]string{}
	for _, name := range []string{"one", "two", "three"} {
		ids[name] = n.run(name)
	}
	const lines = 20_000
	much := n.Good("run", "--on", "far", "-d", "--no-folder", "--", "seq", fmt.Sprint(lines))
	n.File("kept", strings.Repeat("0123456789abcdef\n", 20_000), 0o600)
	moved := n.Good("run", "--on", "far", "--sync", "-d", "--", "sh", "-c", "cp kept copy")
	for name, id := range ids {
		n.letGo(name)
		if r := n.ended(id); r.Status != task.Completed {
			n.Errorf("%s ended as %s, %+v", name, r.Status, r.Cause)
		}
		n.whole(id, name)
	}
	for _, id := range []string{much, moved} {
		if r := n.ended(id); r.Status != task.Completed {
			n.Errorf("%s ended as %s, %+v, %s", id, r.Status, r.Cause, r.Error)
		}
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintln(&want, i+1)
	}
	if r := n.record(much); r.OutputBytes != int64(want.Len()) {
		n.Errorf("it has %d bytes of output, want %d", r.OutputBytes, want.Len())
	}
	if r := n.record(moved); r.Worktree == nil {
		n.Error("its folder has not come back")
	} else if got, err := os.ReadFile(filepath.Join(r.Worktree.Path, "files", "copy")); err != nil || len(got) != 17*20_000 {
		n.Errorf("the file has come back with %d bytes, %v", len(got), err)
	}
	n.sound(fault)
}

// lossy is a wire whose ends are devices of this process, between which it carries packets and is a bad network.
type lossy struct {
	ends   [2]*os.File
	how    impairment
	flows  sync.WaitGroup
	closed chan struct{}

	mu        sync.Mutex
	sent      [2]int // by direction; guarded by mu
	newest    [2]int // of those that have arrived, by direction; guarded by mu
	lost      int    // guarded by mu
	overtaken int    // guarded by mu
}

// wire makes a wire of packets between the host of the hub and another one.
func (n *network) wire(far int, how impairment) *lossy {
	n.Helper()
	l := &lossy{how: how, closed: make(chan struct{})}
	for i, host := range []int{hostHub, far} {
		end, err := tunnel(n.names[host], device(far))
		if err != nil {
			n.Skipf("NOT TRIED: no device for packets can be made here: %v", err)
		}
		l.ends[i] = end
	}
	for way := range l.ends {
		l.flows.Go(func() { l.carry(way) })
	}
	n.Cleanup(func() {
		close(l.closed)
		for _, end := range l.ends {
			_ = end.Close()
		}
		l.flows.Wait()
	})
	return l
}

// tunnel makes a device for packets in a namespace.
func tunnel(namespace, name string) (*os.File, error) {
	type result struct {
		file *os.File
		err  error
	}
	made := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and the thread, which is in the namespace now, ends with the goroutine
		file, err := tunnelHere(namespace, name)
		made <- result{file, err}
	}()
	r := <-made
	return r.file, r.err
}

func tunnelHere(namespace, name string) (*os.File, error) {
	ns, err := os.Open("/run/netns/" + namespace)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter namespace: %w", err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make device: %w", err)
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

// carry carries what one end sends to the other, each packet with a delay of its own.
func (l *lossy) carry(way int) {
	buf := make([]byte, 64<<10)
	for {
		size, err := l.ends[way].Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case <-l.closed:
				return
			default: // the device is not up yet
				time.Sleep(time.Millisecond)
				continue
			}
		}
		l.mu.Lock()
		l.sent[way]++
		number := l.sent[way]
		l.mu.Unlock()
		if rand.Float64() < l.how.loss {
			l.mu.Lock()
			l.lost++
			l.mu.Unlock()
			continue
		}
		times := 1
		if rand.Float64() < l.how.twice {
			times = 2
		}
		packet := append([]byte{}, buf[:size]...)
		for range times {
			l.flows.Go(func() { l.deliver(way, number, packet) })
		}
	}
}

func (l *lossy) deliver(way, number int, packet []byte) {
	timer := time.NewTimer(l.how.delay + time.Duration(rand.Int64N(int64(2*l.how.jitter))) - l.how.jitter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.closed:
		return
	}
	l.mu.Lock()
	if number < l.newest[way] {
		l.overtaken++
	}
	l.newest[way] = max(l.newest[way], number)
	l.mu.Unlock()
	_, _ = l.ends[1-way].Write(packet) // a full device loses it, as networks do
}

func (l *lossy) counts() (passed, lost, overtaken int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent[0] + l.sent[1] - l.lost, l.lost, l.overtaken
}

package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/platform/failpoint"
)

// drainWait limits how long a keeper reads last messages after the host's end. Normally the
// link is closed then; a stray copy of the host's end must not delay the keeper.
const drainWait = 100 * time.Millisecond

// How many exits of orphans are kept, and for how long: the kernel passes on a child of a dying
// host shortly before the host itself is seen as dead. A file system that hangs can extend this
// time.
const (
	recentExits = 1024
	recentWait  = time.Minute
)

// Config configures the start of a host.
type Config struct {
	Args   []string
	Dir    string
	Env    []string // empty: the environment of this process
	Stdout *os.File // nil: the null device
	Stderr *os.File
}

// RunParent starts the host as its child and returns when the host and everything that it left
// are gone, which with kept tasks, or with another detached host that was started inside a
// task, may be days later. When ctx ends, the host gets TERM. Exit is the exit of the host.
//
// The caller turns INT and TERM into the end of ctx; HUP is ignored. RunParent makes the whole
// calling process the reaper of orphans and reaps every child, so nothing else may start
// processes there.
func RunParent(ctx context.Context, c Config) (process.Exit, error) {
	if err := adoptOrphans(); err != nil {
		return process.Exit{}, err
	}
	ours, theirs, err := pair()
	if err != nil {
		return process.Exit{}, err
	}
	defer ours.Close()
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	host, err := process.StartGroup(process.Command{
		Args: c.Args, Dir: c.Dir, Env: withLink(env), Stdout: c.Stdout, Stderr: c.Stderr,
		Extra: []*os.File{theirs}, Session: true,
	})
	_ = theirs.Close()
	if err != nil {
		return process.Exit{}, fmt.Errorf("start host: %w", err)
	}
	defer host.Close()
	p := &parent{ward: newWard(), host: host, link: ours, again: make(chan struct{}, 1)}
	p.ward.host = host.Identity()
	_ = failpoint.Hit("keeper/forked")
	return p.run(ctx)
}

type parent struct {
	ward *ward
	host *process.Group
	link *os.File

	again  chan struct{} // wakes the sweeper; wake-ups merge
	recent []ended       // exits shortly before the host's, newest last
	errs   []error       // of exit files
}

type ended struct {
	pid   int
	start uint64 // of its identity; 0: unknown
	exit  process.Exit
	at    time.Time
}

func (p *parent) run(ctx context.Context) (process.Exit, error) {
	stop := context.AfterFunc(ctx, func() { _ = p.host.Signal(syscall.SIGTERM) })
	defer stop()
	// A terminal that closes must not end the keeper. The signal is caught and not ignored,
	// since every task would inherit an ignored one.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	var heard, sweeper sync.WaitGroup // both are joined below
	heard.Go(func() { decode(p.link, p.ward.hear) })
	sweeper.Go(func() {
		for range p.again {
			p.ward.sweep(context.Background())
			_ = failpoint.Hit("keeper/swept")
		}
	})

	var hostExit process.Exit
	gone := false
	for {
		e, err := waitAny()
		if errors.Is(err, syscall.ECHILD) {
			break
		}
		if err != nil {
			p.errs = append(p.errs, err)
			break
		}
		switch {
		case e.pid == p.host.Identity().PID:
			gone, hostExit = true, e.exit
			_ = failpoint.Hit("keeper/host-gone")
			_ = p.link.SetReadDeadline(time.Now().Add(drainWait))
			heard.Wait()
			p.ward.find() // before another child is reaped
			for _, r := range p.recent {
				p.settle(r)
			}
			p.sweep()
		case gone:
			p.settle(e)
		default:
			p.remember(e)
		}
	}
	close(p.again)
	sweeper.Wait()
	_ = p.link.SetReadDeadline(time.Unix(1, 0))
	heard.Wait()
	return hostExit, errors.Join(p.errs...)
}

// remember stores an exit that may turn out to belong to a kept task.
func (p *parent) remember(e ended) {
	old := 0
	for old < len(p.recent) && (len(p.recent)-old >= recentExits || e.at.Sub(p.recent[old].at) > recentWait) {
		old++
	}
	p.recent = append(slices.Delete(p.recent, 0, old), e)
}

// settle writes how a kept task ended; its remaining processes are not kept. It ignores another
// process that had the same PID before or after.
func (p *parent) settle(e ended) {
	w, ok := p.ward.forget(e.pid, e.start)
	if !ok || !w.Keep {
		return
	}
	if w.ExitFile != "" {
		err := process.WriteDeparture(w.ExitFile, process.Departure{
			PID: e.pid, Start: w.Process.Start, ExitCode: e.exit.Code,
			Signal: process.SignalName(e.exit.Signal), At: e.at,
		})
		if err != nil {
			p.errs = append(p.errs, err)
		}
	}
	p.sweep()
}

func (p *parent) sweep() {
	select {
	case p.again <- struct{}{}:
	default: // one is pending already, and covers this too
	}
}

// waitAny reaps any child. It occupies a thread; a keeper needs only one.
func waitAny() (ended, error) {
	pid, err := anyEnded()
	if err != nil {
		return ended{}, fmt.Errorf("wait for children: %w", err)
	}
	var start uint64
	if id, err := process.Identify(pid); err == nil { // until it is reaped its PID is not reused
		start = id.Start
	}
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(pid, &ws, 0, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return ended{}, fmt.Errorf("wait for children: %w", err)
		case ws.Exited():
			return ended{pid: pid, start: start, exit: process.Exit{Code: ws.ExitStatus()}, at: time.Now()}, nil
		case ws.Signaled():
			return ended{
				pid:   pid,
				start: start,
				exit:  process.Exit{Code: -1, Signal: ws.Signal(), Core: ws.CoreDump()},
				at:    time.Now(),
			}, nil
		}
	}
}

package keeper

import (
	"context"
	"errors"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/platform/failpoint"
)

// ErrNoHost is returned by [RunHelper] in a process that was not started by a host.
var ErrNoHost = errors.New("this command is started by a host, not by hand")

// RunHelper runs a helper: it reads messages of the host that started it, and returns after the
// host's goodbye, or when everything that a dead host left is gone. From then on HUP, INT and
// TERM are ignored; the end of ctx only shortens the grace of processes that are being ended.
func RunHelper(ctx context.Context) error {
	link, err := inherited()
	if err != nil {
		return err
	}
	if link == nil {
		return ErrNoHost
	}
	defer link.Close()
	// The helper must survive the signals that end all other processes.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	w := newWard()
	dead, stopWatching := context.WithCancel(context.Background())
	var eyes sync.WaitGroup // joined below
	greeted := sync.Once{}
	var pulse *time.Timer
	var still sync.Mutex // held while the processes of a suspended host are ended
	decode(link, func(m message) {
		w.hear(m)
		if m.Op == opPulse {
			if pulse != nil {
				pulse.Stop()
			}
			if m.Within > 0 {
				pulse = time.AfterFunc(m.Within, func() {
					still.Lock()
					defer still.Unlock()
					w.sweep(ctx)
				})
			}
		}
		if m.Op == opHello {
			// If another process also holds the host's end of the link, it stays open after the
			// host's death, so the host itself is watched as well.
			greeted.Do(func() {
				host := w.host
				eyes.Go(func() {
					waitEnd(dead, host)
					_ = link.SetReadDeadline(time.Now().Add(drainWait))
				})
			})
		}
	})
	stopWatching()
	eyes.Wait()
	if pulse != nil {
		pulse.Stop()
		still.Lock()
		defer still.Unlock()
	}
	if w.bye {
		return nil
	}
	_ = failpoint.Hit("keeper/alone")
	w.find()
	w.sweep(ctx)
	return nil
}

// waitEnd returns when the process has ended, or with ctx.
func waitEnd(ctx context.Context, id process.Identity) {
	g, err := process.Adopt(id)
	if err != nil {
		return
	}
	defer g.Close()
	_, _ = g.Wait(ctx)
}

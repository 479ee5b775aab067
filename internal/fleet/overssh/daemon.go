package overssh

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// Daemon is the side of a worker: where bridges attach. Its methods may be called by several goroutines.
type Daemon struct {
	instance string
	begun    chan Settings // capacity 1: of the first attachment
	cancel   context.CancelCauseFunc
	all      sync.WaitGroup // of its goroutines; Serve waits for it

	mu       sync.Mutex
	key, run string      // of whom it works for, and of who was attached last; guarded by mu
	now      *attachment // nil: no bridge is attached; guarded by mu
	ready    bool        // guarded by mu
	ending   bool        // guarded by mu
	away     time.Duration
	alone    *time.Timer // ends the worker; guarded by mu
	again    func()      // called for each attachment after the first; guarded by mu
}

// attachment is one bridge, with a process at its other end.
type attachment struct {
	mux     *yamux.Session
	control net.Conn
	run     string     // of the process at its other end
	says    sync.Mutex // held while a message is written
}

// Times of a daemon.
const (
	beginWait = 30 * time.Second // for the first who attaches
	knockWait = 10 * time.Second // for the first message of a connection
	leastAway = time.Second
	mostAway  = 24 * time.Hour
)

// maxKnocks limits the connections that have not attached yet.
const maxKnocks = 8

// Causes of the end of a worker.
var (
	errStopped = errors.New("it was told to end")
	errAlone   = errors.New("nobody has connected for too long")
	errBegin   = errors.New("nobody has connected")
	errAway    = errors.New("nobody is connected")
)

// NewDaemon returns a daemon without an attachment.
func NewDaemon() *Daemon {
	return &Daemon{instance: rand.Text(), begun: make(chan Settings, 1), again: func() {}}
}

// Serve calls work, which is the worker, with the settings of the first attachment, and returns when it has returned.
// The context of work ends with ctx, on an order to end, or when no bridge has been attached for too long. Listener l
// must admit processes of this user only. It is closed in the end.
func (d *Daemon) Serve(ctx context.Context, l net.Listener, work func(context.Context, Settings) error) error {
	ctx, d.cancel = context.WithCancelCause(ctx)
	defer d.cancel(nil)
	defer d.all.Wait()
	defer l.Close()
	defer d.hangUp()
	d.alone = time.AfterFunc(beginWait, func() { d.stop(errBegin) })
	defer d.alone.Stop()
	d.all.Go(func() { d.accept(l) })
	select {
	case s := <-d.begun:
		err := work(ctx, s)
		if errors.Is(err, context.Cause(ctx)) {
			err = nil
		}
		d.end(err)
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// accept lets bridges in.
func (d *Daemon) accept(l net.Listener) {
	places := make(chan struct{}, maxKnocks)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case places <- struct{}{}:
			d.all.Go(func() { defer func() { <-places }(); d.serve(c) })
		default:
			_ = c.Close()
		}
	}
}

// serve is one bridge.
func (d *Daemon) serve(c net.Conn) {
	mux, err := yamux.Server(c, multiplex())
	if err != nil {
		_ = c.Close()
		return
	}
	defer mux.Close()
	slow := time.AfterFunc(knockWait, func() { _ = mux.Close() })
	defer slow.Stop()
	control, err := mux.Accept()
	if err != nil {
		return
	}
	from := lines(control)
	var hello attach
	if next(from, &hello) != nil || !slow.Stop() {
		return
	}
	a := &attachment{mux: mux, control: control, run: hello.Run}
	old, answer := d.take(a, hello)
	a.say(answer)
	if answer.Instance == "" {
		return
	}
	defer d.lose(a)
	if old != nil {
		if old.run != a.run {
			old.say(report{Refused: "another `drover worker --via` has taken it over"})
		}
		_ = old.mux.Close()
	}
	for one := (order{}); next(from, &one) == nil; one = (order{}) {
		if one.Stop {
			d.stop(errStopped)
		}
	}
}

// take attaches a, if its answer names the instance, and returns the attachment before.
func (d *Daemon) take(a *attachment, hello attach) (old *attachment, answer report) {
	d.mu.Lock()
	defer d.mu.Unlock()
	begun := d.key != ""
	switch {
	case hello.Version != version:
		answer.Refused = fmt.Sprintf("it speaks version %d of the protocol, not %d: take the same drover for both machines",
			version, hello.Version)
	case d.ending:
		answer.Ending = true
	case begun && hello.Key != d.key:
		answer.Refused = "a worker of this name is there for another hub, another user, another drover or with other " +
			"settings (end that one by `drover drain`, or choose another name with --name)"
	case begun && !hello.First && hello.Run != d.run:
		answer.Refused = "another `drover worker --via` has taken it over"
	default:
		old, answer = d.now, report{Instance: d.instance, Ready: d.ready}
		d.now, d.run, d.key = a, hello.Run, hello.Key
		d.alone.Stop()
		if begun {
			d.all.Go(d.again)
		} else {
			d.away = min(max(hello.Worker.Away, leastAway), mostAway)
			d.begun <- hello.Worker
		}
	}
	return old, answer
}

// lose notes that a bridge is gone.
func (d *Daemon) lose(a *attachment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now == a {
		d.now = nil
		d.alone = time.AfterFunc(d.away, func() { d.stop(errAlone) })
	}
}

// stop ends the worker. No bridge attaches from then on.
func (d *Daemon) stop(why error) {
	d.mu.Lock()
	d.ending = true
	d.mu.Unlock()
	d.cancel(why)
}

// Ready reports that the worker takes tasks. From then on again is called at each further attachment.
func (d *Daemon) Ready(again func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ready, d.again = true, again
	if d.now != nil {
		d.now.say(report{Ready: true})
	}
}

// end says that the worker has ended.
func (d *Daemon) end(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ending = true
	if d.now == nil {
		return
	}
	r := report{Ended: true}
	if err != nil {
		r.Error = err.Error()
	}
	d.now.say(r)
}

// hangUp closes the bridge.
func (d *Daemon) hangUp() {
	d.mu.Lock()
	a := d.now
	d.mu.Unlock()
	if a != nil {
		_ = a.mux.Close()
	}
}

// Dial connects to the hub, at the other end of the bridge.
func (d *Daemon) Dial() (net.Conn, error) {
	d.mu.Lock()
	a := d.now
	d.mu.Unlock()
	if a == nil {
		return nil, errAway
	}
	return a.mux.Open()
}

// Write sends lines to the user at the other end of the bridge, if one is attached.
func (d *Daemon) Write(b []byte) (int, error) {
	d.mu.Lock()
	a := d.now
	d.mu.Unlock()
	if a != nil {
		for line := range strings.SplitSeq(strings.TrimRight(string(b), "\n"), "\n") {
			a.say(report{Log: line})
		}
	}
	return len(b), nil
}

// say sends a report. A bridge that does not take it is lost.
func (a *attachment) say(r report) {
	a.says.Lock()
	defer a.says.Unlock()
	if say(a.control, r) != nil {
		_ = a.mux.Close()
	}
}

package overssh

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Config says which worker is made, and how.
type Config struct {
	Host     Host
	SSH      string // the command that is ssh, for a shell; empty: ssh
	Terminal bool   // a user can answer the questions of ssh
	Binary   *Binary
	Worker   Settings
	Key      string                                  // of whom the worker is for, and how: another is not taken over
	Hub      func(context.Context) (net.Conn, error) // connects to the hub
	Tell     func(line string)                       // tells the user how it goes
	Stderr   io.Writer                               // what ssh and the worker say
}

// Times.
const (
	firstPause = 250 * time.Millisecond // after a lost connection
	lastPause  = 30 * time.Second
	stopWait   = 15 * time.Second // for the end of a worker after the order to end
	hubWait    = 5 * time.Second  // for a connection to the hub
	maxFlows   = 4                // connections of one worker to the hub
)

// run is a [Run].
type run struct {
	Config
	id       string
	instance string // of the worker, once attached
	relay    *relay
}

// Run makes a worker on another machine and carries its connections until it has ended: because ctx has ended, which
// ends its tasks, or because it has drained. A lost connection is made again. An error before the first
// connection is returned at once.
func Run(ctx context.Context, c Config) error {
	r := &run{Config: c, id: rand.Text(), relay: &relay{to: c.Stderr, now: map[string]bool{}}}
	defer r.relay.again() // the last line, if it is incomplete
	pause := firstPause
	for {
		r.relay.again()
		attached, ended, err := r.connect(ctx)
		switch {
		case ended || r.instance == "":
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("worker %s at %s was not told to end, for it cannot be reached: it ends by itself after %s",
				r.Worker.Name, r.Host, r.Worker.Away)
		case attached:
			pause = firstPause
			r.Tell(fmt.Sprintf("the connection to %s is lost: worker %s goes on for %s, and ssh connects again",
				r.Host, r.Worker.Name, r.Worker.Away))
		default:
			fmt.Fprintln(r.relay, err)
		}
		select {
		case <-time.After(pause/2 + mathrand.N(pause)):
		case <-ctx.Done():
		}
		pause = min(2*pause, lastPause)
	}
}

// connect is one connection: whether it has reached the worker, and whether that has ended.
func (r *run) connect(ctx context.Context) (attached, ended bool, err error) {
	if ctx.Err() != nil {
		return false, false, context.Cause(ctx)
	}
	p, err := start(r.SSH, r.Host, r.Terminal, r.relay)
	if err != nil {
		return false, false, err
	}
	defer p.Close()
	kill := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })
	if err := prepare(p.in, p.out, r.Binary, r.Host.String(), r.Worker.Name, r.Tell); err != nil {
		if ctx.Err() == nil && errors.Is(err, io.EOF) {
			err = p.ended(r.Host)
		}
		return false, false, err
	}
	if !kill() {
		return false, false, context.Cause(ctx)
	}
	return r.attach(ctx, p)
}

// attach attaches to the worker, and carries its connections.
func (r *run) attach(ctx context.Context, p *pipe) (attached, ended bool, err error) {
	mux, err := yamux.Client(p, multiplex())
	if err != nil {
		return false, false, fmt.Errorf("attach to the worker: %w", err)
	}
	var flows sync.WaitGroup
	defer flows.Wait()
	defer mux.Close()
	flows.Go(func() { r.carry(ctx, mux) })
	control, err := mux.Open()
	if err == nil {
		err = say(control, attach{Version: version, Key: r.Key, Run: r.id, First: r.instance == "", Worker: r.Worker})
	}
	if err != nil {
		return false, false, p.ended(r.Host)
	}
	reports, done := make(chan report), make(chan struct{})
	defer close(done)
	flows.Go(func() {
		defer close(reports)
		from := lines(control)
		for one := (report{}); next(from, &one) == nil; one = (report{}) {
			select {
			case reports <- one:
			case <-done:
				return
			}
		}
	})
	return r.follow(ctx, p, control, reports)
}

// follow does what the worker reports until the connection ends.
func (r *run) follow(
	ctx context.Context, p *pipe, control net.Conn, reports <-chan report,
) (attached, ended bool, err error) {
	stop := ctx.Done()
	late := time.NewTimer(stopWait)
	late.Stop()
	defer late.Stop()
	for {
		select {
		case one, ok := <-reports:
			switch {
			case !ok && stop == nil && attached:
				return true, true, r.unheard()
			case !ok:
				return attached, false, p.ended(r.Host)
			case one.Refused != "":
				return false, true, fmt.Errorf("attach to worker %s at %s: %s", r.Worker.Name, r.Host,
					excerpt.Line(one.Refused, 500))
			case one.Ending:
				return false, false, fmt.Errorf("worker %s at %s is ending (try again)", r.Worker.Name, r.Host)
			case one.Ended && one.Error != "":
				return true, true, fmt.Errorf("worker %s at %s: %s", r.Worker.Name, r.Host, excerpt.Line(one.Error, 1000))
			case one.Ended:
				r.Tell(fmt.Sprintf("worker %s at %s has ended", r.Worker.Name, r.Host))
				return true, true, nil
			}
			attached = r.heard(one) || attached
		case <-stop:
			stop = nil
			late.Reset(stopWait)
			_ = say(control, order{Stop: true}) // or it is late
		case <-late.C:
			return true, true, r.unheard()
		}
	}
}

// unheard is the error of a worker that does not confirm the order to end.
func (r *run) unheard() error {
	return fmt.Errorf("worker %s at %s has not said that it ended: it ends by itself after %s", r.Worker.Name, r.Host,
		r.Worker.Away)
}

// heard tells the user what the worker reports, and whether it is attached.
func (r *run) heard(one report) bool {
	switch {
	case one.Log != "":
		fmt.Fprintf(r.Stderr, "%s: %s\n", r.Host, excerpt.Line(one.Log, 1000))
	case one.Instance != "" && r.instance != "":
		anew := ""
		if one.Instance != r.instance {
			anew = ", and has begun anew: its tasks have ended"
		}
		r.Tell(fmt.Sprintf("worker %s at %s is connected again%s", r.Worker.Name, r.Host, anew))
	case one.Ready:
		r.Tell(fmt.Sprintf("worker %s is ready at %s", r.Worker.Name, r.Host))
	}
	if one.Instance != "" {
		r.instance = one.Instance
	}
	return one.Instance != ""
}

// carry connects what the worker opens to the hub, until the session of yamux ends.
func (r *run) carry(ctx context.Context, mux *yamux.Session) {
	var flows sync.WaitGroup
	defer flows.Wait()
	places := make(chan struct{}, maxFlows)
	for {
		far, err := mux.Accept()
		if err != nil {
			return
		}
		select {
		case places <- struct{}{}:
		default:
			_ = far.Close() // it tries again
			continue
		}
		flows.Go(func() {
			defer func() { <-places }()
			defer far.Close()
			one, cancel := context.WithTimeout(context.WithoutCancel(ctx), hubWait) // tasks end through it after ctx
			near, err := r.Hub(one)
			cancel()
			if err != nil {
				return // the worker tries again
			}
			join(near, far)
		})
	}
}

// join copies in both directions until one of them ends, and closes both.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			defer a.Close()
			defer b.Close()
			_, _ = io.Copy(way[0], way[1]) // lost bytes are sent again on the next connection
		})
	}
	both.Wait()
}

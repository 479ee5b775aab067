package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/task"
)

// How often leases are renewed, at most and at least.
const (
	renewMost  = 5 * time.Second
	renewLeast = 50 * time.Millisecond
)

// renew renews the leases of all claims, with one question to each session.
func (w *Worker) renew(ctx context.Context) {
	for ctx.Err() == nil {
		w.pulse()
		pause(ctx, w.rhythm())
		for session, held := range w.held() {
			w.renewOf(ctx, session, held)
		}
	}
}

// pulse lets the keeper end everything if this process hangs for longer than its longest lease.
func (w *Worker) pulse() {
	if w.cfg.Pulse == nil {
		return
	}
	w.mu.Lock()
	var within time.Duration
	for _, c := range w.claims {
		within = max(within, c.lease)
	}
	w.mu.Unlock()
	w.cfg.Pulse(within)
}

// rhythm is about a sixth of the shortest lease. It differs each time, so that workers that have begun together do not
// ask together.
func (w *Worker) rhythm() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := renewMost
	for _, c := range w.claims {
		d = min(d, c.lease/6)
	}
	if len(w.claims) == 0 { // a claim with a shorter lease may come
		d = time.Second
	}
	d = max(d, renewLeast)
	return d - rand.N(d/5) //nolint:gosec // no secret
}

func (w *Worker) held() map[task.ID][]*claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[task.ID][]*claim{}
	for _, c := range w.claims {
		out[c.session] = append(out[c.session], c)
	}
	return out
}

// renewOf asks a session for longer leases. It reports whether the session has answered, and all of them count.
func (w *Worker) renewOf(ctx context.Context, session task.ID, held []*claim) bool {
	r := fleetwire.Renewal{Worker: w.cfg.Name, Instance: w.instance, Untold: w.cfg.Link.Trouble()}
	limit := renewMost
	for _, c := range held {
		r.Tasks = append(r.Tasks, fleetwire.Held{Task: c.id, Epoch: c.epoch})
		limit = min(limit, c.lease/3)
	}
	one, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	asked := time.Now() // the session may have counted from any moment after this
	var out fleetwire.Renewed
	if _, err := w.cfg.Link.Ask(one, fleetwire.Ask(session, fleetwire.AskRenew, w.cfg.Name), r, &out); err != nil ||
		len(out.Tasks) != len(held) {
		return false // the leases run on
	}
	all := true
	for i, l := range out.Tasks {
		c := held[i]
		if all = all && l.Valid; !l.Valid {
			c.drop(errTaken)
			continue
		}
		c.mu.Lock()
		if c.expires.Stop() { // a lease that has ended stays ended
			c.expires.Reset(time.Until(fleetwire.LeaseEnd(asked, c.lease)))
		}
		c.mu.Unlock()
	}
	return all
}

// listen carries out the commands of sessions.
func (w *Worker) listen(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.listenOnce(ctx); err != nil {
			pause(ctx, pauseFailed)
		}
	}
}

func (w *Worker) listenOnce(ctx context.Context) error {
	c, err := w.cfg.Link.Consumer(ctx, fleetwire.Commands, jetstream.ConsumerConfig{
		Durable: link.ConsumerOf(w.cfg.Name), FilterSubject: "drover.worker." + w.cfg.Name + ".>",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: fleetwire.OfferWait, InactiveThreshold: consumerIdle,
	})
	if err != nil {
		return err
	}
	msgs, err := c.Messages(jetstream.PullMaxMessages(64), jetstream.PullHeartbeat(fleetwire.HeartBeat))
	if err != nil {
		return err
	}
	defer msgs.Stop()
	defer context.AfterFunc(ctx, msgs.Stop)()
	for {
		m, err := msgs.Next()
		if err != nil {
			return err
		}
		w.told(ctx, m)
		_ = m.Ack()
	}
}

// told carries out one message, if it is about a claim of the worker.
func (w *Worker) told(ctx context.Context, m jetstream.Msg) {
	var cmd fleetwire.Command
	data, err := fleetwire.Decode(m.Data(), &cmd)
	if err != nil {
		w.cfg.Log.Warn("a command cannot be read", "error", err)
		return
	}
	if cmd.Kind == fleetwire.Drain {
		w.Drain()
		return
	}
	session, id := task.ID(fleetwire.Token(m.Subject(), 3)), task.ID(fleetwire.Token(m.Subject(), 4))
	if cmd.Kind == fleetwire.Begin {
		if err := w.began(ctx, session, id, cmd.Epoch, data); err != nil {
			w.cfg.Log.Warn("a command cannot begin in its workspace", "task", id, "session", session, "error", err)
		}
		return
	}
	w.mu.Lock()
	c := w.claims[id]
	w.mu.Unlock()
	if c == nil || c.session != session || c.epoch != cmd.Epoch {
		return // of a claim that has ended
	}
	switch cmd.Kind {
	case fleetwire.Stop:
		w.stop(c, cmd)
	case fleetwire.FolderReady:
		select {
		case c.folders <- data:
		default: // a repetition
		}
	case fleetwire.Pause, fleetwire.Resume, fleetwire.Type:
		select {
		case c.orders <- cmd:
		default:
			w.cfg.Log.Warn("a task does not take what it is told: too much waits", "command", cmd.Kind, "task", id)
		}
	case fleetwire.Resend:
		select {
		case <-c.resend:
		default:
		}
		select {
		case c.resend <- cmd.Offset:
		default:
		}
	}
}

// obey carries out the commands of a session to a task, until ctx ends.
func (w *Worker) obey(ctx context.Context, c *claim, local string) {
	for {
		var cmd fleetwire.Command
		select {
		case <-ctx.Done():
			return
		case cmd = <-c.orders:
		}
		one, cancel := context.WithTimeout(ctx, claimTime)
		var err error
		switch cmd.Kind {
		case fleetwire.Pause:
			_, err = w.cfg.API.Pause(one, []string{local})
		case fleetwire.Resume:
			_, err = w.cfg.API.Resume(one, control.ResumeRequest{Ref: local})
		case fleetwire.Type:
			_, err = w.cfg.API.Send(one, control.SendRequest{Ref: local, Text: cmd.Text, Raw: true})
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			w.cfg.Log.Warn("a command of a session has failed", "command", cmd.Kind, "task", c.id, "error", err)
		}
	}
}

//go:build linux

package bench

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/fleet/placement"
	"github.com/drover-dev/drover/internal/fleet/worker"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
)

// How large the fleet of [bench.scale] is.
const (
	scaleWorkers = 1000
	scaleTasks   = 100    // of each worker
	scaleOffers  = 20_000 // that wait for a worker that is not there
	scaleReal    = 10_000 // tasks of a real session, which run, and as many that wait
)

// idleAPI is the session of workers whose tasks do nothing until they are stopped: what is measured is the hub.
type idleAPI struct {
	control.API

	mu    sync.Mutex
	count int                      // guarded by mu
	over  map[string]chan struct{} // by task, closed when it has been stopped; guarded by mu
}

// Start implements [control.API].
func (a *idleAPI) Start(context.Context, []control.StartRequest) ([]control.Started, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
	id := scaleTask(a.count)
	a.over[string(id)] = make(chan struct{})
	return []control.Started{{Task: &task.Record{ID: id}}}, nil
}

func (a *idleAPI) started() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

func (a *idleAPI) ended(ref string) chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.over[ref]
}

// Output implements [control.API].
func (a *idleAPI) Output(ctx context.Context, r control.OutputRequest) (control.Chunk, error) {
	select {
	case <-a.ended(r.Ref):
		return control.Chunk{Ended: true}, nil
	case <-ctx.Done():
		return control.Chunk{}, context.Cause(ctx)
	}
}

// Get implements [control.API].
func (a *idleAPI) Get(_ context.Context, ref string) (task.Record, error) {
	return task.Record{ID: task.ID(ref), Status: task.Killed, Cause: &task.Cause{Actor: task.ByUser}}, nil
}

// Stop implements [control.API].
func (a *idleAPI) Stop(_ context.Context, r control.StopRequest) (task.Receipt, error) {
	for _, ref := range r.Refs {
		over := a.ended(ref)
		a.mu.Lock()
		select {
		case <-over:
		default:
			close(over)
		}
		a.mu.Unlock()
	}
	return task.Receipt{}, nil
}

// crowd are many workers in this process, each with a connection of its own to a hub that is another process.
type crowd struct {
	*machines
	links   []*link.Link
	api     idleAPI
	running sync.WaitGroup
	cancel  context.CancelFunc
	granted atomic.Int64
	renewed atomic.Int64
}

const scaleSession task.ID = "s00000000"

// scale is what a hub costs that has a thousand workers, and a session that has tasks at all of them.
func (t *bench) scale() {
	if t.short {
		return
	}
	c := &crowd{machines: t.openMachines(0, 0), api: idleAPI{over: map[string]chan struct{}{}}}
	defer c.machines.close()
	c.answer()
	hub := c.hub.cmd.Process.Pid
	empty := private(t, hub)
	began := time.Now()
	c.enter(scaleWorkers)
	defer c.leave()
	t.add(row{name: fmt.Sprintf("%d workers enter a hub", scaleWorkers), unit: "ms",
		ours: ms(time.Since(began)) / scaleWorkers, note: "for each, one after the other"})
	<-time.After(c.pause() / 2)
	c.steady("no task", hub)
	t.add(row{name: "the same: memory of the hub for each worker", unit: "KiB",
		ours: 1024 * (private(t, hub) - empty) / scaleWorkers})
	c.list("no task")
	c.claim(hub)
	<-time.After(c.pause() / 2)
	c.steady(fmt.Sprintf("%d tasks", scaleTasks), hub)
	t.add(row{name: "the same: memory of the hub", unit: "MiB", ours: private(t, hub),
		note: fmt.Sprintf("%.1f MiB on disk", c.disk())})
	c.list(fmt.Sprintf("%d tasks", scaleTasks))
	c.waiting(hub)
	c.session(hub)
	c.sizes()
}

// session is what a real session costs whose tasks run at the workers, and wait for one that is not there.
func (c *crowd) session(hub int) {
	c.follow()
	c.openHost() // the first one has ended: it had nothing to do
	var refs []string
	for _, kind := range []struct{ name, on string }{{"run at workers", "auto"}, {"wait for a worker", "nobody"}} {
		memory, spent, began, begun := private(c.bench, c.pid), c.used(hub), time.Now(), c.api.started()
		for at := 0; at < scaleReal; at += 1000 {
			reqs := make([]control.StartRequest, 1000)
			for i := range reqs {
				reqs[i] = control.StartRequest{Shell: &control.ShellRequest{Args: []string{"sleep", "600"}}, Cwd: c.project,
					On: kind.on, NoFolder: true}
			}
			started, err := c.host.Start(context.Background(), reqs)
			c.must(err)
			for _, one := range started {
				if one.Error != nil {
					c.Fatal(one.Error)
				}
				refs = append(refs, string(one.Task.ID))
			}
		}
		for late := time.Now().Add(harness.Patience); kind.on == "auto" && c.api.started() < begun+scaleReal; {
			if <-time.After(10 * time.Millisecond); time.Now().After(late) {
				c.Fatalf("%d of %d tasks have begun", c.api.started()-begun, scaleReal)
			}
		}
		took, used := time.Since(began), c.used(hub)
		c.add(row{name: fmt.Sprintf("a session whose %d tasks %s: placing them", scaleReal, kind.name), unit: "tasks/s",
			ours: scaleReal / took.Seconds(), note: fmt.Sprintf("for each %.2f ms CPU of the host, %.2f ms of the hub",
				ms(used[0]-spent[0])/scaleReal, ms(used[1]-spent[1])/scaleReal)})
		<-time.After(c.pause() / 2)
		cpu := c.spending(c.pause(), c.pid, hub)
		c.add(row{name: "the same, CPU of the host", unit: "ms/s", ours: cpu[0], note: fmt.Sprintf("hub %.0f ms/s", cpu[1])},
			row{name: "the same, memory of the host for each", unit: "KiB",
				ours: 1024 * (private(c.bench, c.pid) - memory) / scaleReal})
	}
	began := time.Now()
	go func() { // ends with the stop of the last one, which is waited for below
		for part := range slices.Chunk(refs, 1000) {
			if _, err := c.host.Stop(context.Background(), control.StopRequest{Refs: part}); err != nil {
				c.Error(err)
			}
		}
	}()
	for ended := map[task.ID]bool{}; len(ended) < len(refs); {
		select {
		case r := <-c.ends:
			ended[r.ID] = true
		case <-time.After(harness.Patience):
			c.Fatalf("%d of %d tasks have ended, and no more do", len(ended), len(refs))
		}
	}
	c.add(row{name: fmt.Sprintf("the same, all %d stopped", len(refs)), unit: "tasks/s",
		ours: float64(len(refs)) / time.Since(began).Seconds()})
}

// used is the processor time of the host and of the hub.
func (c *crowd) used(hub int) [2]time.Duration {
	return [2]time.Duration{cpuTime(c.bench, c.pid), cpuTime(c.bench, hub)}
}

// answer plays a session that grants what is claimed and renews all leases.
func (c *crowd) answer() {
	reply := func(m *nats.Msg, v any) {
		if data, err := fleetwire.Encode(v, nil); err == nil {
			_ = m.Respond(data) // who asks does so again
		}
	}
	_, err := c.asks.Conn.Subscribe(fleetwire.Ask(scaleSession, fleetwire.AskClaim, "*"), func(m *nats.Msg) {
		var ask fleetwire.Claim
		if _, err := fleetwire.Decode(m.Data, &ask); err == nil {
			c.granted.Add(1)
			reply(m, scaleGrant())
		}
	})
	c.must(err)
	_, err = c.asks.Conn.Subscribe(fleetwire.Ask(scaleSession, fleetwire.AskRenew, "*"), func(m *nats.Msg) {
		var ask fleetwire.Renewal
		if _, err := fleetwire.Decode(m.Data, &ask); err == nil {
			c.renewed.Add(1)
			reply(m, renewedAll(len(ask.Tasks)))
		}
	})
	c.must(err)
}

func scaleGrant() fleetwire.Grant {
	return fleetwire.Grant{Epoch: 1, Lease: placement.DefaultLease,
		Job: fleetwire.Job{Name: "build", Args: []string{"make", "test"}}}
}

func renewedAll(n int) fleetwire.Renewed {
	out := fleetwire.Renewed{Tasks: make([]fleetwire.Lease, n)}
	for i := range out.Tasks {
		out.Tasks[i].Valid = true
	}
	return out
}

func (c *crowd) enter(n int) {
	_, line, _ := strings.Cut(c.hub.text, "--hub '")
	line, _, _ = strings.Cut(line, "'")
	join, err := link.ParseJoin(line)
	c.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	for i := range n {
		key, err := link.NewKey()
		c.must(err)
		name := fmt.Sprintf("w%d", i)
		l, err := link.Open(ctx, link.Options{Role: link.RoleWorker, Name: name, Join: join, Seed: key})
		c.must(err)
		c.links = append(c.links, l)
		state := home.At(filepath.Join(c.dir, "workers", name))
		c.must(state.Ensure())
		one := worker.New(worker.Config{Name: name, Capacity: scaleTasks + scaleReal/scaleWorkers, Version: "bench",
			Link: l, API: &c.api, Dir: c.dir, Home: state, Project: "main", Log: slog.New(slog.DiscardHandler)})
		c.running.Go(func() { // joined by leave
			if err := one.Serve(ctx); err != nil {
				c.Error(err)
			}
		})
	}
}

func (c *crowd) leave() {
	c.cancel()
	c.running.Wait()
	for _, l := range c.links {
		l.Close()
	}
}

// traffic is what went over the connections of the workers.
type traffic struct{ out, in, bytes uint64 }

func (c *crowd) traffic() (t traffic) {
	for _, l := range c.links {
		s := l.Conn.Stats()
		t.out, t.in, t.bytes = t.out+s.OutMsgs, t.in+s.InMsgs, t.bytes+s.OutBytes+s.InBytes
	}
	return t
}

// steady is what workers cost that go on with what they do.
func (c *crowd) steady(tasks string, hub int) {
	before, renewals, pause := c.traffic(), c.renewed.Load(), c.pause()
	cpu := c.spending(pause, hub)
	after, s := c.traffic(), pause.Seconds()
	note := fmt.Sprintf("from workers %.0f messages/s, of them renewals %.0f; to workers %.0f; %.2f MB/s",
		float64(after.out-before.out)/s, float64(c.renewed.Load()-renewals)/s, float64(after.in-before.in)/s,
		float64(after.bytes-before.bytes)/s/1e6)
	c.add(row{name: fmt.Sprintf("%d workers with %s each: CPU of the hub", scaleWorkers, tasks), unit: "ms/s",
		ours: cpu[0], note: note})
}

// list is what it costs a session to look which workers are there.
func (c *crowd) list(tasks string) {
	before, began := c.asks.Conn.Stats(), time.Now()
	all, err := placement.List(context.Background(), c.asks.JS)
	took := time.Since(began)
	c.must(err)
	if len(all) != scaleWorkers {
		c.Errorf("%d of %d workers are listed", len(all), scaleWorkers)
	}
	c.add(row{name: fmt.Sprintf("a session lists %d workers with %s each", scaleWorkers, tasks), unit: "ms",
		ours: ms(took), note: fmt.Sprintf("%.2f MB", float64(c.asks.Conn.Stats().InBytes-before.InBytes)/1e6)})
}

// offer publishes offers, as many sessions would at once.
func (c *crowd) offer(subject string, n int) time.Duration {
	const publishers = 32
	began := time.Now()
	var running sync.WaitGroup
	for first := range publishers {
		running.Go(func() {
			for i := first; i < n; i += publishers {
				data, err := fleetwire.Encode(scaleOffer(i), nil)
				if err == nil {
					err = c.asks.Publish(context.Background(), subject, "", data)
				}
				if err != nil {
					c.Error(err)
				}
			}
		})
	}
	running.Wait()
	return time.Since(began)
}

func scaleOffer(i int) fleetwire.Offer {
	return fleetwire.Offer{Oldest: fleetwire.Oldest, Newest: fleetwire.Version, Session: scaleSession, Task: scaleTask(i),
		Offer: fmt.Sprintf("OFFEROFFEROFFEROF%09d", i)}
}

func scaleTask(i int) task.ID { return task.ID(fmt.Sprintf("b%08d", i)) }

// claim has all workers claim as many tasks as they take.
func (c *crowd) claim(hub int) {
	const n = scaleWorkers * scaleTasks
	spent, began := cpuTime(c.bench, hub), time.Now()
	c.offer(fleetwire.OfferAny, n)
	for last, at := int64(0), time.Now(); c.granted.Load() < n; <-time.After(10 * time.Millisecond) {
		if now := c.granted.Load(); now != last {
			last, at = now, time.Now()
		}
		if time.Since(at) > harness.Patience {
			c.Fatalf("%d of %d tasks have been claimed, and no more are", last, n)
		}
	}
	took := time.Since(began)
	c.add(row{name: fmt.Sprintf("%d offers published and claimed", n), unit: "tasks/s", ours: n / took.Seconds(),
		note: fmt.Sprintf("%.2f ms CPU of the hub for each", ms(cpuTime(c.bench, hub)-spent)/n)})
}

// waiting are offers that nobody takes.
func (c *crowd) waiting(hub int) {
	memory, disk := private(c.bench, hub), c.disk()
	took := c.offer(fleetwire.OfferLabel("nobody"), scaleOffers)
	c.add(row{name: fmt.Sprintf("%d offers that wait", scaleOffers), unit: "offers/s", ours: scaleOffers / took.Seconds(),
		note: fmt.Sprintf("for each %.2f KiB of memory of the hub, %.2f KiB on disk",
			1024*(private(c.bench, hub)-memory)/scaleOffers, 1024*(c.disk()-disk)/scaleOffers)})
}

// disk is what the hub has in its files, in MiB.
func (c *crowd) disk() (all float64) {
	_ = filepath.WalkDir(filepath.Join(c.dir, "session", "state"), func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil { // else it was removed meanwhile
				all += float64(info.Size()) / (1 << 20)
			}
		}
		return nil
	})
	return all
}

// sizes are those of messages.
func (c *crowd) sizes() {
	renewal := fleetwire.Renewal{Worker: "w999", Instance: strings.Repeat("A", 26)}
	about := fleetwire.Worker{Name: "w999", Instance: renewal.Instance, Oldest: 1, Newest: 1, Version: "v1.0.0",
		System: "linux/amd64", Capacity: scaleTasks, Load: 0.5}
	idle := c.bytes(about)
	for i := range scaleTasks {
		renewal.Tasks = append(renewal.Tasks, fleetwire.Held{Task: scaleTask(i), Epoch: 1})
		about.Tasks = append(about.Tasks, fleetwire.Doing{Session: scaleSession, Task: scaleTask(i), Name: "build",
			Epoch: 1, Since: 123456})
	}
	for _, one := range []struct {
		name string
		v    any
	}{
		{"renewal of 100 tasks", renewal}, {"its answer", renewedAll(scaleTasks)}, {"heartbeat with 100 tasks", about},
		{"offer", scaleOffer(1)}, {"grant", scaleGrant()},
		{"claim", fleetwire.Claim{Oldest: 1, Newest: 1, Task: scaleTask(1), Offer: scaleOffer(1).Offer, Worker: "w999",
			Instance: renewal.Instance}},
		{"event: output, without the data", fleetwire.Event{Kind: fleetwire.Output, Epoch: 1, Instance: renewal.Instance,
			Offset: 123456}},
	} {
		c.add(row{name: one.name, unit: "bytes", ours: c.bytes(one.v)})
	}
	c.add(row{name: "heartbeat without tasks", unit: "bytes", ours: idle})
}

func (c *crowd) bytes(v any) float64 {
	data, err := fleetwire.Encode(v, nil)
	c.must(err)
	return float64(len(data))
}

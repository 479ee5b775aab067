// Package diskspace limits what one session uses of the disk that it shares with all
// other sessions of the user, and knows how much its own files take.
//
// A [Guard] owns the sum of all outputs as far as this session knows it. It promises
// that nothing is refused for a quota by a sum that is older than a second, and that
// what keeps tasks from starting, or their ends from being recorded, is reported once
// when it begins and once when it is over.
//
// It removes nothing; package ended does.
package diskspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// What the outputs of all sessions weigh is looked at again when what is known is
// older than sumAge and somebody needs it; to forbid something it must not be older
// than sumFresh.
const (
	sumAge   = 10 * time.Second
	sumFresh = time.Second
)

// maxSums bounds what is read of what was known of sums.
const maxSums = 4 << 20

// Config is what a guard needs.
type Config struct {
	Place        home.Session
	QuotaBytes   int64             // of the outputs of all sessions of the user; 0: any
	MinFreeBytes int64             // that must be free for something to start; 0: any
	Report       func(text string) // tells the user
}

// Guard limits what a session uses of the disk. Its methods may be called by several
// goroutines.
type Guard struct {
	cfg  Config
	root home.Root
	size size

	stop     context.CancelFunc // of the goroutine
	measurer sync.WaitGroup     // joined by Close

	measuring sync.Mutex    // held while a sum is made
	want      chan struct{} // capacity 1: a newer sum is wanted

	mu       sync.Mutex // guards what follows
	at       time.Time  // of sum; zero: there is none
	sum      int64      // of all outputs
	since    int64      // what grew here since
	short    string     // why nothing starts, for the disk; empty: it may
	unsaved  map[task.RunID]error
	reported string             // the problem that was reported last
	changed  context.Context    // ends, and is replaced, when the problem becomes another
	change   context.CancelFunc // ends it
}

// New makes a guard. It looks at nothing before it is asked.
func New(cfg Config) *Guard {
	g := &Guard{
		cfg:     cfg,
		root:    cfg.Place.Project().Root(),
		stop:    func() {},
		want:    make(chan struct{}, 1),
		unsaved: map[task.RunID]error{},
	}
	g.changed, g.change = context.WithCancel(context.Background())
	return g
}

// Start lets new sums be made in the background until ctx ends, or Close.
func (g *Guard) Start(ctx context.Context) {
	ctx, g.stop = context.WithCancel(ctx)
	g.measurer.Go(func() {
		for {
			select {
			case <-g.want:
				g.measure(sumAge)
			case <-ctx.Done():
				return
			}
		}
	})
}

// Close ends what Start began, and leaves to the next session what has grown since the
// sum was made.
func (g *Guard) Close() {
	g.stop()
	g.measurer.Wait()
	g.mu.Lock()
	grew, o := g.since, outputs{At: g.at, Sum: g.sum + g.since}
	g.mu.Unlock()
	last := g.lastKnown()
	if grew == 0 || last.At.After(o.At) {
		return
	}
	g.write(o)
}

// Admit is an error that says why nothing may start, or nil.
func (g *Guard) Admit() error {
	if short := g.lookAtDisk(); short != "" {
		return &supervise.LimitError{Limit: "disk", Text: short}
	}
	over := g.over()
	if over != nil { // what forbids something must be true now
		g.measure(sumFresh)
		over = g.over()
	}
	if over == nil {
		return nil
	}
	return &supervise.LimitError{Limit: "quota", Text: over.Error() + ": nothing starts (see `drover sessions rm --old`)"}
}

// Grown counts what commands of this session have printed since the last call. Its error
// says why they may print no more.
func (g *Guard) Grown(bytes int64) error {
	g.lookAtDisk()
	g.mu.Lock()
	g.since += bytes
	g.mu.Unlock()
	return g.over()
}

// left is how many bytes may still be printed.
func (g *Guard) left() int64 {
	if g.cfg.QuotaBytes <= 0 {
		return 1<<63 - 1
	}
	g.known()
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(0, g.cfg.QuotaBytes-g.sum-g.since)
}

// Take reserves up to n bytes for what Drover itself writes, and returns how many.
func (g *Guard) Take(n int64) int64 {
	n = min(n, g.left())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.since += n
	return n
}

// over says that all outputs together are too much, as far as is known.
func (g *Guard) over() error {
	if g.left() > 0 {
		return nil
	}
	return fmt.Errorf("the outputs of all sessions together have reached tasks.userQuotaBytes, %d bytes", g.cfg.QuotaBytes)
}

// known makes sure that there is a sum, and that a newer one comes if it is old.
func (g *Guard) known() {
	g.mu.Lock()
	none, old := g.at.IsZero(), time.Since(g.at) > sumAge
	g.mu.Unlock()
	if none && !g.load() {
		g.measure(sumAge)
		return
	}
	if old {
		select {
		case g.want <- struct{}{}:
		default: // it is wanted already
		}
	}
}

// outputs is what is known of all outputs, as one session leaves it to the next.
type outputs struct {
	At  time.Time `json:"at"`
	Sum int64     `json:"bytes"`
}

// lastKnown is zero if nothing is known.
func (g *Guard) lastKnown() (o outputs) {
	data, err := g.root.ReadFile(g.root.OutputsFile(), maxSums)
	if err != nil || json.Unmarshal(data, &o) != nil || o.At.After(time.Now()) || o.Sum < 0 {
		return outputs{}
	}
	return o
}

// load takes what another session has found lately.
func (g *Guard) load() bool {
	o := g.lastKnown()
	if o.At.IsZero() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at, g.sum = o.At, o.Sum
	return true
}

// measure makes a new sum, unless there is one that is young enough. It reads one
// small file for a session that has ended, and the folder of outputs for others.
func (g *Guard) measure(age time.Duration) {
	g.measuring.Lock()
	defer g.measuring.Unlock()
	g.mu.Lock()
	young, before := !g.at.IsZero() && time.Since(g.at) < age, g.since
	g.mu.Unlock()
	if young {
		return
	}
	o := outputs{At: time.Now().UTC(), Sum: allOutputs(g.root)}
	g.mu.Lock()
	g.at, g.sum, g.since = o.At, o.Sum, g.since-before // what came meanwhile may count twice until the next
	g.mu.Unlock()
	g.write(o)
}

func (g *Guard) write(o outputs) {
	if data, err := json.Marshal(o); err == nil {
		_ = g.root.WriteAtomic(g.root.OutputsFile(), data) // on a full disk each session looks for itself
	}
}

// allOutputs is the sum over all sessions. What cannot be read counts nothing.
func allOutputs(root home.Root) (sum int64) {
	projects, _ := root.Projects()
	for _, p := range projects {
		places, _ := p.Sessions()
		for _, place := range places {
			info, err := archive.ReadInfo(place)
			if err == nil && info.EndTime != nil && info.Tasks.Live == 0 && info.OutputBytes > 0 {
				sum += info.OutputBytes
				continue
			}
			sum += archive.OutputBytes(place)
		}
	}
	return sum
}

// lookAtDisk says why nothing may start for the disk, and reports a change.
func (g *Guard) lookAtDisk() string {
	short := ""
	if g.cfg.MinFreeBytes > 0 {
		room, err := g.root.Room()
		switch {
		case err != nil: // whatever needs the folder will say so
		case room.Bytes < g.cfg.MinFreeBytes:
			short = fmt.Sprintf(
				"the disk of %s has less than tasks.minFreeBytes, %d bytes, free",
				g.root.Dir(),
				g.cfg.MinFreeBytes,
			)
		case room.NoFiles():
			short = fmt.Sprintf("the disk of %s can hold no more files", g.root.Dir())
		}
	}
	if short != "" {
		short += ": nothing starts until there is space again (what runs goes on)"
	}
	g.mu.Lock()
	g.short = short
	g.mu.Unlock()
	g.report()
	return short
}

// Saved is called by the supervisor with the outcome of recording an end.
func (g *Guard) Saved(run task.RunID, err error) {
	g.mu.Lock()
	if err == nil {
		delete(g.unsaved, run)
	} else {
		g.unsaved[run] = err
	}
	g.mu.Unlock()
	g.lookAtDisk()
}

// Problem is what keeps tasks from starting, or their ends from being recorded, and
// a context that ends when it becomes another. Empty: nothing does. That it is over
// may have been seen by nobody, if nothing runs.
func (g *Guard) Problem() (string, context.Context) {
	g.mu.Lock()
	reported := g.reported
	g.mu.Unlock()
	if reported != "" {
		g.lookAtDisk()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reported, g.changed
}

// unsavedFor is why ends are not recorded. One speaks for all, and always the same
// one: several would be reported by turns. The caller holds mu.
func (g *Guard) unsavedFor() (why string) {
	for _, err := range g.unsaved {
		if text := root(err).Error(); why == "" || text < why {
			why = text
		}
	}
	return why
}

// root is what was wrong, without what was being done.
func root(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// report tells the user, and whoever waits, when the problem has become another.
func (g *Guard) report() {
	g.mu.Lock()
	now := g.short
	if len(g.unsaved) > 0 {
		now = fmt.Sprintf("not saved: %s: how tasks end is recorded, and told, when there is space again (what runs goes on)",
			g.unsavedFor())
	}
	same := now == g.reported
	if !same {
		g.reported = now
		g.change()
		g.changed, g.change = context.WithCancel(context.Background())
	}
	g.mu.Unlock()
	if same {
		return
	}
	if now == "" {
		now = "there is space again: tasks start, and all ends are recorded"
	}
	g.cfg.Report(now)
}

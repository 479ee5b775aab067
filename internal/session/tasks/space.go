package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// The sum over the outputs of all sessions is measured again when it is needed and older than
// sumAge; a refusal needs one not older than sumFresh.
const (
	sumAge   = 10 * time.Second
	sumFresh = time.Second
)

// maxSums limits how much of a stored sum is read.
const maxSums = 4 << 20

// Space limits what one session uses of the disk that it shares with all other sessions of the
// user, and measures its own files. It removes nothing. No start is refused for a quota because of a sum
// older than a second. A problem that keeps tasks from starting, or their ends from being recorded, is
// reported once when it begins and once when it is over. Its methods may be called by several
// goroutines.
type Space struct {
	place home.Session
	opt   options.Tasks
	tell  func(text string)
	root  home.Root
	size  size

	stop     context.CancelFunc // of the goroutine
	measurer sync.WaitGroup     // joined by Close

	measuring sync.Mutex    // held while a sum is measured
	want      chan struct{} // capacity 1: a newer sum is wanted

	mu       sync.Mutex // guards the fields below
	at       time.Time  // time of sum; zero: there is none
	sum      int64      // of all outputs
	since    int64      // growth in this session since
	short    string     // why starts are refused for lack of disk space; empty: they are not
	unsaved  map[task.RunID]error
	reported string             // the last reported problem
	changed  context.Context    // ends, and is replaced, when the problem changes
	change   context.CancelFunc // ends it
}

// NewSpace returns the space of a session, by UserQuotaBytes and MinFreeBytes of opt. It measures nothing
// before it is needed. report is called with messages for the user.
func NewSpace(place home.Session, opt options.Tasks, report func(text string)) *Space {
	g := &Space{place: place, opt: opt, tell: report, root: place.Project().Root(), stop: func() {},
		want: make(chan struct{}, 1), unsaved: map[task.RunID]error{}}
	g.changed, g.change = context.WithCancel(context.Background())
	return g
}

// Start measures sums in the background until ctx ends, or Close.
func (g *Space) Start(ctx context.Context) {
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

// Close ends what Start began, and stores the growth since the sum was measured for the next
// session.
func (g *Space) Close() {
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

// Admit returns an error with the reason if no task may start.
func (g *Space) Admit() error {
	if short := g.lookAtDisk(); short != "" {
		return &supervise.LimitError{Limit: "disk", Text: short}
	}
	over := g.over()
	if over != nil { // a refusal needs a current value
		g.measure(sumFresh)
		over = g.over()
	}
	if over == nil {
		return nil
	}
	return &supervise.LimitError{Limit: "quota", Text: over.Error() + ": nothing starts (see `drover sessions rm --old`)"}
}

// Add counts what commands of this session have printed since the last call. Its error is the
// reason why they may print no more.
func (g *Space) Add(bytes int64) error {
	g.lookAtDisk()
	g.mu.Lock()
	g.since += bytes
	g.mu.Unlock()
	return g.over()
}

// left returns how many bytes may still be printed.
func (g *Space) left() int64 {
	if g.opt.UserQuotaBytes <= 0 {
		return 1<<63 - 1
	}
	g.known()
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(0, g.opt.UserQuotaBytes-g.sum-g.since)
}

// Take reserves up to n bytes for output that Drover itself writes, and returns how many are
// granted.
func (g *Space) Take(n int64) int64 {
	n = min(n, g.left())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.since += n
	return n
}

// over reports whether all outputs together exceed the quota, as far as is known.
func (g *Space) over() error {
	if g.left() > 0 {
		return nil
	}
	return fmt.Errorf("the outputs of all sessions together have reached tasks.userQuotaBytes, %d bytes", g.opt.UserQuotaBytes)
}

// known ensures that there is a sum, and requests a newer one if it is old.
func (g *Space) known() {
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
		default: // already requested
		}
	}
}

// outputs is the stored sum of all outputs, which sessions share.
type outputs struct {
	At  time.Time `json:"at"`
	Sum int64     `json:"bytes"`
}

// lastKnown returns the stored sum, or zero.
func (g *Space) lastKnown() (o outputs) {
	data, err := g.root.ReadFile(g.root.OutputsFile(), maxSums)
	if err != nil || json.Unmarshal(data, &o) != nil || o.At.After(time.Now()) || o.Sum < 0 {
		return outputs{}
	}
	return o
}

// load uses a recent sum of another session.
func (g *Space) load() bool {
	o := g.lastKnown()
	if o.At.IsZero() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at, g.sum = o.At, o.Sum
	return true
}

// measure measures a new sum, unless there is a recent one. For an ended session it reads one
// small file, for others the folder of outputs.
func (g *Space) measure(age time.Duration) {
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
	g.at, g.sum, g.since = o.At, o.Sum, g.since-before // growth meanwhile may count twice until the next sum
	g.mu.Unlock()
	g.write(o)
}

func (g *Space) write(o outputs) {
	if data, err := json.Marshal(o); err == nil {
		_ = g.root.WriteAtomic(g.root.OutputsFile(), data) // on a full disk each session measures for itself
	}
}

// allOutputs returns the sum over all sessions. Unreadable files do not count.
func allOutputs(root home.Root) (sum int64) {
	projects, _ := root.Projects()
	for _, p := range projects {
		places, _ := p.Sessions()
		for _, place := range places {
			info, err := stored.ReadInfo(place)
			if err == nil && info.EndTime != nil && info.Tasks.Live == 0 && info.OutputBytes > 0 {
				sum += info.OutputBytes
				continue
			}
			sum += stored.OutputBytes(place)
		}
	}
	return sum
}

// lookAtDisk checks the free space, and reports a change.
func (g *Space) lookAtDisk() string {
	short := ""
	if g.opt.MinFreeBytes > 0 {
		room, err := g.root.Space()
		switch {
		case err != nil: // the next use of the folder reports the error
		case room.Bytes < g.opt.MinFreeBytes:
			short = fmt.Sprintf("the disk of %s has less than tasks.minFreeBytes, %d bytes, free", g.root.Dir(),
				g.opt.MinFreeBytes)
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
func (g *Space) Saved(run task.RunID, err error) {
	g.mu.Lock()
	if err == nil {
		delete(g.unsaved, run)
	} else {
		g.unsaved[run] = err
	}
	g.mu.Unlock()
	g.lookAtDisk()
}

// Problem returns what keeps tasks from starting, or their ends from being recorded, and a
// context that ends when that changes. Empty: nothing. If no task runs, nobody may have noticed
// that it is over.
func (g *Space) Problem() (string, context.Context) {
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

// unsavedFor returns why ends are not recorded. With several reasons it always returns the same
// one; otherwise they would be reported alternately. The caller holds mu.
func (g *Space) unsavedFor() (why string) {
	for _, err := range g.unsaved {
		if text := root(err).Error(); why == "" || text < why {
			why = text
		}
	}
	return why
}

// root returns the innermost error, without its context.
func root(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// report tells the user and the waiters when the problem has changed.
func (g *Space) report() {
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
	g.tell(now)
}

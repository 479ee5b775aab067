package session

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

// bounds are what a session may use of the disk, which it shares with all other
// sessions of the user.
type bounds struct {
	place   home.Session
	root    home.Root
	quota   int64 // bytes of all outputs; 0: any
	minFree int64 // bytes; 0: any
	tell    func(text string)

	walk sync.Mutex    // held while a sum is made
	want chan struct{} // capacity 1: a newer sum is wanted

	mu      sync.Mutex
	at      time.Time // of sum; zero: there is none
	sum     int64     // of all outputs
	since   int64     // what grew here since
	short   string    // why nothing starts, for the disk; empty: it may
	unsaved map[task.RunID]error
	told    string             // the last trouble
	changed context.Context    // ends, and is replaced, when the trouble becomes another
	change  context.CancelFunc // ends it
}

func newBounds(place home.Session, l Limits, tell func(string)) *bounds {
	b := &bounds{place: place, root: place.Project().Root(), quota: l.UserQuota, minFree: l.MinFree, tell: tell,
		want: make(chan struct{}, 1), unsaved: map[task.RunID]error{}}
	b.changed, b.change = context.WithCancel(context.Background())
	return b
}

// keep makes a new sum whenever one is wanted.
func (b *bounds) keep(closes <-chan struct{}) {
	for {
		select {
		case <-b.want:
			b.measure(sumAge)
		case <-closes:
			return
		}
	}
}

// room says why nothing may start.
func (b *bounds) room() error {
	if short := b.lookAtDisk(); short != "" {
		return &supervise.LimitError{Limit: "disk", Text: short}
	}
	over := b.over()
	if over != nil { // what forbids something must be true now
		b.measure(sumFresh)
		over = b.over()
	}
	if over == nil {
		return nil
	}
	return &supervise.LimitError{Limit: "quota", Text: over.Error() + ": nothing starts (see `drover sessions rm --old`)"}
}

// grown is told what the commands of this session have printed since it was last
// told, and says why nothing may grow.
func (b *bounds) grown(bytes int64) error {
	b.lookAtDisk()
	b.mu.Lock()
	b.since += bytes
	b.mu.Unlock()
	return b.over()
}

// left is how many bytes may still be printed.
func (b *bounds) left() int64 {
	if b.quota <= 0 {
		return 1<<63 - 1
	}
	b.known()
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.quota-b.sum-b.since)
}

// take gives room for what Drover itself writes, which nobody looks at later.
func (b *bounds) take(n int64) int64 {
	n = min(n, b.left())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since += n
	return n
}

// over says that all outputs together are too much, as far as is known.
func (b *bounds) over() error {
	if b.left() > 0 {
		return nil
	}
	return fmt.Errorf("the outputs of all sessions together have reached tasks.userQuotaBytes, %d bytes", b.quota)
}

// known makes sure that there is a sum, and that a newer one comes if it is old.
func (b *bounds) known() {
	b.mu.Lock()
	none, old := b.at.IsZero(), time.Since(b.at) > sumAge
	b.mu.Unlock()
	if none && !b.load() {
		b.measure(sumAge)
		return
	}
	if old {
		select {
		case b.want <- struct{}{}:
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
func (b *bounds) lastKnown() (o outputs) {
	data, err := b.root.ReadFile(b.root.OutputsFile(), maxSums)
	if err != nil || json.Unmarshal(data, &o) != nil || o.At.After(time.Now()) || o.Sum < 0 {
		return outputs{}
	}
	return o
}

// load takes what another session has found lately.
func (b *bounds) load() bool {
	o := b.lastKnown()
	if o.At.IsZero() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at, b.sum = o.At, o.Sum
	return true
}

// measure makes a new sum, unless there is one that is young enough. It reads one
// small file for a session that has ended, and the folder of outputs for others.
func (b *bounds) measure(age time.Duration) {
	b.walk.Lock()
	defer b.walk.Unlock()
	b.mu.Lock()
	young, before := !b.at.IsZero() && time.Since(b.at) < age, b.since
	b.mu.Unlock()
	if young {
		return
	}
	o := outputs{At: time.Now().UTC(), Sum: allOutputs(b.root)}
	b.mu.Lock()
	b.at, b.sum, b.since = o.At, o.Sum, b.since-before // what came meanwhile may count twice until the next
	b.mu.Unlock()
	b.write(o)
}

// leave tells the next session what has come since the sum was made.
func (b *bounds) leave() {
	b.mu.Lock()
	grew, o := b.since, outputs{At: b.at, Sum: b.sum + b.since}
	b.mu.Unlock()
	last := b.lastKnown()
	if grew == 0 || last.At.After(o.At) {
		return
	}
	b.write(o)
}

func (b *bounds) write(o outputs) {
	if data, err := json.Marshal(o); err == nil {
		_ = b.root.WriteAtomic(b.root.OutputsFile(), data) // on a full disk each session looks for itself
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

// lookAtDisk says why nothing may start for the disk, and tells of a change.
func (b *bounds) lookAtDisk() string {
	short := ""
	if b.minFree > 0 {
		room, err := b.root.Room()
		switch {
		case err != nil: // whatever needs the folder will say so
		case room.Bytes < b.minFree:
			short = fmt.Sprintf("the disk of %s has less than tasks.minFreeBytes, %d bytes, free", b.root.Dir(), b.minFree)
		case room.NoFiles():
			short = fmt.Sprintf("the disk of %s can hold no more files", b.root.Dir())
		}
	}
	if short != "" {
		short += ": nothing starts until there is space again (what runs goes on)"
	}
	b.mu.Lock()
	b.short = short
	b.mu.Unlock()
	b.spread()
	return short
}

// save is told by the supervisor how the record of an end goes.
func (b *bounds) save(run task.RunID, err error) {
	b.mu.Lock()
	if err == nil {
		delete(b.unsaved, run)
	} else {
		b.unsaved[run] = err
	}
	b.mu.Unlock()
	b.lookAtDisk()
}

// trouble is what keeps tasks from starting, or their ends from being recorded, and
// a context that ends when it becomes another. Empty: nothing does. That it is over
// may have been seen by nobody, if nothing runs.
func (b *bounds) trouble() (string, context.Context) {
	b.mu.Lock()
	told := b.told
	b.mu.Unlock()
	if told != "" {
		b.lookAtDisk()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told, b.changed
}

// unsavedFor is why ends are not recorded. One speaks for all, and always the same
// one: it would be told each second by turns. The caller holds mu.
func (b *bounds) unsavedFor() (why string) {
	for _, err := range b.unsaved {
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

// spread tells everybody who should know when the trouble has become another.
func (b *bounds) spread() {
	b.mu.Lock()
	now := b.short
	if len(b.unsaved) > 0 {
		now = fmt.Sprintf("not saved: %s: how tasks end is recorded, and told, when there is space again (what runs goes on)", b.unsavedFor())
	}
	same := now == b.told
	if !same {
		b.told = now
		b.change()
		b.changed, b.change = context.WithCancel(context.Background())
	}
	b.mu.Unlock()
	if same {
		return
	}
	if now == "" {
		now = "there is space again: tasks start, and all ends are recorded"
	}
	b.tell(now)
}

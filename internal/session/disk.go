package session

import (
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/platform/home"
)

// diskShare bounds what of a host's time goes into looking at its files: who asks again and again
// of a session with a hundred thousand is told what was seen last.
const diskShare = 20

// disk is what the files of a session take.
type disk struct {
	mu    sync.Mutex // held over a look: others want the same
	seen  time.Time
	took  time.Duration
	bytes int64
}

func (d *disk) of(place home.Session) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	begun := time.Now()
	if begun.Sub(d.seen) > diskShare*d.took {
		d.bytes, _ = archive.DiskBytes(place)
		d.seen = time.Now()
		d.took = d.seen.Sub(begun)
	}
	return d.bytes
}

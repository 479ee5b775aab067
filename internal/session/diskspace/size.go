package diskspace

import (
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/archive"
)

// sizeShare bounds what part of a host's time goes into measuring its files: who asks
// again and again about a session with a hundred thousand gets the last result.
const sizeShare = 20

// size is what the files of a session took when they were measured last.
type size struct {
	mu    sync.Mutex // held over a measurement: others want the same
	at    time.Time
	took  time.Duration
	bytes int64
}

// Size is how many bytes the files of the session take.
func (g *Guard) Size() int64 {
	s := &g.size
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := time.Now()
	if begun.Sub(s.at) > sizeShare*s.took {
		s.bytes, _ = archive.DiskBytes(g.cfg.Place)
		s.at = time.Now()
		s.took = s.at.Sub(begun)
	}
	return s.bytes
}

package tasks

import (
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/stored"
)

// sizeShare limits the share of a host's time for measuring its files: repeated requests about
// a session with a hundred thousand files get the last result.
const sizeShare = 20

// size is the last measured size of a session's files.
type size struct {
	mu    sync.Mutex // held during a measurement, whose result waiters share
	at    time.Time
	took  time.Duration
	bytes int64
}

// Size returns the size of the session's files in bytes.
func (g *Space) Size() int64 {
	s := &g.size
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := time.Now()
	if begun.Sub(s.at) > sizeShare*s.took {
		s.bytes, _ = stored.DiskBytes(g.place)
		s.at = time.Now()
		s.took = s.at.Sub(begun)
	}
	return s.bytes
}

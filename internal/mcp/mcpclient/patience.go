package mcpclient

import "time"

const (
	maxFailures  = 5 // in a row; then a server is given up
	maxPause     = 30 * time.Second
	wellBehaved  = time.Minute // a connection that lived so long ends a row of failures
	secondWind   = time.Minute // until a server that was given up is tried again
	jitterSpread = 0.5         // of a pause, either way
)

// patience decides when a failed server is tried again. It does no I/O. The zero value
// belongs to a server that never failed.
type patience struct {
	failures int
	until    time.Time
}

// failed records that the server has gone after a life of that length. pause is the pause
// after a first failure, and doubles; chance is from 0 to 1.
func (p *patience) failed(now time.Time, lived, pause time.Duration, chance float64) {
	if lived >= wellBehaved {
		p.failures = 0
	}
	p.failures++
	pause = min(pause<<min(p.failures-1, 16), maxPause)
	p.until = now.Add(time.Duration(float64(pause) * (1 - jitterSpread + 2*jitterSpread*chance)))
}

// again gives a server that was given up one more chance, if it was unused for a
// while.
func (p *patience) again(now time.Time) {
	if p.spent() && now.Sub(p.until) >= secondWind {
		p.failures = maxFailures - 1
	}
}

// spent reports whether the server is given up.
func (p *patience) spent() bool { return p.failures >= maxFailures }

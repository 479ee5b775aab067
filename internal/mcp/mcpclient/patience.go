package mcpclient

import "time"

const (
	maxFailures  = 5 // in a row; then a server is given up
	maxPause     = 30 * time.Second
	wellBehaved  = time.Minute // who lived so long has not failed in a row
	secondWind   = time.Minute // for which one that was given up is left alone
	jitterSpread = 0.5         // of a pause, either way
)

// patience is with one server. It does no I/O: it is told of failures and asked
// when to try again. The zero value describes a server that never failed.
type patience struct {
	failures int
	until    time.Time
}

// failed takes in that the server has gone after a life. pause is that after a
// first failure, and doubles; chance is from 0 to 1.
func (p *patience) failed(now time.Time, lived, pause time.Duration, chance float64) {
	if lived >= wellBehaved {
		p.failures = 0
	}
	p.failures++
	pause = min(pause<<min(p.failures-1, 16), maxPause)
	p.until = now.Add(time.Duration(float64(pause) * (1 - jitterSpread + 2*jitterSpread*chance)))
}

// again gives a server that was given up one more chance, if it was left alone for
// a while.
func (p *patience) again(now time.Time) {
	if p.spent() && now.Sub(p.until) >= secondWind {
		p.failures = maxFailures - 1
	}
}

// spent reports whether the server is given up.
func (p *patience) spent() bool { return p.failures >= maxFailures }

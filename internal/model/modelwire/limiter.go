package modelwire

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// MaxWait is the longest time that a provider may make us wait at once.
const MaxWait = 60 * time.Second

// Limiter makes all callers of one model wait together: when a provider tells one call to retry
// later, every call to the same model waits until then, and places among concurrent calls are given
// in the order of requests. A permanent refusal is remembered briefly, so that agents of a fan-out
// do not each repeat it. It is shared by all callers, sends nothing and starts no goroutine.
// The zero value is ready and limits nothing
// until a provider demands a pause. Its methods may be called by several
// goroutines.
type Limiter struct {
	calls int // at the same time for each key; 0: any number

	mu    sync.Mutex
	gates map[string]*gate // one per key; as many as models at most
	shut  map[string]shut  // refusals; as many as keys and models at most
}

// gate is the door to one model.
type gate struct {
	mu    sync.Mutex
	until time.Time       // parked until then
	most  int             // calls at the same time; 0: any number
	used  int             // calls that hold a place
	line  []chan struct{} // of waiting callers; closed when the place is given
}

type shut struct {
	until time.Time
	err   error
}

// NewLimiter makes a limiter that lets at most calls through for each key at the same
// time. 0 means any number.
func NewLimiter(calls int) *Limiter { return &Limiter{calls: calls} }

// Limit sets how many calls with the key may run at the same time; 0 means any
// number. The latest call of Limit counts. It does not end running calls.
func (l *Limiter) Limit(key string, calls int) {
	g := l.gate(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most = calls
	g.admit()
}

// Acquire waits until the key is not parked and a place is free. The caller
// calls release when the call has ended. The error is the cause of ctx.
func (l *Limiter) Acquire(ctx context.Context, key string) (release func(), err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	g := l.gate(key)
	if err := g.enter(ctx); err != nil {
		return nil, err
	}
	release = sync.OnceFunc(g.leave)
	// The park may be made longer while we sleep, hence the loop.
	for {
		wait := g.parked()
		if wait <= 0 {
			return release, nil
		}
		if err := Sleep(ctx, spread(wait)); err != nil {
			release()
			return nil, err
		}
	}
}

// enter waits for a place.
func (g *gate) enter(ctx context.Context) error {
	mine := make(chan struct{})
	g.mu.Lock()
	g.line = append(g.line, mine)
	g.admit()
	g.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	i := slices.Index(g.line, mine)
	if i >= 0 {
		g.line = slices.Delete(g.line, i, i+1)
	}
	g.mu.Unlock()
	if i < 0 { // the place was given at the same moment
		g.leave()
	}
	return context.Cause(ctx)
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used--
	g.admit()
}

// admit gives the free places to the first in line. The caller holds mu.
func (g *gate) admit() {
	for len(g.line) > 0 && (g.most <= 0 || g.used < g.most) {
		close(g.line[0])
		g.line = slices.Delete(g.line, 0, 1)
		g.used++
	}
}

// Park makes every call with the key wait for d from now, but no longer than
// [MaxWait]. A park that is already longer stays.
func (l *Limiter) Park(key string, d time.Duration) {
	g := l.gate(key)
	until := time.Now().Add(min(d, MaxWait))
	g.mu.Lock()
	defer g.mu.Unlock()
	if until.After(g.until) {
		g.until = until
	}
}

// Shut remembers for d from now, but no longer than [MaxWait], that the key was
// refused with err.
func (l *Limiter) Shut(key string, d time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut == nil {
		l.shut = make(map[string]shut)
	}
	l.shut[key] = shut{time.Now().Add(min(d, MaxWait)), err}
}

// Refused returns the recent refusal of the key, or nil.
func (l *Limiter) Refused(key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.shut[key]
	if !ok {
		return nil
	}
	if !time.Now().Before(s.until) {
		delete(l.shut, key)
		return nil
	}
	return s.err
}

// Parked returns how long a call with the key would have to wait now.
func (l *Limiter) Parked(key string) time.Duration { return l.gate(key).parked() }

func (l *Limiter) gate(key string) *gate {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gates == nil {
		l.gates = make(map[string]*gate)
	}
	g := l.gates[key]
	if g == nil {
		g = &gate{most: l.calls}
		l.gates[key] = g
	}
	return g
}

func (g *gate) parked() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(0, time.Until(g.until))
}

// spread adds up to a tenth, a second at most, so that parked callers do not
// all knock at the same moment.
func spread(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(min(d/10, time.Second))+1))
}

// Backoff returns the pause after the given number of failed tries when the provider
// gives none: half a second, doubled each time up to 30 s, give or take a
// quarter.
func Backoff(tries int) time.Duration {
	d := 30 * time.Second
	if tries >= 1 && tries < 7 {
		d = 500 * time.Millisecond << (tries - 1)
	}
	return d - d/4 + time.Duration(rand.Int64N(int64(d/2)))
}

// Sleep waits for d. The error is the cause of ctx if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// maxReset bounds the time until the reset of a limit: the longest limits are weekly.
const maxReset = 8 * 24 * time.Hour

// resetAt returns the reset time of a limit that is used up for longer than a call may wait. It
// is zero for a limit that is reset sooner, and without a sensible time from the provider.
func resetAt(h http.Header, r *Refusal, now time.Time) time.Time {
	var at time.Time
	switch {
	case h.Get("Anthropic-Ratelimit-Unified-Status") == "rejected" && h.Get("Anthropic-Ratelimit-Unified-Reset") != "":
		at = moment(h.Get("Anthropic-Ratelimit-Unified-Reset"), now)
	case r.ResetsIn > 0:
		at = later(now, r.ResetsIn)
	case r.ResetsAt > 0:
		at = later(time.Unix(0, 0), r.ResetsAt)
	case h.Get("Retry-After-Ms") != "":
		ms, _ := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64)
		at = later(now, ms/1000)
	case h.Get("Retry-After") != "":
		text := strings.TrimSpace(h.Get("Retry-After"))
		if s, err := strconv.ParseFloat(text, 64); err == nil {
			at = later(now, s)
		} else if t, err := http.ParseTime(text); err == nil {
			at = t
		}
	default:
		at = exhausted(h, now)
	}
	if wait := at.Sub(now); wait <= MaxWait || wait > maxReset {
		return time.Time{}
	}
	return at
}

// exhausted returns the latest reset of the used up limits.
func exhausted(h http.Header, now time.Time) (at time.Time) {
	for _, what := range []string{"requests", "tokens", "input-tokens", "output-tokens"} {
		for _, names := range [][2]string{
			{"Anthropic-Ratelimit-" + what + "-Remaining", "Anthropic-Ratelimit-" + what + "-Reset"},
			{"X-Ratelimit-Remaining-" + what, "X-Ratelimit-Reset-" + what},
		} {
			if h.Get(names[0]) != "0" {
				continue
			}
			if t := moment(h.Get(names[1]), now); t.After(at) {
				at = t
			}
		}
	}
	return at
}

// moment reads a time in the forms that providers use: RFC 3339, seconds since 1970, or the
// time until then such as 6m0s.
func moment(text string, now time.Time) time.Time {
	text = strings.TrimSpace(text)
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t
	}
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		return later(time.Unix(0, 0), s)
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d)
	}
	return time.Time{}
}

// later returns s seconds after from; zero if s is not a sensible number.
func later(from time.Time, s float64) time.Time {
	if !(s > 0) || s > 9e9 {
		return time.Time{}
	}
	return from.Add(time.Duration(s*1000) * time.Millisecond)
}

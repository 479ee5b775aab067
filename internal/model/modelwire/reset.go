package modelwire

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

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

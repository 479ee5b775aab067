package memory

import "time"

// Rule says when a consolidation is due by itself.
type Rule struct {
	Every    time.Duration // since the last
	Sessions int           // that have been at work since then
}

// Due reports whether both have been reached. Where there was no consolidation
// only the sessions count; a last one in the future is the fault of a clock, and
// must not put off the next for ever.
func (r Rule) Due(now, last time.Time, sessions int) bool {
	past := now.Sub(last)
	return sessions >= r.Sessions && (last.IsZero() || past < 0 || past >= r.Every)
}

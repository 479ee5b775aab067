// Package daypart owns parts of a day in local time, such as 22:00-07:00. It reads no clock.
package daypart

import (
	"fmt"
	"strings"
	"time"
)

// Part is a part of each day, in local time. The zero part is the whole day.
type Part struct{ from, to int } // minutes after midnight; from after to: over midnight

// Parse reads a part such as 22:00-07:00; an empty text is the whole day.
func Parse(text string) (Part, error) {
	if text == "" {
		return Part{}, nil
	}
	from, to, ok := strings.Cut(text, "-")
	a, err := time.Parse("15:04", strings.TrimSpace(from))
	b, err2 := time.Parse("15:04", strings.TrimSpace(to))
	if !ok || err != nil || err2 != nil {
		return Part{}, fmt.Errorf("%.40q is no part of a day (write it as 22:00-07:00)", text)
	}
	return Part{from: a.Hour()*60 + a.Minute(), to: b.Hour()*60 + b.Minute()}, nil
}

// Rest returns the part of the day outside of p; for the whole day it returns the whole day.
func (p Part) Rest() Part { return Part{from: p.to, to: p.from} }

// Next returns the first moment from t on that is in the part.
func (p Part) Next(t time.Time) time.Time {
	local := t.Local()
	at := local.Hour()*60 + local.Minute()
	switch {
	case p.from == p.to, p.from < p.to && p.from <= at && at < p.to, p.from > p.to && (at >= p.from || at < p.to):
		return t.UTC()
	}
	y, m, d := local.Date()
	begin := time.Date(y, m, d, p.from/60, p.from%60, 0, 0, local.Location())
	if !begin.After(local) {
		begin = time.Date(y, m, d+1, p.from/60, p.from%60, 0, 0, local.Location())
	}
	return begin.UTC()
}

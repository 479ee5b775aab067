package parking

import (
	"fmt"
	"strings"
	"time"
)

// Window is a part of each day, in local time. The zero window is the whole day.
type Window struct{ from, to int } // minutes after midnight; from after to: over midnight

// ParseWindow reads a window such as 22:00-07:00.
func ParseWindow(text string) (Window, error) {
	if text == "" {
		return Window{}, nil
	}
	from, to, ok := strings.Cut(text, "-")
	a, err := time.Parse("15:04", strings.TrimSpace(from))
	b, err2 := time.Parse("15:04", strings.TrimSpace(to))
	if !ok || err != nil || err2 != nil {
		return Window{}, fmt.Errorf("%q is no part of a day (write it as 22:00-07:00)", text)
	}
	return Window{from: a.Hour()*60 + a.Minute(), to: b.Hour()*60 + b.Minute()}, nil
}

// Next is the first moment from t on that is in the window.
func (w Window) Next(t time.Time) time.Time {
	local := t.Local()
	at := local.Hour()*60 + local.Minute()
	switch {
	case w.from == w.to, w.from < w.to && w.from <= at && at < w.to, w.from > w.to && (at >= w.from || at < w.to):
		return t.UTC()
	}
	y, m, d := local.Date()
	begin := time.Date(y, m, d, w.from/60, w.from%60, 0, 0, local.Location())
	if !begin.After(local) {
		begin = time.Date(y, m, d+1, w.from/60, w.from%60, 0, 0, local.Location())
	}
	return begin.UTC()
}

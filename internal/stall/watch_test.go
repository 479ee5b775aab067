package stall

import (
	"testing"
	"time"
)

func TestWatch(t *testing.T) {
	const after = 45 * time.Second
	begin := time.Unix(1000, 0)
	var w Watch
	at := func(seconds int, size int64) bool {
		return w.Quiet(begin.Add(time.Duration(seconds)*time.Second), size, after)
	}
	for _, c := range []struct {
		seconds int
		size    int64
		quiet   bool
	}{
		{0, 10, false}, {40, 10, false}, {44, 10, false}, {45, 10, true},
		{50, 10, false}, {89, 10, false}, {90, 10, true}, // no question: as long again
		{130, 11, false}, {135, 11, false}, {174, 11, false}, {175, 11, true}, // it has grown
		{180, 5, false}, {224, 5, false}, {225, 5, true}, // somebody has cut the file
	} {
		if got := at(c.seconds, c.size); got != c.quiet {
			t.Errorf("at %d s with %d bytes: %v", c.seconds, c.size, got)
		}
	}
	w.Over()
	if at(1000, 5) {
		t.Error("looked again after the end")
	}
}

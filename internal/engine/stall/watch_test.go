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
	if at(400, 5) || at(440, 5) || !at(445, 5) {
		t.Error("a time in which nobody looked has counted")
	}
	w.Skip()
	if at(480, 5) || at(500, 5) || !at(525, 5) {
		t.Error("a time in which it stood still has counted")
	}
	w.Over()
	if !w.Reported() || at(550, 5) || at(590, 5) {
		t.Error("looked again after the end")
	}
}

// What reads its terminal is seen to do so for the whole of the quiet time.
func TestReads(t *testing.T) {
	begin := time.Unix(1000, 0)
	var w Watch
	for i, c := range []struct {
		size        int64
		reads, want bool
	}{
		{10, true, false}, {10, true, true}, {10, true, true}, // it reads
		{10, false, false}, {10, true, false}, {10, true, true}, // it did something else between
		{11, true, false}, {11, true, true}, // it has printed
	} {
		w.Quiet(begin.Add(time.Duration(i)*time.Second), c.size, 45*time.Second)
		if w.Saw(c.reads); w.Reads() != c.want {
			t.Errorf("look %d: reads %v", i, w.Reads())
		}
	}
}

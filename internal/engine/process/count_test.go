package process

import (
	"slices"
	"strings"
	"testing"
)

// A command has the processes that a stop of it would find, and the dead that they
// have not reaped.
func TestFamilies(t *testing.T) {
	of := func(pid, parent, group int, state byte, marks ...string) Proc {
		return Proc{PID: pid, Parent: parent, Group: group, Start: uint64(pid), State: state, Marks: marks}
	}
	const mark, other = MarkTask + "=b1", MarkTask + "=b2"
	leader := of(100, 1, 100, 'S', mark)
	for name, c := range map[string]struct {
		procs []Proc
		want  int
	}{
		"alone":            {nil, 1},
		"group":            {[]Proc{of(101, 100, 100, 'R'), of(102, 1, 100, 'R')}, 3},
		"descendants":      {[]Proc{of(101, 100, 101, 'S'), of(102, 101, 102, 'S'), of(103, 102, 102, 'T')}, 4},
		"daemon":           {[]Proc{of(101, 1, 101, 'S', mark), of(102, 101, 102, 'S')}, 3},
		"not-reaped":       {[]Proc{of(101, 100, 100, 'Z'), of(102, 100, 100, 'Z')}, 3},
		"left-by-orphan":   {[]Proc{of(101, 1, 100, 'Z')}, 1}, // whoever is its parent now has to reap it
		"others":           {[]Proc{of(101, 1, 101, 'S', other), of(102, 7, 7, 'S'), of(103, 1, 103, 'S', "DROVER_SESSION=b1")}, 1},
		"older-group":      {[]Proc{of(50, 1, 100, 'S')}, 1}, // the number was somebody else's before
		"circle":           {[]Proc{of(101, 102, 101, 'S', mark), of(102, 101, 102, 'S')}, 3},
		"everything-twice": {[]Proc{of(101, 100, 100, 'S', mark), of(102, 101, 100, 'S', mark)}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			f := NewFamilies(append([]Proc{leader}, c.procs...))
			if got := f.Size(leader.Identity(), "b1"); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
			found := slices.ContainsFunc(c.procs, func(p Proc) bool { return p.Carries(MarkTask, "b2") })
			if got := f.Size(Identity{PID: 9999}, "b2"); (got == 1) != found || got > 1 {
				t.Errorf("of another: %d", got)
			}
			if got := f.Size(Identity{PID: 9999}, ""); got != 0 {
				t.Errorf("of nobody: %d", got)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	for text, want := range map[string]int{
		"6.27 5.20 4.07 10/176 20298\n": 176,
		"0.00 0.00 0.00 1/70000 5\n":    70000,
		"0.00 0.00 0.00 0/0 0\n":        0, // imitated
		"0.00 0.00 0.00 5 0\n":          0,
		"0.00 0.00 0.00 1/x 0\n":        0,
		"1 2 3":                         0,
		"":                              0,
	} {
		if n, ok := parseLoad([]byte(text)); ok != (want > 0) || ok && n != want {
			t.Errorf("%q: %d, %v", strings.TrimSpace(text), n, ok)
		}
	}
}

// BenchmarkCountAbove is what looking costs each second while nobody is near the limit.
func BenchmarkCountAbove(b *testing.B) {
	for b.Loop() {
		CountAbove(1 << 20)
	}
}

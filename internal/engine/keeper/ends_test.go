package keeper

import (
	"encoding/json"
	"testing"

	"github.com/drover-dev/drover/internal/engine/process"
)

// A helper hears of ends also when nothing else is told, and of the end of one group
// before it is told to watch another with the same number.
func TestEnds(t *testing.T) {
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	l := &Link{argv: []string{"nobody"}, conn: ours}
	lines := json.NewDecoder(theirs)
	hears := func(op string, pid int) {
		t.Helper()
		var m message
		if err := lines.Decode(&m); err != nil {
			t.Fatal(err)
		}
		if m.Watch != nil {
			m.PID = m.Watch.Process.PID
		}
		if m.Op != op || m.PID != pid {
			t.Fatalf("it hears %+v, want %s %d", m, op, pid)
		}
	}
	one := process.Identity{PID: 10, Start: 1, Boot: "b"}
	again := process.Identity{PID: 10, Start: 2, Boot: "b"}
	for _, do := range []func() error{
		func() error { return l.Watch(one, "t1", false, "") },
		func() error { return l.Forget(one) },
		func() error { return l.Watch(again, "t2", false, "") },
		func() error { return l.Forget(again) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	hears(opWatch, 10)
	hears(opForget, 10)
	hears(opWatch, 10)
	hears(opForget, 10) // by the timer
	for pid := range mostEnds {
		if err := l.Forget(process.Identity{PID: 100 + pid, Start: 1, Boot: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	for pid := range mostEnds {
		hears(opForget, 100+pid)
	}
}

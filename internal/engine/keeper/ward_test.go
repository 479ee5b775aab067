package keeper

import (
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/engine/process"
)

// The next host of the same session must not lose its children to the keeper of
// the one before.
func TestSuccessor(t *testing.T) {
	w := newWard()
	w.hear(message{Op: opHello, Session: "s1", Host: &process.Identity{PID: 10, Start: 5}})
	w.hear(message{Op: opWatch, Watch: &watch{Process: process.Identity{PID: 20, Start: 7}, Task: "b1"}})
	w.hear(message{Op: opWatch, Watch: &watch{Process: process.Identity{PID: 30, Start: 8}, Task: "b2", Keep: true}})
	c := w.choice()
	for name, x := range map[string]struct {
		p           process.Proc
		root, spare bool
	}{
		"mine":      {process.Proc{PID: 40, Start: 150, Marks: []string{"DROVER_HOST=10.5", "DROVER_SESSION=s1"}}, true, false},
		"session":   {process.Proc{PID: 40, Start: 99, Marks: []string{"DROVER_SESSION=s1"}}, false, false},
		"successor": {process.Proc{PID: 40, Start: 101, Marks: []string{"DROVER_SESSION=s1", "DROVER_HOST=11.100"}}, false, false},
		"group":     {process.Proc{PID: 41, Group: 20, Start: 9}, true, false},
		"reused":    {process.Proc{PID: 20, Group: 20, Start: 6}, false, false},
		"kept":      {process.Proc{PID: 31, Group: 30, Start: 9, Marks: []string{"DROVER_HOST=10.5"}}, true, true},
		"keptmark":  {process.Proc{PID: 32, Group: 32, Start: 9, Marks: []string{"DROVER_TASK_ID=b2"}}, false, true},
		"stranger":  {process.Proc{PID: 50, Start: 9, Marks: []string{"DROVER_SESSION=s2"}}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if root, spare := c.Root(x.p), c.Spare(x.p); root != x.root || spare != x.spare {
				t.Errorf("root %v, spare %v", root, spare)
			}
		})
	}
	w.hear(message{Op: opForget, PID: 20})
	if c := w.choice(); c.Root(process.Proc{PID: 41, Group: 20, Start: 9}) {
		t.Error("a forgotten group is still ended")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("{\"op\":\"watch\",\"watch\":{\"process\":{\"pid\":5}}}\n")
	f.Add("{\"op\":\"later\",\"new\":1}\nnonsense\n\x00")
	f.Fuzz(func(t *testing.T, junk string) {
		w := newWard()
		in := junk + "\n{\"op\":\"bye\"}\n"
		decode(strings.NewReader(in), w.hear)
		if !w.bye && len(junk) < maxLine-1 {
			t.Fatal("a message behind junk was lost")
		}
		for pid := range w.watched {
			if pid <= 1 {
				t.Fatalf("pid %d is watched", pid)
			}
		}
	})
}

package keeper

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// Numbers are given away again: what has ended under the number of a kept command,
// before it or after it, is not that command.
func TestNumberOfOrphan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b1.exit")
	id := process.Identity{PID: 30, Start: 800}
	p := &parent{ward: newWard(), again: make(chan struct{}, 1)}
	p.ward.hear(message{Op: opWatch, Watch: &watch{Process: id, Task: "b1", Keep: true, ExitFile: file}})
	at := time.Now()
	for _, start := range []uint64{0, 799, 801} {
		p.settle(ended{pid: 30, start: start, at: at})
		if _, err := process.ReadDeparture(file, id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("somebody who began at %d has settled it: %v", start, err)
		}
	}
	if c := p.ward.choice(); !c.Spare(process.Proc{PID: 30, Group: 30, Start: 800}) {
		t.Error("it is not spared any more")
	}
	p.settle(ended{pid: 30, start: 800, exit: process.Exit{Code: 7}, at: at})
	if d, err := process.ReadDeparture(file, id); err != nil || d.ExitCode != 7 {
		t.Errorf("its own end: %+v, %v", d, err)
	}
}

// A host tells of an end when the number is somebody else's already, who is watched.
func TestForgetLate(t *testing.T) {
	for name, argv := range map[string][]string{"parent": nil, "helper": {"x"}} {
		t.Run(name, func(t *testing.T) {
			ours, theirs, err := pair()
			if err != nil {
				t.Fatal(err)
			}
			l := &Link{argv: argv, conn: ours, lost: make(chan struct{}), spared: map[process.Identity]struct{}{}}
			old, kept := process.Identity{PID: 30, Start: 7}, process.Identity{PID: 30, Start: 800}
			for _, err := range []error{l.Watch(old, "b1", false, ""), l.Watch(kept, "b2", true, "/f"), l.Forget(old), l.Close()} {
				if err != nil {
					t.Error(err)
				}
			}
			w := newWard()
			decode(theirs, w.hear)
			if err := theirs.Close(); err != nil {
				t.Error(err)
			}
			if x, ok := w.watched[kept.PID]; !w.bye || !ok || x.Process != kept || !x.Keep {
				t.Errorf("the keeper knows %+v, goodbye %v", w.watched, w.bye)
			}
		})
	}
}

// A host of an earlier build tells the number only.
func TestForgetNumber(t *testing.T) {
	w := newWard()
	w.hear(message{Op: opWatch, Watch: &watch{Process: process.Identity{PID: 30, Start: 8}, Task: "b1", Keep: true}})
	w.hear(message{Op: opForget, PID: 30})
	if len(w.watched) != 0 {
		t.Errorf("%+v", w.watched)
	}
}

// Of exits before the host's only so many are remembered, and only for so long.
func TestRemember(t *testing.T) {
	p := &parent{}
	at := time.Now()
	for i := range 2*recentExits + 5 {
		p.remember(ended{pid: i, at: at})
	}
	if n := len(p.recent); n != recentExits || p.recent[n-1].pid != 2*recentExits+4 || p.recent[0].pid != recentExits+5 {
		t.Errorf("%d are remembered, the first is %d", n, p.recent[0].pid)
	}
	p.remember(ended{pid: 1, at: at.Add(recentWait)})
	if n := len(p.recent); n != recentExits {
		t.Errorf("%d are remembered a minute later", n)
	}
	p.remember(ended{pid: 2, at: at.Add(recentWait + time.Second)})
	if n := len(p.recent); n != 2 || p.recent[0].pid != 1 {
		t.Errorf("%d are remembered when all others are old", n)
	}
}

// A host gets no marks of others, and not that of its keeper.
func TestWithLink(t *testing.T) {
	got := withLink([]string{"PATH=/bin", "DROVER_TASK_ID=b1", "DROVER_SESSION=s1", "DROVER_HOST=1.2", "DROVER_KEEPER=detached", "DROVER_KEEPER_FD=9", "DROVER_HOME=/h"})
	if s := strings.Join(got, " "); s != "PATH=/bin DROVER_HOME=/h DROVER_KEEPER_FD=3" {
		t.Errorf("environment %q", s)
	}
}

package session

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/internal/api/stored"
)

// What hooks print beyond the memory is an output: it counts, and ends where the
// outputs of all sessions are too much.
func TestHookOutputCounts(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Options.Tasks.UserQuotaBytes = 1000 })
	f, err := r.agents.HookOutput(2000)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Write(make([]byte, 1500)); n != 1500 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := f.Close(); err != nil || f.Dropped() != 500 {
		t.Errorf("%d bytes were dropped, %v", f.Dropped(), err)
	}
	data, err := os.ReadFile(f.Path())
	if err != nil || !strings.Contains(string(data[1000:]), "outputs of all sessions together are too much") {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	all, outputs := stored.DiskBytes(r.cfg.Place)
	if got := stored.OutputBytes(r.cfg.Place); got != int64(len(data)) || outputs != got || all < got {
		t.Errorf("it counts %d, of which outputs %d and %d", all, outputs, got)
	}
}

// However many hooks print too much at the same time, each has a file, and few stay.
func TestHookOutputsAtOnce(t *testing.T) {
	r := open(t, "")
	var group sync.WaitGroup
	for range 80 {
		group.Go(func() {
			f, err := r.agents.HookOutput(1000)
			if err != nil {
				t.Error(err)
				return
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if left, err := os.ReadDir(r.cfg.Place.HookOutputs()); err != nil || len(left) != 8 {
		t.Errorf("%d files, %v", len(left), err)
	}
}

package session

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The size of a session is told as it is, but for one whose files take long to look at: of that as
// it was a moment ago.
func TestDisk(t *testing.T) {
	r := open(t, "")
	size := func() int64 {
		t.Helper()
		info, err := r.Info(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		return info.DiskBytes
	}
	grow := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(r.cfg.Place.Dir(), name), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.disk.took = 0
	first := size()
	r.disk.took = time.Hour
	grow("a")
	if now := size(); now != first {
		t.Errorf("the files were looked at again: %d bytes, before %d", now, first)
	}
	r.disk.seen = time.Now().Add(-diskShare * r.disk.took).Add(-time.Second)
	if now := size(); now < first+1<<20 {
		t.Errorf("%d bytes, before %d", now, first)
	}
}

package spool

import (
	"os"
	"runtime"
	"testing"
)

// Much output takes neither memory nor more than one descriptor.
func TestFlat(t *testing.T) {
	descriptors := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("this system does not show descriptors")
		}
		return len(all)
	}
	opened := descriptors()
	f := open(t, Options{})
	chunk := make([]byte, 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 64 {
		if _, err := f.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("64 MiB of output took %d bytes of memory", got)
	}
	if n := descriptors() - opened; n != 1 || f.Size() != 64<<20 {
		t.Errorf("%d descriptors, %d bytes", n, f.Size())
	}
}

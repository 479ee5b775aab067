package supervise

import (
	"context"
	"sync"
	"testing"

	"github.com/drover-dev/drover/task"
)

// A further run in the background may be moved there by somebody else while it is just
// coming up: of both only one frees those who wait.
func TestPromoteAsItResumes(t *testing.T) {
	s := New(Config{Log: &memLog{}})
	// Not closed before the end: after a panic nothing of it would end.
	spec := task.Spec{Backgrounded: true}
	rec := start(t, s, work(instant), spec)
	over, stop := context.WithCancel(t.Context())
	var eager sync.WaitGroup
	for range 4 {
		eager.Go(func() {
			for over.Err() == nil {
				_, _ = s.Promote(over, rec.ID) // one that has ended cannot be moved
			}
		})
	}
	for range 500 {
		if _, err := s.Wait(t.Context(), []task.ID{rec.ID}, false); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resume(t.Context(), rec.ID, work(instant), spec); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	eager.Wait()
	s.Close()
}

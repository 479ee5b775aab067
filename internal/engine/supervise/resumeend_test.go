package supervise

import (
	"sync"
	"testing"

	"github.com/drover-dev/drover/task"
)

// A further run that is asked for at the very moment at which the last one ends begins
// behind it, or is refused: the end of one is never that of the other.
func TestResumeAtEnd(t *testing.T) {
	s := New(Config{Session: "s00000000", Log: &memLog{}})
	defer s.Close()
	r := start(t, s, work(instant), task.Spec{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				_, _ = s.Resume(t.Context(), r.ID, work(instant), task.Spec{}) // it is at work, or begins
			}
		})
	}
	wg.Wait()
	<-s.Done(r.ID)
	if now, ok := s.Get(r.ID); !ok || now.Status != task.Completed {
		t.Errorf("it is %s", now.Status)
	}
}

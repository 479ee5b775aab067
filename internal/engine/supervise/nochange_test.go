package supervise

import (
	"testing"
	"testing/synctest"

	"github.com/drover-dev/drover/task"
)

// What would change nothing is in no log, and nobody who reads along hears of it.
func TestNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Log: log})
		defer s.Close()
		id := start(t, s, work(until), task.Spec{}).ID
		synctest.Wait()
		for _, do := range []struct {
			what string
			do   func() error
		}{
			{"promote", func() error { _, err := s.Promote(t.Context(), id); return err }},
			{"pause", func() error { _, err := s.Pause(t.Context(), id); return err }},
			{"thaw", func() error { _, err := s.Thaw(t.Context(), id); return err }},
			{"summarize", func() error { return s.Summarize(t.Context(), id, "it works") }},
			{"stop", func() error { _, err := s.Stop(t.Context(), []task.ID{id}, byUser); return err }},
		} {
			var after []int
			for range 3 {
				if err := do.do(); err != nil {
					t.Fatalf("%s: %v", do.what, err)
				}
				synctest.Wait()
				after = append(after, len(log.verbs(id)))
			}
			if after[0] == 0 || after[1] != after[0] || after[2] != after[0] {
				t.Errorf("%s: events %v of the first, second and third time: %v", do.what, after, log.verbs(id))
			}
		}
	})
}

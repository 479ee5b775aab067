package session

import (
	"sync"
	"testing"
)

// A signal may come at any moment of the end, and after it.
func TestHurryAtClose(t *testing.T) {
	for range 20 {
		r := open(t, "")
		var hurrying sync.WaitGroup
		hurrying.Go(r.HastenHooks)
		if err := r.Session.Close(); err != nil {
			t.Error(err)
		}
		hurrying.Wait()
		r.HastenHooks()
	}
}

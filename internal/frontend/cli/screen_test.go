package cli

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

// What follows at a pace tells of the first change at once, and of others at most once in
// each pace; without changes it does nothing.
func TestPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		wake, begun := make(chan struct{}, 1), time.Now()
		var at []time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			paced(ctx, 10*time.Second, wake, func() { at = append(at, time.Since(begun)) })
		}()
		for range 25 { // a change in each second
			console.WakeUp(wake)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		cancel()
		<-done
		if want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 30 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("told at %v, want %v", at, want)
		}
	})
}

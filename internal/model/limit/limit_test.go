package limit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/model/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l limit.Limiter
		start := time.Now()
		l.Park("a", 10*time.Second)
		l.Park("a", time.Second) // a shorter park does not take the longer one away

		waited := make([]time.Duration, 20)
		var all sync.WaitGroup
		for i := range waited {
			all.Go(func() {
				release, err := l.Acquire(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				waited[i] = time.Since(start)
				release()
			})
		}
		release, err := l.Acquire(t.Context(), "b")
		if err != nil || time.Since(start) != 0 {
			t.Fatalf("another model waited %v: %v", time.Since(start), err)
		}
		release()
		all.Wait()
		for _, w := range waited {
			if w < 10*time.Second || w > 11*time.Second {
				t.Errorf("waited %v, want 10 s and a little", w)
			}
		}
	})
}

func TestLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l limit.Limiter
		start := time.Now()
		l.Park("a", 5*time.Second)
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := l.Acquire(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		l.Park("a", 20*time.Second) // while somebody waits already
		all.Wait()
		if w := time.Since(start); w < 20*time.Second {
			t.Errorf("waited %v, want 20 s", w)
		}
	})
}

func TestCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l limit.Limiter
		l.Park("a", 24*time.Hour)
		if got := l.Parked("a"); got != limit.MaxWait {
			t.Errorf("parked %v, want %v", got, limit.MaxWait)
		}
	})
}

func TestCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(1)
		why := errors.New("enough")
		l.Park("a", time.Minute)
		ctx, cancel := context.WithCancelCause(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := l.Acquire(ctx, "a"); !errors.Is(err, why) {
				t.Errorf("Acquire = %v, want the cause", err)
			}
		})
		synctest.Wait()
		cancel(why)
		all.Wait()
		// The place of the one who gave up is free again.
		release, err := l.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		release()
		release() // twice is harmless
		if _, err := l.Acquire(ctx, "a"); !errors.Is(err, why) {
			t.Errorf("Acquire with an ended context = %v, want the cause", err)
		}
	})
}

func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(2)
		var mu sync.Mutex
		var now, most int
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				release, err := l.Acquire(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				defer release()
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Second) // the call; fake time
				mu.Lock()
				now--
				mu.Unlock()
			})
		}
		all.Wait()
		if most != 2 {
			t.Errorf("%d calls at the same time, want 2", most)
		}
	})
}

func TestBackoff(t *testing.T) {
	for tries, want := range map[int]time.Duration{
		1: 500 * time.Millisecond, 2: time.Second, 6: 16 * time.Second, 7: 30 * time.Second, 100: 30 * time.Second,
	} {
		for range 50 {
			if got := limit.Backoff(tries); got < want*3/4 || got > want*5/4 {
				t.Errorf("Backoff(%d) = %v, want %v within a quarter", tries, got, want)
			}
		}
	}
}

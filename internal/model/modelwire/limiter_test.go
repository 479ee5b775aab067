package modelwire_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/internal/model/modelwire"
)

func TestPark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l modelwire.Limiter
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
		var l modelwire.Limiter
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
		var l modelwire.Limiter
		l.Park("a", 24*time.Hour)
		if got := l.Parked("a"); got != modelwire.MaxWait {
			t.Errorf("parked %v, want %v", got, modelwire.MaxWait)
		}
	})
}

func TestCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := modelwire.NewLimiter(1)
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
		l := modelwire.NewLimiter(2)
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

// A limit may be set and changed while calls are under way. Places are given in
// the order of asking, and one who gives up leaves the line.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l modelwire.Limiter
		l.Limit("a", 1)
		first, err := l.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		var order []int
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				mine := t.Context()
				if i == 1 {
					mine = ctx
				}
				release, err := l.Acquire(mine, "a")
				if i == 1 {
					if !errors.Is(err, why) {
						t.Errorf("Acquire = %v, want the cause", err)
					}
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				time.Sleep(time.Second) // the call; fake time
				release()
			})
			synctest.Wait()
		}
		cancel(why)
		synctest.Wait()
		if len(order) != 0 {
			t.Errorf("%v passed a door that is taken", order)
		}
		first()
		all.Wait()
		if !slices.Equal(order, []int{0, 2, 3}) {
			t.Errorf("places were given to %v", order)
		}

		begin := time.Now()
		for range 3 {
			all.Go(func() {
				release, err := l.Acquire(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				release()
			})
		}
		synctest.Wait()
		l.Limit("a", 0) // those in line need not wait any longer
		all.Wait()
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v, want 1 s", took)
		}
	})
}

// A refusal is remembered for a moment and no longer than a minute.
func TestShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l modelwire.Limiter
		why := errors.New("no such key")
		if err := l.Refused("a"); err != nil {
			t.Fatal(err)
		}
		l.Shut("a", 10*time.Second, why)
		l.Shut("b", 24*time.Hour, why)
		time.Sleep(10*time.Second - 1)
		if err := l.Refused("a"); err != why {
			t.Errorf("Refused = %v", err)
		}
		if err := l.Refused("c"); err != nil {
			t.Errorf("another key: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if err := l.Refused("a"); err != nil {
			t.Errorf("later: Refused = %v", err)
		}
		time.Sleep(modelwire.MaxWait)
		if err := l.Refused("b"); err != nil {
			t.Errorf("after a minute: Refused = %v", err)
		}
	})
}

func TestBackoff(t *testing.T) {
	for tries, want := range map[int]time.Duration{
		1: 500 * time.Millisecond, 2: time.Second, 6: 16 * time.Second, 7: 30 * time.Second, 100: 30 * time.Second,
	} {
		for range 50 {
			if got := modelwire.Backoff(tries); got < want*3/4 || got > want*5/4 {
				t.Errorf("Backoff(%d) = %v, want %v within a quarter", tries, got, want)
			}
		}
	}
}

package daily

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The user is told once a day of what schedules did, over restarts of the host; a day without is
// passed over, and so is one that cannot be recorded.
func TestDaily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks []task.Record
		var told []string
		var broken error
		last := time.Now()
		run := func(d time.Duration) {
			t.Helper()
			ctx, stop := context.WithCancel(t.Context())
			teller := New(Config{Last: last,
				Store: func(at time.Time) error {
					if broken == nil {
						last = at
					}
					return broken
				},
				Tasks: func(context.Context) ([]task.Record, error) { return tasks, nil },
				Tell:  func(_ context.Context, text string) { told = append(told, text) },
				Fail:  func(error) {}})
			var group sync.WaitGroup
			group.Go(func() { teller.Run(ctx) })
			time.Sleep(d)
			stop()
			group.Wait()
		}
		ended := func() {
			at := time.Now()
			tasks = append(tasks, task.Record{ID: "b1", Kind: task.LocalBash, Status: task.Completed, EndTime: &at, Schedule: "s"})
		}
		until := func(n int, when string) {
			t.Helper()
			if len(told) != n {
				t.Fatalf("%s: told %q, want %d", when, told, n)
			}
		}
		ended()
		run(23 * time.Hour)
		until(1, "on the first day")
		run(10 * time.Hour)
		until(1, "after a restart, with nothing new")
		ended()
		time.Sleep(5 * 24 * time.Hour)
		run(time.Minute)
		until(2, "after days without a host")
		if !strings.Contains(told[1], "1 completed") {
			t.Errorf("told %q", told[1])
		}
		ended()
		broken = errors.New("no space left on device")
		run(48 * time.Hour)
		until(2, "without space")
	})
}

package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a project with a file of schedules, whose tasks are names and times.
type world struct {
	mu     sync.Mutex
	file   []byte
	broken error // of writing
	ran    []string
	live   map[task.ID]bool
	told   []string
}

func (w *world) open(t *testing.T) *Clock {
	t.Helper()
	c, err := Open(Config{
		Read: func() ([]byte, error) {
			if w.file == nil {
				return nil, fs.ErrNotExist
			}
			return w.file, nil
		},
		Write: func(data []byte) error {
			if w.broken == nil {
				w.file = slices.Clone(data)
			}
			return w.broken
		},
		Start: func(_ context.Context, r control.StartRequest) (task.Record, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			id := task.ID(fmt.Sprintf("b%08d", len(w.ran)))
			w.ran = append(w.ran, r.Name+" "+time.Now().UTC().Format("02 15:04"))
			return task.Record{ID: id, Schedule: r.Schedule}, nil
		},
		Live:   func(id task.ID) bool { w.mu.Lock(); defer w.mu.Unlock(); return w.live[id] },
		Report: func(text string) { w.told = append(w.told, text) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (w *world) took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.ran
	w.ran = nil
	return out
}

// running runs a clock for a time.
func running(t *testing.T, c *Clock, d time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { c.Run(ctx) })
	time.Sleep(d)
	synctest.Wait()
	stop()
	run.Wait()
}

func command(name, cron string) control.ScheduleRequest {
	return control.ScheduleRequest{Add: &control.Schedule{Name: name, Cron: cron, Zone: "UTC", Cwd: "/src",
		Shell: &control.ShellRequest{Line: "true"}}}
}

func add(t *testing.T, c *Clock, r control.ScheduleRequest) {
	t.Helper()
	if _, err := c.Do(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// The tasks start at their times, also under the next host; the time of the bubble begins at
// midnight, 2000-01-01.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		c := w.open(t)
		add(t, c, command("six", "0 6 * * *"))
		add(t, c, command("hourly", "@every 7h"))
		running(t, c, 15*time.Hour)
		if got, want := w.took(), []string{"six 01 06:00", "hourly 01 07:00", "hourly 01 14:00"}; !slices.Equal(got, want) {
			t.Errorf("ran %v, want %v", got, want)
		}
		c = w.open(t)
		running(t, c, 16*time.Hour)
		if got, want := w.took(), []string{"hourly 01 21:00", "hourly 02 04:00", "six 02 06:00"}; !slices.Equal(got, want) {
			t.Errorf("under the next host ran %v, want %v", got, want)
		}
	})
}

// A time that no host was there for is made up for once, if it is not too long ago.
func TestMisfire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		add(t, w.open(t), command("six", "0 6 * * *"))
		time.Sleep(6*time.Hour + 30*time.Minute)
		running(t, w.open(t), time.Minute)
		if got, want := w.took(), []string{"six 01 06:30"}; !slices.Equal(got, want) {
			t.Errorf("half an hour late ran %v, want %v", got, want)
		}
		time.Sleep(30 * time.Hour)
		c := w.open(t)
		running(t, c, time.Minute)
		if got := w.took(); len(got) != 0 {
			t.Errorf("six hours late ran %v", got)
		}
		got, _ := c.Do(t.Context(), control.ScheduleRequest{})
		if s := got.Schedules[0]; s.Skipped != 1 || s.LastSkip == nil || !strings.Contains(s.LastSkip.Why, "no host") || len(w.told) != 1 ||
			s.Next.Format("02 15:04") != "03 06:00" {
			t.Errorf("schedule %+v, told %q", s, w.told)
		}
		// Of several missed times the last is near enough, and counts for all.
		time.Sleep(3*24*time.Hour - 6*time.Hour)
		running(t, w.open(t), time.Minute)
		if got := w.took(); len(got) != 1 {
			t.Errorf("after three days ran %v, want one", got)
		}
	})
}

// A task of the last run that still runs is not joined by another, by the clock or by the user.
func TestOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{live: map[task.ID]bool{"b00000000": true}}
		c := w.open(t)
		add(t, c, command("often", "*/10 * * * *"))
		running(t, c, 25*time.Minute)
		if got := w.took(); len(got) != 1 {
			t.Errorf("ran %v, want one", got)
		}
		got, _ := c.Do(t.Context(), control.ScheduleRequest{})
		if s := got.Schedules[0]; s.Skipped != 1 || !strings.Contains(s.LastSkip.Why, "b00000000") {
			t.Errorf("schedule %+v", s)
		}
		var conflict *control.Error
		if _, err := c.Do(t.Context(), control.ScheduleRequest{Run: "often"}); !errors.As(err, &conflict) ||
			conflict.Code != control.Conflict {
			t.Errorf("run now: %v", err)
		}
		w.mu.Lock()
		w.live = nil
		w.mu.Unlock()
		out, err := c.Do(t.Context(), control.ScheduleRequest{Run: "often"})
		if err != nil || out.Task == nil || out.Task.Schedule != got.Schedules[0].ID {
			t.Errorf("run now: %+v, %v", out, err)
		}
	})
}

// ends is the rest of a host that has nothing to do.
func ends() bool { return true }

// A paused schedule starts nothing and keeps no host; when it is resumed, the times that have passed
// are not made up for.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		c := w.open(t)
		add(t, c, command("six", "0 6 * * *"))
		if c.Retire(ends) {
			t.Fatal("a host with a schedule ended")
		}
		if _, err := c.Do(t.Context(), control.ScheduleRequest{Pause: "six"}); err != nil {
			t.Fatal(err)
		}
		c = w.open(t)
		running(t, c, 6*time.Hour+30*time.Minute)
		got, err := c.Do(t.Context(), control.ScheduleRequest{Resume: "six"})
		if err != nil || got.Changed.Paused || got.Changed.Next.Format("02 15:04") != "02 06:00" {
			t.Fatalf("%+v, %v", got.Changed, err)
		}
		running(t, c, 24*time.Hour)
		if got, want := w.took(), []string{"six 02 06:00"}; !slices.Equal(got, want) {
			t.Errorf("ran %v, want %v", got, want)
		}
		if _, err := c.Do(t.Context(), control.ScheduleRequest{Pause: "six"}); err != nil {
			t.Fatal(err)
		}
		if c.Retire(func() bool { return false }) {
			t.Error("a host with a live task ended")
		}
		add(t, c, command("seven", "0 7 * * *"))
		if _, err := c.Do(t.Context(), control.ScheduleRequest{Remove: "seven"}); err != nil {
			t.Fatal(err)
		}
		var told *control.Error
		if !c.Retire(ends) {
			t.Error("a host with a paused schedule stays")
		} else if _, err := c.Do(t.Context(), control.ScheduleRequest{Resume: "six"}); !errors.As(err, &told) ||
			told.Code != control.Unavailable {
			t.Errorf("a host that is ending resumed a schedule: %v", err)
		}
	})
}

// What cannot be recorded is not started: it would be started again after a crash.
func TestUnwritable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		c := w.open(t)
		add(t, c, command("six", "0 6 * * *"))
		w.broken = errors.New("no space left on device")
		running(t, c, 7*time.Hour)
		if got := w.took(); len(got) != 0 || len(w.told) == 0 {
			t.Errorf("ran %v, told %q", got, w.told)
		}
		if _, err := c.Do(t.Context(), command("other", "@daily")); err == nil {
			t.Error("a schedule that could not be stored was added")
		}
	})
}

func TestRefused(t *testing.T) {
	w := &world{}
	c := w.open(t)
	bad := func(change func(*control.Schedule)) control.ScheduleRequest {
		r := command("x", "0 6 * * *")
		change(r.Add)
		return r
	}
	for name, r := range map[string]control.ScheduleRequest{
		"line":    bad(func(s *control.Schedule) { s.Cron = "at six" }),
		"never":   bad(func(s *control.Schedule) { s.Cron = "0 6 30 2 *" }),
		"often":   bad(func(s *control.Schedule) { s.Cron = "@every 1s" }),
		"zone":    bad(func(s *control.Schedule) { s.Zone = "Mars/Base" }),
		"inside":  bad(func(s *control.Schedule) { s.Cron = "TZ=UTC 0 6 * * *" }),
		"nothing": bad(func(s *control.Schedule) { s.Shell = nil }),
		"retries": bad(func(s *control.Schedule) { s.Shell.Retries = 1000 }),
		"folder":  bad(func(s *control.Schedule) { s.Cwd = "src" }),
		"unknown": {Remove: "nobody"},
	} {
		var told *control.Error
		if _, err := c.Do(t.Context(), r); !errors.As(err, &told) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range control.MaxSchedules {
		add(t, c, command(fmt.Sprint(i), "@daily"))
	}
	if _, err := c.Do(t.Context(), command("one more", "@daily")); err == nil {
		t.Error("there is no limit")
	}
	if _, err := c.Do(t.Context(), control.ScheduleRequest{Remove: "7"}); err != nil {
		t.Error(err)
	}
	add(t, c, command("7", "@daily"))
	if _, err := c.Do(t.Context(), control.ScheduleRequest{Remove: "8"}); err != nil {
		t.Error(err)
	}
	if _, err := c.Do(t.Context(), command("7", "@daily")); err == nil {
		t.Error("two have one name")
	}
}

// A night with 23 or 25 hours has one six o'clock and one half past two; each of its hours has a
// beginning.
func TestSummerTime(t *testing.T) {
	for _, c := range []struct {
		cron, from string
		want       []string
		zone       string
	}{
		{"30 2 * * *", "2026-03-28 12:00", []string{"03-29 03:30 +0200", "03-30 02:30 +0200"}, ""},
		{"30 2 * * *", "2026-10-24 12:00", []string{"10-25 02:30 +0200", "10-26 02:30 +0100"}, ""},
		{"0 6 * * *", "2026-03-28 12:00", []string{"03-29 06:00 +0200", "03-30 06:00 +0200"}, ""},
		{"0 * * * *", "2026-10-25 01:30", []string{"10-25 02:00 +0200", "10-25 02:00 +0100", "10-25 03:00 +0100"}, ""},
		{"0 * * * *", "2026-03-29 01:30", []string{"03-29 03:00 +0200", "03-29 04:00 +0200"}, ""},
		{"30 2 * * *", "2026-03-07 12:00", []string{"03-08 03:30 -0400", "03-09 02:30 -0400"}, "America/New_York"},
		{"30 1 * * *", "2026-10-31 12:00", []string{"11-01 01:30 -0400", "11-02 01:30 -0500"}, "America/New_York"},
		{"15 2 * * *", "2026-10-03 12:00", []string{"10-04 02:45 +1100", "10-05 02:15 +1100"}, "Australia/Lord_Howe"},
		{"45 1 * * *", "2026-04-04 12:00", []string{"04-05 01:45 +1100", "04-06 01:45 +1030"}, "Australia/Lord_Howe"},
	} {
		s, err := parse(c.cron, cmp.Or(c.zone, "Europe/Berlin"))
		if err != nil {
			t.Skip(err) // the machine has no time zones
		}
		at, err := time.ParseInLocation("2006-01-02 15:04", c.from, s.zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			at = s.after(at)
			if got := at.In(s.zone).Format("01-02 15:04 -0700"); got != want {
				t.Errorf("%s from %s: %s, want %s", c.cron, c.from, got, want)
			}
		}
	}
}

// A line that is accepted has a next time behind every moment.
func FuzzLine(f *testing.F) {
	for _, line := range []string{"0 6 * * 1-5", "*/7 3,4 1 JAN-DEC *", "@every 90m", "@monthly", "59 23 29 2 *", "0 0 31 * ?"} {
		f.Add(line, int64(1_774_746_000))
	}
	f.Fuzz(func(t *testing.T, line string, unix int64) {
		s, err := parse(line, "Europe/Berlin")
		if err != nil {
			return
		}
		from := time.Unix(unix%(1<<33), 0)
		if next := s.after(from); !next.After(from) {
			t.Errorf("%q from %s: %s", line, from.UTC(), next)
		}
	})
}

func TestFind(t *testing.T) {
	c := &Clock{all: []control.Schedule{{ID: "sch_7a", Name: "one"}, {ID: "sch_7b", Name: "two"}, {ID: "sch_c", Name: "7"}}}
	for ref, want := range map[string]int{"7": 2, "sch_7b": 1, "7a": 0, "c": 2, "one": 0} {
		if i, err := c.find(ref); i != want || err != nil {
			t.Errorf("%s: %d, %v", ref, i, err)
		}
	}
	for _, ref := range []string{"sch_7", "8"} {
		if _, err := c.find(ref); err == nil {
			t.Errorf("%s is found", ref)
		}
	}
}

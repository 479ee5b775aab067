package schedule

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// times are the moments of one schedule.
type times struct {
	spec cron.Schedule
	zone *time.Location
	wall bool // certain hours of the day are named
}

// everyHour is how many hours a schedule has that names none.
const everyHour = 24

// parse reads a cron line of five fields or a word such as @daily, and a name of a time zone.
func parse(line, zone string) (times, error) {
	t := times{zone: time.Local}
	if zone != "" {
		var err error
		if t.zone, err = time.LoadLocation(zone); err != nil {
			return t, fmt.Errorf("time zone %q is not known (use a name such as Europe/Berlin)", zone)
		}
	}
	if strings.Contains(line, "TZ=") {
		return t, fmt.Errorf("cron line %q names a time zone (use --zone)", line)
	}
	spec, err := cron.ParseStandard(line)
	if err != nil {
		return t, fmt.Errorf("cron line %q: %w (write five fields, such as \"0 6 * * *\", or @daily)", line, err)
	}
	switch s := spec.(type) {
	case *cron.SpecSchedule:
		s.Location = time.UTC
		t.wall = bits.OnesCount64(s.Hour&(1<<everyHour-1)) < everyHour
	case cron.ConstantDelaySchedule:
		if s.Delay < time.Minute {
			return t, fmt.Errorf("cron line %q: the shortest interval is a minute", line)
		}
	}
	t.spec = spec
	if t.after(time.Now()).IsZero() {
		return t, fmt.Errorf("cron line %q: there is no such day", line)
	}
	return t, nil
}

// after is the first moment of the schedule after t; zero: none. Where hours are named, a
// time that the change to summer time skips is the same time after it, and a time that comes twice is
// the first. Schedules of every hour go by the clock of the machine.
func (s times) after(t time.Time) time.Time {
	spec, ok := s.spec.(*cron.SpecSchedule)
	if !ok {
		return s.spec.Next(t).UTC()
	}
	if !s.wall {
		real := *spec
		real.Location = s.zone
		return real.Next(t.In(s.zone)).UTC()
	}
	// What clocks on the wall show is computed as if they were never changed.
	naive := s.shown(t)
	for {
		if naive = spec.Next(naive); naive.IsZero() {
			return time.Time{}
		}
		at := time.Date(naive.Year(), naive.Month(), naive.Day(), naive.Hour(), naive.Minute(), 0, 0, s.zone)
		at = at.Add(max(0, naive.Sub(s.shown(at)))) // the time is skipped, and this one is before it
		for _, back := range []time.Duration{time.Hour, time.Hour / 2} {
			if first := at.Add(-back); s.shown(first).Equal(s.shown(at)) { // clocks are put back in between
				at = first
			}
		}
		if at.After(t) {
			return at.UTC()
		}
	}
}

// shown is what clocks on the wall show at t, as if it were UTC.
func (s times) shown(t time.Time) time.Time {
	l := t.In(s.zone)
	return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), 0, time.UTC)
}

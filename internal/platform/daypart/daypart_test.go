package daypart_test

import (
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/platform/daypart"
)

func TestNext(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	defer func(old *time.Location) { time.Local = old }(time.Local)
	time.Local = zone
	for _, c := range []struct{ part, at, want, rest string }{
		{"", "2026-11-23 03:00", "2026-11-23 03:00", "2026-11-23 03:00"},
		{"22:00-07:00", "2026-11-23 03:00", "2026-11-23 03:00", "2026-11-23 07:00"},
		{"22:00-07:00", "2026-11-23 23:30", "2026-11-23 23:30", "2026-11-24 07:00"},
		{"22:00-07:00", "2026-11-23 12:00", "2026-11-23 22:00", "2026-11-23 12:00"},
		{"08:00-18:00", "2026-11-23 18:00", "2026-11-24 08:00", "2026-11-23 18:00"},
		{"02:30-04:00", "2026-03-28 12:00", "2026-03-29 03:30", "2026-03-28 12:00"}, // 02:30 is skipped that night
	} {
		p, err := daypart.Parse(c.part)
		if err != nil {
			t.Fatal(err)
		}
		at, _ := time.ParseInLocation("2006-01-02 15:04", c.at, zone)
		if got := p.Next(at).In(zone).Format("2006-01-02 15:04"); got != c.want {
			t.Errorf("%s from %s: %s, want %s", c.part, c.at, got, c.want)
		}
		if got := p.Rest().Next(at).In(zone).Format("2006-01-02 15:04"); got != c.rest {
			t.Errorf("outside %s from %s: %s, want %s", c.part, c.at, got, c.rest)
		}
	}
	if _, err := daypart.Parse("night"); err == nil {
		t.Error("a part without times is accepted")
	}
}

package project

import (
	"testing"
	"time"
)

func TestSinceTime(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"36h": now.Add(-36 * time.Hour), "7d": now.AddDate(0, 0, -7), "2w": now.AddDate(0, 0, -14), "90m": now.Add(-90 * time.Minute),
		"2026-11-01": time.Date(2026, 11, 1, 0, 0, 0, 0, time.Local), "2026-11-01T10:00:00Z": time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC),
	} {
		if got, err := sinceTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"0d", "-1d", "-5m", "0s", "d", "99999d", "tomorrow", "2026-13-01", "1.5d", ""} {
		if got, err := sinceTime(text, now); err == nil {
			t.Errorf("%q was taken for %v", text, got)
		}
	}
}

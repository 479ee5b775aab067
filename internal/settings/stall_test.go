package settings

import (
	"testing"
	"time"
)

// A command is looked at after 45 s where nothing is set, and where what is set is no
// time.
func TestStallAfter(t *testing.T) {
	for file, want := range map[string]time.Duration{
		`{}`:                                45 * time.Second,
		`{"tasks":{"stallAfter":"soon"}}`:   45 * time.Second,
		`{"tasks":{"stallAfter":"90s"}}`:    90 * time.Second,
		`{"tasks":{"outputLength":200}}`:    45 * time.Second,
		`{"tasks":{"stallAfter":"1m0.5s"}}`: time.Minute + 500*time.Millisecond,
	} {
		s, _, err := Load(Sources{User: write(t, file)})
		if got := s.Tasks.Stall(); err != nil || got != want {
			t.Errorf("%s: %s, %v", file, got, err)
		}
	}
	if got := (Tasks{}).Stall(); got != 45*time.Second {
		t.Errorf("of nothing at all: %s", got)
	}
}

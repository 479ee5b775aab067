package settings

import (
	"testing"
	"time"
)

// A command is looked at after 45 s, and an agent is silent after 5 m, where nothing is
// set, and where what is set is no time.
func TestStallAfter(t *testing.T) {
	for file, want := range map[string]time.Duration{
		`{}`:                                45 * time.Second,
		`{"tasks":{"stallAfter":"soon"}}`:   45 * time.Second,
		`{"tasks":{"stallAfter":"90s"}}`:    90 * time.Second,
		`{"tasks":{"outputLength":200}}`:    45 * time.Second,
		`{"tasks":{"stallAfter":"1m0.5s"}}`: time.Minute + 500*time.Millisecond,
	} {
		s, _, err := Load(Sources{User: write(t, file)})
		if got := s.Tasks.StallAfter; err != nil || got != want {
			t.Errorf("%s: %s, %v", file, got, err)
		}
	}
	for set, want := range map[string]time.Duration{`{}`: 5 * time.Minute,
		`{"agents":{"stallAfter":"soon"}}`: 5 * time.Minute,
		`{"agents":{"stallAfter":"90s"}}`:  90 * time.Second, `{"agents":{"stallAfter":"0"}}`: 0,
		`{"agents":{"stallAfter":"off"}}`: 0} {
		s, _, err := Load(Sources{User: write(t, set)})
		if got := s.Agents.StallAfter; err != nil || got != want {
			t.Errorf("%s: %s, %v", set, got, err)
		}
	}
}

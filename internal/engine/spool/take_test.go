package spool

import (
	"os"
	"strings"
	"testing"
)

// Where all outputs together may take no more, what comes is dropped, counted, and
// said once.
func TestTake(t *testing.T) {
	left := int64(10)
	f := open(t, Options{Limit: 1000, Take: func(n int64) int64 {
		n = min(n, left)
		left -= n
		return n
	}})
	for _, part := range []string{"12345678", "9€0", "more"} {
		if n, err := f.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	data, err := os.ReadFile(f.Path())
	if err != nil || !strings.HasPrefix(string(data), "123456789\n[The outputs of all sessions together") || strings.Count(string(data), "dropped") != 1 {
		t.Errorf("%q, %v", data, err)
	}
	if f.Dropped() != int64(len("€0more")) {
		t.Errorf("dropped %d", f.Dropped())
	}
}

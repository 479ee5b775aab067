package spelling

import (
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	long := strings.Repeat("x", longest+1)
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "ab", 2}, {"allow", "allow", 0}, {"alow", "allow", 1}, {"allwo", "allow", 2},
		{"kitten", "sitting", 3}, {long, "", longest + 1}, {long, long, longest + 1},
	} {
		if got, back := Distance(c.a, c.b), Distance(c.b, c.a); got != c.want || back != c.want {
			t.Errorf("%.20q and %.20q: %d and %d, want %d", c.a, c.b, got, back, c.want)
		}
	}
}

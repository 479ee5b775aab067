package budget

import (
	"testing"
	"time"
)

// A limit of time is warned of when 80 % of it are used, with what is left.
func TestNearlyUp(t *testing.T) {
	for _, c := range []struct {
		used time.Duration
		want string
	}{
		{79 * time.Second, ""}, {81 * time.Second, "- 1m21s of the 1m40s that you may work are used: 19s left"}, {2 * time.Minute, "- 2m0s of the 1m40s that you may work are used: 0s left"},
	} {
		got := nearlyUp("a1", "you", c.used, 100*time.Second)
		if (len(got) == 1) != (c.want != "") || c.want != "" && got[0].Line != c.want {
			t.Errorf("after %s: %v", c.used, got)
		}
	}
}

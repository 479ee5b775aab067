package control

import (
	"slices"
	"testing"
)

func TestAppendCapped(t *testing.T) {
	for _, n := range []int{0, 1, 49, 50, 51, 200} {
		list := make([]int, n, n+10)
		for i := range list {
			list[i] = i
		}
		before := slices.Clone(list)
		got := AppendCapped(list, n)
		if want := min(n+1, MaxMessages); len(got) != want || got[len(got)-1] != n || got[0] != n+1-want {
			t.Errorf("%d items and one: %d of them, from %d to %d", n, len(got), got[0], got[len(got)-1])
		}
		got[0] = -1
		if !slices.Equal(list, before) || n > 0 && &list[:n+1][n] == &got[len(got)-1] {
			t.Errorf("the list of %d was changed", n)
		}
	}
	if got := AppendCapped(nil, "x"); !slices.Equal(got, []string{"x"}) {
		t.Errorf("of none: %q", got)
	}
}

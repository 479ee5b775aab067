package placement

import (
	"maps"
	"testing"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
)

func TestChoose(t *testing.T) {
	worker := func(name string, capacity int, also func(*fleetwire.Worker)) fleetwire.Worker {
		w := fleetwire.Worker{Name: name, Capacity: capacity, Oldest: fleetwire.Oldest, Newest: fleetwire.Version, Labels: []string{"linux"}}
		if also != nil {
			also(&w)
		}
		return w
	}
	has := func(w *fleetwire.Worker) { w.Repos = []string{"other", "repo"} }
	for name, c := range map[string]struct {
		all      []fleetwire.Worker
		busy     map[string]int
		on, repo string
		want     string
	}{
		"nobody":          {on: Auto},
		"no choice":       {all: []fleetwire.Worker{worker("a", 2, nil)}, on: Auto},
		"the emptier":     {all: []fleetwire.Worker{worker("a", 2, nil), worker("b", 2, nil)}, busy: map[string]int{"a": 1}, on: Auto, want: "b"},
		"smaller part":    {all: []fleetwire.Worker{worker("a", 2, nil), worker("b", 8, nil)}, busy: map[string]int{"a": 1, "b": 2}, on: Auto, want: "b"},
		"more places":     {all: []fleetwire.Worker{worker("a", 2, nil), worker("b", 8, nil)}, on: Auto, want: "b"},
		"has it":          {all: []fleetwire.Worker{worker("a", 2, nil), worker("b", 8, has)}, busy: map[string]int{"b": 7}, on: Auto, repo: "repo", want: "b"},
		"nothing travels": {all: []fleetwire.Worker{worker("a", 2, nil), worker("b", 8, has)}, busy: map[string]int{"b": 7}, on: Auto, want: "a"},
		"full":            {all: []fleetwire.Worker{worker("a", 2, nil), worker("b", 1, has), worker("c", 2, nil)}, busy: map[string]int{"b": 1, "a": 1}, on: Auto, repo: "repo", want: "c"},
		"all but one":     {all: []fleetwire.Worker{worker("a", 2, nil), worker("b", 1, nil)}, busy: map[string]int{"b": 1}, on: Auto},
		"a label": {all: []fleetwire.Worker{worker("a", 9, func(w *fleetwire.Worker) { w.Labels = nil }), worker("b", 1, nil), worker("c", 2, nil)},
			on: "linux", want: "c"},
		"drains": {all: []fleetwire.Worker{worker("a", 9, func(w *fleetwire.Worker) { w.Draining = true }), worker("b", 1, nil), worker("c", 2, nil)},
			on: Auto, want: "c"},
		"too new": {all: []fleetwire.Worker{worker("a", 9, func(w *fleetwire.Worker) { w.Oldest, w.Newest = 99, 99 }), worker("b", 1, nil), worker("c", 2, nil)},
			on: Auto, want: "c"},
		"its name is a label": {all: []fleetwire.Worker{worker("linux", 9, nil), worker("b", 1, nil), worker("c", 2, nil)}, on: Auto, want: "c"},
	} {
		t.Run(name, func(t *testing.T) {
			busy := func(w fleetwire.Worker) int { return c.busy[w.Name] }
			if got := choose(c.all, busy, c.on, c.repo); got != c.want {
				t.Errorf("chose %q, want %q", got, c.want)
			}
		})
	}
}

// Tasks that come at once are spread before any worker has told what it has got.
func TestChooseSpreads(t *testing.T) {
	all := []fleetwire.Worker{
		{Name: "a", Capacity: 2, Oldest: fleetwire.Oldest, Newest: fleetwire.Version},
		{Name: "b", Capacity: 2, Oldest: fleetwire.Oldest, Newest: fleetwire.Version},
	}
	got := map[string]int{}
	for range 3 {
		got[choose(all, func(w fleetwire.Worker) int { return got[w.Name] }, Auto, "")]++
	}
	if want := map[string]int{"a": 2, "b": 1}; !maps.Equal(got, want) {
		t.Errorf("three tasks went to %v, want %v", got, want)
	}
}

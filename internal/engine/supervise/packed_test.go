package supervise

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/task"
)

func anyEnded(t *rapid.T, n int) Ended {
	word := rapid.SampledFrom([]string{"", "a", "b\x00", "wörter", strings.Repeat("x", 300)})
	g := Ended{ID: task.ID(fmt.Sprintf("b%08d", n)), Born: task.Seq(7 * n), Name: word.Draw(t, "name"), Parent: task.ID(word.Draw(t, "parent")), Key: word.Draw(t, "key"),
		Pool: word.Draw(t, "pool"), Kind: task.Kind(word.Draw(t, "kind")), AgentType: word.Draw(t, "type"), Runs: rapid.IntRange(0, 1000).Draw(t, "runs"),
		OutputBytes: rapid.Int64().Draw(t, "output")}
	g.Root = rapid.SampledFrom([]task.ID{g.ID, "s00000000"}).Draw(t, "root")
	g.Budget = task.Budget{USD: rapid.Float64Range(0, 1e9).Draw(t, "dollars"), Tokens: rapid.Int64Min(0).Draw(t, "tokens"), OutputBytes: rapid.Int64Min(0).Draw(t, "bytes")}
	if g.Name != "" { // names are given once
		g.Name += fmt.Sprint(n)
	}
	return g
}

// What is kept of a task is found as it was taken in last: by its ID, its name, and the key that its
// parent knows it by; and all are in order. What was seen before stays where it was.
func TestPacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, model := newPacked(), map[task.ID]Ended{}
		var before []Ended
		var pages pages
		var order []place
		for range rapid.IntRange(0, 12).Draw(t, "times") {
			var fresh []place
			for range rapid.IntRange(0, 40).Draw(t, "tasks") {
				g := anyEnded(t, rapid.IntRange(1, 200).Draw(t, "n"))
				if slices.ContainsFunc(fresh, func(at place) bool { return p.pages.id(at) == g.ID }) {
					continue
				}
				at, known := p.add(&g)
				if _, there := model[g.ID]; there != known {
					t.Fatalf("%s was known: %v", g.ID, known)
				}
				if again, known := p.add(&g); again != at || !known {
					t.Fatalf("%s, as it was, is taken in again", g.ID)
				}
				model[g.ID] = g
				fresh = append(fresh, at)
			}
			p.sortIn(fresh)
			if got := all(pages, order); !slices.Equal(got, before) {
				t.Fatalf("what was seen before has changed: %+v, not %+v", got, before)
			}
			pages, order = p.pages, p.order
			before = all(pages, order)
			want := make([]Ended, 0, len(model))
			for _, g := range model {
				want = append(want, g)
			}
			slices.SortFunc(want, func(a, b Ended) int { return cmp.Compare(a.Born, b.Born) })
			if !slices.Equal(before, want) {
				t.Fatalf("in order: %+v, not %+v", before, want)
			}
			for n := range 210 {
				id := task.ID(fmt.Sprintf("b%08d", n))
				g, there := model[id]
				if at, ok := p.id(id); ok != there || ok && p.pages.get(at) != g {
					t.Fatalf("by ID: %v, and %v is there", ok, there)
				}
				if at, ok := p.name(g.Name); ok != (g.Name != "") || ok && p.pages.get(at) != g {
					t.Fatalf("by name %q: %v", g.Name, ok)
				}
				if at, ok := p.key(childKey{g.Parent, g.Key}); ok != (g.Key != "") || ok && (p.pages.get(at).Parent != g.Parent || p.pages.get(at).Key != g.Key) {
					t.Fatalf("by key %q of %s: %v", g.Key, g.Parent, ok)
				}
			}
		}
	})
}

func all(pages pages, order []place) (out []Ended) {
	for _, at := range order {
		out = append(out, pages.get(at))
	}
	return out
}

// A task that is longer than a page has one of its own, and those around it are whole.
func TestPackedLong(t *testing.T) {
	p := newPacked()
	var want []Ended
	var fresh []place
	for n := range 2000 {
		g := Ended{ID: task.ID(fmt.Sprint("b", n)), Born: task.Seq(n + 1), Root: "r", Runs: 1}
		if n%500 == 7 {
			g.Key = strings.Repeat(fmt.Sprint(n), pageBytes)
		}
		at, _ := p.add(&g)
		want, fresh = append(want, g), append(fresh, at)
	}
	p.sortIn(fresh)
	if got := all(p.pages, p.order); !slices.Equal(got, want) {
		t.Error("they are not as they were")
	}
}

// What a task costs that has left the memory.
func TestPackedSize(t *testing.T) {
	const tasks = 100_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	p := newPacked()
	func() {
		fresh := make([]place, tasks)
		for n := range fresh {
			fresh[n], _ = p.add(&Ended{ID: task.ID(fmt.Sprintf("b%08d", n)), Born: task.Seq(3 * n), Parent: "s00000000", Root: "s00000000", Pool: "shell", Kind: task.LocalBash, Runs: 1, OutputBytes: 5000})
		}
		p.sortIn(fresh)
	}()
	if each := float64(heap()-before) / tasks; each > 100 {
		t.Errorf("a task takes %.0f bytes", each)
	}
	runtime.KeepAlive(&p)
}

func FuzzReadEnded(f *testing.F) {
	g := Ended{ID: "b00000001", Born: 5, Name: "n", Parent: "s00000000", Key: "k", Root: "s00000000", Pool: "p", Runs: 2, Kind: task.LocalBash, Budget: task.Budget{USD: 1}}
	f.Add(g.Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		g, rest, ok := ReadEnded(b)
		if !ok {
			return
		}
		again, none, ok := ReadEnded(g.Append(nil))
		if !ok || len(none) > 0 || len(rest) >= len(b) || again != g && !math.IsNaN(g.Budget.USD) {
			t.Errorf("%+v is written and read as %+v, %v, %d bytes behind it", g, again, ok, len(none))
		}
	})
}

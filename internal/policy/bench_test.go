package policy

import (
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// BenchmarkDecide decides the whole corpus over and over, with gates that are
// made beforehand, as in a session.
func BenchmarkDecide(b *testing.B) {
	places, memory := map[string]string{}, NewMemory()
	type pair struct {
		g    *Gate
		line string
	}
	var pairs []pair
	for _, r := range corpus(b) {
		if _, ok := places[r.fixture]; !ok {
			places[r.fixture] = workspace(b, r.fixture)
		}
		r.rules.Cwd, r.rules.Memory = places[r.fixture], memory
		r.rules.Home = filepath.Join(filepath.Dir(r.rules.Cwd), "home")
		pairs = append(pairs, pair{gate(b, r.rules), r.command})
	}
	for _, p := range pairs {
		p.g.Decide(bash(p.line))
	}
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		p := pairs[len(took)%len(pairs)]
		call := bash(p.line)
		from := time.Now()
		p.g.Decide(call)
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(len(took))/b.Elapsed().Seconds(), "decisions/s")
}

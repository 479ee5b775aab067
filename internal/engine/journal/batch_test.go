package journal

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// A batch is many events, each with its own answer, beside whoever else writes.
func TestAppendAll(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "s.db")
	j := open(t, path, Options{})
	end := func(n int) lifecycle.Entry {
		r := record(n)
		return lifecycle.Entry{Verb: task.Complete, Task: r, Notification: &lifecycle.Notification{Run: r.Run}}
	}
	add(t, j, end(700))
	const size = 3*maxBatch + 10
	var others sync.WaitGroup
	for w := range 4 {
		others.Go(func() {
			for i := range 50 {
				if _, err := j.Append(ctx, lifecycle.Entry{Verb: task.Create, Task: record(5000 + 100*w + i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	batch := make([]lifecycle.Entry, size)
	for i := range batch {
		batch[i] = end(i) // the one with number 700 has ended already
	}
	seqs, errs := j.AppendAll(ctx, batch)
	others.Wait()
	last := task.Seq(1)
	for i, seq := range seqs {
		switch {
		case (i == 700) != (errs[i] != nil):
			t.Errorf("event %d: %v", i, errs[i])
		case i != 700 && seq <= last:
			t.Errorf("event %d has number %d after %d", i, seq, last)
		case i != 700:
			last = seq
		}
	}
	if want := task.Seq(size + 200); j.Last() != want {
		t.Errorf("last %d, want %d", j.Last(), want)
	}
	if seqs, errs := j.AppendAll(ctx, nil); len(seqs) != 0 || len(errs) != 0 {
		t.Errorf("nothing was appended as %v, %v", seqs, errs)
	}
	why := errors.New("enough")
	ended, cancel := context.WithCancelCause(ctx)
	cancel(why)
	if _, errs := j.AppendAll(ended, batch[:2]); !errors.Is(errs[0], why) || !errors.Is(errs[1], why) {
		t.Errorf("with a context that has ended: %v", errs)
	}
	if want := task.Seq(size + 200); j.Last() != want {
		t.Errorf("refused, and last is %d", j.Last())
	}
}

// BenchmarkBatch is what recording one task of 2,000 costs.
func BenchmarkBatch(b *testing.B) {
	j := open(b, filepath.Join(b.TempDir(), "s.db"), Options{})
	n := 0
	for b.Loop() {
		batch := make([]lifecycle.Entry, 2000)
		for i := range batch {
			n++
			batch[i] = lifecycle.Entry{Verb: task.Create, Task: record(n)}
		}
		for _, err := range second(j.AppendAll(context.Background(), batch)) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/task")
}

func second[A, B any](_ A, b B) B { return b }

package supervise

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// bornLog has first events of tasks looked at before anybody hears that they are durable.
type bornLog struct {
	memLog
	seen func([]lifecycle.Entry) error
}

func (l *bornLog) AppendAll(ctx context.Context, entries []lifecycle.Entry) ([]task.Seq, []error) {
	silent := slices.Clone(entries)
	for i := range silent {
		silent[i].Committed = nil
	}
	seqs, errs := each(ctx, silent, l.Append)
	errs[0] = l.seen(entries)
	for i, e := range entries {
		if errs[i] == nil {
			e.Committed(seqs[i])
		}
	}
	return seqs, errs
}

// What the next host is told of names a task also while its first event is being written:
// the log may have it already.
func TestEndedNamesTheNewborn(t *testing.T) {
	log := &bornLog{}
	s := New(Config{Session: "s00000000", Log: log})
	defer s.Close()
	log.seen = func(entries []lifecycle.Entry) error {
		if _, live := s.Ended(); !slices.Contains(live, entries[0].Task.ID) {
			t.Errorf("%s is in the log, and not among those that live: %v", entries[0].Task.ID, live)
		}
		return nil
	}
	r := start(t, s, work(until), task.Spec{})
	if _, live := s.Ended(); !slices.Equal(live, []task.ID{r.ID}) {
		t.Errorf("later: %v", live)
	}
}

// A second start by a key waits for the first event of the first, and fails with it.
func TestSecondStartByKey(t *testing.T) {
	full := errors.New("disk full")
	for name, fault := range map[string]error{"durable": nil, "refused": full} {
		t.Run(name, func(t *testing.T) {
			at, met, gate := make(chan struct{}), make(chan struct{}), make(chan struct{})
			log := &bornLog{seen: func(entries []lifecycle.Entry) error {
				switch entries[0].Task.Name {
				case "first":
					close(at)
					<-gate
					return fault
				case "other": // of the second batch, which knows by now that there is a first
					close(met)
				}
				return nil
			}}
			s := New(Config{Session: "s00000000", Log: log})
			defer s.Close()
			root := start(t, s, work(until), task.Spec{Name: "root"})
			begin := func(specs ...task.Spec) chan []Recorded {
				batch := make([]Starting, len(specs))
				for i, spec := range specs {
					spec.Parent = root.ID
					batch[i] = Starting{work(until), spec}
				}
				done := make(chan []Recorded, 1)
				go func() {
					got := s.RecordAll(t.Context(), batch)
					for _, r := range got {
						if r.Err == nil {
							r.Begin()
						}
					}
					done <- got
				}()
				return done
			}
			one := begin(task.Spec{Name: "first", Key: "k"})
			<-at
			two := begin(task.Spec{Name: "second", Key: "k"}, task.Spec{Name: "other"})
			<-met
			close(gate)
			first, second := (<-one)[0], (<-two)[0]
			if !errors.Is(first.Err, fault) {
				t.Fatal(first.Err)
			}
			if fault == nil && (second.Err != nil || second.Task.ID != first.Task.ID) {
				t.Errorf("the second start: %+v, want %s", second, first.Task.ID)
			}
			if fault != nil && (second.Err == nil || second.Begin != nil || !strings.Contains(second.Err.Error(), `"k"`)) {
				t.Errorf("the second start of what never was: %+v", second)
			}
		})
	}
}

// Two starts by one key in a batch are one task, or none.
func TestSameKeyInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fault error
		s := New(Config{Session: "s00000000", Log: &bornLog{seen: func([]lifecycle.Entry) error { return fault }}})
		defer s.Close()
		root := start(t, s, work(until), task.Spec{})
		batch := []Starting{{work(until), task.Spec{Parent: root.ID, Key: "k"}}, {work(until), task.Spec{Parent: root.ID, Key: "k"}}}
		fault = errors.New("disk full")
		for i, r := range s.RecordAll(t.Context(), batch) {
			if r.Err == nil || r.Begin != nil {
				t.Errorf("answer %d over a full disk: %+v", i, r)
			}
		}
		fault = nil
		got := s.RecordAll(t.Context(), batch)
		for i, r := range got {
			if r.Err != nil || r.Task.ID != got[0].Task.ID {
				t.Fatalf("answer %d: %+v, the first is %s", i, r, got[0].Task.ID)
			}
			r.Begin()
		}
		synctest.Wait()
		if live, _ := s.Live(); live != 2 {
			t.Errorf("%d tasks, want the root and one child", live)
		}
	})
}

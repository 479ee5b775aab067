package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/drover-dev/drover/task"
)

// picky refuses input that is not for it.
type picky struct{ work }

var errPicky = errors.New("not this")

func (picky) Check(input json.RawMessage) error {
	if string(input) == "bad" {
		return errPicky
	}
	return nil
}

// Of a batch each task is answered for itself; those that were refused leave
// nothing behind, and the others are listed in their order.
func TestRecordAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("disk full")
		log := &memLog{fail: func(n int) error {
			if n == 3 {
				return full
			}
			return nil
		}}
		s := New(Config{Log: log, Pools: map[string]Pool{"p": {Size: 9, PerRoot: 3}}})
		defer s.Close()
		d := picky{instant}
		spec := func(name, input string) Starting {
			return Starting{d, task.Spec{Name: name, Owner: "s00000000", Pool: "p", Input: json.RawMessage(input)}}
		}
		got := s.RecordAll(t.Context(), []Starting{spec("a", ""), spec("bad", "bad"), spec("b", ""), spec("c", ""), spec("many", "")})
		var limit *LimitError
		for i, want := range []func(error) bool{nil, func(err error) bool { return errors.Is(err, errPicky) }, nil,
			func(err error) bool { return errors.Is(err, full) }, func(err error) bool { return errors.As(err, &limit) }} {
			r := got[i]
			if want == nil && (r.Err != nil || r.Begin == nil || r.Task.Status != task.Pending) || want != nil && (!want(r.Err) || r.Begin != nil) {
				t.Errorf("answer %d: %+v", i, r)
			}
		}
		if _, err := s.Find("c"); !errors.Is(err, ErrUnknown) {
			t.Errorf("a task that could not be recorded: %v", err)
		}
		var names []string
		for _, r := range s.List(0) {
			names = append(names, r.Name)
		}
		if !slices.Equal(names, []string{"b", "a"}) {
			t.Errorf("listed: %v", names)
		}
		for _, r := range got {
			if r.Begin != nil {
				r.Begin()
			}
		}
		recs, err := s.Wait(t.Context(), []task.ID{got[0].Task.ID, got[2].Task.ID}, false)
		if err != nil || recs[0].Status != task.Completed || recs[1].Status != task.Completed {
			t.Errorf("%+v, %v", recs, err)
		}
		if again := s.RecordAll(t.Context(), []Starting{spec("d", "")})[0]; again.Err != nil { // the failed one gave its place back
			t.Error(again.Err)
		} else {
			again.Begin()
		}
		if len(s.RecordAll(t.Context(), nil)) != 0 {
			t.Error("nothing was recorded as something")
		}
	})
}

// A batch is no longer than the line in front of its pool: what fits is taken in,
// and each of the others is refused by name. Those that are recorded and have not
// begun stand in the line already, for further runs too; one that could not be
// recorded does not.
func TestBatchLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("disk full")
		log := &memLog{fail: func(n int) error {
			if n == 4 {
				return full
			}
			return nil
		}}
		s := New(Config{Log: log, Pools: map[string]Pool{"p": {Size: 2, Queue: 3}}})
		defer s.Close()
		ended := start(t, s, work(instant), task.Spec{Pool: "p"})
		if _, err := s.Wait(t.Context(), []task.ID{ended.ID}, false); err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		held := work(func(context.Context, task.Host) (task.Result, error) {
			<-gate
			return task.Result{}, nil
		})
		batch := slices.Repeat([]Starting{{held, task.Spec{Pool: "p"}}}, 9)
		var ids []task.ID
		var begins []func()
		for i, r := range s.RecordAll(t.Context(), batch) {
			limit, _ := refusedBy(r.Err)
			switch {
			case r.Err == nil:
				ids, begins = append(ids, r.Task.ID), append(begins, r.Begin)
			case errors.Is(r.Err, full):
			case i < 5 || limit != "queue":
				t.Errorf("answer %d: %v", i, r.Err)
			}
		}
		if len(ids) != 4 {
			t.Fatalf("%d were taken in, want the five for whom there is room but the one that could not be recorded", len(ids))
		}
		last := s.RecordAll(t.Context(), batch[:2])
		if last[0].Err != nil {
			t.Fatalf("the place of the one that could not be recorded: %v", last[0].Err)
		}
		if limit, _ := refusedBy(last[1].Err); limit != "queue" {
			t.Errorf("a start while the batch has not begun: %v", last[1].Err)
		}
		if _, err := s.Resume(t.Context(), ended.ID, held, task.Spec{Pool: "p"}); err == nil {
			t.Error("a further run while the batch has not begun was taken in")
		}
		for _, begin := range append(begins, last[0].Begin) {
			begin()
		}
		synctest.Wait()
		if _, err := s.Start(t.Context(), held, task.Spec{Pool: "p"}); err == nil {
			t.Error("one more than the line holds was taken in")
		}
		close(gate)
		if _, err := s.Wait(t.Context(), append(ids, last[0].Task.ID), false); err != nil {
			t.Fatal(err)
		}
		again := s.RecordAll(t.Context(), batch)
		for i, r := range again {
			if (r.Err == nil) != (i < 5) {
				t.Errorf("answer %d, when all have ended: %v", i, r.Err)
			}
			if r.Begin != nil {
				r.Begin()
			}
		}
	})
}

// The thousandth task of one name gets its number without a look at all below it; a
// number that has come free is given again.
func TestManyOfOneName(t *testing.T) {
	s := New(Config{Log: &memLog{}})
	defer s.Close()
	const many = 1000
	for i, r := range s.RecordAll(t.Context(), slices.Repeat([]Starting{{work(instant), task.Spec{Name: "build"}}}, many)) {
		want := "build"
		if i > 0 {
			want = fmt.Sprintf("build-%d", i+1)
		}
		if r.Err != nil || r.Task.Name != want {
			t.Fatalf("task %d is %q, %v, want %q", i, r.Task.Name, r.Err, want)
		}
		defer r.Begin()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := testing.AllocsPerRun(10, func() { s.uniqueName("build") }); got > 100 {
		t.Errorf("%v allocations for one name", got)
	}
	delete(s.names, task.NameKey("build-2"))
	if got := s.uniqueName("build"); got != "build-2" {
		t.Errorf("the name that has come free is not given, but %q", got)
	}
}

type commandWork struct{ work }

func (commandWork) Kind() task.Kind { return task.LocalBash }

// An agent has no name of another speaker; the name of a command is only a word.
func TestNamesOfAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Log: &memLog{}})
		defer s.Close()
		for _, c := range []struct {
			d          task.Driver
			name, want string
		}{
			{work(instant), "user", "agent-user"}, {work(instant), "User", "agent-User-2"}, {work(instant), "ada", "ada"},
			{work(instant), "A-da", "A-da-2"}, {commandWork{instant}, "user", "user"}, {commandWork{instant}, "ADA", "ADA-3"}, {work(instant), "", ""},
		} {
			r := s.RecordAll(t.Context(), []Starting{{c.d, task.Spec{Name: c.name}}})[0]
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			defer r.Begin()
			if r.Task.Name != c.want || (r.Task.Renamed() != "") != (c.name != c.want) {
				t.Errorf("%q is called %q (%s), want %q", c.name, r.Task.Name, r.Task.Renamed(), c.want)
			}
		}
		if r, err := s.Find("ada"); err != nil || r.Name != "ada" {
			t.Errorf("found %q: %v", r.Name, err)
		}
	})
}

package supervise

import (
	"encoding/json"
	"errors"
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

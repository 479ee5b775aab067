package supervise

import (
	"context"
	"encoding/json"
	"runtime"
	"testing"
	"weak"

	"github.com/drover-dev/drover/task"
)

// settling is work with something to hold on to: itself, by its result too.
type settling struct{ weight [1 << 10]byte }

func (*settling) Kind() task.Kind             { return task.LocalBash }
func (*settling) Check(json.RawMessage) error { return nil }
func (d *settling) settle()                   { d.weight[0]++ }
func (d *settling) Run(context.Context, task.Host) (task.Result, error) {
	return task.Result{Settle: d.settle}, nil
}

// An ended task that is held for who asks about it holds nothing of what has run it:
// there may be thousands.
func TestEndedLetsGo(t *testing.T) {
	s := New(Config{Log: &memLog{}})
	d := new(settling)
	ran := weak.Make(d)
	id := start(t, s, d, task.Spec{}).ID
	if _, err := s.Wait(t.Context(), []task.ID{id}, false); err != nil {
		t.Fatal(err)
	}
	s.Close() // no goroutine has it on its stack
	runtime.GC()
	if ran.Value() != nil {
		t.Error("the driver is held still")
	}
	if r, ok := s.Get(id); !ok || r.Status != task.Completed {
		t.Errorf("the task: %+v, %t", r, ok)
	}
}

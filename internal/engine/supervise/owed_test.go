package supervise

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

type numbers struct{ n atomic.Int64 }

func (l *numbers) Append(_ context.Context, e lifecycle.Entry) (task.Seq, error) {
	seq := task.Seq(l.n.Add(1))
	e.Committed(seq)
	return seq, nil
}

func (l *numbers) AppendAll(ctx context.Context, entries []lifecycle.Entry) ([]task.Seq, []error) {
	return each(ctx, entries, l.Append)
}

func (*numbers) Post(context.Context, task.Message) (task.Seq, error) { panic("not used") }

type nothing struct{}

func (nothing) Kind() task.Kind             { return task.LocalBash }
func (nothing) Check(json.RawMessage) error { return nil }
func (nothing) Run(context.Context, task.Host) (task.Result, error) {
	return task.Result{}, nil
}

// Whoever sees that nothing runs any more must find the notification where it belongs,
// or he goes away without it.
func TestOwedFirst(t *testing.T) {
	owed := make(chan task.Status, 1)
	var s *Supervisor
	s = New(Config{Log: &numbers{}, Recorded: func(n lifecycle.Notification) {
		r, _ := s.Get(n.Task)
		owed <- r.Status
	}})
	defer s.Close()
	r, err := s.Start(t.Context(), nothing{}, task.Spec{Owner: "s00000001", Backgrounded: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Wait(t.Context(), []task.ID{r.ID}, false); err != nil {
		t.Fatal(err)
	}
	select {
	case status := <-owed:
		if status != task.Running {
			t.Errorf("the notification came when the task was to be seen as %s, want before its end", status)
		}
	default:
		t.Error("the task was waited for, and its notification has not come")
	}
}

// A task that is recorded begins when it is told to.
func TestRecord(t *testing.T) {
	s := New(Config{Log: &numbers{}})
	defer s.Close()
	r, begin, err := s.Record(t.Context(), nothing{}, task.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if now, ok := s.Get(r.ID); !ok || now.Status != task.Pending {
		t.Fatalf("after Record it is %s, %v", now.Status, ok)
	}
	begin()
	done, err := s.Wait(t.Context(), []task.ID{r.ID}, false)
	if err != nil || done[0].Status != task.Completed {
		t.Fatalf("after begin it ended as %v, %v", done, err)
	}
}

package upkeep

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tasks are those of a session; stopped is told of what is stopped.
type tasks struct {
	live    []task.Record
	stopped chan supervise.StopRequest
	ids     []task.ID
}

func (s *tasks) List(task.Seq) func(func(task.Seq, task.Record) bool) {
	return func(yield func(task.Seq, task.Record) bool) {
		for i, r := range s.live {
			if !yield(task.Seq(i+1), r) {
				return
			}
		}
	}
}

func (s *tasks) Stop(_ context.Context, ids []task.ID, r supervise.StopRequest) (task.Receipt, error) {
	s.ids = ids
	s.stopped <- r
	return task.Receipt{}, nil
}

// What is lost stops what nobody could end or find any more, and who holds the session
// hears which it was.
func TestLost(t *testing.T) {
	live := []task.Record{
		{ID: "b00000001", Kind: task.LocalBash, Status: task.Running},
		{ID: "b00000002", Kind: task.LocalBash, Status: task.Running, Keep: true},
		{ID: "b00000003", Kind: task.LocalBash, Status: task.Completed},
		{ID: "a00000004", Kind: task.LocalAgent, Status: task.Running},
		{ID: "m00000005", Kind: task.MonitorMCP, Status: task.Running, Process: &task.Process{PID: 1}},
		{ID: "m00000006", Kind: task.MonitorMCP, Status: task.Running},
	}
	for name, c := range map[string]struct {
		lose  func(t *testing.T, place home.Session, keeper chan struct{})
		brief bool
		why   task.Reason
		cause string
		ids   []task.ID
	}{
		"keeper": {func(_ *testing.T, _ home.Session, keeper chan struct{}) { close(keeper) }, true, task.ReasonKeeperLost, "the keeper is gone",
			[]task.ID{"b00000001", "m00000005"}},
		"folder": {func(t *testing.T, place home.Session, _ chan struct{}) {
			if err := os.RemoveAll(place.Dir()); err != nil {
				t.Fatal(err)
			}
		}, false, task.ReasonStateLost, ErrFolderGone.Error(), []task.ID{"b00000001", "b00000002", "a00000004", "m00000005", "m00000006"}},
	} {
		t.Run(name, func(t *testing.T) {
			place := home.At(t.TempDir()).Project(t.TempDir()).Session(task.NewSessionID())
			if err := place.Ensure(); err != nil {
				t.Fatal(err)
			}
			unlock, err := place.Lock()
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			s := &tasks{live: live, stopped: make(chan supervise.StopRequest, 1)}
			keeper, said := make(chan struct{}), make(chan string, 1)
			u := New(place, s, keeper, func(text string) { said <- text })
			u.Start(t.Context(), c.brief)
			defer u.Close()
			c.lose(t, place, keeper)
			late := time.After(30 * time.Second)
			select {
			case <-u.Lost().Done():
			case <-late:
				t.Fatal("the loss was not noticed")
			}
			if r := <-s.stopped; r.Cause.Reason != c.why || r.Cause.Actor != task.ByRuntime || !slices.Equal(s.ids, c.ids) {
				t.Errorf("%v were stopped for %+v, want %v for %s", s.ids, r.Cause, c.ids, c.why)
			}
			if why := context.Cause(u.Lost()); why.Error() != c.cause {
				t.Errorf("the cause is %q", why)
			}
			if name == "folder" && !strings.Contains(<-said, "is gone, and 0 tasks were stopped for that") {
				t.Error("the user was not told")
			}
		})
	}
}

// Nothing of the upkeep runs after Close, and nothing was lost by it.
func TestClose(t *testing.T) {
	place := home.At(t.TempDir()).Project(t.TempDir()).Session(task.NewSessionID())
	if err := place.Ensure(); err != nil {
		t.Fatal(err)
	}
	unlock, err := place.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	s := &tasks{stopped: make(chan supervise.StopRequest, 1)}
	u := New(place, s, make(chan struct{}), func(text string) { t.Error(text) })
	u.Start(t.Context(), false)
	u.Close()
	if why := context.Cause(u.Lost()); !errors.Is(why, context.Canceled) || len(s.stopped) > 0 {
		t.Errorf("lost: %v, %d stops", why, len(s.stopped))
	}
}

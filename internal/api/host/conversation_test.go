package host

import (
	"errors"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
)

// TestConversation has several look for the host of one session at the same moment:
// one of them starts it, and all get it.
func TestConversation(t *testing.T) {
	d := directory(t, "host")
	if err := d.Project().Ensure(); err != nil {
		t.Fatal(err)
	}
	place, err := d.BackgroundSession() // the host of these tests lives there
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		e       Entry
		started bool
		err     error
	}
	const callers = 5
	answers := make(chan answer, callers)
	for range callers {
		go func() {
			other := *d
			e, started, err := other.Conversation(t.Context(), place.ID(), func() ([]string, func() bool, error) { return nil, func() bool { return true }, nil })
			answers <- answer{e, started, err}
		}()
	}
	pids, started := map[int]bool{}, 0
	for range callers {
		a := <-answers
		if a.err != nil {
			t.Error(a.err)
			continue
		}
		if pids[a.e.Info.PID] = true; a.started {
			started++
		}
	}
	if len(pids) != 1 || started != 1 {
		t.Errorf("hosts %v, %d started", pids, started)
	}
	if !Lives(place) {
		t.Error("nobody answers")
	}
	for pid := range pids {
		reap(t, pid)
	}
	if Lives(place) {
		t.Error("a dead host answers")
	}
}

// A host that could not say that it is ready, but has what was prepared for it, was
// started: else a prompt would be given to it twice.
func TestConversationGiven(t *testing.T) {
	for _, given := range []bool{true, false} {
		d := directory(t, "mute")
		if err := d.Project().Ensure(); err != nil {
			t.Fatal(err)
		}
		place, err := d.BackgroundSession()
		if err != nil {
			t.Fatal(err)
		}
		e, started, err := d.Conversation(t.Context(), place.ID(), func() ([]string, func() bool, error) { return nil, func() bool { return !given }, nil })
		if err != nil || started != given {
			t.Errorf("given %v: started %v, %v", given, started, err)
		}
		if err == nil {
			reap(t, e.Info.PID)
		}
	}
}

// What was prepared for a host that does not start is taken back, and the reason
// is told.
func TestConversationRefused(t *testing.T) {
	d := directory(t, "refuse")
	undone := false
	_, _, err := d.Conversation(t.Context(), "s00000001", func() ([]string, func() bool, error) { return nil, func() bool { undone = true; return true }, nil })
	var e *control.Error
	if !errors.As(err, &e) || e.Code != control.Unavailable || !undone {
		t.Errorf("error %v, undone %v", err, undone)
	}
	if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil {
		t.Error(err)
	}
	bad := errors.New("no room")
	if _, _, err := d.Conversation(t.Context(), "s00000001", func() ([]string, func() bool, error) { return nil, nil, bad }); !errors.Is(err, bad) {
		t.Errorf("error %v", err)
	}
}

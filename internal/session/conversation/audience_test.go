package conversation

import (
	"errors"
	"testing"
	"time"
)

func TestAudience(t *testing.T) {
	left := 0
	a := NewAudience(func() { left++ })
	ready := func() bool { return true }
	a.expect(time.Hour)
	if a.Retire(ready) {
		t.Error("retired before the guest came")
	}
	first, err := a.come()
	second, worse := a.come()
	if err != nil || worse != nil {
		t.Fatal(err, worse)
	}
	here, same := a.Now()
	first()
	first() // once is enough
	if !here || same.Err() != nil || left != 0 || a.Retire(ready) {
		t.Errorf("one of two has gone: here %v, %d told", here, left)
	}
	second()
	if same.Err() == nil || left != 1 {
		t.Errorf("the last has gone: %d told", left)
	}
	if here, _ := a.Now(); here {
		t.Error("somebody is left: the guest was counted twice")
	}
	if a.Retire(func() bool { return false }) {
		t.Error("retired although something is left to do")
	}
	if !a.Retire(ready) {
		t.Error("does not retire")
	}
	if _, err := a.come(); !errors.Is(err, errRetired) {
		t.Errorf("somebody came late: %v", err)
	}
}

func TestAudienceGuest(t *testing.T) {
	gone := make(chan struct{})
	a := NewAudience(func() { close(gone) })
	a.expect(time.Nanosecond)
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("a guest who does not come is waited for")
	}
}

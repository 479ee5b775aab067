package main

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// soon waits until something holds.
func (p *place) soon(holds func() bool) {
	p.t.Helper()
	if !within(patience, holds) {
		p.t.Fatal("it does not come")
	}
}

// An agent meets a usage limit of its provider. It is shown as parked, also after its host was
// killed; the next host makes no call before it is woken, and then it ends well.
func TestParking(t *testing.T) {
	p := newPlace(t, build(t))
	var calls atomic.Int64
	var lifted atomic.Bool
	p.serve(func(context.Context, *modeltest.Request) modeltest.Answer {
		calls.Add(1)
		if !lifted.Load() {
			return modeltest.RateLimit("7200")
		}
		return modeltest.Text("found it")
	})
	id := strings.TrimSpace(p.good("agent", "run", "-d", "explore", "look").stdout())
	p.soon(func() bool { return p.inspected(id).Parked != nil })
	if out := p.good("ps").stdout(); !strings.Contains(out, "parked until ") {
		t.Errorf("ps says: %s", out)
	}
	if out := p.good("attention").stdout(); !strings.Contains(out, "parked") || !strings.Contains(out, "429") {
		t.Errorf("attention says: %s", out)
	}
	was := p.inspected(id)
	p.killHosts()
	if out := p.good("ps").stdout(); !strings.Contains(out, "parked until ") { // it starts a host
		t.Errorf("after its host was killed, ps says: %s", out)
	}
	if now := p.inspected(id); now.Parked == nil || !now.Parked.Until.Equal(was.Parked.Until) {
		t.Errorf("after its host was killed: %+v", now)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls before the reset, want 1", n)
	}
	lifted.Store(true)
	p.soon(func() bool { return p.run("resume", id).code == 0 })
	p.good("wait", id)
	if now := p.inspected(id); now.Status != task.Completed || now.Run != was.Run {
		t.Errorf("at the end: %+v", now)
	}
	if out := p.good("result", id).stdout(); !strings.Contains(out, "found it") {
		t.Errorf("result: %s", out)
	}
}

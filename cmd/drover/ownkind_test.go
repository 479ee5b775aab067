package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/task"
)

// tideWatch is work of a program that embeds Drover: it waits to be stopped.
type tideWatch struct{}

func (tideWatch) Kind() task.Kind { return "tide_watch" }

func (tideWatch) Traits() task.Traits {
	return task.Traits{Noun: "tide watch", Subject: "Tide watch", Pill: task.Pill{Noun: "tide watch"}, Work: task.ByEvents, Wait: task.WaitNever}
}

func (tideWatch) Check(json.RawMessage) error { return nil }

func (tideWatch) Run(ctx context.Context, _ task.Host) (task.Result, error) {
	<-ctx.Done()
	return task.Result{}, context.Cause(ctx)
}

// A kind of a program shows in another program, by its own words, while it runs and
// afterwards.
func TestOwnKind(t *testing.T) {
	p := newPlace(t, build(t))
	for _, e := range p.env {
		name, value, _ := strings.Cut(e, "=")
		if name != "PATH" && name != "TMPDIR" {
			t.Setenv(name, value)
		}
	}
	rt, err := drover.Open(t.Context(), drover.Config{Dir: p.dir})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	rec, err := rt.Start(t.Context(), tideWatch{}, task.Spec{Name: "tide", Description: "watch the tide"})
	if err != nil {
		t.Fatal(err)
	}
	if rec.ID[0] != task.OwnLetter {
		t.Errorf("its ID is %s", rec.ID)
	}
	if got := p.good().stdout(); !strings.Contains(got, "1 tide watch") {
		t.Errorf("the summary is\n%s", got)
	}
	var listed []task.Record
	if err := json.Unmarshal([]byte(p.good("ps", "--json").stdout()), &listed); err != nil || len(listed) != 1 || listed[0].Kind != "tide_watch" {
		t.Errorf("listed %+v, %v", listed, err)
	}
	p.fails(1, []string{"send", "tide", "hello"}, "(tide watch) reads no messages")
	if out := p.good("stop", "tide").stdout(); !strings.Contains(out, "stopped by the user") {
		t.Errorf("the receipt is\n%s", out)
	}
	if err := rt.Close(); err != nil {
		t.Fatal(err)
	}
	var got task.Record
	if err := json.Unmarshal([]byte(p.good("inspect", string(rec.ID)).stdout()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Status != task.Killed || got.Traits().Noun != "tide watch" {
		t.Errorf("afterwards it is %+v", got)
	}
	if got := p.good("ps", "-a").stdout(); !strings.Contains(got, "watch the tide") {
		t.Errorf("afterwards the list is\n%s", got)
	}
}

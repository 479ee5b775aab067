package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/test/modeltest"
)

// The session mode changes while the session lives: from the next prompt on the agent
// has task_complete and is reminded, or neither.
func TestSessionMode(t *testing.T) {
	done := modeltest.Call("task_complete", map[string]any{"summary": "did it"})
	answers := []modeltest.Answer{modeltest.Text("one"), modeltest.Text("two"), done, modeltest.Text("three"), done, modeltest.Text("four")}
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{"main": answers}))
	c := converse(r)
	set := func(mode string) control.Settings {
		t.Helper()
		now, err := r.Configure(r.ctx, control.ConfigureRequest{SessionMode: &mode})
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	turn := func(prompt string, origins ...string) {
		t.Helper()
		c.say(prompt)
		if _, err := c.settle(time.Minute); err != nil {
			t.Errorf("%s: settled with %v", prompt, err)
		}
		if got := c.origins(); !slices.Equal(got, origins) {
			t.Errorf("%s: turns %q, want %q", prompt, got, origins)
		}
	}
	offered := func(n int) bool { return slices.Contains(toolNames(params(t, of(server, "main")[n])), "task_complete") }

	turn("first", "")
	if now := set("autopilot"); now.SessionMode != "autopilot" || !slices.Contains(c.main.Tools(), "task_complete") {
		t.Errorf("settings %+v, tools %q", now, c.main.Tools())
	}
	turn("/subconscious status", "") // which leaves no work
	turn("second", "", conversation.AutopilotOrigin)
	if s := r.until("complete", func(s control.State) bool { return s.Completed != nil }); s.Completed.Summary != "did it" ||
		s.Settings == nil || s.Settings.SessionMode != "autopilot" {
		t.Errorf("state %+v", s)
	}
	turn("/autopilot", "")
	if c.main.Mode() != "interactive" || slices.Contains(c.main.Tools(), "task_complete") {
		t.Errorf("mode %s, tools %q", c.main.Mode(), c.main.Tools())
	}
	turn("/autopilot on", "") // which is no work
	turn("third", "", conversation.AutopilotOrigin)
	turn("/autopilot off", "")
	turn("fourth", "")
	for n, want := range []bool{false, true, true, true, true, false} {
		if offered(n) != want {
			t.Errorf("request %d: task_complete is offered: %v", n, !want)
		}
	}
	wrong := "autopilot_fleet"
	var e *control.Error
	if _, err := r.Configure(r.ctx, control.ConfigureRequest{SessionMode: &wrong}); !errors.As(err, &e) || e.Code != control.Invalid {
		t.Errorf("an unknown mode: %v", err)
	}
	c.say("/autopilot sideways")
	if turn := c.next(); !errors.As(turn.Err, &e) {
		t.Errorf("an unknown word: %v", turn.Err)
	}
}

// Ending the autopilot in the middle of a turn ends its reminders.
func TestSessionModeEnds(t *testing.T) {
	begun := make(chan struct{}, 10)
	release := make(chan struct{})
	r, server := served(t, func(ctx context.Context, _ *modeltest.Request) modeltest.Answer {
		begun <- struct{}{}
		<-release
		return modeltest.Text("I think that is all.")
	})
	c := drive(r)
	c.say("go")
	<-begun
	if !c.main.SetMode("interactive") {
		t.Fatal("the mode is not known")
	}
	close(release)
	if _, err := c.settle(time.Minute); err != nil {
		t.Errorf("settled with %v", err)
	}
	if n := len(server.Requests()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
}

package session

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// slowBuild is a main agent whose first prompt keeps its model waiting until hold is closed,
// behind a call of a tool.
func slowBuild(asked chan<- struct{}, hold <-chan struct{}) func(context.Context, *modeltest.Request) modeltest.Answer {
	return func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		last := q.LastText()
		switch {
		case strings.Contains(last, "two and two?"), strings.Contains(last, "<task-notification>"):
		case strings.Contains(last, "build it"):
			return modeltest.Call("Bash", map[string]any{"command": "mkdir -p sub && cd sub && echo begun"})
		case strings.Contains(last, "begun"):
			asked <- struct{}{}
			a := modeltest.Call("Bash", map[string]any{"command": "pwd"})
			a.Wait = hold
			return a
		case strings.Contains(last, "/sub"):
			return modeltest.Text("the build is done")
		}
		return modeltest.Text("heard: " + last)
	}
}

// A turn that is moved to the background goes on as a task of its own, in its folder and
// with its own transcript, while the conversation answers the next prompt. Its end is told
// once.
func TestMoveTurn(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan struct{}, 10)
	r, server := served(t, slowBuild(asked, hold))
	c := converse(r)
	if _, err := r.Promote(r.ctx, string(r.cfg.Info.Session)); code(err) != control.Conflict {
		t.Errorf("moved without a turn: %v", err)
	}
	c.say("build it")
	<-asked
	rec, err := r.Promote(r.ctx, string(r.cfg.Info.Session))
	if err != nil {
		t.Fatal(err)
	}
	if rec.AgentType != task.MainSession || rec.Kind != task.LocalAgent || rec.ID[0] != task.MainSessionLetter ||
		rec.IsConversation() || !rec.Background() || rec.Description != "build it" {
		t.Errorf("it became %+v", rec)
	}
	if turn := c.next(); turn.Result.Reason != conversation.MovedReason || turn.Err != nil {
		t.Errorf("the turn ended with %+v", turn)
	}
	c.say("two and two?")
	if turn := c.next(); turn.Err != nil || !strings.Contains(turn.Result.Text, "two and two?") {
		t.Errorf("the next prompt: %+v", turn)
	}
	r.begun(task.LocalAgent) // the turn goes on, and its task begins, independently of the conversation
	if now, err := r.Get(r.ctx, string(rec.ID)); err != nil || now.Status != task.Running {
		t.Errorf("meanwhile it is %+v, %v", now, err)
	}
	close(hold)
	turn := c.next()
	if turn.Err != nil || turn.Origin != conversation.TaskOrigin || strings.Count(turn.Result.Text, "the build is done") != 1 {
		t.Errorf("its end was told as %+v", turn)
	}
	if _, err := c.settle(time.Minute); err != nil || len(c.turns) != 0 || r.owed(r.cfg.Info.Session) != 0 {
		t.Errorf("%d further turns, %v", len(c.turns), err)
	}
	if a, err := control.WholeResult(r.ctx, r, string(rec.ID)); err != nil || a.Text != "the build is done" {
		t.Errorf("result %+v, %v", a, err)
	}
	for ref, has := range map[task.ID]bool{rec.ID: true, r.cfg.Info.Session: false} { // each has its transcript
		said, err := r.Messages(r.ctx, control.MessagesRequest{Ref: string(ref)})
		if text := fmt.Sprint(said.List); err != nil || strings.Contains(text, "pwd") != has || !strings.Contains(text, "begun") {
			t.Errorf("messages of %s: %v, %v", ref, text, err)
		}
	}
	// The conversation was told that the turn goes on elsewhere, and has none of its later work.
	for _, q := range of(server, "main") {
		body := string(q.Body)
		if strings.Contains(body, "two and two?") && (!strings.Contains(body, "moved this turn to the background") ||
			strings.Contains(body, `"command":"pwd"`)) {
			t.Errorf("the conversation read %s", body)
		}
	}
	c.stop()
}

// A turn in the background is stopped like any other task, also while the conversation is in
// a turn of its own, which it leaves alone; a session that closes ends it.
func TestStopMovedTurn(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan struct{}, 10)
	defer close(hold)
	r, _ := served(t, slowBuild(asked, hold))
	c := converse(r)
	move := func() task.Record {
		t.Helper()
		c.say("build it")
		<-asked
		rec, err := r.Promote(r.ctx, string(r.cfg.Info.Session))
		if err != nil {
			t.Fatal(err)
		}
		c.next()
		return rec
	}
	first, second := move(), move()
	receipt, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{string(first.ID)}, Actor: task.ByUser})
	if err != nil || len(receipt.Survivors) != 0 {
		t.Errorf("stop: %+v, %v", receipt, err)
	}
	if now, _ := r.Get(r.ctx, string(first.ID)); now.Status != task.Killed || !now.StoppedByUser() {
		t.Errorf("it is %+v", now)
	}
	if now, _ := r.Get(r.ctx, string(second.ID)); now.Status.Terminal() {
		t.Errorf("the other one is %+v", now)
	}
	if _, err := r.Send(r.ctx, control.SendRequest{Ref: string(first.ID), Text: "go on"}); code(err) != control.Conflict {
		t.Errorf("it was sent a message: %v", err)
	}
	c.say("two and two?")
	if turn := c.next(); turn.Err != nil || !strings.Contains(turn.Result.Text, "two and two?") {
		t.Errorf("the next prompt: %+v", turn)
	}
	c.stop()
	r.close()
	r.reopen()
	if now, _ := r.Get(r.ctx, string(second.ID)); now.Status != task.Killed {
		t.Errorf("behind the end of the session it is %+v", now)
	}
}

package session

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// asker is a task that asks one thing.
type asker chan task.Reply

func (asker) Kind() task.Kind             { return task.LocalAgent }
func (asker) Check(json.RawMessage) error { return nil }
func (a asker) Run(ctx context.Context, h task.Host) (task.Result, error) {
	reply, err := h.Ask(ctx, task.Question{Tool: "Bash", Input: json.RawMessage(`{"command":"make"}`)})
	if err == nil {
		a <- reply
	}
	return task.Result{}, err
}

// Questions of tasks and of the session itself are seen together, and what a
// client is told of a wrong answer says what was wrong.
func TestQuestions(t *testing.T) {
	r := open(t, "")
	empty, err := r.Approvals(r.ctx, control.ApprovalsRequest{})
	if err != nil || empty.Questions == nil || len(empty.Questions) != 0 {
		t.Fatalf("at first %+v, %v", empty, err)
	}
	got := make(asker, 1)
	rec, err := r.sup.Start(r.ctx, got, task.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	main := make(chan error, 1)
	go func() {
		reply, err := r.sup.Ask(r.ctx, r.cfg.Info.Session, task.Question{Tool: "Write"})
		if err == nil && reply.Reason != "no" {
			err = errors.New("told " + reply.Reason)
		}
		main <- err
	}()
	list := empty
	for len(list.Questions) < 2 {
		if list, err = r.Approvals(r.ctx, control.ApprovalsRequest{After: list.Version, Wait: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	of := map[string]task.Question{}
	for _, q := range list.Questions {
		of[q.Tool] = q
	}
	bash, write := of["Bash"], of["Write"]
	if bash.Task != rec.ID || write.Task != r.cfg.Info.Session {
		t.Fatalf("open: %+v", list)
	}
	for name, c := range map[string]struct {
		req  control.DecideRequest
		code control.Code
	}{
		"unknown": {control.DecideRequest{ID: "q00000000", Digest: bash.Digest}, control.NotFound},
		"digest":  {control.DecideRequest{ID: bash.ID, Digest: write.Digest}, control.Conflict},
		"unseen":  {control.DecideRequest{ID: bash.ID}, control.Invalid},
		"text":    {control.DecideRequest{ID: bash.ID, Digest: bash.Digest, Reply: task.Reply{Allow: true, Text: "x"}}, control.Invalid},
	} {
		var e *control.Error
		if err := r.Decide(r.ctx, c.req); !errors.As(err, &e) || e.Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if err := r.Decide(r.ctx, control.DecideRequest{ID: write.ID, Digest: write.Digest, Reply: task.Reply{Reason: "no"}}); err != nil {
		t.Fatal(err)
	}
	if err := <-main; err != nil {
		t.Errorf("the main agent: %v", err)
	}
	if err := r.Decide(r.ctx, control.DecideRequest{ID: bash.ID, Digest: bash.Digest, Actor: task.ByClient, Reply: task.Reply{Allow: true}}); err != nil {
		t.Fatal(err)
	}
	if reply := <-got; !reply.Allow {
		t.Errorf("the task got %+v", reply)
	}
	var e *control.Error
	if err := r.Decide(r.ctx, control.DecideRequest{ID: bash.ID, Digest: bash.Digest}); !errors.As(err, &e) || e.Code != control.Conflict || !strings.Contains(e.Message, "allowed by client") {
		t.Errorf("a second answer: %v", err)
	}
	last, err := r.Approvals(r.ctx, control.ApprovalsRequest{After: 1 << 40, Wait: time.Minute}) // of another life of the session
	if err != nil || len(last.Questions) != 0 {
		t.Errorf("at last %+v, %v", last, err)
	}
}

// A rule is kept only if it is the one that the question suggests, and only with
// an answer to that question.
func TestAllowAlways(t *testing.T) {
	var kept []string
	fails := errors.New("the file is on fire")
	r := open(t, "", func(c *Config) {
		c.Agents.KeepRule = func(_ context.Context, rule string) error { kept = append(kept, rule); return fails }
	})
	got := make(chan error, 1)
	go func() {
		reply, err := r.sup.Ask(r.ctx, r.cfg.Info.Session, task.Question{Tool: "Bash", Input: json.RawMessage(`{"command":"make"}`), Suggest: "Bash(make:*)"})
		if err == nil && !reply.Allow {
			err = errors.New("denied")
		}
		got <- err
	}()
	list, err := r.Approvals(r.ctx, control.ApprovalsRequest{Wait: time.Minute})
	for err == nil && len(list.Questions) == 0 {
		list, err = r.Approvals(r.ctx, control.ApprovalsRequest{After: list.Version, Wait: time.Minute})
	}
	if err != nil {
		t.Fatal(err)
	}
	q := list.Questions[0]
	yes := task.Reply{Allow: true}
	for name, req := range map[string]control.DecideRequest{
		"another rule": {ID: q.ID, Digest: q.Digest, Reply: yes, Always: "Bash"},
		"a denial":     {ID: q.ID, Digest: q.Digest, Always: q.Suggest},
		"changed":      {ID: q.ID, Digest: q.Digest, Reply: task.Reply{Allow: true, Input: json.RawMessage(`{}`)}, Always: q.Suggest},
		"digest":       {ID: q.ID, Digest: "x", Reply: yes, Always: q.Suggest},
		"no question":  {ID: "q00000000", Digest: q.Digest, Reply: yes, Always: q.Suggest},
	} {
		if err := r.Decide(r.ctx, req); err == nil || len(kept) > 0 {
			t.Errorf("%s: %v, kept %q", name, err, kept)
		}
	}
	req := control.DecideRequest{ID: q.ID, Digest: q.Digest, Reply: yes, Always: q.Suggest}
	if err := r.Decide(r.ctx, req); err == nil || !strings.Contains(err.Error(), "on fire") || len(r.agents.AllowedAlways()) > 0 {
		t.Errorf("a rule that cannot be written: %v, %q", err, r.agents.AllowedAlways())
	}
	fails = nil
	if err := r.Decide(r.ctx, req); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil || len(r.agents.AllowedAlways()) != 1 || r.agents.AllowedAlways()[0] != "Bash(make:*)" {
		t.Errorf("%v, %q", err, r.agents.AllowedAlways())
	}
	if _, open := r.sup.Question(q.ID); open {
		t.Error("it is open still")
	}
}

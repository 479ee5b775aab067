package task_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

func TestReply(t *testing.T) {
	permission, choice := task.Question{Kind: task.Permission}, task.Question{Kind: task.Choice}
	object := json.RawMessage(`{"command":"ls"}`)
	for name, tt := range map[string]struct {
		q    task.Question
		r    task.Reply
		fits bool
	}{
		"allow":          {permission, task.Reply{Allow: true}, true},
		"allow-input":    {permission, task.Reply{Allow: true, Input: object}, true},
		"deny":           {permission, task.Reply{Reason: "no"}, true},
		"allow-text":     {permission, task.Reply{Allow: true, Text: "blue"}, false},
		"deny-input":     {permission, task.Reply{Input: object}, false},
		"input-array":    {permission, task.Reply{Allow: true, Input: json.RawMessage(`[]`)}, false},
		"input-null":     {permission, task.Reply{Allow: true, Input: json.RawMessage(`null`)}, false},
		"input-broken":   {permission, task.Reply{Allow: true, Input: json.RawMessage(`{`)}, false},
		"long-reason":    {permission, task.Reply{Reason: strings.Repeat("x", task.MaxReplyBytes+1)}, false},
		"choose":         {choice, task.Reply{Allow: true, Text: "blue"}, true},
		"choose-input":   {choice, task.Reply{Allow: true, Input: object}, true},
		"choose-none":    {choice, task.Reply{Allow: true}, false},
		"choose-blank":   {choice, task.Reply{Allow: true, Text: " \n"}, false},
		"decline":        {choice, task.Reply{Reason: "ask me later"}, true},
		"decline-text":   {choice, task.Reply{Text: "blue"}, false},
		"old-no-kind":    {task.Question{}, task.Reply{Allow: true}, true},
		"nothing-at-all": {permission, task.Reply{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.q.Check(tt.r)
			var wrong *task.ReplyError
			if (err == nil) != tt.fits || err != nil && !errors.As(err, &wrong) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestMessageCheck(t *testing.T) {
	good := task.Message{To: "a00000001", From: "lead", Kind: task.TaskAssignment, Text: "do it"}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*task.Message){
		"to":      func(m *task.Message) { m.To = "" },
		"from":    func(m *task.Message) { m.From = "" },
		"kind":    func(m *task.Message) { m.Kind = `x" y="` },
		"no-kind": func(m *task.Message) { m.Kind = "" },
		"empty":   func(m *task.Message) { m.Text = "" },
		"long":    func(m *task.Message) { m.Text = strings.Repeat("x", task.MaxMessageBytes+1) },
		"bytes":   func(m *task.Message) { m.Text = "\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			m := good
			if spoil(&m); m.Check() == nil {
				t.Errorf("%+v is taken", m)
			}
		})
	}
}

// Every task without a host ends for a reason that can be read, and a restart of
// the machine is told from a death of the host.
func TestLost(t *testing.T) {
	r := task.Record{Process: &task.Process{PID: 1, Boot: "before"}}
	for boot, want := range map[string]task.Reason{"now": task.ReasonReboot, "before": task.ReasonHostLost, "": task.ReasonHostLost} {
		if c := task.Lost(r, boot); c.Reason != want || c.Detail == "" {
			t.Errorf("boot %q: %+v", boot, c)
		}
	}
	if c := task.Lost(task.Record{}, "now"); c.Reason != task.ReasonHostLost {
		t.Errorf("without a process: %+v", c)
	}
}

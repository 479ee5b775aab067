package session

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// planned is a main agent that proposes a plan in answer to "plan …", again after a denial, and
// writes a file when one is approved.
func planned(t *testing.T, change ...func(*Config)) (c *converser, file string, server *modeltest.Server) {
	t.Helper()
	r, server := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		switch last := q.LastText(); {
		case strings.Contains(last, "carry it out"):
			return modeltest.Call("Write", map[string]any{"file_path": file, "content": "x"})
		case strings.Contains(last, "stay in plan mode"):
			return modeltest.Call("ExitPlanMode", map[string]any{"plan": "second plan"})
		case strings.Contains(last, "plan this"):
			return modeltest.Call("ExitPlanMode", map[string]any{"plan": "first plan"})
		}
		return modeltest.Text("over")
	}, change...)
	file = filepath.Join(r.folder, "out.txt")
	return converse(r), file, server
}

func (c *converser) mode(mode policy.Mode) {
	c.t.Helper()
	text := string(mode)
	if _, err := c.Configure(c.ctx, control.ConfigureRequest{Mode: &text}); err != nil {
		c.t.Fatal(err)
	}
}

// question waits for a question whose input has a text.
func (c *converser) question(text string) task.Question {
	c.t.Helper()
	var after int64
	for {
		open, err := c.Approvals(c.ctx, control.ApprovalsRequest{After: after, Wait: patience})
		if err != nil {
			c.t.Fatal(err)
		}
		after = open.Version
		for _, q := range open.Questions {
			if strings.Contains(string(q.Input), text) {
				return q
			}
		}
	}
}

func (c *converser) decide(q task.Question, r task.Reply) {
	c.t.Helper()
	if err := c.Decide(c.ctx, control.DecideRequest{ID: q.ID, Digest: q.Digest, Reply: r}); err != nil {
		c.t.Fatal(err)
	}
}

// read is what the model has read with its last request.
func read(t *testing.T, s *modeltest.Server) string {
	t.Helper()
	all := of(s, "main")
	raw, err := json.Marshal(params(t, all[len(all)-1]).Messages)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The main agent in plan mode proposes plans: a denied one keeps it there and tells it why, an
// approved one gives the mode again that plan mode has replaced, and clients see the change.
func TestPlanMode(t *testing.T) {
	c, file, server := planned(t, func(cfg *Config) { cfg.Agents.AskWait = patience })
	c.mode(policy.AcceptEdits)
	c.mode(policy.Plan)
	c.say("plan this")
	q := c.question("first plan")
	if !q.IsPlan() || q.Tool != "ExitPlanMode" || q.ToolUseID == "" || q.Task != c.cfg.Info.Session {
		t.Errorf("asked %+v", q)
	}
	c.decide(q, task.Reply{Reason: "mind the tests"})
	q = c.question("second plan")
	if got := read(t, server); !strings.Contains(got, "Plan mode is on.") || !strings.Contains(got, "mind the tests") {
		t.Errorf("the model has read %s", got)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was written before the approval")
	}
	c.decide(q, task.Reply{Allow: true, Input: json.RawMessage(`{"plan":"changed plan"}`)})
	if turn := c.next(); turn.Err != nil || turn.Result.Text != "over" {
		t.Errorf("%+v, %v", turn.Result, turn.Err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the approved plan was not carried out in mode acceptEdits: %v", err)
	}
	s, err := c.State(c.ctx, control.StateRequest{})
	if err != nil || s.Settings.Mode != "acceptEdits" {
		t.Errorf("settings %+v, %v", s.Settings, err)
	}
	c.say("go on")
	c.next()
	if got := read(t, server); !strings.Contains(got, "Carry out this one:\\nchanged plan") ||
		strings.Contains(got, "Plan mode is off.") {
		t.Errorf("the model has read %s", got)
	}
}

// An answer can accept edits with the plan, also while another mode is chosen; that is no answer
// to another call.
func TestPlanModeEdits(t *testing.T) {
	c, file, _ := planned(t, func(cfg *Config) { cfg.Agents.AskWait, cfg.Agents.Rules.Mode = patience, policy.Plan })
	c.say("plan this")
	q := c.question("first plan")
	other := q
	other.Tool = "Bash"
	if err := other.Check(task.Reply{Allow: true, AcceptEdits: true}); err == nil {
		t.Error("edits are accepted with a call of Bash")
	}
	c.decide(q, task.Reply{Allow: true, AcceptEdits: true})
	c.next()
	if _, err := os.Stat(file); err != nil || c.main.environment().Me.Mode() != policy.AcceptEdits {
		t.Errorf("mode %s, %v", c.main.environment().Me.Mode(), err)
	}
}

// A mode that the user chooses while the plan is read stays, and a change of the mode without a
// plan is told to the model.
func TestPlanModeLeft(t *testing.T) {
	c, file, server := planned(t, func(cfg *Config) {
		cfg.Agents.AskWait, cfg.Agents.Rules.Mode = patience, policy.Plan
	})
	c.say("plan this")
	q := c.question("first plan")
	c.mode(policy.Bypass)
	c.decide(q, task.Reply{Allow: true})
	c.next()
	if _, err := os.Stat(file); err != nil || c.main.environment().Me.Mode() != policy.Bypass {
		t.Errorf("mode %s, %v", c.main.environment().Me.Mode(), err)
	}
	c.mode(policy.Plan)
	c.say("one")
	c.next()
	if got := read(t, server); strings.Count(got, "Plan mode is on.") != 2 || strings.Contains(got, "Plan mode is off.") {
		t.Errorf("the model has read %s", got)
	}
	c.mode(policy.Default)
	c.say("two")
	c.next()
	if got := read(t, server); strings.Count(got, "Plan mode is off.") != 1 {
		t.Errorf("the model has read %s", got)
	}
}

// Where nobody can approve a plan, and outside plan mode, the tool says so; it is offered in
// every mode.
func TestPlanModeRefused(t *testing.T) {
	for want, mode := range map[string]policy.Mode{
		"nobody is here who could approve a plan": policy.Plan,
		"you are not in plan mode":                policy.Default,
	} {
		c, _, server := planned(t, func(cfg *Config) { cfg.Agents.Rules.Mode = mode })
		c.say("plan this")
		c.next()
		if got := read(t, server); !strings.Contains(got, want) {
			t.Errorf("%s: the model has read %s", mode, got)
		}
		if !slices.Contains(c.main.Tools(), "ExitPlanMode") {
			t.Errorf("%s: tools %q", mode, c.main.Tools())
		}
	}
}

package tasktools

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// desk keeps the last plan, and answers with what it was given.
type desk struct {
	plan string
	made Proposed
	err  error
}

func (d *desk) Propose(_ context.Context, _ agent.Call, plan string) (Proposed, error) {
	d.plan = plan
	return d.made, d.err
}

// A plan that waits for its answer ends the turn; one that is answered at once does
// not, and only an approval is no error.
func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		name, in    string
		made        Proposed
		err         error
		plan, want  string
		bad, yields bool
	}{
		{"waits", `{"plan":"do it"}`, Proposed{ID: "plan-1"}, nil, "do it", "Plan plan-1 was submitted", false, true},
		{"approved", `{"plan":"do it"}`, Proposed{Decided: true, Approved: true, Reason: "mind the tests"}, nil, "do it",
			"carry it out.\nmind the tests", false, false},
		{"changed", `{"plan":"do it"}`, Proposed{Decided: true, Approved: true, Plan: "do less"}, nil, "do it",
			"Carry out this one:\ndo less", false, false},
		{"denied", `{"plan":"do it"}`, Proposed{Decided: true, Reason: "too much"}, nil, "do it",
			"you stay in plan mode.\ntoo much", true, false},
		{"refused", `{"plan":"do it"}`, Proposed{}, &toolkit.Refusal{Text: "not in plan mode"}, "do it", "not in plan mode",
			true, false},
		{"empty", `{"plan":" "}`, Proposed{}, nil, "", `field "plan" is empty`, true, false},
		{"long", `{"plan":"` + strings.Repeat("x", MaxPlanBytes+1) + `"}`, Proposed{}, nil, "", "longer than 60 KiB", true,
			false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &desk{made: tt.made, err: tt.err}
			out, err := NewSubmitPlan(d).Call(t.Context(), agent.Call{Name: "submit_plan", Input: json.RawMessage(tt.in)})
			if err != nil || out.IsError != tt.bad || out.EndTurn != tt.yields || !strings.Contains(out.Text, tt.want) ||
				d.plan != tt.plan {
				t.Errorf("got %+v, %v; proposed %q", out, err, d.plan)
			}
		})
	}
}

// A leader's answer reaches the session whole, with all that was said to it.
func TestPlanAnswer(t *testing.T) {
	p := &post{}
	_, err := NewSend(p).Call(t.Context(), agent.Call{Name: "SendMessage",
		Input: json.RawMessage(`{"to":"ada@crew","message":"and the ` +
			`docs","plan_approval":{"request_id":"plan-1","approve":false,"feedback":"mind the tests"}}`)})
	if err != nil || p.asked.Plan == nil || *p.asked.Plan != (PlanAnswer{RequestID: "plan-1",
		Feedback: "mind the tests\nand the docs"}) || p.asked.To != "ada@crew" {
		t.Errorf("asked %+v with %+v, %v", p.asked, p.asked.Plan, err)
	}
}

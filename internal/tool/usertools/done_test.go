package usertools

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
)

func TestDoneSpec(t *testing.T) {
	s := NewDone(nil).Spec()
	var schema struct {
		Properties map[string]struct{ Type string }
		Required   []string
		Additional bool `json:"additionalProperties"`
	}
	if err := json.Unmarshal(s.InputSchema, &schema); err != nil || s.Name != "task_complete" ||
		len(schema.Properties) != 1 ||
		schema.Properties["summary"].Type != "string" || len(schema.Required) != 1 || schema.Additional {
		t.Errorf("%v: %s %s", err, s.Name, s.InputSchema)
	}
	for _, word := range []string{"unresolved", "remain", "not sure", "checked"} {
		if !strings.Contains(s.Description, word) {
			t.Errorf("the model is not told of %q", word)
		}
	}
}

func TestDone(t *testing.T) {
	asked := 0
	veto := func(_ context.Context, _ agent.Call, summary string) string {
		asked++
		if summary == "too early" {
			return "the tests fail"
		}
		return ""
	}
	for _, c := range []struct {
		name, input string
		end         bool
		text        string
		asked       int
	}{
		{"done", `{"summary":" did it\n"}`, true, "complete", 1},
		{"vetoed", `{"summary":"too early"}`, false, "the tests fail", 1},
		{"missing", `{}`, false, "summary", 0},
		{"blank", `{"summary":" "}`, false, "summary", 0},
		{"number", `{"summary":7}`, false, "summary", 0},
		{"more", `{"summary":"x","sure":true}`, false, "sure", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked = 0
			out, err := NewDone(veto).Call(t.Context(), agent.Call{Input: json.RawMessage(c.input)})
			if err != nil || out.EndTurn != c.end || out.IsError == c.end || !strings.Contains(out.Text, c.text) ||
				asked != c.asked {
				t.Errorf("%+v, %v, asked %d times", out, err, asked)
			}
			if res, ok := out.Structured.(Done); ok != c.end || ok && res.Summary != "did it" {
				t.Errorf("structured %+v", out.Structured)
			}
		})
	}
}

package usertools

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
)

func TestIntent(t *testing.T) {
	tool := NewIntent()
	if p, ok := tool.(agent.Parallel); !ok || !p.Parallel() {
		t.Error("it holds other calls up")
	}
	if r, ok := tool.(agent.ReadOnly); !ok || !r.ReadOnly() {
		t.Error("it needs permission")
	}
	for input, want := range map[string]string{
		`{"intent":"Looking for\nthe test\u001b[2J"}`:   "Looking for the test",
		`{"intent":"` + strings.Repeat("x", 200) + `"}`: strings.Repeat("x", MaxIntent-1) + "…",
	} {
		out, err := tool.Call(t.Context(), agent.Call{Input: json.RawMessage(input)})
		if res, ok := out.Structured.(Intent); err != nil || out.IsError || !ok || res.Intent != want {
			t.Errorf("%+v, %v", out, err)
		}
	}
	for _, input := range []string{`{}`, `{"intent":" "}`, `{"intent":"x","y":1}`, `{"intent":7}`} {
		if out, err := tool.Call(t.Context(), agent.Call{Input: json.RawMessage(input)}); err != nil || !out.IsError {
			t.Errorf("%s: %+v, %v", input, out, err)
		}
	}
	if s := tool.Spec().InputSchema; !json.Valid(s) || !strings.HasSuffix(string(s), `"additionalProperties":false}`) {
		t.Errorf("schema %s", s)
	}
}

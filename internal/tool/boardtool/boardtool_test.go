package boardtool

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/project/memory"
)

// call makes one call and returns what the model reads.
func call(t *testing.T, tool agent.Tool, input string) (agent.Output, Result) {
	t.Helper()
	out, err := tool.Call(t.Context(), agent.Call{Name: Name, Input: json.RawMessage(input)})
	if err != nil {
		t.Fatal(err)
	}
	res, _ := out.Structured.(Result)
	return out, res
}

func TestBoard(t *testing.T) {
	s := memory.At(t.TempDir() + "/memory")
	tool := New(s, "rem-consolidate")
	if out, res := call(t, tool, `{"action":"list"}`); out.IsError || res.Entries == nil ||
		!strings.HasPrefix(out.Text, "0 of 200 notes") {
		t.Errorf("an empty board: %+v", out)
	}
	out, res := call(t, tool, `{"action":"add","text":"builds with make","tags":["build"]}`)
	if out.IsError || len(res.Entries) != 1 || res.Entries[0].By != "rem-consolidate" ||
		!strings.Contains(out.Text, res.Entries[0].ID) {
		t.Fatalf("added %+v", out)
	}
	id := res.Entries[0].ID
	if b, err := s.Board(); err != nil || len(b.Entries) != 1 || b.Entries[0].ID != id {
		t.Errorf("on disk: %+v, %v", b, err)
	}
	if out, _ := call(t, tool, `{"action":"list"}`); !strings.Contains(out.Text, id+": ") ||
		!strings.Contains(out.Text, "builds with make [build]") {
		t.Errorf("listed %q", out.Text)
	}
	if out, _ := call(t, tool, `{"action":"prune","ids":["`+id+`","nobody"]}`); !out.IsError ||
		!strings.Contains(out.Text, "nobody") {
		t.Errorf("an unknown ID: %+v", out)
	}
	if out, res := call(t, tool, `{"action":"prune","ids":["`+id+`"]}`); out.IsError || len(res.Entries) != 1 {
		t.Errorf("pruned %+v", out)
	}
	if b, _ := s.Board(); len(b.Entries) != 0 {
		t.Errorf("left %+v", b.Entries)
	}
}

func TestRefuses(t *testing.T) {
	tool := New(memory.At(t.TempDir()+"/memory"), "x")
	for input, says := range map[string]string{
		`{}`:                          `"action" is missing`,
		`{"action":"clear"}`:          "list, add or prune",
		`{"action":"add"}`:            "empty",
		`{"action":"add","text":" "}`: "empty",
		`{"action":"add","text":"x","ids":["a"]}`:                     `"ids" does not go`,
		`{"action":"prune"}`:                                          `"ids" is missing`,
		`{"action":"prune","ids":[]}`:                                 `"ids" is missing`,
		`{"action":"list","text":"x"}`:                                `"text" does not go`,
		`{"action":"list","tags":["x"]}`:                              `"tags" does not go`,
		`{"action":"list","more":1}`:                                  `"more"`,
		`{"action":"add","text":"` + strings.Repeat("x", 2001) + `"}`: "say it shorter",
	} {
		if out, _ := call(t, tool, input); !out.IsError || !strings.Contains(out.Text, says) ||
			strings.Contains(out.Text, "\n") {
			t.Errorf("%.60s: %+v", input, out)
		}
	}
}

func TestSpec(t *testing.T) {
	spec := New(nil, "").Spec()
	var schema map[string]any
	if err := json.Unmarshal(spec.InputSchema, &schema); err != nil || spec.Name != "context_board" ||
		schema["additionalProperties"] != false {
		t.Errorf("%v: %+v", err, schema)
	}
	for _, word := range []string{"prune", "secrets", "full"} {
		if !strings.Contains(spec.Description, word) {
			t.Errorf("the model is not told of %q", word)
		}
	}
}

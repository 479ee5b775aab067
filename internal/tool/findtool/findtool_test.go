package findtool_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/findtool"
)

func specs() []agent.ToolSpec {
	list := []agent.ToolSpec{
		{Name: "Monitor", Description: "Watches a command or a file.\n\nMore.", InputSchema: json.RawMessage(`{ "type": "object", "properties": {"command": {"type": "string"}} }`)},
		{Name: "TaskCreate", Description: "Adds a to-do.", InputSchema: json.RawMessage(`{"type":"object"}`)},
	}
	for i := range 300 {
		list = append(list, agent.ToolSpec{Name: fmt.Sprintf("mcp__hub__t%d", i), Description: "Opens an issue.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{"title":{}}}`)})
	}
	return list
}

func tools() []agent.Tool {
	return findtool.New(specs(), func(name string) bool { return strings.HasPrefix(name, "mcp__") })
}

func search(t *testing.T, input string) agent.Output {
	t.Helper()
	out, err := tools()[0].Call(t.Context(), agent.Call{ID: "1", Name: findtool.Search, Input: json.RawMessage(input)})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSearch(t *testing.T) {
	about := tools()[0].Spec().Description
	for _, want := range []string{"\n- Monitor: Watches a command or a file.\n", "mcp__hub__t0, mcp__hub__t1,", "and 100 more"} {
		if !strings.Contains(about, want) {
			t.Errorf("the description has no %q: %s", want, about)
		}
	}
	for _, c := range []struct {
		input, want string
		n           int
	}{
		{`{"query":"select:taskcreate, Monitor,None"}`, "Adds a to-do.", 2},
		{`{"query":"Monitor"}`, `Schema of input: {"type":"object","properties":{"command":{"type":"string"}}}`, 1},
		{`{"query":"watch a file"}`, `<tool name="Monitor">`, 1},
		{`{"query":"open issue"}`, `<tool name="mcp__hub__t0">`, 5},
		{`{"query":"issue","max_results":7}`, `<tool name="mcp__hub__t6">`, 7},
	} {
		out := search(t, c.input)
		if out.IsError || !strings.Contains(out.Text, c.want) || strings.Count(out.Text, "<tool ") != c.n {
			t.Errorf("%s: %d tools, want %d with %q:\n%s", c.input, strings.Count(out.Text, "<tool "), c.n, c.want, out.Text)
		}
	}
	for _, bad := range []string{`{"query":"zebra"}`, `{"query":"select:None"}`, `{"query":""}`, `{"query":"x","max_results":21}`} {
		if out := search(t, bad); !out.IsError {
			t.Errorf("%s: %s", bad, out.Text)
		}
	}
}

func TestForward(t *testing.T) {
	f := tools()[1].(agent.Forwarder)
	for _, c := range [][3]string{
		{`{"name":"Monitor","input":{"a":1}}`, "Monitor", `{"a":1}`},
		{`{"name":"Monitor"}`, "Monitor", ""},
		{`{"name":"Monitor","input":"{\"a\":1}"}`, "Monitor", `{"a":1}`},
		{`{"name":"Monitor","input":""}`, "Monitor", `{}`},
	} {
		name, in, err := f.Forward(json.RawMessage(c[0]))
		if err != nil || name != c[1] || string(in) != c[2] {
			t.Errorf("%s: %s %s, %v", c[0], name, in, err)
		}
	}
	for _, bad := range []string{`{}`, `{"name":7}`, `[]`} {
		if name, _, err := f.Forward(json.RawMessage(bad)); err == nil {
			t.Errorf("%s is forwarded to %q", bad, name)
		}
	}
}

package hook

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// Guards that were written for Copilot compare its names of tools and of arguments.
func TestCopilotGuards(t *testing.T) {
	s := play(t, `{"version":1,"hooks":{"preToolUse":[
		{"type":"command","bash":"in=$(cat); case \"$in\" in *'\"toolName\":\"bash\"'*) ;; *) exit 0;; esac; case \"$in\" in *'rm -rf'*) echo '{\"permissionDecision\":\"deny\",\"permissionDecisionReason\":\"no deletion\"}';; esac"},
		{"type":"command","bash":"in=$(cat); case \"$in\" in *'\"toolName\":\"edit\"'*|*'\"toolName\":\"create\"'*) ;; *) exit 0;; esac; case \"$in\" in *'\\\"path\\\":\\\"src/'*) ;; *) echo 'only below src'; exit 2;; esac"}
	]}}`, toolbox)
	for _, c := range []struct{ tool, input, reason string }{
		{"Bash", `{"command":"rm -rf zz"}`, "no deletion"},
		{"bash", `{"command":"rm -rf zz"}`, "no deletion"},
		{"Bash", `{"command":"ls"}`, ""},
		{"Write", `{"file_path":"other/a","content":"x"}`, "only below src"},
		{"Write", `{"file_path":"src/a","content":"x"}`, ""},
		{"Edit", `{"file_path":"other/a","old_string":"x","new_string":"y"}`, "only below src"},
		{"Read", `{"file_path":"other/a"}`, ""},
	} {
		got := s.Run(context.Background(), PreToolUse, s.toolFields(call(c.tool, c.input)))
		if got.Block != (c.reason != "") || got.Reason != c.reason {
			t.Errorf("%s %s: %+v", c.tool, c.input, got)
		}
	}
}

// What such a hook reads has Copilot's names throughout, and a change that it makes comes back
// under ours. A hook in the other form reads our names of the same call.
func TestCopilotNames(t *testing.T) {
	var e ears
	both := []Callback{
		e.on("preToolUse", `{"modifiedArgs":{"path":"b","file_text":"new"}}`), e.on("PreToolUse", ""),
	}
	both[0].Matcher, both[1].Matcher = "create", "Write"
	s := playSet(t, with(t, both...), toolbox)
	out := s.Run(context.Background(), PreToolUse, s.toolFields(call("Write", `{"file_path":"a","content":"x"}`)))
	var changed map[string]string
	if err := json.Unmarshal(out.UpdatedInput, &changed); err != nil || changed["file_path"] != "b" || changed["content"] != "new" {
		t.Errorf("changed %s, %v", out.UpdatedInput, err)
	}
	read := map[bool]string{}
	for _, p := range e.all {
		_, camel := p["toolName"]
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		read[camel] = string(text)
	}
	if got := read[true]; !strings.Contains(got, `"toolName":"create"`) || strings.Contains(got, "file_path") ||
		!strings.Contains(got, `"toolArgs":"{\"file_text\":\"x\",\"path\":\"a\"}"`) {
		t.Errorf("Copilot reads %s", got)
	}
	if got := read[false]; !strings.Contains(got, `"tool_name":"Write"`) || !strings.Contains(got, `"file_path":"a"`) {
		t.Errorf("Claude reads %s", got)
	}
}

// Every payload behind a prompt names it, until the next.
func TestPromptID(t *testing.T) {
	var e ears
	s := playSet(t, with(t, e.on("UserPromptSubmit", ""), e.on("Stop", "")), toolbox)
	l := NewLoop(s.Runner, nil)
	for range 2 {
		if _, err := s.UserPromptSubmit(context.Background(), "go"); err != nil {
			t.Fatal(err)
		}
		l.Stop(context.Background(), agent.TurnResult{}, 0)
	}
	var ids []any
	for _, p := range e.all {
		ids = append(ids, p["prompt_id"])
	}
	if len(ids) != 4 || ids[0] == nil || ids[0] == "" || ids[0] != ids[1] || ids[2] != ids[3] || ids[0] == ids[2] {
		t.Errorf("prompts %v", ids)
	}
}

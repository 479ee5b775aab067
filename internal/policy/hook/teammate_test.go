package hook

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// A teammate that is about to rest is sent on at most 8 times in a row, is not told
// of in its last turn, and its stop is sent once, at the end of the run.
func TestTeammateIdle(t *testing.T) {
	told := map[string]int{}
	var last map[string]any
	count := func(event string) Callback {
		return Callback{Event: event, Call: func(_ context.Context, raw json.RawMessage) (json.RawMessage, error) {
			told[event]++
			last = nil
			if err := json.Unmarshal(raw, &last); err != nil {
				return nil, err
			}
			return json.RawMessage(`{"decision":"block","reason":"not yet"}`), nil
		}}
	}
	set, problems := new(Set).With(count("TeammateIdle"), count("SubagentStop"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	base := Base{}
	sub(&base)
	r := NewRunner(set, base)
	defer r.Close()
	l, leaving := NewLoop(r, nil), false
	l.Teammate("ada", "crew", func() bool { return leaving })
	l.Start(t.Context())
	for blocked := range maxBlocks + 1 {
		if reason := l.Stop(t.Context(), agent.TurnResult{Text: "done"}, blocked); (reason == "not yet") != (blocked < maxBlocks) {
			t.Errorf("after %d blocks: %q", blocked, reason)
		}
	}
	for key, want := range map[string]any{"teammate_name": "ada", "team_name": "crew", "last_assistant_message": "done", "stop_hook_active": true, "agent_id": "a1"} {
		if last[key] != want {
			t.Errorf("%s is %v", key, last[key])
		}
	}
	leaving = true
	if reason := l.Stop(t.Context(), agent.TurnResult{}, 0); reason != "" || told["TeammateIdle"] != maxBlocks+1 {
		t.Errorf("the last turn: %q, told %d times", reason, told["TeammateIdle"])
	}
	l.End(t.Context(), agent.TurnResult{}, nil)
	l.End(t.Context(), agent.TurnResult{}, errors.New("again"))
	if told["SubagentStop"] != 1 {
		t.Errorf("%d stops", told["SubagentStop"])
	}
}

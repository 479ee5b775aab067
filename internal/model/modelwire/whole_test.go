package modelwire_test

import (
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

// A server that answers with one value although a stream was asked for has answered; without a word
// of what that cost, the cost is estimated.
func TestWholeAnswer(t *testing.T) {
	bodies := map[modeltest.API]string{
		modeltest.Messages: `{"type":"message","id":"m1","model":"m","content":[{"type":"text","text":"hi"},` +
			`{"type":"tool_use","id":"a","name":"Bash","input":{"x":1}}],"stop_reason":"tool_use"`,
		modeltest.Chat: `{"id":"m1","model":"m","choices":[{"message":{"content":"hi","tool_calls":[{"id":"a",` +
			`"function":{"name":"Bash","arguments":"{\"x\":1}"}}]},"finish_reason":"tool_calls"}]`,
		modeltest.Responses: `{"object":"response","id":"m1","model":"m","status":"completed","output":[{"type":"message",` +
			`"content":[{"type":"output_text","text":"hi"}]},{"type":"function_call","call_id":"a","name":"Bash",` +
			`"arguments":"{\"x\":1}"}]`,
	}
	each(t, func(t *testing.T, d dialect) {
		for body, estimated := range map[string]bool{
			bodies[d.api] + "}": true,
			bodies[d.api] + `,"usage":{"input_tokens":7,"output_tokens":3,"prompt_tokens":7,"completion_tokens":3}}`: false,
		} {
			m, s := d.asked(t, raw(200, "application/json", body))
			var h heard
			reply, err := m.Reply(waittest.Context(t, patience), request(strings.Repeat("hello ", 100)), h.on)
			if err != nil || s.Count() != 1 {
				t.Fatalf("%v, %d calls", err, s.Count())
			}
			if len(reply.Blocks) != 2 || reply.Blocks[0].Text != "hi" || string(reply.Blocks[1].Input) != `{"x":1}` ||
				reply.StopReason != "tool_use" || h.text != "hi" {
				t.Errorf("the answer is %+v, of which %q was handed on", reply, h.text)
			}
			if u := reply.Usage; u.Estimated != estimated || !estimated && u != (agent.Usage{InputTokens: 7, OutputTokens: 3}) ||
				estimated && (u.InputTokens < 200 || u.InputTokens > 400 || u.OutputTokens == 0) {
				t.Errorf("usage %+v", u)
			}
		}
	})
}

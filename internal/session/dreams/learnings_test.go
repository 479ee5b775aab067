package dreams

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
)

func TestConversationText(t *testing.T) {
	long := strings.Repeat("é", 40)
	messages := []agent.Message{
		agent.NewMessage(agent.User, agent.TextBlock("first "+long)),
		agent.NewMessage(agent.Assistant, agent.TextBlock("I look"), agent.Block{Type: "tool_use", ID: "1", Name: "Read", Input: json.RawMessage(`{}`)}),
		agent.NewMessage(agent.User, agent.ToolResultBlock("1", "a result", false), agent.TextBlock("<system-reminder>\nno\n</system-reminder>")),
		agent.NewMessage(agent.Assistant, agent.TextBlock("found <it>")),
	}
	if got := conversationText(messages, 1000); got != "User: first "+long+"\n\nAgent: I look\n\nAgent: found <it>" {
		t.Errorf("it is %q", got)
	}
	if got := conversationText(messages, 30); len(got) > 40 || !strings.HasSuffix(got, "found <it>") || strings.Contains(got, "\uFFFD") {
		t.Errorf("cut to %q", got)
	}
}

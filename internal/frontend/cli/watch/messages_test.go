package watch

import (
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
)

// A message is shown whole, with a line for each call, and nothing in it is alive on
// a terminal.
func TestMessageText(t *testing.T) {
	got := messageText(control.Message{Role: "assistant", At: time.Date(2030, 1, 1, 12, 0, 1, 0, time.UTC), Parts: []control.Part{
		{Type: "text", Text: "I see\x1b]0;t\a it\n", Cut: 3}, {Type: "tool_use", Tool: "Bash", Text: `{"command":"echo` + "\n" + `"}`}, {Type: "tool_result", Text: "found\nit"}, {Type: "image"},
	}})
	want := "2030-01-01T12:00:01Z assistant\nI see"
	if !strings.HasPrefix(got, want) || strings.ContainsAny(got, "\x1b\a") || !strings.HasSuffix(got, "[3 more bytes]\n[Bash {\"command\":\"echo \"}]\n[tool_result: found it]\n[image: ]\n\n") {
		t.Errorf("got %q", got)
	}
}

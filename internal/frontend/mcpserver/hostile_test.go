package mcpserver

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// What a task asks is shown with nothing alive in it, and says what is hidden.
func TestHostileQuestions(t *testing.T) {
	data, err := os.ReadFile("../../platform/excerpt/testdata/hostile.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		in, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		if err != nil {
			t.Fatal(err)
		}
		n++
		q := lifecycle.Shown(task.Question{ID: "q1", Tool: "x\x1b", Reason: "\u202e", Input: json.RawMessage(in), Suggest: "\u200b\n"})
		got := questions(task.Record{Questions: []task.Question{q}})[0]
		for _, text := range []string{got.Tool, got.Reason, got.Display, got.Suggest} {
			if strings.ContainsFunc(text, func(r rune) bool {
				return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
			}) {
				t.Errorf("%q: alive in %q", in, text)
			}
		}
	}
	if n < 60 {
		t.Fatalf("%d inputs", n)
	}
	long := lifecycle.Shown(task.Question{ID: "q1", Input: json.RawMessage(`{"command":"` + strings.Repeat("x", 100_000) + `"}`)})
	if got := questions(task.Record{Questions: []task.Question{long}})[0]; len(got.Display) > maxDisplay+200 || !strings.Contains(got.Display, "bytes are hidden: `drover approvals show q1` shows the whole call") {
		t.Errorf("%d bytes: %.100s", len(got.Display), got.Display)
	}
}

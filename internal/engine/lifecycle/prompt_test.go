package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// A short prompt stays as it is. Of a long one a record has the beginning, in whole
// characters, and says how many bytes it lacks; what was shortened stays as it is.
func TestShortPrompt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.StringN(1, 20, -1).Draw(t, "piece")
		text := strings.Repeat(piece, rapid.IntRange(0, 3*MaxRecordPrompt/len(piece)).Draw(t, "times"))
		short := ShortPrompt(text)
		if len(text) <= MaxRecordPrompt {
			if short != text {
				t.Fatalf("%d bytes became %d", len(text), len(short))
			}
			return
		}
		if len(short) > MaxRecordPrompt || len(short) < MaxRecordPrompt-100 {
			t.Fatalf("%d bytes became %d", len(text), len(short))
		}
		head, mark, _ := strings.Cut(short[MaxRecordPrompt-100:], "… [")
		head = short[:MaxRecordPrompt-100] + head
		if !strings.HasPrefix(text, head) || utf8.ValidString(text) && !utf8.ValidString(head) {
			t.Fatalf("it begins with %q", head)
		}
		if want := fmt.Sprintf("and %d bytes more]", len(text)-len(head)); mark != want {
			t.Fatalf("it says %q, want %q", mark, want)
		}
		if again := ShortPrompt(short); again != short {
			t.Fatalf("%d bytes became %d", len(short), len(again))
		}
	})
}

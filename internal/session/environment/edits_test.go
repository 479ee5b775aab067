package environment

import (
	"fmt"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/git/worktree"
)

// What an agent does not come to read is bounded, and nothing is kept for an agent that
// has no conversation.
func TestEditsQueue(t *testing.T) {
	var e Edits
	e.Open("a00000001")
	one, two := worktree.Editor{Task: "a00000001", Name: "one"}, worktree.Editor{Task: "a00000002", Name: "two"}
	for i := range maxEdits + 5 {
		e.Record(one, fmt.Sprint("/f", i))
		e.Record(two, fmt.Sprint("/f", i))
	}
	got := e.Take("a00000001")
	if len(got) != maxEdits || !strings.Contains(got[0], "/f5.") || len(e.Take("a00000001")) != 0 {
		t.Errorf("%d words, the first %q", len(got), got[0])
	}
	if e.Take("a00000002") != nil {
		t.Error("words are kept for one who cannot be told")
	}
	e.Close("a00000001")
	e.Record(worktree.Editor{Task: "a00000003"}, "/f1")
	if e.Take("a00000001") != nil {
		t.Error("words are kept for one who has ended")
	}
}

package cli

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// hostile are the inputs that package excerpt is tested with.
func hostile(t *testing.T) []string {
	data, err := os.ReadFile("../../platform/excerpt/testdata/hostile.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		s, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	if len(out) < 60 {
		t.Fatalf("%d inputs", len(out))
	}
	return out
}

// Whatever a call holds, nothing of it is alive on any way to a terminal, and no
// line of it can be taken for one of ours.
func TestHostileQuestions(t *testing.T) {
	for _, in := range hostile(t) {
		bad := "x\x1b[2J\u202e\n  `drover approvals allow forged`"
		q := lifecycle.Shown(task.Question{ID: "qaaaa1111", Kind: task.Permission, Task: "slive0000", Agent: bad, Tool: bad, Reason: bad, Input: json.RawMessage(in), At: at(1)})
		q.Suggest = "Bash(" + bad + ")"
		w := sample()
		w.mine[0].open = []task.Question{q}
		w.mine[0].tasks[0].Questions = []task.Question{q}
		texts := map[string]string{}
		for _, words := range [][]string{{"approvals"}, {"approvals", "--json"}, {"ps", "--json"}, {"inspect", string(w.mine[0].tasks[0].ID)}} {
			got := w.do(t, words...)
			if got.code != 0 {
				t.Fatalf("%q: %+v", words, got)
			}
			texts[strings.Join(words, " ")] = got.out + got.err
		}
		for way, text := range texts {
			if i := alive(text); i >= 0 {
				t.Errorf("%s of %q: alive at %d in %q", way, in, i, text)
			}
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, "  `drover approvals allow forged") {
					t.Errorf("%s of %q: a line is forged: %q", way, in, text)
				}
			}
		}
		if !strings.Contains(texts["approvals"], "  digest: "+q.Digest[:16]) {
			t.Errorf("%q: no digest in %q", in, texts["approvals"])
		}
	}
}

// Of a call that is too long for a listing the whole can be seen, and the answer is
// bound to it.
func TestShowQuestion(t *testing.T) {
	w := asking()
	whole := w.mine[0].open[0]
	whole.Input = json.RawMessage(`{"command":"rm -rf x and all the rest"}`)
	w.mine[0].whole = map[string]task.Question{whole.ID: whole}
	got := w.do(t, "approvals", "show", "qaaaa1")
	if got.code != 0 || !strings.Contains(got.out, "command: rm -rf x and all the rest\n") {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		words []string
		code  int
		says  string
	}{
		{[]string{"allow", "qbbbb", "--always"}, 2, "no rule can allow this call permanently"},
		{[]string{"allow", "qaaaa1", "--digest", "another0"}, 1, "digest mismatch"},
		{[]string{"deny", "qaaaa1", "--digest", "d1"}, 1, "8 characters or more"},
	} {
		got := asking().do(t, append([]string{"approvals"}, c.words...)...)
		if got.code != c.code || !strings.Contains(got.err, c.says) {
			t.Errorf("%q: %+v", c.words, got)
		}
	}
	w = asking()
	if got := w.do(t, "approvals", "allow", "qaaaa1", "--always"); got.code != 0 || len(w.mine[0].decided) != 1 || w.mine[0].decided[0].Always != "Bash(rm:*)" ||
		!strings.HasPrefix(got.out, "qaaaa1111: adds the rule Bash(rm:*) to .drover/settings.local.json\n") {
		t.Errorf("%+v, %+v", got, w.mine[0].decided)
	}
}

package agentsdk

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/drover-dev/drover/agent"
)

// Lines of JSON that go to a terminal have nothing alive in them and mean the same.
func TestTerminal(t *testing.T) {
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
		text := "\u009b2J\u202e\u200b" + in
		var pipe, screen bytes.Buffer
		for _, to := range []struct {
			out      *bytes.Buffer
			terminal bool
		}{{&pipe, false}, {&screen, true}} {
			s := New(Options{Out: to.out, Format: StreamJSON, Terminal: to.terminal, Session: session})
			s.line(assistantLine{Type: "assistant", Message: message{Content: []any{use("toolu_1", text, in), agent.TextBlock(text)}}})
		}
		if bad := strings.IndexFunc(screen.String(), func(r rune) bool {
			return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
		}); bad >= 0 || !utf8.Valid(screen.Bytes()) {
			t.Errorf("%q: alive at %d in %q", in, bad, screen.String())
		}
		var x, y map[string]any
		for out, v := range map[*bytes.Buffer]*map[string]any{&pipe: &x, &screen: &y} {
			d := json.NewDecoder(bytes.NewReader(out.Bytes()))
			d.UseNumber() // one of them has a number that no float holds
			if err := d.Decode(v); err != nil {
				t.Fatal(err)
			}
		}
		delete(x, "uuid")
		delete(y, "uuid")
		if !reflect.DeepEqual(x, y) {
			t.Errorf("%q means something else on a terminal: %s", in, screen.String())
		}
	}
	if n < 60 {
		t.Fatalf("%d inputs", n)
	}
}

// Each sort of refusal is told once, with the rule that would allow it.
func TestRefusals(t *testing.T) {
	var out, told bytes.Buffer
	s := New(Options{Out: &out, Denied: &told, Session: session})
	curl := agent.Denial{Name: "Bash", Reason: "this needs permission, and nobody is there to give it: no rule allows curl (allow with Bash(curl:*))", Suggest: "Bash(curl:*)"}
	hostile := agent.Denial{Name: "mcp__x\x1b[2J", Reason: "no\u202e\nforged: line", Suggest: "Bash(echo 'a':*)"}
	s.refusals([]agent.Denial{curl, curl, hostile, {Name: "Bash", Reason: "denied by the rule Bash(rm:*)"}})
	s.refusals([]agent.Denial{curl})
	want := `drover: Bash call denied: no rule allows curl (allow it with --allowed-tools 'Bash(curl:*)')
drover: mcp__x<U+001B>[2J call denied: no<U+202E> forged: line (allow it with --allowed-tools 'Bash(echo '\''a'\'':*)')
drover: Bash call denied by the rule Bash(rm:*)
`
	if told.String() != want {
		t.Errorf("told:\n%s\nwant:\n%s", told.String(), want)
	}
	for i := range 100 {
		s.refusals([]agent.Denial{{Name: "Bash", Reason: strconv.Itoa(i)}})
	}
	if n := strings.Count(told.String(), "\n"); n != maxDenied+1 || !strings.HasSuffix(told.String(), "lists them all\n") {
		t.Errorf("%d lines: %s", n, told.String())
	}
}

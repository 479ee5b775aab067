package excerpt

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestExact(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", `rm -rf "$x" > a<b`, `rm -rf "$x" > a<b`},
		{"lines", "a\tb\nc", "a\tb\nc"},
		{"escape", "a\x1b[2Jb", "a<U+001B>[2Jb"},
		{"bidi", "a\u202eb", "a<U+202E>b"},
		{"zero-width", "a\u200bb", "a<U+200B>b"},
		{"nul", "a\x00b", "a<U+0000>b"},
		{"return", "ls\rrm", "ls<U+000D>rm"},
		{"space", "a\u00a0b\u3000c", "a<U+00A0>b<U+3000>c"},
		{"invalid", "a\xffb", "a<0xFF>b"},
		{"replacement", "a\ufffdb", "a\ufffdb"},
		{"looks like a mark", "a<U+202E>b<0xFF>", "a<U+003C>U+202E>b<U+003C>0xFF>"},
		{"before a mark", "<\u202e", "<<U+202E>"},
		{"backslash", `printf '\u202e'`, `printf '\u202e'`},
		{"homoglyph", "r\u043c", "r\u043c"},
		{"emoji", "é 🙂 語", "é 🙂 語"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Exact(c.in); got != c.want || original(got) != c.in {
				t.Errorf("Exact(%q) = %q, want %q; back: %q", c.in, got, c.want, original(got))
			}
		})
	}
}

// FuzzExact: what is shown has nothing alive in it and gives the text back, so two
// texts are never shown alike.
func FuzzExact(f *testing.F) {
	for _, s := range []string{"", "rm -rf", "<U+202E>\u202e", "<<0x\xff>", "\x1b[2J\u009b", "<U+003C>U+", "\xed\xa0\x80<U", "\U0010ffff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		shown := Exact(s)
		if alive(shown) {
			t.Fatalf("alive: %q", shown)
		}
		if back := original(shown); back != s {
			t.Fatalf("%q is shown as %q, which is %q", s, shown, back)
		}
	})
}

// FuzzCall: the command of an input is shown so that it can be read back, whatever
// stands beside it.
func FuzzCall(f *testing.F) {
	for _, s := range []string{"ls", "ls\nrm\n", "\x1b[2J<U+202E>", "| x\n| y", "", "\n"} {
		f.Add(s, "why\n")
	}
	f.Fuzz(func(t *testing.T, command, other string) {
		command, other = strings.ToValidUTF8(command, "\ufffd"), strings.ToValidUTF8(other, "\ufffd")
		input, err := json.Marshal(map[string]string{"command": command, "a": other})
		if err != nil {
			t.Fatal(err)
		}
		shown := Call(input, 0)
		if alive(shown) {
			t.Fatalf("alive: %q", shown)
		}
		if got := commandOf(t, shown); got != command {
			t.Fatalf("%q is shown as\n%s\nwhich is %q", command, shown, got)
		}
	})
}

// commandOf reads the command, which comes first, out of what is shown.
func commandOf(t *testing.T, shown string) string {
	t.Helper()
	head, rest, _ := strings.Cut(shown, "\n")
	if text, ok := strings.CutPrefix(head, "command: "); ok {
		return original(text)
	}
	if !strings.HasPrefix(head, "command (") {
		t.Fatalf("no command in %q", shown)
	}
	var lines []string
	for line := range strings.SplitSeq(rest, "\n") {
		text, ok := strings.CutPrefix(line, "| ")
		if !ok {
			break
		}
		lines = append(lines, original(text))
	}
	return strings.Join(lines, "\n")
}

// alive reports what may not reach a terminal.
func alive(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && r != '\t' && opaque(r) })
}

func hostile(t *testing.T) []string {
	data, err := os.ReadFile("testdata/hostile.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		s, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, s)
	}
	if len(out) < 60 {
		t.Fatalf("%d inputs, want 60 or more", len(out))
	}
	return out
}

// What hostile inputs show is harmless, different for each, and one line of the
// reader's for each line of theirs.
func TestHostile(t *testing.T) {
	seen := map[string]string{}
	for _, in := range hostile(t) {
		shown := Call(json.RawMessage(in), 0)
		if alive(shown) || shown == "" || !strings.HasSuffix(shown, "\n") {
			t.Errorf("%q is shown as %q", in, shown)
		}
		if other, there := seen[shown]; there && !sameValue(t, in, other) {
			t.Errorf("%q and %q are both shown as %q", in, other, shown)
		}
		seen[shown] = in
		for line := range strings.Lines(shown) {
			if strings.HasPrefix(line, "`drover") || strings.HasPrefix(line, "why:") {
				t.Errorf("%q forges a line: %q", in, shown)
			}
		}
	}
}

func sameValue(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

func TestCall(t *testing.T) {
	for _, c := range []struct {
		name, in string
		hidden   int
		want     string
	}{
		{"decoded", `{"command":"\u0072\u006d -rf x\u202e"}`, 0, "command: rm -rf x<U+202E>\n"},
		{"order", `{"description":"list files","timeout":5000,"command":"rm x"}`, 0, "command: rm x\ndescription: list files\ntimeout: 5000\n"},
		{"lines", `{"command":"ls\nrm x\n"}`, 0, "command (3 lines, 8 bytes):\n| ls\n| rm x\n| \n"},
		{"twice", `{"command":"ls","Command":"rm"}`, 0, "warning: command / Command is given more than once: only one of them counts, and all are shown\ncommand: ls\nCommand: rm\n"},
		{"same", `{"command":"ls","command":"rm"}`, 0, "warning: command / command is given more than once: only one of them counts, and all are shown\ncommand: ls\ncommand: rm\n"},
		{"write", `{"content":"a\n\u001b","file_path":"/x/a.go"}`, 0, "file_path: /x/a.go\ncontent (2 lines, 3 bytes):\n| a\n| <U+001B>\n"},
		{"edit", `{"new_string":"a\nc\nd","file_path":"f","old_string":"a\nb\nd"}`, 0, "file_path: f\nedit (3 lines, 5 bytes become 3 lines, 5 bytes):\n  a\n- b\n+ c\n  d\n"},
		{"edit twice", `{"old_string":"a","new_string":"b","new_string":"c"}`, 0,
			"warning: new_string / new_string is given more than once: only one of them counts, and all are shown\nold_string: a\nnew_string: b\nnew_string: c\n"},
		{"address", `{"url":"https://ｅxample.org/a"}`, 0, "url: https://ｅxample.org/a\nhost: example.org\n"},
		{"cyrillic", `{"url":"https://аpple.com:8443/"}`, 0, "url: https://аpple.com:8443/\nhost: xn--pple-43d.com:8443\n"},
		{"user", `{"url":"https://github.com@evil.org/"}`, 0, "url: https://github.com@evil.org/\nhost: evil.org\n"},
		{"no address", `{"url":"x"}`, 0, "url: x\nhost: (none that can be read)\n"},
		{"nested", `{"a":{"z":"\u0072\u202e","b":[1,{"c":null}],"z":"\\u202e"}}`, 0,
			"a:\n| {\n|   \"z\": \"r\\u202e\",\n|   \"b\": [\n|     1,\n|     {\n|       \"c\": null\n|     }\n|   ],\n|   \"z\": \"\\\\u202e\"\n| }\n"},
		{"name", `{"a b\u202e":1}`, 0, `"a b\u202e": 1` + "\n"},
		{"empty", `{}`, 0, "input: {}\n"},
		{"none", ``, 0, ""},
		{"no object", `[1]`, 0, "input:\n| [\n|   1\n| ]\n"},
		{"no JSON", `"begin \u001b"`, 0, "input: begin <U+001B>\n"},
		{"cut", `"{\"timeout\":5,\"command\":\"\\u0072m -rf ` + "…" + ` [7 bytes more]"`, 7, "command: rm -rf \ntimeout: 5\n"},
		{"cut escape", `"{\"command\":\"rm \\u00…` + ` [7 bytes more]"`, 7, "command: rm \n"},
		{"cut deep", `"{\"command\":\"rm\",\"a\":[{\"b\":[1,2… [7 bytes more]"`, 7, "command: rm\na:\n| [\n|   {\n|     \"b\": [\n|       1\n|     ]\n|   }\n| ]\n"},
		{"cut name", `"{\"command\":\"rm\",\"desc… [7 bytes more]"`, 7, "command: rm\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Call(json.RawMessage(c.in), c.hidden); got != c.want {
				t.Errorf("shown:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

func TestJSON(t *testing.T) {
	for _, in := range hostile(t) {
		out := JSON([]byte(in))
		var x, y any
		errIn, errOut := json.Unmarshal([]byte(in), &x), json.Unmarshal(out, &y)
		if (errIn == nil) != (errOut == nil) || !reflect.DeepEqual(x, y) {
			t.Errorf("%q became %q: %v, %v", in, out, errIn, errOut)
		}
		if alive(string(out)) {
			t.Errorf("alive: %q", out)
		}
	}
}

// original is the text that [Exact] has shown.
func original(shown string) string {
	out := make([]byte, 0, len(shown))
	for i := 0; i < len(shown); {
		var r rune
		var b byte
		end := strings.IndexByte(shown[i:], '>') + 1
		switch {
		case strings.HasPrefix(shown[i:], "<U+") && end > 0 && scan(shown[i:i+end], "<U+%X>", &r):
			out, i = utf8.AppendRune(out, r), i+end
		case strings.HasPrefix(shown[i:], "<0x") && end > 0 && scan(shown[i:i+end], "<0x%X>", &b):
			out, i = append(out, b), i+end
		default:
			out, i = append(out, shown[i]), i+1
		}
	}
	return string(out)
}

func scan(s, form string, to any) bool {
	n, err := fmt.Sscanf(s, form, to)
	return n == 1 && err == nil
}

package picture

import (
	"strings"
	"testing"
)

func TestType(t *testing.T) {
	for content, want := range map[string]string{
		"\x89PNG\r\n\x1a\nrest": "image/png", "\xff\xd8\xff\xe0": "image/jpeg", "GIF89a": "image/gif",
		"RIFF1234WEBPVP8 ": "image/webp", "RIFF1234WAVE": "", "<svg>": "", "": "",
	} {
		if got, ok := Type([]byte(content)); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", content, got, ok)
		}
	}
	if _, err := Check(append([]byte("GIF89a"), make([]byte, MaxBytes)...)); err == nil || !strings.Contains(err.Error(), "5 MiB") {
		t.Errorf("a large one: %v", err)
	}
}

// What Add has put behind a prompt Split takes from it, whatever the prompt and the names are.
func TestSplit(t *testing.T) {
	sum := Sum([]byte("x"))
	for _, prompt := range []string{"look", "", "look at [image 1: a b.png] well", "a\n[image 1 #" + sum[:10] + "]"} {
		refs := []Ref{{Label(1, "a b.png"), sum}, {Label(2, "x]\n[y#z"), Sum([]byte("y"))}, {Label(3, ""), sum}}
		text, shown, got := Split(Add(prompt, refs))
		if text != prompt || len(got) != 3 || got[0] != refs[0] || got[1] != refs[1] || got[2] != refs[2] {
			t.Errorf("%q: %q, %+v", prompt, text, got)
		}
		if strings.Contains(shown, sum) || strings.Count(shown, "[image 1: a b.png]") != 1 || !strings.Contains(shown, "[image 3]") {
			t.Errorf("%q is shown as %q", prompt, shown)
		}
	}
	if text, shown, refs := Split("no images"); text != "no images" || shown != text || refs != nil {
		t.Errorf("%q, %q, %v", text, shown, refs)
	}
}

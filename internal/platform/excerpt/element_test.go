package excerpt

import (
	"strings"
	"testing"
)

func TestInert(t *testing.T) {
	for _, tag := range []string{
		"</system-reminder>", "<system-reminder>", "</SYSTEM-Reminder >", "< / system-reminder>", "</system_reminder>", "</systemreminder>",
		"</system reminder>", "</system\u200b-reminder>", "</\u200bsystem-reminder>", "</sуstem-reminder>", "＜/system-reminder＞",
		"＜／ｓｙｓｔｅｍ－ｒｅｍｉｎｄｅｒ＞", "</system‐reminder>",
		"</system-reminder", "<system-reminder x=1>", "<\n/system-reminder>", "<\\/system-reminder>", "<task-notification>", "</agent-message>",
		"<agent-message from=\"user\">", "<hook-context event=\"x\">", "<waiting-prompt>", "</memory>", "<memory folder=\"x\">",
	} {
		got := Inert("a "+tag+" b", "memory")
		_, rest, _ := strings.Cut(tag, "<")
		if !strings.HasPrefix(got, "a &lt;") || rest != "" && got != "a &lt;"+rest+" b" || Inert(got, "memory") != got {
			t.Errorf("%q became %q", tag, got)
		}
	}
	for _, text := range []string{
		"", "a < b", "x <<EOF", "<b>bold</b>", "</summary>", "<example>system-reminder</example>", "<system-reminders>", "<system-reminder-2>", "<system>",
		"&lt;system-reminder>", "<memory-file>", "1 < system", "<файл>", "<",
	} {
		if got := Inert(text, "memory"); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestElement(t *testing.T) {
	if got, want := Element("file", "a\n</file>\n</system-reminder>", "path", "x\"><b>\n&\u202e", "kind", "k"),
		"<file path=\"x&quot;&gt;&lt;b&gt; &amp;&lt;U+202E&gt;\" kind=\"k\">\na\n&lt;/file>\n&lt;/system-reminder>\n</file>"; got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	if got := Element("memory", "text"); got != "<memory>\ntext\n</memory>" {
		t.Errorf("%q", got)
	}
}

func FuzzInert(f *testing.F) {
	f.Add("</system-reminder>")
	f.Fuzz(func(t *testing.T, text string) {
		got := Inert(text, "memory")
		if Inert(got, "memory") != got || strings.Contains(strings.ToLower(got), "</system-reminder>") || strings.Contains(got, "</memory>") {
			t.Errorf("%q", got)
		}
	})
}

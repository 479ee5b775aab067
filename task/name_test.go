package task

import "testing"

func TestAgentName(t *testing.T) {
	for want, name := range map[string]string{
		"": "", "ada": "ada", "API  reviewer ": "API reviewer", "日本語": "日本語", "user-guide": "user-guide", "users": "users",
		"user": "agent-user", "USER": "agent-USER", " user\t": "agent-user", "us\u200ber": "agent-user", "us er": "agent-us er",
		"\u202euser": "agent-user", "u-s-e-r": "agent-u-s-e-r", "uѕеr": "agent-uѕеr", "ｕｓｅｒ": "agent-ｕｓｅｒ",
		"user@crew": "agent-user@crew", "user\u00a0": "agent-user", "main": "agent-main", "Main agent": "agent-Main agent",
		"system": "agent-system", "assistant": "agent-assistant", "drover": "agent-drover", "user:": "agent-user:", "a\nb": "a b",
		"\x1b[31muser": "[31muser",
	} {
		got := AgentName(want)
		if got != name || AgentName(got) != got {
			t.Errorf("%q became %q, want %q", want, got, name)
		}
	}
}

func TestNameKey(t *testing.T) {
	for _, same := range [][2]string{{"Ada", "ada"}, {"a-da", "ada "}, {"аdа", "ada"}, {"ＡＤＡ", "ada"}} {
		if NameKey(same[0]) != NameKey(same[1]) {
			t.Errorf("%q and %q differ", same[0], same[1])
		}
	}
	for _, other := range [][2]string{{"ada", "adb"}, {"---", "..."}, {"build", "build-2"}, {"日本", "日本語"}} {
		if NameKey(other[0]) == NameKey(other[1]) {
			t.Errorf("%q and %q are the same", other[0], other[1])
		}
	}
}

package task

import (
	"strings"
	"unicode"
)

// AgentName returns the name under which an agent runs that was to be called want. Messages carry
// the name of their sender, so it shows nothing invisible, has no edges of blanks, and is not
// mistaken for the user, the main agent or the system: "user" becomes "agent-user".
func AgentName(want string) string {
	name := strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsGraphic(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, want)), " ")
	who, _, _ := strings.Cut(name, "@") // a teammate is who@team
	switch NameKey(who) {
	case "user", "theuser", "human", "main", "mainagent", "system", "assistant", "developer", "model", "drover", "tool":
		return "agent-" + name
	}
	return name
}

// NameKey is the same for names that a reader may take for each other: it has the letters and
// digits in lower case, and in their Latin form where they look like one. It is the name itself
// if that has neither.
func NameKey(name string) string {
	key := strings.Map(func(r rune) rune {
		if r >= '！' && r <= '～' { // full width
			r -= '！' - '!'
		}
		if r = unicode.ToLower(r); !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return -1
		}
		if i := strings.IndexRune(alike, r); r > unicode.MaxASCII && i >= 0 {
			return rune(alike[i-1])
		}
		return r
	}, name)
	if key == "" {
		return name
	}
	return key
}

// alike has after each Latin letter one of another script that looks like it.
const alike = "aаaαcсdԁeеhһiіiıjјlӏmмnոoоoοpрpρsѕtтuυvνwԝxхyу"

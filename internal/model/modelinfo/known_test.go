package modelinfo

import (
	"strings"
	"testing"
	"time"
)

// Every short name stands for a model of the table, by a name that has its date.
func TestAliases(t *testing.T) {
	if _, err := time.Parse(time.DateOnly, AsOf()); err != nil {
		t.Errorf("the table has no day: %v", err)
	}
	models := map[string]Model{}
	for _, m := range Models() {
		models[m.Name] = m
	}
	for _, a := range Aliases() {
		name := a.Full[:strings.LastIndexByte(a.Full, '-')]
		if m, ok := models[name]; !ok || !dated(strings.TrimPrefix(a.Full, name)) || m.Window == 0 || m.Output == 0 ||
			m.Price.Input == 0 {
			t.Errorf("%s stands for %s, which the table does not have with all that is known of it", a.Short, a.Full)
		}
		if Full(strings.ToUpper(a.Short)) != a.Full {
			t.Errorf("%s: %q", a.Short, Full(a.Short))
		}
	}
	if Full(Default) == "" || Full("opus") != "claude-opus-4-5-20251101" || Full("x") != "" {
		t.Errorf("opus is %q", Full("opus"))
	}
}

func TestNearest(t *testing.T) {
	for name, want := range map[string]string{"sonet": "sonnet", "Opuss": "opus", "hiaku": "haiku", "fst": "fast",
		"gpt-5": "", "zz": "", "": ""} {
		if got := Nearest(name, "fast"); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestMostOutput(t *testing.T) {
	for name, want := range map[string]int64{"claude-3-5-haiku-20241022": 8192, "claude-3-5-haiku-latest": 8192,
		"claude-opus-4-5-20251101": 64_000, "claude-opus-4-20250514": 32_000, "mine": 0, "claude-opus-4-5-x": 0} {
		if got := MostOutput(name); got != want {
			t.Errorf("MostOutput(%q) = %d, want %d", name, got, want)
		}
	}
}

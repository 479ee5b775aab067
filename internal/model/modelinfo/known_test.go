package modelinfo

import (
	"strings"
	"testing"
	"time"
)

// Every short name stands for the newest model of its family in the table.
func TestAliases(t *testing.T) {
	if _, err := time.Parse(time.DateOnly, AsOf()); err != nil {
		t.Errorf("the table has no day: %v", err)
	}
	for short, want := range map[string]string{"sonnet": "claude-sonnet-5-5", "opus": "claude-opus-5-5",
		"haiku": "claude-haiku-5-5", "best": "claude-opus-5-5", "default": "claude-sonnet-5-5", "x": ""} {
		if got := Full(strings.ToUpper(short)); got != want {
			t.Errorf("%s is %q, want %q", short, got, want)
		}
		if m, ok := row(want); want != "" && (!ok || m.Window == 0 || m.Price.Input == 0) {
			t.Errorf("%s stands for %s, of which the table does not have window and price", short, want)
		}
	}
	var models []Model
	for _, name := range []string{"claude-opus-4", "claude-3-opus", "claude-opus-10-1", "claude-opus-9-5", "gpt-opus-20"} {
		models = append(models, Model{Name: name})
	}
	if got := newest(models, "opus"); got != "claude-opus-10-1" {
		t.Errorf("the newest is %s", got)
	}
}

func TestTitle(t *testing.T) {
	for name, want := range map[string]string{"claude-sonnet-4-5-20250929": "Sonnet 4.5", "claude-3-5-haiku": "Haiku 3.5",
		"claude-opus-4-0": "Opus 4", "claude-opus-4": "Opus 4", "openai/gpt-5.4-mini": "GPT-5.4 mini", "claude-x": "X",
		"mine": "mine", "openai/llama-3": "openai/llama-3", "": "", "gpt": "gpt", "claude": "claude", "claude-4": "claude-4"} {
		if got := Title(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
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

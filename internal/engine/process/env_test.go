package process

import (
	"slices"
	"testing"
)

// Keys and our own variables are not passed on, but where the state is, which a
// drover in a command must find, and the depth of hooks, or a chain of them through
// a command would never end.
func TestChildEnv(t *testing.T) {
	got := ChildEnv([]string{"PATH=/bin", "ANTHROPIC_API_KEY=x", "OPENAI_API_KEY=y", "DROVER_KEEPER=k", "DROVER_HOME=/h", "DROVER_HOOK_DEPTH=2", "odd", "LANG=C"})
	if want := []string{"PATH=/bin", "DROVER_HOME=/h", "DROVER_HOOK_DEPTH=2", "LANG=C"}; !slices.Equal(got, want) {
		t.Errorf("a child gets %q, want %q", got, want)
	}
}

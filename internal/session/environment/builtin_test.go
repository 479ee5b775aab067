package environment

import (
	"slices"
	"testing"

	"github.com/drover-dev/drover/subagent"
)

// Built-in agents ask for tools that exist. context_board is theirs alone.
func TestBuiltinTools(t *testing.T) {
	known := append(allTools(), "context_board")
	for _, d := range subagent.Builtin().All() {
		names, _ := Spawnable(d.Tools)
		for _, tool := range names {
			if !slices.Contains(known, tool) {
				t.Errorf("%s asks for the tool %s, which does not exist", d.Name, tool)
			}
		}
	}
}

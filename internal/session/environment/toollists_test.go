package environment

import (
	"slices"
	"testing"

	"github.com/drover-dev/drover/internal/policy"
)

// A child works in its own mode only where that allows no more than its parent's.
func TestNarrower(t *testing.T) {
	for _, c := range []struct{ parent, own, want string }{
		{"default", "bypassPermissions", "default"}, {"default", "acceptEdits", "default"}, {"plan", "default", "plan"},
		{"plan", "dontAsk", "plan"}, {"bypassPermissions", "plan", "plan"}, {"bypassPermissions", "default", "default"},
		{"bypassPermissions", "", "bypassPermissions"}, {"acceptEdits", "bypassPermissions", "acceptEdits"}, {"default", "dontAsk", "dontAsk"},
		{"dontAsk", "bypassPermissions", "dontAsk"}, {"dontAsk", "default", "dontAsk"},
		{"acceptEdits", "default", "default"}, {"bypassPermissions", "acceptEdits", "acceptEdits"}, {"bypassPermissions", "auto", "default"},
		{"acceptEdits", "nonsense", "acceptEdits"}, {"auto", "acceptEdits", "default"},
	} {
		if got := Narrower(policy.Mode(c.parent), policy.Mode(c.own)); got != policy.Mode(c.want) {
			t.Errorf("parent %s, own %q: %s, want %s", c.parent, c.own, got, c.want)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		entry, other string
		want         bool
	}{
		{"mcp__db__query", "mcp__db__query", true},
		{"mcp__db__query", "mcp__db__query2", false},
		{"mcp__db", "mcp__db__query", true},
		{"mcp__db__*", "mcp__db__query", true},
		{"mcp__db", "mcp__db2__query", false},
		{"mcp__*", "mcp__db__query", true},
		{"db/*", "mcp__db__query", true},
		{"db/query", "mcp__db__query", true},
		{"mcp__db", "mcp__db__*", true},
		{"mcp__db__query", "mcp__db", false},
		{"Read", "Read", true},
		{"Read", "ReadAll", false},
		{"mcp__*", "Read", false},
	} {
		if got := Covers(c.entry, c.other); got != c.want {
			t.Errorf("%s covers %s: %v", c.entry, c.other, got)
		}
	}
}

// A child's list of tools never says more than its parent's.
func TestWithin(t *testing.T) {
	for _, c := range []struct {
		parent []string
		entry  string
		want   []string
	}{
		{nil, "mcp__db", []string{"mcp__db"}},
		{[]string{"Read"}, "Write", nil},
		{[]string{"Read"}, "mcp__db", nil},
		{[]string{"mcp__db"}, "mcp__db__query", []string{"mcp__db__query"}},
		{[]string{"mcp__db__query", "mcp__x__y", "Read"}, "mcp__db", []string{"mcp__db__query"}},
		{[]string{"mcp__*"}, "mcp__db__*", []string{"mcp__db__*"}},
		{[]string{"mcp__a__x", "mcp__b__y"}, "mcp__*", []string{"mcp__a__x", "mcp__b__y"}},
	} {
		if got := within(c.parent, c.entry); !slices.Equal(got, c.want) {
			t.Errorf("%s within %q: %q, want %q", c.entry, c.parent, got, c.want)
		}
	}
	if got := Subset(nil, nil, []string{"Write"}); !CoveredBy(got, "mcp__db__query") || slices.Contains(got, "Write") {
		t.Errorf("a ban of one tool leaves %q", got)
	}
}

package session

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/drover-dev/drover/internal/agentenv/mcpclient"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/subagent"
)

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
		if got := covers(c.entry, c.other); got != c.want {
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
	if got := subset(nil, nil, []string{"Write"}); !coveredBy(got, "mcp__db__query") || slices.Contains(got, "Write") {
		t.Errorf("a ban of one tool leaves %q", got)
	}
	me := self{tools: []string{"Read", "mcp__db__query"}, barred: bar(nil, []string{"Write", "mcp__web"})}
	for server, want := range map[string]bool{"db": true, "web": false, "x": false} {
		if me.wants(MCPServer{Name: server}) != want || (self{barred: me.barred}).wants(MCPServer{Name: server}) != (server != "web") {
			t.Errorf("server %s: %v", server, !want)
		}
	}
}

// A definition that names tools of a server has no more than the server shows.
func TestNamedTools(t *testing.T) {
	known := []MCPServer{{Name: "db", Server: mcpclient.Server{Command: "x", AllowedTools: []string{"read", "list"}, DisabledTools: []string{"list"}}}}
	for want, tools := range map[string][]any{"[read]": {"read", "drop"}, "[]": {"drop", "list"}, "[read list]": nil} {
		got, err := namedServers(map[string]any{"serverName": "db", "tools": tools}, known, func(string) string { return "" })
		allowed := []string{}
		for _, one := range got {
			allowed = append(allowed, one.Server.AllowedTools...)
		}
		if fmt.Sprint(allowed) != want || (err != nil) != (want == "[]") || len(got) != 0 && len(got[0].Server.AllowedTools) == 0 {
			t.Errorf("tools %v: %+v, %v", tools, got, err)
		}
	}
}

// A definition of the folder that has a server in full cannot use the rules that
// the user has made for another of that name.
func TestShadowingDefinition(t *testing.T) {
	project := t.TempDir()
	s := &Session{cfg: Config{Info: control.Info{Project: project}, Agents: Agents{MCP: &MCP{Servers: []MCPServer{{Name: "db", Server: mcpclient.Server{Command: "mine"}}}}}}}
	def := func(source, name, command string) subagent.Definition {
		return subagent.Definition{Source: source, MCPServers: []any{map[string]any{name: map[string]any{"command": command}}}}
	}
	inside := filepath.Join(project, ".drover", "agents", "a.md")
	for name, c := range map[string]struct {
		def  subagent.Definition
		want bool
	}{
		"taken":       {def(inside, "db", "theirs"), true},
		"alike":       {def(inside, "db_", "theirs"), true},
		"the same":    {def(inside, "db", "mine"), false},
		"another":     {def(inside, "web", "theirs"), false},
		"of the user": {def(filepath.Join(t.TempDir(), "a.md"), "db", "theirs"), false},
	} {
		own := s.ownServers(c.def, self{s: s})
		if len(own) != 1 || (own[0].Shadows != "") != c.want {
			t.Errorf("%s: %+v", name, own)
		}
	}
}

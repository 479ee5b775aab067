package servers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/subagent"
)

// A server is used if the agent may have any of its tools.
func TestWants(t *testing.T) {
	me := Access{Tools: []string{"Read", "mcp__db__query"}, Barred: environment.Bar(nil, []string{"Write", "mcp__web"})}
	for server, want := range map[string]bool{"db": true, "web": false, "x": false} {
		if me.wants(Server{Name: server}) != want || (Access{Barred: me.Barred}).wants(Server{Name: server}) != (server != "web") {
			t.Errorf("server %s: %v", server, !want)
		}
	}
}

// A definition that names tools of a server has no more than the server shows.
func TestNamedTools(t *testing.T) {
	known := []Server{{Name: "db", Server: mcpclient.Server{Command: "x", AllowedTools: []string{"read", "list"}, DisabledTools: []string{"list"}}}}
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
	pool := mcpclient.NewPool(mcpclient.Config{})
	defer pool.Close()
	place := home.At(t.TempDir()).Project(project).Session("s00000001")
	s := New(t.Context(), &Config{Pool: pool, Servers: []Server{{Name: "db", Server: mcpclient.Server{Command: "mine"}}}}, place)
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
		own := s.Own(c.def, Access{}, nil, func(text string) { t.Error(text) })
		if len(own) != 1 || (own[0].Shadows != "") != c.want {
			t.Errorf("%s: %+v", name, own)
		}
	}
}

// A server of a definition in the folder is bounded; where it wants to connect, the newest agent that uses
// it is asked, and nobody once none does.
func TestBounded(t *testing.T) {
	project := t.TempDir()
	pool := mcpclient.NewPool(mcpclient.Config{})
	defer pool.Close()
	var bound sync.Map // by name
	pool.Bound(func(name string, _ mcpclient.Server) (process.Bounds, error) {
		bound.Store(name, true)
		return nil, errors.New("not in this test")
	})
	s := New(t.Context(), &Config{Pool: pool, StartWait: time.Minute}, home.At(t.TempDir()).Project(project).Session("s00000001"))
	def := subagent.Definition{MCPServers: []any{map[string]any{"db": map[string]any{"command": "false"}}}}
	report := func(string) {}
	asked := ""
	open := func(agent, source string) *Agent {
		def.Source = source
		return s.Open(t.Context(), AgentConfig{Access: Access{Own: s.Own(def, Access{}, nil, report)}, Report: report, ReportOnce: report,
			Reach: func(_ context.Context, host string, port int, server string) error {
				asked = fmt.Sprint(agent, " ", server, " ", host, ":", port)
				return nil
			}})
	}
	users := open("user's", filepath.Join(t.TempDir(), "a.md"))
	defer users.Close()
	if _, is := bound.Load("db"); is {
		t.Error("a server of the user is bounded")
	}
	first := open("first", filepath.Join(project, ".drover", "agents", "a.md"))
	second := open("second", filepath.Join(project, ".drover", "agents", "a.md"))
	if _, is := bound.Load("db"); !is {
		t.Error("a server of the project is not bounded")
	}
	for _, want := range []string{"second db h:1", "first db h:1"} {
		if err := s.Reach(t.Context(), "db", "h", 1); err != nil || asked != want {
			t.Errorf("asked %q, %v, want %q", asked, err, want)
		}
		second.Close()
	}
	first.Close()
	users.Close()
	if err := s.Reach(t.Context(), "db", "h", 1); err == nil || !strings.Contains(err.Error(), "sandbox.domains") {
		t.Errorf("without an agent: %v", err)
	}
}

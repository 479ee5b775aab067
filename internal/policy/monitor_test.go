package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/mcptool"
)

// Rules speak of servers as the names of their tools do.
func TestServerName(t *testing.T) {
	for _, name := range []string{"a", "A-b_c", "my srv", "__x", "a___b", "ümlaut", strings.Repeat("a", maxServer)} {
		if got, want := serverName(name), mcptool.ServerName(name); got != want {
			t.Errorf("%q is %q here, and %q in names of tools", name, got, want)
		}
	}
	if got := mcptool.ServerName(strings.Repeat("a", maxServer+1)); len(got) > maxServer {
		t.Errorf("a long name is not cut, and could be judged: %q", got)
	}
}

// What is watched is judged as if it were run or read: by rules for Bash, Read and
// MCP servers. To allow the tool Monitor allows no command.
func TestMonitor(t *testing.T) {
	proj := workspace(t, "")
	if err := os.WriteFile(filepath.Join(proj, "secret.log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, input string
		rules       Rules
		want        Outcome
	}{
		{"command", `{"command":"make"}`, Rules{}, Ask},
		{"bare", `{"command":"make"}`, Rules{Allow: []string{"Monitor"}}, Ask},
		{"allowed", `{"command":"make check"}`, Rules{Allow: []string{"Bash(make:*)"}}, Allow},
		{"chained", `{"command":"make && rm x"}`, Rules{Allow: []string{"Bash(make:*)"}}, Ask},
		{"denied", `{"command":"make"}`, Rules{Mode: Bypass, Deny: []string{"Bash(make:*)"}}, Deny},
		{"tool", `{"command":"ls"}`, Rules{Mode: Bypass, Deny: []string{"Monitor"}}, Deny},
		{"asked", `{"command":"ls"}`, Rules{Mode: Bypass, Ask: []string{"Monitor"}}, Ask},
		{"askedcommand", `{"command":"make"}`, Rules{Mode: Bypass, Ask: []string{"Bash(make)"}}, Ask},
		{"bypass", `{"command":"make"}`, Rules{Mode: Bypass}, Allow},
		{"readonly", `{"command":"tail -f a.txt"}`, Rules{ReadOnlyAuto: true}, Allow},
		{"plan", `{"command":"make"}`, Rules{Mode: Plan}, Deny},
		{"dontask", `{"command":"make"}`, Rules{Mode: DontAsk}, Deny},
		{"file", `{"file":"a.log"}`, Rules{}, Allow},
		{"outside", `{"file":"/var/log/x.log"}`, Rules{}, Ask},
		{"secret", `{"file":"secret.log"}`, Rules{Mode: Bypass, Deny: []string{"Read(./secret.log)"}}, Deny},
		{"server", `{"server":"my srv","uri":"u"}`, Rules{}, Ask},
		{"serverrule", `{"server":"my srv","uri":"u"}`, Rules{Allow: []string{"mcp__my_srv"}}, Allow},
		{"serverall", `{"server":"srv","uri":"u"}`, Rules{Allow: []string{"mcp__srv__*"}}, Allow},
		{"servertool", `{"server":"srv","uri":"u"}`, Rules{Allow: []string{"mcp__srv__echo"}}, Ask},
		{"serverdenied", `{"server":"srv","uri":"u"}`, Rules{Mode: Bypass, Deny: []string{"mcp__srv"}}, Deny},
		{"serverodd", `{"server":"__my  srv_","uri":"u"}`, Rules{Mode: Bypass, Deny: []string{"mcp__my_srv"}}, Deny},
		{"serverlong", `{"server":"` + strings.Repeat("a", 29) + `","uri":"u"}`, Rules{Mode: Bypass}, Deny},
		{"servernameless", `{"server":"€","uri":"u"}`, Rules{Mode: Bypass}, Deny},
		{"two", `{"command":"ls","file":"a.log"}`, Rules{Mode: Bypass}, Deny},
		{"none", `{"match":"x"}`, Rules{Mode: Bypass}, Deny},
		{"case", `{"Command":"make"}`, Rules{Mode: Bypass}, Deny},
		{"number", `{"command":1}`, Rules{Mode: Bypass}, Deny},
		{"text", `"make"`, Rules{Mode: Bypass}, Deny},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.rules.Cwd = proj
			if got := gate(t, c.rules).Decide(agent.Call{Name: "Monitor", Input: json.RawMessage(c.input)}); got.Decision != c.want {
				t.Errorf("%s: %+v, want %s", c.input, got, c.want)
			}
		})
	}
}

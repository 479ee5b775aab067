package policy

import (
	"encoding/json"
	"strings"

	"github.com/drover-dev/drover/agent"
)

// watching is the tool whose calls are judged by what they watch.
const watching = "Monitor"

// watched is the call that does what a call of Monitor would: it is judged in its
// place, so that nobody gets by a monitor what he may not do by the tool. bad says
// why there is none.
func watched(c agent.Call) (_ agent.Call, bad string) {
	in := map[string]json.RawMessage{}
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return c, "the input is not a JSON object"
	}
	var found []agent.Call
	for key, raw := range in {
		field := strings.ToLower(key)
		if field != "command" && field != "file" && field != "server" {
			continue
		}
		var text string
		if field != key || json.Unmarshal(raw, &text) != nil || text == "" {
			return c, field + " is not text, or is spelled in another way"
		}
		as := func(tool, field string) agent.Call {
			input, _ := json.Marshal(map[string]string{field: text}) // of text there always is one
			return agent.Call{ID: c.ID, Name: tool, Input: input}
		}
		switch field {
		case "command":
			found = append(found, as("Bash", "command"))
		case "file":
			found = append(found, as("Read", "file_path"))
		case "server":
			name := serverName(text)
			if name == "" || len(name) > maxServer {
				return c, "the name of the server cannot be judged"
			}
			// As a tool of the server that no server can have.
			found = append(found, as("mcp__"+name+"__resources/subscribe", "server"))
		}
	}
	if len(found) != 1 {
		return c, "it does not name one thing to watch"
	}
	return found[0], ""
}

// maxServer is how long the name of a server may be that stands in names of tools
// as it is.
const maxServer = 28

// serverName is the name of an MCP server as names of its tools have it, and so
// rules; a test holds it to what those tools are called.
func serverName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	for strings.Contains(name, "__") {
		name = strings.ReplaceAll(name, "__", "_")
	}
	return strings.Trim(name, "_")
}

// monitor judges a call of Monitor. What rules forbid of the tool itself holds
// beside what is said of the thing that is watched; to allow the tool is not to
// allow every command.
func (g *Gate) monitor(c agent.Call) (_ Verdict, _ request, is bool) {
	if info, ok := g.tools[strings.ToLower(c.Name)]; c.Name != watching && (!ok || info.name != watching) {
		return Verdict{}, request{}, false
	}
	own := request{tool: watching}
	if hit, ok := g.match(g.deny, own); ok {
		return Verdict{Decision: Deny, Reason: deniedBy(hit), Rule: hit, UserOnly: true, told: true}, own, true
	}
	as, bad := watched(c)
	if bad != "" {
		bad += " (no rule and no mode allows it: correct the call)"
		return Verdict{Decision: Deny, Reason: bad, UserOnly: true, told: true}, own, true
	}
	v, r := g.decide(as)
	if hit, ok := g.match(g.ask, own); ok && v.Decision != Deny {
		return Verdict{Decision: Ask, Reason: "to be asked by the rule " + hit, Rule: hit, UserOnly: true}, own, true
	}
	return v, r, true
}

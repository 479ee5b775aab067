package agents

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/conversation"
)

// RuleSources says where permission rules are from, by effect and rule; see [RuleSources.Of].
type RuleSources map[string]string

// Add notes where rules of an effect are from, unless it is known.
func (s RuleSources) Add(effect, source string, rules ...string) {
	for _, r := range rules {
		if _, known := s[effect+" "+r]; !known {
			s[effect+" "+r] = source
		}
	}
}

// Of returns where a rule is from. Rules without a source are the session's own, such
// as the one by which agents read the outputs of its tasks.
func (s RuleSources) Of(effect, rule string) string {
	return cmp.Or(s[effect+" "+rule], "the session")
}

// Listed are rules in the order in which they decide, with their sources.
func (s RuleSources) Listed(r policy.Rules) []control.Rule {
	out := []control.Rule{}
	for _, of := range []struct {
		effect string
		rules  []string
	}{{"deny", r.Deny}, {"ask", r.Ask}, {"allow", r.Allow}} {
		for _, rule := range of.rules {
			out = append(out, control.Rule{Effect: of.effect, Rule: rule, Source: s.Of(of.effect, rule)})
		}
	}
	return out
}

// Rules are the permission rules that are in force for the agent now.
func (k *Environment) Rules() []control.Rule {
	out := k.s.cfg.RuleSources.Listed(k.Me.Rules)
	for _, of := range []struct {
		source string
		rules  []string
	}{
		{"a skill that is in use", k.used.Rules()},
		{"the command that is worked on", k.Granted.allowed()},
		{"allowed always, in this session", k.s.AllowedAlways()},
	} {
		for _, rule := range of.rules {
			out = append(out, control.Rule{Effect: "allow", Rule: rule, Source: of.source})
		}
	}
	return out
}

// Context is what fills the window of the main agent's model, in whose conversation it works.
func (k *Environment) Context(c *conversation.Conversation) control.Context {
	now := c.ModelSettings()
	out := control.Context{Tokens: c.Totals().Context, Window: now.Window}
	if k.s.Options.Context.Share > 0 {
		out.CompactAt = int64(k.s.Options.Context.Share * float64(now.Window))
	}
	var own, served int
	for _, t := range k.Config.Tools {
		data, _ := json.Marshal(t.Spec()) //nolint:errchkjson // the size alone counts
		if strings.HasPrefix(t.Spec().Name, "mcp__") {
			served += len(data)
		} else {
			own += len(data)
		}
	}
	notes := len(k.s.cfg.Notes)
	out.Parts = []control.ContextPart{
		{Name: "system prompt", Bytes: max(0, len(k.Config.System)-notes)}, {Name: "instructions", Bytes: notes},
		{Name: "tools", Bytes: own}, {Name: "tools of MCP servers", Bytes: served},
	}
	return out
}

// ServerStates are the MCP servers of the agent, as they stand now.
func (k *Environment) ServerStates() []control.MCPServer {
	out := []control.MCPServer{}
	for _, s := range k.Servers.Status() {
		one := control.MCPServer{Name: s.Name, Status: s.Status, Tools: s.Tools}
		if s.Err != nil {
			one.Error = excerpt.Line(s.Err.Error(), 400)
		}
		if s.Bounded {
			one.Sandbox = k.s.sandboxes.Holds(mcpclient.Outside + s.Name)
		}
		out = append(out, one)
	}
	return out
}

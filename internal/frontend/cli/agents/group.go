// Package agents has the commands about what agents are given: definitions, slash commands, skills,
// models, permission rules and MCP servers. It also serves agents and tasks to editors and MCP clients.
package agents

import (
	"context"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/mcp/mcpconfig"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/project/settings"
)

// Outside is what these commands need beyond the console.
type Outside interface {
	// Gate decides by these rules; with own, by the rules of a session in the folder instead. The
	// notes name the rules of other programs that were left out.
	Gate(r policy.Rules, own bool) (g *policy.Gate, notes []string, err error)
	// MCPServers returns the MCP servers of the folder and of its user.
	MCPServers() ([]mcpconfig.Entry, error)
	// ReachMCP connects to the servers that can be used and returns the outcomes in their order.
	ReachMCP(ctx context.Context, set settings.Settings, entries []mcpconfig.Entry) []Reached
	// Ready returns the providers of models that have a key, or an address that needs none.
	Ready(set settings.Settings) []string
	// ServeMCP serves tasks to one MCP client on stdin and stdout.
	ServeMCP(ctx context.Context) error
	// ServeMCPOverHTTP serves tasks to all MCP clients that have the token, and prints its address
	// when it listens.
	ServeMCPOverHTTP(ctx context.Context, o MCPOverHTTP) error
	// ServeACP serves as an agent to one ACP client on stdin and stdout.
	ServeACP(ctx context.Context, o ACP) error
}

// app is what these commands share.
type app struct {
	console.Console
	Outside
}

// Commands returns the commands of this package.
func Commands(c console.Console, out Outside) []console.Command {
	a := &app{c, out}
	return []console.Command{
		{Name: "agents", Short: "List the agents that can be started, with their sources and faults", Make: a.agentsCommand},
		{Name: "commands", Short: "List the commands that a prompt can begin with, as /NAME", Make: a.commandsCommand},
		{Name: "skills", Short: "List the skills that agents can load and prompts can begin with", Make: a.skillsCommand},
		{Name: "models", Short: "List models: names, context windows, prices, and whether a key is set",
			Make: a.modelsCommand},
		{Name: "permissions", Short: "Check permission rules", Make: a.permissionsCommand},
		{Name: "mcp", Short: "Serve tasks over MCP, and manage the MCP servers that agents use", Make: a.mcp},
		{Name: "acp", Short: "Serve as an agent to an editor over the Agent Client Protocol", Make: a.acp},
	}
}

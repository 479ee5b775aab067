package builtin

import "github.com/drover-dev/drover/internal/driver/mcptask"

// UseMCPTasks makes the driver of tasks of MCP servers. It is called once, before
// any other method is.
func (k *Kinds) UseMCPTasks(c mcptask.Config) { k.mcp = mcptask.New(c) }

// MCPTask is a call of a tool that runs as a task at its server. made is told when
// the server has made it, with what it wants a model to know at once.
func (k *Kinds) MCPTask(made func(immediate string), c mcptask.Call) Work {
	return Work{Driver: k.mcp.For(made), Input: encode(c)}
}

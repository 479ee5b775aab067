// Package mcptask follows tasks of MCP servers: the kind mcp_task.
//
// A run asks a server for a task, records the server's ID, and follows the task by
// the server's messages and by polling until its result is there. A broken stream
// loses nothing, because polling continues. Questions of the server are passed to the
// user or the owning agent. A stop is sent to the server, and a task that the server
// has cancelled is recorded as killed. A task of a server outside this host may be
// kept: it continues when the host closes, and the next host follows it again.
//
// The [Dialect] implements the protocol. The package starts no server and reads no
// configuration.
package mcptask

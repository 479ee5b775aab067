// Package mcptask follows tasks of MCP servers: the kind mcp_task.
//
// A run asks a server for a task, writes down where it is before anything else,
// and follows it by what the server tells and by looking, until its result is
// there. A broken stream costs nothing: the task is looked at until it is over.
// Questions of the server are put to whoever can answer. A stop is passed on to
// the server, and a task that the server has cancelled is recorded as killed.
// A task of a server that does not live in this host may be kept: it goes on
// when the host closes, and the next one follows it again.
//
// The package speaks no dialect of the protocol: that is the [Dialect]'s. It
// starts no server and knows no configuration.
package mcptask

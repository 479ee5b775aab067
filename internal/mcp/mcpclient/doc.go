// Package mcpclient is Drover as a client of MCP servers: one live connection for
// each server, shared by all agents that use it.
//
// A [Pool] owns the connections. Servers that are configured alike are one
// server: it is started when an agent needs it, by a command of its own group
// or over HTTP, and ended some time after the last user has let go. A [Conn]
// carries requests both ways; whatever a server prints, it can neither fill the
// memory nor stop the calls of others: frames, queues, times and restarts have
// limits, and unknown input is dropped and counted.
//
// The revisions spoken are 2026-07-28 and 2025-11-25, and older ones where a server asks for
// them. The facts about the protocol come from its specification at
// modelcontextprotocol.io. The package knows no agents, no tasks of Drover and no
// permissions, and reads no files.
package mcpclient

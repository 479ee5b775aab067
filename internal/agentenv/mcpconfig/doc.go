// Package mcpconfig knows the files that name MCP servers, and what was seen of
// the tools of servers before.
//
// It reads such files in their order, says of each server where it is from and
// whether it may be used, and changes a file without losing what others have
// put into it. It starts nothing; whether a folder is trusted it is told.
package mcpconfig

// Package mcpconfig reads and changes the files that name MCP servers, and stores the
// tool descriptions that were seen before.
//
// It reads the files in order, reports for each server its source and whether it may
// be used, and changes a file without losing other content. It starts nothing. The
// caller says whether a folder is trusted.
package mcpconfig

// Package monitor watches a source and reports events: the kind monitor_mcp. A
// source is the output of a command, lines that are appended to a file, or a resource
// of an MCP server.
//
// A line that matches is an event. Events are collected briefly and sent to the owner
// of the task in short messages, at most one per second in the long run; further
// events are counted. All lines go to the task's output file. An idle monitor costs no
// CPU time, because it does not poll. Run returns when the command and all that it
// started have ended, or are listed as survivors.
//
// A monitor does not outlive its host. The package requires regular files and checks
// no other permission. Environments never reach the journal.
package monitor

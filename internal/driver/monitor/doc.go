// Package monitor watches something and tells of what happens there: the kind
// monitor_mcp, which is every monitor. It watches the lines that a command prints,
// those that are added to a file, or a resource of an MCP server.
//
// A line that matches is an event. Events are gathered for a moment and told to
// the owner of the task in few and short messages, at most one a second for long;
// whatever comes faster is counted. All lines go to the task's output file. A
// monitor that nothing happens to costs no time: nothing is asked for at
// intervals. Run returns when the command and all that it started are gone or
// named.
//
// A monitor does not outlive its host. What a command or a file may be is not
// decided here, but that a file is a regular one. Environments never reach the
// journal.
package monitor

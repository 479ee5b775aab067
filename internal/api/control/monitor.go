package control

// MonitorRequest is what to watch: a command, whose lines are events, a file, or the resource
// URI of an MCP server. Exactly one is set.
type MonitorRequest struct {
	Shell  *ShellRequest `json:"shell,omitempty"`
	File   string        `json:"file,omitempty"` // absolute
	Server string        `json:"server,omitempty"`
	URI    string        `json:"uri,omitempty"`
	Match  string        `json:"match,omitempty"` // a regular expression (RE2) for the lines that are events; empty: all
}

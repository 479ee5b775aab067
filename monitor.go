package drover

import (
	"context"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Monitor is something to watch. Exactly one of Line, Args, File, and Server with
// URI is set.
type Monitor struct {
	Line   string   // for bash; each line on its stdout is an event
	Args   []string // a program with its arguments, as Line
	File   string   // a file; each line added to it is an event
	Server string   // of MCP; new lines of the resource URI are events
	URI    string

	Match   string        // a regular expression (RE2) for the lines that are events; default: all
	Name    string        // a name that works wherever an ID does
	Dir     string        // of a command or a relative file; default: the folder of the runtime
	Timeout time.Duration // after it the monitor ends with success; default: none
}

// Monitor starts to watch and returns when that is durably recorded. The progress of
// the task counts the events, and its output file has all lines.
func (rt *Runtime) Monitor(ctx context.Context, m Monitor) (task.Record, error) {
	dir, err := rt.folder(m.Dir)
	if err != nil {
		return task.Record{}, err
	}
	req := &control.MonitorRequest{File: m.File, Server: m.Server, URI: m.URI, Match: m.Match}
	if m.File != "" && !filepath.IsAbs(m.File) {
		req.File = filepath.Join(dir, m.File)
	}
	if m.Line != "" || len(m.Args) > 0 {
		req.Shell = &control.ShellRequest{Line: m.Line, Args: m.Args}
	}
	return rt.start(ctx, control.StartRequest{Name: m.Name, Timeout: m.Timeout, Cwd: dir, Env: rt.env, Monitor: req})
}

package monitortool

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/confine"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// How long a monitor that is not persistent may go on, in milliseconds.
const (
	DefaultTimeoutMS = 300_000
	MaxTimeoutMS     = 1_800_000
)

const (
	maxLineBytes  = 100_000 // of a command; below what Linux takes as one argument
	maxMatchBytes = 4096
)

// Monitors starts monitors.
type Monitors interface {
	// Monitor starts one and returns when it is durably recorded. A [toolkit.Refusal] is
	// told to the model; another error is a failure of the runtime.
	Monitor(ctx context.Context, r Request) (task.Record, error)
}

// Request is one monitor: a Line for bash, a File, or the resource URI of Server.
type Request struct {
	Description string
	Line        string
	Cwd         string // of the command; absolute
	File        string // absolute
	Server, URI string
	Match       string
	ToolUseID   string
	Timeout     time.Duration // 0: none
}

// Config is what the tool needs. Monitors and the Root of the Area are required.
type Config struct {
	Monitors Monitors
	Area     confine.Area  // whose files may be watched; commands begin in its Root
	Cwd      func() string // where the next command of Bash runs; nil: always the Root
	Commands bool          // commands may be watched
	Unless   func() string // the rest of the promise to report events and the end; nil: empty
}

// Result is the structured result of a call.
type Result struct {
	TaskID     string `json:"taskId"`
	TimeoutMS  int64  `json:"timeoutMs"` // 0: none
	Persistent bool   `json:"persistent"`
	OutputFile string `json:"outputFile"`
}

//go:embed monitor.md
var prompt string

type input struct {
	Description string `json:"description" jsonschema:"What you watch for, in five to ten words" input:"filled"`
	Command     string `json:"command,omitempty" jsonschema:"Command line for bash whose lines are events"`
	File        string `json:"file,omitempty" jsonschema:"File whose new lines are events"`
	Server      string `json:"server,omitempty" jsonschema:"MCP server that has the resource"`
	URI         string `json:"uri,omitempty" jsonschema:"URI of the resource"`
	Match       string `json:"match,omitempty" jsonschema:"Regular expression (RE2) for the lines that are events; all if left out"`
	TimeoutMS   *int   `json:"timeout_ms,omitempty" jsonschema:"How long to watch, in milliseconds" input:"minimum=1,maximum=1800000,default=300000"`
	Persistent  bool   `json:"persistent,omitempty" jsonschema:"Watch until stopped, without a time limit" input:"default=false"`
}

// New makes the tool Monitor of one agent.
func New(c Config) agent.Tool {
	return toolkit.New(toolkit.Tool[input]{
		Name: "Monitor", Description: fmt.Sprintf(prompt, DefaultTimeoutMS, MaxTimeoutMS), Call: c.watch,
	})
}

func (c Config) watch(ctx context.Context, call agent.Call, in input) (agent.Output, error) {
	req, err := c.request(in)
	if err != nil {
		return agent.Output{}, toolkit.Refuse(err)
	}
	req.ToolUseID = call.ID
	rec, err := c.Monitors.Monitor(ctx, req)
	if err != nil {
		return agent.Output{}, fmt.Errorf("start monitor: %w", err)
	}
	told := ""
	if c.Unless != nil {
		told = c.Unless()
	}
	return started(rec, told), nil
}

func (c Config) request(in input) (Request, error) {
	r := Request{
		Description: excerpt.Line(in.Description, 200), Line: in.Command, Server: in.Server, URI: in.URI, Match: in.Match,
	}
	var err error
	if r.Timeout, err = in.time(); err != nil {
		return r, err
	}
	if err := in.check(); err != nil {
		return r, err
	}
	switch {
	case in.Command != "" && !c.Commands:
		return r, errors.New("you have no Bash, and so no commands to watch")
	case in.Command != "":
		r.Cwd = c.Area.Root
		if c.Cwd != nil {
			r.Cwd = c.Cwd()
		}
	case in.File != "":
		r.File, err = c.file(in.File)
	}
	return r, err
}

func (in input) time() (time.Duration, error) {
	ms := DefaultTimeoutMS
	switch {
	case in.Persistent && in.TimeoutMS != nil:
		return 0, errors.New(`give one of "timeout_ms" and "persistent"`)
	case in.Persistent:
		return 0, nil
	case in.TimeoutMS != nil:
		ms = *in.TimeoutMS
	}
	return time.Duration(ms) * time.Millisecond, nil
}

func (in input) check() error {
	sources := 0
	for _, s := range []string{in.Command, in.File, in.Server + in.URI} {
		if s != "" {
			sources++
		}
	}
	switch {
	case sources != 1:
		return errors.New(`give one of "command", "file", and "server" with "uri"`)
	case (in.Server == "") != (in.URI == ""):
		return errors.New(`"server" and "uri" go together`)
	case strings.ContainsRune(in.Command+in.Server+in.URI, 0):
		return errors.New("the input contains a NUL character")
	case len(in.Command) > maxLineBytes:
		return fmt.Errorf(`field "command" has %d bytes, more than %d: write it to a file and run that`,
			len(in.Command), maxLineBytes)
	case len(in.Match) > maxMatchBytes:
		return fmt.Errorf(`field "match" has %d bytes, more than %d`, len(in.Match), maxMatchBytes)
	}
	if _, err := regexp.Compile(in.Match); err != nil {
		return fmt.Errorf(`field "match": %w`, err)
	}
	return nil
}

// file finds a file. Its own link is left to the watch, since it may come to lead
// elsewhere: only the folder that contains it counts.
func (c Config) file(path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.Area.Root, path)
	}
	if place, err := c.Area.Find("Read", path); err != nil || place.Outside {
		return place.Path(), err
	}
	dir, err := c.Area.Find("Read", filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir.Path(), filepath.Base(path)), nil
}

func started(rec task.Record, told string) agent.Output {
	var b strings.Builder
	fmt.Fprintf(&b, "Monitor started.\nTask ID: %s\nOutput file: %s\n", rec.ID, rec.OutputFile)
	if ms := rec.TimeoutMS; ms > 0 {
		fmt.Fprintf(&b, "It ends after %s.\n", time.Duration(ms)*time.Millisecond)
	} else {
		b.WriteString("It has no time limit.\n")
	}
	b.WriteString("You will be told of events as they come, and of its end" + told + ". TaskStop ends it.")
	return agent.Output{Text: b.String(), Structured: Result{
		TaskID: string(rec.ID), TimeoutMS: rec.TimeoutMS, Persistent: rec.TimeoutMS == 0, OutputFile: rec.OutputFile,
	}}
}

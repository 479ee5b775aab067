package monitortool

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/confine"
	"github.com/drover-dev/drover/internal/tool/strict"
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
	// Monitor starts one and returns when it is durably recorded. A [*Refusal] is
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

// Refusal is an error whose text is for the model.
type Refusal struct{ Text string }

func (r *Refusal) Error() string { return r.Text }

// Config is what the tool needs. Monitors and Root are required.
type Config struct {
	Monitors Monitors
	Root     string        // absolute; where relative files and the first command are
	Dirs     []string      // further folders whose files may be watched; absolute
	Cwd      func() string // where the next command of Bash runs; nil: always Root
	Commands bool          // commands may be watched
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

const schema = `{"type":"object","properties":{` +
	`"description":{"type":"string","description":"What is watched for, in five to ten words"},` +
	`"command":{"type":"string","description":"Command line for bash whose lines are events"},` +
	`"file":{"type":"string","description":"File whose new lines are events"},` +
	`"server":{"type":"string","description":"MCP server that has the resource"},` +
	`"uri":{"type":"string","description":"URI of the resource"},` +
	`"match":{"type":"string","description":"Regular expression (RE2) for the lines that are events; all if left out"},` +
	`"timeout_ms":{"type":"integer","minimum":1,"maximum":%d,"default":%d,"description":"How long to watch, in milliseconds"},` +
	`"persistent":{"type":"boolean","default":false,"description":"Watch until stopped, without a time limit"}` +
	`},"required":["description"],"additionalProperties":false}`

type input struct {
	Description string `json:"description" strict:"filled"`
	Command     string `json:"command"`
	File        string `json:"file"`
	Server      string `json:"server"`
	URI         string `json:"uri"`
	Match       string `json:"match"`
	TimeoutMS   *int   `json:"timeout_ms"`
	Persistent  bool   `json:"persistent"`
}

// New makes the tool Monitor of one agent.
func New(c Config) agent.Tool {
	return &tool{cfg: c, area: confine.Area{Root: c.Root, Dirs: c.Dirs}, spec: agent.ToolSpec{
		Name:        "Monitor",
		Description: fmt.Sprintf(prompt, DefaultTimeoutMS, MaxTimeoutMS),
		InputSchema: json.RawMessage(fmt.Sprintf(schema, MaxTimeoutMS, DefaultTimeoutMS)),
	}}
}

type tool struct {
	cfg  Config
	area confine.Area
	spec agent.ToolSpec
}

func (t *tool) Spec() agent.ToolSpec { return t.spec }

func (t *tool) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	req, err := t.request(c)
	if err != nil {
		return agent.Refuse("Monitor: " + err.Error()), nil
	}
	rec, err := t.cfg.Monitors.Monitor(ctx, req)
	var refused *Refusal
	if errors.As(err, &refused) {
		return agent.Refuse("Monitor: " + refused.Text), nil
	}
	if err != nil {
		return agent.Output{}, fmt.Errorf("start monitor: %w", err)
	}
	return started(rec), nil
}

func (t *tool) request(c agent.Call) (Request, error) {
	in, err := strict.Decode[input](c.Input)
	if err != nil {
		return Request{}, err
	}
	r := Request{Description: excerpt.Line(in.Description, 200), Line: in.Command, Server: in.Server, URI: in.URI, Match: in.Match, ToolUseID: c.ID}
	if r.Timeout, err = in.time(); err != nil {
		return r, err
	}
	if err := in.check(); err != nil {
		return r, err
	}
	switch {
	case in.Command != "" && !t.cfg.Commands:
		return r, errors.New("you have no Bash, and so no commands to watch")
	case in.Command != "":
		r.Cwd = t.cfg.Root
		if t.cfg.Cwd != nil {
			r.Cwd = t.cfg.Cwd()
		}
	case in.File != "":
		r.File, err = t.file(in.File)
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
	return time.Duration(ms) * time.Millisecond, strict.Within("timeout_ms", ms, 1, MaxTimeoutMS)
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
		return fmt.Errorf(`field "command" has %d bytes, more than %d: write it to a file and run that`, len(in.Command), maxLineBytes)
	case len(in.Match) > maxMatchBytes:
		return fmt.Errorf(`field "match" has %d bytes, more than %d`, len(in.Match), maxMatchBytes)
	}
	if _, err := regexp.Compile(in.Match); err != nil {
		return fmt.Errorf(`field "match": %w`, err)
	}
	return nil
}

// file finds a file. Its own link is left to the watch, since it may come to lead
// elsewhere: the folder in which it stands is what counts.
func (t *tool) file(path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(t.cfg.Root, path)
	}
	if _, err := t.area.Find(path); err != nil {
		return "", err
	}
	dir, err := t.area.Find(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir.Path(), filepath.Base(path)), nil
}

func started(rec task.Record) agent.Output {
	var b strings.Builder
	fmt.Fprintf(&b, "Monitor started.\nTask ID: %s\nOutput file: %s\n", rec.ID, rec.OutputFile)
	if ms := rec.TimeoutMS; ms > 0 {
		fmt.Fprintf(&b, "It ends after %s.\n", time.Duration(ms)*time.Millisecond)
	} else {
		b.WriteString("It has no time limit.\n")
	}
	b.WriteString("You will be told of events as they come, and of its end. TaskStop ends it.")
	return agent.Output{Text: b.String(), Structured: Result{TaskID: string(rec.ID), TimeoutMS: rec.TimeoutMS, Persistent: rec.TimeoutMS == 0, OutputFile: rec.OutputFile}}
}

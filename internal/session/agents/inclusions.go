package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/command"
)

// lineWait is how long a shell line may run before it continues in the background.
const lineWait = time.Minute

// includer adds the inclusions of a command to the prompt of an agent. A shell line is a call of the
// tool Bash and a file a call of Read, decided by the gate of the agent as its own calls are. Nothing of
// a command without the required trust is run, and a call that is not allowed refuses the whole prompt.
type includer struct {
	gate   agent.Gate
	tools  []agent.Tool
	folder string // absolute; base of relative paths
	home   string // for ~; empty: unknown
}

// RefusedError means that a command was not expanded.
type RefusedError struct {
	Command string
	What    string // appended to the name
	Why     string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("/%s was not sent: %s: %s", e.Command, e.What, e.Why)
}

// Include runs and reads the inclusions of a command for the agent, by these tools, in order.
func (k *Environment) Include(ctx context.Context, tools []agent.Tool, c command.Command, v command.Values,
) ([]command.Included, error) {
	a := includer{gate: k.Config.Gate, tools: tools, folder: k.Me.Cwd, home: home.Lookup(k.Me.Env)("HOME")}
	all := c.Template.Inclusions(v)
	refuse := func(what, why string) error { return &RefusedError{c.Name, what, why} }
	if len(all) > command.MaxInclusions {
		return nil, refuse("its text", fmt.Sprintf("it includes %d shell lines and files, more than %d", len(all),
			command.MaxInclusions))
	}
	// All calls are judged before any of them runs.
	for _, one := range all {
		if !c.Trusted && (one.Kind == command.Shell || a.outside(c, one.Text)) {
			return nil, refuse(about(one), fmt.Sprintf("%s waits until you trust this folder (see `drover trust`)", c.Path))
		}
	}
	out := make([]command.Included, len(all))
	for i, one := range all {
		call, found := a.call(c, one, i)
		if !found {
			out[i].None = true
			continue
		}
		text, err := a.make(ctx, call)
		var denied *deniedError
		switch {
		case errors.As(err, &denied):
			return nil, refuse(about(one), denied.why)
		case err != nil:
			return nil, fmt.Errorf("/%s: %s: %w", c.Name, about(one), err)
		}
		out[i].Text = text
	}
	return out, nil
}

func about(one command.Inclusion) string {
	if one.Kind == command.File {
		return "@" + excerpt.Line(one.Text, 200)
	}
	return "`" + excerpt.Line(one.Text, 200) + "`"
}

// path resolves a reference.
func (a includer) path(c command.Command, text string) string {
	if rest, ok := strings.CutPrefix(text, "~/"); ok && filepath.IsAbs(a.home) {
		return filepath.Join(a.home, rest)
	}
	if filepath.IsAbs(text) {
		return filepath.Clean(text)
	}
	if c.Dir != "" {
		return filepath.Join(c.Dir, text)
	}
	return filepath.Join(a.folder, text)
}

// outside reports whether a reference leads out of the folder and out of the folder of the skill, by its
// text or by a link.
func (a includer) outside(c command.Command, text string) bool {
	real, err := filepath.EvalSymlinks(a.path(c, text))
	if err != nil {
		return false // it is not read
	}
	for _, dir := range []string{a.folder, c.Dir} {
		base, err := filepath.EvalSymlinks(dir)
		if rel, bad := filepath.Rel(base, real); dir != "" && err == nil && bad == nil && filepath.IsLocal(rel) {
			return false
		}
	}
	return true
}

// call is the call of the agent that corresponds to an inclusion. found is false for a
// reference without a file.
func (a includer) call(c command.Command, one command.Inclusion, n int) (call agent.Call, found bool) {
	id := fmt.Sprintf("command_%d", n+1)
	if one.Kind == command.Shell {
		return made(id, "Bash", map[string]any{"command": one.Text, "timeout": lineWait.Milliseconds(),
			"description": "included by /" + c.Name}), true
	}
	path := a.path(c, one.Text)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrPermission) {
		return made(id, "Read", map[string]any{"file_path": path}), true // the reader reports it
	}
	if err != nil || !info.Mode().IsRegular() {
		return agent.Call{}, false
	}
	return made(id, "Read", map[string]any{"file_path": path}), true
}

func made(id, tool string, input map[string]any) agent.Call {
	data, _ := json.Marshal(input) // of texts and numbers
	return agent.Call{ID: id, Name: tool, Input: data}
}

// deniedError means that a call was not allowed.
type deniedError struct{ why string }

func (e *deniedError) Error() string { return e.why }

// make makes a call if the gate allows it.
func (a includer) make(ctx context.Context, c agent.Call) (string, error) {
	var tool agent.Tool
	for _, t := range a.tools {
		if t.Spec().Name == c.Name {
			tool = t
		}
	}
	if tool == nil {
		return "", &deniedError{"the agent has no tool " + c.Name}
	}
	decision, err := a.gate.Check(ctx, c)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", fmt.Errorf("permission could not be checked: %w", err)
	case !decision.Allow:
		why := decision.Reason
		if why == "" {
			why = "it is not allowed"
		}
		return "", &deniedError{why}
	case decision.Input != nil:
		c.Input = decision.Input
	}
	out, err := tool.Call(ctx, c)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", err
	case out.IsError && c.Name == "Read":
		return "", &deniedError{out.Text}
	}
	return out.Text, nil
}

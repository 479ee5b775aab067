package acpserver

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// Bounds of the display of a call.
const (
	maxTitle  = 200
	maxInput  = 64 << 10 // bytes of its input
	maxResult = 64 << 10 // bytes of its result
	maxDiff   = 1 << 20  // bytes of a text in a diff
)

// about is the display of a call.
type about struct {
	kind      acp.ToolKind
	title     string
	locations []acp.ToolCallLocation
	content   []acp.ToolCallContent
}

// input has the fields of the inputs of our tools that a title or a diff shows.
type input struct {
	FilePath    string `json:"file_path"`
	Offset      int    `json:"offset"`
	OldString   string `json:"old_string"`
	NewString   string `json:"new_string"`
	Content     string `json:"content"`
	Pattern     string `json:"pattern"`
	Path        string `json:"path"`
	Command     string `json:"command"`
	Description string `json:"description"`
	URL         string `json:"url"`
	Prompt      string `json:"prompt"`
	Plan        string `json:"plan"`
	Subject     string `json:"subject"`
	Type        string `json:"subagent_type"`
}

// inputOf reads an input. It skips fields of a wrong type, for which the tool refuses the call.
func inputOf(raw json.RawMessage) (in input) {
	_ = json.Unmarshal(raw, &in)
	return in
}

// describeCall returns the display of a call.
func describeCall(c agent.Call, folder string) about {
	in := inputOf(c.Input)
	at := func(path string) []acp.ToolCallLocation {
		if path == "" {
			return nil
		}
		return []acp.ToolCallLocation{{Path: absolute(path, folder)}}
	}
	a := about{kind: acp.ToolKindOther, title: c.Name}
	switch c.Name {
	case "Read":
		a.kind, a.title, a.locations = acp.ToolKindRead, "Read "+shown(in.FilePath, folder), at(in.FilePath)
		if in.Offset > 0 && len(a.locations) > 0 {
			a.title += fmt.Sprintf(" from line %d", in.Offset)
			a.locations[0].Line = &in.Offset
		}
	case "Write":
		a.kind, a.title, a.locations = acp.ToolKindEdit, "Write "+shown(in.FilePath, folder), at(in.FilePath)
		a.content = diff(in.FilePath, folder, nil, in.Content)
	case "Edit":
		a.kind, a.title, a.locations = acp.ToolKindEdit, "Edit "+shown(in.FilePath, folder), at(in.FilePath)
		a.content = diff(in.FilePath, folder, &in.OldString, in.NewString)
	case "Glob", "Grep":
		a.kind, a.title, a.locations = acp.ToolKindSearch, c.Name+" "+in.Pattern, at(in.Path)
	case "Bash":
		a.kind, a.title = acp.ToolKindExecute, "`"+in.Command+"`"
		if in.Description != "" {
			a.content = text(in.Description)
		}
	case "WebFetch":
		a.kind, a.title = acp.ToolKindFetch, "Fetch "+in.URL
	case "Agent", "Task":
		a.title = strings.TrimSpace(in.Type + ": " + in.Description)
		a.content = text(in.Prompt)
	case task.ExitPlanMode:
		a.kind, a.title, a.content = acp.ToolKindSwitchMode, "Carry out the plan", text(in.Plan)
	case "TaskCreate", "TaskUpdate", "TaskGet", "TaskList":
		a.kind = acp.ToolKindThink
		if in.Subject != "" {
			a.title += ": " + in.Subject
		}
	case "Monitor":
		a.kind, a.title = acp.ToolKindExecute, "Monitor "+in.Description
	}
	a.title = excerpt.Line(a.title, maxTitle)
	return a
}

// describeResult returns the display of the result of a call.
func describeResult(c agent.Call, out agent.Output, folder string) []acp.ToolCallContent {
	if !out.IsError {
		switch c.Name {
		case "Write", "Edit":
			return describeCall(c, folder).content
		case "Bash":
			if strings.TrimSpace(out.Text) == "" {
				return nil
			}
			return text(fenced(bounded(out.Text, maxResult)))
		}
	}
	content := text(bounded(out.Text, maxResult))
	for _, image := range out.Images {
		if data, kind, ok := imageOf(image.Source); ok {
			content = append(content, acp.ToolContent(acp.ImageBlock(data, kind)))
		}
	}
	return content
}

// imageOf reads the source of an image of the Messages API.
func imageOf(raw json.RawMessage) (data, kind string, ok bool) {
	var source struct {
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	}
	err := json.Unmarshal(raw, &source)
	return source.Data, source.MediaType, err == nil && source.Data != ""
}

// fenced is text in a code block.
func fenced(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "\n" + strings.TrimRight(text, "\n") + "\n" + fence
}

func text(text string) []acp.ToolCallContent {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return []acp.ToolCallContent{acp.ToolContent(acp.TextBlock(text))}
}

// diff is a change of a file; a nil before means that the file is new.
func diff(path, folder string, before *string, after string) []acp.ToolCallContent {
	if path == "" || len(after) > maxDiff || before != nil && len(*before) > maxDiff {
		return nil
	}
	return []acp.ToolCallContent{{Diff: &acp.ToolCallContentDiff{Type: "diff", Path: absolute(path, folder),
		OldText: before, NewText: after}}}
}

// bounded is the beginning of a text, with the number of bytes left out.
func bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + fmt.Sprintf("\n[%d bytes more]", len(text)-most)
}

func absolute(path, folder string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(folder, path)
}

// shown is a path for people: relative to the folder if it is below it.
func shown(path, folder string) string {
	rel, err := filepath.Rel(folder, absolute(path, folder))
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return path
	}
	return rel
}

// rawInput is an input for the client; nil: it is too long or not JSON.
func rawInput(raw json.RawMessage) any {
	if len(raw) == 0 || len(raw) > maxInput || !json.Valid(raw) {
		return nil
	}
	return raw
}

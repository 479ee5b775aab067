package acpclient

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent"
)

// tool is a call of a tool by the agent.
type tool struct {
	toolCall
	content []block
	shown   bool // as a CallPart
	done    bool
	call    agent.Call
}

// tool takes an update of a call. The caller holds mu.
func (t *turn) tool(u toolCall, content []block, dir string) []agent.Part {
	o := t.merge(u, content)
	if o == nil {
		return nil
	}
	ended := o.Status == "completed" || o.Status == "failed"
	var parts []agent.Part
	if !o.shown && (ended || o.Status == "in_progress" || o.whole(dir)) {
		parts = append(parts, t.begin(o, dir)...)
	}
	if ended && !o.done {
		o.done = true
		parts = append(parts, agent.Part{Kind: agent.ResultPart, Call: o.call,
			Output: agent.Output{Text: o.result(), IsError: o.Status == "failed"}})
	}
	return parts
}

// whole reports whether the input of a call is complete. Some agents announce a command before they know it.
func (o *tool) whole(dir string) bool {
	return len(o.RawInput) > 2 && (o.ToolKind != "execute" || o.wants(dir).Understood)
}

// merge adds an update to a call; nil: too many calls are followed. The caller holds mu.
func (t *turn) merge(u toolCall, content []block) *tool {
	o := t.tools[u.ID]
	if o == nil {
		if u.ID == "" || len(t.tools) >= maxTools {
			return nil
		}
		o = &tool{toolCall: toolCall{ID: u.ID}}
		t.tools[u.ID] = o
	}
	if u.Title != "" {
		o.Title = u.Title
	}
	if u.ToolKind != "" {
		o.ToolKind = u.ToolKind
	}
	if u.Status != "" {
		o.Status = u.Status
	}
	if raw := bytes.TrimSpace(u.RawInput); len(raw) > 0 && !bytes.Equal(raw, []byte("null")) {
		o.RawInput = raw
	}
	if len(u.Locations) > 0 {
		o.Locations = u.Locations
	}
	if len(content) > 0 {
		o.content = content
	}
	return o
}

// begin shows a call, which ends the message before it. The caller holds mu.
func (t *turn) begin(o *tool, dir string) (parts []agent.Part) {
	o.shown = true
	if t.text.Len() > 0 {
		parts = append(parts, agent.Part{Kind: agent.TextPart, Index: t.index, Text: "\n"})
	}
	t.cut()
	w := o.wants(dir)
	o.call = w.Shown
	t.did(fmt.Sprintf("[%s %s]", o.call.Name, line(string(o.call.Input), 500)))
	return append(parts, agent.Part{Kind: agent.CallPart, Call: o.call})
}

// unfinished ends the calls without a result at the end of a turn. The caller holds mu.
func (t *turn) unfinished() (parts []agent.Part) {
	for _, o := range t.tools {
		if o.shown && !o.done {
			o.done = true
			parts = append(parts, agent.Part{Kind: agent.ResultPart, Call: o.call,
				Output: agent.Output{Text: "(The turn ended without a result of this call.)", IsError: true}})
		}
	}
	slices.SortFunc(parts, func(a, b agent.Part) int { return strings.Compare(a.Call.ID, b.Call.ID) })
	return parts
}

// result is the result of a call as text.
func (o *tool) result() string {
	var b strings.Builder
	for _, c := range o.content {
		if c.Type == "content" && c.Content != nil {
			c = *c.Content
		}
		switch c.Type {
		case "text":
			b.WriteString(c.Text + "\n")
		case "diff":
			fmt.Fprintf(&b, "(changes %s)\n", line(c.Path, 300))
		case "terminal":
			fmt.Fprintf(&b, "(terminal %s)\n", line(c.TerminalID, 60))
		case "":
		default:
			fmt.Fprintf(&b, "(%s)\n", line(c.Type, 60))
		}
		if b.Len() > maxResult {
			break
		}
	}
	text := strings.TrimRight(strings.ToValidUTF8(b.String(), "\uFFFD"), "\n")
	if more := len(text) - maxResult; more > 0 {
		text = strings.ToValidUTF8(text[:maxResult], "") + fmt.Sprintf("\n[%d bytes more]", more)
	}
	return text
}

// Wanted is an action that an agent wants to take.
type Wanted struct {
	// Calls are the action in terms of our tools: a rule that denies one of them denies the action.
	Calls []agent.Call
	// Understood says that the action is exactly these calls. Otherwise a person is asked about Shown, whatever
	// the rules allow.
	Understood bool
	Shown      agent.Call
}

// input returns the fields of the raw input of a call, if that is an object.
func (o *tool) input() map[string]json.RawMessage {
	in := map[string]json.RawMessage{}
	_ = json.Unmarshal(o.RawInput, &in) // another form is not understood
	return in
}

// The keys of agents of different vendors for a path, a command and its folder.
func pathKeys() []string {
	return []string{"file_path", "filePath", "filepath", "absolute_path", "abs_path", "path", "notebook_path"}
}

func commandKeys() []string { return []string{"command", "cmd"} }

func folderKeys() []string { return []string{"cwd", "workdir", "directory", "working_directory"} }

// texts returns the values of some keys. good is false if a value is not a string.
func texts(in map[string]json.RawMessage, keys []string) (out []string, good bool) {
	good = true
	for _, k := range keys {
		raw, ok := in[k]
		if !ok || bytes.Equal(raw, []byte("null")) {
			continue
		}
		var s string
		if json.Unmarshal(raw, &s) != nil {
			good = false
			continue
		}
		if s != "" {
			out = append(out, s)
		}
	}
	return out, good
}

// wants translates a call of the agent into calls of our tools. dir is where the agent works.
func (o *tool) wants(dir string) Wanted {
	in := o.input()
	w := Wanted{}
	switch o.ToolKind {
	case "execute":
		w.Calls, w.Understood = o.command(in, dir)
	case "read":
		w.Calls, w.Understood = o.paths(in, "Read")
	case "edit":
		w.Calls, w.Understood = o.edits(in)
	case "delete", "move": // more than an edit, but a rule against edits of a file denies these too
		w.Calls, _ = o.paths(in, "Edit")
	case "search":
		w.Calls, w.Understood = o.search(in)
	case "fetch":
		if urls, good := texts(in, []string{"url"}); len(urls) == 1 {
			w.Calls, w.Understood = []agent.Call{o.as("WebFetch", map[string]any{"url": urls[0]})}, good
		}
	}
	if _, runs := texts(in, commandKeys()); o.ToolKind != "execute" && (!runs || hasAny(in, commandKeys())) {
		w.Understood = false // the kind is not execute, and the input has a command
		calls, _ := o.command(in, dir)
		w.Calls = append(w.Calls, calls...)
	}
	if w.Understood = w.Understood && len(w.Calls) > 0; w.Understood && len(w.Calls) == 1 {
		w.Shown = w.Calls[0]
		return w
	}
	w.Shown = o.as(o.name(), o.view())
	if len(w.Calls) == 0 {
		w.Calls = []agent.Call{w.Shown}
	}
	return w
}

func hasAny(in map[string]json.RawMessage, keys []string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { _, ok := in[k]; return ok })
}

// as is a call of one of our tools.
func (o *tool) as(name string, input map[string]any) agent.Call {
	var raw bytes.Buffer
	e := json.NewEncoder(&raw)
	e.SetEscapeHTML(false)                  // people read it
	if err := e.Encode(input); err != nil { // decoded values always encode
		return agent.Call{ID: o.ID, Name: name, Input: json.RawMessage("{}")}
	}
	return agent.Call{ID: o.ID, Name: name, Input: bytes.TrimSpace(raw.Bytes())}
}

// view is the display of a call that is none of our tools.
func (o *tool) view() map[string]any {
	v := map[string]any{"title": line(o.Title, 500)}
	if o.ToolKind != "" {
		v["kind"] = o.ToolKind
	}
	if len(o.RawInput) > 0 {
		v["raw_input"] = o.RawInput
	}
	if len(o.Locations) > 0 {
		v["locations"] = o.Locations[:min(len(o.Locations), 50)]
	}
	return v
}

// name is the name of a call that is none of our tools: the tool of its kind, or the first word of its title.
func (o *tool) name() string {
	kinds := map[string]string{"execute": "Bash", "read": "Read", "edit": "Edit", "delete": "Delete", "move": "Move",
		"search": "Grep", "fetch": "WebFetch", "think": "Think", "switch_mode": "SwitchMode"}
	if name, ok := kinds[o.ToolKind]; ok {
		return name
	}
	word, _, _ := strings.Cut(line(o.Title, 100), " ")
	word = strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, word)
	if word == "" {
		return "Tool"
	}
	return word
}

// command returns a command as a call of Bash.
func (o *tool) command(in map[string]json.RawMessage, dir string) ([]agent.Call, bool) {
	text := ""
	understood := true
	for _, key := range commandKeys() {
		raw, ok := in[key]
		if !ok {
			continue
		}
		var one string
		var argv []string
		switch {
		case json.Unmarshal(raw, &one) == nil:
		case json.Unmarshal(raw, &argv) == nil && len(argv) > 0:
			one = shellLine(argv)
		default:
			understood = false
			continue
		}
		if text != "" && text != one {
			understood = false
		}
		text = one
	}
	args := []string(nil)
	if raw, ok := in["args"]; ok && text != "" {
		if json.Unmarshal(raw, &args) != nil {
			understood = false
		}
		for _, a := range args {
			text += " " + quote(a)
		}
	}
	folders, good := texts(in, folderKeys())
	if strings.TrimSpace(text) == "" && o.ToolKind == "execute" { // a title may be the command: rules that deny it bind
		text, understood = o.Title, false
	}
	if strings.TrimSpace(text) == "" {
		return nil, false
	}
	for _, f := range slices.Compact(folders) {
		if f != dir {
			text = "cd " + quote(f) + " && " + text
		}
	}
	return []agent.Call{o.as("Bash", map[string]any{"command": text})}, understood && good && len(folders) < 2
}

// shellLine is a line for a shell: of a shell with a line the line itself, else the quoted arguments.
func shellLine(argv []string) string {
	shells := []string{"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash"}
	if len(argv) == 3 && slices.Contains(shells, argv[0]) &&
		slices.Contains([]string{"-c", "-lc", "-l -c"}, argv[1]) {
		return argv[2]
	}
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = quote(a)
	}
	return strings.Join(words, " ")
}

// quote returns a word for a shell.
func quote(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// files returns all paths in a call.
func (o *tool) files(in map[string]json.RawMessage) (paths []string, good bool) {
	paths, good = texts(in, pathKeys())
	for _, l := range o.Locations {
		if l.Path != "" {
			paths = append(paths, l.Path)
		}
	}
	for _, c := range o.content {
		if c.Type == "diff" && c.Path != "" {
			paths = append(paths, c.Path)
		}
	}
	for _, key := range []string{"changes", "file_changes", "fileChanges"} {
		raw, ok := in[key]
		if !ok {
			continue
		}
		var changes map[string]struct {
			MovePath string `json:"move_path"`
		}
		if json.Unmarshal(raw, &changes) != nil {
			good = false
		}
		for path, c := range changes {
			if paths = append(paths, path); c.MovePath != "" {
				paths = append(paths, c.MovePath)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), good
}

// paths returns a call of a tool for each file.
func (o *tool) paths(in map[string]json.RawMessage, tool string) (calls []agent.Call, understood bool) {
	paths, good := o.files(in)
	for _, p := range paths {
		calls = append(calls, o.as(tool, map[string]any{"file_path": p}))
	}
	return calls, good && len(paths) > 0 && len(paths) <= 100
}

// edits returns an edit of each file, or a write if the agent gives the whole content.
func (o *tool) edits(in map[string]json.RawMessage) ([]agent.Call, bool) {
	tool := "Edit"
	if hasAny(in, []string{"content"}) {
		tool = "Write"
	}
	for _, c := range o.content {
		if c.Type == "diff" && c.OldText == nil {
			tool = "Write"
		}
	}
	return o.paths(in, tool)
}

// search returns a search below a folder.
func (o *tool) search(in map[string]json.RawMessage) ([]agent.Call, bool) {
	patterns, good := texts(in, []string{"pattern", "query"})
	paths, fine := texts(in, []string{"path", "dir_path", "directory"})
	if len(patterns) != 1 || len(paths) > 1 || !good || !fine {
		return nil, false
	}
	input := map[string]any{"pattern": patterns[0]}
	if len(paths) == 1 {
		input["path"] = paths[0]
	}
	return []agent.Call{o.as("Grep", input)}, true
}

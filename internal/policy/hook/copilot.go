package hook

import (
	"encoding/json"
	"maps"

	"github.com/drover-dev/drover/internal/platform/jsonc"
)

// copilotTools are tools as Copilot calls them, with the names of their arguments that
// differ there: guards that were written for it compare both.
func copilotTool(name string) (string, map[string]string) {
	switch name {
	case "Bash":
		return "bash", nil
	case "Read":
		return "view", map[string]string{"file_path": "path"}
	case "Write":
		return "create", map[string]string{"file_path": "path", "content": "file_text"}
	case "Edit":
		return "edit", map[string]string{"file_path": "path", "old_string": "old_str", "new_string": "new_str"}
	case "Glob":
		return "glob", nil
	case "Grep":
		return "grep", nil
	case "WebFetch":
		return "web_fetch", nil
	case "Agent":
		return "task", nil
	case "AskUserQuestion":
		return "ask_user", nil
	case "Skill":
		return "skill", nil
	}
	return name, nil
}

// copilotWord is a word of a payload as Copilot says it.
func copilotWord(key, value string) string {
	switch key {
	case "tool_name":
		name, _ := copilotTool(value)
		return name
	case "source":
		if value == "resume" || value == "compact" {
			return "resume"
		}
		return "new"
	case "reason":
		if value == "error" {
			return value
		}
		return "complete"
	}
	return value
}

// forCopilot says a payload in the words of Copilot. Names of fields stay as they are.
func forCopilot(e Event, fields map[string]any) map[string]any {
	out := maps.Clone(fields)
	words := map[Event]string{SessionStart: "source", SessionEnd: "reason"}
	if key := words[e]; key != "" {
		if value, ok := out[key].(string); ok {
			out[key] = copilotWord(key, value)
		}
	}
	name, ok := out["tool_name"].(string)
	if !ok {
		return out
	}
	said, args := copilotTool(name)
	out["tool_name"] = said
	if raw, ok := out["tool_input"].(json.RawMessage); ok {
		out["tool_input"] = renamed(raw, args)
	}
	return out
}

// fromCopilot is the changed input of a call under our names of its arguments. Those that
// stand under ours already stay.
func fromCopilot(tool string, raw json.RawMessage) json.RawMessage {
	_, args := copilotTool(tool)
	back := map[string]string{}
	for ours, theirs := range args {
		back[theirs] = ours
	}
	return renamed(raw, back)
}

// renamed gives members of an object other names, unless those are taken.
func renamed(raw json.RawMessage, names map[string]string) json.RawMessage {
	var o map[string]json.RawMessage
	if len(names) == 0 || json.Unmarshal(raw, &o) != nil || o == nil {
		return raw
	}
	for from, to := range names {
		value, there := o[from]
		if _, taken := o[to]; !there || taken {
			continue
		}
		o[to] = value
		delete(o, from)
	}
	out, err := jsonc.Encode(o)
	if err != nil {
		return raw
	}
	return out
}

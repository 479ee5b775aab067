package hook

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/jsonc"
)

// payload returns the input of a hook: the fields of both forms in the spelling of its
// event. Empty optional fields are left out.
func (r *Runner) payload(h hook, fields map[string]any, now time.Time) ([]byte, error) {
	all := r.base.fields()
	maps.Copy(all, fields)
	all["hook_event_name"], all["hook_depth"] = h.says, r.depth
	if id := r.prompt(); id != "" {
		all["prompt_id"] = id
	}
	if !h.camel {
		return jsonc.Encode(all)
	}
	all = forCopilot(h.fact.event, all)
	spelled := make(map[string]any, len(all)+3)
	for key, value := range all {
		spelled[camel(key)] = value
	}
	spelled["timestamp"] = now.UnixMilli()
	if raw, ok := all["tool_input"].(json.RawMessage); ok {
		spelled["toolArgs"] = string(raw)
	}
	if out, ok := all["tool_response"]; ok {
		spelled["toolResult"] = copilotResult("success", out)
	} else if out, ok := all["error"]; ok && all["tool_name"] != nil {
		spelled["toolResult"] = copilotResult("failure", out)
	}
	return jsonc.Encode(spelled)
}

// input is the input of a call as hooks read it. It is written anew: a model could
// otherwise hide words in escapes from hooks that look for them.
func input(raw json.RawMessage) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if !json.Valid(raw) || d.Decode(&v) != nil {
		v = string(raw)
	}
	b, err := jsonc.Encode(v)
	if err != nil {
		return raw
	}
	return b
}

func copilotResult(kind string, out any) map[string]any {
	text, ok := out.(string)
	if !ok {
		b, _ := json.Marshal(out) // it is marshalled once more with all the rest, where an error counts
		text = string(b)
	}
	return map[string]any{"resultType": kind, "textResultForLlm": text}
}

// fields returns the fields of every event.
func (b Base) fields() map[string]any {
	out := map[string]any{"session_id": b.SessionID, "transcript_path": b.TranscriptPath, "cwd": b.Cwd}
	optional := map[string]string{
		"agent_id":              b.AgentID,
		"agent_type":            b.AgentType,
		"agent_name":            b.AgentType,
		"agent_display_name":    b.DisplayName,
		"agent_description":     b.Description,
		"agent_transcript_path": b.AgentTranscript,
		"model":                 b.Model,
	}
	if b.PermissionMode != nil {
		optional["permission_mode"] = b.PermissionMode()
	}
	for key, value := range optional {
		if value != "" {
			out[key] = value
		}
	}
	if b.Effort != nil {
		if level := b.Effort(); level != "" {
			out["effort"] = map[string]string{"level": level}
		}
	}
	return out
}

// camel makes camelCase of snake_case.
func camel(s string) string {
	parts := strings.Split(s, "_")
	for i := 1; i < len(parts); i++ {
		if p := parts[i]; p != "" {
			parts[i] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "")
}

// subjects are the names that a matcher is compared with.
func (r *Runner) subjects(h hook, fields map[string]any) []string {
	base := r.base.fields()
	var out []string
	for _, key := range h.fact.about {
		value, ok := fields[key].(string)
		if !ok {
			value, _ = base[key].(string)
		}
		if value == "" {
			continue
		}
		out = append(out, value)
		if said := copilotWord(key, value); h.camel && said != value &&
			(h.fact.event == SessionStart || h.fact.event == SessionEnd || key == "tool_name") {
			out = append(out, said)
		}
		if key == "tool_name" {
			out = append(out, r.aliases(value, h.copilot)...)
		}
	}
	return out
}

// find is the tool that a name means, as the loop of an agent would find it.
func (r *Runner) find(name string) (toolNames, bool) {
	for _, means := range []func(toolNames) bool{
		func(t toolNames) bool { return t.name == name },
		func(t toolNames) bool { return strings.EqualFold(t.name, name) },
		func(t toolNames) bool {
			return slices.ContainsFunc(t.aliases, func(a string) bool { return strings.EqualFold(a, name) })
		},
	} {
		if i := slices.IndexFunc(r.tools, means); i >= 0 {
			return r.tools[i], true
		}
	}
	return toolNames{}, false
}

// canonical is the name of a tool, however a model has spelled it: a hook for
// Bash must hear of a call of bash.
func (r *Runner) canonical(name string) string {
	if t, ok := r.find(name); ok {
		return t.name
	}
	return name
}

// aliases are the further names of a tool. Those that differ by case only are
// names in the form of Copilot, and elsewhere case counts.
func (r *Runner) aliases(name string, copilot bool) []string {
	t, _ := r.find(name)
	return slices.DeleteFunc(slices.Clone(t.aliases),
		func(a string) bool { return !copilot && strings.EqualFold(a, name) })
}

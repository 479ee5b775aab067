package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/drover-dev/drover/subagent"
)

// acp returns the program of an agent of another vendor. An invalid value refuses the
// definition: without its program the agent would run as one of ours.
func (r *reader) acp() *subagent.ACP {
	f, ok := r.get("acp")
	if !ok || f.Value == nil {
		return nil
	}
	const fix = "write it as in {command: codex-acp, args: [], env: {}}"
	parts, object := f.Value.(map[string]any)
	if !object {
		if f.text == "" || strings.ContainsAny(f.text, " \t\n") {
			r.say(Error, "acp", "acp is no object, so nobody knows which program the agent is", fix)
			return nil
		}
		parts = map[string]any{"command": f.text}
	}
	a := &subagent.ACP{}
	bad := func(key string) { r.say(Error, "acp", fmt.Sprintf("acp has a %.40q that cannot be used", key), fix) }
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		v := parts[key]
		switch key {
		case "command", "mode", "login", "protocol":
			text, is := v.(string)
			if !is || strings.ContainsRune(text, 0) {
				bad(key)
				continue
			}
			switch text = strings.TrimSpace(text); key {
			case "command":
				a.Command = text
			case "mode":
				a.Mode = text
			case "login":
				a.Login = text
			case "protocol":
				if !slices.Contains([]string{"", "claude", "codex"}, text) {
					bad("protocol: " + text)
				}
				a.Protocol = text
			}
		case "args", "keys", "folders", "hosts":
			list, good := stringList(v)
			if !good {
				bad(key)
				continue
			}
			switch key {
			case "args":
				a.Args = list
			case "keys":
				a.Keys = list
			case "folders":
				a.Folders = list
			case "hosts":
				a.Hosts = list
			}
		case "env":
			env, is := v.(map[string]any)
			if !is && v != nil {
				bad(key)
				continue
			}
			a.Env = map[string]string{}
			for name, value := range env {
				text := fmt.Sprint(value)
				if name == "" || strings.ContainsAny(name, "=\x00") || strings.HasPrefix(name, "DROVER_") ||
					strings.ContainsRune(text, 0) {
					bad("env: " + name)
				}
				a.Env[name] = text
			}
		default:
			r.say(Warning, "acp", fmt.Sprintf("acp has %.40q, which is not known, and has no effect", key), fix)
		}
	}
	if a.Command == "" {
		r.say(Error, "acp", "acp names no command, so nobody knows which program the agent is", fix)
		return nil
	}
	return a
}

// stringList is a list of texts; null is an empty one.
func stringList(v any) ([]string, bool) {
	items, is := v.([]any)
	if !is && v != nil {
		return nil, false
	}
	out := []string{}
	for _, item := range items {
		text, is := item.(string)
		if !is {
			text = fmt.Sprint(item)
		}
		if strings.ContainsRune(text, 0) {
			return nil, false
		}
		out = append(out, text)
	}
	return out, true
}

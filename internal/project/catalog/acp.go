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
	texts := map[string]*string{"command": &a.Command, "mode": &a.Mode, "login": &a.Login, "protocol": &a.Protocol}
	lists := map[string]*[]string{"args": &a.Args, "keys": &a.Keys, "folders": &a.Folders, "hosts": &a.Hosts}
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		v := parts[key]
		switch {
		case texts[key] != nil:
			text, is := v.(string)
			if !is || strings.ContainsRune(text, 0) {
				bad(key)
				continue
			}
			*texts[key] = strings.TrimSpace(text)
		case lists[key] != nil:
			list, good := stringList(v)
			if !good {
				bad(key)
				continue
			}
			*lists[key] = list
		case key == "env":
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
	if !slices.Contains([]string{"", "claude", "codex"}, a.Protocol) {
		bad("protocol: " + a.Protocol)
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

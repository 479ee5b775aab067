package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// foreign takes what counts here from the settings of another program: hooks and rules
// that forbid, and from those of a project that is trusted also what it allows and sets.
// The rest is named in one note.
func (l *loader) foreign(path string, of level) {
	data, ok := l.data(path)
	if !ok {
		return
	}
	tree, _, err := decode(data)
	if err != nil {
		l.fail(path, err)
		return
	}
	hooks, ok := tree["hooks"]
	if !ok {
		hooks = events(tree)
	}
	if err := l.hooks(path, hooks, of); err != nil {
		l.fail(path, err)
		return
	}
	rules, _ := tree["permissions"].(map[string]any)
	take := []string{"deny", "ask"}
	if of == project {
		take = append(take, "allow")
	}
	kept := map[string]any{}
	for _, name := range take {
		if list, there := rules[name]; there {
			kept[name] = list
		}
	}
	clean, err := json.Marshal(kept)
	if err != nil {
		l.fail(path, err)
		return
	}
	var p Permissions
	if err := json.Unmarshal(clean, &p); err != nil {
		l.fail(path, errors.New("permissions.allow, permissions.deny or permissions.ask is not a list of texts"))
		return
	}
	now := &l.set.Permissions
	now.Allow, now.Ask, now.Deny = union(now.Allow, p.Allow), union(now.Ask, p.Ask), union(now.Deny, p.Deny)
	now.Sources = with(now.Sources, Source{path, p.Allow, p.Ask, p.Deny})
	now.Foreign = union(now.Foreign, slices.Concat(p.Allow, p.Ask, p.Deny))
	switch of {
	case project:
		l.foreignProject(path, tree, rules)
	case untrusted:
		l.foreignWaits(path, tree, rules)
	}
}

// foreignKeys are those of the settings of another program that count in a trusted project.
func foreignKeys() (top, permissions []string) {
	return []string{"model", "env", "enabledPlugins"}, []string{"allow", "additionalDirectories", "defaultMode"}
}

// foreignWaits says what will count once the project is trusted.
func (l *loader) foreignWaits(path string, tree, rules map[string]any) {
	top, inner := foreignKeys()
	var waits []string
	for _, key := range inner {
		if rules[key] != nil {
			waits = append(waits, "permissions."+key)
		}
	}
	for _, key := range top {
		if tree[key] != nil {
			waits = append(waits, key)
		}
	}
	if len(waits) > 0 {
		l.note(path, "%s: ignored until the folder is trusted", strings.Join(waits, ", "))
		l.notes[len(l.notes)-1].Untrusted = true
	}
}

// foreignProject takes what a trusted project sets.
func (l *loader) foreignProject(path string, tree, rules map[string]any) {
	var over []string // passed over
	pass := func(format string, args ...any) { over = append(over, fmt.Sprintf(format, args...)) }
	folder := filepath.Dir(filepath.Dir(path))
	for _, key := range keys(rules) {
		switch key {
		case "allow", "ask", "deny":
		case "defaultMode":
			switch mode, _ := rules[key].(string); mode {
			case "default", "plan", "acceptEdits", "dontAsk":
				l.set.Permissions.DefaultMode = mode
			default:
				pass("permissions.defaultMode %.40v", rules[key])
			}
		case "additionalDirectories":
			list, _ := rules[key].([]any)
			for _, item := range list {
				dir, _ := item.(string)
				if rest, ok := strings.CutPrefix(dir, "~/"); ok && l.home != "" {
					dir = filepath.Join(l.home, rest)
				}
				if dir == "" || strings.ContainsRune(dir, 0) {
					pass("a folder of permissions.additionalDirectories")
					continue
				}
				if !filepath.IsAbs(dir) {
					dir = filepath.Join(folder, dir)
				}
				l.set.Permissions.Dirs = union(l.set.Permissions.Dirs, []string{filepath.Clean(dir)})
			}
		default:
			pass("permissions.%.60s", key)
		}
	}
	for _, key := range keys(tree) {
		switch key {
		case "$schema", "hooks", "permissions":
		case "model":
			switch name, ok := tree[key].(string); {
			case !ok || name == "" || name == "default" || name == "opusplan" || strings.ContainsAny(name, "[] \n"):
				pass("model %.60v", tree[key])
			default:
				l.set.Model = name
			}
		case "env":
			l.foreignEnv(tree[key], pass)
		case "enabledPlugins":
			list, _ := tree[key].(map[string]any)
			switches := maps.Clone(l.set.PluginSwitches)
			if switches == nil {
				switches = map[string]bool{}
			}
			for _, name := range keys(list) {
				on, ok := list[name].(bool)
				if plugin, _, _ := strings.Cut(name, "@"); ok && plugin != "" {
					switches[plugin] = on
				} else {
					pass("enabledPlugins.%.60s", name)
				}
			}
			l.set.PluginSwitches = switches
		default:
			if _, hook := events(tree).(map[string]any)[key]; !hook {
				pass("%.60s", key)
			}
		}
	}
	if len(over) > 0 {
		const most = 20
		more := ""
		if len(over) > most {
			more = fmt.Sprintf(" and %d more", len(over)-most)
			over = over[:most]
		}
		l.note(path, "has no effect here: %s%s", strings.Join(over, ", "), more)
	}
}

func (l *loader) foreignEnv(v any, pass func(string, ...any)) {
	vars, ok := v.(map[string]any)
	if !ok {
		pass("env")
		return
	}
	out := maps.Clone(l.set.Env)
	if out == nil {
		out = map[string]string{}
	}
	for _, name := range keys(vars) {
		var text string
		switch value := vars[name].(type) {
		case string:
			text = value
		case json.Number, bool:
			text = fmt.Sprint(value)
		default:
			pass("env.%.60s", name)
			continue
		}
		if forbiddenVariable(name) || strings.ContainsRune(text, 0) {
			pass("env.%.60s", name)
			continue
		}
		out[name] = text
	}
	l.set.Env = out
}

// forbiddenVariable reports whether a project must not set the variable: it says where
// models are reached and with which keys, which way connections take, or what Drover and
// the programs that it starts are made of.
func forbiddenVariable(name string) bool {
	if name == "" || strings.ContainsAny(name, "=\x00") {
		return true
	}
	upper := strings.ToUpper(name)
	for _, prefix := range []string{
		"DROVER_", "LD_", "DYLD_", "ANTHROPIC_", "OPENAI_", "CLAUDE_", "COPILOT_", "AWS_", "AZURE_", "GOOGLE_", "GEMINI_",
		"VERTEX_", "BEDROCK_", "XDG_",
	} {
		if strings.HasPrefix(upper, prefix) {
			return true
		}
	}
	for _, end := range []string{"_PROXY", "_BASE_URL", "_API_KEY", "_API_URL", "_API_BASE", "_AUTH_TOKEN"} {
		if strings.HasSuffix(upper, end) {
			return true
		}
	}
	return slices.Contains([]string{"PATH", "HOME", "SHELL", "BASH_ENV", "ENV", "TMPDIR", "MULTI_TURN_AGENTS"}, upper)
}

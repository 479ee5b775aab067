package settings

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/jsonc"
)

// foreign reads from the settings of another program its hooks and the rules that
// forbid, and in a trusted project also the rules that allow and its values. One note
// names the rest. An unreadable file stops nothing: a note names it.
func (l *loader) foreign(path string, of level) {
	if path == "" {
		return
	}
	data, err := read(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(jsonc.Plain(data))) == 0 {
		return
	}
	if err != nil {
		l.note(path, "it %v: no rule and no hook of it counts", err)
		return
	}
	tree, _, err := decode(data)
	if err != nil {
		found := forbidden(data)
		tree = map[string]any{"permissions": found}
		l.note(path, "it cannot be read (%v): no hook of it runs, and of its rules count those to deny and to ask that were found: %s",
			err, rulesIn(found))
	}
	hooks, ok := tree["hooks"]
	if !ok {
		hooks = events(tree)
	}
	if err := l.hooks(path, hooks, of); err != nil {
		l.note(path, "%v: no hook of it runs", err)
	}
	rules, is := tree["permissions"].(map[string]any)
	if !is && tree["permissions"] != nil {
		l.note(path, "permissions is not an object: no rule of it counts")
	}
	var p options.Permissions
	for name, list := range map[string]*[]string{"deny": &p.Deny, "ask": &p.Ask, "allow": &p.Allow} {
		if name == "allow" && of != project {
			continue
		}
		var whole bool
		if *list, whole = texts(rules[name]); !whole {
			l.note(path, "permissions.%s is not a list of texts: of it counts %q", name, *list)
		}
	}
	l.set.Add(Source{path, p.Allow, p.Ask, p.Deny})
	l.set.Foreign = union(l.set.Foreign, slices.Concat(p.Allow, p.Ask, p.Deny))
	switch of {
	case project:
		l.foreignProject(path, tree, rules)
	case untrusted:
		l.foreignWaits(path, tree, rules)
	}
}

// texts are the texts of a list, or a text in the place of a list. whole: nothing else is in it.
func texts(v any) (list []string, whole bool) {
	if text, is := v.(string); is {
		return []string{text}, true
	}
	items, is := v.([]any)
	whole = is || v == nil
	for _, item := range items {
		if text, is := item.(string); is {
			list = append(list, text)
		} else {
			whole = false
		}
	}
	return list, whole
}

// forbidden finds the rules to deny and to ask in a file that is not JSON, such as a file that was
// cut: the texts after their names, up to the end of their lists. A text that was cut is one.
func forbidden(data []byte) map[string]any {
	text := strings.ReplaceAll(string(jsonc.Plain(data)), "\x00", "") // of UTF-16
	found := map[string]any{}
	quoted := regexp.MustCompile(`"((?:[^"\\\n]|\\.)*)(?:"|$|\n)`) // here: a start without such a file does not pay for it
	for _, name := range []string{"deny", "ask"} {
		var list []any
		for _, m := range listOf(name).FindAllStringSubmatch(text, -1) {
			for _, rule := range quoted.FindAllStringSubmatch(m[1], -1) {
				var s string
				if json.Unmarshal([]byte(`"`+rule[1]+`"`), &s) != nil {
					s = rule[1]
				}
				list = append(list, s)
			}
		}
		found[name] = list
	}
	return found
}

func listOf(name string) *regexp.Regexp {
	return regexp.MustCompile(`"` + name + `"\s*:\s*\[((?:\s|,|"(?:[^"\\\n]|\\.)*(?:"|$|\n))*)`)
}

// rulesIn names rules in a note.
func rulesIn(found map[string]any) string {
	var all []string
	for _, name := range []string{"deny", "ask"} {
		list, _ := texts(found[name])
		for _, rule := range list {
			all = append(all, fmt.Sprintf("%s %.80q", name, rule))
		}
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

// foreignKeys are the settings of another program that count in a trusted project.
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

// foreignProject takes the settings of a trusted project.
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
				l.set.Dirs = union(l.set.Dirs, []string{filepath.Clean(dir)})
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

package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/jsonc"
	"github.com/drover-dev/drover/internal/platform/untrusted"
	"github.com/drover-dev/drover/subagent"
)

const (
	maxPlugins  = 100
	maxManifest = 64 << 10 // bytes
)

// manifest is the file with the name of a plugin.
const manifest = ".claude-plugin/plugin.json"

// Plugins are the folders of plugins: those in the plugins folder of the user's
// configuration by name, then the named ones. A folder that is not a plugin, or has
// the name of an earlier one, is left out with a problem. They are the user's own:
// nothing here may come from a project.
func Plugins(env func(string) string, named []string) (dirs []string, told []Problem) {
	say := func(path, what, fix string) {
		told = append(told, Problem{File: path, Severity: Error, What: what, Fix: fix})
	}
	all := installed(env, say)
	for _, dir := range named {
		if !filepath.IsAbs(dir) {
			say(dir, "the folder of a plugin must be absolute", "write it from the root")
			continue
		}
		all = append(all, filepath.Clean(dir))
	}
	if len(all) > maxPlugins {
		say(all[maxPlugins], fmt.Sprintf("only the first %d plugins are read", maxPlugins), "remove some")
		all = all[:maxPlugins]
	}
	owner := map[string]string{}
	for _, dir := range all {
		name, err := pluginName(dir)
		switch {
		case err != nil:
			say(filepath.Join(dir, manifest), err.Error(), `write {"name": "in-kebab-case"}`)
		case owner[name] == dir:
		case owner[name] != "":
			say(filepath.Join(dir, manifest), fmt.Sprintf("plugin %q is in %s already", name, owner[name]), "remove one of them")
		default:
			owner[name], dirs = dir, append(dirs, dir)
		}
	}
	return dirs, told
}

// Switched is the plugins that are not switched off by name, and the names that are
// switched on and that none of them has.
func Switched(dirs []string, switches map[string]bool) (on, missing []string) {
	found := map[string]bool{}
	for _, dir := range dirs {
		name, err := pluginName(dir)
		if err != nil {
			name = filepath.Base(dir)
		}
		found[name] = true
		if want, set := switches[name]; !set || want {
			on = append(on, dir)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(switches)) {
		if switches[name] && !found[name] {
			missing = append(missing, name)
		}
	}
	return on, missing
}

// installed are the folders in the plugins folder of the user's configuration.
func installed(env func(string) string, say func(path, what, fix string)) []string {
	config := home.Config(env)
	if config == "" {
		return nil
	}
	parent := filepath.Join(config, "plugins")
	entries, err := os.ReadDir(parent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		say(parent, "it cannot be read: "+plain(err), "")
	}
	var dirs []string
	for _, e := range entries {
		dir := filepath.Join(parent, e.Name())
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// pluginName reads the name of a plugin.
func pluginName(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", errors.New("it cannot be read: " + plain(err))
	}
	defer func() { _ = root.Close() }()
	data, err := untrusted.Read(root, manifest, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("there is no such file: the folder is no plugin")
	}
	if err != nil {
		return "", errors.New("it cannot be read: " + plain(err))
	}
	var m struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(jsonc.Plain(data), &m); err != nil {
		return "", fmt.Errorf("it is no JSON object with a name: %w", err)
	}
	if m.Name == "" || m.Name != subagent.Normalize(m.Name) || !usable(m.Name) {
		return "", fmt.Errorf("the name %.60q is not in kebab-case", m.Name)
	}
	return m.Name, nil
}

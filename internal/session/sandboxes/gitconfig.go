package sandboxes

import (
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/internal/platform/home"
)

// maxGitConfig bounds a configuration of git that is read, and maxIncluded those that it includes.
const (
	maxGitConfig = 256 << 10
	maxIncluded  = 16
)

// configured returns the files and folders in a checkout that git obeys since the configuration of its repository names
// them: other configurations, and the folder of hooks. That itself is protected, and says nothing of a command.
func configured(git, checkout string) (paths []string) {
	queue := []string{filepath.Join(git, "config"), filepath.Join(git, "config.worktree")}
	seen := map[string]bool{}
	for len(queue) > 0 && len(seen) < maxIncluded {
		file := queue[0]
		queue = queue[1:]
		data, err := home.ReadFile(file, maxGitConfig)
		if seen[file] || err != nil {
			continue
		}
		seen[file] = true
		section := ""
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			if rest, ok := strings.CutPrefix(line, "["); ok {
				head, after, _ := strings.Cut(rest, "]")
				section, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(head)), " ")
				line = strings.TrimSpace(after)
			}
			name, value, ok := strings.Cut(line, "=")
			if !ok {
				continue
			}
			value = strings.Trim(strings.TrimSpace(value), `"`)
			var base string
			switch key := section + "." + strings.ToLower(strings.TrimSpace(name)); key {
			case "include.path", "includeif.path":
				base = filepath.Dir(file)
			case "core.hookspath":
				base = checkout
			default:
				continue
			}
			if strings.HasPrefix(value, "~") || value == "" {
				continue
			}
			if !filepath.IsAbs(value) {
				value = filepath.Join(base, value)
			}
			if value = filepath.Clean(value); value == checkout || !within(value, []string{checkout}) {
				continue // outside nothing is written
			}
			paths = append(paths, value)
			if base != checkout {
				queue = append(queue, value)
			}
		}
	}
	return paths
}

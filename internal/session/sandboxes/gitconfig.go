package sandboxes

import (
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/platform/home"
)

// maxGitConfig bounds a configuration of git that is read, and maxIncluded those that it includes.
const (
	maxGitConfig = 256 << 10
	maxIncluded  = 16
)

// obeying is what a configuration names, and the files of it as they were when it was read.
type obeying struct {
	paths []string
	files map[string]seen
}

// configured is [namedByConfig] of a configuration that is read again when one of its files has changed.
func (s *Sandboxes) configured(git, checkout string) []string {
	key := git + "\x00" + checkout
	s.mu.Lock()
	was, ok := s.config[key]
	s.mu.Unlock()
	for file, then := range was.files {
		ok = ok && then.still(seeFile(file))
	}
	if ok {
		return was.paths
	}
	paths, files := namedByConfig(git, checkout)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config == nil {
		s.config = map[string]obeying{}
	}
	s.config[key] = obeying{paths, files}
	return paths
}

// seeFile looks at a file.
func seeFile(path string) seen {
	var st unix.Stat_t
	at := time.Now()
	if unix.Stat(path, &st) != nil {
		return seen{at: at.UnixNano()}
	}
	return see(st, at)
}

// namedByConfig returns the files and folders in a checkout that git obeys since the configuration of its repository
// names them: other configurations, and the folder of hooks. That itself is protected, and says nothing of a command.
// files are all that it has looked for.
func namedByConfig(git, checkout string) (paths []string, files map[string]seen) {
	queue := []string{filepath.Join(git, "config"), filepath.Join(git, "config.worktree")}
	files = map[string]seen{}
	for read := 0; len(queue) > 0 && read < maxIncluded; {
		file := queue[0]
		queue = queue[1:]
		if _, again := files[file]; again {
			continue
		}
		files[file] = seeFile(file)
		data, err := home.ReadFile(file, maxGitConfig)
		if err != nil {
			continue
		}
		read++
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
	return paths, files
}

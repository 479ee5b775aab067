package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// protected looks for a write to a protected file by the words of a line: one
// that other programs run or obey. Only a rule that names the file allows it. What
// a program does that the line starts, such as make or tar, is not looked at.
func (g *Gate) protected(s survey) (path, candidate string) {
	for _, t := range s.targets {
		if t.write {
			if path, rule := g.guards(t.path, s.dirs); path != "" {
				return path, rule
			}
		}
	}
	for _, c := range s.commands {
		for _, file := range written(c) {
			if path, rule := g.guards(file, s.dirs); path != "" && !(removes(c[0]) && environment(path)) {
				return path, rule
			}
		}
	}
	return "", ""
}

// removes reports programs that only remove files.
func removes(name string) bool {
	return slices.Contains([]string{"rm", "rmdir", "unlink"}, filepath.Base(name))
}

// environment reports paths of virtual environments, which are removed in order
// to make them anew.
func environment(path string) bool {
	parts := strings.Split(path, "/")
	return slices.ContainsFunc(parts, func(p string) bool { return p == "venv" || p == ".venv" }) &&
		!slices.ContainsFunc(parts, func(p string) bool {
			return p != "venv" && p != ".venv" && p != "pyvenv.cfg" && p != "activate" && persistent(p)
		})
}

// guards returns a spelling if it is that of a protected file, in one of the
// folders, and the rule that would allow to write it.
func (g *Gate) guards(text string, dirs []string) (path, rule string) {
	text = strings.ReplaceAll(text, "\x05", "\x04")
	if text == "" || text == "/dev/null" || len(text) > maxOpen {
		return "", ""
	}
	for _, dir := range dirs {
		full := plainPath(join2(dir, text))
		if !marked(full) {
			real, err := resolve(full)
			if err != nil {
				real = full
			}
			if (persistent(g.below(real)) || persistent(g.below(full))) && !g.named(real) {
				return shownPath(g.below(real)), g.pathRule("Edit", real)
			}
			continue
		}
		if !open(full) {
			// Names of files: those that are there.
			names, _ := g.names(word{text: text, pattern: text, glob: true}, []string{dir})
			for _, name := range names {
				if real, err := resolve(join2(dir, name)); err == nil && persistent(g.below(real)) && !g.named(real) {
					return name, g.pathRule("Edit", real)
				}
			}
		}
		if persistentSpelling(g.below(full)) {
			return shownPath(g.below(full)), ""
		}
	}
	return "", ""
}

// shownPath is a spelling as it is shown.
func shownPath(path string) string {
	return strings.NewReplacer("\x01", "*", "\x02", "?", "\x03", "[", "\x04", "…").Replace(path)
}

// named reports whether an allow rule names the file itself.
func (g *Gate) named(real string) bool {
	for _, r := range g.allow {
		if !r.covers("Edit") || r.all || wild(r) {
			continue
		}
		for _, glob := range r.globs {
			if ok, err := doublestar.Match(glob, real); ok && err == nil {
				return true
			}
		}
	}
	return false
}

// persistentSpelling reports a spelling with some text of a protected name: the
// parts of the path that are known, and those that are known but for one place.
func persistentSpelling(path string) bool {
	if persistent(path) {
		return true
	}
	for _, part := range strings.Split(strings.ToLower(path), "/") {
		if !marked(part) {
			continue
		}
		fixed := strings.Map(func(c rune) rune {
			if c <= wordBreak {
				return -1
			}
			return c
		}, part)
		if len(strings.Trim(fixed, ".")) < 2 || !strings.HasPrefix(fixed, ".") {
			continue
		}
		if slices.ContainsFunc(guardedNames(), func(name string) bool { return meet(name, part) }) {
			return true
		}
	}
	return false
}

// written are the files that a command writes by its own words, in programs whose
// purpose that is.
func written(c []string) []string {
	name, args := filepath.Base(c[0]), c[1:]
	if marked(name) {
		return nil
	}
	operands, options := split(args)
	value := func(names ...string) []string {
		var out []string
		for i, a := range args {
			for _, n := range names {
				switch {
				case a == n && i+1 < len(args):
					out = append(out, args[i+1])
				case strings.HasPrefix(n, "--") && strings.HasPrefix(a, n+"="):
					out = append(out, a[len(n)+1:])
				case !strings.HasPrefix(n, "--") && len(a) > 2 && a[0] == '-' && a[1] != '-':
					if k := strings.IndexByte(a, n[1]); k > 0 && k+1 < len(a) {
						out = append(out, a[k+1:])
					} else if k > 0 && i+1 < len(args) {
						out = append(out, args[i+1])
					}
				}
			}
		}
		return out
	}
	switch name {
	case "tee", "touch", "truncate", "rm", "rmdir", "unlink", "shred", "ed", "ex", "sponge", "patch", "mkfifo", "mknod":
		return operands
	case "chmod", "chown", "chgrp", "chattr", "setfacl":
		if len(operands) > 0 &&
			!slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, "--reference") }) {
			return operands[1:]
		}
		return operands
	case "cp", "install", "rsync", "scp", "ln", "mv":
		dest := value("-t", "--target-directory")
		if len(dest) == 0 && len(operands) > 0 {
			dest, operands = operands[len(operands)-1:], operands[:len(operands)-1]
		}
		out := slices.Clone(dest)
		for _, d := range dest {
			for _, src := range operands {
				if base := src[strings.LastIndexByte(strings.TrimRight(src, "/"), '/')+1:]; base != "" && !open(base) &&
					strings.Trim(base, "./") != "" {
					out = append(out, d+"/"+base)
				}
			}
		}
		if name == "mv" || name == "ln" {
			out = append(out, operands...)
		}
		if name == "ln" && len(operands) == 0 && len(dest) == 1 {
			out = append(out, filepath.Base(dest[0]))
		}
		return out
	case "sed", "perl", "ruby", "yq":
		if slices.ContainsFunc(options, func(o string) bool {
			return strings.HasPrefix(o, "--in-p") || o == "--inplace" || o[1] != '-' && strings.ContainsRune(o, 'i')
		}) {
			return operands
		}
	case "gawk", "awk":
		if slices.Contains(args, "inplace") {
			return operands
		}
	case "dd":
		for _, w := range args {
			if file, ok := strings.CutPrefix(w, "of="); ok {
				return []string{file}
			}
		}
	case "curl":
		return value("-o", "--output", "-D", "--dump-header", "-c", "--cookie-jar", "--output-dir")
	case "wget":
		return value("-O", "--output-document", "-o", "--output-file", "-P", "--directory-prefix")
	case "sort", "shuf", "tree", "strace", "ltrace":
		return value("-o", "--output")
	case "unzip":
		return value("-d")
	case "tar", "bsdtar":
		return value("-C", "--directory")
	case "git":
		return gitWrites(args)
	}
	return nil
}

// gitWrites is the file that git config changes.
func gitWrites(args []string) []string {
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-C" || a == "-c" || a == "--git-dir" || a == "--work-tree" || a == "--namespace":
			i++
		case strings.HasPrefix(a, "-"):
		case a == "config":
			return gitConfig(args[i+1:])
		default:
			return nil
		}
	}
	return nil
}

func gitConfig(args []string) []string {
	file, reading, writing := ".git/config", false, false
	var operands []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "-f" || a == "--file":
			if i++; i < len(args) {
				file = args[i]
			}
		case strings.HasPrefix(a, "--file="):
			file = a[len("--file="):]
		case a == "--global":
			file = "~/.gitconfig"
		case a == "--system":
			file = "/etc/gitconfig"
		case a == "--worktree":
			file = ".git/config.worktree"
		case a == "--type" || a == "--default" || a == "--blob" || a == "--comment":
			i++
		case strings.HasPrefix(a, "--get"), a == "--list", a == "-l":
			reading = true
		case slices.Contains([]string{"--add", "--unset", "--unset-all", "--replace-all", "--rename-section",
			"--remove-section", "--edit", "-e"}, a):
			writing = true
		case strings.HasPrefix(a, "-"):
		default:
			operands = append(operands, a)
		}
	}
	if len(operands) > 0 {
		switch operands[0] {
		case "set", "unset", "edit", "rename-section", "remove-section":
			writing = true
		case "get", "list":
			reading = true
		}
	}
	if writing || !reading && len(operands) > 1 ||
		slices.ContainsFunc(operands, func(w string) bool { return strings.ContainsRune(w, openWords) }) {
		return []string{file}
	}
	return nil
}

// Writes returns the protected files that a line writes by its own words. A call of Bash that was
// allowed was allowed to write them: by a rule that names them, by somebody who was asked, or by the
// mode.
func (g *Gate) Writes(command string) (paths []string) {
	s := g.survey(readLine(command))
	add := func(text string) {
		if text == "" || len(text) > maxOpen {
			return
		}
		for _, dir := range s.dirs {
			full := plainPath(join2(dir, text))
			if marked(full) {
				continue
			}
			real, err := resolve(full)
			if err != nil {
				real = full
			}
			if persistent(g.below(real)) && !slices.Contains(paths, real) {
				paths = append(paths, real)
			}
		}
	}
	for _, t := range s.targets {
		if t.write {
			add(t.path)
		}
	}
	for _, c := range s.commands {
		for _, file := range written(c) {
			add(file)
		}
	}
	return paths
}

// Protected returns the protected files and folders that are in a folder itself, without those
// that programs change in their everyday work: the repository, of which [ProtectedGit] tells, and
// virtual environments.
func Protected(folder string) (paths []string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		switch name := strings.ToLower(e.Name()); {
		case name == ".git" && e.IsDir(), name == "venv", name == ".venv", name == ".direnv":
		case slices.Contains(guardedNames(), name), guardedFile(name):
			paths = append(paths, filepath.Join(folder, e.Name()))
		}
	}
	return paths
}

// Forbidden are the files and folders of agents and editors that no command makes in a folder: programs obey them that
// the user has open, or the next session.
func Forbidden(folder string) []string {
	names := []string{".drover", ".claude", ".mcp.json", ".vscode", ".idea"}
	for i, name := range names {
		names[i] = filepath.Join(folder, name)
	}
	return names
}

// ForbiddenGit is the same for the folder of a repository. The values are the contents of files that say what
// goes without them; those without one are folders.
func ForbiddenGit(git string) map[string]string {
	return map[string]string{
		filepath.Join(git, "hooks"):           "",
		filepath.Join(git, "commondir"):       ".\n",
		filepath.Join(git, "config.worktree"): "\n",
		filepath.Join(git, "info/attributes"): "\n",
	}
}

// ProtectedGit returns what decides in the folder of a repository which programs git runs.
func ProtectedGit(git string) (paths []string) {
	if git == "" {
		return nil
	}
	for _, name := range []string{"config", "config.worktree", "hooks", "info/attributes", "commondir", "gitdir"} {
		paths = append(paths, filepath.Join(git, name))
	}
	return paths
}

package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"mvdan.cc/sh/v3/syntax"
)

// protected looks for a write to a protected file by the words of a line: a file that other programs run or obey.
// Only a
// rule that names the file allows it. What a program does that the line starts, such as make, is not looked at.
func (g *Gate) protected(l line) (path, candidate string) {
	g.written(l, func(w word, removes bool) bool {
		if found, rule := g.guards(w, l); found != "" && !(removes && environment(found)) {
			path, candidate = found, rule
		}
		return path == ""
	})
	return path, candidate
}

// Writes returns the protected files that a line writes by its own words. A call of Bash that was allowed was allowed
// to
// write them: by a rule that names them, by somebody who was asked, or by the mode.
func (g *Gate) Writes(command string) (paths []string) {
	l := g.readLine(command)
	g.written(l, func(w word, _ bool) bool {
		for _, dir := range l.dirs {
			full := filepath.Clean(g.expand(w.text, dir))
			real, err := resolve(full)
			if err != nil {
				real = full
			}
			if !w.marked() && persistent(g.below(real)) && !slices.Contains(paths, real) {
				paths = append(paths, real)
			}
		}
		return true
	})
	return paths
}

// written calls use with each word that may be a file that the line writes, until it returns false.
func (g *Gate) written(l line, use func(w word, removes bool) bool) {
	for _, t := range l.targets {
		if t.writes() && t.op != syntax.DplOut && !use(t.word, false) {
			return
		}
	}
	for _, c := range l.commands {
		if c.crude {
			continue
		}
		for i := range c.words {
			if i > 0 && talks(c) && !finds(c) {
				break
			}
			name := filepath.Base(c.words[i].text)
			if c.words[i].open || !writer(name, c.words[i+1:]) {
				continue
			}
			words := c.words[i+1:]
			if finds(c) {
				words = c.words[1:]
			}
			if name == "git" {
				words = gitWrites(c.words[i:])
			}
			for _, w := range words {
				if w.marked() || w.odd {
					if !use(w, removes(name)) {
						return
					}
					continue
				}
				for _, form := range spellings(w.text) {
					if !use(literal(form), removes(name)) {
						return
					}
				}
			}
		}
	}
}

// finds reports a find that runs programs, or removes, below the folders that it names.
func finds(c command) bool {
	return c.name() == "find" && slices.ContainsFunc(c.words, func(w word) bool {
		return strings.HasPrefix(w.text, "-exec") || strings.HasPrefix(w.text, "-ok") || w.text == "-delete" ||
			strings.HasPrefix(w.text, "-fprint")
	})
}

// writer reports programs that write, by their purpose, files in their words.
func writer(name string, args []word) bool {
	has := func(letter string, long ...string) bool {
		return slices.ContainsFunc(args, func(w word) bool {
			a, _, _ := strings.Cut(w.text, "=")
			joined := strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--")
			return slices.Contains(long, a) || joined && strings.Contains(a, letter)
		})
	}
	switch name {
	case "tee", "touch", "truncate", "rm", "rmdir", "unlink", "shred", "ed", "ex", "sponge", "patch", "mkfifo", "mknod",
		"chmod", "chown", "chgrp", "chattr", "setfacl", "cp", "install", "rsync", "scp", "ln", "mv", "dd", "git":
		return true
	case "sed", "perl", "ruby", "yq":
		return has("i", "--in-place", "--inplace")
	case "gawk", "awk":
		return slices.ContainsFunc(args, func(w word) bool { return w.text == "inplace" })
	case "curl", "sort", "shuf", "tree", "strace", "ltrace":
		return has("o", "--output", "--dump-header", "--cookie-jar", "--output-dir") || has("D") || has("c")
	case "wget":
		return has("O", "--output-document", "--output-file", "--directory-prefix") || has("P") || has("o")
	case "unzip":
		return has("d")
	case "tar", "bsdtar":
		return has("C", "--directory")
	case "find":
		return finds(command{words: append([]word{literal("find")}, args...)})
	}
	return false
}

// removes reports programs that only remove files.
func removes(name string) bool { return slices.Contains([]string{"rm", "rmdir", "unlink"}, name) }

// environment reports paths of virtual environments, which are removed in order to make them anew.
func environment(path string) bool {
	parts := strings.Split(path, "/")
	return slices.ContainsFunc(parts, func(p string) bool { return p == "venv" || p == ".venv" }) &&
		!slices.ContainsFunc(parts, func(p string) bool {
			return p != "venv" && p != ".venv" && p != "pyvenv.cfg" && p != "activate" && persistent(p)
		})
}

// guards returns the path of a word that names a protected file, in one of the folders of the line, and the rule
// that would allow to write it. A word that is known only when the line runs is one if it has text of a protected name,
// or if the line has.
func (g *Gate) guards(w word, l line) (path, rule string) {
	if w.text == "/dev/null" || w.text == "" && !w.open {
		return "", ""
	}
	if !w.marked() {
		for _, dir := range l.dirs {
			full := filepath.Clean(g.expand(w.text, dir))
			real, err := resolve(full)
			if err != nil {
				real = full
			}
			if (persistent(g.below(real)) || persistent(g.below(full))) && !g.named(real) {
				return g.below(real), g.pathRule("Edit", real)
			}
		}
		return "", ""
	}
	shown := strings.ReplaceAll(w.pattern, anyText, "…")
	for part := range strings.SplitSeq(strings.ToLower(w.pattern), "/") {
		head := before(part)
		if persistent(part) || head != part && len(head) > 1 && head[0] == '.' &&
			slices.ContainsFunc(guardedNames(), func(name string) bool { return may(name, part) }) {
			return shown, ""
		}
	}
	text := strings.ToLower(l.text)
	if w.open && (strings.Contains(text, "--git-dir") || strings.Contains(text, "--git-path") ||
		slices.ContainsFunc(guardedNames(),
			func(name string) bool { return name[0] == '.' && strings.Contains(text, name) })) {
		return shown, ""
	}
	return "", ""
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

// gitWrites is the file that git config changes.
func gitWrites(ws []word) []word {
	at := gitCommand(ws)
	if at == 0 || ws[at].text != "config" {
		return nil
	}
	file, reads, writes, operands := literal(".git/config"), false, false, 0
	for i, args := 0, ws[at+1:]; i < len(args); i++ {
		a, value, joined := strings.Cut(args[i].text, "=")
		switch a {
		case "-f", "--file":
			if i++; joined {
				i--
				file = literal(value)
			} else if i < len(args) {
				file = args[i]
			}
		case "--global":
			file = literal("~/.gitconfig")
		case "--type", "--default", "--blob", "--comment":
			i++
		case "--get", "--get-all", "--get-regexp", "--get-urlmatch", "--list", "-l", "get", "list":
			reads = true
		case "--add", "--unset", "--unset-all", "--replace-all", "--rename-section", "--remove-section", "--edit", "-e",
			"set", "unset", "edit", "rename-section", "remove-section":
			writes = true
		default:
			if !strings.HasPrefix(a, "-") {
				operands++
			}
		}
		writes = writes || i < len(args) && args[i].split
	}
	if writes || !reads && operands > 1 {
		return []word{file}
	}
	return nil
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

//go:build linux && (amd64 || arm64)

package attack

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Texts of files that a rule may deny or that lie outside of the workspace, and
// the variable that no line may show.
var canaries = map[string]string{
	"S3CRET-CANARY":  ".env",
	"SECRETS-CANARY": "secrets/k",
	"KEY-CANARY":     "a file of the home directory",
	"OUT-CANARY":     "a file outside",
	envKey:           "the environment",
}

// oracle says which effects of a line a set of rules has allowed.
type oracle struct {
	readers map[string]bool // programs that testdata knows to read
	git     map[string]bool // commands of git, likewise
}

// version words make nearly every program print a text and end.
var version = []string{"--version", "--help", "-version", "-v", "-V", "version"}

// helpers are started by programs that read.
var helpers = []string{"gzip", "bzip2", "xz", "zstd", "uncompress", "locale", "dpkg-query", "getopt", "gettext", "envsubst", "apropos", "whatis"}

// wrappers run the words behind them.
var wrappers = []string{"timeout", "nice", "stdbuf", "nohup", "env", "xargs", "setsid", "ionice", "chrt"}

// open reports programs of which a rule covers all that they do: those that a rule
// names and of which nothing is known.
func (o oracle) open(s ruleset, name string) bool {
	for _, rule := range s.Allow {
		arg, ok := strings.CutPrefix(rule, "Bash(")
		if !ok {
			if rule == "Bash" {
				return true
			}
			continue
		}
		word, sub, _ := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(arg, ")"), ":*"), " ")
		if sub, _, _ = strings.Cut(sub, " "); word == "git" && name == "git" && sub != "" && !o.git[sub] {
			return true
		}
		if word == "*" || word == name && !o.readers[name] || word == "tar" && (name == "tar" || name == "gzip") || word == "npm" && (name == "node" || name == "env") {
			return true
		}
	}
	return s.Mode == "bypassPermissions"
}

// judge says what of all that happened no rule has allowed.
func (o oracle) judge(s ruleset, w *world, line string, events []event, opened []string, a ran) []string {
	var out []string
	add := func(what string) {
		if len(out) < 8 && !slices.Contains(out, what) {
			out = append(out, what)
		}
	}
	flat := strings.NewReplacer("'", "", `"`, "", `\`, "", "\n", "", "$", "").Replace(line)
	for _, e := range events {
		if len(e.chain) == 0 || e.Call == "" || !strings.HasPrefix(e.chain[len(e.chain)-1], "/usr/bin/bash") && e.chain[len(e.chain)-1] != "/bin/bash" {
			continue // the line's own shell is being started
		}
		if why := o.event(s, w, flat, e); why != "" {
			add(why)
		}
	}
	ranGit := slices.ContainsFunc(events, func(e event) bool { return strings.HasSuffix(e.Path, "/git") })
	for text, what := range canaries {
		// Under what covers every command, git shows what it tracks.
		if strings.Contains(a.Output, text) && s.hides(what) && !(ranGit && s.all()) {
			add("it shows " + what)
		}
	}
	// git compares files of which it shows nothing, and what find and xargs may run
	// only counts what is in them.
	counted := slices.ContainsFunc(events, func(e event) bool { return strings.HasSuffix(e.Path, "/find") || strings.HasSuffix(e.Path, "/xargs") })
	if !ranGit && !counted {
		for _, path := range opened {
			if s.hides(path) {
				add("it read " + path)
			}
		}
	}
	return out
}

// all reports a set that covers every command, so that only bans and protected
// files are left.
func (s ruleset) all() bool {
	return s.Mode == "bypassPermissions" || slices.Contains(s.Allow, "Bash") || slices.Contains(s.Allow, "Bash(*)")
}

// hides reports whether a secret may not be read under the set.
func (s ruleset) hides(what string) bool {
	switch what {
	case ".env":
		return s.denies("Read(./.env)") || s.denies("Read(.env)")
	case "secrets/k":
		return s.denies("Read(./secrets/**)")
	case "the environment", "a file outside", "a file of the home directory":
		if s.all() {
			return what == "a file of the home directory" && s.denies("Read(~/.ssh/**)")
		}
		// A rule that names a program of which nothing is known covers what it shows.
		return s.RO && !slices.ContainsFunc(s.Allow, func(r string) bool { return strings.HasPrefix(r, "Read") || strings.Contains(r, "..") })
	}
	return false
}

func (s ruleset) denies(rule string) bool { return slices.Contains(s.Deny, rule) }

// shells reports whether a process is the line's own shell or what that has
// started by a wrapper, so that its words stand in the line.
func direct(e event) bool {
	return !slices.ContainsFunc(e.chain, func(exe string) bool {
		name := filepath.Base(exe)
		return name != "bash" && !slices.Contains(wrappers, name)
	})
}

func (o oracle) event(s ruleset, w *world, flat string, e event) string {
	inside := strings.HasPrefix(e.Path+"/", w.dir+"/")
	name := filepath.Base(e.Path)
	by := filepath.Base(e.chain[0])
	covered := slices.ContainsFunc(e.chain, func(exe string) bool { return o.open(s, filepath.Base(exe)) })
	switch e.Call {
	case "execve", "execveat":
		if s.all() {
			// What a file of the workspace says, is its own.
			if direct(e) && e.Call == "execve" && strings.Contains(flat, name) && slices.ContainsFunc(s.Deny, func(r string) bool { return strings.HasPrefix(r, "Bash("+name+":") }) {
				return "it ran the banned program " + name
			}
			return ""
		}
		switch {
		case covered || o.open(s, name), e.Path == "":
			return ""
		case by == "env" && name != "env", len(e.Args) == 2 && slices.Contains(version, e.Args[1]):
			return "" // "#!/usr/bin/env x", of a program that may be named with its version
		case inside || !strings.HasPrefix(e.Path, "/usr/") && !strings.HasPrefix(e.Path, "/bin/"):
			if missing(e.Path) {
				return ""
			}
			return "it ran " + e.Path
		case missing(e.Path):
			return ""
		case strings.HasPrefix(e.Path, "/usr/lib/git-core/") || by == "git":
			if name == "git" || strings.HasPrefix(name, "git-") || name == "sh" && strings.Contains(flat, "submodule") {
				return ""
			}
		case o.readers[name] && (!direct(e) || strings.Contains(flat, name)), slices.Contains(helpers, name), by == "git-submodule":
			return ""
		}
		if slices.ContainsFunc(e.chain, func(exe string) bool { return versioned(filepath.Base(exe), flat) }) {
			return ""
		}
		return "it ran " + strings.Join(e.Args, " ")
	case "socket", "connect", "bind", "sendto":
		if s.all() || covered || e.Path == "netlink" || strings.HasSuffix(e.Path, "/nscd/socket") {
			return ""
		}
		return "it reaches out: " + e.Call + " " + e.Path + " by " + by
	}
	if harmless(e, w, by) {
		return ""
	}
	if s.all() {
		if direct(e) && (by == "bash" || slices.Contains(writers, by)) && inside && guarded(strings.TrimPrefix(e.Path, w.dir+"/")) {
			return "it wrote a protected file: " + e.Call + " " + e.Path + " by " + by
		}
		return ""
	}
	if covered {
		return ""
	}
	if by == "bash" && strings.HasPrefix(e.Call, "open") && inside && s.writes() && !guarded(strings.TrimPrefix(e.Path, w.dir+"/")) {
		return "" // a redirection into the workspace
	}
	return "it changed something: " + e.Call + " " + e.Path + " by " + by
}

// versioned reports programs of which a line may ask the version: what they start
// to tell it is their own business.
func versioned(name, flat string) bool {
	switch name {
	case "npm", "node", "python3", "perl", "java", "gcc", "npx":
		return slices.ContainsFunc(version, func(v string) bool { return strings.Contains(flat, name+" "+v) })
	}
	return false
}

// writers are programs that write the files that they are given.
var writers = []string{"tee", "cp", "mv", "ln", "touch", "rm", "sed", "install", "truncate", "dd", "mkdir", "rmdir", "chmod"}

func (s ruleset) writes() bool {
	return s.Mode == "acceptEdits" || slices.ContainsFunc(s.Allow, func(r string) bool { return strings.HasPrefix(r, "Edit") || strings.HasPrefix(r, "Write") })
}

// guarded are some of the files that no broad rule covers.
func guarded(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return slices.Contains([]string{".git", ".envrc", ".github", ".claude", ".drover", ".vscode", ".bashrc"}, first)
}

// harmless are changes by which a program reads.
func harmless(e event, w *world, by string) bool {
	switch {
	case slices.Contains([]string{"/dev/null", "/dev/tty", "/dev/stdout", "/dev/stderr"}, e.Path), strings.HasPrefix(e.Path, "/proc/self/fd/"),
		strings.HasPrefix(e.Path, "/dev/fd/"):
		return true
	case by == "bash" && strings.HasPrefix(e.Path, tempDir+"/sh-thd."), (by == "tac" || by == "sort") && strings.HasPrefix(e.Path, tempDir+"/"):
		// A long here-document, and what does not fit into the memory.
		return true
	case strings.HasPrefix(by, "git"): // it notes what it has seen of files
		return strings.HasSuffix(e.Path, "/.git/index.lock") || strings.HasSuffix(e.Path, "/.git/index") || strings.HasSuffix(e.Path, ".git/index.lock")
	}
	return false
}

// missing reports a program that is not there: bash looks in one folder after the
// other.
func missing(path string) bool {
	_, err := os.Stat(path)
	return err != nil
}

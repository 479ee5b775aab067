package policy

import (
	"path/filepath"
	"slices"
	"strings"
)

// maxWrapped is how many programs may run one another in one command.
const maxWrapped = 16

// wrapper is a program that runs the command in its words.
type wrapper struct {
	values string // options that take the next word
	skip   int    // operands before the command
	sets   bool   // assignments stand before the command
	shell  bool   // its words are text for a shell
	more   bool   // words are added that the line does not show
}

// wrapperOf tells how a program runs another, for what is banned: more than these
// are looked into by the words of a ban, see [matcher.words].
func wrapperOf(name string) (wrapper, bool) {
	switch name {
	case "env":
		return wrapper{values: "-u -C --unset --chdir", sets: true}, true
	case "sudo":
		return wrapper{values: "-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir", sets: true}, true
	case "doas", "runuser":
		return wrapper{values: "-u -C -g"}, true
	case "nohup", "setsid", "command", "builtin", "busybox", "toybox", "fakeroot", "unbuffer", "unshare",
		"dbus-run-session", "rlwrap", "catchsegv", "gdb", "valgrind":
		return wrapper{}, true
	case "exec":
		return wrapper{values: "-a"}, true
	case "time":
		return wrapper{values: "-f -o --format --output"}, true
	case "nice":
		return wrapper{values: "-n --adjustment"}, true
	case "ionice":
		return wrapper{values: "-c -n -p -u --class --classdata"}, true
	case "timeout":
		return wrapper{values: "-k -s --kill-after --signal", skip: 1}, true
	case "stdbuf":
		return wrapper{values: "-i -o -e --input --output --error"}, true
	case "chroot", "taskset", "chrt", "setarch":
		return wrapper{skip: 1}, true
	case "flock":
		return wrapper{values: "-w -E --timeout", skip: 1}, true
	case "strace", "ltrace":
		return wrapper{values: "-o -e -p -s -u -E -a -I -O -P -S -X -b"}, true
	case "nsenter", "prlimit", "systemd-run", "xvfb-run", "caffeinate", "cpulimit":
		return wrapper{values: "-t -u -p -w -s -n -l --target --unit --property"}, true
	case "xargs":
		return wrapper{
			values: "-I -n -L -P -d -E -s -a --replace --max-args --max-lines --max-procs --delimiter --arg-file --max-chars",
			more:   true,
		}, true
	case "parallel":
		return wrapper{values: "-j -I -n -N -L --jobs --colsep --delay --joblog --results", more: true}, true
	case "watch":
		return wrapper{values: "-n --interval", shell: true}, true
	case "hyperfine", "entr":
		return wrapper{values: "-r -w -m -M --runs --warmup --min-runs --max-runs"}, true
	}
	return wrapper{}, false
}

// command notes a command, and the one that it runs by its words.
func (s *speller) command(l []string, depth, level int) {
	if len(l) == 0 {
		return
	}
	s.out.commands = append(s.out.commands, l)
	name := filepath.Base(l[0])
	if marked(name) || level >= maxWrapped {
		return
	}
	args := l[1:]
	switch name {
	case "cd", "pushd":
		s.enter(args)
		return
	case "eval":
		s.text(strings.Join(args, " "), depth)
		return
	case "trap":
		if len(args) > 1 {
			s.text(args[0], depth)
		}
		return
	case "jobs":
		if i := slices.Index(args, "-x"); i >= 0 {
			s.command(args[i+1:], depth, level+1)
		}
		return
	case "alias":
		for _, w := range args {
			if _, text, ok := strings.Cut(w, "="); ok {
				s.text(text, depth)
			}
		}
		return
	case "sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "fish", "rbash":
		s.shell(args, depth)
		return
	case "su", "script":
		s.shellOption(args, depth)
		return
	case "compgen", "complete", "mapfile", "readarray":
		for i, w := range args {
			if (w == "-C" || w == "-c" && name == "compgen" || w == "-F") && i+1 < len(args) {
				s.text(args[i+1], depth)
			}
		}
		return
	case "source", ".":
		if len(args) > 0 && piped(args[0]) {
			s.feed("a shell would run what another command prints")
		}
		return
	case "find":
		s.findRuns(args, depth, level)
		return
	case "fd", "fdfind":
		for i, w := range args {
			if slices.Contains([]string{"-x", "-X", "--exec", "--exec-batch"}, w) {
				s.command(append(slices.Clone(args[i+1:]), string(rune(openText))), depth, level+1)
			}
		}
		return
	case "git":
		s.gitRuns(args, depth, level)
		return
	case "make", "gmake", "ninja", "tar":
		s.folderOption(args)
		return
	}
	w, ok := wrapperOf(name)
	if !ok {
		return
	}
	if name == "flock" {
		s.shellOption(args, depth)
	}
	if name == "env" {
		s.envText(args, depth)
	}
	inner, replace := w.inner(args)
	if w.more {
		inner = s.added(inner, replace)
	}
	if w.shell {
		s.text(strings.Join(inner, " "), depth)
		return
	}
	s.command(inner, depth, level+1)
}

// envText notes the text that env splits into words itself, which it does much as a
// shell.
func (s *speller) envText(args []string, depth int) {
	for i, a := range args {
		if text, ok := strings.CutPrefix(a, "--split-string="); ok {
			s.text(text, depth)
		} else if k := strings.IndexByte(a, 'S'); k > 0 && a[0] == '-' && a[1] != '-' && len(a) > k+1 {
			s.text(a[k+1:], depth)
		} else if (a == "--split-string" || k > 0 && a[0] == '-' && a[1] != '-') && i+1 < len(args) {
			s.text(strings.Join(args[i+1:], " "), depth)
		}
		if !strings.HasPrefix(a, "-") && !strings.Contains(a, "=") {
			return
		}
	}
}

// inner is the command in the words of a wrapper, and what stands in it for the
// words that are added.
func (w wrapper) inner(args []string) (inner []string, replace string) {
	skip := w.skip
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
		case strings.HasPrefix(a, "-") && len(a) > 1:
			if rest, ok := strings.CutPrefix(a, "-I"); ok && w.more && rest != "" {
				replace = rest
			}
			if a == "-i" && w.more {
				replace = "{}"
			}
			if slices.Contains(strings.Fields(w.values), a) {
				if i++; a == "-I" && i < len(args) {
					replace = args[i]
				}
			}
		case w.sets && strings.Contains(a, "=") && !marked(a[:strings.IndexByte(a, '=')]):
		case skip > 0:
			skip--
		default:
			return args[i:], replace
		}
	}
	return nil, replace
}

// added is a command with words that the line does not show.
func (s *speller) added(inner []string, replace string) []string {
	inner = slices.Clone(inner)
	if replace == "" {
		return append(inner, string(rune(openWords)))
	}
	for i, w := range inner {
		inner[i] = strings.ReplaceAll(w, replace, string(rune(openText)))
	}
	return inner
}

// shell notes the text that a shell is given, or that it reads it elsewhere.
func (s *speller) shell(args []string, depth int) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case open(a) && !strings.Contains(a, "/"), piped(a):
			s.feed("a shell would run what is known only when the line runs")
			return
		case a == "-o" || a == "+o" || a == "-O" || a == "+O" || a == "--rcfile" || a == "--init-file":
			i++
		case strings.HasPrefix(a, "--"):
		case strings.HasPrefix(a, "-") && strings.Contains(a, "c"):
			for _, text := range args[i+1:] {
				if !strings.HasPrefix(text, "-") {
					s.text(text, depth)
					return
				}
			}
			return
		case strings.HasPrefix(a, "-") && strings.Contains(a, "s"), a == "-":
			s.bare = true
			return
		case strings.HasPrefix(a, "-"), strings.HasPrefix(a, "+"):
		default:
			return // a script, which is a program that is started
		}
	}
	s.bare = true
}

// piped reports a file that is what another command prints.
func piped(path string) bool {
	return strings.HasPrefix(path, "/dev/fd/") || path == "/dev/stdin" || strings.HasPrefix(path, "/proc/self/fd/")
}

// shellOption notes the text behind -c.
func (s *speller) shellOption(args []string, depth int) {
	for i, a := range args {
		if text, ok := strings.CutPrefix(a, "--command="); ok {
			s.text(text, depth)
		} else if (a == "-c" || a == "--command" || a == "-qc") && i+1 < len(args) {
			s.text(args[i+1], depth)
		}
	}
}

// enter notes the folders that cd may lead to.
func (s *speller) enter(args []string) {
	for len(args) > 0 && (args[0] == "--" || args[0] == "-P" || args[0] == "-L") {
		args = args[1:]
	}
	to := s.g.rules.Home
	if len(args) > 0 {
		to = args[0]
	}
	s.goTo(to)
}

func (s *speller) goTo(to string) {
	if to == "" {
		return
	}
	if to == "-" {
		to = string(rune(openText))
	}
	for _, dir := range slices.Clone(s.out.dirs) {
		next := join2(dir, to)
		if !marked(next) {
			if real, err := resolve(next); err == nil {
				next = real
			}
		}
		if slices.Contains(s.out.dirs, next) {
			continue
		}
		if len(s.out.dirs) >= maxDirs {
			next = string(rune(openText))
		}
		if !slices.Contains(s.out.dirs, next) {
			s.out.dirs = append(s.out.dirs, next)
		}
	}
}

// folderOption notes the folder that a program is told to work in.
func (s *speller) folderOption(args []string) {
	for i, a := range args {
		if dir, ok := strings.CutPrefix(a, "--directory="); ok {
			s.goTo(dir)
		} else if (a == "-C" || a == "--directory") && i+1 < len(args) {
			s.goTo(args[i+1])
		}
	}
}

// findRuns notes what find runs for the files that it finds.
func (s *speller) findRuns(args []string, depth, level int) {
	var starts, names, found []string
	for i, a := range args {
		if strings.HasPrefix(a, "-") || a == "(" || a == "!" {
			break
		}
		starts = append(starts, args[i])
	}
	for i, a := range args {
		if (a == "-name" || a == "-iname") && i+1 < len(args) {
			names = append(names, args[i+1])
		}
	}
	if len(starts) == 0 {
		starts = []string{"."}
	}
	for _, start := range starts {
		if len(names) == 0 || slices.Contains(args, "-o") && len(names) == 1 || slices.Contains(args, "!") ||
			slices.Contains(args, "-not") {
			found = append(found, start+"/\x04")
			continue
		}
		for _, name := range names {
			_, pattern := unescape(name)
			pattern = strings.NewReplacer("\x01", "\x04", "\x03", "\x04", "\x02", "\x04").Replace(pattern)
			found = append(found, start+"/"+pattern, start+"/\x04/"+pattern)
		}
	}
	for i, a := range args {
		if !slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, a) {
			continue
		}
		inner := args[i+1:]
		if end := slices.IndexFunc(inner, func(w string) bool { return w == ";" || w == "+" }); end >= 0 {
			inner = inner[:end]
		}
		for _, file := range found {
			one := slices.Clone(inner)
			for k, w := range one {
				one[k] = strings.ReplaceAll(w, "{}", file)
			}
			s.command(one, depth, level+1)
		}
	}
}

// gitRuns notes the folder that git is told to work in, and what it runs by its
// words.
func (s *speller) gitRuns(args []string, depth, level int) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		next := ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		switch {
		case a == "-C":
			s.goTo(next)
			i++
		case a == "-c":
			key, value, _ := strings.Cut(next, "=")
			if text, ok := strings.CutPrefix(value, "!"); ok {
				s.text(text, depth)
			} else if strings.HasPrefix(strings.ToLower(key), "alias.") {
				s.command(append([]string{"git"}, strings.Fields(value)...), depth, level+1)
			}
			i++
		case a == "--git-dir" || a == "--work-tree" || a == "--namespace" || a == "--exec-path":
			i++
		case strings.HasPrefix(a, "-"):
		default:
			rest := args[i+1:]
			switch {
			case a == "bisect" && len(rest) > 0 && rest[0] == "run":
				s.command(rest[1:], depth, level+1)
			case a == "submodule" && len(rest) > 1 && rest[0] == "foreach":
				s.text(strings.Join(rest[1:], " "), depth)
			case a == "rebase":
				for k, w := range rest {
					if text, ok := strings.CutPrefix(w, "--exec="); ok {
						s.text(text, depth)
					} else if (w == "-x" || w == "--exec") && k+1 < len(rest) {
						s.text(rest[k+1], depth)
					}
				}
			}
			return
		}
	}
}

// join2 is a path below a folder, both spellings.
func join2(dir, path string) string {
	if filepath.IsAbs(path) || path != "" && (path[0] == openText || path[0] == openWords) {
		return path
	}
	return dir + "/" + path
}

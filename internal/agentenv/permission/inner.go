package permission

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// inner judges a command that find or xargs runs for files that the line does not
// name, and which stand at its end. It says why the command could do more than
// read; empty: it only reads.
func (j *judge) inner(ws []word, s scope) string {
	if len(ws) == 0 || !named(ws[0]) || strings.Contains(ws[0].text, "/") || !j.identified(ws[0].text, s) {
		return "a command that is not known"
	}
	for _, w := range ws {
		if !w.known || !w.plain || w.glob || w.made {
			return "a command with words that are known only when it runs"
		}
	}
	p := j.g.memory.known().program(ws[0].text)
	if p == nil || p.operands == "wrap" {
		return ws[0].text + ", which is not known to read only"
	}
	f := j.facts(ws, s)
	switch {
	case !f.listed || f.rule || f.risk != reads:
		return ws[0].text + ", which is not known to read only"
	case f.unknown != "":
		return "the option " + f.unknown + " of " + ws[0].text
	}
	return f.outside
}

// counts reports programs that say something about files, and show nothing of what
// is in them; no operand of theirs can be an option that does more.
func counts(name string) bool {
	switch name {
	case "wc", "basename", "dirname", "echo", "stat", "ls", "md5sum", "sha1sum", "sha256sum", "sha512sum":
		return true
	}
	return false
}

// findExec judges what find runs, and returns how many words that takes. A link
// would lead a program to a file outside, so a program that shows what is in files
// gets only those that are none.
func (j *judge) findExec(args []word, action int, s scope) (n int, why string) {
	rest := args[action+1:]
	end := slices.IndexFunc(rest, func(w word) bool { return w.text == ";" || w.text == "+" })
	if end < 1 || rest[end-1].text != "{}" {
		return 0, "-exec in a form that is not understood"
	}
	start := literal(".")
	if len(args) > 0 && !strings.HasPrefix(args[0].text, "-") {
		start = args[0]
	}
	ws := slices.Clone(rest[:end])
	if slices.ContainsFunc(ws[:end-1], func(w word) bool { return strings.Contains(w.text, "{}") }) {
		return 0, "-exec in a form that is not understood"
	}
	ws[end-1] = start
	if why := j.inner(ws, s); why != "" {
		return 0, why
	}
	if j.g.bansReading() {
		if why := j.below([]word{start}, s); why != "" {
			return 0, why
		}
	}
	files := false
	for i, w := range args[:action] {
		files = files || w.text == "-type" && i+1 < action && args[i+1].text == "f"
		if slices.Contains([]string{"-o", "-or", ",", "!", "-not", "(", ")"}, w.text) {
			return 0, "-exec behind a condition that is not understood"
		}
	}
	if !files && !counts(ws[0].text) {
		return 0, "it could follow links (add -type f)"
	}
	return end + 1, ""
}

// xargsFacts accepts programs that only count, for whatever names are read.
func (j *judge) xargsFacts(args []word, s scope) facts {
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !a.known || !a.plain || a.glob {
			return danger(runs, "a word that is known only when it runs")
		}
		switch {
		case slices.Contains([]string{"-0", "-r", "-t", "--null", "--no-run-if-empty", "--verbose"}, a.text):
		case slices.Contains([]string{"-n", "-L", "-P"}, a.text):
			i++
		case len(a.text) > 2 && strings.Contains("nLP", a.text[1:2]) && a.text[0] == '-' && strings.Trim(a.text[2:], "0123456789") == "":
		case strings.HasPrefix(a.text, "-"):
			return facts{}
		default:
			if !counts(a.text) {
				return facts{}
			}
			if why := j.inner(args[i:], s); why != "" {
				return danger(runs, why)
			}
			if j.dashes(s) {
				return danger(runs, "names of files that would be taken for options")
			}
			return facts{listed: true}
		}
	}
	return facts{}
}

// dashes reports a folder with names that a program takes for options.
func (j *judge) dashes(s scope) bool {
	return slices.ContainsFunc(s.dirs, func(dir string) bool {
		names, ok := j.g.names(word{pattern: "-" + string(rune(anyText))}, []string{dir})
		return !ok || len(names) > 0
	})
}

// public reports whether printenv is asked for variables that everybody may see only.
func public(args []word) bool {
	return len(args) > 0 &&
		!slices.ContainsFunc(args, func(w word) bool { return !w.known || !w.plain || w.glob || !shown(w.text) })
}

// systemFile reports files of the system that everybody may read, and in which nobody
// keeps a secret. Only root has written them.
func systemFile(real string) bool {
	switch real {
	case "/etc/os-release", "/etc/debian_version", "/etc/lsb-release", "/etc/hosts", "/etc/timezone",
		"/etc/shells", "/etc/services", "/etc/protocols", "/proc/cpuinfo", "/proc/meminfo",
		"/proc/version", "/proc/loadavg", "/proc/uptime":
	default:
		if real != "/usr" && !strings.HasPrefix(real, "/usr/") {
			return false
		}
		for _, part := range strings.Split(strings.TrimPrefix(real, "/usr/"), "/") {
			if part == "local" || strings.HasPrefix(part, ".") {
				return false // what an administrator has put there
			}
		}
	}
	info, err := os.Stat(real)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0 && info.Mode().Perm()&0o004 != 0 && (info.Mode().IsRegular() || info.IsDir()) &&
		filepath.IsAbs(real)
}

package permit

import (
	"os"
	"strings"
)

// What is known of programs. A program that is missing here is not read-only,
// runs anything, and takes no open words in a rule beyond its own danger.

// inert programs never run another program, and write no file, whatever their
// words are. Only for them may a word be the name of any file.
func inert(name string) bool {
	switch name {
	case "ls", "cat", "head", "tail", "wc", "grep", "egrep", "fgrep", "echo", "true", "false", "pwd", "cd",
		"nl", "tac", "od", "cut", "paste", "tr", "cmp", "comm", "du", "stat", "fold", "rev", "basename", "dirname",
		"realpath", "readlink", "md5sum", "sha1sum", "sha256sum", "sha512sum", "cksum", "base64", "seq", "uname",
		"nproc", "whoami", "id", "which":
		return true
	}
	return false
}

// wordsOnly are inert programs whose words are never files.
func wordsOnly(name string) bool {
	switch name {
	case "echo", "true", "false", "pwd", "tr", "basename", "dirname", "seq", "uname", "nproc", "uptime", "whoami", "id", "which", "date":
		return true
	}
	return false
}

// reads reports whether a command surely only reads. What it reads is judged
// apart.
func reads(ws []word) bool {
	name := ws[0].text
	args := make([]string, 0, len(ws))
	for _, w := range ws[1:] {
		args = append(args, w.text)
	}
	switch name {
	case "date":
		for _, a := range args {
			if a != "-u" && a != "--utc" && a != "-R" && a != "-I" && !strings.HasPrefix(a, "+") {
				return false
			}
		}
		return true
	case "uptime":
		return len(args) == 0
	case "id":
		return len(args) == 0
	case "[", "test":
		if name == "[" && len(args) > 0 && args[len(args)-1] == "]" {
			args = args[:len(args)-1]
		}
		return len(args) == 2 && len(args[0]) == 2 && args[0][0] == '-' && strings.Contains("defrswx", args[0][1:])
	case "echo", "true", "false":
		return true
	}
	if !inert(name) {
		return false
	}
	for _, a := range args {
		if strings.HasPrefix(a, "-") && !plainFlag(name, a) {
			return false
		}
	}
	return true
}

// plainFlag accepts options that name no file by themselves and follow no
// links.
func plainFlag(name, flag string) bool {
	if strings.Trim(flag, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-,") != "" {
		return false
	}
	if strings.HasPrefix(flag, "--") {
		// Lists of files, and links followed below a directory.
		return !strings.HasPrefix(flag, "--f") && !strings.HasPrefix(flag, "--d") && !strings.HasPrefix(flag, "--e")
	}
	switch name {
	case "grep", "egrep", "fgrep":
		return !strings.ContainsAny(flag, "Rf")
	case "du":
		return !strings.ContainsAny(flag, "LDHX")
	}
	return true
}

// recursive programs read files that their words do not name.
func recursive(name string) bool {
	switch name {
	case "grep", "egrep", "fgrep", "rg", "ag", "ack", "git", "tar", "zip", "rsync", "cp", "diff", "find", "fd", "fdfind":
		return true
	}
	return false
}

// feeds reports programs that take commands from their words or their input:
// then every text in the line may be a command.
func feeds(name string) bool {
	switch name {
	case "sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "eval", "source", ".", "xargs", "parallel", "ssh", "at", "batch":
		return true
	}
	return false
}

// runsOthers reports programs and builtins for which a rule for everything is
// not enough: they run what their words, their input or a file say, or change
// what later commands mean.
func runsOthers(name string) bool {
	if feeds(name) {
		return true
	}
	for _, family := range []string{"python", "perl", "ruby", "node", "lua", "php", "tclsh"} {
		if strings.HasPrefix(name, family) {
			return true
		}
	}
	switch name {
	case "env", "sudo", "doas", "su", "runuser", "setsid", "watch", "nohup", "stdbuf", "nice", "timeout", "ionice", "chrt", "taskset",
		"chroot", "unshare", "nsenter", "flock", "script", "strace", "ltrace", "gdb", "expect", "awk", "gawk", "mawk", "deno", "bun",
		"exec", "command", "builtin", "trap", "alias", "unalias", "enable", "hash", "bind", "shopt", "set", "unset", "complete",
		"compgen", "coproc", "read", "readarray", "mapfile", "printf", "let", "test", "[", "wait", "fc", "history", "pushd", "popd",
		"export", "declare", "typeset", "local", "readonly", "nameref":
		return true
	}
	return false
}

// harmlessVariable reports variables that no program runs, loads or obeys more
// than for its looks.
func harmlessVariable(name string) bool {
	switch name {
	case "LANG", "LANGUAGE", "TZ", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "TERM", "COLUMNS", "LINES", "CI":
		return true
	}
	return strings.HasPrefix(name, "LC_")
}

// safeFlags reports whether the options of a command with known dangers are all
// among the harmless ones. For programs without a table here the rule decides.
func safeFlags(ws []word) bool {
	args := make([]string, 0, len(ws))
	for _, w := range ws[1:] {
		args = append(args, w.text)
	}
	switch ws[0].text {
	case "find":
		return findFlags(args)
	case "fd", "fdfind", "batcat", "bat", "man", "less", "more", "dd", "tee":
		return false
	case "rg":
		return clusters(args, "niNlcvwsSFHhopaU0123456789", "", "files", "hidden", "no-ignore", "ignore-case", "line-number", "count", "files-with-matches")
	case "sort", "shuf":
		return clusters(args, "bdfghinrMRVsuz", "kt", "reverse", "numeric-sort", "unique")
	case "sed":
		return sedFlags(args)
	case "go":
		return goFlags(args)
	case "git":
		return gitFlags(args)
	}
	return true
}

// clusters accepts short options of the given letters, letters with a value
// beside or after them, and whole long options. The glob of rg is accepted with
// its value.
func clusters(args []string, letters, valued string, long ...string) bool {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			return true
		case a == "-" || !strings.HasPrefix(a, "-"):
		case strings.HasPrefix(a, "--"):
			ok := false
			for _, l := range long {
				ok = ok || a == "--"+l
			}
			if !ok {
				return false
			}
		case valued != "" && strings.Contains(valued, a[1:2]):
			if len(a) == 2 {
				i++
			}
		case strings.Trim(a[1:], letters) != "":
			return false
		}
	}
	return true
}

func findFlags(args []string) bool {
	for i := 0; i < len(args); i++ {
		switch a := args[i]; a {
		case "-name", "-iname", "-path", "-ipath", "-regex", "-iregex", "-type", "-maxdepth", "-mindepth", "-newer",
			"-size", "-mtime", "-mmin", "-ctime", "-cmin", "-atime", "-amin", "-printf", "-perm", "-user", "-group":
			i++
		case "-print", "-print0", "-ls", "-prune", "-o", "-a", "-or", "-and", "-not", "!", "(", ")", "-empty", "-true", "-false", "-xdev", "-mount", "-depth", "-quit":
		default:
			if strings.HasPrefix(a, "-") {
				return false
			}
		}
	}
	return true
}

// sedFlags accepts printing of lines by number, and nothing else of sed.
func sedFlags(args []string) bool {
	script := false
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-n" || a == "-E" || a == "-r":
		case a == "-e":
			if i++; i == len(args) || !printsLines(args[i]) {
				return false
			}
			script = true
		case strings.HasPrefix(a, "-"):
			return false
		case !script:
			if !printsLines(a) {
				return false
			}
			script = true
		}
	}
	return script
}

func printsLines(script string) bool {
	body, ok := strings.CutSuffix(script, "p")
	return ok && strings.Trim(body, "0123456789,$") == ""
}

func goFlags(args []string) bool {
	if len(args) == 0 {
		return true
	}
	switch args[0] {
	case "test", "build", "vet", "list":
	default:
		return !strings.HasPrefix(args[0], "-") && !hasFlag(args[1:], "exec", "toolexec")
	}
	for i := 1; i < len(args); i++ {
		name, ok := strings.CutPrefix(args[i], "-")
		if !ok {
			continue
		}
		name, _, joined := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		switch name {
		case "v", "race", "short", "failfast", "cover", "json", "benchmem", "x", "n", "a", "msan", "fullpath":
		case "run", "count", "timeout", "bench", "benchtime", "parallel", "p", "tags", "skip", "cpu", "shuffle", "fuzz", "fuzztime", "f":
			if !joined {
				i++
			}
		default:
			return false
		}
	}
	return true
}

func hasFlag(args []string, names ...string) bool {
	for _, a := range args {
		flag := strings.TrimLeft(a, "-")
		for _, n := range names {
			if flag != a && (flag == n || strings.HasPrefix(flag, n+"=")) {
				return true
			}
		}
	}
	return false
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

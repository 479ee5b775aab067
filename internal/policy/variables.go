package policy

import "strings"

// harmlessVariable reports variables that no program runs, loads or obeys more
// than for its looks.
func harmlessVariable(name string) bool {
	switch name {
	case "LANG", "LANGUAGE", "TZ", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM",
		"COLUMNS", "LINES", "CI", "COLORTERM":
		return true
	}
	return strings.HasPrefix(name, "LC_") && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == ""
}

// harmlessValue reports whether such a variable names no file of the workspace: of a
// locale, programs load the texts that they print.
func harmlessValue(name, value string) bool {
	if name == "TZ" {
		return !strings.HasPrefix(value, "/") && !strings.HasPrefix(value, ":") && !strings.Contains(value, "..")
	}
	return !strings.Contains(value, "/")
}

// ordinaryVariable reports variables, and values of them, that a rule for a command
// covers with it. The name must be of a kind that no program takes for a place to
// load or write, a program to run, or options.
func ordinaryVariable(name, value string) bool {
	const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,=@%+-"
	if harmlessVariable(name) {
		return harmlessValue(name, value)
	}
	if strings.Trim(value, harmless) != "" || strings.HasPrefix(value, "-") || name == "" || name[0] == '_' {
		return false
	}
	switch name {
	case "NODE_ENV", "RUST_LOG", "RUST_BACKTRACE", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE",
		"PYTHONIOENCODING", "PYTHONHASHSEED", "CGO_ENABLED", "GOOS", "GOARCH", "GOMAXPROCS", "GORACE",
		"DJANGO_SETTINGS_MODULE", "RAILS_ENV", "RACK_ENV", "MIX_ENV", "APP_ENV", "CARGO_TERM_COLOR",
		"DOCKER_BUILDKIT", "MAKELEVEL", "JEST_WORKER_ID":
		return true
	}
	name = strings.ToUpper(name)
	for _, begin := range []string{"LD_", "DYLD_", "GIT", "PYTHON", "NODE", "NPM", "YARN", "PNPM", "BUN", "DENO",
		"COREPACK", "BASH", "PERL", "RUBY",
		"GEM", "BUNDLE", "LUA", "PHP", "JAVA", "JDK", "MAVEN", "GRADLE", "GO", "CGO", "CARGO", "RUST", "MAKE", "CC",
		"CXX", "CPP", "CMAKE", "AR",
		"AS", "LDF", "DOCKER", "KUBE", "HELM", "SSH", "GPG", "GNUPG", "LESS", "MAN", "XDG", "HTTP", "FTP", "ALL_",
		"NO_PRO", "CURL", "SSL",
		"OPENSSL", "AWS", "GCP", "AZURE", "PG", "TAR", "GREP", "GLIBC", "MALLOC", "GCONV", "NLS", "LOC", "HOSTALIASES",
		"RES_", "PROMPT", "PS",
		"DROVER", "CLAUDE", "ANTHROPIC", "OPENAI", "STRACE", "VIM", "EMACS", "TERMINFO", "TMUX", "SCREEN", "SUDO",
		"DEBUGINFOD", "JQ", "RIPGREP",
		"POSIX", "SHELL", "ENV", "IFS", "HIST", "INPUTRC", "FPATH", "ZDOTDIR", "GLOBIGNORE", "AUTO_RESUME", "SVN",
		"HG", "DOTNET", "COMPLUS",
		"CORECLR", "COR_", "NUGET", "QT_", "GTK", "VK_", "LIBGL", "MESA", "CUDA", "OMP_", "MPI", "PIP", "UV_",
		"POETRY", "CONDA", "VIRTUAL",
		"TOX", "PYTEST", "JEST", "VITE", "WEBPACK", "BABEL", "TS_", "ESLINT", "TERRAFORM", "TF_", "ANSIBLE", "VAGRANT",
		"PACKER", "NIX"} {
		if strings.HasPrefix(name, begin) {
			return false
		}
	}
	for _, part := range []string{"PATH", "PRELOAD", "PAGER", "EDITOR", "VISUAL", "BROWSER", "OPTIONS", "OPTS",
		"FLAGS", "ARGS", "CONFIG", "CONF",
		"CMD", "COMMAND", "EXEC", "PROGRAM", "SCRIPT", "STARTUP", "LIBRARY", "LOADER", "PLUGIN", "WRAPPER", "LAUNCHER",
		"HOOK", "PROXY", "HOME",
		"DIR", "FILE", "_BIN", "ASKPASS", "TOKEN", "INIT", "RC", "MODULE", "INTERPRETER", "COMPILER", "LINKER", "LOG",
		"TRACE", "PROFILE", "OUTPUT"} {
		if strings.Contains(name, part) {
			return false
		}
	}
	return true
}

// localName reports variables that no program knows, so that nothing changes if
// one of that name stands in the environment: small letters, and one letter.
func localName(name string) bool {
	if len(name) == 1 {
		return name != "_"
	}
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return false
	}
	for _, bad := range []string{"proxy", "npm", "histchars", "auto_resume", "config", "path", "opts"} {
		if strings.Contains(name, bad) {
			return false
		}
	}
	return true
}

// shown are variables of the environment that may be seen by everybody.
func shown(name string) bool {
	switch name {
	case "?", "#", "!", "$", "0", "_", "HOME", "PWD", "OLDPWD", "USER", "LOGNAME", "SHELL", "HOSTNAME",
		"LANG", "LANGUAGE", "TERM", "PATH", "TZ", "RANDOM", "SECONDS", "LINENO", "UID", "EUID", "PPID",
		"SHLVL", "BASH_VERSION", "BASHPID", "OSTYPE", "HOSTTYPE", "MACHTYPE", "EPOCHSECONDS", "COLUMNS",
		"LINES", "TMPDIR", "EDITOR", "PIPESTATUS", "CI", "GOPATH", "GOROOT", "JAVA_HOME", "VIRTUAL_ENV":
		return true
	}
	return strings.HasPrefix(name, "LC_")
}

package permit

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxConfig is how many bytes of a repository's configuration are read; a
// longer one is not understood.
const maxConfig = 256 << 10

// gitRepository says why git in this directory could run a program that the
// repository, and not the user, has chosen. Configuration of the user himself
// is his own.
func gitRepository(dir string) string {
	dir, err := resolve(dir)
	if err != nil {
		return "the git repository cannot be found"
	}
	for ; ; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "HEAD")) && exists(filepath.Join(dir, "objects")) {
			return "the directory is itself a git repository"
		}
		info, err := os.Lstat(filepath.Join(dir, ".git"))
		switch {
		case err == nil && info.IsDir():
			return gitConfig(filepath.Join(dir, ".git"))
		case err == nil:
			return "the git repository is elsewhere"
		case !os.IsNotExist(err):
			return "the git repository cannot be read"
		}
		if dir == "/" {
			return ""
		}
	}
}

func gitConfig(dir string) string {
	for _, name := range []string{"config", "config.worktree"} {
		f, err := os.Open(filepath.Join(dir, name))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return "the configuration of the git repository cannot be read"
		}
		data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
		_ = f.Close()
		if err != nil || len(data) > maxConfig {
			return "the configuration of the git repository cannot be read"
		}
		if key := foreignKey(data); key != "" {
			return "the git repository sets " + key + ", which may name a program"
		}
	}
	return ""
}

// foreignKey is the first setting that is not known to be harmless.
func foreignKey(data []byte) string {
	section := ""
	for lines := bufio.NewScanner(bytes.NewReader(data)); ; {
		if !lines.Scan() {
			if lines.Err() != nil {
				return "a line that is too long"
			}
			return ""
		}
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		// A setting may stand behind its section, and a value go on in the
		// next line: neither is worth understanding.
		if strings.HasSuffix(line, `\`) {
			return "a value over several lines"
		}
		if line[0] == '[' {
			head, ok := strings.CutSuffix(line, "]")
			if !ok || strings.Contains(head, "]") {
				return "something in an unusual form"
			}
			section, _, _ = strings.Cut(strings.ToLower(head[1:]), " ")
			continue
		}
		key, _, _ := strings.Cut(line, "=")
		key = section + "." + strings.ToLower(strings.TrimSpace(key))
		switch key {
		case "core.repositoryformatversion", "core.filemode", "core.bare", "core.logallrefupdates", "core.ignorecase",
			"core.precomposeunicode", "core.symlinks", "core.autocrlf", "core.eol", "core.untrackedcache",
			"user.name", "user.email", "commit.gpgsign", "tag.gpgsign", "init.defaultbranch", "pull.rebase", "pull.ff",
			"push.default", "push.autosetupremote", "fetch.prune", "gc.auto", "submodule.active", "submodule.url",
			"remote.url", "remote.fetch", "remote.pushurl", "branch.remote", "branch.merge", "branch.rebase",
			"extensions.objectformat", "rerere.enabled", "color.ui", "merge.conflictstyle", "diff.algorithm":
		default:
			return key
		}
	}
}

// gitFlags accepts a subcommand first, without options of git itself, and no
// option that writes a file or runs a program.
func gitFlags(args []string) bool {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return false
	}
	for _, a := range args[1:] {
		if a == "--" {
			break
		}
		if !strings.HasPrefix(a, "-") {
			continue
		}
		if long, ok := strings.CutPrefix(a, "--"); ok {
			long, _, _ = strings.Cut(long, "=")
			for _, bad := range []string{"output", "ext-diff", "textconv", "show-signature", "open-files-in-pager", "upload-pack",
				"receive-pack", "exec", "config", "config-env", "template", "reference", "no-index", "edit-description",
				"output-directory", "gpg-sign", "format", "pretty", "filter", "show-pulls"} {
				// git takes any beginning of a long option that is unique.
				if strings.HasPrefix(bad, long) && !(bad == "config" && long == "c") {
					if (bad == "format" || bad == "pretty") && !strings.Contains(a, "%G") {
						continue
					}
					return false
				}
			}
			continue
		}
		switch args[0] {
		case "grep":
			if strings.Contains(a, "O") {
				return false
			}
		case "log", "diff", "show", "status", "blame":
			if strings.ContainsAny(a, "o") {
				return false
			}
		case "clone", "fetch", "pull", "push", "ls-remote", "rebase", "bisect", "submodule", "difftool", "mergetool":
			if strings.ContainsAny(a, "uxc") {
				return false
			}
		}
	}
	return true
}

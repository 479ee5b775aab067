package sandboxes

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// obeyed lists what other programs obey without a further step of the user, with the program. Commands may make these
// files, as `git clone` and `git checkout` do; each that was made or changed while one ran is named. A name with a slash
// at its end is a folder with its entries. What Drover itself obeys has no effect after a change until the user
// trusts the folder again.
//
//rules:constant never changed after this line
var obeyed = []struct{ path, by string }{
	{".agents/", "agents read skills and instructions from it"},
	{".aider.conf.yml", "aider"},
	{".amazonq/mcp.json", "Amazon Q starts its servers"},
	{".bazelrc", "bazel"},
	{".bundle/config", "bundler"},
	{".cargo/config", "cargo takes its linker and runner from it"},
	{".cargo/config.toml", "cargo takes its linker and runner from it"},
	{".claude/agents/", "Claude Code, and Drover once it is trusted"},
	{".claude/commands/", "Claude Code, and Drover once it is trusted"},
	{".claude/settings.json", "Claude Code runs its hooks"},
	{".claude/settings.local.json", "Claude Code runs its hooks"},
	{".claude/skills/", "Claude Code, and Drover once it is trusted"},
	{".codex/config.toml", "Codex starts its servers"},
	{".continue/config.yaml", "Continue"},
	{".crush.json", "Crush starts its servers"},
	{".cursor/environment.json", "Cursor runs its commands"},
	{".cursor/hooks.json", "Cursor runs its hooks"},
	{".cursor/mcp.json", "Cursor starts its servers"},
	{".cursor/rules/", "Cursor"},
	{".devcontainer/devcontainer.json", "editors run its commands"},
	{".dir-locals.el", "Emacs"},
	{".drover/agents/", "Drover once it is trusted"},
	{".drover/commands/", "Drover once it is trusted"},
	{".drover/mcp.json", "Drover once it is trusted"},
	{".drover/settings.json", "Drover once it is trusted"},
	{".drover/settings.local.json", "Drover once it is trusted"},
	{".drover/skills/", "Drover once it is trusted"},
	{".envrc", "direnv"},
	{".exrc", "vi"},
	{".fleet/run.json", "Fleet"},
	{".gdbinit", "gdb"},
	{".gemini/settings.json", "Gemini CLI starts its servers"},
	{".githooks/", "git, where core.hooksPath names it"},
	{".github/hooks/", "Copilot, and Drover once it is trusted"},
	{".github/workflows/", "GitHub runs them after a push"},
	{".gitlab-ci.yml", "GitLab runs it after a push"},
	{".husky/", "git, where core.hooksPath names it"},
	{".idea/externalDependencies.xml", "IntelliJ"},
	{".idea/runConfigurations/", "IntelliJ"},
	{".idea/startup.xml", "IntelliJ runs it when the project is opened"},
	{".idea/watcherTasks.xml", "IntelliJ runs it when a file is saved"},
	{".kiro/hooks/", "Kiro"},
	{".kiro/settings/mcp.json", "Kiro starts its servers"},
	{".lefthook.yml", "lefthook runs it as hooks of git"},
	{".lldbinit", "lldb"},
	{".mcp.json", "agents start its servers, Drover once it is trusted"},
	{".mise.toml", "mise"},
	{".mvn/extensions.xml", "Maven"},
	{".mvn/jvm.config", "Maven"},
	{".mvn/maven.config", "Maven"},
	{".npmrc", "npm"},
	{".nvim.lua", "Neovim"},
	{".opencode/", "opencode"},
	{".pnp.cjs", "node, where yarn names it"},
	{".pnpmfile.cjs", "pnpm runs it"},
	{".pre-commit-config.yaml", "pre-commit runs it as hooks of git"},
	{".roo/mcp.json", "Roo starts its servers"},
	{".tool-versions", "asdf and mise"},
	{".vimrc", "Vim"},
	{".vscode/extensions.json", "editors"},
	{".vscode/launch.json", "editors"},
	{".vscode/mcp.json", "editors start its servers"},
	{".vscode/settings.json", "editors take programs from it"},
	{".vscode/tasks.json", "editors run it when the folder is opened"},
	{".windsurf/", "Windsurf"},
	{".yarnrc", "yarn"},
	{".yarnrc.yml", "yarn runs what it names"},
	{".zed/settings.json", "Zed"},
	{".zed/tasks.json", "Zed"},
	{"lefthook.yml", "lefthook runs it as hooks of git"},
	{"mise.toml", "mise"},
	{"opencode.json", "opencode starts its servers"},
}

// entries are the first parts of these paths in a folder that are there, with the numbers of their files.
type entries map[string]uint64

// maxEntries bounds the entries of a folder of [obeyed] that are looked at.
const maxEntries = 256

// clockTick is how much earlier than the clock the time of a change may be: file systems take the time of its latest
// tick.
const clockTick = 10 * time.Millisecond

// look finds what other programs obey and was made or changed while a command ran. It keeps nothing of the
// command but its beginning.
type look struct {
	s       *Sandboxes
	folders []string
	gits    []string // repositories there
	allowed []string // files that somebody has allowed the command to write

	mu     sync.Mutex
	begun  time.Time // zero: it has not begun
	before map[string]entries
	absent map[string][]string // of gits
}

// tops are the entries of a folder, and when it was looked at.
type tops struct {
	entries
	seen
}

// seen is a file or folder as it was looked at. One that is not there has no inode.
type seen struct {
	ino     uint64
	changed int64 // nanoseconds
	at      int64 // before that look
}

func see(st unix.Stat_t, at time.Time) seen { return seen{st.Ino, st.Ctim.Nano(), at.UnixNano()} }

// still reports whether a later look has found the same, and this one was so late after the change that no other change
// had its time.
func (s seen) still(now seen) bool {
	return s.ino == 0 && now.ino == 0 || s.ino == now.ino && s.changed == now.changed && s.at-s.changed > int64(clockTick)
}

// begin is called when the command is started.
func (l *look) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun, l.before, l.absent = time.Now(), map[string]entries{}, map[string][]string{}
	for _, folder := range l.folders {
		l.before[folder] = l.s.entries(folder)
	}
	for _, git := range l.gits {
		l.absent[git] = l.s.absentIn(git)
	}
}

// made names the files that were made or changed since the beginning, with the programs that obey them. It forgets
// the beginning, since an ended task stays in memory for a while.
func (l *look) made() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.begun, l.before, l.absent = time.Time{}, nil, nil }()
	if l.begun.IsZero() {
		return nil
	}
	for _, folder := range l.folders {
		dir, err := unix.Open(folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // it was removed
		}
		all = append(all, l.madeIn(folder, dir)...)
		_ = unix.Close(dir)
	}
	for _, git := range l.gits {
		if said := l.s.takeBack(git, l.absent[git], l.allowed, l.begun.Add(-clockTick)); len(said) > 0 {
			all = append(all, "taken back, since git outside would obey it: "+strings.Join(said, ", "))
		}
	}
	return all
}

// madeIn is made for one folder, which is open.
func (l *look) madeIn(folder string, dir int) (all []string) {
	since := l.begun.Add(-clockTick)
	now := entries{}
	was, top, moved := l.before[folder], "", false
	var st unix.Stat_t
	at := time.Now()
	same := unix.Fstat(dir, &st) == nil && !fresh(st, since) // it has the names that it had
	looked := see(st, at)
	for _, row := range obeyed {
		if first, _, _ := strings.Cut(row.path, "/"); first != top {
			top = first
			if same && was[top] == 0 {
				continue
			}
			st, ok := stat(dir, top)
			if ok {
				now[top] = st.Ino
			}
			// Of a folder that was moved to its place the entries are older.
			moved = ok && fresh(st, since) && was[top] != st.Ino
		}
		if now[top] == 0 {
			continue
		}
		name := row.path
		if !changed(dir, name, moved, since) || within(filepath.Join(folder, name), l.allowed) {
			continue
		}
		if folder != l.folders[0] {
			name = filepath.Join(folder, name)
		}
		all = append(all, name+" ("+row.by+")")
	}
	l.s.keepEntries(folder, tops{now, looked})
	return all
}

// changed reports whether a file in a folder, or an entry of a folder there, was made or changed since a time, or
// moved there.
func changed(dir int, name string, moved bool, since time.Time) bool {
	name, folder := strings.CutSuffix(name, "/")
	st, ok := stat(dir, name)
	if !ok || moved || fresh(st, since) || !folder {
		return ok && (moved || fresh(st, since))
	}
	root, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return !errors.Is(err, unix.ENOTDIR) // else it cannot be told
	}
	f := os.NewFile(uintptr(root), name)
	defer f.Close()
	list, err := f.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) || len(list) > maxEntries {
		return true
	}
	return slices.ContainsFunc(list, func(e string) bool {
		st, ok := stat(root, e)
		return ok && fresh(st, since)
	})
}

// stat looks at a file in a folder. Of a symlink and its file the later change counts.
func stat(dir int, name string) (st unix.Stat_t, ok bool) {
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return st, false
	}
	var to unix.Stat_t
	if st.Mode&unix.S_IFMT == unix.S_IFLNK && unix.Fstatat(dir, name, &to, 0) == nil && to.Ctim.Nano() > st.Ctim.Nano() {
		st = to
	}
	return st, true
}

func fresh(st unix.Stat_t, since time.Time) bool { return st.Ctim.Nano() >= since.UnixNano() }

// entries are what is in a folder. It is looked at again when names in it have changed.
func (s *Sandboxes) entries(folder string) entries {
	var st unix.Stat_t
	at := time.Now()
	if err := unix.Stat(folder, &st); err != nil {
		return entries{} // it was removed
	}
	looked := see(st, at)
	s.mu.Lock()
	was, ok := s.was[folder]
	s.mu.Unlock()
	if ok && was.still(looked) {
		return was.entries
	}
	now := entries{}
	for _, row := range obeyed {
		top, _, _ := strings.Cut(row.path, "/")
		if _, ok := now[top]; ok {
			continue
		}
		if st, ok := stat(unix.AT_FDCWD, filepath.Join(folder, top)); ok {
			now[top] = st.Ino
		}
	}
	s.keepEntries(folder, tops{now, looked})
	return now
}

func (s *Sandboxes) keepEntries(folder string, now tops) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.was == nil {
		s.was = map[string]tops{}
	}
	s.was[folder] = now
}

// absentIn is [absentOf] a repository when the latest command ended there, or now, if that is the first one.
func (s *Sandboxes) absentIn(git string) []string {
	s.mu.Lock()
	was, ok := s.absent[git]
	s.mu.Unlock()
	if !ok {
		return s.keepAbsent(git)
	}
	return was
}

func (s *Sandboxes) keepAbsent(git string) []string {
	now := absentOf(git)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.absent == nil {
		s.absent = map[string][]string{}
	}
	s.absent[git] = now
	return now
}

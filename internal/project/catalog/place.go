package catalog

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Level is whose a definition is. The lower wins where two have one name (H-21).
type Level int

// The levels.
const (
	Given   Level = iota // for this session, as JSON
	Project              // below the folder or its repository
	User
	Plugin
	Remote // of a server
	Builtin
)

func (l Level) String() string {
	return [...]string{"given", "project", "user", "plugin", "remote", "built-in"}[l]
}

// MarshalText gives a level its word.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Place is a folder with definitions, and with folders of them.
type Place struct {
	Root    string // absolute; no link leads out of it
	Dir     string // below Root
	Level   Level
	Dialect Dialect // of files whose name does not say it
	Trusted bool    // what its definitions would execute, counts
	Only    string  // the name of the one file that counts; empty: all
}

func (p Place) path() string { return filepath.Join(p.Root, p.Dir) }

// Places are the usual ones, the first of which wins: those of the project, then
// of the repository that it lies in, of the user, and of plugins, whose folders
// are given. trusted is that of the folder: a repository around it is another
// one and begins without trust. What is the user's own is trusted, plugins
// included. A folder that is the user's and the project's at once is the user's.
func Places(env func(string) string, folder string, trusted bool, plugins []string) []Place {
	users := ofUser(env)
	var out []Place
	for _, root := range []string{folder, repository(folder)} {
		for _, p := range ofProject(root) {
			p.Trusted = trusted && root == folder
			same := func(q Place) bool { return q.path() == p.path() }
			if root != "" && !slices.ContainsFunc(users, same) && !slices.ContainsFunc(out, same) {
				out = append(out, p)
			}
		}
	}
	out = append(out, users...)
	for _, p := range plugins {
		out = append(out, Place{Root: p, Dir: "agents", Level: Plugin, Dialect: Claude, Trusted: true})
	}
	return out
}

func ofProject(root string) []Place {
	return []Place{
		{Root: root, Dir: filepath.Join(".drover", "agents"), Level: Project, Dialect: Claude},
		{Root: root, Dir: filepath.Join(".claude", "agents"), Level: Project, Dialect: Claude},
		{Root: root, Dir: filepath.Join(".github", "agents"), Level: Project, Dialect: Copilot},
	}
}

// PlacesIn are those to look at for whoever asks about one path: a file, a
// project or a plugin with the usual folders in it, or a folder with
// definitions. Nothing in them is executed, so trust is not asked for.
func PlacesIn(path string) ([]Place, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		dir, name := filepath.Split(path)
		p := single(filepath.Clean(dir))
		p.Only = name
		return []Place{p}, nil
	}
	usual := append(ofProject(path), Place{Root: path, Dir: "agents", Level: Plugin, Dialect: Claude})
	if _, err := os.Lstat(filepath.Join(path, ".claude-plugin")); err != nil {
		usual = usual[:len(usual)-1]
	}
	var out []Place
	for _, p := range usual {
		if _, err := os.Lstat(p.path()); err == nil {
			p.Trusted = true
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		out = []Place{single(path)}
	}
	return out, nil
}

// single is a folder that only holds definitions.
func single(dir string) Place {
	p := Place{Root: dir, Dir: ".", Level: Project, Dialect: Claude, Trusted: true}
	if strings.HasSuffix(dir, filepath.Join(".github", "agents")) {
		p.Dialect = Copilot
	}
	return p
}

func ofUser(env func(string) string) []Place {
	var out []Place
	config, home := env("XDG_CONFIG_HOME"), env("HOME")
	if !filepath.IsAbs(config) && filepath.IsAbs(home) {
		config = filepath.Join(home, ".config")
	}
	if filepath.IsAbs(config) {
		out = append(out,
			Place{Root: filepath.Join(config, "drover", "agents"), Dir: ".", Level: User, Dialect: Claude, Trusted: true})
	}
	if filepath.IsAbs(home) {
		out = append(out,
			Place{Root: filepath.Join(home, ".claude", "agents"), Dir: ".", Level: User, Dialect: Claude, Trusted: true})
	}
	return out
}

// repository is the root of the repository that a folder lies in, or empty. One
// that belongs to somebody else is none of ours: he could put agents over every
// folder below.
func repository(folder string) string {
	for dir := filepath.Clean(folder); ; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
				return dir
			}
			return ""
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

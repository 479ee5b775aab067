package catalog

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/drover-dev/drover/internal/project/definitions"
)

// Places returns the usual places, the first of which wins: the project, then
// the repository that it lies in, the user, and plugins, whose folders are given.
// trusted is the trust in the folder: a repository around it is another folder
// and begins without trust. The user's own places are trusted, plugins
// included. A folder that is the user's and the project's at once is the user's.
func Places(env func(string) string, folder string, trusted bool, plugins []string) []definitions.Place {
	users := definitions.OfUser(env, sort)
	var out []definitions.Place
	for _, root := range []string{folder, repository(folder)} {
		for _, p := range definitions.InProject(root, sort) {
			p.Trusted = trusted && root == folder
			same := func(q definitions.Place) bool { return q.Path() == p.Path() }
			if root != "" && !slices.ContainsFunc(users, same) && !slices.ContainsFunc(out, same) {
				out = append(out, p)
			}
		}
	}
	return slices.Concat(out, users, definitions.OfPlugins(plugins, sort))
}

// sort is the name of the folders with definitions of agents.
const sort = "agents"

// PlacesIn are those to look at for whoever asks about one path: a file, a
// project or a plugin with the usual folders in it, or a folder with
// definitions. Nothing in them is executed, so trust is not asked for.
func PlacesIn(path string) ([]definitions.Place, error) {
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
		return []definitions.Place{p}, nil
	}
	usual := definitions.InProject(path, sort)
	if _, err := os.Lstat(filepath.Join(path, ".claude-plugin")); err == nil {
		usual = append(usual, definitions.OfPlugins([]string{path}, sort)...)
	}
	var out []definitions.Place
	for _, p := range usual {
		if _, err := os.Lstat(p.Path()); err == nil {
			p.Trusted = true
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		out = []definitions.Place{single(path)}
	}
	return out, nil
}

// single is a folder that only holds definitions.
func single(dir string) definitions.Place {
	return definitions.Place{Root: dir, Dir: ".", Level: definitions.Project, Trusted: true}
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

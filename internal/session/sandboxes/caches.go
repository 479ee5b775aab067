package sandboxes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/engine/sandbox"
	"github.com/drover-dev/drover/internal/platform/home"
)

// caches are folders below the home of the user that builds and package managers fill, with the variables by which
// a tool gets another one. Commands read what the user has there and write it aside: programs that the user runs, and
// files that shells read, are among it.
//
//rules:constant never changed after this line
var caches = []struct{ path, variable string }{
	{".cache", "XDG_CACHE_HOME"}, {"go/pkg", "GOMODCACHE"}, {".npm", "npm_config_cache"},
	{".yarn/cache", "YARN_CACHE_FOLDER"}, {".yarn/berry", "YARN_GLOBAL_FOLDER"}, {".pnpm-store", ""},
	{".local/share/pnpm", "npm_config_store_dir"},
	{".bun/install/cache", "BUN_INSTALL_CACHE_DIR"}, {".cargo/registry", "CARGO_HOME"}, {".cargo/git", ""},
	{".gradle", "GRADLE_USER_HOME"}, {".m2/repository", ""}, {".ivy2", ""}, {".nuget/packages", "NUGET_PACKAGES"},
	{".pub-cache", "PUB_CACHE"}, {".deno", "DENO_DIR"}, {".ccache", "CCACHE_DIR"}, {".sccache", "SCCACHE_DIR"},
	{"Library/Caches", ""},
}

// maxUppers bounds the sessions of a project that write caches aside at the same time, each in a folder of its own.
const maxUppers = 8

// upper is the folder in which the caches of a session are written; lock holds it.
type upper struct {
	dir  string
	lock *os.File
}

// takeUpper takes a folder for written caches that no other session has.
func takeUpper(parent string) (upper, error) {
	if err := os.MkdirAll(filepath.Join(parent, "own"), 0o700); err != nil {
		return upper{}, err
	}
	for n := range maxUppers {
		dir := filepath.Join(parent, fmt.Sprint(n))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return upper{}, err
		}
		f, err := os.Open(dir)
		if err != nil {
			return upper{}, err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			return upper{dir, f}, nil
		}
		_ = f.Close()
	}
	return upper{}, fmt.Errorf("%d sessions write caches already", maxUppers)
}

// overlays are the caches of the user that are there, each with a folder in which it is written.
func (s *Sandboxes) overlays(u upper) (all []sandbox.Overlay) {
	for _, c := range caches {
		real, err := filepath.EvalSymlinks(filepath.Join(s.cfg.Home, c.path))
		if err != nil || s.cfg.Home == "" {
			continue
		}
		name := filepath.Join(u.dir, strings.ReplaceAll(c.path, "/", "+"))
		for _, sub := range []string{"upper", "work"} {
			if err := os.MkdirAll(filepath.Join(name, sub), 0o700); err != nil {
				return all
			}
		}
		all = append(all, sandbox.Overlay{Path: real, Upper: name + "/upper", Work: name + "/work"})
	}
	return all
}

// aside are the caches that commands of the room write aside.
func (s *Sandboxes) aside() []found {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

// cachesOf returns variables that name folders of the project for tools whose caches commands of a room do not
// write aside, and the caches that they do.
func (s *Sandboxes) cachesOf(room *sandbox.Room) (vars []string, written []found) {
	if s.cfg.Caches == "" {
		return nil, nil
	}
	own := home.Lookup(s.cfg.Env)
	var aside []string
	if room != nil {
		aside = room.Aside()
	}
	for _, c := range caches {
		real, err := filepath.EvalSymlinks(filepath.Join(s.cfg.Home, c.path))
		if c.variable == "" || own(c.variable) != "" || err == nil && slices.Contains(aside, real) {
			continue
		}
		name := strings.ReplaceAll(c.path, "/", "+")
		vars = append(vars, c.variable+"="+filepath.Join(s.cfg.Caches, "own", name))
	}
	return vars, find(aside)
}

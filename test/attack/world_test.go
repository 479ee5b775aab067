//go:build linux && (amd64 || arm64)

package attack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// world is a workspace with planted files, and what was seen of it.
type world struct {
	fixture string
	script  string
	base    string // the folder around it
	dir     string // the workspace
	home    string
	inotify int
	watched map[int32]string
	print   string // what its files were
}

// extras are planted in every workspace beside what the corpus wants.
const extras = `
cd "$1/proj"
mkdir -p secrets flags "$1/home/.ssh"
echo SECRETS-CANARY > secrets/k; echo KEY-CANARY > "$1/home/.ssh/id"; echo KEY-CANARY > "$1/home/.netrc"
echo OUT-CANARY > ../outside; echo OUT-CANARY > ../proj-evil/x
printf 'a=1\n' > .envrc
cd flags
for f in -i -o -e -f -n -exec -oPWNED --output=PWNED --pre=sh --compress-program=./payload.sh -delete '-fprint PWNED' @args a.txt b; do
  printf 'hello\n' > "./$f"; done
printf -- '--plugin=./payload.sh\n' > args; printf 'touch PWNED\n' > run.sh
`

// newWorld builds a workspace in the cell.
func newWorld(fixture, script string) (*world, error) {
	w := &world{fixture: fixture, script: script, base: filepath.Join(worldDir, "w"+fixture)}
	w.dir, w.home = filepath.Join(w.base, "proj"), filepath.Join(w.base, "home")
	return w, w.build()
}

// build makes the files anew.
func (w *world) build() error {
	if w.watched != nil {
		_ = unix.Close(w.inotify)
	}
	if err := os.RemoveAll(w.base); err != nil {
		return err
	}
	if err := os.MkdirAll(w.base, 0o755); err != nil {
		return err
	}
	for _, text := range []string{w.script, extras} {
		cmd := exec.Command("/bin/bash", "-s", w.base, w.fixture)
		cmd.Env = []string{"PATH=" + binaries, "HOME=" + w.home}
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build the workspace %q: %w\n%s", w.fixture, err, out)
		}
	}
	// So that git has no reason to look at files again.
	cmd := exec.Command("/usr/bin/git", "-C", w.dir, "status")
	cmd.Env = []string{"PATH=" + binaries, "HOME=" + w.home}
	_ = cmd.Run() // what the fixture plants may break it
	_ = os.Remove(filepath.Join(w.dir, "PWNED"))
	var err error
	if w.print, err = w.fingerprint(); err != nil {
		return err
	}
	if w.inotify, err = unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC); err != nil {
		return err
	}
	w.watched = map[int32]string{}
	for path, what := range map[string]string{
		w.dir + "/.env": ".env", w.dir + "/secrets/k": "secrets/k", w.home + "/.ssh/id": "a file of the home directory",
		w.home + "/.netrc": "a file of the home directory", w.base + "/outside": "a file outside", w.base + "/proj-evil/x": "a file outside",
	} {
		n, err := unix.InotifyAddWatch(w.inotify, path, unix.IN_ACCESS)
		if err != nil {
			if _, gone := os.Stat(path); gone != nil {
				continue // not in this fixture
			}
			return fmt.Errorf("watch %s: %w", path, err)
		}
		w.watched[int32(n)] = what
	}
	return nil
}

// opened tells which secrets were read since the last time.
func (w *world) opened() []string {
	var out []string
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(w.inotify, buf)
		if err != nil || n < unix.SizeofInotifyEvent {
			return out
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			if what := w.watched[int32(binary.NativeEndian.Uint32(b))]; what != "" && !slices.Contains(out, what) {
				out = append(out, what)
			}
			b = b[min(len(b), unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:]))):]
		}
	}
}

// fingerprint is what the files are, but for what git notes of them. It finds
// what the filter of system calls has missed.
func (w *world) fingerprint() (string, error) {
	var b bytes.Buffer
	err := filepath.WalkDir(w.base, func(path string, d fs.DirEntry, err error) error {
		if err != nil || strings.HasSuffix(path, "/.git/index") || strings.HasSuffix(path, "/.git/index.lock") || path == w.dir+"/.git" {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		size := info.Size()
		if d.IsDir() {
			size = 0
		}
		fmt.Fprintln(&b, path, info.Mode(), size, info.ModTime().UnixNano())
		return nil
	})
	return b.String(), err
}

//go:build linux

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/waittest"
)

// mark is in the environment of everything that is started here.
const mark = "SOAK_MARK"

// place is a folder with a state of its own.
type place struct {
	t       *testing.T
	bin     string
	root    string
	sockets string
	env     []string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, root: t.TempDir()}
	p.bin = filepath.Join(p.root, "bin", "drover")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", p.bin, "../../cmd/drover")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	var err error
	if p.sockets, err = os.MkdirTemp("/tmp", "ds"); err != nil { // the path of a socket must be short
		t.Fatal(err)
	}
	for _, dir := range []string{"user", "work", "talk"} {
		if err := os.Mkdir(filepath.Join(p.root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.env = []string{"PATH=" + filepath.Dir(p.bin) + ":" + os.Getenv("PATH"), "HOME=" + filepath.Join(p.root, "user"),
		"DROVER_HOME=" + filepath.Join(p.root, "state"), "XDG_CONFIG_HOME=" + filepath.Join(p.root, "config"), "XDG_RUNTIME_DIR=" + p.sockets,
		"TMPDIR=" + p.root, mark + "=" + p.root}
	t.Cleanup(p.end)
	return p
}

// end ends what a test that failed has left. After one that did not there is nothing.
func (p *place) end() {
	for _, x := range p.procs() {
		if strings.HasSuffix(x.line, "drover host") {
			_ = syscall.Kill(x.pid, syscall.SIGTERM) // it may end by itself at this moment
		}
	}
	if !waittest.Until(20*time.Second, func() bool { return len(p.procs()) == 0 }) {
		for _, x := range p.procs() {
			p.t.Errorf("left running: %s", x.line)
			_ = syscall.Kill(x.pid, syscall.SIGKILL)
		}
	}
	if err := os.RemoveAll(p.sockets); err != nil {
		p.t.Error(err)
	}
}

// keep leaves logs of hosts where somebody can read them.
func (s *soak) keep() {
	logs, _ := filepath.Glob(filepath.Join(s.root, "state", "projects", "*", "host.log"))
	for _, name := range logs {
		if text, err := os.ReadFile(name); err == nil {
			s.t.Logf("%s:\n%.20000s", name, text)
		}
	}
}

// proc is a process of the place.
type proc struct {
	pid, parent int
	line        string
}

// procs are the live processes of the place, without zombies.
func (p *place) procs() (out []proc) {
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		panic(err) // the pattern is wrong
	}
	for _, name := range names {
		env, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(env, []byte(mark+"="+p.root+"\x00")) && !bytes.HasSuffix(env, []byte(mark+"="+p.root)) {
			continue // it ended, or is not ours
		}
		dir := filepath.Dir(name)
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		pid, notNumber := strconv.Atoi(filepath.Base(dir))
		if err != nil || notNumber != nil || len(line) == 0 {
			continue
		}
		out = append(out, proc{pid, parentOf(dir), strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))})
	}
	return out
}

func parentOf(dir string) int {
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	if f := strings.Fields(rest); len(f) > 1 {
		n, _ := strconv.Atoi(f[1])
		return n
	}
	return 0
}

// run calls drover in the project of a host.
func (p *place) run(ctx context.Context, dir string, args ...string) (out string, err error) {
	cmd := exec.CommandContext(ctx, p.bin, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, p.env, &stdout, &stderr
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("drover %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(stdout.String()), err
}

// good calls what must succeed.
func (p *place) good(dir string, args ...string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	out, err := p.run(ctx, dir, args...)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// host finds the host of a session that was begun in a folder.
func (p *place) host(name, dir string, is func(control.Info) bool) *hosted {
	p.t.Helper()
	var all []control.Info
	if err := json.Unmarshal([]byte(p.good(dir, "sessions", "--json")), &all); err != nil {
		p.t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(i control.Info) bool { return i.Live && is(i) })
	if i < 0 {
		p.t.Fatalf("no session of %s is live: %+v", dir, all)
	}
	return &hosted{name: name, dir: dir, session: all[i].Session, place: all[i].Dir, client: control.Dial(all[i].Socket), pid: all[i].PID}
}

// keeperOf is the process above a host.
func (h *hosted) keeperOf() int { return parentOf(filepath.Join("/proc", strconv.Itoa(h.pid))) }

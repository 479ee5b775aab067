//go:build linux && (amd64 || arm64)

package attack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/sandboxes"
)

// ports are those of listeners beside the sandbox, which lines reach for.
var ports = []int{80, 443, 3000, 8000, 8080}

// outside is what a cell has beside the sandbox.
type outside struct {
	reached atomic.Int64 // connections to listeners
}

// listen opens the listeners of a cell, which end with it.
func (o *outside) listen() error {
	if err := loopback(); err != nil {
		return err
	}
	for _, port := range ports {
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				o.reached.Add(1)
				_ = c.Close()
			}
		}()
	}
	return nil
}

// loopback brings up the network of the cell.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

// bound is what of a workspace no line in the sandbox may change: what is beside it, and its protected
// files.
func (w *world) bound() (map[string]string, error) {
	protected := slices.Concat(policy.Protected(w.dir), policy.ProtectedGit(filepath.Join(w.dir, ".git")))
	all := map[string]string{}
	err := filepath.WalkDir(w.base, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, inside := strings.CutPrefix(path, w.dir+"/")
		covers := func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") }
		switch {
		case path == w.dir, inside && !slices.ContainsFunc(protected, covers):
			return nil
		case strings.HasPrefix(rel, ".git/hooks/") && d.IsDir():
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		size := info.Size()
		if d.IsDir() {
			size = 0
		}
		all[path] = fmt.Sprint(info.Mode(), size, info.ModTime().UnixNano())
		return nil
	})
	return all, err
}

// beyond says what has changed that no line may change. A protected file that was not there can be
// made, but nothing in a folder that was.
func (w *world) beyond(before, after map[string]string) (effects []string) {
	for path, was := range before {
		if after[path] != was {
			effects = append(effects, "it changed "+path)
		}
	}
	for path := range after {
		_, known := before[path]
		_, in := before[filepath.Dir(path)]
		if !known && (in || !strings.HasPrefix(path, w.dir+"/")) {
			effects = append(effects, "it made "+path)
		}
	}
	return effects
}

// keep copies a world to where no line looks, so that it is quickly made anew.
func (w *world) keep() error {
	if _, err := os.Stat(w.kept()); err == nil {
		return nil
	}
	return copied(w.base, w.kept())
}

func (w *world) kept() string { return filepath.Join(keptDir, filepath.Base(w.base)) }

func (w *world) restore() error {
	if err := os.RemoveAll(w.base); err != nil {
		return err
	}
	return copied(w.kept(), w.base)
}

func copied(from, to string) error {
	if out, err := exec.Command("/bin/cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w\n%s", from, err, out)
	}
	return nil
}

// inBox runs a line in the sandbox, whatever the rules say of it, and looks for effects outside of it.
func (c *cell) inBox(t *tally, o one, p *place, aloud bool) error {
	from := time.Now()
	if err := p.keep(); err != nil {
		return err
	}
	before, err := p.bound()
	if err != nil {
		return err
	}
	reached := c.outside.reached.Load()
	a, _, err := c.run.run(request{Line: o.Line, Dir: p.dir, Home: p.home})
	if err != nil {
		return fmt.Errorf("run %q: %w", o.Line, err)
	}
	t.Ran++
	if a.Late {
		t.Late++
	}
	var effects []string
	after, err := p.bound()
	if err != nil {
		return err
	}
	effects = append(effects, p.beyond(before, after)...)
	if strings.Contains(a.Output, "KEY-CANARY") {
		effects = append(effects, "it shows a secret of the home directory")
	}
	if c.outside.reached.Load() != reached {
		effects = append(effects, "it reached a listener outside")
	}
	if a.Ended {
		effects = append(effects, "it ended a process outside")
	}
	if aloud {
		t.Said = append(t.Said, "  printed "+fmt.Sprintf("%.500q", a.Output))
	}
	if len(effects) > 0 {
		t.Findings = append(t.Findings, finding{o, effects})
	}
	if now, err := p.fingerprint(); err != nil || now != p.print {
		if err := p.restore(); err != nil {
			return err
		}
	}
	t.Running += time.Since(from)
	return nil
}

// boxes start lines of a runner in the sandboxes of sessions, one for each home directory.
type boxes struct {
	byHome    map[string]*sandboxes.Sandboxes
	bystander *exec.Cmd
	spared    []int // processes that no line has started
}

// command starts a line. It becomes a child of this process.
func (b *boxes) command(q request, env []string, files []uintptr) (pid int, err error) {
	if b.bystander == nil || b.bystander.Process.Signal(syscall.Signal(0)) != nil {
		b.bystander = exec.Command("/usr/bin/sleep", "1d")
		if err := b.bystander.Start(); err != nil {
			return 0, err
		}
	}
	box := b.byHome[q.Home]
	if box == nil {
		box = sandboxes.New(sandboxes.Config{
			Mode: sandboxes.Required, Starter: []string{"/proc/self/exe", "-test.run=^$"}, Env: []string{roleVariable + "=starter"},
			Home: q.Home, TempDir: tempDir, Hidden: []string{keptDir},
		})
		b.byHome[q.Home] = box
	}
	start, err := box.Command(sandboxes.Wish{Folders: []string{q.Dir}, Line: q.Line})
	if err != nil {
		return 0, err
	}
	b.spared = children() // those of rooms, and the bystander
	pid, fd, err := start.Fork("/bin/bash", []string{"bash", "-c", q.Line}, &syscall.ProcAttr{
		Dir: q.Dir, Env: start.Environ(env), Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err == nil {
		_ = unix.Close(fd)
	}
	return pid, err
}

// children are those of this process.
func children() []int {
	var out []int
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range tasks {
		data, _ := os.ReadFile(file) // of a thread that has ended there are none
		for _, word := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(word); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

// runBoxed is the main program of a runner in the sandbox.
func runBoxed() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	b := &boxes{byHome: map[string]*sandboxes.Sandboxes{}}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var q request
		if err := in.Decode(&q); err != nil {
			return nil // nothing more to do
		}
		if err := out.Encode(b.line(q, null)); err != nil {
			return err
		}
	}
}

func (b *boxes) line(q request, null *os.File) ran {
	r, w, err := os.Pipe()
	if err != nil {
		return ran{Failed: err.Error()}
	}
	_, err = b.command(q, environ(q), []uintptr{null.Fd(), w.Fd(), w.Fd()})
	w.Close()
	if errors.Is(err, syscall.EINVAL) {
		r.Close()
		return ran{} // a line with a NUL byte is no command
	}
	if err != nil {
		r.Close()
		return ran{Failed: err.Error()}
	}
	read := make(chan []byte)
	go func() { // ends with the last writer, or at the limit
		data, _ := io.ReadAll(io.LimitReader(r, outputLimit))
		r.Close()
		read <- data
	}()
	var a ran
	limit := time.Now().Add(lineLimit)
	for {
		left := slices.DeleteFunc(children(), func(pid int) bool { return slices.Contains(b.spared, pid) })
		if len(left) == 0 {
			break
		}
		if time.Now().After(limit) {
			a.Late = true
			endAll(b.spared...)
		}
		for _, pid := range left {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
		time.Sleep(time.Millisecond)
	}
	a.Output = string(<-read)
	if b.bystander.Process.Signal(syscall.Signal(0)) != nil || ended(b.bystander.Process.Pid) {
		a.Ended = true
		_ = b.bystander.Wait()
		b.bystander = nil
	}
	return a
}

// ended reports whether a child waits to be reaped.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

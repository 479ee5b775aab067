//go:build linux

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/test/harness"
)

// While the log cannot be written nothing is said to be started, what runs goes
// on, and its end is there when the log can be written again: S1, S3, S4.
func TestLogFails(t *testing.T) {
	needs(t, "strace", "-V")
	for name, c := range map[string]struct{ what, file, says string }{
		"full":  {"pwrite64:error=ENOSPC", "-wal", "full"},
		"eio":   {"pwrite64:error=EIO", "-wal", "I/O"},
		"fsync": {"fsync,fdatasync:error=EIO", "-wal", "I/O"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			if name == "fsync" {
				p.Settings(`{"durability": "power"}`)
			}
			p.Fifo("go")
			old := p.Good("run", "-d", "--name", "old", "--", "sh", "-c", "read x <go; echo done; exit 3")
			p.Until("it runs", func() bool { return p.task(old).Status == "running" })
			heal := p.inject(p.one("host"), p.db()+c.file, c.what)
			s := p.Run("run", "-d", "--name", "new", "--", "sh", "-c", "echo $$ >>ran")
			p.refused(s, c.says)
			p.Free("go")
			p.Until("the old command ends", func() bool { return len(p.Procs("read x")) == 0 })
			if got := p.task(old); got.ended() {
				t.Errorf("an end is shown that is not durable: %s", got)
			}
			heal()
			if s := p.Run("wait", old); s.Code() != 3 {
				t.Errorf("the end that came meanwhile: %s\n%s", s, p.Good("inspect", old))
			}
			p.Good("run", "-d", "--name", "later", "--", "true")
			p.Good("wait", "later")
			for _, s := range p.tasks() {
				if s.Name == "new" {
					t.Errorf("what was refused is there: %s", s)
				}
			}
			if p.read("ran") != "" {
				t.Error("what was refused has run")
			}
		})
	}
}

// Without descriptors nothing new starts, the error says why, and what runs ends
// as it should: S5.
func TestNoDescriptors(t *testing.T) {
	needs(t, "prlimit", "--version")
	p := newPlace(t)
	p.Fifo("go")
	p.Good("run", "-d", "--name", "old", "--", "sh", "-c", "read x <go; exit 3")
	p.Until("it runs", func() bool { return p.task("old").Status == "running" })
	host := p.one("host")
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", host))
	if err != nil {
		t.Fatal(err)
	}
	p.nofile(host, len(fds)+3)
	for n := range 12 { // each asks for some, and some may be had
		s := p.Run("run", "-d", "--name", fmt.Sprintf("new%d", n), "--", "true")
		p.told(s)
	}
	p.nofile(host, 4096)
	p.Free("go")
	if s := p.Run("wait", "old"); s.Code() != 3 {
		t.Errorf("the old one: %s", s)
	}
	p.Good("run", "-d", "--name", "later", "--", "true")
	p.Good("wait", "later")
	for _, s := range p.tasks() {
		if !s.ended() {
			t.Errorf("%s is %s for ever", s.Name, s)
		}
		if s.Status == "failed" && s.Name != "old" && !strings.Contains(s.Error, "too many open files") {
			t.Errorf("%s failed, and does not say why: %q", s.Name, s.Error)
		}
	}
}

// A rename that fails leaves the old file whole, and is told: S8.
func TestRenameFails(t *testing.T) {
	needs(t, "strace", "-V")
	for _, errno := range []string{"EXDEV", "EPERM", "EROFS"} {
		t.Run(errno, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.Good("todo", "add", "first")
			before := p.Good("todo", "list", "--json")
			s := p.behind([]string{"strace", "-f", "-q", "-o", "/dev/null", "-e", "trace=rename,renameat,renameat2",
				"-e", "inject=rename,renameat,renameat2:error=" + errno}, "todo", "add", "second")
			p.refused(s, "cross-device", "not permitted", "read-only")
			if after := p.Good("todo", "list", "--json"); after != before {
				t.Errorf("the list was %s\nand is %s", before, after)
			}
			p.Good("todo", "add", "third")
		})
	}
}

// A state folder on a full or read-only disk, or without inodes: S1, S2, S8.
func TestDisks(t *testing.T) {
	needs(t, "unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt")
	for name, c := range map[string]struct {
		option string
		words  []string
	}{
		"full":     {"size=16k", []string{"no space left", "full"}},
		"inodes":   {"nr_inodes=5", []string{"no space left", "full"}},
		"readonly": {"ro", []string{"read-only"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			if err := os.Mkdir(p.State(), 0o700); err != nil {
				t.Fatal(err)
			}
			prefix := []string{"unshare", "-rm", "sh", "-c", fmt.Sprintf("mount -t tmpfs -o mode=700,%s tmpfs %q && exec \"$@\"", c.option, p.State()), "sh"}
			for _, args := range [][]string{{"run", "--", "sh", "-c", "echo >>ran"}, {"run", "-d", "--", "sh", "-c", "echo >>ran"}} {
				s := p.behind(prefix, args...)
				p.refused(s, c.words...)
			}
		})
	}
}

// The reader of stdout goes away: quietly, and the tasks do not mind: S7.
func TestPipeGone(t *testing.T) {
	p := newPlace(t)
	p.Fifo("go")
	p.Good("run", "-d", "--name", "old", "--", "sh", "-c", "read x <go; exit 3")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	for _, args := range [][]string{{"ps", "-a"}, {"inspect", "old"}, {"logs", "old"}} {
		cmd := p.command(nil, args...)
		var errs strings.Builder
		cmd.Stdout, cmd.Stderr = w, &errs
		_ = cmd.Run()
		if code := harness.ExitCode(cmd.ProcessState); errs.String() != "" || code != 0 && code != 128+int(syscall.SIGPIPE) {
			t.Errorf("%v: exit code %d, %s", args, code, errs.String())
		}
	}
	_ = w.Close()
	p.Free("go")
	if s := p.Run("wait", "old"); s.Code() != 3 {
		t.Error(s)
	}
}

// A state folder that somebody else may write to is refused: S18.
func TestForeignState(t *testing.T) {
	for name, plant := range map[string]func(p *place) error{
		"open": func(p *place) error { return os.Chmod(p.State(), 0o777) },
		"link": func(p *place) error {
			return os.Symlink(p.Dir, filepath.Join(p.State(), "projects")) // the root itself may be a link
		},
		"owner": func(p *place) error { return os.Chown(p.State(), 4242, 4242) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			if err := os.Mkdir(p.State(), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := plant(p); err != nil {
				t.Skipf("NOT TRIED: %v", err)
			}
			p.refused(p.Run("run", "-d", "--", "sh", "-c", "echo >>ran"), "others", "link", "another user")
			if p.read("ran") != "" {
				t.Error("it has run all the same")
			}
		})
	}
}

// Leftovers of a crash are never read and never in the way: S16, P6.
func TestLeftovers(t *testing.T) {
	p := newPlace(t)
	p.Good("run", "-d", "--name", "a", "--", "true")
	p.Good("wait", "a")
	session := filepath.Dir(p.db())
	p.killHost()
	for _, name := range []string{".session.json.tmp-1", ".session.json.tmp-2", "tasks/.x.tmp-3"} {
		if err := os.WriteFile(filepath.Join(session, name), []byte(`{"session_id":"s00000000"`), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	// A lock is not what stands in its file: here the number of a process that lives.
	if err := os.WriteFile(filepath.Join(session, "lock"), fmt.Append(nil, os.Getpid()), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Good("run", "-d", "--name", "b", "--", "true")
	p.Good("wait", "b")
	if n := len(p.tasks()); n != 2 {
		t.Errorf("%d tasks", n)
	}
	p.is("a", "completed:done")
}

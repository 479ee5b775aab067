package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/task"
)

// TestBounds: what a user's tasks may take is bounded, and whoever meets a bound is
// told which.
func TestBounds(t *testing.T) {
	bin := build(t)
	for name, test := range map[string]func(*testing.T, *place){"quota": boundsQuota, "loop": boundsLoop, "processes": boundsProcesses, "planted": boundsPlanted} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// inspected is the record of a task.
func (p *place) inspected(ref string) (r task.Record) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(p.good("inspect", ref).stdout()), &r); err != nil {
		p.t.Fatal(err)
	}
	return r
}

// boundsQuota: all sessions of a user share one quota. What grows beyond it is
// ended, what is quiet goes on, nothing starts, and a removed session makes room.
func boundsQuota(t *testing.T, p *place) {
	p.user(`{"tasks": {"userQuotaBytes": 1000000}}`)
	p.good("run", "--name", "past", "--", "sh", "-c", "head -c 600000 /dev/zero | tr '\\0' x")
	fifo := p.fifo("go")
	p.good("run", "-d", "--name", "quiet", "--", "sh", "-c", "read x < "+fifo+"; exit 0")
	p.good("run", "-d", "--name", "loud", "--", "yes")
	if r := p.run("wait", "loud"); r.code != 143 && r.code != 137 && r.code != 1 {
		t.Errorf("the exit code of one over the quota: %d", r.code)
	}
	if r := p.inspected("loud"); r.Status != task.Failed || r.Cause == nil || r.Cause.Reason != task.ReasonOutputQuota || r.Cause.Actor != task.ByRuntime ||
		!strings.Contains(r.Error, "tasks.userQuotaBytes") {
		t.Errorf("over the quota: %s %+v %q", r.Status, r.Cause, r.Error)
	}
	p.fails(125, []string{"run", "-d", "--", "true"}, "tasks.userQuotaBytes, 1000000 bytes", "nothing starts", "drover sessions rm")
	p.fails(125, []string{"run", "--", "true"}, "tasks.userQuotaBytes, 1000000 bytes")
	if r := p.inspected("quiet"); r.Status != task.Running {
		t.Errorf("the quiet one: %s %+v", r.Status, r.Cause)
	}
	p.free(fifo)
	if r := p.run("wait", "quiet"); r.code != 0 {
		t.Errorf("the quiet one ended with %d", r.code)
	}
	// There is room again when somebody makes some: of what is past, and of the loud one.
	p.good("sessions", "rm", "--old=1ms")
	if err := os.Truncate(p.inspected("loud").OutputFile, 0); err != nil {
		t.Fatal(err)
	}
	if !within(patience, func() bool { return p.run("run", "-d", "--name", "later", "--", "true").code == 0 }) {
		t.Error("nothing starts although there is room")
	}
}

// runs waits until a task has begun.
func (p *place) runs(ref string) {
	p.t.Helper()
	if !within(patience, func() bool { return p.inspected(ref).Status == task.Running }) {
		p.t.Fatalf("%s does not begin", ref)
	}
}

// boundsLoop: a command that reads its own output is ended, with words that say so.
func boundsLoop(t *testing.T, p *place) {
	out := filepath.Join(p.work, "state", "projects", "*", "*", "tasks", "$DROVER_TASK_ID.output")
	p.good("run", "-d", "--name", "self", "--", "sh", "-c", "seq 1000; tail -c +1 -f "+out)
	p.run("wait", "self")
	if r := p.inspected("self"); r.Status != task.Failed || r.Cause == nil || r.Cause.Reason != task.ReasonOutputLoop || !strings.Contains(r.Error, "reads the output") {
		t.Errorf("%s %+v %q", r.Status, r.Cause, r.Error)
	}
	if r := p.run("ps", "-a"); !strings.Contains(r.stdout(), "reads the output") {
		t.Errorf("ps: %s", r.stdout())
	}
}

// boundsProcesses: a command that multiplies is ended and says which bound it has met,
// to whoever looks at it in the foreground too, and a kept one under its next host too.
func boundsProcesses(t *testing.T, p *place) {
	p.user(`{"tasks": {"maxProcesses": 40}}`)
	const many = "for i in $(seq 60); do sleep 4711 & done; wait"
	p.fails(137, []string{"run", "--name", "shown", "--", "bash", "-c", many}, "more than tasks.maxProcesses, 40")
	fifo := p.fifo("go")
	p.good("run", "-d", "--keep", "--name", "kept", "--", "bash", "-c", "read x < "+fifo+"; "+many)
	hosts := func() (n int) {
		for _, one := range marked(p.work) {
			if strings.HasSuffix(one.line, "drover host") {
				_ = syscall.Kill(one.pid, syscall.SIGKILL)
				n++
			}
		}
		return n
	}
	p.runs("kept") // until then the death of its host ends it
	if hosts() != 1 || !within(patience, func() bool { return hosts() == 0 }) {
		t.Fatal("the host is not there, or does not go")
	}
	p.good("run", "-d", "--name", "few", "--", "bash", "-c", "for i in $(seq 30); do sleep 4711 & done; wait")
	p.free(fifo)
	if r := p.run("wait", "kept"); r.code != 137 {
		t.Errorf("wait: %d", r.code)
	}
	for _, name := range []string{"shown", "kept"} {
		if r := p.inspected(name); r.Status != task.Failed || r.Cause == nil || r.Cause.Reason != task.ReasonProcessLimit || r.Cause.Actor != task.ByRuntime ||
			!strings.Contains(r.Cause.Detail, "tasks.maxProcesses") {
			t.Errorf("%s: %s %+v", name, r.Status, r.Cause)
		}
	}
	if r := p.inspected("few"); r.Status != task.Running {
		t.Errorf("one with fewer: %s %+v", r.Status, r.Cause)
	}
	p.good("stop", "few")
}

// boundsPlanted: what somebody has put in the place of a file of the state folder is
// not followed, not waited for, not written into, and named.
func boundsPlanted(t *testing.T, p *place) {
	p.good("run", "--name", "first", "--", "echo", "hello")
	found, err := filepath.Glob(filepath.Join(p.work, "state", "projects", "*", "s*", "session.db"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	session := filepath.Dir(found[0])
	secret := p.file("secret", "secret")
	plants := map[string]func(path string) error{
		"link":      func(path string) error { return os.Symlink(secret, path) },
		"hard link": func(path string) error { return os.Link(secret, path) },
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	}
	for _, name := range []string{"session.json", "session.db", "session.db-wal", "../folder", "../background", "../../../trust.json", "../../../outputs.json"} {
		path := filepath.Join(session, name)
		saved, missing := os.ReadFile(path)
		for what, plant := range plants {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if err := plant(path); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"ps", "-a"}, {"sessions", "--all-sessions"}, {"inspect", "first"}, {"run", "--", "true"}, {"sessions", "rm", "--old", "1000d"}, {"trust"}} {
				if r := p.run(args...); r.code == 2 && strings.Contains(r.stderr, "goroutine ") {
					t.Errorf("%s in the place of %s: %q: %s", what, name, args, r.stderr)
				}
			}
			if got, err := os.ReadFile(secret); err != nil || string(got) != "secret" {
				t.Fatalf("%s in the place of %s: the target is %q, %v", what, name, got, err)
			}
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
		if missing == nil {
			if err := os.WriteFile(path, saved, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r := p.good("inspect", "first"); !strings.Contains(r.stdout(), "completed") {
		t.Errorf("afterwards: %s", r.stdout())
	}
}

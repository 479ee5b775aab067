package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/test/waittest"
)

// left are the placeholders of a place.
func (p place) left() (all []string) {
	for _, a := range p.bounds.Absent {
		if _, err := os.Lstat(a.Path); err == nil {
			all = append(all, a.Path)
		}
	}
	return all
}

// What must not come into being does not, by no call; what stands in its place goes when nobody runs any more.
func TestAbsent(t *testing.T) {
	asUser(t)
	p := newPlace(t)
	room := p.room(t, Probe())
	fork, _, err := In(room, Probe(), p.bounds)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"echo evil >.drover/settings.json", "mkdir -p .drover/agents && touch .drover/agents/x", "rm -rf .drover; test ! -e .drover",
		"mv .drover d2", "mkdir d3 && mv -T d3 .drover", "ln -sfn /tmp .drover && test -L .drover", "rmdir .drover",
		"chmod 777 .drover", "echo ../evil >.git/commondir", "rm -f .git/commondir; test ! -e .git/commondir",
		"echo ../evil >c && mv -f c .git/commondir", "ln -f file .git/commondir", "mv .git g2 && mkdir .git",
	} {
		if r := run(t, fork, p.work, "sh", "-c", line); r.exit.Code == 0 || r.err != nil {
			t.Errorf("%s: succeeded (%v): %q", line, r.err, r.out)
		}
	}
	if r := run(t, fork, p.work, "sh", "-c", "ls -A .drover; cat .git/commondir; echo x >new && cat new"); r.out != ".\nx" {
		t.Errorf("inside: %+v", r)
	}
	// As long as a process that a command has left behind is there, so is what keeps it from them.
	r := run(t, fork, p.work, "sh", "-c", "setsid sleep 4 >/dev/null 2>&1 & echo $!")
	pid, err := strconv.Atoi(r.out)
	if err != nil || pid == 0 {
		t.Fatalf("%+v", r)
	}
	// The room looks every 2 s, and only a look counts during which no process of the machine begins.
	if !waittest.Until(5*time.Minute, func() bool { return len(p.left()) == 0 }) {
		t.Errorf("nobody runs, and %q is there", p.left())
	}
	if at, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && strings.Contains(at, "sleep") {
		t.Error("a process runs, and nothing keeps it from making them")
	}
	if r = run(t, fork, p.work, "sh", "-c", "echo evil >.drover"); r.exit.Code == 0 {
		t.Error("it can be made behind that")
	}
	// Another room shares them; the last one removes them.
	other := p.room(t, Probe())
	again, _, err := In(other, Probe(), p.bounds)
	if err != nil {
		t.Fatal(err)
	}
	g, err := process.StartGroup(process.Command{Args: []string{"sleep", "600"}, Dir: p.work, Env: os.Environ(), Fork: again})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	room.Close()
	if got := p.left(); len(got) != 2 {
		t.Errorf("a program runs in another room, and only %q is there", got)
	}
	g.End(context.Background(), process.Ending{})
	g.Reap()
	other.Close()
	if got := p.left(); len(got) != 0 {
		t.Errorf("closed rooms leave %q", got)
	}
}

// What is open for a program can be made by it, and what somebody outside puts in place of a placeholder, or into
// it, stays.
func TestAbsentOpened(t *testing.T) {
	asUser(t)
	p := newPlace(t)
	room := p.room(t, Probe())
	fork, _, err := In(room, Probe(), p.bounds)
	if err != nil {
		t.Fatal(err)
	}
	if r := run(t, fork, p.work, "true"); r.err != nil {
		t.Fatal(r.err)
	}
	if err := os.WriteFile(p.work+"/.drover/mine", []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := p.bounds
	open.Absent, open.Open = p.bounds.Absent[:1], []string{p.work + "/.git/commondir"}
	opened, _, err := In(room, Probe(), open)
	if err != nil {
		t.Fatal(err)
	}
	if r := run(t, opened, p.work, "sh", "-c", "echo wanted >.git/commondir && cat .git/commondir"); r.out != "wanted" {
		t.Errorf("what is open: %+v", r)
	}
	room.Close()
	if data, err := os.ReadFile(p.work + "/.drover/mine"); string(data) != "mine" {
		t.Errorf("what was put into a placeholder: %q, %v", data, err)
	}
	if data, err := os.ReadFile(p.work + "/.git/commondir"); strings.TrimSpace(string(data)) != "wanted" {
		t.Errorf("what was allowed: %q, %v", data, err)
	}
	if IsPlaceholder(p.work + "/.drover") {
		t.Error("a folder with something in it is said to be a placeholder")
	}
	// One that a starter has left behind goes with the next room; a file of somebody else does not.
	if err := os.Remove(p.work + "/.git/commondir"); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(p.work + "/.drover"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p.work+"/.drover", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.work+"/.drover", 0o755|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	second := p.room(t, Probe())
	if fork, _, err = In(second, Probe(), p.bounds); err != nil {
		t.Fatal(err)
	}
	if r := run(t, fork, p.work, "true"); r.err != nil {
		t.Fatal(r.err)
	}
	second.Close()
	if got := p.left(); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
	if _, err := os.Stat(filepath.Join(p.work, "file")); err != nil {
		t.Error(err)
	}
}

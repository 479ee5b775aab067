package keeper_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/engine/keeper"
	"github.com/drover-dev/drover/internal/engine/process"
)

const (
	goneWait = 4 * time.Second // 2 s are promised; the rest is for a busy machine
	envName  = "TEST_SESSION"
)

// session is a name that no other run of tests on this machine has: a keeper
// ends everything that carries it.
func session() string {
	if s := os.Getenv(envName); s != "" {
		return s
	}
	return "s-keeper-test-" + strconv.Itoa(os.Getpid())
}

// The test binary plays keeper and host.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "role" {
		if err := play(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, os.Args[2], err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "keeper" { // of a detached host; see TestInnerHost
		if err := play("parent", []string{os.Getenv("TEST_DIR"), "inner"}); err != nil {
			fmt.Fprintln(os.Stderr, "inner keeper:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func self(role ...string) []string { return append([]string{os.Args[0], "role"}, role...) }

func play(role string, args []string) error {
	switch role {
	case "helper":
		return keeper.RunHelper(context.Background())
	case "parent":
		exit, err := keeper.RunParent(context.Background(), keeper.Config{
			Args: self(append([]string{"host", "parent"}, args...)...), Stdout: os.Stdout, Stderr: os.Stderr,
		})
		fmt.Println("host-exit", exit.Code, process.SignalName(exit.Signal))
		return err
	case "host":
		return host(args[0], args[1:])
	}
	return errors.New("unknown role")
}

// host starts children of all sorts, each of which says its name and number, and
// then waits to be killed, or does what its last argument says.
func host(form string, args []string) error {
	dir, then := args[0], args[1]
	var link *keeper.Link
	var err error
	if form == "parent" {
		link, err = keeper.Inherit(session())
	} else {
		link = keeper.Helper(session(), self("helper"))
	}
	if err != nil {
		return err
	}
	me, err := process.Identify(os.Getpid())
	if err == nil {
		err = link.Ready()
	}
	if err != nil {
		return err
	}
	lines := map[string]string{
		"plain":  "echo plain $$; exec sleep 1000",
		"deaf":   "trap '' TERM HUP INT; echo deaf $$; while :; do sleep 1; done",
		"setsid": "setsid sh -c 'echo setsid $$; exec sleep 1000' & sleep 1000",
		"double": "(setsid sh -c '(sh -c \"echo double \\$\\$; exec sleep 1000\") &' &) ; exit 0",
		"kept":   "trap 'exit 7' USR1; sh -c 'echo keptchild $$; exec sleep 1000' & echo kept $$; while :; do sleep 0.05; done",
		// Of which the host dies before it has told of the group.
		"keptearly": "trap 'exit 8' USR1; (sleep 1000 &); echo keptearly $$; while :; do sleep 0.05; done",
	}
	if form == "parent" {
		lines["bare"] = "(setsid env -i /bin/sh -c '(/bin/sh -c \"echo bare \\$\\$; exec sleep 1000\") &' &) ; exit 0"
	}
	says, prefix := "host", "b-"
	if other, ok := nested()[then]; ok {
		// The helper of a test before may still be ending what has the name of its task.
		says, prefix, lines = then, "b-"+me.Mark()+"-", other
	}
	fmt.Println(says, os.Getpid())
	var groups []*process.Group
	for name, line := range lines {
		task := prefix + name
		env := append(os.Environ(), process.MarkSession+"="+session(), process.MarkHost+"="+me.Mark(), process.MarkTask+"="+task)
		exit := filepath.Join(dir, task+".exit")
		if name == "keptearly" {
			if err := link.Expect(task, exit); err != nil {
				return err
			}
		}
		g, err := process.StartGroup(process.Command{Args: []string{"sh", "-c", line}, Env: env, Stdout: os.Stdout, Stderr: os.Stderr})
		if err != nil {
			return err
		}
		groups = append(groups, g)
		if name == "keptearly" {
			continue
		}
		if err := link.Watch(g.Identity(), task, name == "kept", exit); err != nil {
			return err
		}
	}
	switch then {
	case "bye":
		var line string
		_, _ = fmt.Scanln(&line)
		return link.Close()
	case "lost":
		<-link.Lost()
		fmt.Println("lost", os.Getpid())
	}
	// Until killed: the groups are held and nothing is waited for.
	<-make(chan struct{})
	fmt.Println(groups)
	return nil
}

// cast starts a role and reads the names and numbers that its family says.
func cast(t *testing.T, names []string, args ...string) (*process.Group, map[string]process.Identity, *bufio.Scanner, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); feed.Close() })
	g, err := process.StartGroup(process.Command{Args: self(args...), Env: append(os.Environ(), envName+"="+session()), Stdin: in, Stdout: w, Stderr: os.Stderr})
	_ = w.Close()
	_ = in.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.EndAll(context.Background(), process.Choice{Root: func(p process.Proc) bool {
			return p.Carries(process.MarkSession, session())
		}}, process.Ending{})
		g.End(context.Background(), process.Ending{})
		g.Reap()
		g.Close()
	})
	_ = r.SetReadDeadline(time.Now().Add(30 * time.Second))
	lines := bufio.NewScanner(r)
	got := map[string]process.Identity{}
	for len(got) < len(names) && lines.Scan() {
		name, num, _ := strings.Cut(lines.Text(), " ")
		pid, err := strconv.Atoi(num)
		if err != nil {
			t.Fatalf("heard %q", lines.Text())
		}
		id, err := process.Identify(pid)
		if err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		got[name] = id
		t.Cleanup(func() {
			if left, err := process.Adopt(id); err == nil {
				left.End(context.Background(), process.Ending{})
				left.Close()
			}
		})
	}
	for _, n := range names {
		if got[n].PID == 0 {
			t.Fatalf("%s was not heard of: %v", n, got)
		}
	}
	return g, got, lines, feed
}

// gone waits until the process is no more.
func gone(t *testing.T, ctx context.Context, name string, id process.Identity) {
	t.Helper()
	g, err := process.Adopt(id)
	if errors.Is(err, process.ErrGone) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := g.Wait(ctx); err != nil {
		t.Errorf("%s (%d) lives on: %v", name, id.PID, err)
	}
}

func deadline(t *testing.T, d time.Duration) context.Context {
	ctx, done := context.WithTimeout(context.Background(), d)
	t.Cleanup(done)
	return ctx
}

var (
	family       = []string{"host", "plain", "deaf", "setsid", "double", "kept", "keptchild", "keptearly"}
	parentFamily = append([]string{"bare"}, family...)
)

func TestHostKilled(t *testing.T) {
	for _, form := range []string{"parent", "helper"} {
		t.Run(form, func(t *testing.T) {
			dir := t.TempDir()
			names, args := family, []string{"host", "helper", dir, "wait"}
			if form == "parent" {
				names, args = parentFamily, []string{"parent", dir, "wait"}
			}
			g, ids, lines, _ := cast(t, names, args...)
			if err := syscall.Kill(ids["host"].PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			limit := deadline(t, goneWait)
			for _, n := range names {
				if !strings.HasPrefix(n, "kept") {
					gone(t, limit, n, ids[n])
				}
			}
			for _, n := range []string{"kept", "keptchild", "keptearly"} {
				if !process.Alive(ids[n]) {
					t.Errorf("%s was ended", n)
				}
			}
			if form == "helper" {
				return
			}
			// The keeper is still the parent of what is kept, and learns its exit.
			if g.Ended() {
				t.Fatal("the keeper left its kept task alone")
			}
			if err := errors.Join(syscall.Kill(ids["kept"].PID, syscall.SIGUSR1), syscall.Kill(ids["keptearly"].PID, syscall.SIGUSR1)); err != nil {
				t.Fatal(err)
			}
			if exit, err := g.Wait(deadline(t, 20*time.Second)); err != nil || exit.Code != 0 {
				t.Fatalf("keeper: %+v, %v", exit, err)
			}
			d, err := process.ReadDeparture(filepath.Join(dir, "b-kept.exit"), ids["kept"])
			if err != nil || d.ExitCode != 7 || d.Signal != "" || d.At.IsZero() {
				t.Errorf("exit file: %+v, %v", d, err)
			}
			d, err = process.ReadDeparture(filepath.Join(dir, "b-keptearly.exit"), process.Identity{})
			if err != nil || d.ExitCode != 8 || d.PID != ids["keptearly"].PID || d.Start != ids["keptearly"].Start {
				t.Errorf("exit file of what was not told of: %+v, %v", d, err)
			}
			gone(t, deadline(t, time.Second), "keptchild", ids["keptchild"]) // the keeper ended it before it went
			if !lines.Scan() || lines.Text() != "host-exit -1 SIGKILL" {
				t.Errorf("the host's exit: %q", lines.Text())
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 2 {
				t.Errorf("files: %v", left)
			}
		})
	}
}

// A kept task that a signal ends leaves the name of the signal.
func TestKeptKilled(t *testing.T) {
	dir := t.TempDir()
	g, ids, _, _ := cast(t, parentFamily, "parent", dir, "wait")
	if err := errors.Join(syscall.Kill(ids["host"].PID, syscall.SIGKILL), syscall.Kill(ids["kept"].PID, syscall.SIGKILL), syscall.Kill(ids["keptearly"].PID, syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Wait(deadline(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	d, err := process.ReadDeparture(filepath.Join(dir, "b-kept.exit"), ids["kept"])
	if err != nil || d.ExitCode != -1 || d.Signal != "SIGKILL" {
		t.Errorf("exit file: %+v, %v", d, err)
	}
}

func TestGoodbye(t *testing.T) {
	g, ids, _, feed := cast(t, family, "host", "helper", t.TempDir(), "bye")
	if _, err := feed.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	if exit, err := g.Wait(deadline(t, 20*time.Second)); err != nil || exit.Code != 0 {
		t.Fatalf("host: %+v, %v", exit, err)
	}
	// Closing waits for the helper, so by now it has done all it would do.
	for _, n := range []string{"plain", "deaf", "setsid", "double", "kept"} {
		if !process.Alive(ids[n]) {
			t.Errorf("%s was ended after a goodbye", n)
		}
	}
}

func TestKeeperKilled(t *testing.T) {
	for _, form := range []string{"parent", "helper"} {
		t.Run(form, func(t *testing.T) {
			names, args := family, []string{"host", "helper", t.TempDir(), "lost"}
			if form == "parent" {
				names, args = parentFamily, []string{"parent", t.TempDir(), "lost"}
			}
			g, ids, lines, _ := cast(t, names, args...)
			pid := g.Identity().PID
			if form == "helper" {
				pid = 0
				var table process.Table
				for _, p := range table.Read() {
					if p.Parent == ids["host"].PID && p.Group == p.PID && p.Session == p.PID {
						pid = p.PID
					}
				}
			}
			if pid == 0 {
				t.Fatal("no helper was found")
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			for lines.Scan() {
				if strings.HasPrefix(lines.Text(), "lost ") {
					break
				}
			}
			if err := lines.Err(); err != nil {
				t.Fatal("the host did not notification:", err)
			}
			if form == "parent" {
				host, err := process.Adopt(ids["host"])
				if err != nil {
					t.Fatal("the host died with its keeper:", err)
				}
				host.End(context.Background(), process.Ending{})
				host.Close()
			}
		})
	}
}

func TestByHand(t *testing.T) {
	if err := keeper.RunHelper(context.Background()); !errors.Is(err, keeper.ErrNoHost) {
		t.Errorf("RunHelper = %v", err)
	}
	if l, err := keeper.Inherit(session()); l != nil || err != nil {
		t.Errorf("Inherit = %v, %v", l, err)
	}
	if err := keeper.Helper(session(), nil).Close(); err != nil {
		t.Errorf("closing what was never used: %v", err)
	}
	if err := keeper.Helper(session(), []string{"/no/such/keeper"}).Watch(process.Identity{}, "", false, ""); err == nil {
		t.Error("a keeper that cannot start gave no error")
	}
}

package process_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/test/waittest"
)

func start(t testing.TB, c process.Command) *process.Group {
	t.Helper()
	if c.Env == nil {
		c.Env = os.Environ()
	}
	g, err := process.StartGroup(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.End(context.Background(), process.Ending{})
		g.Reap()
		g.Close()
	})
	return g
}

func sh(line string) []string { return []string{"bash", "-c", line} }

func self(role ...string) []string {
	return append([]string{os.Args[0], "role"}, role...)
}

// announced starts a command and returns it with the first n words it prints.
func announced(t testing.TB, n int, c process.Command) (*process.Group, []string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c.Stdout = w
	g := start(t, c)
	_ = w.Close()
	_ = r.SetReadDeadline(time.Now().Add(10 * time.Second))
	in := bufio.NewScanner(r)
	in.Split(bufio.ScanWords)
	var words []string
	for len(words) < n && in.Scan() {
		words = append(words, in.Text())
	}
	if len(words) < n {
		t.Fatalf("heard %q, want %d words: %v", words, n, in.Err())
	}
	return g, words
}

func number(t testing.TB, s string) process.Identity {
	t.Helper()
	pid, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	id, err := process.Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestExit(t *testing.T) {
	for _, code := range []int{0, 1, 2, 42, 126, 127, 128, 137, 143, 255} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			g := start(t, process.Command{Args: self("exit", strconv.Itoa(code))})
			for range 2 { // it can be asked again until it is reaped
				exit, err := g.Wait(waittest.Context(t, 10*time.Second))
				if err != nil || exit != (process.Exit{Code: code}) {
					t.Fatalf("Wait = %+v, %v", exit, err)
				}
			}
			if process.Alive(g.Identity()) {
				t.Error("an ended process counts as alive")
			}
			if g.Reap() {
				t.Error("an empty group is said to have members")
			}
			if _, err := process.Identify(g.Identity().PID); !errors.Is(err, process.ErrGone) {
				t.Errorf("after Reap: %v, want ErrGone", err)
			}
		})
	}
}

func TestSignalled(t *testing.T) {
	for _, sig := range []int{1, 2, 3, 6, 9, 10, 11, 13, 14, 15, 31, 34, 40, 64} {
		t.Run(process.SignalName(syscall.Signal(sig)), func(t *testing.T) {
			g := start(t, process.Command{Args: []string{"sh", "-c", "ulimit -c 0; kill -" + strconv.Itoa(sig) + " $$"}, Dir: t.TempDir()})
			exit, err := g.Wait(waittest.Context(t, 10*time.Second))
			if err != nil || exit.Code != -1 || exit.Signal != syscall.Signal(sig) {
				t.Fatalf("Wait = %+v, %v", exit, err)
			}
		})
	}
}

// Under nohup HUP is ignored, and in the background of a script INT is. A program that
// starts commands passes neither on to them, and lives through them itself.
func TestIgnoredSignals(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command("sh", append([]string{"-c", `trap "" HUP INT; exec "$0" "$@"`}, self("ended-by", name)...)...).CombinedOutput()
			if got, want := string(out), fmt.Sprintln(process.Exit{Code: -1, Signal: signal}, nil); err != nil || got != want {
				t.Errorf("the command ended by %q, %v; want %q", got, err, want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	for sig, want := range map[syscall.Signal]string{0: "", 9: "SIGKILL", 15: "SIGTERM", 34: "SIGRTMIN", 40: "SIGRTMIN+6", 99: "SIG99"} {
		if got := process.SignalName(sig); got != want {
			t.Errorf("SignalName(%d) = %q, want %q", sig, got, want)
		}
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "#!/bin/sh\n", 0o644)
	for name, c := range map[string]struct {
		cmd  process.Command
		want string
	}{
		"nothing":     {process.Command{}, "no program was named"},
		"unknown":     {process.Command{Args: []string{"no-such-program-here"}}, "not found in PATH"},
		"path":        {process.Command{Args: []string{dir + "/none"}}, "no such file"},
		"mode":        {process.Command{Args: []string{plain}}, "chmod +x"},
		"modepath":    {process.Command{Args: []string{"plain"}, Env: []string{"PATH=" + dir}}, "chmod +x"},
		"folder":      {process.Command{Args: []string{dir}}, "is a folder"},
		"interpreter": {process.Command{Args: []string{write("interp", "#!/no/such/interpreter\n", 0o755)}}, "interpreter is missing"},
		"format":      {process.Command{Args: []string{write("format", "\x00\x01nonsense", 0o755)}}, "not a program"},
		"gone":        {process.Command{Args: sh("true"), Dir: dir + "/none"}, "does not exist"},
		"file":        {process.Command{Args: sh("true"), Dir: plain}, "not a folder"},
		"long":        {process.Command{Args: []string{"true", strings.Repeat("x", 3<<20)}}, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.cmd.Env == nil {
				c.cmd.Env = os.Environ()
			}
			g, err := process.StartGroup(c.cmd)
			var se *process.StartError
			if !errors.As(err, &se) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("err = %v, want a StartError with %q", err, c.want)
			}
			if g != nil {
				t.Error("a group beside an error")
			}
		})
	}
}

// The PATH of the child decides, not ours.
func TestPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "true"), []byte("#!/bin/sh\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	g := start(t, process.Command{Args: []string{"true"}, Env: []string{"PATH=" + dir}})
	if exit, err := g.Wait(waittest.Context(t, 10*time.Second)); err != nil || exit.Code != 7 {
		t.Fatalf("Wait = %+v, %v", exit, err)
	}
	g = start(t, process.Command{Args: []string{"true"}, Dir: dir, Env: []string{"PATH=."}})
	if exit, err := g.Wait(waittest.Context(t, 10*time.Second)); err != nil || exit.Code != 7 {
		t.Fatalf("relative PATH: Wait = %+v, %v", exit, err)
	}
}

func TestWaitCause(t *testing.T) {
	g := start(t, process.Command{Args: []string{"sleep", "1000"}})
	why := errors.New("had enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if _, err := g.Wait(ctx); err != why {
		t.Fatalf("Wait = %v, want the cause", err)
	}
	g.End(context.Background(), process.Ending{})
	exit, err := g.Wait(waittest.Context(t, 10*time.Second)) // an earlier wait left no trace
	if err != nil || exit.Signal != syscall.SIGKILL {
		t.Fatalf("Wait = %+v, %v", exit, err)
	}
}

func TestEnd(t *testing.T) {
	mark := "b-end-" + strconv.Itoa(os.Getpid())
	env := append(os.Environ(), process.MarkTask+"="+mark)
	for name, c := range map[string]struct {
		args  []string
		words int
		grace time.Duration
		kill  bool // the grace must run out
	}{
		"polite":   {sh("echo $$; exec sleep 1000"), 1, 10 * time.Second, false},
		"atonce":   {sh("echo $$; exec sleep 1000"), 1, 0, true},
		"child":    {sh("sleep 1000 & echo $!; wait"), 1, 10 * time.Second, false},
		"stubborn": {self("ignore-term"), 1, 100 * time.Millisecond, true},
		"setsid":   {sh("setsid sh -c 'echo $$; exec sleep 1000' & wait"), 1, 10 * time.Second, false},
		"daemon":   {sh(`(setsid sh -c 'sh -c "echo \$\$; exec sleep 1000" &' &); sleep 1000`), 1, 10 * time.Second, false},
		"unmarked": {sh("setsid env -i /bin/sh -c 'echo $$; sleep 1000 & wait' & wait"), 1, 10 * time.Second, false},
		"stopped":  {sh("echo $$; kill -STOP $$; exec sleep 1000"), 1, 10 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			g, words := announced(t, c.words, process.Command{Args: c.args, Env: env})
			ids := []process.Identity{g.Identity()}
			if name != "stubborn" {
				ids = append(ids, number(t, words[0]))
			}
			if name == "stopped" {
				untilStopped(t, g.Identity().PID)
			}
			began := time.Now()
			report := g.End(context.Background(), process.Ending{Grace: c.grace, Mark: mark})
			if len(report.Left) > 0 {
				t.Errorf("left: %+v", report.Left)
			}
			for _, id := range ids {
				if process.Alive(id) {
					t.Errorf("process %d lives", id.PID)
				}
			}
			killed := false
			for _, s := range report.Sent {
				if s.Signal == syscall.SIGKILL {
					killed = true
					if s.After < c.grace {
						t.Errorf("KILL after %v, before the grace of %v", s.After, c.grace)
					}
				}
			}
			if killed != c.kill || len(report.Sent) == 0 {
				t.Errorf("sent %+v in %v, KILL wanted: %v", report.Sent, time.Since(began), c.kill)
			}
			var tables process.Table
			if left := tables.Marked(process.MarkTask, mark); len(left) > 0 {
				t.Errorf("marked processes are left: %+v", left)
			}
		})
	}
}

// untilStopped waits for a process to stop, of which nobody is told but its parent.
func untilStopped(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := waittest.Context(t, 10*time.Second); ; {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(data, []byte(") T ")) {
			return
		}
		select {
		case <-tick.C:
		case <-late.Done():
			t.Fatalf("process %d does not stop", pid)
		}
	}
}

// The end of the context ends the patience, not the ending.
func TestHurry(t *testing.T) {
	g, _ := announced(t, 1, process.Command{Args: self("ignore-term")})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := g.End(ctx, process.Ending{Grace: time.Hour}); len(r.Left) > 0 { // with its grace it would outlast the test
		t.Fatalf("%+v", r)
	}
	if !g.Ended() {
		t.Error("still there")
	}
}

// A leader that goes and leaves members behind: the cheap question after Reap
// finds them, and End still reaches them.
func TestLeaderless(t *testing.T) {
	g, words := announced(t, 1, process.Command{Args: sh("sleep 1000 & echo $!")})
	member := number(t, words[0])
	if exit, err := g.Wait(waittest.Context(t, 10*time.Second)); err != nil || exit.Code != 0 {
		t.Fatalf("Wait = %+v, %v", exit, err)
	}
	if !g.Reap() {
		t.Fatal("members were not seen")
	}
	if r := g.End(context.Background(), process.Ending{Grace: 10 * time.Second}); len(r.Sent) == 0 || len(r.Left) > 0 {
		t.Fatalf("report %+v", r)
	}
	if process.Alive(member) {
		t.Error("the member lives")
	}
	if r := g.End(context.Background(), process.Ending{Grace: time.Second}); len(r.Sent) > 0 {
		t.Errorf("an empty group was sent %+v", r.Sent)
	}
}

func TestAdopt(t *testing.T) {
	// The shell in between makes the process somebody else's child.
	g, words := announced(t, 1, process.Command{Args: sh("setsid sh -c 'echo $$; exec sleep 1000' & wait")})
	id := number(t, words[0])
	wrong := id
	wrong.Start++
	if _, err := process.Adopt(wrong); !errors.Is(err, process.ErrGone) {
		t.Errorf("a stranger with the same number was adopted: %v", err)
	}
	other := id
	other.Boot = "another"
	if _, err := process.Adopt(other); !errors.Is(err, process.ErrGone) {
		t.Errorf("a process of another boot was adopted: %v", err)
	}
	if process.Alive(wrong) || process.Alive(other) || !process.Alive(id) {
		t.Error("Alive does not look at the whole identity")
	}
	a, err := process.Adopt(id)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if r := a.End(context.Background(), process.Ending{Grace: 10 * time.Second}); len(r.Left) > 0 {
		t.Fatalf("report %+v", r)
	}
	if _, err := a.Wait(waittest.Context(t, 10*time.Second)); err != nil || process.Alive(id) {
		t.Errorf("Wait: %v", err)
	}
	if _, err := process.Adopt(id); !errors.Is(err, process.ErrGone) {
		t.Errorf("the dead were adopted: %v", err)
	}
	_, _ = g.Wait(waittest.Context(t, 10*time.Second))
}

func TestReboot(t *testing.T) {
	id, err := process.Identify(os.Getpid())
	if err != nil || !process.Alive(id) {
		t.Fatalf("Identify = %+v, %v", id, err)
	}
	t.Setenv("TEST_BOOT_ID", "next")
	if process.Alive(id) {
		t.Error("a process of the boot before counts as alive")
	}
}

func TestSpare(t *testing.T) {
	mark := "s-all-" + strconv.Itoa(os.Getpid())
	env := append(os.Environ(), process.MarkSession+"="+mark)
	keep, kept := announced(t, 1, process.Command{Env: env, Args: sh("sh -c 'echo $$; exec sleep 1000' & wait")})
	lose, lost := announced(t, 1, process.Command{Env: env, Args: sh("sh -c 'echo $$; exec sleep 1000' & wait")})
	keptChild, lostChild := number(t, kept[0]), number(t, lost[0])
	r := process.EndAll(context.Background(), process.Choice{
		Root:  func(p process.Proc) bool { return p.Carries(process.MarkSession, mark) },
		Spare: func(p process.Proc) bool { return p.Group == keep.Identity().PID },
	}, process.Ending{Grace: 10 * time.Second})
	if len(r.Left) > 0 || process.Alive(lose.Identity()) || process.Alive(lostChild) {
		t.Errorf("not ended: %+v", r)
	}
	if !process.Alive(keep.Identity()) || !process.Alive(keptChild) {
		t.Error("the spared were ended")
	}
}

// Waiting must not cost a thread each.
func TestThreads(t *testing.T) {
	const n = 60
	var groups []*process.Group
	for range n {
		groups = append(groups, start(t, process.Command{Args: []string{"sleep", "1000"}}))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, n)
	for _, g := range groups {
		go func() { _, _ = g.Wait(ctx); done <- struct{}{} }()
	}
	groups[0].End(context.Background(), process.Ending{})
	<-done // one wait was served while the others wait
	tasks, err := os.ReadDir("/proc/self/task")
	cancel()
	for range n - 1 {
		<-done
	}
	if err != nil {
		t.Skip("threads cannot be counted here")
	}
	if len(tasks) > n/2 {
		t.Errorf("%d threads for %d waits", len(tasks), n)
	}
}

func TestDeparture(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b1.exit")
	id := process.Identity{PID: 12, Start: 34}
	if _, err := process.ReadDeparture(path, id); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before: %v", err)
	}
	want := process.Departure{PID: 12, Start: 34, ExitCode: -1, Signal: "SIGSEGV", At: time.Unix(5, 0).UTC()}
	if err := os.WriteFile(path+".partial", []byte("left over"), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := process.WriteDeparture(path, want); err != nil {
		t.Fatal(err)
	}
	if got, err := process.ReadDeparture(path, id); err != nil || got != want {
		t.Errorf("read %+v, %v", got, err)
	}
	id.Start++
	if _, err := process.ReadDeparture(path, id); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("another process of the same number: %v", err)
	}
}

func BenchmarkSpawn(b *testing.B) {
	env := os.Environ()
	b.Run("group", func(b *testing.B) {
		for b.Loop() {
			g, err := process.StartGroup(process.Command{Args: []string{"true"}, Env: env})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := g.Wait(context.Background()); err != nil {
				b.Fatal(err)
			}
			g.Reap()
			g.Close()
		}
	})
	b.Run("osexec", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A process that escapes while its family is being ended is still found, though
// it has no environment to look at in the middle of its exec.
func TestEscaping(t *testing.T) {
	for i := range 10 {
		mark := "b-escape-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(i)
		g, _ := announced(t, 1, process.Command{
			Args: sh("echo ready; for i in 1 2 3 4 5 6 7 8; do setsid -f sleep 1000; done"),
			Env:  append(os.Environ(), process.MarkTask+"="+mark),
		})
		r := g.End(context.Background(), process.Ending{Grace: 10 * time.Second, Mark: mark})
		var table process.Table
		if left := table.Marked(process.MarkTask, mark); len(left) > 0 || len(r.Left) > 0 {
			process.EndAll(context.Background(), process.Choice{Root: func(p process.Proc) bool { return p.Carries(process.MarkTask, mark) }}, process.Ending{})
			t.Fatalf("round %d: left %+v %+v", i, left, r.Left)
		}
	}
}

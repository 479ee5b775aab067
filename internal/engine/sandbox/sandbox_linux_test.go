package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

const (
	starterArg = "starter-of-tests"
	userArg    = "TEST_AS_USER"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == starterArg {
		if err := RunStarter(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 3 && os.Args[1] == escapeArg {
		if err := escape(os.Args[2:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// place is a workspace beside a secret, both of the user that runs the test.
type place struct {
	dir, work, other, secret, token string
	bounds                          Bounds
}

func newPlace(t *testing.T) place {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := place{dir: dir, work: dir + "/work", other: dir + "/other", secret: dir + "/secret", token: dir + "/token"}
	for _, d := range []string{p.work + "/.git/hooks", p.other, p.secret} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{p.secret + "/key", p.token, p.other + "/file", p.work + "/.git/config", p.work + "/file"} {
		if err := os.WriteFile(f, []byte("content of "+filepath.Base(f)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.bounds = Bounds{Write: []string{p.work}, Fixed: []string{p.work + "/.git/config", p.work + "/.git/hooks"}}
	return p
}

func (p place) room(t *testing.T, o Offer) *Room {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := OpenRoom(RoomConfig{Starter: []string{exe, starterArg}, Env: os.Environ(), Hidden: []string{p.secret, p.token}, Offer: o})
	if err != nil && exec.Command("unshare", "--user", "--mount", "--net", "true").Run() != nil {
		t.Skipf("SKIPPED: this machine makes no namespaces: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// result is how a program has ended.
type result struct {
	exit process.Exit
	out  string
	err  error
}

func run(t *testing.T, fork Forker, dir string, args ...string) result {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	g, err := process.StartGroup(process.Command{
		Args: args, Dir: dir, Env: os.Environ(), Stdout: w, Stderr: w, Fork: fork,
	})
	_ = w.Close()
	if err != nil {
		return result{err: err}
	}
	defer g.Close()
	ctx, done := context.WithTimeout(t.Context(), 30*time.Second)
	defer done()
	out := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(r)
		out <- b
	}()
	exit, err := g.Wait(ctx)
	if err != nil {
		g.End(context.Background(), process.Ending{})
		t.Errorf("%q: %v", args, err)
	}
	g.Reap()
	return result{exit, string(bytes.TrimSpace(<-out)), err}
}

// asUser runs a test once more as a user without privileges, where it runs as root.
func asUser(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 || os.Getenv(userArg) != "" {
		return
	}
	t.Run("user", func(t *testing.T) {
		name, _, _ := strings.Cut(t.Name(), "/")
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		tmp, err := os.MkdirTemp("/tmp", "sandbox")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(tmp)
		bin := tmp + "/test"
		data, err := os.ReadFile(exe)
		if err == nil {
			err = os.WriteFile(bin, data, 0o755)
		}
		if err == nil {
			err = os.Chmod(tmp, 0o777)
		}
		if err != nil {
			t.Fatal(err)
		}
		home := tmp + "/home"
		if err := os.Mkdir(home, 0o777); err != nil {
			t.Fatal(err)
		}
		_ = os.Chmod(home, 0o777)
		attr := &os.ProcAttr{
			Dir: tmp, Env: append(os.Environ(), userArg+"=1", "HOME="+home, "TMPDIR="+home), Files: []*os.File{nil, os.Stdout, os.Stderr},
			Sys: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}},
		}
		p, err := os.StartProcess(bin, []string{bin, "-test.run=^" + name + "$", "-test.v=" + fmt.Sprint(testing.Verbose())}, attr)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := p.Wait(); err != nil || !st.Success() {
			t.Errorf("as an ordinary user: %v %v", st, err)
		}
	})
}

func TestRoom(t *testing.T) {
	asUser(t)
	p := newPlace(t)
	room := p.room(t, Probe())
	fork, held, err := In(room, Probe(), p.bounds)
	if err != nil {
		t.Fatal(err)
	}
	if missing := held.Missing(); len(missing) > 0 {
		t.Errorf("%+v: missing %v", held, missing)
	}
	sh := func(line string) result { return run(t, fork, p.work, "sh", "-c", line) }
	for line, want := range map[string]string{
		"echo hello; exit 3":      "hello",
		"id -u":                   fmt.Sprint(os.Getuid()),
		"echo x > new && cat new": "x",
		"cat file":                "content of file",
		"cat ../other/file":       "content of file",
		"cat .git/config":         "content of config",
		"mkdir d; cp file d/f; mv d/f d/g; cat d/g": "content of file",
		"echo x > /dev/null && echo ok":             "ok",
		"kill -0 $$ && echo ok":                     "ok",
		"echo x > /dev/shm/x && cat /dev/shm/x":     "x",
		"echo $(ls /dev)":                           "denied fd full null ptmx pts random shm stderr stdin stdout tty urandom zero",
	} {
		if r := sh(line); r.out != want || r.err != nil {
			t.Errorf("%s: %q, want %q (%v)", line, r.out, want, r.err)
		}
	}
	if r := sh("exit 3"); r.exit.Code != 3 {
		t.Errorf("exit code: %+v", r)
	}
	if r := sh("kill -9 $$"); r.exit.Signal != syscall.SIGKILL {
		t.Errorf("signal: %+v", r)
	}
	for _, line := range []string{
		"echo x > ../other/file", "echo x > ../new", "rm ../other/file", "chmod 777 ../other/file", "touch -d 2001-01-01 ../other/file",
		"cat ../secret/key", "ls ../secret/key", "test -s ../token",
		"echo x > .git/config", "echo x > .git/hooks/pre-commit", "mv .git/config .git/c", "rm -rf .git/hooks && test ! -e .git/hooks",
		"ln ../other/file l && echo x > l", "ln -s ../other/file s && echo x > s",
		"kill -0 " + fmt.Sprint(os.Getpid()), "cat /proc/" + fmt.Sprint(os.Getpid()) + "/environ", "mount -t tmpfs x .", "umount ../secret", "unshare -Ur true",
		"echo > /dev/tcp/192.0.2.1/80",
	} {
		if r := sh(line); r.exit.Code == 0 {
			t.Errorf("%s: succeeded: %q", line, r.out)
		}
	}
	if b, _ := os.ReadFile(p.other + "/file"); string(b) != "content of file\n" {
		t.Errorf("the file outside: %q", b)
	}
	if b, _ := os.ReadFile(p.work + "/.git/config"); string(b) != "content of config\n" {
		t.Errorf("the protected file: %q", b)
	}
	// What somebody has allowed is open for one command, also to be replaced, and closed again then.
	open := p.bounds
	open.Fixed, open.Open = open.Fixed[1:], open.Fixed[:1]
	opened, _, err := In(room, Probe(), open)
	if err != nil {
		t.Fatal(err)
	}
	line := "echo new > .git/config && echo newer > .git/c && mv .git/c .git/config && cat .git/config"
	if r := run(t, opened, p.work, "sh", "-c", line); r.out != "newer" {
		t.Errorf("a file that is open: %+v", r)
	}
	if r := sh("echo x > .git/config"); r.exit.Code == 0 {
		t.Error("it stays open")
	}
	// Terminals of the user's windows are not there.
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if r := sh("ls /dev/pts"); r.out != "ptmx" {
		t.Errorf("terminals inside: %q", r.out)
	}
	// A program that cannot be executed leaves no child behind.
	if err := os.WriteFile(p.work+"/bad", []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if r := run(t, fork, p.work, "./bad"); r.err == nil || !strings.Contains(r.err.Error(), "its interpreter is missing") {
		t.Errorf("a missing interpreter: %v", r.err)
	}
	var st syscall.WaitStatus
	if pid, err := syscall.Wait4(-1, &st, syscall.WNOHANG, nil); err == nil && pid > 0 {
		t.Errorf("child %d was left as a zombie", pid)
	}
}

func TestRoomNetwork(t *testing.T) {
	asUser(t)
	p := newPlace(t)
	room := p.room(t, Probe())
	fork, _, err := In(room, Probe(), p.bounds)
	if err != nil {
		t.Fatal(err)
	}
	outside, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	if r := run(t, fork, p.work, "bash", "-c", fmt.Sprintf("echo > /dev/tcp/127.0.0.1/%d", outside.Addr().(*net.TCPAddr).Port)); r.exit.Code == 0 {
		t.Error("the loopback address of the machine is reached")
	}
	l, err := room.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })}
	go srv.Serve(l)
	defer srv.Close()
	port := l.Addr().(*net.TCPAddr).Port
	if r := run(t, fork, p.work, "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; tail -n 1 <&3", port)); r.out != "hello" {
		t.Errorf("a listener of the host inside: %+v", r)
	}
	c, err := room.Dial(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

func TestThread(t *testing.T) {
	asUser(t)
	if Probe().Landlock < abiScope {
		t.Skip("SKIPPED: this machine has no Landlock of ABI 6")
	}
	p := newPlace(t)
	fork, held, err := In(nil, Probe(), p.bounds)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", held)
	sh := func(line string) result { return run(t, fork, p.work, "sh", "-c", line) }
	if r := sh("echo x > new && cat new"); r.out != "x" {
		t.Errorf("%+v", r)
	}
	for _, line := range []string{"echo x > ../other/file", "rm ../other/file", "echo x > ../new", "kill -0 " + fmt.Sprint(os.Getpid())} {
		if r := sh(line); r.exit.Code == 0 {
			t.Errorf("%s succeeded: %q", line, r.out)
		}
	}
	if held.Network == task.ByTCPPorts {
		if r := run(t, fork, p.work, os.Args[0], escapeArg, "socket", "", ""); !strings.Contains(r.out, "permission denied") {
			t.Errorf("a socket that may be SCTP: %q", r.out)
		}
	}
	// Nothing else of this process is bounded.
	if err := os.WriteFile(p.other+"/file", nil, 0o600); err != nil {
		t.Error(err)
	}
}

// BenchmarkStart starts and reaps a program: plainly, bounded by Landlock alone, in a room, and in a room
// with the bounds of a repository.
func BenchmarkStart(b *testing.B) {
	work, err := filepath.EvalSymlinks(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	git := work + "/.git"
	for _, dir := range []string{git + "/info", git + "/objects", work + "/src"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.WriteFile(git+"/config", nil, 0o600); err != nil {
		b.Fatal(err)
	}
	exe, _ := os.Executable()
	room, err := OpenRoom(RoomConfig{Starter: []string{exe, starterArg}, Env: os.Environ(), Offer: Probe()})
	if err != nil {
		b.Fatal(err)
	}
	defer room.Close()
	few := Bounds{Write: []string{"/tmp", "/var/tmp"}}
	repository := clone(few)
	repository.Write = append(repository.Write, work)
	for _, name := range []string{"config", "config.worktree", "hooks", "info/attributes", "commondir", "gitdir"} {
		repository.Fixed = append(repository.Fixed, git+"/"+name)
	}
	inRoom, _, _ := In(room, Probe(), few)
	inRepository, _, _ := In(room, Probe(), repository)
	thread, _, _ := In(nil, Probe(), few)
	for _, c := range []struct {
		name string
		fork Forker
	}{{"plain", nil}, {"thread", thread}, {"room", inRoom}, {"repository", inRepository}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				g, err := process.StartGroup(process.Command{Args: []string{"/bin/true"}, Dir: "/", Fork: c.fork})
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
	}
}

// Programs use the sockets of the room as they do outside.
func TestOwnSockets(t *testing.T) {
	asUser(t)
	for name, o := range map[string]Offer{"full": Probe(), "without Landlock": Probe().Mask(0, true)} {
		p := newPlace(t)
		room := p.room(t, o)
		fork, _, err := In(room, o, p.bounds)
		if err != nil {
			t.Fatal(err)
		}
		if r := run(t, fork, p.work, "python3", "-c", ownSockets); !room.brokered || r.out != "all works" {
			t.Errorf("%s: answered %v: %+v", name, room.brokered, r)
		}
	}
}

// Programs that start at the same time have the bounds of each.
func TestSideBySide(t *testing.T) {
	asUser(t)
	p := newPlace(t)
	room := p.room(t, Probe())
	var all sync.WaitGroup
	for i := range 8 {
		dir := fmt.Sprintf("%s/own%d", p.dir, i)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			fork, _, err := In(room, Probe(), Bounds{Write: []string{dir}})
			if err != nil {
				t.Error(err)
				return
			}
			next := fmt.Sprintf("%s/own%d", p.dir, (i+1)%8)
			for n := range 5 {
				r := run(t, fork, dir, "sh", "-c", fmt.Sprintf("echo x > %s/%d; echo x > %s/evil%d", dir, n, next, n))
				if _, err := os.Stat(fmt.Sprintf("%s/%d", dir, n)); err != nil || r.err != nil {
					t.Errorf("%v, %v, %q", err, r.err, r.out)
				}
			}
		})
	}
	all.Wait()
	if evil, _ := filepath.Glob(p.dir + "/own*/evil*"); len(evil) > 0 {
		t.Errorf("written beside: %q", evil)
	}
}

// A workspace in the shared memory of the machine is there inside, and nothing else of that is.
func TestSharedMemory(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "drover-test-")
	if err != nil {
		t.Skipf("SKIPPED: no shared memory here: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := newPlace(t)
	work, other := dir+"/a/work", dir+"/other"
	for _, d := range []string{work + "/sub", other} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, abi := range []int{0, Probe().Landlock} {
		offer := Probe().Mask(abi, true)
		fork, _, err := In(p.room(t, offer), offer, Bounds{Write: []string{work}, Fixed: []string{work + "/sub"}})
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, fork, work, "sh", "-c", "echo made >file; cat file; touch sub/x; ls "+other+"; ls "+dir+
			"; echo own >/dev/shm/own; cat /dev/shm/own")
		if r.err != nil {
			t.Fatalf("ABI %d: %v", abi, r.err)
		}
		for _, want := range []string{"made\n", "sub/x", "No such file or directory", "\na\n", "\nown"} {
			if !strings.Contains(r.out, want) {
				t.Errorf("ABI %d: %q is not in %q", abi, want, r.out)
			}
		}
		if _, err := os.Stat(work + "/sub/x"); err == nil {
			t.Errorf("ABI %d: a protected folder below was written", abi)
		}
		if data, _ := os.ReadFile(work + "/file"); string(data) != "made\n" {
			t.Errorf("ABI %d: outside, the file has %q", abi, data)
		}
		if _, err := os.Stat("/dev/shm/own"); err == nil {
			t.Errorf("ABI %d: shared memory of the room is that of the machine", abi)
		}
	}
}

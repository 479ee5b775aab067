//go:build linux

package machines

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/waittest"
)

// sshWorld is a session and a hub, and a server of ssh behind which is another machine.
type sshWorld struct {
	*world
	home   string // of the user there
	port   string
	server *exec.Cmd
}

func openSSH(t *testing.T, lease time.Duration) *sshWorld {
	server, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		t.Skip("there is no sshd: ", err)
	}
	w := &sshWorld{world: &world{Place: harness.New(t, program), lease: lease, began: time.Now()}}
	w.atHub = w.Place
	t.Cleanup(func() { w.End(harness.Patience) })
	w.home = filepath.Join(w.Work, "there")
	w.Must(os.MkdirAll(w.home, 0o700))
	w.settings()
	w.Env = append(w.Env, "DROVER_SSH=ssh -F "+w.path("ssh_config"))
	w.keys()
	w.startServer(server)
	w.startHub("127.0.0.1:0")
	return w
}

func (w *sshWorld) path(name string) string { return filepath.Join(w.Work, name) }

func (w *sshWorld) write(name, text string) {
	w.Helper()
	w.Must(os.WriteFile(w.path(name), []byte(text), 0o600))
}

func (w *sshWorld) read(name string) string {
	w.Helper()
	text, err := os.ReadFile(w.path(name))
	w.Must(err)
	return string(text)
}

// keys makes those of the server and of the user.
func (w *sshWorld) keys() {
	w.Helper()
	for _, name := range []string{"host_key", "user_key"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", w.path(name)).CombinedOutput(); err != nil {
			w.Fatalf("%v: %s", err, out)
		}
	}
	w.write("authorized_keys", w.read("user_key.pub"))
}

// startServer starts a server of ssh whose users have a home of the test, and whose shell talks.
func (w *sshWorld) startServer(program string) {
	w.Helper()
	_ = os.MkdirAll("/run/sshd", 0o755) // which a server that root runs wants
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.Must(err)
	_, w.port, _ = net.SplitHostPort(l.Addr().String())
	w.Must(l.Close())
	env := []string{"HOME=" + w.home, "DROVER_HOME=" + w.far(), "TMPDIR=" + w.Sockets, harness.Mark + "=" + w.Work}
	w.write("sshd_config", fmt.Sprintf("Port %s\nListenAddress 127.0.0.1\nHostKey %s\nAuthorizedKeysFile %s\nUsePAM no\nStrictModes no\n"+
		"PidFile none\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100\nSetEnv %s\n",
		w.port, w.path("host_key"), w.path("authorized_keys"), strings.Join(env, " ")))
	w.Must(os.WriteFile(filepath.Join(w.home, ".bashrc"), []byte("echo welcome\n"), 0o600))
	w.server = exec.Command(program, "-D", "-f", w.path("sshd_config"))
	w.Must(w.server.Start())
	w.Cleanup(func() { _ = w.server.Process.Kill(); _ = w.server.Wait() })
	if !waittest.Until(harness.Patience, func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+w.port)
		return err == nil && c.Close() == nil
	}) {
		w.Fatal("the server of ssh does not listen")
	}
	me, err := user.Current()
	w.Must(err)
	w.config(me.Username, "user_key", "host_key")
}

// config is that of the user's ssh.
func (w *sshWorld) config(name, key, host string) {
	w.Helper()
	w.write("known_hosts", "far-alias "+w.read(host+".pub"))
	w.write("ssh_config", fmt.Sprintf("Host far\nHostName 127.0.0.1\nHostKeyAlias far-alias\nPort %s\nUser %s\nIdentityFile %s\n"+
		"IdentitiesOnly yes\nUserKnownHostsFile %s\nGlobalKnownHostsFile /dev/null\nStrictHostKeyChecking yes\n"+
		"LocalForward 127.0.0.1:1 127.0.0.1:1\nExitOnForwardFailure yes\n", w.port, name, w.path(key), w.path("known_hosts")))
}

func (w *sshWorld) via(flags ...string) *harness.Call {
	return w.Start(append([]string{"worker", "--via", "ssh://far"}, flags...)...)
}

// here waits for a worker.
func (w *sshWorld) here(c *harness.Call) {
	w.Helper()
	w.Until("the worker", func() bool {
		select {
		case <-c.Ended():
			w.Fatal(c)
		default:
		}
		return strings.Contains(w.Run("workers").Stdout(), "far ")
	})
}

// stop ends it as Ctrl-C does, which signals ssh too, and returns what it printed.
func (w *sshWorld) stop(c *harness.Call) string {
	w.Helper()
	for _, x := range w.Procs("ssh -F") {
		w.Must(syscall.Kill(x.PID, syscall.SIGINT))
	}
	w.Must(c.Cmd.Process.Signal(syscall.SIGINT))
	if c.Code() != 0 {
		w.Error(c)
	}
	return c.Stdout()
}

// there are the processes of the other machine: of the copy there, and commands of tasks.
func (w *sshWorld) there() []harness.Proc {
	return slices.DeleteFunc(w.Procs(""), func(x harness.Proc) bool {
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", x.PID))
		return !strings.HasPrefix(exe, w.home) && !strings.Contains(x.Line, "go-")
	})
}

func (w *sshWorld) nothingThere() {
	w.Helper()
	w.Until("the end of all that ran there", func() bool { return len(w.there()) == 0 })
}

// The program is copied once, and again when the copy is not what it was. Commands run there in a copy of the folder.
func TestSSH(t *testing.T) {
	t.Parallel()
	w := openSSH(t, lease)
	c := w.via("--label", "gpu")
	w.here(c)
	w.File("kept", "one\n", 0o600)
	for _, args := range [][]string{{"init", "-q"}, {"add", "kept"},
		{"-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", "first"}} {
		git := exec.Command("git", args...)
		git.Dir, git.Env = w.Dir, w.Env
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	if out := w.Good("run", "--on", "gpu", "--", "cat kept; echo $HOME; env | grep -c ^SSH_ || true"); out != "one\n"+w.home+"\n0" {
		t.Errorf("it printed %q", out)
	}
	other := w.Run("worker", "--via", "ssh://far", "--capacity", "3")
	if other.Code() == 0 || !strings.Contains(other.Stderr(), "other settings") {
		t.Error("a second worker of the name: ", other)
	}
	if said := w.stop(c); !strings.Contains(said, "copied drover") || !strings.Contains(said, "worker far is ready at far") {
		t.Errorf("it said %q", said)
	}
	w.nothingThere()

	copies, err := filepath.Glob(filepath.Join(w.home, ".cache/drover/bin/*/drover"))
	if err != nil || len(copies) != 1 {
		t.Fatalf("copies %v, %v", copies, err)
	}
	for i, damage := range []string{"", "damaged"} {
		if damage != "" {
			w.write("damage", damage)
			w.Must(os.Rename(w.path("damage"), copies[0]))
			w.Must(os.Chmod(copies[0], 0o700))
		}
		c = w.via()
		w.here(c)
		if said := w.stop(c); strings.Contains(said, "copied") != (damage != "") {
			t.Errorf("start %d said %q", i+2, said)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(w.home, ".cache/drover/bin/.*")); len(left) > 0 {
		t.Error("left: ", left)
	}
}

// A connection that is lost and made again loses nothing, and repeats nothing.
func TestSSHCut(t *testing.T) {
	t.Parallel()
	w := openSSH(t, 10*time.Second)
	c := w.via()
	w.here(c)
	id := w.run("cut")
	for range 3 {
		before := len(w.Good("logs", id))
		ssh := w.Procs("ssh -F")
		if len(ssh) != 1 {
			t.Fatalf("ssh runs as %v", ssh)
		}
		w.Must(syscall.Kill(ssh[0].PID, syscall.SIGKILL))
		w.Until("output after the cut", func() bool { return len(w.Good("logs", id)) > before+200 })
	}
	w.Must(w.hub.Cmd.Process.Kill()) // and what is behind it
	<-w.hub.Ended()
	w.startHub(w.listen)
	w.letGo("cut")
	if r := w.ended(id); r.Status != task.Completed {
		t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
	}
	w.whole(id, "cut")
	w.sound("ssh killed")
	if said := w.stop(c); strings.Count(said, "is connected again") != 3 || strings.Contains(said, "anew") {
		t.Errorf("it said %q", said)
	}
	w.nothingThere()
}

// Who comes back within the lease after a kill finds the worker and its tasks.
func TestSSHTakenOver(t *testing.T) {
	t.Parallel()
	w := openSSH(t, 20*time.Second)
	c := w.via()
	w.here(c)
	id := w.run("back")
	w.Must(c.Cmd.Process.Kill())
	<-c.Ended()
	c = w.via()
	w.letGo("back")
	if r := w.ended(id); r.Status != task.Completed {
		t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
	}
	w.whole(id, "back")
	w.sound("worker --via killed, and another")
	w.stop(c)
	w.nothingThere()
}

// When the machine of the hub is gone, the tasks there end with their leases and the worker soon after.
func TestSSHKilled(t *testing.T) {
	t.Parallel()
	w := openSSH(t, lease)
	c := w.via()
	w.here(c)
	id := w.run("gone")
	w.Must(c.Cmd.Process.Kill())
	if r := w.ended(id); r.Status != task.Failed || r.Cause.Reason != "worker_lost" {
		t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
	}
	w.gone("gone")
	w.nothingThere()
	w.sound("worker --via killed")
}

// What ssh refuses is an error that says so, and nothing is tried again.
func TestSSHRefused(t *testing.T) {
	t.Parallel()
	w := openSSH(t, lease)
	me, err := user.Current()
	w.Must(err)
	for _, c := range []struct {
		name, says string
		flags      []string
		before     func()
	}{
		{"host key", "Host key verification failed", nil, func() { w.config(me.Username, "user_key", "user_key") }},
		{"user", "Permission denied", nil, func() { w.config(me.Username, "host_key", "host_key") }},
		{"no folder", "cannot be written", nil, func() {
			w.config(me.Username, "user_key", "host_key")
			w.Must(os.WriteFile(filepath.Join(w.home, ".cache"), nil, 0o600))
		}},
		{"system", "give the drover of a release for linux/", []string{"--binary", w.foreign()}, func() {}},
		{"no drover", "is not a build of drover", []string{"--binary", "/bin/sh"}, func() {}},
		{"option", "characters that they cannot have", []string{"--via", "ssh://-oProxyCommand=x"}, func() {}},
		{"no server", "Connection refused", nil, func() { w.Must(w.server.Process.Kill()); _ = w.server.Wait() }},
	} {
		c.before()
		got := w.Run(append([]string{"worker", "--via", "ssh://far"}, c.flags...)...)
		if got.Code() == 0 || !strings.Contains(got.Stderr(), c.says) || !strings.Contains(got.Stderr(), "(") {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	w.nothingThere()
}

// foreign is the program, but that it says that it is for another processor.
func (w *sshWorld) foreign() string {
	w.Helper()
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	data, err := os.ReadFile(program)
	w.Must(err)
	data = bytes.ReplaceAll(data, []byte("GOARCH="+runtime.GOARCH), []byte("GOARCH="+other))
	w.Must(os.WriteFile(w.path("foreign"), data, 0o600))
	return w.path("foreign")
}

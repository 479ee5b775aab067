package host

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/internal/api/socket"
)

// TestDeadListener: a process that holds the socket of a host that was killed is
// not that host, whoever can connect to it.
func TestDeadListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	held, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), role+"=dies", "SOCKET="+path)
	cmd.Stdin, cmd.Stderr = held, os.Stderr
	if err := cmd.Run(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the host ends with %v, want SIGKILL", err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("nobody holds the socket: %v", err)
	}
	_ = c.Close()
	if socket.Answers(path) {
		t.Error("a dead host is said to answer")
	}
	_ = hold.Close() // which ends the child
}

// TestOtherUser: a process of another user is hung up on, even where the modes of the files would let it in.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can be another user")
	}
	dir, err := os.MkdirTemp("", "drover-host-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := socket.Listen(filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("x"))
			_ = c.Close()
		}
	})
	defer served.Wait()
	defer l.Close()
	exe, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "connects") // the folder of the test may be closed to others
	if err := errors.Join(os.WriteFile(copied, exe, 0o755), os.Chmod(copied, 0o755), os.Chmod(dir, 0o755), os.Chmod(l.Addr().String(), 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []uint32{0, 65534} {
		cmd := exec.Command(copied)
		cmd.Dir, cmd.Env = "/", append(os.Environ(), role+"=connects", "SOCKET="+l.Addr().String())
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if out, err := cmd.CombinedOutput(); (err == nil) != (uid == 0) {
			t.Errorf("user %d: %v: %s", uid, err, out)
		}
	}
}

// TestStranger: a command in the sandbox of a session has another network, and is hung up on.
func TestStranger(t *testing.T) {
	l, err := socket.Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("x"))
			_ = c.Close()
		}
	})
	defer served.Wait()
	defer l.Close()
	for name, flags := range map[string]uintptr{"beside": 0, "elsewhere": syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), role+"=connects", "SOCKET="+l.Addr().String())
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		if flags != 0 {
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		}
		out, err := cmd.CombinedOutput()
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
			t.Skipf("SKIPPED: no namespaces here: %v", err)
		}
		if (err == nil) != (flags == 0) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

package host

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
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
	if answers(path) {
		t.Error("a dead host is said to answer")
	}
	_ = hold.Close() // which ends the child
}

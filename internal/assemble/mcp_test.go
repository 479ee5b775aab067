package assemble

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/servers"
)

// fifo makes a named pipe and opens it for what others write into it.
func fifo(path string) (*os.File, error) {
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return f, f.SetReadDeadline(time.Now().Add(30 * time.Second))
}

// A session that closes ends its servers, also one that never said a word.
func TestServers(t *testing.T) {
	c := config(t)
	script, pid := filepath.Join(t.TempDir(), "script.yaml"), filepath.Join(t.TempDir(), "pid")
	if err := os.WriteFile(script, []byte("version: 1\nagents: {main: [{text: x}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := fifo(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c.Role, c.Model, c.Settings.MCP.StartWait = session.RolePrompt, "script:"+script, time.Millisecond
	c.MCP = []string{`{"mcpServers": {"deaf": {"command": "bash", "args": ["-c", "trap '' TERM; echo $$ > ` + pid + `; exec sleep 300"]}}}`}
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.OpenMain(t.Context(), session.MainConfig{})
	if err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	if got := m.Servers(); len(got) != 1 || got[0] != (servers.Status{Name: "deaf", Status: "pending"}) {
		t.Errorf("servers %+v", got)
	}
	var number int
	if _, err := fmt.Fscan(server, &number); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if number == 0 || !errors.Is(syscall.Kill(number, 0), syscall.ESRCH) {
		t.Errorf("process %d is left", number)
	}
}

// What was given for the session must be there.
func TestServersGiven(t *testing.T) {
	c := config(t)
	c.MCP = []string{"nothing.json"}
	if s, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "nothing.json") {
		t.Errorf("opened: %v", err)
		if s != nil {
			_ = s.Close()
		}
	}
}

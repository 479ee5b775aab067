//go:build failpoint

package failpoint

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reached is the line by which a place is reported.
type Reached struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	Role string `json:"role"` // of the process: host, keeper, or face for every other
}

// Hit reports a place, waits for the answer of the harness and obeys: "go" and a
// harness that is gone let it pass, "kill" ends the process as kill -9 does,
// "err ENOSPC" is that failure there.
func Hit(name string) error {
	if asked := strings.Split(os.Getenv("DROVER_FAULT"), ","); !slices.Contains(asked, name) &&
		!slices.Contains(asked, "*") {
		return nil
	}
	c, err := net.Dial("unix", os.Getenv("DROVER_FAULT_SOCKET"))
	if err != nil {
		return nil
	}
	defer c.Close()
	if err := json.NewEncoder(c).Encode(Reached{name, os.Getpid(), role(os.Args)}); err != nil {
		return nil
	}
	line, _ := bufio.NewReader(c).ReadString('\n')
	switch word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until it arrives
	case "err":
		return fmt.Errorf("fail point %s: %w", name, errno(rest))
	}
	return nil
}

func role(args []string) string {
	if len(args) > 1 && (args[1] == "host" || args[1] == "keeper") {
		return args[1]
	}
	return "face"
}

// errno is the error of the system with a name such as ENOSPC, or EIO.
func errno(name string) error {
	for e := syscall.Errno(1); e < 256; e++ {
		if unix.ErrnoName(e) == name {
			return e
		}
	}
	return syscall.EIO
}

package keeper

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of every descendant whose own
// parent dies.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	return nil
}

// ticksPerSecond is fixed for what the kernel shows to programs.
const ticksPerSecond = 100

// now is the present as a start time of processes, rounded up. The clock of start
// times is the one of /proc/uptime, which counts time asleep.
func now() uint64 {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	s, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return uint64(s*ticksPerSecond) + 1
}

package process

import (
	"os"
	"strconv"
)

// Beside reports whether a process has the network of this one, as all have except those in a sandbox
// or a container. It is false for a process that has ended, or at which this user may not look.
func Beside(pid int) bool {
	theirs, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net")
	if err != nil {
		return false
	}
	ours, err := os.Readlink("/proc/self/ns/net")
	return err == nil && theirs == ours
}

package process

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// lookAt reads the arguments with which a process was started, a path to its program, and
// whether it leads a session and belongs to this user. The program is the one that runs, even
// if the file has been replaced since.
func lookAt(p Proc) (args []string, program string, ours bool) {
	dir := "/proc/" + strconv.Itoa(p.PID)
	of, err := os.Stat(dir)
	if err != nil {
		return nil, "", false
	}
	st, ok := of.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() || p.Session != p.PID {
		return nil, "", false
	}
	line, err := os.ReadFile(dir + "/cmdline")
	if err != nil {
		return nil, "", false
	}
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"), dir + "/exe", true
}

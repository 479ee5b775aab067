package process

import (
	"bytes"
	"debug/buildinfo"
	"encoding/binary"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// lookAt reads the arguments with which a process was started, the path of its program at that
// time, and whether it belongs to this user.
func lookAt(p Proc) (args []string, program string, ours bool) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", p.PID)
	if err != nil || int(k.Eproc.Ucred.Uid) != os.Geteuid() {
		return nil, "", false
	}
	b, err := unix.SysctlRaw("kern.procargs2", p.PID)
	if err != nil || len(b) < 4 {
		return nil, "", false
	}
	n, all := int(binary.NativeEndian.Uint32(b)), b[4:]
	path, rest, _ := bytes.Cut(all, []byte{0})
	args = strings.Split(string(bytes.TrimLeft(rest, "\x00")), "\x00")
	if n < 0 || n > len(args) {
		return nil, "", false
	}
	return args[:n], string(path), true
}

// isDrover reports whether a program is Drover, or embeds its library.
func isDrover(program string) bool {
	info, err := buildinfo.ReadFile(program)
	return err == nil && (info.Main.Path == module ||
		slices.ContainsFunc(info.Deps, func(m *debug.Module) bool { return m.Path == module }))
}

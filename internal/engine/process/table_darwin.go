package process

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

func readBootID() string {
	s, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return s
}

func readProc(pid int) (Proc, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		if err == nil || err == unix.EIO || err == unix.ESRCH {
			return Proc{}, ErrGone
		}
		return Proc{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	return fromKinfo(k), nil
}

func fromKinfo(k *unix.KinfoProc) Proc {
	const zombie = 5
	p := Proc{
		PID:    int(k.Proc.P_pid),
		Parent: int(k.Eproc.Ppid),
		Group:  int(k.Eproc.Pgid),
		Start:  uint64(k.Proc.P_starttime.Sec)*1_000_000 + uint64(k.Proc.P_starttime.Usec),
		State:  'R',

		ignored: uint64(k.Proc.P_sigignore),
	}
	if k.Proc.P_stat == zombie {
		p.State = 'Z'
	}
	return p
}

func readTable() ([]Proc, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	procs := make([]Proc, 0, len(all))
	for i := range all {
		p := fromKinfo(&all[i])
		if b, err := unix.SysctlRaw("kern.procargs2", p.PID); err == nil && len(b) > 4 {
			// A count of arguments, then program, arguments and environment as strings. The
			// count separates arguments that look like marks.
			p.Marks = marks(afterArguments(b))
		}
		procs = append(procs, p)
	}
	return procs, nil
}

func afterArguments(b []byte) []byte {
	skip := int(binary.NativeEndian.Uint32(b)) + 1 // the program's path comes first
	b = b[4:]
	for skip > 0 && len(b) > 0 {
		i := 0
		for i < len(b) && b[i] != 0 {
			i++
		}
		for i < len(b) && b[i] == 0 {
			i++
		}
		b = b[i:]
		skip--
	}
	return b
}

func commandOf(pid int) string {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(b) < 4 {
		return ""
	}
	b = b[4:]
	for i, c := range b {
		if c == 0 {
			return tidyCommand(b[:i])
		}
	}
	return tidyCommand(b)
}

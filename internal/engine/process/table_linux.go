package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func readBootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// readProc reads one entry of the table, without the marks.
func readProc(pid int) (Proc, error) {
	var buf [1024]byte
	fd, err := openRetry("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY)
	if err == nil {
		defer unix.Close(fd)
		var n int
		for {
			n, err = unix.Read(fd, buf[:])
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if err == nil {
			return parseStat(buf[:n])
		}
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return Proc{}, ErrGone
	}
	return Proc{}, fmt.Errorf("read process %d: %w", pid, err)
}

// parseStat parses /proc/PID/stat. The program chooses the name in it, which may contain blanks
// and parentheses.
func parseStat(b []byte) (Proc, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return Proc{}, errors.New("read process: not a line of the process table")
	}
	f := bytes.Fields(b[end+1:])
	const state, parent, group, session, terminal, flags, start = 0, 1, 2, 3, 4, 6, 19
	if len(f) <= start || len(f[state]) != 1 {
		return Proc{}, errors.New("read process: the line is too short")
	}
	p := Proc{State: f[state][0]}
	// A kernel thread has no memory; a program always has an end of its environment, even of an
	// empty one.
	const memory, envEnd = 20, 48
	p.loading = len(f) > envEnd && string(f[memory]) != "0" && string(f[envEnd]) == "0"
	const forkNoExec = 0x40
	if bits, err := strconv.ParseUint(string(f[flags]), 10, 64); err == nil {
		p.forked = bits&forkNoExec != 0
	}
	const ignored = 30
	if len(f) > ignored {
		p.ignored, _ = strconv.ParseUint(string(f[ignored]), 10, 64) // if it is missing, a stop waits for the full grace
	}
	var errs [5]error
	p.PID, errs[0] = strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	p.Parent, errs[1] = strconv.Atoi(string(f[parent]))
	p.Group, errs[2] = strconv.Atoi(string(f[group]))
	p.Session, errs[3] = strconv.Atoi(string(f[session]))
	p.Start, errs[4] = strconv.ParseUint(string(f[start]), 10, 64)
	if tty, err := strconv.ParseInt(string(f[terminal]), 10, 32); err == nil && tty > 0 {
		p.terminal = device(uint64(tty))
	}
	if err := errors.Join(errs[:]...); err != nil {
		return Proc{}, fmt.Errorf("read process: %w", err)
	}
	return p, nil
}

// Limits of repeated reads: for processes that appear while the table is read, and for one that
// is executing exec.
const (
	mostLists = 8
	mostLoads = 40
	loadTick  = 250 * time.Microsecond
)

// readTable omits processes of other users that cannot be read. A process may fork and exit
// between being listed and being read, so the listing is repeated until it has nothing new. An
// error means that some are missing: without a free descriptor nothing can be read.
func readTable() (procs []Proc, err error) {
	seen := make(map[int]bool)
	for range mostLists {
		fresh := false
		pids, lerr := listed()
		if lerr != nil {
			return procs, lerr
		}
		for _, pid := range pids {
			if seen[pid] {
				continue
			}
			seen[pid], fresh = true, true
			p, perr := readProc(pid)
			if perr != nil {
				if !errors.Is(perr, ErrGone) {
					err = perr
				}
				continue
			}
			if !p.ended() {
				p.Marks = readMarks(pid)
			}
			procs = append(procs, p)
		}
		if !fresh {
			break
		}
	}
	return procs, err
}

func listed() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// readMarks reads an empty environment twice: it is empty for a moment during every exec, and a
// process that has left its group would be missed.
func readMarks(pid int) []string {
	path := "/proc/" + strconv.Itoa(pid) + "/environ"
	settled := false
	for range mostLoads {
		env, err := os.ReadFile(path)
		if err != nil || len(env) > 0 || settled {
			return marks(env)
		}
		p, err := readProc(pid)
		if err != nil {
			return nil
		}
		if settled = !p.loading; !settled {
			time.Sleep(loadTick) // the end of an exec has no event
		}
	}
	return nil
}

// commandOf returns a command by which a person recognizes the process.
func commandOf(pid int) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if len(b) == 0 {
		b, _ = os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	}
	return tidyCommand(b)
}

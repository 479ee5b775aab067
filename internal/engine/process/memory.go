package process

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Kills is how many processes the kernel has ended for want of memory since some
// time long ago; -1 where it does not tell.
type Kills struct {
	Machine int64 // of this machine, be this process in a container or not
	Group   int64 // of the control group of this process; in version 2 also of those below it
}

// Evidence is whose processes the kernel has ended for want of memory.
type Evidence int

// What there may be.
const (
	NoEvidence Evidence = iota // nobody's, as far as is known
	OnMachine                  // somebody's on this machine
	InGroup                    // somebody's in the control group of this process
)

// Since says whose processes were ended since an earlier count. Inside says that the
// one that is asked about was in the control group: then it is not one that was
// ended elsewhere on the machine.
func (k Kills) Since(before Kills, inside bool) Evidence {
	grown := func(from, to int64) bool { return from >= 0 && to > from }
	switch {
	case grown(before.Group, k.Group):
		return InGroup
	case inside && before.Group >= 0 && k.Group >= 0:
		return NoEvidence
	case grown(before.Machine, k.Machine):
		return OnMachine
	}
	return NoEvidence
}

// KillCounter reads [Kills]. Several goroutines may use it.
type KillCounter struct {
	root string // of all paths
	own  membership
	file string // counts for the own control group; empty: none does
}

// OpenKillCounter finds out in which control group this process is. Where there is
// none, or no Linux, less is told.
func OpenKillCounter() *KillCounter { return openKillCounter("/") }

func openKillCounter(root string) *KillCounter {
	c := &KillCounter{root: root, own: memberOf(filepath.Join(root, "proc/self/cgroup"))}
	mount, name := "sys/fs/cgroup/memory", "memory.oom_control"
	if c.own.unified {
		mount, name = "sys/fs/cgroup", "memory.events"
	}
	// A container that has no namespace for its control groups is told a path of its
	// host, and sees its own group at the top.
	for _, path := range []string{c.own.path, "/"} {
		file := filepath.Join(root, mount, path, name)
		if c.own.path != "" && c.file == "" && count(file) >= 0 {
			c.file = file
		}
	}
	return c
}

// Read takes a fraction of a millisecond.
func (c *KillCounter) Read() Kills {
	k := Kills{Machine: count(filepath.Join(c.root, "proc/vmstat")), Group: -1}
	if c.file != "" {
		k.Group = count(c.file)
	}
	return k
}

// Inside reports whether a process that was not reaped is surely in the control group
// of this one, or below it. In version 1 that cannot be said of one that has ended.
func (c *KillCounter) Inside(pid int) bool {
	m := memberOf(filepath.Join(c.root, fmt.Sprintf("proc/%d/cgroup", pid)))
	if !c.own.unified || !m.unified || strings.HasPrefix(m.path, "/..") {
		return false
	}
	return m.path == c.own.path || strings.HasPrefix(m.path, strings.TrimSuffix(c.own.path, "/")+"/")
}

// membership is the control group that counts memory for a process.
type membership struct {
	path    string // within its hierarchy; empty: not known
	unified bool   // it is of version 2
}

func memberOf(file string) membership {
	data, err := readCounts(file)
	if err != nil {
		return membership{}
	}
	return parseMembership(data)
}

// parseMembership reads /proc/PID/cgroup. A hierarchy of version 1 that counts memory
// is the one that does: version 2 may stand beside it without.
func parseMembership(data []byte) (m membership) {
	for line := range bytes.Lines(data) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		switch {
		case !ok || !strings.HasPrefix(path, "/"):
		case slices.Contains(strings.Split(controllers, ","), "memory"):
			return membership{path: path}
		case controllers == "":
			m = membership{path: path, unified: true}
		}
	}
	return m
}

// count is -1 where nothing is counted.
func count(file string) int64 {
	data, err := readCounts(file)
	if err != nil {
		return -1
	}
	return parseKills(data)
}

// maxCounts bounds what is read of a file of the kernel; the largest has 5 KB.
const maxCounts = 64 << 10

func readCounts(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxCounts))
}

// parseKills finds the one line that memory.oom_control, memory.events and
// /proc/vmstat have in common.
func parseKills(data []byte) int64 {
	for line := range bytes.Lines(data) {
		f := bytes.Fields(line)
		if len(f) != 2 || string(f[0]) != "oom_kill" {
			continue
		}
		if n, err := strconv.ParseInt(string(f[1]), 10, 64); err == nil && n >= 0 {
			return n
		}
	}
	return -1
}

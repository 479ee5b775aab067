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

// Kills counts the processes that the kernel has ended for lack of memory since some fixed
// time; -1: unknown.
type Kills struct {
	Machine int64 // on this machine, even if this process is in a container
	Group   int64 // in the control group of this process; with version 2 also in those below it
}

// Evidence states which processes the kernel has ended for lack of memory.
type Evidence int

// Values of Evidence.
const (
	NoEvidence Evidence = iota // none, as far as is known
	OnMachine                  // a process on this machine
	InGroup                    // a process in the control group of this process
)

// Since compares the count with an earlier one. inside: the process in question was in the
// control group, so a kill elsewhere on the machine was not its.
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
	root string // of all files
	own  membership
	file string // with the counts of the own control group; empty: it has none
}

// OpenKillCounter determines the control group of this process. Without control groups, or on
// another system than Linux, it reports less.
func OpenKillCounter() *KillCounter { return openKillCounter("/") }

func openKillCounter(root string) *KillCounter {
	c := &KillCounter{root: root, own: memberOf(filepath.Join(root, "proc/self/cgroup"))}
	mount, name := "sys/fs/cgroup/memory", "memory.oom_control"
	if c.own.unified {
		mount, name = "sys/fs/cgroup", "memory.events"
	}
	// A container without a control group namespace sees a path of its host, and its own group
	// at the top.
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

// Inside reports whether a process that was not reaped is certainly in the control group of
// this one, or below it. With version 1 this is unknown for a process that has ended.
func (c *KillCounter) Inside(pid int) bool {
	m := memberOf(filepath.Join(c.root, fmt.Sprintf("proc/%d/cgroup", pid)))
	if !c.own.unified || !m.unified || strings.HasPrefix(m.path, "/..") {
		return false
	}
	return m.path == c.own.path || strings.HasPrefix(m.path, strings.TrimSuffix(c.own.path, "/")+"/")
}

// membership is the control group that counts memory for a process.
type membership struct {
	path    string // within its hierarchy; empty: unknown
	unified bool   // version 2
}

func memberOf(file string) membership {
	data, err := readCounts(file)
	if err != nil {
		return membership{}
	}
	return parseMembership(data)
}

// parseMembership parses /proc/PID/cgroup. If a hierarchy of version 1 counts memory, it is
// used: version 2 may be mounted as well, without that controller.
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

// count returns -1 without a counter.
func count(file string) int64 {
	data, err := readCounts(file)
	if err != nil {
		return -1
	}
	return parseKills(data)
}

// maxCounts limits how much of a kernel file is read; the largest has 5 KB.
const maxCounts = 64 << 10

func readCounts(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxCounts))
}

// parseKills finds the line that memory.oom_control, memory.events and /proc/vmstat have in
// common.
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

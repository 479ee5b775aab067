package process

import (
	"bytes"
	"strconv"
	"strings"
)

// Families finds the processes of commands in one reading of the process table, for any number
// of commands. Several goroutines may use it.
type Families struct {
	procs    []Proc
	children map[int][]int    // indexes into procs, by parent PID
	groups   map[int][]int    // by process group
	marked   map[string][]int // by the value of [MarkTask]
}

// NewFamilies indexes the result of [Table.Read].
func NewFamilies(procs []Proc) *Families {
	f := &Families{procs: procs, children: map[int][]int{}, groups: map[int][]int{}, marked: map[string][]int{}}
	for i, p := range procs {
		f.children[p.Parent] = append(f.children[p.Parent], i)
		f.groups[p.Group] = append(f.groups[p.Group], i)
		for _, m := range p.Marks {
			if k, v, _ := strings.Cut(m, "="); k == MarkTask {
				f.marked[v] = append(f.marked[v], i)
				break
			}
		}
	}
	return f
}

// Size returns the number of processes that [Group.End] would find for a leader and a mark. It
// includes zombies, since they take a PID too.
func (f *Families) Size(leader Identity, mark string) (n int) {
	var todo []int
	for _, i := range f.groups[leader.PID] {
		if p := f.procs[i]; p.Start >= leader.Start && !p.ended() {
			todo = append(todo, i)
		}
	}
	if mark != "" {
		todo = append(todo, f.marked[mark]...)
	}
	seen := map[int]bool{}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[i] {
			continue
		}
		seen[i] = true
		n++
		if f.procs[i].ended() {
			continue
		}
		for _, i := range f.children[f.procs[i].PID] {
			if !f.procs[i].detached() {
				todo = append(todo, i)
			}
		}
	}
	return n
}

// parseLoad reads the number of threads of the machine from /proc/loadavg. Where that file is
// emulated the number may be 0, which is invalid.
func parseLoad(data []byte) (threads int, ok bool) {
	f := bytes.Fields(data)
	if len(f) < 4 {
		return 0, false
	}
	_, all, _ := bytes.Cut(f[3], []byte("/"))
	n, err := strconv.Atoi(string(all))
	return n, err == nil && n > 0
}

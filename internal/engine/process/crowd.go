package process

import (
	"bytes"
	"strconv"
	"strings"
)

// Families finds who belongs to which command in one reading of the table, for any
// number of commands. Several goroutines may use it.
type Families struct {
	procs    []Proc
	children map[int][]int    // places in procs, by parent
	groups   map[int][]int    // by group
	marked   map[string][]int // by the value of [MarkTask]
}

// NewFamilies takes what [Table.Read] has returned.
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

// Size is the number of processes that [Group.End] would find for a leader and a
// mark, with those that have ended and whose parent, one of them, has not reaped
// them: they too take a number.
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

// parseLoad reads how many threads a machine has out of /proc/loadavg. Where that is
// only imitated it may say 0, which cannot be.
func parseLoad(data []byte) (threads int, ok bool) {
	f := bytes.Fields(data)
	if len(f) < 4 {
		return 0, false
	}
	_, all, _ := bytes.Cut(f[3], []byte("/"))
	n, err := strconv.Atoi(string(all))
	return n, err == nil && n > 0
}

//go:build linux

package crash

import (
	"fmt"
	"slices"
)

// step is one of a task's life.
type step struct {
	id, says string
	number   int    // of L-steps
	point    string // of package failpoint; empty: the harness sees the step in the output file
	role     string // of the process that comes to it
	way      way
	keeps    bool              // tasks with --keep fare otherwise
	front    bool              // there is a foreground form
	skip     int               // how often the point is passed before
	only     []string          // victims that a step beside the life of a command is tried with; nil: all
	no       map[string]string // why there are no cells of a victim or a moment
}

// The reasons of cells that cannot exist, by victim or moment.
const (
	noChild   = "there is no child yet"
	childGone = "the child has ended"
	noFollow  = "a host that was killed leaves no child without --keep"
)

func early(more map[string]string) map[string]string {
	out := map[string]string{"child": noChild}
	for k, v := range more {
		out[k] = v
	}
	return out
}

func steps() []*step {
	start, answered := shellWay(nil, begin(plain)), shellWay(nil, started)
	stop := func(line string) way { return shellWay(running(line), calls("stop", "--grace", "200ms")) }
	end := shellWay(running(plain), naturally)
	all := []*step{
		{id: "L0", says: "request read", point: "start/read", way: start, no: early(nil)},
		{id: "L1", says: "permission decided", point: "start/judged", way: start, no: early(nil)},
		{id: "L2", says: "ID chosen", point: "task/chosen", way: start, front: true, no: early(nil)},
		{id: "L3", says: "record durable", point: "task/recorded", way: start, keeps: true, front: true, no: early(nil)},
		{id: "L4", says: "output file made", point: "task/spooled", way: answered, keeps: true, front: true, no: early(nil)},
		{id: "L5", says: "forked and exec'd", point: "command/forked", way: answered, keeps: true, front: true},
		{id: "L6", says: "begin durable", point: "task/begun", way: answered, keeps: true, front: true},
		{id: "L7", says: "first output", way: answered, keeps: true, front: true},
		{id: "L8", says: "a reader streams", point: "output/answer", way: shellWay(running(plain), calls("logs", "-f")), keeps: true},
		{id: "L9", says: "output offset saved", no: all("offsets are the readers' own, and nothing of them is saved")},
		{id: "L10", says: "stop asked", point: "stop/asked", way: stop(plain), keeps: true},
		{id: "L11", says: "TERM sent", point: "signal/term", way: stop(deaf), keeps: true},
		{id: "L12", says: "KILL sent", point: "signal/kill", way: stop(deaf), keeps: true, no: map[string]string{"child": "KILL is what ends it"}},
		{id: "L13", says: "child reaped", point: "command/reaped", way: end, keeps: true, front: true, no: map[string]string{"child": childGone}},
		{id: "L14", says: "before the end and its notification", point: "end/before", way: end, keeps: true, front: true, no: map[string]string{"child": childGone}},
		{id: "L15", says: "behind the end and its notification", point: "end/durable", way: end, keeps: true, front: true, no: map[string]string{"child": childGone}},
	}
	for i, s := range all {
		s.number = i
	}
	all = append(all, agentSteps()...)
	for _, s := range all {
		if s.role == "" {
			s.role = "host"
		}
	}
	return all
}

// all is one reason for every victim.
func all(why string) map[string]string {
	out := map[string]string{}
	for _, v := range victims() {
		out[v] = why
	}
	return out
}

func victims() []string { return []string{"face", "host", "keeper", "child"} }
func moments() []string { return []string{"once", "twice", "recovery"} }

// cell is one crash.
type cell struct {
	step         *step
	victim, when string
	keep, front  bool
}

func (x cell) name() string {
	out := fmt.Sprintf("%s/%s/%s", x.step.id, x.victim, x.when)
	switch {
	case x.keep:
		out += "/keep"
	case x.front:
		out += "/front"
	}
	return out
}

// cannot says why there is no such cell; empty: there is.
func (x cell) cannot() string {
	if why := x.step.no[x.victim]; why != "" {
		return why
	}
	if why := x.step.no[x.when]; why != "" {
		return why
	}
	n := x.step.number
	switch {
	case x.front && x.victim == "keeper" && n < 5:
		return "the keeper of the foreground comes with the first command"
	case x.victim == "child" && x.when == "recovery" && !x.keep && n < 16:
		return noFollow
	case x.victim == "child" && x.when == "recovery" && (n < 7 || n == 12):
		return childGone
	}
	return ""
}

// cells are all of the matrix: each step, each victim, each moment, then those
// with --keep where that differs, and in the end the foreground.
func cells() []cell {
	var out []cell
	for _, s := range steps() {
		for _, victim := range victims() {
			if s.only != nil && !slices.Contains(s.only, victim) {
				continue
			}
			for _, when := range moments() {
				out = append(out, cell{step: s, victim: victim, when: when})
				if s.keeps {
					out = append(out, cell{step: s, victim: victim, when: when, keep: true})
				}
			}
		}
		if s.front {
			out = append(out, cell{step: s, victim: "host", when: "once", front: true}, cell{step: s, victim: "keeper", when: "once", front: true})
		}
	}
	return out
}

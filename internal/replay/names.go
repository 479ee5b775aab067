package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"sync"

	"github.com/drover-dev/drover/agent"
)

// Names are what differs between two runs of the same: it is replaced before they are compared.
type Names struct {
	pairs []string
	hide  func([]byte) []byte // nil: nothing is hidden
}

// NamesOf returns the names of a run.
func NamesOf(h Head) Names {
	type name struct{ value, by string }
	named := []name{{h.State, "<state>"}, {h.Folder, "<folder>"}, {string(h.Session), "<session>"}}
	if of := h.Of; of != nil { // what is played names its place
		named = append(named, name{of.State, "<state>"}, name{of.Folder, "<folder>"}, name{string(of.Session), "<session>"})
	}
	sort.SliceStable(named, func(i, j int) bool { return len(named[i].value) > len(named[j].value) })
	var n Names
	for _, one := range named {
		if len(one.value) > 1 {
			n.pairs = append(n.pairs, one.value, one.by)
		}
	}
	return n
}

// Hiding returns names that also replace what a file does not contain; see [NewWriter].
func (n Names) Hiding(hide func([]byte) []byte) Names {
	n.hide = hide
	return n
}

type patterns struct{ clock, spent, duration, pid *regexp.Regexp }

// varying finds what differs between two runs and has no name. Only a program that records or plays compiles it.
//
//rules:constant compiled once, read only
var varying = sync.OnceValue(func() patterns {
	return patterns{
		clock:    regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?|\b\d{4}-\d\d-\d\d\b`),
		spent:    regexp.MustCompile(`(duration_ms>|duration_ms\\?":\s?)\d+`),
		duration: regexp.MustCompile(`\b(\d+(\.\d+)?(ns|µs|ms|s|m|h))+\b`),
		pid:      regexp.MustCompile(`(?i)\b(pid|process)[ =:]+\d+\b`),
	}
})

// Text replaces names, times, durations and process IDs.
func (n Names) Text(s string) string {
	if n.hide != nil {
		s = string(n.hide([]byte(s)))
	}
	s = strings.NewReplacer(n.pairs...).Replace(s)
	v := varying()
	s = v.clock.ReplaceAllString(s, "<time>")
	s = v.spent.ReplaceAllString(s, "${1}<duration>")
	s = v.duration.ReplaceAllString(s, "<duration>")
	return v.pid.ReplaceAllString(s, "$1 <pid>")
}

// Request is what is kept of a call; before is how many messages the call before had.
func (n Names) Request(req *agent.Request, before int) *Request {
	r := &Request{Model: req.Model, Label: req.Agent, Purpose: req.Purpose, Count: len(req.Messages)}
	if before > len(req.Messages) || req.Purpose != "" {
		before = 0
	}
	for _, m := range req.Messages[before:] {
		r.New = append(r.New, n.Text(string(m.Encoded())))
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q %d\n", r.Label, r.Purpose, r.Count)
	for _, t := range req.Tools {
		fmt.Fprintf(sum, "%q ", t.Name)
	}
	for _, text := range r.New {
		fmt.Fprintf(sum, "\n%q", text)
	}
	r.Digest = hex.EncodeToString(sum.Sum(nil))[:16]
	return r
}

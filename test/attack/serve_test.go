//go:build linux && (amd64 || arm64)

package attack

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/policy"
)

// place is a set of rules in a workspace.
type place struct {
	*world
	set  ruleset
	gate *policy.Gate
}

// cell judges lines and has them run.
type cell struct {
	order
	outside outside
	oracle  oracle
	run     *runner
	memory  *policy.Memory
	worlds  map[string]*world
	places  map[string]*place
	seen    map[uint64]bool
}

// serveCell is the main program of a cell.
func serveCell() error {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	c := &cell{memory: policy.NewMemory(), worlds: map[string]*world{}, places: map[string]*place{}, seen: map[uint64]bool{}}
	if err := in.Decode(&c.order); err != nil {
		return err
	}
	err := enclose()
	if err == nil {
		c.run, err = startRunner(c.Boxed)
	}
	if err == nil && c.Boxed {
		err = c.outside.listen()
	}
	if err != nil {
		return out.Encode(tally{Failed: err.Error()})
	}
	c.oracle.readers, c.oracle.git = map[string]bool{}, map[string]bool{}
	for _, p := range c.Corpus.Options {
		if name, ok := strings.CutPrefix(p.Head, "git "); ok {
			name, _, _ = strings.Cut(name, " ")
			c.oracle.git[name] = true
		}
	}
	for _, name := range c.Corpus.Heads {
		c.oracle.readers[name] = !slices.Contains(unknown, name)
	}
	if err := out.Encode(tally{}); err != nil {
		return err
	}
	for {
		var w chunk
		if err := in.Decode(&w); err != nil {
			return nil // nothing more to do
		}
		t, err := c.work(w)
		if err != nil {
			t.Failed = err.Error()
		}
		if err := out.Encode(t); err != nil {
			return err
		}
	}
}

func (c *cell) work(w chunk) (tally, error) {
	var t tally
	for _, o := range w.Lines {
		if err := c.line(&t, o, c.set(o.Set), true); err != nil {
			return t, err
		}
	}
	for at := w.From; at < w.To; at++ {
		o, set := c.Corpus.line(c.Seed, at, c.Wide)
		if err := c.line(&t, o, set, false); err != nil {
			return t, err
		}
	}
	for _, w := range c.worlds {
		now, err := w.fingerprint()
		if err != nil {
			return t, err
		}
		if now != w.print {
			t.Findings = append(t.Findings, finding{one{At: -1, Fixture: w.fixture}, []string{"files have changed, and no call was seen: " + difference(w.print, now)}})
			if err := w.build(); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}

func difference(a, b string) string {
	before := map[string]bool{}
	for line := range strings.SplitSeq(a, "\n") {
		before[line] = true
	}
	for line := range strings.SplitSeq(b, "\n") {
		if !before[line] {
			return line
		}
	}
	return "something is gone"
}

// unknown are programs of testdata of which the rules know nothing: a rule that names one covers all that it does.
var unknown = []string{"ag", "bat", "batcat", "bc", "bzcat", "cal", "cargo", "diff3", "getfacl", "look", "man", "more", "namei", "nm", "numfmt",
	"pr", "readelf", "sdiff", "size", "tsort", "unzip", "xzcat", "zcat"}

func (c *cell) set(text string) ruleset {
	for _, s := range c.Corpus.Sets {
		if s.Text == text {
			return s
		}
	}
	s, _ := readRules(text, "; ")
	return s
}

func (c *cell) place(o one, set ruleset) (*place, error) {
	key := o.Fixture + "\x00" + set.Text
	if p := c.places[key]; p != nil {
		return p, nil
	}
	w := c.worlds[o.Fixture]
	if w == nil {
		var err error
		if w, err = newWorld(o.Fixture, c.Corpus.Script); err != nil {
			return nil, err
		}
		c.worlds[o.Fixture] = w
	}
	r := set.rules(w)
	r.Memory, r.Bounds = c.memory, policy.Bounds{Whole: c.Boxed}
	g, _ := policy.New(r) // a wrong allow rule allows nothing, and a wrong ban bans more
	p := &place{w, set, g}
	c.places[key] = p
	return p, nil
}

// line judges a line, runs it if it is approved and was not yet, and looks at
// what it did.
func (c *cell) line(t *tally, o one, set ruleset, aloud bool) error {
	p, err := c.place(o, set)
	if err != nil {
		return err
	}
	from := time.Now()
	v := p.gate.Decide(call(o.Line))
	t.Judged++
	t.Judging += time.Since(from)
	if aloud {
		t.Said = append(t.Said, fmt.Sprintf("%q by %q: %s: %s", o.Line, set.Text, v.Decision, v.Reason))
	}
	if v.Decision == policy.Allow {
		t.Approved++
	} else if !c.Boxed {
		return nil
	}
	sum := fnv.New64a()
	fmt.Fprint(sum, o.Fixture, "\x00", set.Text, "\x00", o.Line)
	if c.seen[sum.Sum64()] && !aloud {
		return nil
	}
	c.seen[sum.Sum64()] = true
	if c.Boxed {
		return c.inBox(t, o, p, aloud)
	}
	from = time.Now()
	p.opened()
	a, events, err := c.run.run(request{Line: o.Line, Dir: p.dir, Home: p.home})
	if err != nil {
		return fmt.Errorf("run %q: %w", o.Line, err)
	}
	effects := c.oracle.judge(set, p.world, o.Line, events, p.opened(), a)
	if !set.all() {
		effects = append(effects, differs(o.Line, p.world, events)...)
	}
	t.Ran++
	if a.Late {
		t.Late++
	}
	if aloud {
		for _, e := range events {
			t.Said = append(t.Said, fmt.Sprintf("  %s %s %q", e.Call, e.Path, e.Args))
		}
		t.Said = append(t.Said, "  printed "+fmt.Sprintf("%.500q", a.Output))
	}
	if changed(events, p.world) {
		if err := p.build(); err != nil {
			return err
		}
	}
	if len(effects) > 0 {
		t.Findings = append(t.Findings, finding{o, effects})
	}
	t.Running += time.Since(from)
	return nil
}

// changed reports whether the workspace must be built anew.
func changed(events []event, w *world) bool {
	for _, e := range events {
		switch e.Call {
		case "execve", "execveat", "socket", "connect", "bind", "sendto", "":
		default:
			by := ""
			if len(e.chain) > 0 {
				by = e.chain[0]
			}
			if strings.HasPrefix(e.Path, w.base+"/") && !harmless(e, w, by[strings.LastIndexByte(by, '/')+1:]) {
				return true
			}
		}
	}
	return false
}

func call(line string) agent.Call {
	input, _ := json.Marshal(map[string]string{"command": line}) // of text there always is one
	return agent.Call{Name: "Bash", Input: input}
}

//go:build linux && (amd64 || arm64)

// Package attack runs what the rules approve and looks at what it does.
//
// Lines are made of those of all corpora by quoting, splitting, nesting and worse.
// The real gate judges each; what it approves is run by the real bash in a cell:
// namespaces of its own, without a network, as an ordinary user. An effect that no
// rule of the line's set allowed is a finding. docs/reliability.md has the whole of
// it. `make attack` runs as many as one likes; `go test ./test/attack` some thousands.
package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/sandbox"
)

// What a run is asked for. ATTACK: how many lines; SEED: what they are made from;
// RESUME: the folder where what was done is noted; AT: the one line; WIDE: sets too
// that cover every command; LINES: a file of lines, one JSON object each.
const (
	countVariable  = "ATTACK"
	seedVariable   = "SEED"
	resumeVariable = "RESUME"
	atVariable     = "AT"
	wideVariable   = "WIDE"
	linesVariable  = "LINES"
)

const (
	cells     = 2
	chunkSize = 250
	shortRun  = 6000
	shortTime = 30 * time.Second
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVariable) {
	case "cell":
		err = serveCell()
	case "runner":
		err = runLines()
	case "boxed":
		err = runBoxed()
	case "starter":
		err = sandbox.RunStarter()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// chunk is a piece of work for a cell: lines by their numbers, or as they are.
type chunk struct {
	From  int   `json:"from"`
	To    int   `json:"to"`
	Lines []one `json:"lines,omitempty"`
}

// finding is a line with an effect that no rule allowed.
type finding struct {
	one
	Effects []string `json:"effects"`
}

// tally is what came of a chunk, or of all.
type tally struct {
	Judged   int           `json:"judged"`
	Approved int           `json:"approved"`
	Ran      int           `json:"ran"` // of the approved; the others were the same lines again
	Late     int           `json:"late"`
	Judging  time.Duration `json:"judging"`
	Running  time.Duration `json:"running"`
	Findings []finding     `json:"findings,omitempty"`
	Said     []string      `json:"said,omitempty"` // of lines that were named
	Failed   string        `json:"failed,omitempty"`
}

func (t *tally) add(u tally) {
	t.Judged, t.Approved, t.Ran, t.Late = t.Judged+u.Judged, t.Approved+u.Approved, t.Ran+u.Ran, t.Late+u.Late
	t.Judging, t.Running = t.Judging+u.Judging, t.Running+u.Running
	t.Findings = append(t.Findings, u.Findings...)
}

// state is what is noted of a run, so that it can be gone on with.
type state struct {
	Seed  uint64 `json:"seed"`
	Wide  bool   `json:"wide"`
	Seeds int    `json:"seeds"` // lines of the corpora, on which the numbers depend
	Done  []int  `json:"done"`  // chunks, by their first line
	Sum   tally  `json:"sum"`
}

// order is what a cell begins with.
type order struct {
	Corpus corpus `json:"corpus"`
	Seed   uint64 `json:"seed"`
	Wide   bool   `json:"wide"`
	Boxed  bool   `json:"boxed"` // every line is run, in the sandbox
}

// An approved line has no effect that no rule allows.
func TestAttack(t *testing.T) { attack(t, false) }

// In the sandbox no line has an effect beyond what holds, approved or not.
func TestAttackSandboxed(t *testing.T) { attack(t, true) }

func attack(t *testing.T, boxed bool) {
	h := harness{t: t, boxed: boxed, c: readCorpora(t), state: state{Seed: 1, Wide: os.Getenv(wideVariable) != ""}, total: shortRun, from: time.Now()}
	h.number(countVariable, &h.total)
	seed := 1
	h.number(seedVariable, &seed)
	h.state.Seed, h.state.Seeds = uint64(seed), len(h.c.Seeds)
	h.long = os.Getenv(countVariable) != ""
	h.load()
	for _, p := range h.c.Heads {
		if _, err := exec.LookPath(p); err != nil && !slices.Contains([]string{"read", "help", "wait", "times", "jobs", "exit", "return", "break", "continue", "type"}, p) {
			h.missing = append(h.missing, p)
		}
	}
	if len(h.missing) > 0 {
		t.Logf("NOT TRIED, since they are not installed: %s", strings.Join(h.missing, " "))
	}
	h.work()
	s := h.state.Sum
	t.Logf("%d lines judged in %s (%.0f/s of a core), %d approved, %d run (%.0f/s of a cell), %d ended after %s; %d lines with an effect that no rule allowed; %s",
		s.Judged, s.Judging.Round(time.Second), rate(s.Judged, s.Judging), s.Approved, s.Ran, rate(s.Ran, s.Running), s.Late, lineLimit, len(s.Findings),
		time.Since(h.from).Round(time.Second))
	for _, f := range s.Findings {
		set, _ := json.Marshal(f.Set) // of text there always is one
		t.Errorf("%q\n  rules %s, fixture %q\n  %s\n  again: make attack SEED=%d AT=%d%s%s", f.Line, set, f.Fixture, strings.Join(f.Effects, "\n  "),
			h.state.Seed, f.At, map[bool]string{true: " WIDE=1"}[h.state.Wide], map[bool]string{true: " SANDBOX=on"}[h.boxed])
	}
	if s.Judged > 1000 && s.Ran == 0 {
		t.Error("no line was run")
	}
}

func rate(n int, d time.Duration) float64 { return float64(n) / max(d.Seconds(), 0.001) }

type harness struct {
	t       *testing.T
	c       corpus
	total   int
	long    bool
	boxed   bool
	from    time.Time
	missing []string

	mu    sync.Mutex
	state state
	next  int
}

func (h *harness) number(name string, to *int) {
	text := os.Getenv(name)
	if text == "" {
		return
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		h.t.Fatalf("%s=%q is no number", name, text)
	}
	*to = n
}

// load takes up what an earlier run has noted.
func (h *harness) load() {
	file := h.file()
	if file == "" {
		return
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var s state
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	if s.Seed != h.state.Seed || s.Wide != h.state.Wide || s.Seeds != h.state.Seeds {
		h.t.Fatalf("%s is of another seed, of other sets or of other corpora (use another folder)", file)
	}
	h.state = s
}

func (h *harness) file() string {
	dir := os.Getenv(resumeVariable)
	if dir == "" {
		return ""
	}
	if h.boxed {
		return filepath.Join(dir, "attack-sandboxed.json")
	}
	return filepath.Join(dir, "attack.json")
}

func (h *harness) save() {
	file := h.file()
	if file == "" {
		return
	}
	data, err := json.Marshal(h.state)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file+".new", data, 0o644)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		h.t.Errorf("what was done is not noted: %v", err)
	}
}

// chunk is how many lines a cell gets at once.
func (h *harness) chunk() int {
	if h.boxed {
		return chunkSize / 10
	}
	return chunkSize
}

// take is the next piece of work.
func (h *harness) take() (chunk, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		from := h.next
		limit := shortTime
		if h.boxed {
			limit /= 2
		}
		if from >= h.total || !h.long && time.Since(h.from) > limit {
			return chunk{}, false
		}
		h.next += h.chunk()
		if !slices.Contains(h.state.Done, from) {
			return chunk{From: from, To: min(h.next, h.total)}, true
		}
	}
}

func (h *harness) done(c chunk, u tally) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, text := range u.Said {
		h.t.Log(text)
	}
	h.state.Sum.add(u)
	if len(c.Lines) > 0 {
		return
	}
	if c.To-c.From == h.chunk() {
		h.state.Done = append(h.state.Done, c.From)
	}
	h.save()
	if h.long && len(h.state.Done)%40 == 0 {
		s := h.state.Sum
		fmt.Fprintf(os.Stderr, "%s: %d judged, %d run, %d findings\n", time.Since(h.from).Round(time.Second), s.Judged, s.Ran, len(s.Findings))
	}
}

func (h *harness) work() {
	named := h.named()
	var wg sync.WaitGroup
	for n := range cells {
		if named != nil && n > 0 {
			break
		}
		wg.Go(func() {
			if err := h.cell(named); err != nil {
				h.t.Errorf("a cell: %v", err)
			}
		})
	}
	wg.Wait()
}

// named are the lines that were asked for by their number or in a file.
func (h *harness) named() []one {
	if at := os.Getenv(atVariable); at != "" {
		n := 0
		h.number(atVariable, &n)
		o, _ := h.c.line(h.state.Seed, n, h.state.Wide)
		return []one{o}
	}
	file := os.Getenv(linesVariable)
	if file == "" {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		h.t.Fatal(err)
	}
	var out []one
	for _, text := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var o one
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			h.t.Fatalf("%s: %v", file, err)
		}
		out = append(out, o)
	}
	return out
}

// cell has one cell do pieces of work until there are no more.
func (h *harness) cell(named []one) error {
	cmd, in, out, err := startCell()
	if err != nil {
		h.t.Skipf("NOT TRIED: there are no namespaces here: %v", err)
	}
	defer func() {
		_ = in.Close() // which ends it
		_ = cmd.Wait() // what was wrong is known already
	}()
	to, from := json.NewEncoder(in), json.NewDecoder(out)
	if err := to.Encode(order{h.c, h.state.Seed, h.state.Wide, h.boxed}); err != nil {
		return err
	}
	var ready tally
	if err := from.Decode(&ready); err != nil {
		return fmt.Errorf("it does not begin: %w", err)
	}
	if ready.Failed != "" {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.t.Skipf("NOT TRIED: no cell can be made here: %s", ready.Failed)
	}
	for {
		c, ok := chunk{Lines: named}, named != nil
		if !ok {
			c, ok = h.take()
		}
		if !ok {
			return nil
		}
		if err := to.Encode(c); err != nil {
			return err
		}
		var u tally
		if err := from.Decode(&u); err != nil {
			return fmt.Errorf("at line %d: %w", c.From, err)
		}
		if h.boxed && strings.Contains(u.Failed, "these bounds do not hold here") {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.t.Skipf("NOT TRIED: a cell has no sandbox here: %s", u.Failed)
		}
		if u.Failed != "" {
			return fmt.Errorf("at line %d: %s", c.From, u.Failed)
		}
		h.done(c, u)
		if named != nil {
			return nil
		}
	}
}

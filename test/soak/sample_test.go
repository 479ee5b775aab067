//go:build linux

package soak

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// hosted is a detached host and what was counted of it.
type hosted struct {
	name    string
	dir     string // of the project
	session task.ID
	place   string // the folder of the session
	client  *control.Client
	pid     int

	mu      sync.Mutex
	samples []sample
	ended   []int // tasks that had ended, by sample
}

// sample is what a host has at one moment.
type sample struct {
	at          time.Time
	memory      float64 // bytes that are its own
	descriptors float64
	threads     float64
	processes   float64 // of its tasks
}

// look counts what a process has.
func look(pid int) (s sample, ok bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	text, err := os.ReadFile(filepath.Join(dir, "status"))
	fds, err2 := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil || err2 != nil {
		return s, false
	}
	s.at, s.descriptors = time.Now(), float64(len(fds))
	for line := range strings.SplitSeq(string(text), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "RssAnon:":
			s.memory = 1024 * n
		case "Threads:":
			s.threads = n
		}
	}
	return s, s.memory > 0
}

// What a host may grow by while it is measured, whatever it does.
const (
	memorySlack     = 8 << 20  // bytes: the collector lets the heap swing
	recordBytes     = 12 << 10 // bytes of an ended task that is held; agents have more to hold than commands
	heldRecords     = 5_000    // of those, at most
	tombBytes       = 512      // bytes of one that is not
	descriptorSlack = 6
	threadSlack     = 6
	processSlack    = 6
	maxGoroutines   = 60 // of a host that has nothing to do
)

// What a host may never have, whatever was measured before and whatever it has done. The
// busier the machine, the more commands are at work at once: 68 processes and 195
// descriptors were counted at load 14.
const (
	memoryMost     = 128 << 20 // bytes
	descriptorMost = 512
	threadMost     = 64
	processMost    = 192
)

// growth is how one count went, by the line that fits it best.
type growth struct {
	what              string
	first, last, most float64
	grew, allowed     float64 // over the time that was measured
	ceiling           float64 // of the most
	over              time.Duration
	bytes             bool
}

func (g growth) fine() bool       { return g.grew <= g.allowed && g.most <= g.ceiling }
func (g growth) perHour() float64 { return g.grew / g.over.Hours() }

func (g growth) say(v float64) string {
	if g.bytes {
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	}
	return fmt.Sprintf("%.1f", v)
}

// growths are those of all counts, after the first third, in which things warm up.
func (h *hosted) growths() []growth {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := len(h.samples) / 3
	measured := h.samples[from:]
	if len(measured) < 2 {
		return nil
	}
	// Records are held until there are too many; then an ID and a name are left of each.
	ended := h.ended[len(h.ended)-1] - h.ended[from]
	fresh := min(h.ended[len(h.ended)-1], heldRecords) - min(h.ended[from], heldRecords)
	over := measured[len(measured)-1].at.Sub(measured[0].at)
	var out []growth
	for _, c := range []struct {
		what    string
		of      func(sample) float64
		allowed float64
		ceiling float64
	}{
		{"memory", func(s sample) float64 { return s.memory }, memorySlack + recordBytes*float64(fresh) + tombBytes*float64(ended-fresh), memoryMost},
		{"descriptors", func(s sample) float64 { return s.descriptors }, descriptorSlack, descriptorMost},
		{"threads", func(s sample) float64 { return s.threads }, threadSlack, threadMost},
		{"processes", func(s sample) float64 { return s.processes }, processSlack, processMost},
	} {
		g := growth{what: c.what, allowed: c.allowed, ceiling: c.ceiling, over: over, bytes: c.what == "memory", first: c.of(measured[0]), last: c.of(measured[len(measured)-1])}
		x, y := make([]float64, len(measured)), make([]float64, len(measured))
		for i, s := range measured {
			x[i], y[i] = s.at.Sub(measured[0].at).Seconds(), c.of(s)
		}
		for _, s := range h.samples { // of all the time
			g.most = max(g.most, c.of(s))
		}
		g.grew = slope(x, y) * over.Seconds()
		g.allowed += 4 * swing(x, y) * math.Sqrt(12/float64(len(x))) // four times the error of the line
		out = append(out, g)
	}
	return out
}

// slope is that of the line with the least squares.
func slope(x, y []float64) float64 {
	var sx, sy, sxx, sxy float64
	n := float64(len(x))
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}

// swing is how far the counts are off that line, as a standard deviation.
func swing(x, y []float64) float64 {
	var mx, my, sum float64
	for i := range x {
		mx, my = mx+x[i]/float64(len(x)), my+y[i]/float64(len(y))
	}
	k := slope(x, y)
	for i := range x {
		off := y[i] - my - k*(x[i]-mx)
		sum += off * off
	}
	return math.Sqrt(sum / float64(len(x)))
}

func TestSlope(t *testing.T) {
	for _, c := range []struct {
		y    []float64
		want float64
	}{{[]float64{5, 5, 5, 5}, 0}, {[]float64{1, 3, 5, 7}, 2}, {[]float64{4, 2, 4, 2}, -0.4}} {
		if got := slope([]float64{0, 1, 2, 3}, c.y); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("slope of %v = %v, want %v", c.y, got, c.want)
		}
	}
}

// A leak of two kilobytes for each task, or of a descriptor now and then, is seen.
func TestGrowth(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(s *sample, n float64)
		what string
	}{
		"memory":      {func(s *sample, n float64) { s.memory += 2048 * 12 * n }, "memory"},
		"descriptors": {func(s *sample, n float64) { s.descriptors += n / 60 }, "descriptors"},
		"threads":     {func(s *sample, n float64) { s.threads += n / 60 }, "threads"},
		"processes":   {func(s *sample, n float64) { s.processes += n / 60 }, "processes"},
	} {
		t.Run(name, func(t *testing.T) {
			h, begun := &hosted{}, time.Unix(0, 0)
			for n := range 1200 {
				s := sample{begun.Add(time.Duration(n) * time.Second), 30e6 + float64(n%7)*1e6, 20 + float64(n%3), 9, float64(n % 5)}
				c.of(&s, float64(n))
				h.samples, h.ended = append(h.samples, s), append(h.ended, heldRecords+12*n)
			}
			for _, g := range h.growths() {
				if g.fine() != (g.what != c.what) {
					t.Errorf("%s: grew by %v, allowed %v", g.what, g.grew, g.allowed)
				}
			}
		})
	}
}

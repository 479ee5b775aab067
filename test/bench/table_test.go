//go:build linux

// Package bench measures Drover against its targets and prints one table.
//
// Every row measures ours and a floor, or a peer, in turns within the same run:
// machines are noisy, and the ratio is what can be compared. It is a benchmark and
// never a timed test: a figure over its target is marked and fails nothing.
// `make bench` runs it; -short makes it small.
package bench

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/test/harness"
)

func TestMain(m *testing.M) {
	if os.Getenv(loopsVariable) != "" { // these are the parts that want a process of their own
		os.Exit(loops())
	}
	if os.Getenv(liveVariable) != "" {
		os.Exit(live())
	}
	if os.Getenv(floorVariable) != "" {
		os.Exit(floorWorker())
	}
	os.Exit(m.Run())
}

// row is one line of the table. A figure of 0 is one that does not exist.
type row struct {
	name   string
	unit   string // of ours, floor and target
	ours   float64
	floor  float64
	of     string  // what the floor is
	target float64 // in unit; what is more is over, with most set what is less
	least  bool    // the target is a minimum
	ratio  float64 // target for ours / floor, instead of target; a minimum with least
	note   string
}

// slack is how far over its target a figure may be on a noisy machine before it
// is marked as a miss.
const slack = 1.3

// verdict judges a figure. slow is how much slower than the machine of the
// targets this one is just now: busy is a time that would have been ok there.
func (r row) verdict(slow float64) string {
	got, want := r.ours, r.target
	if r.ratio > 0 {
		got, want = r.ours/r.floor, r.ratio
	}
	if want == 0 {
		return ""
	}
	if r.least {
		got, want = want, got
	}
	switch {
	case got <= want:
		return "ok"
	case got <= want*slack:
		return "near"
	case r.ratio == 0 && r.unit != "MiB" && got <= want*slow:
		return "busy"
	}
	return "OVER"
}

func figure(v float64, unit string) string {
	switch {
	case v == 0:
		return ""
	case v >= 100:
		return fmt.Sprintf("%.0f %s", v, unit)
	case v >= 10:
		return fmt.Sprintf("%.1f %s", v, unit)
	}
	return fmt.Sprintf("%.2f %s", v, unit)
}

func (r row) cells(slow float64) []string {
	ratio, target := "", ""
	if r.floor > 0 {
		ratio = fmt.Sprintf("%.2f", r.ours/r.floor)
	}
	sign := "≤"
	if r.least {
		sign = "≥"
	}
	switch {
	case r.ratio > 0:
		target = fmt.Sprintf("%s %.2f×", sign, r.ratio)
	case r.target > 0:
		target = sign + " " + figure(r.target, r.unit)
	}
	floor := figure(r.floor, r.unit)
	if floor != "" {
		floor += " " + r.of
	}
	return []string{r.name, figure(r.ours, r.unit), floor, ratio, target, r.verdict(slow), r.note}
}

// bench is one run of the table.
type bench struct {
	*testing.B
	short bool
	dir   string // on memory where that can be had; everything is made below it
	bin   string // the program, as it is released
	cfl   string // the floors in C
	out   io.Writer
	slow  float64 // see row.verdict
	pace  []float64
}

// referenceSpawn is what posix_spawn of `true` took, in µs, on the machine where
// the targets were set.
const referenceSpawn = 526

// clock tells how fast the machine is at this moment.
func (t *bench) clock() {
	spawn := us(t.cSpawn(t.dir, 100, 1, "true")) / 100
	t.pace = append(t.pace, spawn)
	t.slow = max(1, spawn/referenceSpawn)
}

// Table is the whole table; make bench prints nothing else.
func BenchmarkTable(b *testing.B) {
	t := &bench{B: b, short: testing.Short(), out: os.Stdout}
	t.place()
	t.build()
	t.head()
	for _, part := range []struct {
		name string
		run  func(*bench)
	}{
		{"version", (*bench).version}, {"prompt", (*bench).prompt}, {"agents", (*bench).agents}, {"notification", (*bench).notification},
		{"spawn", (*bench).spawn}, {"detached", (*bench).detached}, {"output", (*bench).output}, {"reads", (*bench).reads},
		{"list", (*bench).list}, {"finished", (*bench).finished}, {"journal", (*bench).journal}, {"registry", (*bench).registry}, {"subscriber", (*bench).subscriber},
		{"tail", (*bench).tail}, {"transcript", (*bench).transcript}, {"resume", (*bench).resume}, {"stream", (*bench).stream},
		{"compaction", (*bench).compaction}, {"todo", (*bench).todo}, {"permission", (*bench).permission}, {"loops", (*bench).loopRows}, {"workflow", (*bench).workflow},
		{"monitors", (*bench).monitors}, {"remote", (*bench).remote}, {"live", (*bench).liveRows}, {"machines", (*bench).fleet}, {"scale", (*bench).scale},
	} {
		if only := os.Getenv("ONLY"); only != "" && only != part.name {
			continue
		}
		t.clock()
		begin := time.Now()
		part.run(t)
		t.Logf("%s took %.1f s", part.name, time.Since(begin).Seconds())
	}
	if len(t.pace) == 0 {
		b.Fatalf("no part of the table is called %q", os.Getenv("ONLY"))
	}
	t.foot()
}

func (t *bench) foot() {
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Fprintf(t.out, "\nload at the end %.14s; posix_spawn of true took %.0f µs (%.0f to %.0f), %d where the targets were set\n",
		load, median(t.pace), slices.Min(t.pace), slices.Max(t.pace), referenceSpawn)
}

func (t *bench) head() {
	var u unix.Utsname
	_ = unix.Uname(&u)
	load, _ := os.ReadFile("/proc/loadavg")
	form := "long"
	if t.short {
		form = "short"
	}
	fmt.Fprintf(t.out, "%s form, %d cores, Linux %s, %s, in %s, load %.14s\n\n", form, runtime.NumCPU(), unix.ByteSliceToString(u.Release[:]), runtime.Version(), filepath.Dir(t.dir), load)
	t.line("what", "ours", "floor or peer", "ratio", "target", "", "note")
	t.line("---", "---", "---", "---", "---", "---", "---")
}

func (t *bench) line(cells ...string) { fmt.Fprintln(t.out, "| "+strings.Join(cells, " | ")+" |") }

func (t *bench) add(rows ...row) {
	for _, r := range rows {
		t.line(r.cells(t.slow)...)
	}
}

// place makes the folder, in memory where that can be written.
func (t *bench) place() {
	base := os.TempDir()
	if unix.Access("/dev/shm", unix.W_OK) == nil {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "drover-bench-")
	t.must(err)
	t.dir = dir
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
}

func (t *bench) build() {
	t.bin = filepath.Join(t.dir, "drover")
	t.must(harness.Build(t.bin, harness.Stamp("bench")))
	t.must(harness.BuildKeeper(t.bin, harness.Stamp("bench")))
	t.cfl = filepath.Join(t.dir, "floor")
	if out, err := exec.Command("gcc", "-O2", "-o", t.cfl, "testdata/floor.c").CombinedOutput(); err != nil {
		t.Fatalf("build the floors, which needs gcc and libc6-dev: %v\n%s", err, out)
	}
}

func (t *bench) must(err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// runs is how often something is measured.
func (t *bench) runs(long int) int {
	if t.short {
		return max(3, long/3)
	}
	return long
}

// size is how much is measured.
func (t *bench) size(long, short int) int {
	if t.short {
		return short
	}
	return long
}

// temp makes a folder that nothing else is in.
func (t *bench) temp() string {
	dir, err := os.MkdirTemp(t.dir, "d")
	t.must(err)
	return dir
}

// env is the environment of a program that is measured: a state folder of its
// own and nothing that leads elsewhere.
func (t *bench) env(home string, more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "DROVER_HOME=" + filepath.Join(home, "state"), "TMPDIR=" + t.dir, "LANG=C.UTF-8"}, more...)
}

func median(v []float64) float64 { return quantile(v, 0.5) }

func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Clone(v)
	slices.Sort(s)
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// turns measures ours and the floor one after the other, n times, and gives both
// medians. Who comes first changes: the second finds memory and disk as the first
// has left them.
func turns(n int, ours, floor func() float64) (float64, float64) {
	var a, b []float64
	for i := range n {
		if i%2 == 1 {
			a = append(a, ours())
		}
		b = append(b, floor())
		if i%2 == 0 {
			a = append(a, ours())
		}
	}
	return median(a), median(b)
}

package sim

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// all reports whether somebody wants more than the short form.
func all() bool { return os.Getenv(eventsVariable) != "" }

// TestPowerCuts plays the beginning of a history with durability power, and opens the
// journal as it was at every frame of its write-ahead log, whole and torn: what was
// acknowledged by then is there, and of the rest nothing in part.
func TestPowerCuts(t *testing.T) {
	w := newWorld(1, t.TempDir())
	w.opts = journal.Options{Power: true}
	defer w.abandon()
	defer func() {
		if v := recover(); v != nil {
			t.Fatalf("step %d: %v\n%s", w.step, v, strings.Join(w.script, "\n"))
		}
	}()
	w.up(true)
	log := w.ledger.watch(w.dir)
	for n := 1; len(log.frames) < 600; n++ { // at 1,000 it would begin anew
		w.step = n
		r := rand.New(rand.NewPCG(7, uint64(n)))
		switch k := r.IntN(6); {
		case k == 0:
			w.together(w.several(r))
		case k == 1 && w.readers()[session] > 0:
			w.deliver(session, 5, false, r)
		default:
			if o := w.one(r, nil); o != nil {
				o.play(w)
			}
		}
		w.check()
		w.ledger.mu.Lock()
		log.look()
		w.ledger.mu.Unlock()
	}
	w.line.gate.Lock()
	log.look()
	left := take(w.dir)
	w.line.gate.Unlock()
	if log.generation != 1 || log.commits() < 500 {
		t.Fatalf("the log is of generation %d and has %d frames: the test wants one that was never begun anew", log.generation, log.commits())
	}
	step := 1
	if !all() {
		step = len(log.frames)/20 + 1
	}
	opened, r := 0, rand.New(rand.NewPCG(7, 7))
	for n := 0; n <= len(log.frames); n += step {
		for _, end := range []int64{log.at(n), log.at(n) + r.Int64N(frameHead+int64(log.page))} {
			dir := filepath.Join(t.TempDir(), "cut")
			files{left.db, left.wal[:min(end, int64(len(left.wal)))]}.put(dir)
			l := w.ledger.copy()
			l.cut(n)
			if err := opens(dir, l); err != nil {
				t.Fatalf("with %d of %d frames, cut at byte %d: %v", n, len(log.frames), end, err)
			}
			must(os.RemoveAll(dir))
			opened++
		}
	}
	t.Logf("%d events and messages in %d frames, opened at %d places", w.ledger.written(), len(log.frames), opened)
}

// copy is a ledger that may be cut while this one goes on.
func (l *ledger) copy() *ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := newLedger()
	for seq, f := range l.facts {
		one := *f
		out.facts[seq] = &one
	}
	maps.Copy(out.acks, l.acks)
	return out
}

// opens compares a journal with a ledger.
func opens(dir string, l *ledger) (err error) {
	j, err := journal.Open(filepath.Join(dir, databaseName), journal.Options{Power: true})
	if err != nil {
		return err
	}
	defer func() {
		if v := recover(); v != nil {
			f, ok := v.(failure)
			if !ok {
				panic(v)
			}
			err = fmt.Errorf("%s", string(f))
		}
		err = cmp.Or(err, j.Close())
	}()
	l.compare(j, dir, 0)
	return nil
}

// Of the process that is watched while it writes.
const (
	powerVariable  = "SIM_POWER_DIR"
	normalVariable = "SIM_POWER_NORMAL" // set: without durability power
)

// powerChild writes a journal, and a line on stdout for all that was acknowledged.
func powerChild(dir string) {
	j, err := journal.Open(filepath.Join(dir, databaseName), journal.Options{Power: os.Getenv(normalVariable) == ""})
	must(err)
	ctx := context.Background()
	var mu sync.Mutex
	told := func(seq task.Seq, s sum) {
		mu.Lock()
		defer mu.Unlock()
		_, err := fmt.Fprintf(os.Stdout, "told %d %x\n", seq, s)
		must(err)
	}
	write := func(n int) {
		r := task.Record{ID: task.ID(fmt.Sprintf("b%08d", n)), Run: task.RunID(fmt.Sprintf("run_%d", n)), Kind: task.LocalBash, Status: task.Running,
			Owner: session, CreateTime: unix(int64(n)), Command: strings.Repeat("x", 40*(n%60))}
		e := lifecycle.Entry{Verb: task.Create, At: unix(int64(n)), Task: r}
		seq, err := j.Append(ctx, e)
		must(err)
		told(seq, sumOfEvent(e.Verb, e.At.UnixNano(), e.Task))
		m := task.Message{To: session, From: string(r.ID), Kind: task.PlainMessage, Text: fmt.Sprintf("message %d", n), At: unix(int64(n))}
		if n%5 == 0 {
			seq, err := j.Post(ctx, m)
			must(err)
			told(seq, sumOfLetter(m))
			must(j.Acknowledge(ctx, seq))
		}
		now := unix(int64(n) + 1)
		r.Status, r.EndTime, r.Notified, r.Cause = task.Completed, &now, true, &task.Cause{Actor: task.ByItself, Reason: task.ReasonDone}
		e = lifecycle.Entry{Verb: task.Complete, At: now, Task: r, Notification: &lifecycle.Notification{Run: r.Run, Task: r.ID, Owner: session}}
		seq, err = j.Append(ctx, e)
		must(err)
		told(seq, sumOfEvent(e.Verb, e.At.UnixNano(), e.Task))
		if n%3 == 0 {
			must(j.Acknowledge(ctx, seq))
		}
	}
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for n := range 50 {
				write(1000*w + n)
			}
		})
	}
	wg.Wait()
	for n := range 40 {
		write(9000 + n)
	}
	must(j.Close())
}

// TestPowerLoss watches the system calls of a process that writes a journal, and looks
// what a power loss after each of them can leave: of what was not flushed, any part.
// With durability power all that was acknowledged is there. Without it something is
// lost, or else the test would see nothing.
func TestPowerLoss(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not here: nothing is known of power loss")
	}
	for _, power := range []bool{true, false} {
		t.Run(fmt.Sprintf("power=%v", power), func(t *testing.T) {
			dir := t.TempDir()
			trace := watched(t, dir, power)
			d := newDisk(dir)
			looks, losses := 0, map[string]bool{}
			r := rand.New(rand.NewPCG(1, 2))
			usual := 1 // calls between two looks
			if !all() {
				usual = len(trace)/12 + 1
			}
			for n, c := range trace {
				d.take(c)
				if len(d.told) == 0 || n%usual != 0 && n != len(trace)-1 {
					continue
				}
				for how := range 3 {
					looks++
					left := filepath.Join(dir, "left")
					must(os.Mkdir(left, 0o700))
					if lost := d.lose(r, how, left); lost != "" {
						losses[fmt.Sprintf("after call %d, %s: %s", n, c, lost)] = true
					}
					must(os.RemoveAll(left))
				}
				if len(losses) > 0 {
					break
				}
			}
			t.Logf("%d calls, %d looks, %d acknowledged", len(trace), looks, len(d.told))
			if len(d.told) < 300 && len(losses) == 0 || d.syncs == 0 {
				t.Errorf("%d acknowledged, %d flushes: too little happened", len(d.told), d.syncs)
			}
			if power && len(losses) > 0 {
				t.Errorf("lost: %v", slices.Sorted(maps.Keys(losses)))
			}
			if !power && len(losses) == 0 {
				t.Error("nothing is lost without durability power: the test sees nothing")
			}
		})
	}
}

// call is a system call that was made.
type call struct {
	name string
	path string
	data []byte
	at   int64 // offset, or length of a file
	made bool  // a file that was not there
}

func (c call) String() string {
	return fmt.Sprintf("%s of %d bytes at %d of %s", c.name, len(c.data), c.at, filepath.Base(c.path))
}

// watched runs the process and returns what it called.
func watched(t *testing.T, dir string, power bool) []call {
	t.Helper()
	log := filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(t.Context(), "strace", "-f", "--seccomp-bpf", "-y", "-xx", "-s", "1000000", "-o", log, "-e",
		"trace=openat,pwrite64,write,fsync,fdatasync,ftruncate,unlink,unlinkat", os.Args[0])
	cmd.Env = append(os.Environ(), powerVariable+"="+dir)
	if !power {
		cmd.Env = append(cmd.Env, normalVariable+"=1")
	}
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ptrace") {
			t.Skipf("strace may not look at processes here: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Open(log)
	must(err)
	defer f.Close()
	var calls []call
	begun := map[string]string{}
	s := bufio.NewScanner(f)
	s.Buffer(nil, 64<<20)
	resumed := regexp.MustCompile(`^<\.\.\. \w+ resumed>`)
	for s.Scan() {
		pid, text, _ := strings.Cut(s.Text(), " ")
		text = strings.TrimSpace(text)
		if first, cut := strings.CutSuffix(text, " <unfinished ...>"); cut {
			begun[pid] = first
			continue
		}
		if rest := resumed.FindString(text); rest != "" {
			text = begun[pid] + text[len(rest):]
		}
		if c, ok := readCall(text); ok {
			calls = append(calls, c)
		}
	}
	must(s.Err())
	return calls
}

// readCall reads a line of strace. What failed, and what is no call, is left out.
func readCall(text string) (c call, ok bool) {
	name, args, ok := strings.Cut(text, "(")
	if !ok {
		return c, false
	}
	before, result, _ := cutLast(args, " = ")
	n, err := strconv.ParseInt(strings.FieldsFunc(result, func(r rune) bool { return r == '<' || r == ' ' })[0], 10, 64)
	if err != nil || n < 0 {
		return c, false
	}
	before = strings.TrimSuffix(strings.TrimSpace(before), ")")
	parts := strings.Split(before, ", ")
	c = call{name: name}
	switch name {
	case "openat":
		c.path, c.made = unhex(parts[1]), strings.Contains(before, "O_CREAT")
		return c, c.made
	case "unlink":
		c.path = unhex(parts[0])
		return c, true
	case "unlinkat":
		c.path = unhex(parts[1])
		return c, true
	}
	_, path, _ := strings.Cut(parts[0], "<")
	c.path = unhex(strings.TrimSuffix(path, ">"))
	switch name {
	case "pwrite64":
		c.data = []byte(unhex(parts[1]))[:n]
		c.at, err = strconv.ParseInt(parts[3], 10, 64)
	case "write":
		c.data = []byte(unhex(parts[1]))[:n]
	case "ftruncate":
		c.at, err = strconv.ParseInt(parts[1], 10, 64)
	}
	must(err)
	return c, true
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "-1", false
	}
	return s[:i], s[i+len(sep):], true
}

func unhex(text string) string {
	raw, err := hex.DecodeString(strings.ReplaceAll(strings.Trim(text, `"`), `\x`, ""))
	if err != nil {
		return text // a number, or a name such as AT_FDCWD
	}
	return string(raw)
}

// disk is what is known to be on it, and what is on the way.
type disk struct {
	dir   string
	files map[string]*image
	told  map[task.Seq]string // what was acknowledged
	syncs int
}

// image is a file. Its entry is in the folder for sure once that was flushed.
type image struct {
	entry   bool
	sure    []byte
	pending []call
}

func newDisk(dir string) *disk {
	return &disk{dir: dir, files: map[string]*image{}, told: map[task.Seq]string{}}
}

// take notes a call.
func (d *disk) take(c call) {
	f := d.files[c.path]
	if f == nil && filepath.Dir(c.path) == d.dir {
		f = &image{}
		d.files[c.path] = f
	}
	switch {
	case c.name == "write" && strings.HasPrefix(string(c.data), "told "):
		var seq task.Seq
		var s string
		_, err := fmt.Sscanf(string(c.data), "told %d %s\n", &seq, &s)
		must(err)
		d.told[seq] = s
	case strings.HasSuffix(c.name, "sync") && c.path == d.dir:
		d.syncs++
		for _, f := range d.files {
			f.entry = true
		}
	case f == nil:
	case strings.HasSuffix(c.name, "sync"):
		d.syncs++
		for _, p := range f.pending {
			f.sure = p.on(f.sure, nil)
		}
		f.pending = nil
	case strings.HasPrefix(c.name, "unlink"):
		delete(d.files, c.path)
	case c.name == "pwrite64" || c.name == "ftruncate":
		f.pending = append(f.pending, c)
	}
}

const sector = 512

// on is a file after a call of which only the sectors are done that keep says; nil: all.
func (c call) on(file []byte, keep func() bool) []byte {
	if c.name == "ftruncate" {
		if keep != nil && !keep() {
			return file
		}
		return append(slices.Clone(file), make([]byte, max(0, int(c.at)-len(file)))...)[:c.at]
	}
	for from := 0; from < len(c.data); from += sector {
		if keep != nil && !keep() {
			continue
		}
		to := min(len(c.data), from+sector)
		if grow := int(c.at) + to - len(file); grow > 0 {
			file = append(file, make([]byte, grow)...)
		}
		copy(file[int(c.at)+from:], c.data[from:to])
	}
	return file
}

// lose is a power loss: nothing of what is on the way is done, or some calls, or some
// sectors of them. It returns what is lost that was acknowledged.
func (d *disk) lose(r *rand.Rand, how int, dir string) string {
	coin := func() bool { return r.IntN(2) == 0 }
	for path, f := range d.files {
		if !f.entry && (how == 0 || coin()) {
			continue
		}
		data := slices.Clone(f.sure)
		for _, c := range f.pending {
			switch {
			case how == 1 && coin():
				data = c.on(data, nil)
			case how == 2:
				data = c.on(data, coin)
			}
		}
		if base := filepath.Base(path); !strings.HasSuffix(base, "-shm") {
			must(os.WriteFile(filepath.Join(dir, base), data, 0o600))
		}
	}
	return d.missing(dir)
}

// missing opens what is left and looks for what was acknowledged.
func (d *disk) missing(dir string) string {
	j, err := journal.Open(filepath.Join(dir, databaseName), journal.Options{Power: true})
	if err != nil {
		return "the journal: " + err.Error()
	}
	defer j.Close()
	got := map[task.Seq]string{}
	for after := task.Seq(0); ; {
		page, err := j.Since(context.Background(), after)
		if err != nil {
			return err.Error()
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			got[e.Seq], after = fmt.Sprintf("%x", sumOfEvent(e.Verb, e.At.UnixNano(), e.Task)), e.Seq
		}
	}
	letters, _, _ := readLetters(dir, 0)
	for _, m := range letters {
		got[m.Seq] = fmt.Sprintf("%x", sumOfLetter(m))
	}
	for seq, s := range d.told {
		if got[seq] != s {
			return fmt.Sprintf("number %d of %d, which is %q and was %q", seq, len(d.told), got[seq], s)
		}
	}
	return ""
}

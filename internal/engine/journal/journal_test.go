package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("JOURNAL_CHILD"); path != "" {
		child(path)
		return
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, path string, opts Options) *Journal {
	t.Helper()
	j, err := Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func record(n int) task.Record {
	return task.Record{ID: task.ID(fmt.Sprintf("b%08d", n)), Run: task.RunID(fmt.Sprintf("run_%d", n)), Kind: task.LocalBash, Status: task.Pending,
		Name: "n", Description: "a <b> & c", CreateTime: time.Unix(1, 0).UTC(), Command: "true", Cwd: "/tmp"}
}

func add(t testing.TB, j *Journal, e lifecycle.Entry) task.Seq {
	t.Helper()
	seq, err := j.Append(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func TestReopen(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "session.db")
	j, err := Open(path, Options{Power: true})
	if err != nil {
		t.Fatal(err)
	}
	r := record(1)
	add(t, j, lifecycle.Entry{Verb: task.Create, Task: r})
	r.Status = task.Completed
	seq := add(t, j, lifecycle.Entry{Verb: task.Complete, Task: r, Notification: &lifecycle.Notification{Run: r.Run, Owner: "s00000000", Priority: task.Later}, Answer: "42"})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(ctx, lifecycle.Entry{Verb: task.Create, Task: r}); !errors.Is(err, ErrClosed) {
		t.Fatalf("append to a closed journal: %v", err)
	}
	for _, opts := range []Options{{ReadOnly: true}, {}} {
		j := open(t, path, opts)
		if j.Last() != seq {
			t.Errorf("last = %d, want %d", j.Last(), seq)
		}
		states, err := j.Tasks(ctx)
		if err != nil || len(states) != 1 || states[0].Task.Status != task.Completed || states[0].Task.Description != r.Description {
			t.Errorf("tasks = %+v, %v", states, err)
		}
		owed, err := j.Unacknowledged(ctx, "s00000000")
		if err != nil || len(owed) != 1 || owed[0].Seq != seq || owed[0].Run != r.Run {
			t.Errorf("owed = %+v, %v", owed, err)
		}
		if text, err := j.Answer(ctx, r.Run); err != nil || text != "42" {
			t.Errorf("answer = %q, %v", text, err)
		}
		events, err := j.Since(ctx, 0)
		if err != nil || len(events) != 2 || events[0].Verb != task.Create || events[1].Seq != seq {
			t.Errorf("events = %+v, %v", events, err)
		}
		if opts.ReadOnly {
			continue
		}
		if err := j.Acknowledge(ctx, seq); err != nil {
			t.Fatal(err)
		}
		if owed, _ := j.Unacknowledged(ctx, "s00000000"); len(owed) != 0 {
			t.Errorf("still owed after the acknowledgement: %+v", owed)
		}
	}
}

// A run ends once: a second notification for it is refused, and refusing it must not
// harm what was queued beside it.
func TestSecondEnd(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "s.db"), Options{})
	end := func(n int) error {
		r := record(n)
		_, err := j.Append(context.Background(), lifecycle.Entry{Verb: task.Complete, Task: r, Notification: &lifecycle.Notification{Run: r.Run}})
		return err
	}
	if err := end(0); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	errs := make([]error, 50)
	for i := range errs {
		wg.Go(func() { errs[i] = end(i) })
	}
	wg.Wait()
	for i, err := range errs {
		if (i == 0) != (err != nil) {
			t.Errorf("end of run %d: %v", i, err)
		}
	}
	if got := j.Last(); got != 50 {
		t.Errorf("last = %d: numbers must have no gaps", got)
	}
}

// Readers that start anywhere see every later event once and in order, while
// many write; one of them is far behind the ring.
func TestCursors(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "s.db"), Options{})
	const writers, each = 16, 400
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var readers sync.WaitGroup
	for _, after := range []task.Seq{0, 1, 700} {
		readers.Go(func() {
			want := after + 1
			for e, err := range j.Events(ctx, after) {
				if err != nil {
					t.Error(err)
					return
				}
				if e.Seq != want {
					t.Errorf("got event %d, want %d", e.Seq, want)
					return
				}
				if want++; want > writers*each {
					return
				}
			}
		})
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := j.Append(ctx, lifecycle.Entry{Verb: task.Create, Task: record(w*each + i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	readers.Wait()
	states, err := j.Page(ctx, 0, 3)
	if err != nil || len(states) != 3 || states[0].Born != writers*each {
		t.Errorf("first page: %d states, %v", len(states), err)
	}
	rest, err := j.Page(ctx, states[2].Born, writers*each)
	if err != nil || len(rest) != writers*each-3 || rest[0].Born != states[2].Born-1 {
		t.Errorf("second page: %d states, %v", len(rest), err)
	}
}

func TestEventsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	j := open(t, path, Options{})
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("reader leaves")
	cancel(why)
	for _, err := range j.Events(ctx, 0) {
		if !errors.Is(err, why) {
			t.Errorf("ended with %v, want the cause", err)
		}
	}
	done := make(chan int)
	go func() {
		n := 0
		for range j.Events(context.Background(), 0) {
			n++
		}
		done <- n
	}()
	add(t, j, lifecycle.Entry{Verb: task.Create, Task: record(1)})
	_ = j.Close()
	if n := <-done; n > 1 {
		t.Errorf("reader saw %d events", n)
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none.db"), Options{ReadOnly: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	bad := filepath.Join(dir, "bad.db")
	if err := os.WriteFile(bad, []byte("this is not a database, it is a long line of text that fills a header"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(bad, Options{}); err == nil {
		t.Error("a damaged file was opened")
	}
	newer := filepath.Join(dir, "newer.db")
	j := open(t, newer, Options{})
	if _, err := j.w.conn.ExecContext(context.Background(), "PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	if _, err := Open(newer, Options{}); err == nil {
		t.Error("a newer format was opened for writing")
	}
	info, err := os.Stat(newer)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file: %v, %v", info.Mode(), err)
	}
}

// What Append returned for is there after kill -9.
func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "JOURNAL_CHILD="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said int
	for said < 500 {
		if _, err := fmt.Fscanln(out, &said); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	j := open(t, path, Options{})
	if int(j.Last()) < said {
		t.Fatalf("%d events were acknowledged, %d are there", said, j.Last())
	}
	states, err := j.Tasks(context.Background())
	if err != nil || len(states) != int(j.Last()) {
		t.Fatalf("%d tasks for %d events, %v", len(states), j.Last(), err)
	}
}

func child(path string) {
	j, err := Open(path, Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for i := 0; ; i++ {
		seq, err := j.Append(context.Background(), lifecycle.Entry{Verb: task.Create, Task: record(i)})
		if err != nil {
			os.Exit(1)
		}
		fmt.Println(seq)
	}
}

// One event is read for itself: the damage of its neighbours is not its own.
func TestEventAmongDamaged(t *testing.T) {
	ctx := context.Background()
	j := open(t, filepath.Join(t.TempDir(), "session.db"), Options{})
	var seqs []task.Seq
	for i := range 3 {
		seqs = append(seqs, add(t, j, lifecycle.Entry{Verb: task.Create, Task: record(i)}))
	}
	if _, err := j.w.conn.ExecContext(ctx, "UPDATE events SET record = x'ff' WHERE seq = ?", int64(seqs[1])); err != nil {
		t.Fatal(err)
	}
	for i, seq := range seqs {
		if i == 1 {
			if e, err := j.Event(ctx, seq); err == nil {
				t.Errorf("the damaged event was read: %+v", e)
			}
			continue
		}
		if e, err := j.Event(ctx, seq); err != nil || e.Seq != seq || e.Verb != task.Create || e.Task.ID != record(i).ID {
			t.Errorf("event %d: %+v, %v", seq, e, err)
		}
	}
	if e, err := j.Event(ctx, seqs[2]+1); err == nil {
		t.Errorf("an event that never was: %+v", e)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers-%d", writers), func(b *testing.B) {
			j := open(b, filepath.Join(b.TempDir(), "s.db"), Options{})
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for i := w; i < b.N; i += writers {
						if _, err := j.Append(context.Background(), lifecycle.Entry{Verb: task.Begin, Task: record(i)}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// A log is never opened through a planted link, which would write to another file.
func TestOpenLink(t *testing.T) {
	dir := t.TempDir()
	other, path := filepath.Join(dir, "other"), filepath.Join(dir, "log.db")
	if err := os.Symlink(other, path); err != nil {
		t.Fatal(err)
	}
	if j, err := Open(path, Options{}); err == nil {
		t.Errorf("a link was opened: %v", j.Close())
	}
	if _, err := os.Lstat(other); err == nil {
		t.Error("the file that the link names was made")
	}
}

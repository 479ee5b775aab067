package journal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// end writes a run with an answer.
func end(t testing.TB, j *Journal, n int, answer string) task.RunID {
	t.Helper()
	r := record(n)
	add(t, j, lifecycle.Entry{Verb: task.Create, Task: r})
	r.Status = task.Completed
	add(t, j, lifecycle.Entry{Verb: task.Complete, Task: r, Notification: &lifecycle.Notification{Run: r.Run, Owner: "s00000000"}, Answer: answer})
	return r.Run
}

// An answer of any length is read as it was written, whole and from any byte on, and no row
// of the log is longer than a part.
func TestAnswerParts(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "session.db"), Options{})
	ctx, n := t.Context(), 0
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(0, 100), rapid.SampledFrom([]int{answerPart - 1, answerPart, answerPart + 1, 3*answerPart - 1, 3 * answerPart})).Draw(rt, "size")
		text := strings.Repeat("aé\x00€", size/7+1)[:size]
		n++
		run := end(t, j, n, text)
		if got, err := j.Answer(ctx, run); err != nil || got != text {
			rt.Fatalf("%d bytes of %d, %v", len(got), size, err)
		}
		if got, err := j.AnswerSize(ctx, run); err != nil || got != int64(size) {
			rt.Fatalf("size %d of %d, %v", got, size, err)
		}
		if size == 0 {
			return
		}
		at := rapid.IntRange(0, size-1).Draw(rt, "at")
		part, err := j.AnswerAt(ctx, run, int64(at))
		if err != nil || len(part) == 0 || len(part) > answerPart || !strings.HasPrefix(text[at:], string(part)) {
			rt.Fatalf("%d bytes at %d, %v", len(part), at, err)
		}
		if _, err := j.AnswerAt(ctx, run, int64(size)+answerPart); !errors.Is(err, ErrDamaged) {
			rt.Fatalf("behind the end: %v", err)
		}
	})
	db, err := j.reader()
	if err != nil {
		t.Fatal(err)
	}
	var longest int
	if err := db.QueryRow("SELECT max(length(CAST(text AS BLOB))) FROM answers").Scan(&longest); err != nil || longest > answerPart {
		t.Errorf("a row has %d bytes, %v", longest, err)
	}
}

// An answer that an older build wrote as one row is read from any byte on.
func TestAnswerOfOlderBuild(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "session.db"), Options{})
	run := end(t, j, 1, "")
	text := strings.Repeat("0123456789", answerPart/4)
	if err := j.w.exec(insertAnswer, string(run), text); err != nil {
		t.Fatal(err)
	}
	if got, err := j.Answer(t.Context(), run); err != nil || got != text {
		t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
	}
	if part, err := j.AnswerAt(t.Context(), run, 2*answerPart); err != nil || string(part) != text[2*answerPart:] {
		t.Errorf("%d bytes, %v", len(part), err)
	}
}

// Of a very long answer the excerpt has both ends, and says what it lacks.
func TestAnswerExcerpt(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "session.db"), Options{})
	short, long := "a"+strings.Repeat("b", 2*answerPart-2)+"c", "first"+strings.Repeat("é", 2*answerPart)+"last"
	if got, err := j.AnswerExcerpt(t.Context(), end(t, j, 1, short)); err != nil || got != short {
		t.Errorf("%d bytes of %d, %v", len(got), len(short), err)
	}
	got, err := j.AnswerExcerpt(t.Context(), end(t, j, 2, long))
	if err != nil || len(got) > 2*answerPart+100 || !strings.HasPrefix(got, "firsté") || !strings.HasSuffix(got, "élast") || !strings.Contains(got, "bytes left out") {
		t.Errorf("%d bytes of %d, %v", len(got), len(long), err)
	}
}

// Repair keeps all parts of a long answer.
func TestSalvageLongAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session.db")
	j, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("0123456789", answerPart/4)
	run := end(t, j, 1, text)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "session.db")
	s, err := Salvage(t.Context(), remains(db, nil), to, 0)
	if err != nil || s.Answers != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	if got, err := open(t, to, Options{}).Answer(t.Context(), run); err != nil || got != text {
		t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
	}
}

// A reader that stands still holds a page of bounded size, whether it reads from memory or from
// the file, and misses nothing.
func TestPageBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session.db")
	j := open(t, path, Options{})
	const events, each = 40, 50_000
	for n := range events {
		r := record(n)
		r.Error = strings.Repeat("e", each)
		add(t, j, lifecycle.Entry{Verb: task.Create, Task: r})
	}
	for name, since := range map[string]func(context.Context, task.Seq) ([]task.Event, error){"memory": j.Since, "file": j.since} {
		t.Run(name, func(t *testing.T) {
			after, seen := task.Seq(0), 0
			for seen < events {
				page, err := since(t.Context(), after)
				if err != nil || len(page) == 0 || len(page)*each > eventBytes+each {
					t.Fatalf("%d events of %d bytes each behind %d, %v", len(page), each, after, err)
				}
				for _, e := range page {
					if e.Seq != after+1 {
						t.Fatalf("%d behind %d", e.Seq, after)
					}
					after = e.Seq
				}
				seen += len(page)
			}
		})
	}
}

// What older builds wrote whole into every event is short in memory, and whole for who asks.
func TestWhole(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "session.db"), Options{})
	ctx := t.Context()
	r := record(1)
	r.Command = strings.Repeat("c", 100_000)
	add(t, j, lifecycle.Entry{Verb: task.Create, Task: r})
	r.Status = task.Running
	add(t, j, lifecycle.Entry{Verb: task.Begin, Task: r})
	states, err := j.Tasks(ctx)
	if err != nil || len(states) != 1 || len(states[0].Task.Command) > lifecycle.MaxRecordText || states[0].Task.CommandBytes != len(r.Command) {
		t.Fatalf("%d tasks, %v", len(states), err)
	}
	events, err := j.since(ctx, 0)
	if err != nil || len(events) != 2 || events[0].Task.Command != r.Command || events[1].Task.CommandBytes != len(r.Command) {
		t.Errorf("%d events, %v", len(events), err)
	}
	whole, err := j.Whole(ctx, states[0].Task)
	if err != nil || whole.Command != r.Command || whole.CommandBytes != 0 || whole.Status != task.Running {
		t.Errorf("%d bytes, %v", len(whole.Command), err)
	}
	other := task.Record{ID: "b99999999", Command: "x…", CommandBytes: 9}
	if got, err := j.Whole(ctx, other); err != nil || got.Command != other.Command {
		t.Errorf("of a task that the log does not have: %+v, %v", got, err)
	}
}

package journal

import (
	"errors"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// parts are the words of a text.
func parts(text string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		buf := make([]byte, 0, len(text)) // each part is where the one before was
		for w := range strings.FieldsSeq(text) {
			if !yield(append(buf, w...)) {
				return
			}
		}
	}
}

// A summary that is kept is read again, the newest alone. One that is not as it was
// written, or speaks of events that are not there, is as if there were none.
func TestSummary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session.db")
	j := open(t, path, Options{})
	ctx := t.Context()
	expect := func(j *Journal, upTo task.Seq, text string) {
		t.Helper()
		got, data, err := j.Summary(ctx)
		var words []string
		for _, part := range data {
			words = append(words, string(part))
		}
		if err != nil || got != upTo || strings.Join(words, " ") != text {
			t.Errorf("a summary up to %d, %q, %v; not up to %d, %q", got, words, err, upTo, text)
		}
	}
	expect(j, 0, "")
	for n := range 3 {
		add(t, j, lifecycle.Entry{Verb: task.Create, Task: record(n)})
	}
	for _, s := range []struct {
		upTo task.Seq
		text string
	}{{1, ""}, {2, "one\x00 two three"}, {3, "four five"}, {3, "six seven eight"}, {3, "nine"}} {
		if err := j.Summarize(ctx, s.upTo, parts(s.text)); err != nil {
			t.Fatal(err)
		}
		expect(j, s.upTo, s.text)
	}
	if events, err := j.since(ctx, 0); err != nil || len(events) != 3 || j.Last() != 3 {
		t.Errorf("%d events up to %d, %v", len(events), j.Last(), err)
	}
	if seq := add(t, j, lifecycle.Entry{Verb: task.Create, Task: record(3)}); seq != 4 {
		t.Errorf("the next event is %d", seq)
	}
	reader, err := Open(path, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	expect(reader, 3, "nine")
	if err := reader.Summarize(ctx, 4, parts("")); err == nil {
		t.Error("a reader has written")
	}
	if err := j.Summarize(ctx, 5, parts("of what is to come")); err != nil {
		t.Fatal(err)
	}
	expect(j, 0, "")
	for _, damage := range []string{
		"UPDATE summaries SET data = 'five' WHERE part = 2",
		"UPDATE summaries SET data = '' WHERE part = 0",
		"UPDATE summaries SET part = part + 10 WHERE part > 0; UPDATE summaries SET part = 13 - part WHERE part > 0",
		"DELETE FROM summaries WHERE part = 2",
		"DELETE FROM summaries WHERE part = 0",
		"DROP TABLE summaries",
	} {
		if err := j.Summarize(ctx, 4, parts("ten eleven")); err != nil {
			t.Fatal(err)
		}
		expect(j, 4, "ten eleven")
		if _, err := j.write.Exec(damage); err != nil {
			t.Fatal(err)
		}
		expect(j, 0, "")
	}
}

// A host that dies while it writes a summary leaves the one before.
func TestSummaryHalf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session.db")
	j := open(t, path, Options{})
	for n := range 2 {
		add(t, j, lifecycle.Entry{Verb: task.Create, Task: record(n)})
	}
	whole := func(upTo task.Seq, text string) {
		t.Helper()
		got, data, err := j.Summary(t.Context())
		if err != nil || got != upTo || string(slices.Concat(data...)) != text {
			t.Errorf("a summary up to %d, %q, %v", got, data, err)
		}
	}
	for _, upTo := range []task.Seq{1, 2} { // the second is of the same event
		if err := j.Summarize(t.Context(), 1, parts("a b c")); err != nil {
			t.Fatal(err)
		}
		dies := errors.New("it dies")
		func() {
			defer func() {
				if r := recover(); r != any(dies) {
					t.Errorf("%v", r)
				}
			}()
			_ = j.Summarize(t.Context(), upTo, func(yield func([]byte) bool) {
				yield([]byte("d"))
				panic(dies)
			})
		}()
		if upTo == 1 {
			whole(0, "")
		} else {
			whole(1, "abc")
		}
	}
	if err := j.Summarize(t.Context(), 2, parts("e")); err != nil {
		t.Fatal(err)
	}
	whole(2, "e")
	var rows int
	if err := j.write.QueryRow("SELECT count(*) FROM summaries").Scan(&rows); err != nil || rows != 2 {
		t.Errorf("%d rows are left, %v", rows, err)
	}
}

// What has changed since a number, and what is asked for by ID, is as in the list of
// all, with the numbers.
func TestChanged(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "session.db"), Options{})
	for n := range 2 * mostAsked {
		add(t, j, lifecycle.Entry{Verb: task.Create, Task: record(n)})
	}
	after := j.Last()
	for _, n := range []int{3, 7, 3, 2 * mostAsked} {
		r := record(n)
		r.Status = task.Running
		add(t, j, lifecycle.Entry{Verb: task.Begin, Task: r})
	}
	all, err := j.Tasks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	changed, err := j.Changed(t.Context(), after)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(changed, func(a, b State) int { return int(a.Born - b.Born) })
	want := []State{all[3], all[7], all[2*mostAsked]}
	same := func(a, b State) bool {
		return a.Born == b.Born && a.Seq == b.Seq && a.Task.ID == b.Task.ID && a.Task.Status == b.Task.Status
	}
	if !slices.EqualFunc(changed, want, same) {
		t.Errorf("changed: %d of them, %+v", len(changed), changed)
	}
	var ids []task.ID
	for _, s := range all {
		ids = append(ids, s.Task.ID)
	}
	some, err := j.Some(t.Context(), append(ids, "b_no_such"))
	slices.SortFunc(some, func(a, b State) int { return int(a.Born - b.Born) })
	if err != nil || !slices.EqualFunc(some, all, same) {
		t.Errorf("by ID: %d of %d, %v", len(some), len(all), err)
	}
}

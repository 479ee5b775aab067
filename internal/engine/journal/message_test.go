package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

func letter(to task.ID, text string) task.Message {
	return task.Message{To: to, From: "lead", Kind: task.TaskAssignment, Text: text, At: time.Unix(7, 0).UTC(), Hops: 3}
}

// Messages and events share one numbering, also over a restart, and readers of
// events see the events only.
func TestMessages(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "s.db")
	j, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	post := func(m task.Message, want task.Seq) {
		t.Helper()
		if seq, err := j.Post(ctx, m); err != nil || seq != want {
			t.Fatalf("message %d: number %d, %v", want, seq, err)
		}
	}
	post(letter("a00000001", "one"), 1)
	if j.Last() != 0 {
		t.Errorf("a message is counted as an event: last %d", j.Last())
	}
	if seq := add(t, j, lifecycle.Entry{Verb: task.Create, Task: record(1)}); seq != 2 {
		t.Errorf("event has number %d", seq)
	}
	urgent := letter("a00000001", "two\x00<b>\n")
	urgent.Priority = task.Next
	post(urgent, 3)
	post(letter("s00000000", "other"), 4)
	if seq := add(t, j, lifecycle.Entry{Verb: task.Begin, Task: record(1)}); seq != 5 {
		t.Errorf("event has number %d", seq)
	}
	post(letter("a00000001", "three"), 6)
	check := func() {
		t.Helper()
		for after, want := range map[task.Seq][]task.Seq{0: {2, 5}, 1: {2, 5}, 2: {5}, 3: {5}, 4: {5}, 5: nil, 6: nil} {
			events, err := j.Since(ctx, after)
			var got []task.Seq
			for _, e := range events {
				got = append(got, e.Seq)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("events after %d: %v, %v", after, got, err)
			}
		}
		if j.Last() != 5 {
			t.Errorf("last %d", j.Last())
		}
	}
	check()
	if err := j.Acknowledge(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, path, Options{})
	check()
	got, err := j.Unread(ctx, "a00000001")
	third := letter("a00000001", "three")
	urgent.Seq, third.Seq = 3, 6
	if err != nil || !slices.Equal(got, []task.Message{urgent, third}) {
		t.Errorf("unread: %+v, %v", got, err)
	}
	post(letter("a00000001", "four"), 7)
	if _, err := j.Post(ctx, task.Message{To: "a00000001", From: "x", Kind: "message"}); err == nil {
		t.Error("an empty message was sent")
	}
}

// Messages to a full mailbox are refused alone: what is written with them needs no second
// commit, and numbers have no gaps.
func TestMailFullAlone(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "s.db"), Options{})
	post := func(m task.Message) task.Seq {
		t.Helper()
		seq, err := j.Post(context.Background(), m)
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	for range task.MaxUnread {
		post(letter("a00000001", "one more"))
	}
	flood := func() (batch []*request) {
		for i := range 6 {
			m := letter("a00000001", "too much")
			if i == 3 {
				m.To = "a00000002"
			}
			r := &request{message: &m, turn: make(chan bool, 1)}
			if i == 1 {
				e := lifecycle.Entry{Verb: task.Create, Task: record(int(j.count))}
				data, err := encode(&e.Task)
				if err != nil {
					t.Fatal(err)
				}
				r = &request{entry: &e, record: data, turn: make(chan bool, 1)}
			}
			batch = append(batch, r)
		}
		return batch
	}
	if err := j.w.commit(j.count, flood()); err != nil {
		t.Errorf("the batch was not written by one commit: %v", err)
	}
	j.count += 2
	batch := flood()
	j.settle(batch, j.count)
	for i, r := range batch {
		want := task.Seq(0)
		switch i {
		case 1:
			want = task.MaxUnread + 3
		case 3:
			want = task.MaxUnread + 4
		}
		if r.seq != want || (want == 0) != errors.Is(r.err, task.ErrMailFull) || want != 0 && r.err != nil {
			t.Errorf("request %d: number %d, want %d; %v", i, r.seq, want, r.err)
		}
	}
	if seq := post(letter("a00000002", "next")); seq != task.MaxUnread+5 {
		t.Errorf("the next number is %d", seq)
	}
}

// A receiver who reads nothing stops the senders, and nobody else.
func TestMailFull(t *testing.T) {
	ctx := context.Background()
	j := open(t, filepath.Join(t.TempDir(), "s.db"), Options{})
	const senders, each = 5, task.MaxUnread/5 + 4
	var mu sync.Mutex
	refused := 0
	var group sync.WaitGroup
	for s := range senders {
		group.Go(func() {
			for i := range each {
				_, err := j.Post(ctx, letter("a00000001", fmt.Sprint(s, i)))
				if err != nil && !errors.Is(err, task.ErrMailFull) {
					t.Error(err)
				}
				if _, other := j.Append(ctx, lifecycle.Entry{Verb: task.Create, Task: record(100*s + i)}); other != nil {
					t.Errorf("an event beside it: %v", other)
				}
				mu.Lock()
				if err != nil {
					refused++
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	unread, err := j.Unread(ctx, "a00000001")
	if err != nil || len(unread) != task.MaxUnread || refused != senders*each-task.MaxUnread {
		t.Fatalf("%d unread, %d refused, %v", len(unread), refused, err)
	}
	if _, err := j.Post(ctx, letter("a00000002", "x")); err != nil {
		t.Errorf("to somebody else: %v", err)
	}
	if err := j.Acknowledge(ctx, unread[0].Seq); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Post(ctx, letter("a00000001", "again")); err != nil {
		t.Errorf("after one was read: %v", err)
	}
	if _, err := j.Post(ctx, letter("a00000001", "again")); !errors.Is(err, task.ErrMailFull) || !strings.Contains(err.Error(), "100") {
		t.Errorf("one more: %v", err)
	}
}

// Events of monitors leave room for the mail of others.
func TestMailOfMonitors(t *testing.T) {
	ctx := context.Background()
	j := open(t, filepath.Join(t.TempDir(), "s.db"), Options{})
	event := letter("a00000001", "a line")
	event.Kind = task.MonitorEvent
	for range task.MaxUnreadEvents {
		if _, err := j.Post(ctx, event); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Post(ctx, event); !errors.Is(err, task.ErrMailFull) {
		t.Errorf("one more event: %v", err)
	}
	if _, err := j.Post(ctx, letter("a00000001", "hello")); err != nil {
		t.Errorf("a message beside them: %v", err)
	}
}

// A session of the format before hops goes on with the mail that it has.
func TestFormatWithoutHops(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "s.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec("BEGIN;" + firstSchema + messageSchema + "INSERT INTO messages VALUES (1, 'a00000001', 'lead', 'message', 'old', '', 7, 0); PRAGMA user_version = 2; COMMIT")
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	j := open(t, path, Options{})
	if _, err := j.Post(ctx, letter("a00000001", "new")); err != nil {
		t.Fatal(err)
	}
	got, err := j.Unread(ctx, "a00000001")
	if err != nil || len(got) != 2 || got[0].Text != "old" || got[0].Hops != 0 || got[1].Hops != 3 {
		t.Errorf("read %+v, %v", got, err)
	}
}

// A session of the format before messages goes on, with its numbering.
func TestOldFormat(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "s.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := encode(new(record(1)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec("BEGIN;" + firstSchema + "PRAGMA user_version = 1; COMMIT")
	if err == nil {
		_, err = db.Exec("INSERT INTO events VALUES (1, 'b00000001', 'create', 0, ?)", data)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	j := open(t, path, Options{})
	if seq, err := j.Post(ctx, letter("s00000000", "x")); err != nil || seq != 2 {
		t.Errorf("message %d, %v", seq, err)
	}
	if states, err := j.Tasks(ctx); err != nil || len(states) != 1 || states[0].Task.ID != "b00000001" {
		t.Errorf("tasks %+v, %v", states, err)
	}
}

// Mail that nobody of us has written is read like any other and can be put
// away: it must not stop what comes after it.
func TestPlantedMail(t *testing.T) {
	ctx := context.Background()
	j := open(t, filepath.Join(t.TempDir(), "s.db"), Options{})
	if _, err := j.Post(ctx, letter("a00000001", "good")); err != nil {
		t.Fatal(err)
	}
	for seq, text := range map[int]any{5: strings.Repeat("x", 3*task.MaxMessageBytes), 6: []byte{0xff, 0, 1}, 7: 42} {
		if _, err := j.w.conn.ExecContext(ctx, insertMessage, seq, "a00000001", "", "<kind>", text, "soon", "never", "far"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := j.Unread(ctx, "a00000001")
	if err != nil || len(got) != 4 || len(got[1].Text) > task.MaxMessageBytes {
		t.Fatalf("read %d, %v", len(got), err)
	}
	if err := j.Acknowledge(ctx, 5, 6, 7); err != nil {
		t.Fatal(err)
	}
	if got, err := j.Unread(ctx, "a00000001"); err != nil || len(got) != 1 || got[0].Text != "good" {
		t.Errorf("left: %+v, %v", got, err)
	}
}

// A transaction that failed does not stay open under the next.
func TestRollback(t *testing.T) {
	ctx := context.Background()
	j := open(t, filepath.Join(t.TempDir(), "s.db"), Options{})
	if err := j.w.rollback(); err != nil {
		t.Errorf("nothing was open: %v", err)
	}
	if _, err := j.w.conn.ExecContext(ctx, "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if err := j.w.rollback(); err != nil {
		t.Errorf("a transaction was open: %v", err)
	}
	add(t, j, lifecycle.Entry{Verb: task.Create, Task: record(1)})
	if err := j.w.conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.w.rollback(); err == nil {
		t.Error("a rollback that failed is not told of")
	}
	j.w.conn, _ = j.write.Conn(ctx) // for Close
}

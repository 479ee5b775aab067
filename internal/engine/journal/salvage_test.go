package journal

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// pick is the size of a test: the second in the long form.
func pick(short, long int) int {
	if os.Getenv("REPAIR") == "all" {
		return long
	}
	return short
}

// held is all that a log has, a line for each row.
func held(t testing.TB, path string) map[string]string {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all := map[string]string{}
	for table, columns := range map[string]string{
		"events":   "seq || '', at || '@' || task_id || verb || hex(record)",
		"notices":  "seq || '', run_id || task_id || owner || priority || acked",
		"messages": "seq || '', owner || sender || kind || text || priority || at || acked || hops",
		"answers":  "run_id, text",
	} {
		rows, err := db.Query("SELECT " + columns + " FROM " + table)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var key, text string
			if err := rows.Scan(&key, &text); err != nil {
				t.Fatal(err)
			}
			if _, twice := all[table+" "+key]; twice {
				t.Errorf("%s %s is there twice", table, key)
			}
			all[table+" "+key] = text
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// random is text of which no 20 bytes are twice.
func random(r *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%016x", r.Uint64())
	}
	return b.String()[:n]
}

// written makes a log of many tasks, some of which go on over several pages, and
// returns its files as a host that is killed leaves them.
func written(t testing.TB, tasks int) (db, wal []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "session.db")
	j, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	r := rand.New(rand.NewPCG(3, 4))
	at := time.Unix(1_700_000_000, 0)
	later := func() time.Time { at = at.Add(time.Millisecond); return at }
	for i := range tasks {
		rec := task.Record{ID: task.NewID(task.LocalBash), Run: task.NewRunID(), Kind: task.LocalBash, Status: task.Pending, Owner: "s0000000x",
			Session: "s0000000x", Prompt: random(r, r.IntN(600))}
		if i%9 == 0 {
			rec.Prompt = random(r, 3000+r.IntN(20_000))
		}
		entries := []lifecycle.Entry{{Verb: task.Create, At: later(), Task: rec}}
		rec.Status = task.Running
		entries = append(entries, lifecycle.Entry{Verb: task.Begin, At: later(), Task: rec})
		if i%5 > 0 {
			rec.Status = task.Completed
			entries = append(entries, lifecycle.Entry{Verb: task.Complete, At: later(), Task: rec, Answer: random(r, r.IntN(300)),
				Notification: &lifecycle.Notification{Run: rec.Run, Task: rec.ID, Owner: rec.Owner}})
		}
		seqs, errs := j.AppendAll(t.Context(), entries)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		m := task.Message{To: "s0000000x", From: "a", Kind: task.PlainMessage, Text: random(r, 1+r.IntN(200)), At: at}
		sent, err := j.Post(t.Context(), m)
		if err == nil && i%3 > 0 {
			err = j.Acknowledge(t.Context(), sent, seqs[len(seqs)-1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if db, err = os.ReadFile(path); err == nil {
		wal, err = os.ReadFile(path + "-wal")
	}
	if err != nil {
		t.Fatal(err)
	}
	return db, wal
}

func remains(db, wal []byte) Remains {
	r := Remains{}
	if db != nil {
		r.DB, r.DBBytes = bytes.NewReader(db), int64(len(db))
	}
	if wal != nil {
		r.WAL, r.WALBytes = bytes.NewReader(wal), int64(len(wal))
	}
	return r
}

// salvaged makes a log of files, and returns what it holds without its mark.
func salvaged(t testing.TB, db, wal []byte) (map[string]string, Salvaged) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "new.db")
	s, err := Salvage(t.Context(), remains(db, wal), to, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := Sound(t.Context(), to); err != nil || n != s.Events+s.Messages+1 {
		t.Fatalf("the new log is not sound: %d rows, %v", n, err)
	}
	all := held(t, to)
	j, err := Open(to, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	delete(all, fmt.Sprint("messages ", j.count))
	return all, s
}

// files writes a log and returns the path.
func files(t testing.TB, db, wal []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "session.db")
	err := os.WriteFile(path, db, 0o600)
	if err == nil && wal != nil {
		err = os.WriteFile(path+"-wal", wal, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// closed is a log whose WAL was taken in, and what it holds.
func closed(t testing.TB, tasks int) (whole []byte, want map[string]string) {
	t.Helper()
	path := files(t, nil, nil)
	db, wal := written(t, tasks)
	if err := errors.Join(os.WriteFile(path, db, 0o600), os.WriteFile(path+"-wal", wal, 0o600)); err != nil {
		t.Fatal(err)
	}
	want = held(t, path)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole, want
}

// Of a log in which nothing is wrong nothing changes, whether it was closed or its
// host was killed.
func TestSalvageWhole(t *testing.T) {
	db, wal := written(t, 60)
	path := files(t, db, wal)
	want := held(t, path) // which also takes the WAL in
	closed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string][2][]byte{"killed": {db, wal}, "closed": {closed, nil}, "early": {slices.Clone(db), slices.Clone(wal)}} {
		t.Run(name, func(t *testing.T) {
			got, s := salvaged(t, c[0], c[1])
			for k, v := range want {
				if got[k] != v {
					t.Errorf("%s was %.300s\nand is %.300s", k, v, got[k])
				}
			}
			if len(got) != len(want) || len(s.Missing) > 0 || len(s.MissingTasks) > 0 || len(s.Unnotified) > 0 {
				t.Errorf("%d rows of %d: %+v", len(got), len(want), s)
			}
		})
	}
}

// pagesOf are the pages of a file on which an event stands.
func pagesOf(db []byte, record string) (on []int) {
	for p := 0; p < len(db); p += pageBytes {
		page := db[p:min(p+pageBytes, len(db))]
		for i := 0; i < len(record); i += 200 {
			if bytes.Contains(page, []byte(record[i:min(i+60, len(record))])) {
				on = append(on, p/pageBytes)
				break
			}
		}
	}
	return on
}

// After any damage all events are there that it has left, as they were and under
// their numbers; of one byte no more than one is lost.
func TestSalvageDamaged(t *testing.T) {
	killedDB, killedWAL := written(t, 25)
	path := files(t, killedDB, killedWAL)
	want := held(t, path)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	places := map[string][]int{}
	for k, v := range want {
		if strings.HasPrefix(k, "events ") {
			_, record, _ := strings.Cut(v, "7B22") // the brace and quote that begin it, in hex
			places[k] = pagesOf(whole, unhex(t, "7B22"+record))
			if len(places[k]) == 0 {
				t.Fatalf("%s is nowhere", k)
			}
		}
	}
	compare := func(t *testing.T, db, wal []byte, most int, harmed func(page int) bool) {
		t.Helper()
		got, s := salvaged(t, db, wal)
		lost := 0
		for k, v := range want {
			now, there := got[k]
			if now == v {
				continue
			}
			if strings.HasPrefix(k, "events ") {
				_, wasRecord, _ := strings.Cut(v, "@")
				_, isRecord, _ := strings.Cut(now, "@")
				if wasRecord == isRecord && slices.ContainsFunc(places[k], harmed) {
					continue // the time of an event has no sum
				}
				lost++
				if there || !slices.ContainsFunc(places[k], harmed) {
					t.Errorf("%s was not harmed, and is %.200q", k, now)
				}
			}
		}
		for k := range got {
			if _, was := want[k]; !was && strings.HasPrefix(k, "events ") {
				t.Errorf("%s was never there", k)
			}
		}
		if lost > most || lost > 0 && most <= 40 && len(s.Missing) == 0 { // of what was cut off nobody knows
			t.Errorf("%d events are lost, %d at most: %+v", lost, most, s)
		}
	}
	r := rand.New(rand.NewPCG(5, 6))
	for i := range pick(18, 400) {
		n := r.IntN(len(whole))
		if i%3 == 0 { // where a page says what it is
			n = n/pageBytes*pageBytes + r.IntN(40)
		}
		db := slices.Clone(whole)
		db[n] ^= byte(1 + r.IntN(255))
		kind := db[n/pageBytes*pageBytes]
		t.Run(fmt.Sprintf("flip-%d-%02x", n, db[n]), func(t *testing.T) {
			most := 1
			if n%pageBytes == 0 && slices.Contains([]byte{overflowed, tableNode, indexLeaf}, kind) {
				most = 40 // the page says that it is another
			}
			compare(t, db, nil, most, func(page int) bool { return page == n/pageBytes })
		})
	}
	for page := range len(whole) / pageBytes {
		if page%pick(12, 1) > 0 {
			continue
		}
		t.Run(fmt.Sprintf("zero-%d", page), func(t *testing.T) {
			db := slices.Clone(whole)
			clear(db[page*pageBytes:][:pageBytes])
			compare(t, db, nil, 40, func(p int) bool { return p == page })
		})
	}
	for range pick(4, 100) {
		n := r.IntN(len(whole))
		t.Run(fmt.Sprintf("cut-%d", n), func(t *testing.T) {
			compare(t, whole[:n], nil, len(want), func(p int) bool { return (p+1)*pageBytes > n })
		})
	}
	for range pick(5, 200) { // a flip in what was not yet taken in loses no more than it hits
		n := r.IntN(len(killedWAL))
		t.Run(fmt.Sprintf("wal-%d", n), func(t *testing.T) {
			wal := slices.Clone(killedWAL)
			wal[n] ^= byte(1 + r.IntN(255))
			compare(t, killedDB, wal, 40, func(int) bool { return true })
		})
	}
}

func unhex(t *testing.T, s string) string {
	t.Helper()
	var b []byte
	if _, err := fmt.Sscanf(s, "%x", &b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A new log goes on above all numbers that were seen: of rows that are lost, and of
// whoever has seen more.
func TestSalvageNumbers(t *testing.T) {
	whole, want := closed(t, 30)
	last := task.Seq(0)
	for k := range want {
		if n, _ := strconv.Atoi(k[strings.Index(k, " ")+1:]); !strings.HasPrefix(k, "answers") {
			last = max(last, task.Seq(n))
		}
	}
	i := bytes.LastIndex(whole, []byte(sumField)) // every record is spoilt
	for ; i >= 0; i = bytes.LastIndex(whole[:i], []byte(sumField)) {
		whole[i+len(sumField)] ^= 1
	}
	for above, want := range map[task.Seq]task.Seq{0: last, last + 500: last + 500} {
		to := filepath.Join(t.TempDir(), "new.db")
		s, err := Salvage(t.Context(), remains(whole, nil), to, above)
		if err != nil || s.Events > 0 || s.Notifications > 0 || len(s.MissingTasks) != 30 {
			t.Fatalf("%+v, %v", s, err)
		}
		j, err := Open(to, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if j.count != want+1 {
			t.Errorf("it goes on behind %d, want %d", j.count, want+1)
		}
		if unread, err := j.Unread(t.Context(), "drover"); err != nil || len(unread) > 0 {
			t.Errorf("somebody has to read the mark: %v, %v", unread, err)
		}
		_ = j.Close()
	}
}

// An event whose notification is lost counts as told, and that is said; what was
// acknowledged is never owed again.
func TestSalvageNotifications(t *testing.T) {
	whole, want := closed(t, 60)
	m := remains(whole, nil).look()
	buf, gone := make([]byte, pageBytes), slices.Clone(whole)
	for n := uint32(2); n <= m.pages; n++ {
		if m.page(n, buf); isIndex(buf) {
			continue
		}
		for _, r := range cells(buf, m.pages, m.page) {
			if r.shape == "ntttti" { // of notifications
				clear(gone[(n-1)*pageBytes:][:pageBytes])
			}
		}
	}
	got, s := salvaged(t, gone, nil)
	told := 0
	for k, v := range got {
		if strings.HasPrefix(k, "notices ") {
			told++
			if v != want[k] && !strings.HasSuffix(v, "1") {
				t.Errorf("%s is owed again: %s, was %s", k, v, want[k])
			}
		}
	}
	if len(s.Unnotified) == 0 || told != s.Notifications {
		t.Errorf("nothing was lost: %+v", s)
	}
}

// A log of a later format is not taken for a damaged one.
func TestSalvageNewer(t *testing.T) {
	db, _ := closed(t, 3)
	if err := remains(db, nil).Newer(); err != nil {
		t.Error(err)
	}
	db[63] = schemaVersion + 1
	if err := remains(db, nil).Newer(); !errors.Is(err, ErrNewer) {
		t.Errorf("%v", err)
	}
	if err := remains(nil, nil).Newer(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrClosed)
	if _, err := Salvage(ctx, remains(db, nil), filepath.Join(t.TempDir(), "new.db"), 0); !errors.Is(err, ErrClosed) {
		t.Errorf("it does not end with its context: %v", err)
	}
}

// Whatever stands on a page, reading it ends, and well.
func FuzzPage(f *testing.F) {
	db, wal := written(f, 40)
	m := remains(db, wal).look()
	for n := uint32(1); n <= m.pages; n++ {
		page := make([]byte, pageBytes)
		m.page(n, page)
		f.Add(page)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		page := make([]byte, pageBytes)
		copy(page, data)
		for _, r := range cells(page, 64, func(_ uint32, into []byte) bool { copy(into, page); return true }) {
			if len(r.cols) != len(r.shape) {
				t.Fatalf("%d columns of %q", len(r.cols), r.shape)
			}
		}
		remains(page, append(page, page...)).look()
	})
}

// A log that is gone is not begun anew while what was written last is still there.
func TestWidowed(t *testing.T) {
	_, wal := written(t, 3)
	path := files(t, nil, wal)
	for _, name := range []string{"empty", "gone"} {
		if j, err := Open(path, Options{}); !Damaged(err) {
			_ = j.Close()
			t.Errorf("it is opened: %v", err)
		}
		if left, err := os.ReadFile(path + "-wal"); err != nil || !bytes.Equal(left, wal) {
			t.Errorf("the WAL is not as it was: %v", err)
		}
		if j, err := Open(path, Options{ReadOnly: true}); name == "empty" && !Damaged(err) {
			_ = j.Close()
			t.Errorf("it is read: %v", err)
		}
		_ = os.Remove(path)
	}
	if got, s := salvaged(t, nil, wal); s.Tasks != 3 || len(got) == 0 {
		t.Errorf("%+v", s)
	}
}

// With its WAL taken in, a log is what it was.
func TestRemainsWriteTo(t *testing.T) {
	db, wal := written(t, 30)
	want := held(t, files(t, db, wal))
	var merged bytes.Buffer
	r := remains(db, wal)
	if n, err := r.WriteTo(&merged); err != nil || n != int64(merged.Len()) || !r.Late() {
		t.Fatalf("%d, %v", n, err)
	}
	for name, left := range map[string][]byte{"alone": nil, "beside": wal} {
		if got := held(t, files(t, merged.Bytes(), left)); !maps.Equal(got, want) {
			t.Errorf("%s: %d rows of %d", name, len(got), len(want))
		}
	}
}

// numbersAt are where the numbers of events stand in a file.
func numbersAt(db []byte) (at []int) {
	for p := pageBytes; p+pageBytes <= len(db); p += pageBytes {
		page := db[p : p+pageBytes]
		for i := 0; page[0] == 0x0d && i < int(page[3])<<8|int(page[4]); i++ {
			cell := int(page[8+2*i])<<8 | int(page[9+2*i])
			if r := readRow(page[cell:], false, pageBytes-35, 1<<20, func(uint32, []byte) bool { return true }); r.shape == "nttib" {
				_, n := varint(page[cell:])
				at = append(at, p+cell+n)
			}
		}
	}
	return at
}

// An event under a wrong number, that of another or one that nothing has, is put back
// under its own: an old state must not become the newest.
func TestSalvageMisnumbered(t *testing.T) {
	whole, want := closed(t, 25)
	at := numbersAt(whole)
	if len(at) < 40 {
		t.Fatalf("%d events were found", len(at))
	}
	for i := 0; i < len(at); i += pick(17, 1) {
		for _, bit := range []byte{0x01, 0x02, 0x40} {
			db := slices.Clone(whole)
			n := at[i]
			if db[n] >= 0x80 { // of a number of two bytes the higher
				n += int(bit & 1)
			}
			db[n] ^= bit
			got, s := salvaged(t, db, nil)
			for k, v := range want {
				if strings.HasPrefix(k, "events ") && got[k] != v {
					t.Errorf("byte %d, bit %#x: %s was\n%.80s\nand is\n%.80s\n%+v", n, bit, k, v, got[k], s)
				}
			}
		}
	}
}

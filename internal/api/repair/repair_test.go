package repair

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long asks for every byte of the header.
const long = "REPAIR"

// tasks is how many a session of these tests has.
const tasks = 25

// log is one that was written by a host that was killed.
type log struct {
	db, wal []byte
	records map[task.ID]task.Record // the newest
	last    task.Seq
}

func newPlace(t testing.TB) home.Session {
	t.Helper()
	project := filepath.Join(t.TempDir(), "project")
	place := home.At(filepath.Join(t.TempDir(), "state")).Project(project).Session(task.NewSessionID())
	if err := place.Ensure(); err != nil {
		t.Fatal(err)
	}
	return place
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// written makes the log of a session, and the output of each task.
func written(t testing.TB, place home.Session) log {
	t.Helper()
	path := filepath.Join(t.TempDir(), "session.db")
	j, err := journal.Open(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	l := log{records: map[task.ID]task.Record{}}
	for i := range tasks {
		at := time.Unix(int64(1_700_000_000+i), 0).UTC()
		r := task.Record{ID: task.NewID(task.LocalBash), Run: task.NewRunID(), Kind: task.LocalBash, Status: task.Pending, Session: place.ID(),
			Command: strings.Repeat("x", i*20), CreateTime: at}
		r.OutputFile = place.Output(r.ID)
		add := func(verb task.Verb, to task.Status, n *lifecycle.Notification) {
			r.Status = to
			if l.last, err = j.Append(t.Context(), lifecycle.Entry{Verb: verb, At: at, Task: r, Notification: n}); err != nil {
				t.Fatal(err)
			}
		}
		add(task.Create, task.Pending, nil)
		add(task.Begin, task.Running, nil)
		add(task.Complete, task.Completed, &lifecycle.Notification{Run: r.Run, Task: r.ID})
		l.records[r.ID] = r
		write(t, r.OutputFile, []byte("out of "+string(r.ID)))
	}
	l.db, l.wal = read(t, path), read(t, path+"-wal")
	return l
}

// whole is the log as one file.
func (l log) whole(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	r := journal.Remains{DB: bytes.NewReader(l.db), WAL: bytes.NewReader(l.wal), DBBytes: int64(len(l.db)), WALBytes: int64(len(l.wal))}
	if _, err := r.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// clean removes the log of a session, and what repairs have left.
func clean(t testing.TB, place home.Session) {
	t.Helper()
	names, err := filepath.Glob(place.DB() + "*")
	for _, n := range names {
		err = errors.Join(err, os.RemoveAll(n))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// shown are the newest records that a log shows, each once.
func shown(t testing.TB, place home.Session) map[task.ID]task.Record {
	t.Helper()
	j, err := journal.Open(place.DB(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	states, err := j.Tasks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[task.ID]task.Record{}
	for _, s := range states {
		if _, twice := out[s.Task.ID]; twice {
			t.Errorf("%s is there twice", s.Task.ID)
		}
		out[s.Task.ID] = s.Task
	}
	return out
}

// next is the number that the next event gets.
func next(t testing.TB, place home.Session) task.Seq {
	t.Helper()
	j, err := journal.Open(place.DB(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	seq, err := j.Append(t.Context(), lifecycle.Entry{Verb: task.Create, At: time.Now(), Task: task.Record{ID: "b00000new", Run: "run_new"}})
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// contents are the files below a folder.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			out[path] = string(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A log in which nothing is wrong is left as it is, to the byte.
func TestSound(t *testing.T) {
	place := newPlace(t)
	l := written(t, place)
	for name, c := range map[string][2][]byte{"killed": {l.db, l.wal}, "closed": {l.whole(t), nil}} {
		t.Run(name, func(t *testing.T) {
			clean(t, place)
			write(t, place.DB(), c[0])
			if c[1] != nil {
				write(t, place.DB()+"-wal", c[1])
			}
			unlock, err := place.Lock() // which makes a file
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Session(t.Context(), place, false); !errors.Is(err, home.ErrLocked) {
				t.Errorf("while a host has it: %v", err)
			}
			unlock()
			before := contents(t, place.Dir())
			r, err := Session(t.Context(), place, false)
			if err != nil || !r.Sound || r.Kept.Tasks != tasks || len(r.Aside) > 0 {
				t.Errorf("%+v, %v", r, err)
			}
			if after := contents(t, place.Dir()); !maps.Equal(before, after) {
				t.Errorf("files were changed: %d before, %d after", len(before), len(after))
			}
		})
	}
	if r, err := Session(t.Context(), newPlace(t), false); err != nil || !r.Sound {
		t.Errorf("a session that never had a task: %+v, %v", r, err)
	}
}

type damage struct {
	name    string
	db, wal []byte
	gone    bool // there is no session.db
	intact  bool // nothing is lost of the records
	short   bool // nothing may be left of the newest
}

func damages(t *testing.T, l log) (all []damage) {
	whole := l.whole(t)
	flip := func(n int) []byte {
		db := slices.Clone(whole)
		db[n] ^= 0x5a
		return db
	}
	step := 977
	if os.Getenv(long) == "all" {
		step = 1
	}
	for n := 0; n < 4096; n += step {
		all = append(all, damage{name: fmt.Sprintf("first-%d", n), db: flip(n), intact: true})
		if n < 100 && step > 1 {
			n -= step - 17
		}
	}
	r := rand.New(rand.NewPCG(7, 8))
	for range 3 {
		n := 4096 + r.IntN(len(whole)-4096)
		all = append(all, damage{name: fmt.Sprintf("flip-%d", n), db: flip(n)})
		db := slices.Clone(whole)
		page := n / 4096 * 4096
		clear(db[page : page+4096])
		all = append(all, damage{name: fmt.Sprintf("zero-%d", page/4096), db: db}, damage{name: fmt.Sprintf("cut-%d", n), db: whole[:n], short: true})
	}
	torn := slices.Clone(l.wal)
	torn[len(torn)/2] ^= 1
	return append(all, damage{name: "text", db: []byte("no database"), short: true}, damage{name: "empty", db: []byte{}, short: true},
		damage{name: "gone", gone: true, short: true}, damage{name: "wal-torn", db: l.db, wal: torn}, damage{name: "wal-gone", db: l.db, short: true},
		damage{name: "wal-cut", db: l.db, wal: l.wal[:len(l.wal)/2], short: true},
		damage{name: "wal-alone", gone: true, wal: l.wal}, damage{name: "wal-text", db: whole, wal: bytes.Repeat([]byte("wal?"), 3000), intact: true})
}

// After a repair, of whatever damage, the log opens and shows every task once: as it
// was, or as one of its earlier events, or made of its output. It goes on above the
// numbers that it had, and the damaged files are where the report says.
func TestDamaged(t *testing.T) {
	place := newPlace(t)
	l := written(t, place)
	for _, c := range damages(t, l) {
		t.Run(c.name, func(t *testing.T) {
			clean(t, place)
			if !c.gone {
				write(t, place.DB(), c.db)
			}
			if c.wal != nil {
				write(t, place.DB()+"-wal", c.wal)
			}
			r, err := Session(t.Context(), place, false)
			if errors.Is(err, journal.ErrNewer) { // the number of the format was hit
				if left := read(t, place.DB()); !bytes.Equal(left, c.db) {
					t.Error("what was refused was changed")
				}
				r, err = Session(t.Context(), place, true)
			}
			if err != nil {
				t.Fatal(err)
			}
			now := shown(t, place)
			rebuilt := map[task.ID]bool{}
			for _, b := range r.Rebuilt {
				rebuilt[b.ID] = true
			}
			for id, was := range l.records {
				is, there := now[id]
				same := there && is.Run == was.Run && is.Status == was.Status && is.Command == was.Command
				earlier := there && is.Run == was.Run && !is.Status.Terminal()
				made := rebuilt[id] && is.Status == task.Killed && is.Cause.Reason == task.ReasonLost && is.OutputFile == was.OutputFile
				if !same && (c.intact || !earlier && !made) {
					t.Errorf("task %s is %+v", id, is)
				}
			}
			if len(now) != len(l.records) {
				t.Errorf("%d tasks of %d", len(now), len(l.records))
			}
			a, err := archive.Open(t.Context(), place, control.Info{Session: place.ID()})
			if err != nil {
				t.Fatalf("it cannot be listed: %v", err)
			}
			_ = a.Close() // it was only read from
			if seq := next(t, place); seq <= l.last && !c.short {
				t.Errorf("it goes on with %d behind %d", seq, l.last)
			}
			for i, path := range r.Aside {
				want := [][]byte{c.db, c.wal}[min(i, 1)]
				if c.gone {
					want = c.wal
				}
				if got := read(t, path); !strings.HasSuffix(path, "-shm") && !bytes.Equal(got, want) {
					t.Errorf("%s is not the damaged file", path)
				}
			}
			if !r.Sound && len(r.Aside) == 0 && !c.gone {
				t.Error("the damaged log is nowhere")
			}
			again, err := Session(t.Context(), place, false)
			if err != nil || !again.Sound {
				t.Errorf("what was repaired is not sound: %+v, %v", again, err)
			}
		})
	}
}

// Killed between any two steps, the session has the damaged log or the new one, and
// a further repair goes through.
func TestSteps(t *testing.T) {
	place := newPlace(t)
	l := written(t, place)
	for name, c := range map[string][2][]byte{"one": {damages(t, l)[0].db, nil}, "two": {l.db, l.wal}, "torn": {l.db, l.wal[:len(l.wal)*2/3]}} {
		t.Run(name, func(t *testing.T) {
			for k := 0; ; k++ {
				clean(t, place)
				write(t, place.DB(), c[0])
				if c[1] != nil {
					write(t, place.DB()+"-wal", c[1])
				}
				unlock, r := begun(t, place)
				old := image(t, r)
				if _, err := journal.Salvage(t.Context(), r.remains(), r.path(fresh), 0); err != nil {
					t.Fatal(err)
				}
				steps, _, err := r.steps()
				if err != nil {
					t.Fatal(err)
				}
				for _, step := range steps[:min(k, len(steps))] {
					if err := step(); err != nil {
						t.Fatal(err)
					}
				}
				unlock()
				unlock, r = begun(t, place)
				if now := image(t, r); !bytes.Equal(now, old) {
					if k < len(steps) {
						t.Errorf("after %d steps the log is another", k)
					}
					if _, err := os.Lstat(place.DB() + "-wal"); err == nil {
						t.Error("the old WAL is beside the new log")
					}
				}
				unlock()
				if k == len(steps) {
					break
				}
				if _, err := Session(t.Context(), place, false); err != nil {
					t.Errorf("after %d steps: %v", k, err)
				}
			}
			if n := len(shown(t, place)); n == 0 {
				t.Error("the new log has nothing")
			}
		})
	}
}

// begun is a repair before its first step.
func begun(t *testing.T, place home.Session) (end func(), r *repair) {
	t.Helper()
	folder, err := place.Below().Folder(place.Dir())
	if err != nil {
		t.Fatal(err)
	}
	r = &repair{place: place, folder: folder}
	var also error
	r.db, err = r.open(logName)
	r.wal, also = r.open(logName + "-wal")
	if err = errors.Join(err, also); err != nil {
		t.Fatal(err)
	}
	return func() { r.db.Close(); r.wal.Close(); folder.Close() }, r
}

// image is the log as SQLite would read it.
func image(t *testing.T, r *repair) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := r.remains().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Of a log that is gone, what tasks have left tells which there were. A kept command
// that has left word of its end has that end; and no number is used that a
// transcript knows.
func TestRebuilt(t *testing.T) {
	place := newPlace(t)
	bash, kept, agent, away := task.NewID(task.LocalBash), task.NewID(task.LocalBash), task.NewID(task.LocalAgent), task.NewID(task.RemoteAgent)
	write(t, place.Output(bash), []byte("hello"))
	write(t, place.Output(kept), []byte("kept"))
	write(t, place.Output(place.ID()), nil)
	write(t, filepath.Join(place.Tasks(), "notes.output"), []byte("not of a task"))
	if err := process.WriteDeparture(place.ExitFile(kept), process.Departure{PID: 1 << 21, Start: 5, ExitCode: 3, At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	write(t, place.AgentTranscript(agent), []byte(`{"entry_type":"system","agent_name":"scout","timestamp":1700000000000,"format":1}`+"\n"+
		`{"entry_type":"user","mail":[7,812],"message":{"text":"\"mail\":[99999]"}}`+"\n"+strings.Repeat("x", 9<<20)+"\n"+
		`{"entry_type":"user","letters":[900],"message":{}}`+"\n"))
	if err := remote.WriteSidecar(place.RemoteFile(away), remote.Sidecar{Task: string(away), Session: "cse_1", Type: "remote-agent"}); err != nil {
		t.Fatal(err)
	}
	r, err := Session(t.Context(), place, false)
	if err != nil || r.Sound || len(r.Rebuilt) != 5 {
		t.Fatalf("%+v, %v", r, err)
	}
	a, err := archive.Open(t.Context(), place, control.Info{Session: place.ID()})
	if err != nil {
		t.Fatal(err)
	}
	get := func(ref string) task.Record {
		rec, err := a.Get(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	if rec := get(string(bash)); rec.Status != task.Killed || rec.Cause.Reason != task.ReasonLost || rec.OutputBytes != 5 || rec.EndTime == nil || !rec.Notified {
		t.Errorf("the command: %+v", rec)
	}
	if c, err := a.Output(t.Context(), control.OutputRequest{Ref: string(bash)}); err != nil || string(c.Data) != "hello" || !c.Ended {
		t.Errorf("its output: %+v, %v", c, err)
	}
	if rec := get(string(kept)); rec.Status != task.Failed || rec.ExitCode == nil || *rec.ExitCode != 3 {
		t.Errorf("the kept command: %+v", rec)
	}
	if rec := get(string(agent)); rec.AgentType != "scout" || rec.Mode != "plan" || rec.CreateTime.Unix() != 1_700_000_000 {
		t.Errorf("the agent: %+v", rec)
	}
	if rec := get("cse_1"); rec.ID != away || rec.Kind != task.RemoteAgent || !strings.Contains(rec.Cause.Detail, "cse_1") {
		t.Errorf("the work elsewhere: %+v", rec)
	}
	if rec := get(string(place.ID())); rec.AgentType != task.MainSession || rec.Kind != task.LocalAgent {
		t.Errorf("the main agent: %+v", rec)
	}
	if n, err := a.Unacknowledged(t.Context()); err != nil || n > 0 {
		t.Errorf("%d notifications are owed, %v", n, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if seq := next(t, place); seq <= 900 || seq > 99_000 {
		t.Errorf("it goes on with %d", seq)
	}
}

// What is no file of a log is not repaired, and not touched.
func TestForeign(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":   func(path string) error { return os.Symlink("/etc/passwd", path) },
	} {
		t.Run(name, func(t *testing.T) {
			place := newPlace(t)
			write(t, place.Output("b12345678"), nil)
			if err := plant(place.DB()); err != nil {
				t.Fatal(err)
			}
			if r, err := Session(t.Context(), place, true); err == nil {
				t.Errorf("%+v", r)
			}
			if names, _ := filepath.Glob(place.Dir() + "/*session.db*"); len(names) != 1 {
				t.Errorf("something was left: %v", names)
			}
		})
	}
}

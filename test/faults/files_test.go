//go:build linux

package faults

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	_ "modernc.org/sqlite" // the database driver
)

// ended makes a session with ended tasks and no host, and returns its log.
func (p *place) ended() string {
	p.Helper()
	for i := range 8 { // more than a page of the log
		p.Good("run", "-d", "--name", fmt.Sprintf("t%d", i), "--", "sh", "-c", "exit 3 #"+strings.Repeat("x", 900))
	}
	for i := range 8 {
		p.Run("wait", fmt.Sprintf("t%d", i))
	}
	host := p.one("host")
	_ = syscall.Kill(host, syscall.SIGTERM)
	p.Until("the host has gone", func() bool { return len(p.Procs("")) == 0 })
	return p.db()
}

// A damaged log is never taken for an empty one: what is shown is true, or
// something is said; nothing crashes; the rest of Drover works: S12, S17.
func TestDamagedLog(t *testing.T) {
	p := newPlace(t)
	db := p.ended()
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	for _, args := range looks() {
		before[strings.Join(args, " ")] = p.Run(args...).Stdout()
	}
	for _, c := range damages(whole) {
		t.Run(c.name, func(t *testing.T) {
			p := *p
			p.TB = t
			for _, name := range []string{db + "-wal", db + "-shm"} {
				_ = os.Remove(name)
			}
			if err := os.RemoveAll(db); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(db, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := c.plant(db); err != nil {
				t.Fatal(err)
			}
			for _, args := range looks() {
				s := p.Run(args...)
				p.told(s)
				if s.Code() == 0 && s.Stderr() == "" && s.Stdout() != before[strings.Join(args, " ")] {
					t.Errorf("it is silent: %s", s)
				}
			}
		})
	}
}

// A damaged log is kept as it is and named, and does not keep the project from
// running commands: S12.
func TestDamagedHost(t *testing.T) {
	p := newPlace(t)
	db := p.ended()
	if err := os.WriteFile(db, []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Good("run", "-d", "--name", "after", "--", "sh", "-c", "exit 4")
	if s := p.Run("wait", "after"); s.Code() != 4 {
		t.Errorf("it does not go on: %s", s)
	}
	s := p.Run("ps", "-a")
	if !strings.Contains(s.Stdout(), "after") || !strings.Contains(s.Stderr(), "not a database") || !strings.Contains(s.Stderr(), "drover sessions repair "+filepath.Base(filepath.Dir(db))) {
		t.Errorf("the damage is not told: %s", s)
	}
	if data, err := os.ReadFile(db); err != nil || string(data) != "no database" {
		t.Errorf("the damaged log was changed: %q, %v", data, err)
	}
}

func looks() [][]string { return [][]string{{"ps", "-a", "--json"}, {"inspect", "t3"}, {"logs", "t3"}} }

type damage struct {
	name  string
	plant func(db string) error
}

func damages(whole []byte) []damage {
	flip := func(n int) func(string) error {
		return func(db string) error {
			data := slices.Clone(whole)
			data[n] ^= 0x5a
			return os.WriteFile(db, data, 0o600)
		}
	}
	all := []damage{
		{"zero-bytes", func(db string) error { return os.Truncate(db, 0) }},
		{"half", func(db string) error { return os.Truncate(db, int64(len(whole)/2)) }},
		{"header-only", func(db string) error { return os.Truncate(db, 100) }},
		{"absent", os.Remove},
		{"text", func(db string) error { return os.WriteFile(db, []byte("no database"), 0o600) }},
		{"wal", func(db string) error { return os.WriteFile(db+"-wal", bytes.Repeat([]byte("wal?"), 3000), 0o600) }},
		{"shm", func(db string) error { return os.WriteFile(db+"-shm", bytes.Repeat([]byte("shm?"), 9000), 0o600) }},
		{"directory", func(db string) error {
			if err := os.Remove(db); err != nil {
				return err
			}
			return os.Mkdir(db, 0o700)
		}},
		{"newer", func(db string) error {
			data := slices.Clone(whole)
			data[63] = 99 // the format is at 60 to 63 of the header
			return os.WriteFile(db, data, 0o600)
		}},
	}
	for i := range pick(8, 100) { // the header, whose every byte counts
		n := i * 100 / pick(8, 100)
		all = append(all, damage{fmt.Sprintf("header-%d", n), flip(n)})
	}
	for at, name := 0, []byte(`"name":"t3"`); ; at++ { // in each event of a task, of which the newest is shown
		i := bytes.Index(whole[at:], name)
		if i < 0 {
			break
		}
		at += i
		all = append(all, damage{fmt.Sprintf("name-%d", at), flip(at + len(name) - 2)})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range pick(6, 300) {
		n := r.IntN(len(whole))
		for !text(whole, n) { // what holds the pages together is SQLite's
			n = r.IntN(len(whole))
		}
		all = append(all, damage{fmt.Sprintf("byte-%d", n), flip(n)})
	}
	return all
}

// A log that has lost all it had is not begun anew in silence, and what can be done
// about it helps: S12.
func TestLostLog(t *testing.T) {
	for name, plant := range map[string]func(db string) error{
		"zero-bytes": func(db string) error { return os.Truncate(db, 0) },
		"absent":     os.Remove,
		"half":       func(db string) error { return os.Truncate(db, 8192) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			db := p.ended()
			if err := plant(db); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"first", "second"} { // the first must leave nothing that misleads the second
				p.Good("run", "-d", "--name", name, "--", "true") // in another session
				p.Good("wait", name)
				if s := p.Run("ps", "-a", "--json"); !strings.Contains(s.Stderr(), "put session.db back, or run `drover sessions repair "+filepath.Base(filepath.Dir(db))+"`") {
					t.Errorf("it is silent: %s", s)
				}
			}
			p.Good("run", "--name", "front", "--", "true") // it has a session of its own
			if err := os.Rename(filepath.Dir(db), filepath.Join(p.Work, "aside")); err != nil {
				t.Fatal(err)
			}
			if s := p.Run("ps", "-a", "--json"); s.Code() != 0 || s.Stderr() != "" || !strings.Contains(s.Stdout(), "second") {
				t.Errorf("it is told of what is not there: %s", s)
			}
		})
	}
}

// text reports whether a byte stands in a record.
func text(b []byte, n int) bool {
	return n >= 40 && n+40 < len(b) && !bytes.ContainsFunc(b[n-40:n+40], func(r rune) bool { return r < ' ' || r > '~' })
}

// Somebody else holds the log: a start waits for a while and is then refused
// clearly; when he has gone all is well: S13.
func TestLogBusy(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.Good("run", "-d", "--name", "old", "--", "sh", "-c", "read x <go")
	p.Fifo("go")
	p.Until("it runs", func() bool { return p.task("old").Status != "pending" })
	db, err := sql.Open("sqlite", p.db())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	p.refused(p.Run("run", "-d", "--name", "new", "--", "sh", "-c", "echo >>ran"), "busy", "locked")
	if _, err := db.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	p.Good("run", "-d", "--name", "later", "--", "true")
	p.Good("wait", "later")
	if p.read("ran") != "" {
		t.Error("what was refused has run")
	}
}

// An older state is put back while nothing runs: nobody is signalled for what it
// says is running, and no ID is used twice: S20.
func TestOldState(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.Good("run", "-d", "--keep", "--name", "x", "--", "sh", "-c", "echo $$ >>pid; exec sleep 4711")
	p.Until("it runs", func() bool { return p.read("pid") != "" && p.task("x").Status == "running" })
	p.killHost()
	if out, err := exec.Command("cp", "-a", p.State(), p.State()+".old").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p.Good("run", "-d", "--name", "y", "--", "true")
	p.Good("stop", "x")
	seen := p.tasks()
	_ = syscall.Kill(p.one("host"), syscall.SIGTERM)
	p.Until("the host has gone", func() bool { return len(p.Procs("")) == 0 })
	if err := os.RemoveAll(p.State()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.State()+".old", p.State()); err != nil {
		t.Fatal(err)
	}
	id := p.Good("run", "-d", "--name", "z", "--", "true")
	p.Good("wait", "z")
	if _, twice := seen[id]; twice {
		t.Errorf("the ID %s is used twice", id)
	}
	p.is("x", "killed:lost")
	if strings.Count(p.read("pid"), "\n") != 1 {
		t.Error("it was begun again")
	}
}

// A conversation whose last line was torn off anywhere, or that has a broken line
// in its middle, goes on, and nothing else of it is lost: S9, S10.
func TestTornConversation(t *testing.T) {
	p := newPlace(t)
	p.File("script.json", `{"version": 1, "agents": {"main": [{"text": "an answer", "repeat": -1}]}}`, 0o600)
	said := p.Run("-p", "--model", "script:script.json", "--output-format", "json", "one")
	var first struct {
		Session string `json:"session_id"`
	}
	if err := json.Unmarshal([]byte(said.Stdout()), &first); err != nil || said.Code() != 0 {
		t.Fatalf("%v %s", err, said)
	}
	file := p.glob("projects/*/" + first.Session + "/transcript.jsonl")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(bytes.TrimSuffix(whole, []byte("\n")), []byte("\n"))
	last := lines[len(lines)-1]
	head := whole[:len(whole)-len(last)-1]
	for cut := 0; cut < len(last); cut += max(1, len(last)/pick(3, 60)) {
		p.resumes(file, first.Session, slices.Concat(head, last[:cut]))
	}
	p.resumes(file, first.Session, slices.Concat(head, []byte("\x00\x00{\"garbage\n"), last, []byte("\n")))
	p.resumes(file, first.Session, slices.Concat(head, bytes.Repeat([]byte("["), 100_000), []byte("\n"), last, []byte("\n")))
}

// resumes goes on with a conversation whose file is damaged.
func (p *place) resumes(file, session string, content []byte) {
	p.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		p.Fatal(err)
	}
	s := p.Run("-p", "--model", "script:script.json", "--resume", session, "again")
	p.told(s)
	if s.Code() != 0 || !strings.Contains(s.Stdout(), "answer") {
		p.Errorf("%d bytes: %s", len(content), s)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		p.Fatal(err)
	}
	whole := content[:bytes.LastIndexByte(content, '\n')+1]
	if !bytes.HasPrefix(data, whole) || !bytes.Contains(data[len(whole):], []byte("again")) {
		p.Errorf("of %d bytes something is lost", len(content))
	}
	for line := range bytes.Lines(data[len(whole):]) {
		if !json.Valid(line) {
			p.Errorf("a line that was added is none: %.100q", line)
		}
	}
}

// A line of 100 MB is kept whole, shown in part, and held in no memory: O2.
func TestLongLine(t *testing.T) {
	p, size := newPlace(t), pick(20, 100)*1_000_000
	p.Good("run", "-d", "--name", "x", "--", "sh", "-c", fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x`, size))
	p.Good("wait", "x")
	if info, err := os.Stat(p.task("x").OutputFile); err != nil || info.Size() != int64(size) {
		t.Errorf("%v, %v", info.Size(), err)
	}
	for _, args := range [][]string{{"logs", "--tail", "5", "x"}, {"result", "x"}} {
		if s := p.Run(args...); len(s.Stdout()) > 2_000_000 {
			t.Errorf("%v: %d bytes", args, len(s.Stdout()))
		}
	}
	if peak := p.peak(p.one("host")); peak > 100_000 {
		t.Errorf("the host has used %d kB", peak)
	}
}

// peak is the most memory that a process has had, in kB.
func (p *place) peak(pid int) (kb int) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		p.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "VmHWM:")
	_, _ = fmt.Sscan(rest, &kb)
	return kb
}

// Bytes that are no text are kept as they are, and no JSON breaks of them: O3.
func TestBytes(t *testing.T) {
	p := newPlace(t)
	var all []byte
	for i := range 1024 {
		all = append(all, byte(i), byte(i/4))
	}
	p.File("bytes", string(all), 0o600)
	name := "n\xff\x1b[2J\u202e"
	s := p.Run("run", "-d", "--name", "x", "--description", name, "--", "sh", "-c", "cat bytes; exit 1 # \xfe\x1b]0;t\a")
	if s.Code() == 2 {
		s = p.Run("run", "-d", "--name", "x", "--", "sh", "-c", "cat bytes; exit 1 # \xfe\x1b]0;t\a")
	}
	if s.Code() != 0 {
		t.Fatal(s)
	}
	p.Run("wait", "x")
	if s := p.Run("logs", "--raw", "x"); s.Stdout() != string(all) {
		t.Errorf("%d bytes of %d", len(s.Stdout()), len(all))
	}
	for _, args := range [][]string{{"inspect", "x"}, {"ps", "-a", "--json"}, {"wait", "--json", "x"}} {
		if s := p.Run(args...); !json.Valid([]byte(s.Stdout())) {
			t.Errorf("no JSON: %s", s)
		}
	}
	for _, args := range [][]string{{"ps", "-a"}, {"ps", "--tree", "-a"}, {"stop", "x"}} {
		if s := p.Run(args...); strings.ContainsAny(s.Stdout()+s.Stderr(), "\x1b\x07\x00\u202e") {
			t.Errorf("live bytes: %q", s.Stdout())
		}
	}
}

// A reader that stands still, or dies, holds up no writer: O12.
func TestReaderStandsStill(t *testing.T) {
	p := newPlace(t)
	p.Fifo("go")
	p.Good("run", "-d", "--name", "x", "--", "sh", "-c", "echo first; read x <go; head -c 3000000 /dev/zero; exit 3")
	cmd := p.command(nil, "logs", "-f", "x")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.Free("go")
	if s := p.Run("wait", "x"); s.Code() != 3 {
		t.Error(s)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if info, err := os.Stat(p.task("x").OutputFile); err != nil || info.Size() != 3000006 {
		t.Errorf("%v", err)
	}
}

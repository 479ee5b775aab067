package tty

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/engine/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(t *testing.T, plain bool) (master, slave *os.File) {
	t.Helper()
	master, slave, err := Open(Size{}, plain)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = master.Close(), slave.Close() })
	return master, slave
}

// printed is what a line for sh prints on a terminal, of which it has the keys.
func printed(t *testing.T, line, typed string) string {
	t.Helper()
	master, slave := pair(t, true)
	pipe, input, err := CreateInput(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	g, err := process.StartGroup(process.Command{Args: []string{"sh", "-c", line}, Env: os.Environ(), Stdin: slave,
		Stdout: slave, Stderr: slave, Session: true, Terminal: true})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	limit, done := context.WithTimeout(t.Context(), 30*time.Second)
	defer done()
	if err := input.Type(limit, []byte(typed)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := copier{master: master, slave: slave, pipe: pipe, out: &out}
	if err := c.run(func() {
		if _, err := g.Wait(limit); err != nil {
			g.End(context.Background(), process.Ending{})
		}
	}); err != nil {
		t.Error(err)
	}
	g.Reap()
	_ = pipe.Close()
	if err := input.Gone(limit); err != nil {
		t.Errorf("the end of the copier is not seen: %v", err)
	}
	if err := input.Type(limit, []byte("x")); !errors.Is(err, ErrGone) {
		t.Errorf("typed after the end: %v", err)
	}
	return out.String()
}

func TestCopy(t *testing.T) {
	for name, c := range map[string]struct{ line, typed, want string }{
		"a terminal":            {"test -t 0 && test -t 1 && test -t 2 && stty size </dev/tty", "", "24 80\n"},
		"echo and answer":       {"read x; echo \"<$x>\"", "hello\r", "hello\n<hello>\n"},
		"closed and opened":     {"exec 0<&- 1<&- 2<&-; sleep 0.1; echo again >/dev/tty", "", "again\n"},
		"a child that stays on": {"sleep 5 & echo bye", "", "bye\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := printed(t, c.line, c.typed); got != c.want {
				t.Errorf("printed %q, want %q", got, c.want)
			}
		})
	}
	got := printed(t, "seq 1 30000", "")
	if n := strings.Count(got, "\n"); n != 30000 || !strings.HasSuffix(got, "\n30000\n") {
		t.Errorf("%d lines, which end with %q", n, got[max(0, len(got)-20):])
	}
}

// Only a pipe that this user has made, and nobody else may open, is typed into.
func TestPlanted(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Mkfifo(at("fifo"), 0o600), unix.Mkfifo(at("open"), 0o600), os.Chmod(at("open"), 0o666),
		os.Mkdir(at("dir"), 0o700), os.Symlink(at("fifo"), at("link")), os.Symlink(at("nowhere"),
			at("dangling"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "fifo", "open", "dir", "link", "dangling"} {
		if _, _, err := CreateInput(at(name)); err == nil {
			t.Errorf("%s was taken", name)
		}
		if _, err := os.Lstat(at(name)); err != nil {
			t.Errorf("%s was removed: %v", name, err)
		}
	}
	reader, err := os.OpenFile(at("open"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, name := range []string{"file", "open", "dir", "link", "dangling", "none"} {
		if p, err := OpenInput(at(name)); err == nil {
			p.Close()
			t.Errorf("%s is typed into", name)
		}
	}
	if _, err := OpenInput(at("fifo")); !errors.Is(err, ErrGone) {
		t.Errorf("a pipe that nobody reads: %v", err)
	}
	pipe, input, err := CreateInput(at("new"))
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	defer pipe.Close()
	if fi, err := os.Lstat(at("new")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	second, err := OpenInput(at("new"))
	if err != nil {
		t.Fatalf("a second input: %v", err)
	}
	second.Close()
}

// A input types so much and no more, whole messages, and gives up with its context.
func TestType(t *testing.T) {
	pipe, input, err := CreateInput(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	if err := input.Type(t.Context(), make([]byte, MaxTyped+1)); err == nil || !strings.Contains(err.Error(), "4096") {
		t.Errorf("too much: %v", err)
	}
	var all sync.WaitGroup
	const each = 4000
	for _, b := range []byte("abcdefgh") {
		all.Go(func() {
			if err := input.Type(t.Context(), bytes.Repeat([]byte{b}, each)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got := make([]byte, 8*each)
	if _, err := io.ReadFull(pipe, got); err != nil {
		t.Fatal(err)
	}
	if runs := slices.Compact(got); len(runs) != 8 {
		t.Errorf("messages are mixed: %q", runs)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	mine := errors.New("mine")
	full := make(chan error)
	go func() {
		for {
			if err := input.Type(ctx, make([]byte, MaxTyped)); err != nil {
				full <- err
				return
			}
		}
	}()
	cancel(mine)
	if err := <-full; !errors.Is(err, mine) {
		t.Errorf("typing into a full pipe ends with %v", err)
	}
	waiting, stop := context.WithCancelCause(t.Context())
	stop(mine)
	if err := input.Gone(waiting); !errors.Is(err, mine) {
		t.Errorf("a reader that is there is gone: %v", err)
	}
	// The pipe is full: its end is no chance to write, and seen all the same.
	gone := make(chan error)
	go func() { gone <- input.Gone(t.Context()) }()
	_ = pipe.Close()
	if err := <-gone; err != nil {
		t.Error(err)
	}
	if err := input.Gone(t.Context()); err != nil {
		t.Errorf("the second time: %v", err)
	}
}

// The end of a file is ^D; an open line needs one more.
func TestPump(t *testing.T) {
	for in, want := range map[string]string{"": "\x04", "a\n": "a\n\x04", "a": "a\x04\x04", "a\rb": "a\rb\x04\x04"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString(in); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		var got []byte
		if err := Pump(t.Context(), r, func(b []byte) error { got = append(got, b...); return nil }); err != nil ||
			string(got) != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
		_ = r.Close()
	}
	// Nobody presses a key: it ends with its context.
	master, slave := pair(t, false)
	_ = master
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() { ended <- Pump(ctx, slave, func([]byte) error { return nil }) }()
	mine := errors.New("mine")
	cancel(mine)
	if err := <-ended; !errors.Is(err, mine) {
		t.Error(err)
	}
}

// What is piped in waits for a command that is busy, however long, and arrives whole.
func TestFeed(t *testing.T) {
	master, slave := pair(t, true)
	restore, err := Raw(slave) // or an open line that is too long would be cut
	if err != nil {
		t.Fatal(err)
	}
	defer restore()
	m := &Master{F: master, patience: time.Millisecond}
	want := bytes.Repeat([]byte("0123456789abcdef"), 32<<10)
	if err := m.Type(t.Context(), want[:MaxTyped]); err != nil {
		t.Fatal(err)
	}
	fed := make(chan error)
	go func() { fed <- m.Feed(t.Context(), want[MaxTyped:]) }()
	// Its patience with one that reads nothing is over once and again.
	for i := 0; i < 3; {
		if err := m.Type(t.Context(), nil); err == nil {
			i++
		}
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(slave, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("it was not read as it was fed: %v", err)
	}
	if err := <-fed; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { fed <- m.Feed(ctx, want) }()
	mine := errors.New("mine")
	cancel(mine)
	if err := <-fed; !errors.Is(err, mine) {
		t.Errorf("nobody reads, and it ends with %v", err)
	}
}

// A terminal that is taken raw is given back as it was.
func TestRaw(t *testing.T) {
	_, slave := pair(t, false)
	state := func() unix.Termios {
		s, err := unix.IoctlGetTermios(int(slave.Fd()), getTermios)
		if err != nil {
			t.Fatal(err)
		}
		return *s
	}
	before := state()
	restore, err := Raw(slave)
	if err != nil {
		t.Fatal(err)
	}
	if state().Lflag&(unix.ECHO|unix.ICANON|unix.ISIG) != 0 {
		t.Error("it is not raw")
	}
	restore()
	restore()
	if state() != before {
		t.Errorf("%+v became %+v", before, state())
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, err := Raw(null); err == nil {
		t.Error("no terminal was taken raw")
	}
	if SizeOf(null) != (Size{}) {
		t.Error("no terminal has a size")
	}
	if err := SetSize(slave, Size{Rows: 7, Cols: 33}); err != nil || SizeOf(slave) != (Size{7, 33}) {
		t.Errorf("%v, %v", SizeOf(slave), err)
	}
}

// disk has room for so many writes, then none, then room again.
type disk struct {
	bytes.Buffer
	full bool
}

func (d *disk) Write(b []byte) (int, error) {
	if d.full {
		return 0, unix.ENOSPC
	}
	return d.Buffer.Write(b)
}

func TestSink(t *testing.T) {
	var d disk
	s := sink{to: &d}
	for _, c := range []struct {
		full bool
		text string
	}{{false, "one\n"}, {true, "two\n"}, {true, "three\n"}, {false, "four\n"}, {false, "five\n"}} {
		d.full = c.full
		if n, err := s.Write([]byte(c.text)); n != len(c.text) || err != nil {
			t.Errorf("%q: %d, %v", c.text, n, err)
		}
	}
	if want := "one\n\n[10 bytes of output are missing here: no space left on device]\nfour\nfive\n"; d.String() != want {
		t.Errorf("%q", d.String())
	}
}

func TestMark(t *testing.T) {
	self, err := process.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := process.ParseMark(Args(self)[0]); err != nil || got != self {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "1.5", "x.5", "12", "12.x", "-4.5"} {
		if _, err := process.ParseMark(bad); err == nil {
			t.Errorf("%q names a process", bad)
		}
	}
}

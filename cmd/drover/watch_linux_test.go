package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"
	"golang.org/x/sys/unix"
)

// typist reads what a program draws on a terminal.
type typist struct {
	t      *testing.T
	person *os.File

	mu   sync.Mutex
	seen bytes.Buffer  // guarded by mu
	more chan struct{} // capacity 1
}

func newTypist(t *testing.T, person *os.File) *typist {
	w := &typist{t: t, person: person, more: make(chan struct{}, 1)}
	go func() { // ends with the terminal
		buf := make([]byte, 4096)
		for {
			n, err := person.Read(buf)
			w.mu.Lock()
			w.seen.Write(buf[:n])
			w.mu.Unlock()
			select {
			case w.more <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	return w
}

// until waits for a text and returns all that came before its end, which is taken.
func (w *typist) until(text string) string {
	w.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		w.mu.Lock()
		all := w.seen.String()
		if i := strings.Index(all, text); i >= 0 {
			w.seen.Next(i + len(text))
			w.mu.Unlock()
			return all[:i+len(text)]
		}
		w.mu.Unlock()
		select {
		case <-w.more:
		case <-limit:
			w.t.Fatalf("no %q in %q", text, all)
		}
	}
}

// What is watched on a terminal is drawn in place, when something has changed, fits, and
// leaves the terminal as it was.
func TestWatchScreen(t *testing.T) {
	p := newPlace(t, build(t))
	p.good("run", "-d", "--name", "日本語\x1b[2J", "--", "sleep", "641")
	person, program := terminal(t)
	size := func(columns uint16) {
		if err := unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: columns}); err != nil {
			t.Fatal(err)
		}
	}
	size(100)
	before, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	cmd := p.command("ps", "--watch")
	cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	screen := newTypist(t, person)
	screen.until("\x1b[?1049h")
	if first := screen.until("sleep"); strings.Count(first, "\x1b[2J") != 1 || !strings.Contains(first, "日本語") {
		t.Errorf("the first frame is %q", first)
	}
	p.good("run", "-d", "--name", "second", "--", "sleep", "642")
	change := screen.until("second")
	if strings.Contains(change, "\x1b[2J") || strings.Contains(change, "ID ") {
		t.Errorf("a change draws more than its rows: %q", change)
	}
	if err := p.run("stop", "second"); err.code != 0 {
		t.Fatal(err.stderr)
	}
	screen.until("\x1b[J") // its row is gone
	size(30)
	if err := cmd.Process.Signal(unix.SIGWINCH); err != nil { // the program is in another session
		t.Fatal(err)
	}
	screen.until("\x1b[2J")
	if _, err := io.WriteString(person, "q"); err != nil {
		t.Fatal(err)
	}
	last := screen.until("\x1b[?25h\x1b[?1049l")
	for _, line := range strings.Split(last, "\x1b[K") {
		if _, text, ok := strings.Cut(line, "H"); ok && runewidth.StringWidth(strings.TrimSuffix(text, "\x1b[0m")) > 30 {
			t.Errorf("a row is wider than the terminal: %q", text)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	after, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %v", err)
	}
}

// A new item is announced as the user wants it, and nothing of it reaches the terminal alive.
func TestAttentionNotify(t *testing.T) {
	p := newPlace(t, build(t))
	person, program := terminal(t)
	cmd := p.command("attention", "--watch", "--notify", "osc9")
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	screen := newTypist(t, person)
	screen.until("Nothing needs you.")
	p.good("run", "-d", "--name", "x\x07;y", "--", "sh", "-c", "exit 9")
	if got := screen.until("\x1b\\"); !strings.HasSuffix(got, "\x1b]9;failure: failed (exit code 9)\x1b\\") {
		t.Errorf("announced by %q", got)
	}
	screen.until("drover logs")
	p.good("attention", "seen", "--all")
	screen.until("Nothing needs you.") // gone here too
	if _, err := io.WriteString(person, "\x03"); err != nil {
		t.Fatal(err)
	}
	if end := screen.until("\x1b[?1049l"); strings.Contains(end, "\a") {
		t.Errorf("a name rings the bell: %q", end)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

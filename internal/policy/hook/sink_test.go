package hook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/platform/home"
)

// spilling gives hooks the folder of a session, which it returns.
func spilling(t *testing.T) (home.Session, func(*Base)) {
	t.Helper()
	place := home.At(t.TempDir()).Project(t.TempDir()).Session("0123-abcd")
	if err := place.Ensure(); err != nil {
		t.Fatal(err)
	}
	var one sync.Mutex
	return place, func(b *Base) {
		b.Spill = func(limit int64) (Overflow, error) {
			one.Lock()
			defer one.Unlock()
			path, err := place.NewHookOutput()
			if err != nil {
				return nil, err
			}
			return spool.Reopen(path, spool.Options{Limit: limit, Below: place.Below()})
		}
	}
}

// spilled are the files of hooks.
func spilled(t *testing.T, place home.Session) []string {
	t.Helper()
	names, err := place.Below().Names(place.HookOutputs())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for i, name := range names {
		names[i] = filepath.Join(place.HookOutputs(), name)
	}
	return names
}

// raw is how the only hook of an event went.
func (s *stage) raw(t *testing.T, e Event) result {
	t.Helper()
	return s.one(t.Context(), s.chosen(e, nil)[0], nil)
}

// numbers are the first n bytes of what `seq 1000000 9999999` prints: no two lines of it
// are the same.
func numbers(t *testing.T, n int64) []byte {
	t.Helper()
	out, err := exec.Command("bash", "-c", fmt.Sprintf("seq 1000000 9999999 | head -c %d", n)).Output()
	if err != nil || int64(len(out)) != n {
		t.Fatalf("%d bytes, %v", len(out), err)
	}
	return out
}

func printing(n int64) string { return fmt.Sprintf("seq 1000000 9999999 2>/dev/null | head -c %d", n) }

// What the memory holds comes as it is and leaves nothing; a byte more, and all of it
// is in a file from its first byte on.
func TestSpillAtTheLimit(t *testing.T) {
	for _, stream := range []string{"stdout", "stderr"} {
		for _, over := range []int64{-1, 0, 1, 12_000_000} {
			place, spill := spilling(t)
			n := maxKept + over
			line := printing(n)
			if stream == "stderr" {
				line = "{ " + line + "; } >&2"
			}
			r := play(t, claude("SessionStart", line), spill).raw(t, SessionStart)
			text, other := r.stdout, r.stderr
			if stream == "stderr" {
				text, other = other, text
			}
			files := spilled(t, place)
			switch {
			case r.err != nil || r.code != 0 || other != "":
				t.Errorf("%s, %d: %+v", stream, n, r)
			case over <= 0 && (text != string(numbers(t, n)) || len(files) > 0 || len(r.notes) > 0):
				t.Errorf("%s, %d: %d bytes, %v, %v", stream, n, len(text), files, r.notes)
			case over > 0 && len(files) != 1:
				t.Errorf("%s, %d: %v", stream, n, files)
			case over > 0:
				data, err := os.ReadFile(files[0])
				if err != nil || !bytes.Equal(data, numbers(t, n)) {
					t.Errorf("%s, %d: the file has %d bytes, or others: %v", stream, n, len(data), err)
				}
				want := fmt.Sprintf("%d bytes to %s: all are in %s", n, stream, files[0])
				if len(r.notes) != 1 || !strings.HasSuffix(r.notes[0], want) || len(text) > 500 {
					t.Errorf("%s, %d: %q, %d bytes", stream, n, r.notes, len(text))
				}
			}
		}
	}
}

// Of what is too long the last lines are shown, behind a line that says where all is.
func TestLastLines(t *testing.T) {
	fill := "head -c 8000000 /dev/zero | tr '\\0' x; echo; "
	for name, c := range map[string]struct{ line, shown string }{
		"lines":    {"seq 1 100", "last 5 lines:]\n96\n97\n98\n99\n100"},
		"no end":   {"seq 1 100; printf more", "last 5 lines:]\n97\n98\n99\n100\nmore"},
		"few":      {"echo 1", ""},
		"long":     {"echo; head -c 20000 /dev/zero | tr '\\0' y; echo z", "last 16384 bytes:]\n" + strings.Repeat("y", recentBytes-2) + "z"},
		"empty":    {"echo a; echo; echo; echo b; echo; echo c", "last 5 lines:]\n\n\nb\n\nc"},
		"controls": {"seq 1 4; printf 'a\\033[2Jb\\n'", "last 5 lines:]\n1\n2\n3\n4\nab"},
	} {
		place, spill := spilling(t)
		s := play(t, claude("SessionStart", fill+c.line), spill)
		out := s.Run(t.Context(), SessionStart, nil)
		files := spilled(t, place)
		if len(files) != 1 || len(out.Context) != 1 || !strings.HasSuffix(out.Context[0], c.shown) || len(out.Context[0]) > recentBytes+1000 {
			t.Errorf("%s: %v, %.200q", name, files, out.Context)
			continue
		}
		if !regexp.MustCompile(`^\[8\d+ bytes were printed, which is too long: all are in ` + regexp.QuoteMeta(files[0]) + `\. The last `).MatchString(out.Context[0]) {
			t.Errorf("%s: %.200q", name, out.Context[0])
		}
		if !strings.Contains(s.told(), "all are in "+files[0]) {
			t.Errorf("%s: the user is told %q", name, s.told())
		}
	}
}

// However long stdout is, the reason on stderr blocks; and where both are long each has
// a file of its own.
func TestStreamsApart(t *testing.T) {
	place, spill := spilling(t)
	out := play(t, claude("PreToolUse", printing(20_000_000)+"; echo because >&2; exit 2"), spill).Run(t.Context(), PreToolUse, nil)
	if !out.Block || out.Decision != Deny || out.Reason != "because" || len(spilled(t, place)) != 1 {
		t.Errorf("%+v", out)
	}

	place, spill = spilling(t)
	s := play(t, claude("PreToolUse", printing(20_000_000)+"; { head -c 9000000 /dev/zero | tr '\\0' e; echo; echo because; } >&2; exit 2"), spill)
	out = s.Run(t.Context(), PreToolUse, nil)
	files := spilled(t, place)
	if !out.Block || !strings.HasSuffix(out.Reason, "\nbecause") || len(out.UserNotes) != 2 || len(files) != 2 {
		t.Fatalf("%.300q, %q, %v", out.Reason, out.UserNotes, files)
	}
	all := map[string][]byte{"stdout": numbers(t, 20_000_000), "stderr": []byte(strings.Repeat("e", 9_000_000) + "\nbecause\n")}
	for i, stream := range []string{"stdout", "stderr"} {
		path := out.UserNotes[i][strings.LastIndex(out.UserNotes[i], " ")+1:]
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(data, all[stream]) || !strings.Contains(out.UserNotes[i], "to "+stream) {
			t.Errorf("%s: %d bytes, %v, %q", stream, len(data), err, out.UserNotes[i])
		}
	}
}

// An answer that the memory holds is heard, however long. One that is longer is not,
// and the user is told what was done with it.
func TestLongAnswer(t *testing.T) {
	answer := `echo '{"decision":"block","reason":"no"'; head -c %d /dev/zero | tr '\0' ' '; echo '}'`
	place, spill := spilling(t)
	out := play(t, claude("PreToolUse", fmt.Sprintf(answer, 7_900_000)), spill).Run(t.Context(), PreToolUse, nil)
	if !out.Block || out.Reason != "no" || len(out.UserNotes) > 0 || len(spilled(t, place)) > 0 {
		t.Errorf("%+v", out)
	}
	for _, how := range []func(*Base){spill, func(*Base) {}} {
		out = play(t, claude("PreToolUse", fmt.Sprintf(answer, 8_000_000)), how).Run(t.Context(), PreToolUse, nil)
		if out.Decision != Ask || !strings.Contains(lines(out.faults), "cannot be read: it is too long") {
			t.Errorf("%+v", out)
		}
	}
	if len(spilled(t, place)) != 1 {
		t.Error("it is nowhere")
	}
}

// Where no file can be made the beginning counts, as for who has no folder for one, and
// why is said. Nothing is made by way of a link.
func TestNoSpill(t *testing.T) {
	foreign := t.TempDir()
	line := "echo because >&2; " + printing(9_000_000) + " >&2; exit 2"
	for name, plant := range map[string]func(at string) error{
		"link": func(at string) error { return os.Symlink(foreign, at) },
		"file": func(at string) error { return os.WriteFile(at, nil, 0o600) },
	} {
		place, spill := spilling(t)
		if err := plant(place.HookOutputs()); err != nil {
			t.Fatal(err)
		}
		out := play(t, claude("PreToolUse", line), spill).Run(t.Context(), PreToolUse, nil)
		said := "more bytes were dropped: make a file for what a hook prints: "
		if !out.Block || !strings.HasPrefix(out.Reason, "because\n1000000\n") || !strings.Contains(out.Reason, said) || len(out.Reason) > maxText {
			t.Errorf("%s: %.100q … %d bytes", name, out.Reason, len(out.Reason))
		}
		if len(out.UserNotes) != 1 || !strings.Contains(out.UserNotes[0], "9000008 bytes to stderr: only the first") {
			t.Errorf("%s: %q", name, out.UserNotes)
		}
	}
	if left, err := os.ReadDir(foreign); err != nil || len(left) > 0 {
		t.Errorf("behind the link: %v, %v", left, err)
	}
	out := play(t, claude("PreToolUse", line)).Run(t.Context(), PreToolUse, nil)
	if !out.Block || !strings.HasPrefix(out.Reason, "because\n1000000\n") || !strings.HasSuffix(out.Reason, fmt.Sprintf("\n[%d more bytes were dropped]", 9_000_008-headBytes)) || len(out.UserNotes) > 0 {
		t.Errorf("%.100q … %d bytes, %q", out.Reason, len(out.Reason), out.UserNotes)
	}
}

// A hook that prints for ever is ended, and what it printed until then can be read.
func TestFloodSpills(t *testing.T) {
	place, spill := spilling(t)
	s := play(t, claude("PreToolUse", "yes"), spill)
	out := s.Run(t.Context(), PreToolUse, nil)
	files := spilled(t, place)
	if !out.Block || !strings.Contains(out.Reason, "more than 64 MiB") || len(files) != 1 || !strings.Contains(s.told(), fmt.Sprintf("only the first %d are in %s", maxPrinted, files[0])) {
		t.Fatalf("%+v, %v", out, files)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	begin, err := io.ReadAll(io.LimitReader(f, maxPrinted))
	rest, _ := io.ReadAll(f)
	if err != nil || !bytes.Equal(begin, bytes.Repeat([]byte("y\n"), maxPrinted/2)) || len(rest) > 200 || !bytes.Contains(rest, []byte("limit of 67108864 bytes")) {
		t.Errorf("%d bytes and %q, %v", len(begin), rest, err)
	}
}

// A write that fails, as on a full disk, is said; the hook is heard all the same, and
// what is in the file is what came first.
func TestFullDisk(t *testing.T) {
	const variable = "HOOK_TEST_FULL"
	if os.Getenv(variable) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$")
		cmd.Env = append(os.Environ(), variable+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ) // the write is to fail
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 9_000_000, Max: 9_000_000}); err != nil {
		t.Fatal(err)
	}
	place, spill := spilling(t)
	s := play(t, claude("UserPromptSubmit", printing(20_000_000)+"; exit 0"), spill)
	out := s.Run(t.Context(), UserPromptSubmit, nil)
	files := spilled(t, place)
	if len(files) != 1 {
		t.Fatal(files)
	}
	said := fmt.Sprintf("only the first 9000000 are in %s: write output: write %s: file too large", files[0], files[0])
	if out.Block || !strings.Contains(lines(out.Context), said+". The last 5 lines:]\n") || !strings.Contains(s.told(), said) {
		t.Errorf("%.500q, %q", out.Context, s.told())
	}
	if data, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(data, numbers(t, 9_000_000)) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	s = play(t, claude("UserPromptSubmit", printing(20_000_000)+"; echo because >&2; exit 2"), spill)
	if out := s.Run(t.Context(), UserPromptSubmit, nil); !out.Block || out.Reason != "because" {
		t.Errorf("%+v", out)
	}
}

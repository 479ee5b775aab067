package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, opt Options) *File {
	t.Helper()
	f, err := Open(filepath.Join(t.TempDir(), "b.output"), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func plain(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "b.output")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPlanted(t *testing.T) {
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		plant  func(t *testing.T, secret, path string)
		open   error // Open must give this, as errors.Is sees it
		reopen error // Reopen and every read too
	}{
		{"symlink", func(t *testing.T, secret, path string) { must(t, os.Symlink(secret, path)) }, unix.ELOOP, unix.ELOOP},
		{"dangling", func(t *testing.T, secret, path string) { must(t, os.Symlink(secret+"x", path)) }, unix.ELOOP, unix.ELOOP},
		{"hardlink", func(t *testing.T, secret, path string) { must(t, os.Link(secret, path)) }, fs.ErrExist, ErrForeign},
		{"fifo", func(t *testing.T, _, path string) { must(t, unix.Mkfifo(path, 0o600)) }, fs.ErrExist, nil},
		{"directory", func(t *testing.T, _, path string) { must(t, os.Mkdir(path, 0o700)) }, fs.ErrExist, nil},
		{"stranger", func(t *testing.T, _, path string) {
			if os.Geteuid() != 0 {
				t.Skip("giving a file away needs root")
			}
			must(t, os.WriteFile(path, []byte("x"), 0o666))
			must(t, os.Chown(path, 12345, -1))
		}, fs.ErrExist, ErrForeign},
		{"parent", func(t *testing.T, secret, path string) {
			must(t, os.Remove(filepath.Dir(path)))
			must(t, os.Symlink(filepath.Dir(secret), filepath.Dir(path)))
			must(t, os.WriteFile(filepath.Join(filepath.Dir(secret), filepath.Base(path)), []byte("x"), 0o600))
		}, unix.ELOOP, unix.ELOOP},
	} {
		t.Run(c.name, func(t *testing.T) {
			secret := filepath.Join(t.TempDir(), "secret")
			must(t, os.WriteFile(secret, []byte("secret"), 0o600))
			dir := filepath.Join(t.TempDir(), "tasks")
			must(t, os.Mkdir(dir, 0o700))
			path := filepath.Join(dir, "b.output")
			c.plant(t, secret, path)

			if f, err := Open(path, Options{}); !errors.Is(err, c.open) {
				t.Errorf("Open = %v, %v; want %v", f, err, c.open)
			}
			refused := func(what string, err error) {
				t.Helper()
				if err == nil || c.reopen != nil && !errors.Is(err, c.reopen) {
					t.Errorf("%s: %v; want %v", what, err, c.reopen)
				}
			}
			_, err := Reopen(path, Options{})
			refused("Reopen", err)
			_, _, err = ReadAt(path, 0, 0, true)
			refused("ReadAt", err)
			_, _, err = Tail(path, 1, 0)
			refused("Tail", err)
			_, _, err = Excerpt(path, 10)
			refused("Excerpt", err)
			refused("Follow", Follow(t.Context(), path, 0, closed()))
			if data, err := os.ReadFile(secret); string(data) != "secret" {
				t.Errorf("the target was touched: %q, %v", data, err)
			}
		})
	}
	t.Run("twice", func(t *testing.T) {
		f := open(t, Options{})
		if _, err := Open(f.Path(), Options{}); !errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ELOOP) {
			t.Errorf("Open of a used path: %v", err)
		}
	})
	t.Run("missing", func(t *testing.T) {
		if _, _, err := ReadAt(filepath.Join(t.TempDir(), "x"), 0, 0, true); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("ReadAt = %v", err)
		}
	})
}

func TestChild(t *testing.T) {
	f := open(t, Options{})
	if _, err := f.Write([]byte("before\n")); err != nil {
		t.Fatal(err)
	}
	out, err := f.File()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command("sh", "-c", "echo out; echo err >&2")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("after\n")); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(f.Path())
	if want := "before\nout\nerr\nafter\n"; string(data) != want || f.Size() != int64(len(want)) {
		t.Errorf("%q, %v, size %d", data, err, f.Size())
	}
	if info, _ := os.Stat(f.Path()); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	if f.Size() != int64(len(data)) {
		t.Errorf("size after the end: %d", f.Size())
	}
	if _, err := f.File(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("File after Close: %v", err)
	}
	if _, err := out.WriteString("late\n"); err != nil {
		t.Errorf("a child's descriptor after Close: %v", err)
	}
	if _, err := f.Write([]byte("x")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Write after Close: %v", err)
	}

	again, err := Reopen(f.Path(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Write([]byte("more\n")); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(f.Path()); !strings.HasSuffix(string(data), "after\nlate\nmore\n") {
		t.Errorf("reopened: %q", data)
	}
}

func TestLimit(t *testing.T) {
	f := open(t, Options{Limit: 10})
	for _, part := range []string{"12345678", "9€0", "more", "and more"} {
		if n, err := f.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	data, _ := os.ReadFile(f.Path())
	text := string(data)
	if !strings.HasPrefix(text, "123456789\n[") || strings.Count(text, "limit of 10 bytes") != 1 || !strings.HasSuffix(text, "]\n") {
		t.Errorf("content %q", text)
	}
	if f.Dropped() != int64(len("€0moreand more")) {
		t.Errorf("dropped %d", f.Dropped())
	}
	again, err := Reopen(f.Path(), Options{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(f.Path()); !bytes.Equal(after, data) {
		t.Errorf("said again: %q", after)
	}
	if open(t, Options{}).Limit() != 5_000_000_000 {
		t.Error("the usual limit is not 5 GB")
	}
}

func TestConcurrent(t *testing.T) {
	f := open(t, Options{})
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range 200 {
				fmt.Fprintf(f, "<%d:%d:%s>\n", w, i, strings.Repeat("x", i))
			}
		})
	}
	writers.Wait()
	data, _ := os.ReadFile(f.Path())
	next := map[int]int{}
	for _, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		var w, i int
		if _, err := fmt.Sscanf(line, "<%d:%d:", &w, &i); err != nil || line != fmt.Sprintf("<%d:%d:%s>", w, i, strings.Repeat("x", i)) {
			t.Fatalf("a mixed line: %q", line)
		}
		if next[w] != i {
			t.Fatalf("writer %d: %d came before %d", w, i, next[w])
		}
		next[w]++
	}
	if len(next) != 8 {
		t.Errorf("%d writers", len(next))
	}
}

func TestReplaced(t *testing.T) {
	f := open(t, Options{})
	if _, err := f.Write([]byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(f.Path(), 0); err != nil {
		t.Fatal(err)
	}
	if _, next, err := ReadAt(f.Path(), 10, 0, false); !errors.Is(err, ErrTruncated) || next != 0 {
		t.Errorf("ReadAt of a cut file = %d, %v", next, err)
	}
	if err := Follow(t.Context(), f.Path(), 10, nil); err != nil {
		t.Errorf("Follow of a cut file: %v", err)
	}
	if _, err := f.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	if data, next, err := ReadAt(f.Path(), 0, 0, false); string(data) != "new" || next != 3 || err != nil {
		t.Errorf("after the cut: %q, %d, %v", data, next, err)
	}
	if err := os.Remove(f.Path()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("unseen")); err != nil {
		t.Errorf("the writer of a deleted file: %v", err)
	}
	if err := Follow(t.Context(), f.Path(), 3, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Follow of a deleted file: %v", err)
	}
}

func TestSparse(t *testing.T) {
	path := plain(t, "")
	const size = 1 << 30
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	f, err := Reopen(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte("\nlast line\n")); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if data, next, err := ReadAt(path, size, 0, true); string(data) != "\nlast line\n" || next != size+11 || err != nil {
		t.Errorf("ReadAt = %q, %d, %v", data, next, err)
	}
	if data, offset, err := Tail(path, 1, 0); string(data) != "last line\n" || offset != size+1 || err != nil {
		t.Errorf("Tail = %q, %d, %v", data, offset, err)
	}
	if text, cut, err := Excerpt(path, 5); text != "line\n" || !cut || err != nil {
		t.Errorf("Excerpt = %q, %v, %v", text, cut, err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("three small reads took %d bytes of memory", got)
	}
}

// Reading on gives the whole file, and a text is only ever cut between
// characters, whatever the sizes of reads and writes.
func TestRunes(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n))
		f, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		valid := rapid.Bool().Draw(t, "valid")
		text := []byte(rapid.StringN(0, 60, -1).Draw(t, "text"))
		if !valid {
			text = rapid.SliceOfN(rapid.SampledFrom([]byte("a\n\xe2\x82\xac\xf0\x9f\x98\x80\xff\xc0")), 0, 60).Draw(t, "bytes")
		}
		var got []byte
		var next int64
		read := func(ended bool) bool {
			data, to, err := ReadAt(path, next, rapid.IntRange(1, 9).Draw(t, "max"), ended)
			if err != nil || to != next+int64(len(data)) {
				t.Fatalf("ReadAt(%d) = %d bytes to %d, %v", next, len(data), to, err)
			}
			if valid && !utf8.Valid(data) {
				t.Fatalf("a character was split: %q", data)
			}
			got, next = append(got, data...), to
			return len(data) > 0
		}
		for rest := text; len(rest) > 0; {
			k := rapid.IntRange(1, len(rest)).Draw(t, "chunk")
			if _, err := f.Write(rest[:k]); err != nil {
				t.Fatal(err)
			}
			rest = rest[k:]
			for rapid.Bool().Draw(t, "again") && read(false) {
			}
		}
		for read(true) {
		}
		if !bytes.Equal(got, text) {
			t.Fatalf("read %q of %q", got, text)
		}
		limit := rapid.IntRange(1, 70).Draw(t, "limit")
		tail, cut, err := Excerpt(path, limit)
		if err != nil || !bytes.HasSuffix(text, []byte(tail)) || cut != (len(tail) < len(text)) ||
			valid && utf8.RuneCountInString(tail) != min(limit, utf8.RuneCount(text)) {
			t.Fatalf("Excerpt(%d) of %q = %q, %v, %v", limit, text, tail, cut, err)
		}
	})
}

func TestTail(t *testing.T) {
	for _, c := range []struct {
		name, text string
		lines, max int
		want       string
	}{
		{"some", "a\nb\nc\n", 2, 0, "b\nc\n"},
		{"unended", "a\nb\nc", 2, 0, "b\nc"},
		{"all", "a\nb\n", 5, 0, "a\nb\n"},
		{"blank", "a\n\n\n", 2, 0, "\n\n"},
		{"empty", "", 3, 0, ""},
		{"bytes", "abcdef", 0, 3, "def"},
		{"long-line", "x" + strings.Repeat("€", 10), 1, 7, "€€"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, offset, err := Tail(plain(t, c.text), c.lines, c.max)
			if string(data) != c.want || offset != int64(len(c.text)-len(c.want)) || err != nil {
				t.Errorf("Tail = %q, %d, %v; want %q", data, offset, err, c.want)
			}
		})
	}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestFollow(t *testing.T) {
	t.Run("more", func(t *testing.T) {
		f := open(t, Options{})
		result := make(chan error, 1)
		go func() { result <- Follow(t.Context(), f.Path(), 0, nil) }()
		if _, err := f.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
	t.Run("part", func(t *testing.T) {
		ctx, done := context.WithTimeout(t.Context(), 3*followEvery)
		defer done()
		if err := Follow(ctx, plain(t, "a\xe2\x82"), 1, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("half a character is not news: %v", err)
		}
	})
	t.Run("ended", func(t *testing.T) {
		ended, result := make(chan struct{}), make(chan error, 1)
		path := plain(t, "a")
		go func() { result <- Follow(t.Context(), path, 1, ended) }()
		close(ended)
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
	t.Run("cause", func(t *testing.T) {
		gone := errors.New("reader gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if err := Follow(ctx, plain(t, ""), 0, nil); !errors.Is(err, gone) {
			t.Error(err)
		}
	})
}

package spool

import (
	"os"
	"os/signal"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What was dropped is counted, and said in the file when it closes.
func TestDropped(t *testing.T) {
	f := open(t, Options{Limit: 10})
	for range 3 {
		if _, err := f.Write([]byte("12345678\n")); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(f.Path())
	if text := string(data); err != nil || !strings.HasSuffix(text, "dropped.]\n[17 bytes were dropped.]\n") || f.Size() != int64(len(data)) {
		t.Errorf("%q of %d bytes, %v", text, f.Size(), err)
	}

	whole := open(t, Options{})
	if _, err := whole.Write([]byte("all of it")); err != nil {
		t.Fatal(err)
	}
	if err := whole.Close(); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(whole.Path()); string(data) != "all of it" {
		t.Errorf("nothing was dropped: %q", data)
	}
}

// What is dropped beyond the limit is told to the owner too, once the file is closed.
func TestLost(t *testing.T) {
	f := open(t, Options{Limit: 10})
	if _, err := f.Write([]byte("123456789012345")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := f.Lost(), "5 bytes of its output were dropped: Output limit of 10 bytes reached"; got != want {
		t.Errorf("Lost = %q, want %q", got, want)
	}
	whole := open(t, Options{})
	if err := whole.Close(); err != nil || whole.Lost() != "" {
		t.Errorf("Lost = %q, %v: nothing is", whole.Lost(), err)
	}
}

// A write that fails, as on a full disk, is counted.
func TestLostWrite(t *testing.T) {
	f := open(t, Options{})
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ)
	small := was
	small.Cur = 4
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
	n, err := f.Write([]byte("123456789"))
	if rerr := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); rerr != nil {
		t.Fatal(rerr)
	}
	signal.Reset(unix.SIGXFSZ)
	if err == nil || n != 4 {
		t.Fatalf("Write = %d, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := f.Lost(), "5 bytes of its output were dropped: file too large"; got != want {
		t.Errorf("Lost = %q, want %q", got, want)
	}
}

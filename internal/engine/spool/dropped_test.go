package spool

import (
	"os"
	"strings"
	"testing"
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

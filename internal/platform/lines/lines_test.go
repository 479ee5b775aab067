package lines

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
)

// FuzzRead: lines up to the limit come whole, longer ones as their beginning, and none is lost.
func FuzzRead(f *testing.F) {
	f.Add([]byte("one\n\ntwo"), 3)
	f.Add([]byte(strings.Repeat("x", 3*Head)+"\nend\n"), Head/2)
	f.Add([]byte(strings.Repeat("x", 3*Head)+"\nend\n"), 2*Head)
	f.Fuzz(func(t *testing.T, data []byte, limit int) {
		if limit < 1 {
			return
		}
		r := bufio.NewReaderSize(bytes.NewReader(data), 16)
		for want := range bytes.Lines(data) {
			got, size, err := Read(r, limit)
			if err != nil && err != io.EOF || size != len(want) {
				t.Fatalf("%d bytes of %d, %v", size, len(want), err)
			}
			if size <= limit && !bytes.Equal(got, want) || size > limit && !bytes.Equal(got, want[:min(Head, size)]) {
				t.Fatalf("limit %d: %q of %q", limit, got, want)
			}
		}
		if got, size, err := Read(r, limit); err != io.EOF || size != 0 {
			t.Fatalf("%q, %v after the end", got, err)
		}
	})
}

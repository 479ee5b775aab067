package lines

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

var errOver = errors.New("too long")

// An event has what was said since the one before it.
func TestEvents(t *testing.T) {
	const in = "\xef\xbb\xbfid: 1\nevent: a\ndata: x\n: comment\ndata:y\n\n" + // with a byte order mark
		"data: next\r\n\r\n" + "event: empty\n\n" + "id: 2\ndata\n\n" + "data: cut"
	var got []string
	events := NewEvents(strings.NewReader(in), 100, errOver)
	for {
		e, err := events.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
		got = append(got, string(e.ID)+"|"+string(e.Name)+"|"+string(e.Data))
	}
	if want := []string{"1|a|x\ny", "||next"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The data of an event, and a line that does not fit into the buffer, have a limit.
func TestLimit(t *testing.T) {
	for what, in := range map[string]string{
		"lines": "data: " + strings.Repeat("x", 90) + "\ndata: " + strings.Repeat("y", 90) + "\n\n",
		"line":  ": " + strings.Repeat("x", 100_000) + "\n\ndata: z\n\n",
	} {
		if e, err := NewEvents(strings.NewReader(in), 100, errOver).Next(); !errors.Is(err, errOver) {
			t.Errorf("%s: %v, %v", what, e, err)
		}
	}
}

// Lines of every length around the size of the buffer come whole.
func TestLongLines(t *testing.T) {
	for _, n := range []int{1, 32<<10 - 8, 32<<10 - 7, 32<<10 - 6, 32 << 10, 64 << 10, 100_000} {
		want := strings.Repeat("x", n)
		events := NewEvents(strings.NewReader("data: "+want+"\ndata: y\n\ndata: z\n\n"), 1<<20, errOver)
		for _, want := range []string{want + "\ny", "z"} {
			if e, err := events.Next(); err != nil || string(e.Data) != want {
				t.Errorf("%d: %d bytes, %v", n, len(e.Data), err)
			}
		}
	}
}

// Events are found whole, whatever the bytes are, and never more than there are.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("event: a\r\ndata: 1\r\ndata: 2\r\n\r\n: c\n\ndata\n\ndata: cut"))
	f.Add([]byte("\xef\xbb\xbfdata: x\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		events := NewEvents(bytes.NewReader(in), len(in)+1, errOver)
		total := 0
		for {
			e, err := events.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				break
			}
			if len(bytes.TrimSpace(e.Data)) == 0 {
				t.Fatal("an event without data")
			}
			total += len(e.Data)
		}
		if total > len(in) {
			t.Fatalf("%d bytes of data in %d", total, len(in))
		}
	})
}

package gitrun

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestFlood(t *testing.T) {
	full := 0
	s := &stream{limit: 5, full: func() { full++ }}
	for range 3 {
		if n, err := s.Write([]byte("abc")); n != 3 || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	if s.kept.String() != "abcab" || full == 0 {
		t.Errorf("kept %q, told %d times", s.kept.String(), full)
	}
}

type full struct{ n int }

var errFull = errors.New("full")

func (f *full) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// Output goes to the writer as it comes, and an error of the writer ends git.
func TestStream(t *testing.T) {
	g := Git{Dir: t.TempDir()}
	if _, err := g.Run(t.Context(), "init", "-q", "--template="); err != nil {
		t.Fatal(err)
	}
	input := strings.Repeat("abc\n", 50_000)
	var out strings.Builder
	if err := g.Stream(t.Context(), strings.NewReader(input), &out, "stripspace"); err != nil || out.String() != input {
		t.Errorf("%d bytes of %d, %v", out.Len(), len(input), err)
	}
	if err := g.Stream(t.Context(), strings.NewReader(input), &full{1000}, "stripspace"); !errors.Is(err, errFull) {
		t.Errorf("the writer failed: %v", err)
	}
	var said *Error
	if err := g.Stream(t.Context(), nil, io.Discard, "cat-file", "-p", "HEAD"); !errors.As(err, &said) || !strings.Contains(said.All, said.Text) {
		t.Errorf("git failed: %v", err)
	}
}

// A commit that is not there is an error, not one that is no ancestor.
func TestAncestor(t *testing.T) {
	g := Git{Dir: t.TempDir()}
	ids := make([]string, 2)
	for i := range ids {
		for _, args := range [][]string{{"init", "-q", "--template="}, {"-c", "user.name=u", "-c", "user.email=u@x.invalid", "commit", "-q",
			"--allow-empty", "--no-gpg-sign", "-m", "x"}} {
			if _, err := g.Run(t.Context(), args...); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if ids[i], err = g.Text(t.Context(), "rev-parse", "HEAD"); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		older, newer string
		want, fails  bool
	}{{ids[0], ids[1], true, false}, {ids[1], ids[0], false, false}, {strings.Repeat("0", 40), ids[1], false, true}} {
		if got, err := g.Ancestor(t.Context(), c.older, c.newer); got != c.want || (err != nil) != c.fails {
			t.Errorf("%s of %s: %v, %v", c.older, c.newer, got, err)
		}
	}
}

package sandbox

import (
	"strings"
	"testing"
)

// The order of rules is their meaning: the last one about a path counts.
func TestSeatbelt(t *testing.T) {
	got := Seatbelt(Bounds{
		Write: []string{"/work", `/odd "name\`}, Fixed: []string{"/work/.git/hooks"}, Open: []string{"/work/.git/hooks/x"},
		Ports: []uint16{8080, 3000, 8080},
	}, []string{"/home/u/.ssh"}, []string{"/home/u/.ssh/known_hosts"}, 4000)
	want := `(version 1)
(allow default)
(deny file-write*)
(allow file-write*
  (literal "/dev/null")
  (literal "/dev/zero")
  (literal "/dev/tty")
  (literal "/dev/ptmx")
  (subpath "/dev/fd")
  (regex #"^/dev/ttys[0-9]+$"))
(allow file-write*
  (subpath "/work")
  (subpath "/odd \"name\\"))
(deny file-write*
  (subpath "/work/.git/hooks"))
(allow file-write*
  (subpath "/work/.git/hooks/x"))
(deny file-read* file-write*
  (subpath "/home/u/.ssh"))
(allow file-read*
  (subpath "/home/u/.ssh/known_hosts"))
(deny network*)
(allow network-bind network-inbound
  (local ip "localhost:*"))
(allow network-outbound
  (remote ip "localhost:3000")
  (remote ip "localhost:4000")
  (remote ip "localhost:8080"))
(deny signal)
(allow signal
  (target same-sandbox))
(deny system-privilege)
`
	if got != want {
		t.Errorf("the profile is\n%s\nwant\n%s", got, want)
	}
	if strict := Seatbelt(Bounds{}, nil, nil); strings.Contains(strict, "network-outbound") || strings.Contains(strict, "subpath \"/work") {
		t.Errorf("without bounds something is allowed:\n%s", strict)
	}
}

// No path can leave its text.
func FuzzSeatbelt(f *testing.F) {
	f.Add(`/a") (allow default) ("`)
	f.Add(`/a\`)
	f.Fuzz(func(t *testing.T, path string) {
		text := Seatbelt(Bounds{Write: []string{path}}, nil, nil)
		plain := Seatbelt(Bounds{Write: []string{"/x"}}, nil, nil)
		before, after, _ := strings.Cut(plain, "/x")
		inner, begins := strings.CutPrefix(text, before)
		inner, ends := strings.CutSuffix(inner, after)
		if !begins || !ends {
			t.Fatalf("the rules around a path have changed:\n%s", text)
		}
		for i := 0; i < len(inner); i++ {
			switch inner[i] {
			case '\\':
				i++ // it is of what follows
			case '"':
				t.Fatalf("a path ends its text: %q", inner)
			}
		}
	})
}

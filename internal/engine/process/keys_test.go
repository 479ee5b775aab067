package process

import (
	"slices"
	"testing"
)

func TestParseSyscall(t *testing.T) {
	calls := map[int]call{0: readCall, 7: pollCall, 271: ppollCall, 23: selectCall, 270: selectCall, 232: epollCall}
	for _, c := range []struct {
		line string
		want waiting
		ok   bool
	}{
		{"0 0x3 0x7f20 0x20000 0x7f20 0xffffffff 0x0 0x7fff 0x7f20\n", waiting{kind: readCall, fd: 3}, true},
		{"7 0x7f20 0x1 0xffffffff 0x0 0x0 0x0 0x7fff 0x7f20", waiting{kind: pollCall, at: 0x7f20, number: 1}, true},
		{"7 0x7f20 0x1 0x64 0x0 0x0 0x0 0x7fff 0x7f20", waiting{}, false}, // looks at the keys now and then
		{"7 0x7f20 0x9 0xffffffff 0x0 0x0 0x0 0x7fff 0x7f20", waiting{}, false},
		{"7 0x7f20 0x0 0xffffffff 0x0 0x0 0x0 0x7fff 0x7f20", waiting{}, false},
		{"271 0x7f20 0x2 0x0 0x0 0x8 0x0 0x7fff 0x7f20", waiting{kind: ppollCall, at: 0x7f20, number: 2}, true},
		{"271 0x7f20 0x2 0x7f30 0x0 0x8 0x0 0x7fff 0x7f20", waiting{}, false},
		{"270 0x1 0x7ffc 0x0 0x0 0x0 0x7ffc 0x7ffc 0x7f8f", waiting{kind: selectCall, at: 0x7ffc, number: 1}, true},
		{"23 0x1 0x7ffc 0x0 0x0 0x7ffd 0x7ffc 0x7ffc 0x7f8f", waiting{}, false},
		{"232 0x5 0x7ffc 0x40 0xffffffff 0x0 0x0 0x7ffc 0x7f8f", waiting{kind: epollCall, fd: 5}, true},
		{"232 0x5 0x7ffc 0x40 0x3e8 0x0 0x0 0x7ffc 0x7f8f", waiting{}, false},
		{"61 0xffffffff 0x7fff 0x0 0x0 0x0 0x55ee 0x7fff 0x7fec", waiting{}, false}, // wait4
		{"running\n", waiting{}, false},
		{"-1 0x7ffc 0x7f8f\n", waiting{}, false},
		{"", waiting{}, false},
		{"0 0xzz 0x7f20 0x20000 0x7f20 0xffffffff 0x0 0x7fff 0x7f20", waiting{}, false},
	} {
		got, ok := parseSyscall(c.line, calls)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%q: %+v, %v", c.line, got, ok)
		}
	}
}

func TestDescriptors(t *testing.T) {
	poll := waiting{kind: pollCall, number: 2}
	for _, c := range []struct {
		name   string
		w      waiting
		memory []byte
		want   []int
	}{
		{"poll", poll, []byte{0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0}, []int{0, 4}},
		{"poll of one that is turned off", poll, []byte{0, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255, 1, 0, 0, 0}, []int{0}},
		{"poll for room to write", poll, []byte{0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0}, nil},
		{"select", waiting{kind: selectCall, number: 66}, []byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}, []int{0, 65}},
		{"too little", poll, []byte{0, 0, 0}, nil},
	} {
		if got := c.w.descriptors(c.memory); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := watched("pos:\t0\nflags:\t02\ntfd:        0 events:       19 data: 0  pos:0 ino:3 sdev:1a\ntfd:       11 events:       19 data: b\n"); !slices.Equal(got, []int{0, 11}) {
		t.Errorf("an epoll watches %v", got)
	}
}

func FuzzParseSyscall(f *testing.F) {
	f.Add("0 0x3 0x7f20 0x20000 0x7f20 0xffffffff 0x0 0x7fff 0x7f20\n")
	f.Add("270 0x1 0x7ffc 0x0 0x0 0x0 0x7ffc 0x7ffc 0x7f8f")
	f.Add("running")
	f.Fuzz(func(t *testing.T, line string) {
		w, ok := parseSyscall(line, map[int]call{0: readCall, 7: pollCall, 271: ppollCall, 270: selectCall, 232: epollCall})
		if ok && (w.size() < 0 || w.size() > 4096 || w.fd < 0) {
			t.Errorf("%q: %+v", line, w)
		}
	})
}

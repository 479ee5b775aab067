package sandbox

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"pgregory.net/rapid"
)

// A search in halves decides as a list does.
func TestDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOf(rapid.Uint32Range(0, 60)).Draw(t, "list")
		p := []bpf.Instruction{bpf.LoadAbsolute{Off: 0, Size: 4}}
		vm, err := bpf.NewVM(append(p, decide(list, bpf.RetConstant{Val: 1}, bpf.RetConstant{Val: 2})...))
		if err != nil {
			t.Fatal(err)
		}
		for n := range uint32(64) {
			want := 1
			if slices.Contains(list, n) {
				want = 2
			}
			if got, err := vm.Run(binary.BigEndian.AppendUint32(nil, n)); got != want || err != nil {
				t.Fatalf("%d: %d, %v, want %d", n, got, err, want)
			}
		}
	})
}

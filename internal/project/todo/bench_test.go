package todo

import (
	"fmt"
	"path/filepath"
	"testing"
)

// The cost of one change that nobody competes with, by the size of the list.
func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := At(filepath.Join(b.TempDir(), "list"), false)
			for range n {
				if _, err := s.Create(b.Context(), Draft{Subject: "one of many"}); err != nil {
					b.Fatal(err)
				}
			}
			i := 0
			for b.Loop() {
				i++
				text := fmt.Sprint(i)
				if _, err := s.Update(b.Context(), 1, Patch{Description: &text}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package figures

import (
	"testing"
	"time"
)

func TestFigures(t *testing.T) {
	for got, want := range map[string]string{
		Count(999): "999", Count(1234): "1.2k", Count(123_456): "123k", Count(1_234_567): "1.2M",
		Bytes(1000): "1000 B", Bytes(1536): "1.5 KiB", Bytes(3 << 20): "3.0 MiB", Bytes(5 << 40): "5.0 TiB",
		Several(1, "task"): "1 task", Several(2, "task"): "2 tasks",
		Span(-1): "0.0s", Span(1500 * time.Millisecond): "1.5s", Span(61 * time.Second): "1m01s", Span(25 * time.Hour): "1d01h",
		Age(59 * time.Second): "59s", Age(47 * time.Hour): "47h", Age(49 * time.Hour): "2d",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

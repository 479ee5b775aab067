package folder

import "fmt"

// Limits bound one transfer. A field that is 0 has its default.
type Limits struct {
	PackedBytes   int64 // that travel; default 2 GiB
	UnpackedBytes int64 // of all files, and of all objects in a pack; default 8 GiB
	Files         int   // in the work tree, and objects in a pack are at most 10 times as many; default 500,000
}

func (l Limits) orDefault() Limits {
	if l.PackedBytes <= 0 {
		l.PackedBytes = 2 << 30
	}
	if l.UnpackedBytes <= 0 {
		l.UnpackedBytes = 8 << 30
	}
	if l.Files <= 0 {
		l.Files = 500_000
	}
	return l
}

// Bounds that are not a matter of settings.
const (
	maxHave    = 64    // commits that a receiver names
	maxShallow = 1_000 // commits at which the history of a shallow clone ends
	maxNotes   = 50
	maxNote    = 500 // bytes
	maxNamed   = 5   // files that an error names
)

// size is a number of bytes for people.
func size(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	f := float64(n)
	unit := ""
	for _, u := range units {
		if f < 1<<10 {
			break
		}
		f, unit = f/(1<<10), u
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

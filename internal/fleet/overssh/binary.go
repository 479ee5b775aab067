package overssh

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// Binary is a build of the program, for the machine of the worker. It stays the same when the file is replaced.
type Binary struct {
	Name   string // for people, such as drover 1.2.3
	Sum    string // SHA-256, in hex
	Size   int64
	System string // such as linux/arm64
	file   *os.File
}

// module is linked into every build of the program.
const module = "github.com/drover-dev/drover"

// OpenBinary reads the file of a build. name is what people call it.
func OpenBinary(f *os.File, name string) (*Binary, error) {
	info, err := buildinfo.Read(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: it is not a build of drover: %w (give the program of a release)", name, err)
	}
	if info.Main.Path != module {
		return nil, fmt.Errorf("read %s: it is not a build of drover, but of %.80q (give the program of a release)", name,
			info.Main.Path)
	}
	b := &Binary{Name: name, file: f}
	var system, machine string
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS":
			system = s.Value
		case "GOARCH":
			machine = s.Value
		}
	}
	b.System = system + "/" + machine
	sum := sha256.New()
	if b.Size, err = io.Copy(sum, b.content()); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	b.Sum = hex.EncodeToString(sum.Sum(nil))
	return b, nil
}

// Close closes the file.
func (b *Binary) Close() error { return b.file.Close() }

func (b *Binary) content() io.Reader { return io.NewSectionReader(b.file, 0, 1<<62) }

// systemOf is what `uname -s` and `uname -m` say, in the words of Go.
func systemOf(kernel, machine string) string {
	system := map[string]string{"Linux": "linux", "Darwin": "darwin"}[kernel]
	arch := map[string]string{"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}[machine]
	if system == "" || arch == "" {
		return kernel + "/" + machine
	}
	return system + "/" + arch
}

package untrusted

import (
	"io/fs"
	"math"
	"os"
	"syscall"
)

// Open opens a file below root for reading, of any size. Links are followed
// inside of root. The caller closes it.
func Open(root *os.Root, name string) (*os.File, error) {
	info, err := root.Stat(name)
	if err == nil {
		err = check(info, math.MaxInt64)
	}
	if err != nil {
		return nil, plain(err)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, plain(err)
	}
	var opened fs.FileInfo
	if opened, err = f.Stat(); err == nil {
		err = check(opened, math.MaxInt64)
	}
	if err != nil {
		_ = f.Close()
		return nil, plain(err)
	}
	return f, nil
}

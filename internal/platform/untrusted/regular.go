// Package untrusted reads files that someone else may have created.
//
// It reads regular files only, never blocks on a pipe, opens no device, follows no
// link out of a folder that was opened as a root, and stops at a size limit. It does
// not interpret the content.
package untrusted

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrKind is returned, wrapped, unless the file is regular; ErrSize for a file
// that is too large.
var (
	ErrKind = errors.New("not a regular file")
	ErrSize = errors.New("too large")
)

// Read reads the whole of a file below root. Links are followed inside of root.
func Read(root *os.Root, name string, most int64) ([]byte, error) {
	// Looked at before it is opened, since to open a device may already do
	// something; and again after, since it may have been swapped.
	info, err := root.Stat(name)
	if err == nil {
		err = check(info, most)
	}
	if err != nil {
		return nil, plain(err)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, plain(err)
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err == nil {
		err = check(info, most)
	}
	if err != nil {
		return nil, plain(err)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("more than %d bytes: %w", most, ErrSize)
	}
	if err != nil {
		return nil, plain(err)
	}
	return data, nil
}

func check(info fs.FileInfo, most int64) error {
	switch {
	case info.IsDir() && info.Mode()&fs.ModeSticky != 0:
		return fs.ErrNotExist // a sandbox has put it where no command may make a file
	case !info.Mode().IsRegular():
		return ErrKind
	case info.Size() > most:
		return fmt.Errorf("%d bytes, more than %d: %w", info.Size(), most, ErrSize)
	}
	return nil
}

// plain takes the names of system calls and of files out of an error: callers
// name the file as the user knows it.
func plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

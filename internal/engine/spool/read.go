package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// DefaultRead is the default limit of a read, in bytes.
const DefaultRead = 64 << 10

// followEvery is the polling interval of a followed file.
const followEvery = 50 * time.Millisecond

// ErrTruncated is returned when a file is shorter than the offset: it was truncated or
// replaced. Read again from 0.
var ErrTruncated = errors.New("output is shorter than what was read of it")

// readable is the descriptor of an output file that is read. Most are opened for one read, for which
// an [os.File] would cost more calls than the read.
type readable int

func (f readable) close() { _ = unix.Close(int(f)) }

// openRead opens an output file for reading and returns its size.
func openRead(path string) (f readable, size int64, err error) {
	fd, err := openBelow("", path, unix.O_RDONLY)
	if err == nil {
		if size, err = check(fd); err != nil {
			_ = unix.Close(fd)
		}
	}
	if err != nil {
		return -1, 0, &fs.PathError{Op: "read output", Path: path, Err: err}
	}
	return readable(fd), size, nil
}

// ReadAt reads up to limit bytes from offset (0: [DefaultRead]; at least 4) and returns the
// next offset. An incomplete character is left for the next read, unless the writer has ended.
// At the end of the file data is empty. For a file shorter than offset the error is
// [ErrTruncated] and next is 0.
func ReadAt(path string, offset int64, limit int, ended bool) (data []byte, next int64, err error) {
	f, size, err := openRead(path)
	if err != nil {
		return nil, offset, err
	}
	defer f.close()
	if offset < 0 {
		return nil, offset, fmt.Errorf("read output %s: offset %d is below 0", path, offset)
	}
	if size < offset {
		return nil, 0, fmt.Errorf("read output %s: %w: %d of %d bytes", path, ErrTruncated, size, offset)
	}
	if limit <= 0 {
		limit = DefaultRead
	}
	// Fewer bytes might not hold one character, and reading would make no progress.
	limit = max(limit, utf8.UTFMax)
	data, err = readRange(f, offset, min(size-offset, int64(limit)))
	if err != nil {
		return nil, offset, fmt.Errorf("read output %s: %w", path, err)
	}
	if atEnd := offset+int64(len(data)) >= size; !ended || !atEnd {
		data = data[:wholeRunes(data)]
	}
	return data, offset + int64(len(data)), nil
}

// readRange reads n bytes, or fewer if the file was truncated meanwhile.
func readRange(f readable, offset, n int64) ([]byte, error) {
	data := make([]byte, n)
	for got := 0; got < len(data); {
		more, err := unix.Pread(int(f), data[got:], offset+int64(got))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case more == 0:
			return data[:got], nil
		default:
			got += more
		}
	}
	return data, nil
}

// wholeRunes returns the length of data without an incomplete character at its end. Bytes that
// can never become a character count as complete.
func wholeRunes(data []byte) int {
	for i := len(data) - 1; i >= 0 && i >= len(data)-utf8.UTFMax; i-- {
		if utf8.RuneStart(data[i]) {
			if utf8.FullRune(data[i:]) {
				break
			}
			return i
		}
	}
	return len(data)
}

// Tail reads the last lines, at most limit bytes (0: [DefaultRead]), and returns the offset of
// the first byte. With lines of 0 or less only the limit applies. A line that the limit cuts
// begins with a complete character.
func Tail(path string, lines, limit int) (data []byte, offset int64, err error) {
	f, size, err := openRead(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.close()
	if limit <= 0 {
		limit = DefaultRead
	}
	offset = max(0, size-int64(limit))
	data, err = readRange(f, offset, size-offset)
	if err != nil {
		return nil, 0, fmt.Errorf("read output %s: %w", path, err)
	}
	cut := lastLines(data, lines)
	if cut == 0 && offset > 0 {
		for cut < len(data) && cut < utf8.UTFMax-1 && !utf8.RuneStart(data[cut]) {
			cut++
		}
	}
	return data[cut:], offset + int64(cut), nil
}

// lastLines returns where the last n lines of data begin. A newline at the very end ends the
// last line and begins none.
func lastLines(data []byte, n int) int {
	if n <= 0 {
		return 0
	}
	end := len(data)
	if end > 0 && data[end-1] == '\n' {
		end--
	}
	for ; n > 0; n-- {
		end = bytes.LastIndexByte(data[:end], '\n')
		if end < 0 {
			return 0
		}
	}
	return end + 1
}

// Excerpt returns the end of the output, up to limit code points (an invalid byte counts as
// one), and whether something before it was left out.
func Excerpt(path string, limit int) (text string, cut bool, err error) {
	if limit <= 0 {
		return "", false, fmt.Errorf("read output %s: limit %d is not above 0", path, limit)
	}
	data, offset, err := Tail(path, 0, limit*utf8.UTFMax)
	if err != nil {
		return "", false, err
	}
	start := len(data)
	for ; limit > 0 && start > 0; limit-- {
		_, n := utf8.DecodeLastRune(data[:start])
		start -= n
	}
	return string(data[start:]), offset > 0 || start > 0, nil
}

// Follow waits until [ReadAt] from offset has data, or until the writer is done, which closes the channel ended,
// and then returns nil. It polls the file, so it costs time only while somebody waits. When ctx ends it returns
// the cause.
func Follow(ctx context.Context, path string, offset int64, ended <-chan struct{}) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		// Whether it has ended is asked before the file is read, so that everything written before the
		// end is seen.
		done := false
		select {
		case <-ended:
			done = true
		default:
		}
		data, _, err := ReadAt(path, offset, utf8.UTFMax, done)
		switch {
		case errors.Is(err, ErrTruncated):
			return nil
		case err != nil || done || len(data) > 0:
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ended:
		case <-tick.C:
		}
	}
}

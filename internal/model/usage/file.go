package usage

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// FileName is the file in the folder of a session.
const FileName = "usage.jsonl"

// maxLine bounds a line; ours have some 400 bytes.
const maxLine = 16 << 10

// Read yields the calls of a file in their order and returns how many lines it
// skipped: a line that a kill has cut, or that is not ours. A missing file has no
// calls.
func Read(path string, yield func(Call)) (skipped int, err error) {
	f, err := open(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read usage: %w", err)
	}
	defer f.Close()
	skipped, err = scan(f, yield)
	if err != nil {
		return skipped, fmt.Errorf("read usage in %s: %w", path, err)
	}
	return skipped, nil
}

func scan(r io.Reader, yield func(Call)) (skipped int, err error) {
	in := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) { // pass over the rest of it
			_, err = in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return skipped, err
		}
		c, ok := Call{}, false
		if !long {
			c, ok = parse(line)
		}
		switch {
		case ok:
			yield(c)
		case long || len(bytes.TrimSpace(line)) > 0: // an empty line follows a cut one
			skipped++
		}
		if err != nil {
			return skipped, nil
		}
	}
}

// parse reads a line. It refuses a line with impossible figures as not ours.
func parse(line []byte) (Call, bool) {
	var c Call
	if err := json.Unmarshal(line, &c); err != nil {
		return Call{}, false
	}
	c.AgentID, c.AgentType, c.Model = label(c.AgentID), label(c.AgentType), label(c.Model)
	priced := c.USD == nil || *c.USD >= 0 && *c.USD < most
	return c, believable(c.Usage) && priced && !c.Time.IsZero() && c.DurationMS >= 0
}

// file appends to the file of calls. The first call creates it: a session that calls
// no model has no file. It is for one goroutine at a time.
type file struct {
	f    io.WriteCloser // nil until there is something to write
	path string
	owed []byte // lines that could not be written yet
}

// begin opens the file, and ends an unfinished last line.
func (f *file) begin() error {
	end, err := open(f.path, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return fmt.Errorf("keep usage: %w", err)
	}
	size, err := end.Seek(0, io.SeekEnd)
	if err == nil && size > 0 {
		last := make([]byte, 1)
		if _, err = end.ReadAt(last, size-1); last[0] != '\n' {
			f.owed = append([]byte{'\n'}, f.owed...)
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keep usage in %s: %w", f.path, err), end.Close())
	}
	f.f = end
	return nil
}

// close writes pending calls and closes the file.
func (f *file) close() error {
	err := f.flush()
	if f.f == nil {
		return err
	}
	if closed := f.f.Close(); err == nil && closed != nil {
		err = fmt.Errorf("keep usage: %w", closed)
	}
	return err
}

// open takes a regular file. Neither that nor its folder is a link.
func open(path string, flags int) (*os.File, error) {
	f, err := saferoot.Near(path).Open(path, flags|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file (move it away)", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// add adds a call to the pending ones.
func (f *file) add(c Call) error {
	line, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("keep usage in %s: %w", f.path, err)
	}
	f.owed = append(append(f.owed, line...), '\n')
	return nil
}

// flush writes pending calls. It may be called again after an error, and then continues
// where the disk was full.
func (f *file) flush() error {
	if len(f.owed) == 0 {
		return nil
	}
	if f.f == nil {
		if err := f.begin(); err != nil {
			return err
		}
	}
	n, err := f.f.Write(f.owed)
	f.owed = f.owed[n:]
	if err != nil {
		return fmt.Errorf("keep usage in %s: %w (make room, or see that it can be written)", f.path, err)
	}
	return nil
}

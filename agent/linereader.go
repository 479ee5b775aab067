package agent

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lineReader reads lines from the start of a file. A line that is too long
// reads as an empty one.
type lineReader struct {
	in    *bufio.Reader
	text  []byte
	begin int64 // of the line that was returned last
	end   int64 // of what was read so far
}

func newLineReader(in io.Reader) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(in, 256<<10)}
}

// next returns a line without its newline, which is the caller's to keep, and
// io.EOF for what follows the last newline.
func (r *lineReader) next() ([]byte, error) {
	r.text, r.begin = nil, r.end
	size := 0
	for {
		part, err := r.in.ReadSlice('\n')
		r.end += int64(len(part))
		if size += len(part); size <= maxLineBytes {
			r.text = append(r.text, part...)
		} else {
			r.text = nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return bytes.TrimSuffix(r.text, []byte("\n")), nil
	}
}

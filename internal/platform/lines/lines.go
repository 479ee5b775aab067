// Package lines reads lines and server-sent events of bounded length.
//
// Of lines it owns no reader: the caller keeps the [bufio.Reader]. It promises that a line above the limit is read
// to its end without being kept, so that the next line can be read. It does not decode lines
// or the data of events.
package lines

import (
	"bufio"
	"bytes"
	"errors"
)

// Head is how many bytes of a line above the limit [Read] keeps, enough to find the ID of a message.
const Head = 4 << 10

// Read returns the next line with its end, and its length in bytes. Of a line above the limit it returns at
// most the first [Head] bytes. The last line of the input comes with the error of the reader.
func Read(r *bufio.Reader, limit int) (line []byte, size int, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if size += len(part); size > limit {
			if len(line) > Head {
				line = bytes.Clone(line[:Head]) // releases a long buffer
			}
			part = part[:min(len(part), Head-len(line))]
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, size, err
		}
	}
}

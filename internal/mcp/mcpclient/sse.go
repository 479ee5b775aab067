package mcpclient

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// maxRetry bounds the pause that a server can ask for.
const maxRetry = 30 * time.Second

// events reads server-sent events; see the HTML standard. It returns an error that
// wraps [ErrTooLong] for an event with more data than the limit.
type events struct {
	lines *lines
	limit int
	last  string // ID of the newest event that had one
	name  string // of the event that was read last; empty: message
	head  []byte // edges of the line that was too long, as is the next
	tail  []byte
	retry time.Duration // the server's request; 0: none
}

func newEvents(r io.Reader, limit int, m *meter) *events {
	return &events{lines: newLines(r, limit+len("data: "), m), limit: limit}
}

// next returns the data of the next event that has any.
func (e *events) next() ([]byte, error) {
	var data []byte
	got := false
	e.name = ""
	for {
		one, err := e.lines.next()
		switch {
		case err != nil:
			return nil, err // an event without its empty line does not count
		case one.long || len(data)+len(one.data) > e.limit:
			e.head, e.tail = longData(one)
			return nil, ErrTooLong
		case len(one.data) == 0:
			if got && len(data) > 0 {
				return data, nil
			}
			data, got, e.name = nil, false, ""
			continue
		}
		key, value, _ := bytes.Cut(bytes.TrimPrefix(one.data, []byte("\xef\xbb\xbf")), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(key) {
		case "data":
			if got {
				data = append(data, '\n')
			}
			data, got = append(data, value...), true
		case "event":
			e.name = string(value[:min(len(value), 100)])
		case "id":
			if len(value) <= 1024 && !bytes.ContainsAny(value, "\x00\r\n") {
				e.last = string(value)
			}
		case "retry":
			if ms, err := strconv.Atoi(string(value)); err == nil && ms >= 0 {
				e.retry = min(time.Duration(min(ms, int(maxRetry.Milliseconds())))*time.Millisecond, maxRetry)
			}
		}
	}
}

// broken reports whether a stream has only ended, so that it can be resumed.
func broken(err error) bool { return !errors.Is(err, ErrTooLong) && !errors.Is(err, errMeter) }

package mcpclient

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	edge     = 4 << 10  // bytes of a long line that are kept at either end
	saidKept = 64 << 10 // bytes of a server's output for people
	junkKept = 1 << 10  // of a line of stdout that is not a message
)

// meter bounds the bytes that are being read from one server at the same time.
type meter struct {
	used atomic.Int64 // bytes
	most int64
}

var errMeter = errors.New("it sends more at the same time than is read of one server")

func (m *meter) take(n int) error {
	if m.used.Add(int64(n)) > m.most {
		return fmt.Errorf("%w: %d bytes", errMeter, m.most)
	}
	return nil
}

func (m *meter) give(n int) { m.used.Add(-int64(n)) }

// lines reads lines, and keeps only the ends of a line above a limit.
type lines struct {
	r     *bufio.Reader
	limit int
	meter *meter
	buf   []byte
	taken int // bytes of the line so far, as the meter has them
}

// line is a line without its end. A long one has its two ends only.
type line struct {
	data []byte // valid until the next is read
	tail []byte // of a long one
	long bool
}

func newLines(r io.Reader, limit int, m *meter) *lines {
	return &lines{r: bufio.NewReaderSize(r, 32<<10), limit: limit, meter: m}
}

// next reads a line. It returns an error of the reader after the last line, and an
// error of the meter for a line that must not be read on.
func (l *lines) next() (line, error) {
	l.done()
	var tail []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(part) > 0 {
			if full := l.meter.take(len(part)); full != nil {
				l.meter.give(len(part))
				return line{}, full
			}
			l.taken += len(part)
		}
		switch {
		case tail != nil:
			tail = last(append(tail, part...), edge)
		case len(l.buf)+len(part) > l.limit+1: // its end does not count
			tail = last(append(bytes.Clone(last(l.buf, edge)), part...), edge)
			l.buf = bytes.Clone(l.buf[:min(len(l.buf), edge)])
			if len(l.buf) < edge {
				l.buf = append(l.buf, part[:min(len(part), edge-len(l.buf))]...)
			}
		default:
			l.buf = append(l.buf, part...)
		}
		switch {
		case err == nil:
			return line{bytes.TrimRight(l.buf, "\r\n"), tail, tail != nil}, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case len(l.buf) > 0 && errors.Is(err, io.EOF):
			return line{bytes.TrimRight(l.buf, "\r\n"), tail, tail != nil}, nil
		default:
			return line{}, err
		}
	}
}

// done releases the line that was read last.
func (l *lines) done() {
	l.meter.give(l.taken)
	l.taken = 0
	if cap(l.buf) > 1<<20 {
		l.buf = nil
	}
	l.buf = l.buf[:0]
}

// last returns the end of data, at most n bytes.
func last(data []byte, n int) []byte { return data[max(0, len(data)-n):] }

// ring keeps the end of the written text. Its methods may be called by several
// goroutines.
type ring struct {
	mu   sync.Mutex
	kept []byte // guarded by mu
}

func (r *ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = append(r.kept, last(p, saidKept)...)
	if over := len(r.kept) - saidKept; over > 0 {
		r.kept = r.kept[:copy(r.kept, r.kept[over:])]
	}
	return len(p), nil
}

func (r *ring) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.kept)
}

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

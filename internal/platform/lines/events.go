package lines

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Event is one server-sent event. Its bytes are valid until the next one is read.
type Event struct {
	ID, Name []byte // often empty
	Data     []byte // lines are joined by newlines
}

// Events reads an event stream (WHATWG HTML, "Server-sent events"). It skips comments
// and events without data, and, as the standard says, an event that the end of the
// stream cuts.
type Events struct {
	r     *bufio.Reader
	limit int    // of the bytes of one event's data, or of a line
	over  error  // of an event above the limit
	line  []byte // a line that is longer than the buffer of r
	event Event
	begun bool
}

// NewEvents reads from r. An event with more data than limit bytes ends the stream with the error over.
func NewEvents(r io.Reader, limit int, over error) *Events {
	return &Events{r: bufio.NewReaderSize(r, 32<<10), limit: limit, over: over}
}

// Next returns the next event. At the end of the stream the error is io.EOF.
func (e *Events) Next() (*Event, error) {
	e.event.reset()
	hasData := false
	for {
		line, err := e.next()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			if hasData && len(bytes.TrimSpace(e.event.Data)) > 0 {
				return &e.event, nil
			}
			e.event.reset()
			hasData = false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "id":
			e.event.ID = append(e.event.ID[:0], value...)
		case "event":
			e.event.Name = append(e.event.Name[:0], value...)
		case "data":
			if hasData {
				e.event.Data = append(e.event.Data, '\n')
			}
			hasData = true
			if len(e.event.Data)+len(value) > e.limit {
				return nil, e.over
			}
			e.event.Data = append(e.event.Data, value...)
		}
	}
}

func (e *Event) reset() { e.ID, e.Name, e.Data = e.ID[:0], e.Name[:0], e.Data[:0] }

// next returns a line without its end. It drops text after the last line end, which is
// a cut line.
func (e *Events) next() ([]byte, error) {
	line, err := e.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line, err = e.long(line)
	}
	if err != nil {
		return nil, err
	}
	line = bytes.TrimSuffix(line[:len(line)-1], []byte("\r"))
	if !e.begun {
		e.begun = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	return line, nil
}

// long reads the rest of a line that does not fit into the buffer.
func (e *Events) long(head []byte) ([]byte, error) {
	e.line = append(e.line[:0], head...)
	for {
		part, err := e.r.ReadSlice('\n')
		if len(e.line)+len(part) > e.limit {
			return nil, e.over
		}
		e.line = append(e.line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return e.line, err
		}
	}
}

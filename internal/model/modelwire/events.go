package modelwire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxEvent bounds one event in bytes: more than the longest tool input that a tool
// accepts, and little enough to hold.
const maxEvent = 16 << 20

// Event is one server-sent event. Its bytes are valid until the next one is read.
type Event struct {
	Name []byte // often empty
	Data []byte // lines are joined by newlines
}

// Events reads an event stream (WHATWG HTML, "Server-sent events"). It skips comments
// and events without data, and, as the standard says, an event that the end of the
// stream cuts.
type Events struct {
	r     *bufio.Reader
	line  []byte // a line that is longer than the buffer of r
	event Event
	begun bool
}

// NewEvents reads from r.
func NewEvents(r io.Reader) *Events { return &Events{r: bufio.NewReaderSize(r, 32<<10)} }

// Next returns the next event. At the end of the stream the error is io.EOF.
func (e *Events) Next() (*Event, error) {
	e.event.Name, e.event.Data = e.event.Name[:0], e.event.Data[:0]
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
			e.event.Name, e.event.Data, hasData = e.event.Name[:0], e.event.Data[:0], false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			e.event.Name = append(e.event.Name[:0], value...)
		case "data":
			if hasData {
				e.event.Data = append(e.event.Data, '\n')
			}
			hasData = true
			if len(e.event.Data)+len(value) > maxEvent {
				return nil, errTooLarge()
			}
			e.event.Data = append(e.event.Data, value...)
		}
	}
}

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
		if len(e.line)+len(part) > maxEvent {
			return nil, errTooLarge()
		}
		e.line = append(e.line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return e.line, err
		}
	}
}

func errTooLarge() error {
	return &Useless{fmt.Sprintf("an event is larger than %d MiB", maxEvent>>20)}
}

package acpwire

import (
	"fmt"
	"io"
	"time"
)

const (
	maxQueued = 256             // messages that wait to be written
	lastWrite = 2 * time.Second // for messages after the end of the connection
)

// outbox writes messages in order. A peer that does not read blocks the senders until the connection ends.
type outbox struct {
	queue  chan []byte
	ending chan struct{} // closed by close: queued messages are written, and no more are taken
	late   chan struct{} // closed some time after expire: senders no longer wait for a peer that has left
	timer  *time.Timer   // closes late; nil: not set
	broken chan struct{} // closed when a write has failed
	done   chan struct{} // closed when the writer has ended
	err    error         // set before broken is closed
}

// newOutbox starts to write. A write cannot be cancelled, so the writing goroutine ends with close or with
// the write that close has found.
func newOutbox(w io.Writer) *outbox {
	o := &outbox{queue: make(chan []byte, maxQueued), ending: make(chan struct{}), late: make(chan struct{}),
		broken: make(chan struct{}), done: make(chan struct{})}
	go o.write(w) // ends with close, or with its write
	return o
}

func (o *outbox) write(w io.Writer) {
	defer close(o.done)
	for ending := o.ending; ; {
		var line []byte
		select {
		case line = <-o.queue:
		default:
			if ending == nil { // closed, and the queue is empty
				return
			}
			select {
			case line = <-o.queue:
			case <-ending:
				ending = nil
				continue
			}
		}
		if _, err := w.Write(line); err != nil {
			o.err = fmt.Errorf("write: %w", err)
			close(o.broken)
			return
		}
	}
}

// put queues a message. It blocks while the queue is full.
func (o *outbox) put(line []byte) error {
	select {
	case <-o.ending:
		return ErrClosed
	default:
	}
	select {
	case o.queue <- line:
		return nil
	case <-o.ending:
	case <-o.late:
	case <-o.broken:
		return o.err
	}
	return ErrClosed
}

// expire bounds how long a peer that has left may block senders.
func (o *outbox) expire() { o.timer = time.AfterFunc(lastWrite, func() { close(o.late) }) }

// close returns when the queued messages are written, or when the time of expire is over.
func (o *outbox) close() {
	close(o.ending)
	select {
	case <-o.done:
		o.timer.Stop()
	case <-o.late:
	}
}

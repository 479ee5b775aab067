package control

import (
	"strconv"
	"sync"

	"github.com/drover-dev/drover/task"
)

// encodedBytes limits the encoded newest events that a server keeps for further readers.
const encodedBytes = 4 << 20

// encoded keeps events in encoded form, so that each is encoded once for all readers at about
// the same position, and stalled readers share the bytes. The zero value is ready.
type encoded struct {
	mu     sync.Mutex // guards the fields below
	events map[task.Seq]*encodedEvent
	order  []task.Seq // the oldest first
	bytes  int
}

// encodedEvent is an event under Drover's name, with the derived foreign events.
type encodedEvent struct {
	once  sync.Once
	own   []byte
	named []byte
	err   error
}

// of returns the encoded form of an event.
func (c *encoded) of(e task.Event) *encodedEvent {
	c.mu.Lock()
	one := c.events[e.Seq]
	if one == nil {
		if c.events == nil {
			c.events = map[task.Seq]*encodedEvent{}
		}
		one = &encodedEvent{}
		c.events[e.Seq] = one
	}
	c.mu.Unlock()
	one.once.Do(func() {
		one.encode(e)
		c.keep(e.Seq, len(one.own)+len(one.named))
	})
	return one
}

func (one *encodedEvent) encode(e task.Event) {
	if one.own, one.err = appendEvent(nil, strconv.FormatInt(int64(e.Seq), 10), string(e.Verb), e); one.err != nil {
		return
	}
	for _, d := range derive(e) {
		if one.named, one.err = appendEvent(one.named, "", d.name, d.data); one.err != nil {
			return
		}
	}
}

// keep adds an event, and drops the oldest while there are too many.
func (c *encoded) keep(seq task.Seq, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order, c.bytes = append(c.order, seq), c.bytes+bytes
	if c.bytes <= encodedBytes {
		return
	}
	n := 0
	for c.bytes > encodedBytes/4*3 && n < len(c.order)-1 { // several at once, since each removal moves the others
		old := c.events[c.order[n]]
		c.bytes -= len(old.own) + len(old.named)
		delete(c.events, c.order[n])
		n++
	}
	c.order = append(c.order[:0], c.order[n:]...)
}

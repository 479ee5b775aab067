package modelwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// maxStream bounds one answer in bytes, uncompressed. The longest answers of
// models have a quarter of it; a larger one comes from a broken server.
const maxStream = 64 << 20

// drainTime bounds the wait for the end of a body after its last event. A body that is
// read to its end leaves a connection that can be used again.
const drainTime = 250 * time.Millisecond

// errIdle is the cause of a call that was cut because nothing came.
var errIdle = errors.New("nothing came for too long")

// watch ends a call when no byte comes for a while. It counts from the start of
// the call to the head of the answer, and then only during reads: a slow
// reader of ours is not the provider's silence.
type watch struct {
	idle  time.Duration
	timer *time.Timer
}

func newWatch(idle time.Duration, cancel context.CancelCauseFunc) *watch {
	return &watch{idle: idle, timer: time.AfterFunc(idle, func() {
		cancel(fmt.Errorf("%w (%v)", errIdle, idle))
	})}
}

func (w *watch) begin() { w.timer.Reset(w.idle) }
func (w *watch) stop()  { w.timer.Stop() }

// drain reads a body to its end, for a short time only.
func (w *watch) drain(body io.Reader) {
	w.idle = min(w.idle, drainTime)
	_, _ = io.Copy(io.Discard, io.LimitReader(body, 4096)) // at worst the connection is not used again
}

// watched is a body under a watch. It ends after maxStream bytes.
type watched struct {
	body  io.ReadCloser
	watch *watch
	read  int
	ended bool // in order, or by a last event
}

func (b *watched) Read(p []byte) (int, error) {
	b.watch.begin()
	n, err := b.body.Read(p)
	b.watch.stop()
	b.ended = b.ended || errors.Is(err, io.EOF)
	if b.read += n; b.read > maxStream {
		return n, &Useless{fmt.Sprintf("the answer is larger than %d MiB", maxStream>>20)}
	}
	return n, err
}

func (b *watched) Close() error { return b.body.Close() }

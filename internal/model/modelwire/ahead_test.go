package modelwire

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent"
)

// calls counts those that are under way, and lets their answers begin.
type calls struct {
	mu      sync.Mutex
	begun   int
	answers chan error
}

func (c *calls) call(on func(agent.Part)) (*agent.Reply, error) {
	c.mu.Lock()
	c.begun++
	c.mu.Unlock()
	on(agent.Part{Kind: agent.RetryPart})
	if err := <-c.answers; err != nil {
		return nil, err
	}
	on(agent.Part{Kind: agent.TextPart, Text: "x"})
	return &agent.Reply{}, <-c.answers
}

func (c *calls) under() int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

func TestAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Ahead
		c := &calls{answers: make(chan error)}
		var all sync.WaitGroup
		start := func(n int, head string) {
			for range n {
				all.Go(func() { _, _ = a.Reply(t.Context(), []byte(head), func(agent.Part) {}, c.call) })
			}
		}
		start(5, "one")
		if n := c.under(); n != 1 {
			t.Fatalf("%d calls are made at once, want 1", n)
		}
		start(1, "other")
		if n := c.under(); n != 2 {
			t.Fatalf("another head waits: %d calls", n)
		}
		c.answers <- errors.New("failed") // either
		if n := c.under(); n < 2 || n > 3 {
			t.Fatalf("%d calls after a failure", n)
		}
		for c.under() < 6 {
			c.answers <- nil
		}
		start(1, "one") // the provider has it now
		if n := c.under(); n != 7 {
			t.Errorf("a later call waits: %d", n)
		}
		close(c.answers)
		all.Wait()
	})
}

// Nobody waits for ever, nor after the end of its turn.
func TestAheadWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Ahead
		c := &calls{answers: make(chan error)}
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		all.Go(func() {
			_, _ = a.Reply(t.Context(), nil, nil, func(func(agent.Part)) (*agent.Reply, error) { return c.call(func(agent.Part) {}) })
		})
		synctest.Wait()
		all.Go(func() { _, _ = a.Reply(ctx, nil, func(agent.Part) {}, c.call) })
		synctest.Wait()
		cancel()
		if n := c.under(); n != 2 || time.Since(start) != 0 {
			t.Errorf("%d calls after %v", n, time.Since(start))
		}
		all.Go(func() { _, _ = a.Reply(t.Context(), nil, func(agent.Part) {}, c.call) })
		time.Sleep(aheadWait + time.Second)
		if n := c.under(); n != 3 {
			t.Errorf("%d calls after the time to wait", n)
		}
		close(c.answers)
		all.Wait()
	})
}

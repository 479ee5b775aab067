package modelwire

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
)

const (
	aheadWait = 3 * time.Second // for the call that goes ahead
	aheadKept = time.Hour       // how long a provider caches the head
	maxAhead  = 256             // heads that are remembered
)

// Ahead lets one call go ahead of others with the same head: the others read the head from the
// cache of the provider, which they can once the answer of the first has begun. Without it, agents
// of one type that are started together would each pay for writing the same.
// The zero value is ready. It may be used by several goroutines.
type Ahead struct {
	mu    sync.Mutex
	heads map[[sha256.Size]byte]*ahead
}

// ahead is the state of a head.
type ahead struct {
	begun chan struct{} // closed when the answer of the call that goes ahead has begun, or it has failed
	until time.Time     // when the provider forgets the head; zero: it is not known to have it
}

// Reply makes a call. If another call with the same head is in progress, it waits for the begin of
// that answer, for at most three seconds. If that call fails, another goes ahead.
func (a *Ahead) Reply(
	ctx context.Context, head []byte, on func(agent.Part), call func(on func(agent.Part)) (*agent.Reply, error),
) (*agent.Reply, error) {
	first := a.wait(ctx, sha256.Sum256(head))
	if first == nil {
		return call(on)
	}
	answered := false
	begin := sync.OnceFunc(func() { a.end(first, answered) })
	defer begin()
	reply, err := call(func(p agent.Part) {
		switch p.Kind {
		case agent.TextPart, agent.ThinkingPart, agent.ToolPart, agent.InputPart, agent.BlockPart:
			answered = true
			begin()
		case agent.RetryPart, agent.FallbackPart, agent.VoidPart:
		}
		if on != nil {
			on(p)
		}
	})
	answered = err == nil
	return reply, err
}

// wait returns when the call may be made: the ahead that it must end if it is the first, else nil.
func (a *Ahead) wait(ctx context.Context, key [sha256.Size]byte) *ahead {
	timer := time.NewTimer(aheadWait)
	defer timer.Stop()
	for {
		a.mu.Lock()
		one := a.heads[key]
		if one == nil || one.begun == nil && time.Now().After(one.until) {
			if a.heads == nil || len(a.heads) >= maxAhead {
				a.heads = map[[sha256.Size]byte]*ahead{}
			}
			one = &ahead{begun: make(chan struct{})}
			a.heads[key] = one
			a.mu.Unlock()
			return one
		}
		begun := one.begun
		if begun == nil {
			one.until = time.Now().Add(aheadKept)
		}
		a.mu.Unlock()
		if begun == nil {
			return nil
		}
		select {
		case <-begun:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil // the call itself says why
		}
	}
}

func (a *Ahead) end(one *ahead, answered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(one.begun)
	one.begun = nil
	if answered {
		one.until = time.Now().Add(aheadKept)
	}
}

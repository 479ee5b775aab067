package modelwire

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/drover-dev/drover/agent"
)

// maxHeads bounds the remembered heads: agents of one type share a head.
const maxHeads = 64

// Heads remembers the encoded beginnings of requests. System prompt and tools are the same
// in each turn of an agent, and encoding them costs more than all else of a short request.
// The zero value is ready. It may be used by several goroutines.
type Heads struct {
	once sync.Once
	seed maphash.Seed

	mu   sync.Mutex
	made map[headKey]head
}

// headKey identifies a head together with its tools, which are compared separately.
type headKey struct {
	model, system string
	maxTokens     int
	thinking      agent.Thinking
	retain        agent.Retain
	tools         uint64
}

type head struct {
	tools []agent.ToolSpec
	out   []byte
}

// Of returns the head of req, and calls make to encode an unknown one. The head must depend on the
// model, the system prompt, the tools, MaxTokens, Thinking and Retain alone. The caller must not
// change it. Of does not remember errors.
func (h *Heads) Of(req *agent.Request, make func() ([]byte, error)) ([]byte, error) {
	h.once.Do(func() { h.seed = maphash.MakeSeed() })
	key := headKey{req.Model, req.System, req.MaxTokens, req.Thinking, req.Retain, h.sum(req.Tools)}
	h.mu.Lock()
	known, ok := h.made[key]
	h.mu.Unlock()
	if ok && slices.EqualFunc(known.tools, req.Tools, sameTool) {
		return known.out, nil
	}
	out, err := make()
	if err != nil {
		return nil, err
	}
	out = slices.Clip(out)
	tools := slices.Clone(req.Tools)
	for i := range tools {
		tools[i].InputSchema = bytes.Clone(tools[i].InputSchema)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.made == nil || len(h.made) >= maxHeads {
		h.made = map[headKey]head{}
	}
	h.made[key] = head{tools, out}
	return out, nil
}

// sum hashes the content: a list at the same address may have changed.
func (h *Heads) sum(tools []agent.ToolSpec) (sum uint64) {
	for _, t := range tools {
		sum = 31*sum + maphash.String(h.seed, t.Name)
		sum = 31*sum + maphash.String(h.seed, t.Description)
		sum = 31*sum + maphash.Bytes(h.seed, t.InputSchema)
	}
	return sum
}

func sameTool(a, b agent.ToolSpec) bool {
	return a.Name == b.Name && a.Description == b.Description && bytes.Equal(a.InputSchema, b.InputSchema)
}

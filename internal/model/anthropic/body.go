package anthropic

import (
	"bytes"
	"net"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/modelinfo"
	"github.com/drover-dev/drover/internal/model/modelwire"
)

// lookBack is how many blocks before a mark the provider looks for an entry of its
// cache ("Prompt caching", 20-block lookback window).
const lookBack = 20

// marked asks for everything up to here to be cached, for five minutes from its last use, or for
// an hour. A request may have four: after the tools, after the system prompt, after the last
// message, which the provider puts there itself for a mark at the top, and now and then one more.
// Those that are kept for an hour come first, as the provider wants it.
type marked struct {
	Type string `json:"type"`
	TTL  string `json:"ttl,omitempty"` // 1h; empty: five minutes
}

func markFor(hour bool) marked {
	if hour {
		return marked{"ephemeral", "1h"}
	}
	return marked{Type: "ephemeral"}
}

// body returns the request in its wire form, in parts that share the bytes of the
// messages: a long conversation is neither encoded nor copied again. System and
// tools come first and are the same bytes in every call of an agent, as the
// provider's cache requires.
func (m *Model) body(req *agent.Request, model string) (net.Buffers, error) {
	begin, err := m.heads.Of(req, func() ([]byte, error) { return m.head(req, model) })
	if err != nil {
		return nil, err
	}
	parts := make(net.Buffers, 0, 2*len(req.Messages)+5)
	parts = append(parts, begin, []byte(`,"messages":[`))
	step := longStep(req.Messages)
	comma := []byte(",")
	for i, msg := range req.Messages {
		if i > 0 {
			parts = append(parts, comma)
		}
		raw, err := m.sendable(msg)
		if err != nil {
			return nil, err
		}
		if i == step {
			parts = append(parts, withMark(raw, req.Retain.All)...)
			continue
		}
		parts = append(parts, raw)
	}
	return append(parts, []byte("]}")), nil
}

// head returns the request up to its messages.
func (m *Model) head(req *agent.Request, model string) ([]byte, error) {
	type block struct {
		Type  string `json:"type"`
		Text  string `json:"text"`
		Cache marked `json:"cache_control"`
	}
	type tool struct {
		agent.ToolSpec
		Cache *marked `json:"cache_control,omitempty"`
	}
	shared := markFor(req.Retain.Head || req.Retain.All)
	head := struct {
		Model     string        `json:"model"`
		MaxTokens int           `json:"max_tokens"`
		Stream    bool          `json:"stream"`
		Cache     marked        `json:"cache_control"`
		Thinking  *thinking     `json:"thinking,omitempty"`
		Output    *outputConfig `json:"output_config,omitempty"`
		System    []block       `json:"system,omitempty"`
		Tools     []tool        `json:"tools,omitempty"`
	}{Model: model, MaxTokens: req.MaxTokens, Stream: true, Cache: markFor(req.Retain.All)}
	if head.MaxTokens == 0 {
		head.MaxTokens = m.maxTokens
		if most := modelinfo.MostOutput(model); most > 0 {
			head.MaxTokens = min(head.MaxTokens, int(most))
		}
	}
	head.Thinking, head.Output = think(req.Thinking, model)
	if t := head.Thinking; t != nil && t.Budget >= head.MaxTokens { // the limit holds for both
		head.MaxTokens = t.Budget + answerTokens
		if most := int(modelinfo.MostOutput(model)); most > 0 && head.MaxTokens > most {
			head.MaxTokens = most
			t.Budget = min(t.Budget, max(most-answerTokens, minThinking))
		}
	}
	if req.System != "" {
		head.System = []block{{Type: "text", Text: req.System, Cache: shared}}
	}
	for _, t := range req.Tools {
		head.Tools = append(head.Tools, tool{ToolSpec: t})
	}
	if n := len(head.Tools); n > 0 {
		head.Tools[n-1].Cache = &shared
	}
	return modelwire.Head(head)
}

// longStep returns the index of the message that ended the request before this one, if
// the provider would not look back that far for an entry of its cache; else -1. So
// short steps need no further mark and change no byte.
func longStep(messages []agent.Message) int {
	blocks, last := 0, len(messages)-1
	for i := last; i >= 0; i-- {
		if messages[i].Role() == agent.Assistant {
			blocks += bytes.Count(messages[i].Encoded(), []byte(`"type":"`))
			if blocks >= lookBack && i > 0 {
				return i - 1
			}
			return -1
		}
		blocks += bytes.Count(messages[i].Encoded(), []byte(`"type":"`))
	}
	return -1
}

// withMark returns a message with a mark on its last block, in parts. A message in
// another form than ours stays as it is: the mark only saves money.
func withMark(raw []byte, hour bool) net.Buffers {
	const end = `}]}`
	mark := `"cache_control":{"type":"ephemeral"}`
	if hour {
		mark = `"cache_control":{"type":"ephemeral","ttl":"1h"}`
	}
	if !bytes.HasPrefix(raw, []byte(`{"role":"user","content":[{"type":`)) || !bytes.HasSuffix(raw, []byte(end)) {
		return net.Buffers{raw}
	}
	return net.Buffers{raw[:len(raw)-len(end)], []byte("," + mark + end)}
}

// sendable returns a message in a form that the provider takes. It removes thoughts
// without a signature, which come from another provider's model and would be refused,
// and fits images into the limits. All other messages stay unchanged.
func (m *Model) sendable(msg agent.Message) ([]byte, error) {
	raw, change, mark := msg.Encoded(), m.fitting, `"type":"image"`
	if msg.Role() == agent.Assistant {
		change, mark = signed, `"thinking"`
	}
	if !bytes.Contains(raw, []byte(mark)) {
		return raw, nil
	}
	kept, err := m.messages.Of(msg, change)
	if kept == nil {
		return raw, err
	}
	return kept, err
}

// fitting returns nil for a message that is sent unchanged.
func (m *Model) fitting(msg agent.Message) ([]byte, error) {
	blocks, err := msg.Blocks()
	if err != nil {
		return nil, err
	}
	blocks, changed := modelwire.Fitting(blocks, m.images)
	if !changed {
		return nil, nil
	}
	return agent.NewMessage(msg.Role(), blocks...).Encoded(), nil
}

// signed returns nil for a message that is sent unchanged.
func signed(msg agent.Message) ([]byte, error) {
	blocks, err := msg.Blocks()
	if err != nil {
		return nil, err
	}
	kept := make([]agent.Block, 0, len(blocks))
	for _, b := range blocks {
		if b.Type != "thinking" || b.Signature != "" {
			kept = append(kept, b)
		}
	}
	if len(kept) == len(blocks) {
		return nil, nil
	}
	if len(kept) == 0 {
		kept = append(kept, agent.TextBlock("(no answer)"))
	}
	return agent.NewMessage(agent.Assistant, kept...).Encoded(), nil
}

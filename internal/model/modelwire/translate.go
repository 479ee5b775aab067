package modelwire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"weak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/modelinfo"
	"github.com/drover-dev/drover/internal/platform/jsonc"
	"github.com/drover-dev/drover/internal/platform/picture"
)

// Translations remembers messages in the form of a provider, so that a turn
// translates its new messages and not the whole conversation. It identifies a
// message by the address of its encoded bytes, which never change, and forgets
// it when the message itself is garbage. The zero value is ready. It may be used
// by several goroutines.
type Translations struct {
	mu   sync.Mutex
	made map[weak.Pointer[byte]]translation
}

type translation struct {
	of  int // bytes of the message, which a part of it has fewer of
	out []byte
}

// Of returns the translation of m, and calls make for an unknown message. It does not
// remember errors.
func (t *Translations) Of(m agent.Message, make func(agent.Message) ([]byte, error)) ([]byte, error) {
	raw := m.Encoded()
	if len(raw) == 0 {
		return make(m)
	}
	place := &raw[0]
	key := weak.Make(place)
	t.mu.Lock()
	known, ok := t.made[key]
	t.mu.Unlock()
	if ok && known.of == len(raw) {
		return known.out, nil
	}
	out, err := make(m)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made == nil {
		t.made = map[weak.Pointer[byte]]translation{}
	}
	if _, watched := t.made[key]; !watched {
		runtime.AddCleanup(place, t.forget, key)
	}
	t.made[key] = translation{of: len(raw), out: out}
	return out, nil
}

func (t *Translations) forget(key weak.Pointer[byte]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.made, key)
}

// ToolInput returns the input of a call as a JSON object. Other text is wrapped in
// an object, which a tool with a schema refuses; the model then reads its
// mistake.
func ToolInput(text string) json.RawMessage {
	text = strings.TrimSpace(text)
	if text == "" || text == "null" {
		return json.RawMessage("{}")
	}
	if text[0] == '{' && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	kept, err := json.Marshal(map[string]string{"invalid_input": text})
	if err != nil {
		return json.RawMessage("{}") // a string always encodes
	}
	return kept
}

// Fitting returns blocks whose images are within the limits of a provider: scaled down, or
// replaced by a text that says why they are missing. changed is false if all images fit.
func Fitting(blocks []agent.Block, of modelinfo.ImageLimits) (fit []agent.Block, changed bool) {
	for _, b := range blocks {
		var inner []agent.Block
		switch {
		case b.Type == "image":
			if fitting := fitImage(b, of); fitting != nil {
				b, changed = *fitting, true
			}
		case b.Type == "tool_result" && json.Unmarshal(b.Content, &inner) == nil:
			if inner, again := Fitting(inner, of); again {
				if raw, err := jsonc.Encode(inner); err == nil {
					b.Content, changed = raw, true
				}
			}
		}
		fit = append(fit, b)
	}
	return fit, changed
}

// fitImage returns nil for an image that is sent unchanged, also for an image at an address.
func fitImage(b agent.Block, of modelinfo.ImageLimits) *agent.Block {
	data, kind, err := picture.Content(b.Source)
	if err != nil || len(data) == 0 {
		return nil
	}
	fit, as, err := picture.Fit(data, kind, of.Side, of.Base64)
	switch {
	case err != nil:
		b = agent.TextBlock(fmt.Sprintf("[image left out: %v]", err))
	case len(fit) == len(data) && as == kind:
		return nil
	default:
		b.Source = picture.Source(fit, as)
	}
	return &b
}

const (
	bytesPerToken = 3     // hardly less than a token
	imageTokens   = 1_600 // of one image, as providers count a large one
)

// estimated returns the likely usage of an answer without token counts: by the bytes that were
// sent and received. Without it such calls would escape every budget.
func estimated(req *agent.Request, reply *agent.Reply) agent.Usage {
	u := agent.Usage{Estimated: true}
	if req != nil {
		size := len(req.System)
		for _, t := range req.Tools {
			size += len(t.Name) + len(t.Description) + len(t.InputSchema)
		}
		for _, m := range req.Messages {
			raw := m.Encoded()
			size += len(raw)
			if bytes.Contains(raw, []byte(`"type":"image"`)) {
				size += imageBytes(m)
			}
		}
		u.InputTokens = int64(max(size, 0)/bytesPerToken + 1)
	}
	u.OutputTokens = int64(len(agent.NewMessage(agent.Assistant, reply.Blocks...).Encoded())/bytesPerToken + 1)
	return u
}

// imageBytes returns the difference between the weight of a message's images and their bytes; it is
// mostly below 0.
func imageBytes(m agent.Message) (more int) {
	blocks, _ := m.Blocks() // an unreadable message counts by its bytes
	for _, b := range blocks {
		if n := bytes.Count(b.Content, []byte(`"type":"image"`)); n > 0 {
			more += n*imageTokens*bytesPerToken - len(b.Content)
		}
		if b.Type == "image" {
			more += imageTokens*bytesPerToken - len(b.Source)
		}
	}
	return more
}

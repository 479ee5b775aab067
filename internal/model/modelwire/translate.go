package modelwire

import (
	"encoding/json"
	"runtime"
	"strings"
	"sync"
	"weak"

	"github.com/drover-dev/drover/agent"
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

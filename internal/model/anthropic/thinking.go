package anthropic

import (
	"strconv"
	"strings"

	"github.com/drover-dev/drover/agent"
)

// minThinking is the smallest budget that the provider takes ("Extended thinking").
const minThinking = 1024

// answerTokens is the room for an answer after its thinking, where the thinking budget would take
// all tokens of a reply.
const answerTokens = 4096

// thinking is the parameter of that name in the Messages API.
type thinking struct {
	Type   string `json:"type"` // enabled, adaptive or disabled
	Budget int    `json:"budget_tokens,omitempty"`
}

// outputConfig is output_config in the Messages API.
type outputConfig struct {
	Effort string `json:"effort"`
}

// think returns the parameters that ask a model to think. Models up to 4.5 take a budget of
// tokens. Later ones decide for themselves, by effort ("Adaptive thinking"), and refuse a
// budget: it becomes an effort. A model with an unknown name gets a budget.
func think(t agent.Thinking, model string) (*thinking, *outputConfig) {
	if t == (agent.Thinking{}) {
		return nil, nil
	}
	if t.Tokens < 0 {
		return &thinking{Type: "disabled"}, nil
	}
	if !adaptive(model) {
		if t.Tokens == 0 {
			t.Tokens = map[string]int{"low": 4096, "medium": 10_000, "high": 16_000}[t.Effort]
		}
		if t.Tokens == 0 {
			t.Tokens = 31_999
		}
		return &thinking{Type: "enabled", Budget: max(t.Tokens, minThinking)}, nil
	}
	return &thinking{Type: "adaptive"}, &outputConfig{t.Nearest()}
}

// adaptive reports whether a model decides for itself how much it thinks: Claude 4.6 and
// later.
func adaptive(model string) bool {
	name := model[strings.LastIndexByte(model, '/')+1:]
	if !strings.HasPrefix(name, "claude-") {
		return false
	}
	var version []int
	for part := range strings.SplitSeq(name, "-") {
		if n, err := strconv.Atoi(part); err == nil && len(part) < 8 { // longer ones are dates
			version = append(version, n)
		}
	}
	switch {
	case len(version) == 0:
		return false
	case len(version) == 1:
		return version[0] >= 5
	}
	return version[0] > 4 || version[0] == 4 && version[1] >= 6
}

package usage

import (
	"strings"
	"time"
	"unicode"

	"github.com/drover-dev/drover/agent"
)

// Call is the cost of one call of a model: a line of the file.
type Call struct {
	Time      time.Time `json:"time"` // when it ended
	AgentID   string    `json:"agent_id"`
	AgentType string    `json:"agent_type"`
	Model     string    `json:"model"`
	agent.Usage
	USD        *float64 `json:"cost_usd"`            // null: the price was not known
	Estimated  bool     `json:"estimated,omitempty"` // the figures are ours: the provider gave no possible ones
	DurationMS int64    `json:"duration_ms"`

	// The place of the file; the reader of the file may set it.
	Project string `json:"-"`
	Session string `json:"-"`
}

// most is more than one call can hold. A higher figure counts as impossible, and
// sums of possible ones cannot overflow in practice.
const most = 1_000_000_000

// believable returns false for missing or impossible figures.
func believable(u agent.Usage) bool {
	sum := int64(0)
	for _, n := range []int64{u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWriteTokens} {
		if n < 0 || n > most {
			return false
		}
		sum += n
	}
	if u.HourWriteTokens < 0 || u.HourWriteTokens > u.CacheWriteTokens {
		return false
	}
	return sum > 0
}

// held returns the number of tokens in the request of a call.
func held(u agent.Usage) int64 { return u.InputTokens + u.CacheReadTokens + u.CacheWriteTokens }

// label makes a name fit for a line and for a terminal: names of agents and
// models come from files of others.
func label(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 200 {
		return string(r[:200])
	}
	return s
}

package usage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/drover-dev/drover/agent"
)

// By is a grouping of calls.
type By string

// The ways to add up.
const (
	ByAgent   By = "agent" // its type
	ByAgentID By = "agent_id"
	ByDay     By = "day"
	ByModel   By = "model"
	ByProject By = "project"
	BySession By = "session"
)

// ParseBy reads a grouping that a user may ask for.
func ParseBy(s string) (By, error) {
	all := []string{string(ByAgent), string(ByDay), string(ByProject), string(ByModel), string(BySession)}
	if !slices.Contains(all, s) {
		return "", fmt.Errorf("%q is none of %s", s, strings.Join(all, ", "))
	}
	return By(s), nil
}

// Sum is the sum of the costs of calls.
type Sum struct {
	Key        string  `json:"key,omitempty"`
	Calls      int     `json:"calls"`
	Input      int64   `json:"input_tokens"` // without the cache's
	Output     int64   `json:"output_tokens"`
	CacheRead  int64   `json:"cache_read_input_tokens"`
	CacheWrite int64   `json:"cache_creation_input_tokens"`
	HourWrite  int64   `json:"cache_creation_1h_input_tokens,omitempty"` // part of CacheWrite
	USD        float64 `json:"cost_usd"`                                 // of the calls with a known price
	Unpriced   int     `json:"unpriced_calls"`                           // the others
	Estimated  int     `json:"estimated_calls"`                          // with estimated figures
	ModelMS    int64   `json:"model_time_ms"`                            // summed over calls, also those that ran side by side
}

// Tokens returns the number of tokens that were read and written.
func (s Sum) Tokens() int64 { return s.Input + s.Output + s.CacheRead + s.CacheWrite }

func (s *Sum) add(c Call) {
	s.Calls++
	s.Input += c.InputTokens
	s.Output += c.OutputTokens
	s.CacheRead += c.CacheReadTokens
	s.CacheWrite += c.CacheWriteTokens
	s.HourWrite += c.HourWriteTokens
	s.ModelMS += c.DurationMS
	if c.Estimated {
		s.Estimated++
	}
	if c.USD == nil {
		s.Unpriced++
		return
	}
	s.USD += *c.USD
}

// Ledger adds calls up. The zero Ledger is empty and does not group; it is for
// one goroutine at a time.
type Ledger struct {
	total Sum
	rows  map[By]map[string]*Sum
}

// NewLedger returns an empty ledger with sums by each of the groupings.
func NewLedger(by ...By) *Ledger {
	l := &Ledger{rows: map[By]map[string]*Sum{}}
	for _, b := range by {
		l.rows[b] = map[string]*Sum{}
	}
	return l
}

// Add counts a call. Its day is the day in the zone of its time.
func (l *Ledger) Add(c Call) {
	l.total.add(c)
	for b, rows := range l.rows {
		key := b.key(c)
		s := rows[key]
		if s == nil {
			s = &Sum{Key: key}
			rows[key] = s
		}
		s.add(c)
	}
}

// Total returns the sum of all calls.
func (l *Ledger) Total() Sum { return l.total }

// Rows returns the sums by b, dearest first, and days in their order.
func (l *Ledger) Rows(b By) []Sum {
	rows := make([]Sum, 0, len(l.rows[b]))
	for s := range maps.Values(l.rows[b]) {
		rows = append(rows, *s)
	}
	slices.SortFunc(rows, func(x, y Sum) int {
		if b == ByDay {
			return cmp.Compare(x.Key, y.Key)
		}
		return cmp.Or(cmp.Compare(y.USD, x.USD), cmp.Compare(y.Tokens(), x.Tokens()), cmp.Compare(x.Key, y.Key))
	})
	return rows
}

func (b By) key(c Call) string {
	switch b {
	case ByAgent:
		return c.AgentType
	case ByAgentID:
		return c.AgentID
	case ByDay:
		return c.Time.Format(time.DateOnly)
	case ByModel:
		return c.Model
	case ByProject:
		return label(c.Project)
	}
	return c.Session
}

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

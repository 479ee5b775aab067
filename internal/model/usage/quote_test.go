package usage

import (
	"fmt"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
)

// A quote is made of runs of the same type and model, the calls of a run together; what is not
// known is not 0.
func TestQuote(t *testing.T) {
	var p Past
	at := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	add := func(id, agentType, model string, tokens int64, usd float64) {
		c := Call{Time: at, AgentID: id, AgentType: agentType, Model: model, Session: "s",
			Usage: agent.Usage{InputTokens: tokens - 10, OutputTokens: 10}}
		if usd >= 0 {
			c.USD = &usd
		}
		p.Add(c)
		at = at.Add(time.Minute)
	}
	for i := range 10 {
		id := fmt.Sprint("a", i)
		add(id, "explore", "big", 500, 0.25)
		add(id, "explore", "big", int64(500+100*i), 0.25)
	}
	add("b", "explore", "small", 1_000_000, 9)
	add("c", "writer", "big", 1_000_000, 9)
	q := p.Quote("explore", "big")
	if q.Like != 10 || q.Tokens == nil || *q.Tokens != (Range{1000, 1400, 1800}) || q.USD == nil || *q.USD != (Range{0.5, 0.5, 0.5}) {
		t.Errorf("%+v, tokens %+v, money %+v", q, q.Tokens, q.USD)
	}
	if q := p.Quote("explore", ""); q.Like != 11 {
		t.Errorf("of any model: %+v", q)
	}
	if q := p.Quote("explore", "provider/Big"); q.Like != 10 {
		t.Errorf("of the model in another spelling: %+v", q)
	}
	if q := p.Quote("writer", "big"); q.Like != 1 || q.Tokens != nil || q.USD != nil {
		t.Errorf("of one run: %+v", q)
	}
	for i := range 3 {
		add(fmt.Sprint("l", i), "writer", "local", 700, -1)
	}
	if q := p.Quote("writer", "local"); q.Tokens == nil || q.USD != nil {
		t.Errorf("without prices: %+v", q)
	}
	for i := range mostLike { // older runs do not count any more
		add(fmt.Sprint("n", i), "explore", "big", 50, 0)
	}
	if q := p.Quote("explore", "big"); q.Like != mostLike || q.Tokens.High != 50 || q.USD.High != 0 {
		t.Errorf("of the last runs: %+v, %+v", q, q.Tokens)
	}
}

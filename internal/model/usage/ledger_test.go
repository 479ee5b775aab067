package usage

import (
	"math"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
)

func TestLedger(t *testing.T) {
	l := NewLedger(ByAgent, ByDay, ByModel, ByModel, ByProject, BySession)
	for i, c := range []Call{
		call("main", "sonnet", 10, 0.5), call("explore", "haiku", 20, 0.1), call("explore", "llama", 30, -1), call("main", "sonnet", 40, 1),
	} {
		c.Time, c.Project, c.Session, c.Estimated = c.Time.AddDate(0, 0, i/2), "/p\x1b", "s1", i == 3
		c.Usage.CacheReadTokens = 7
		l.Add(c)
	}
	total := l.Total()
	if total.Calls != 4 || math.Abs(total.USD-1.6) > 1e-9 || total.Unpriced != 1 || total.Estimated != 1 || total.Input != 400 || total.Output != 100 ||
		total.CacheRead != 28 || total.Tokens() != 528 || total.ModelMS != 1000 {
		t.Errorf("total %+v", total)
	}
	for by, want := range map[By][]string{
		ByAgent: {"main", "explore"}, ByDay: {"2026-11-20", "2026-11-21"}, ByModel: {"sonnet", "haiku", "llama"}, ByProject: {"/p"}, BySession: {"s1"},
	} {
		rows := l.Rows(by)
		sum := Sum{}
		for i, r := range rows {
			if i >= len(want) || r.Key != want[i] {
				t.Errorf("by %s, row %d is %q; want %q", by, i, r.Key, want)
			}
			sum.Calls += r.Calls
			sum.USD += r.USD
		}
		if sum.Calls != total.Calls || math.Abs(sum.USD-total.USD) > 1e-9 {
			t.Errorf("by %s, the rows do not add up: %+v", by, sum)
		}
	}
}

// A day is that of the reader's zone.
func TestDays(t *testing.T) {
	l := NewLedger(ByDay)
	at := time.Date(2026, 11, 20, 23, 30, 0, 0, time.UTC)
	l.Add(Call{Time: at.In(time.FixedZone("east", 3600)), Usage: agent.Usage{InputTokens: 1}})
	if rows := l.Rows(ByDay); rows[0].Key != "2026-11-21" {
		t.Errorf("the day is %q", rows[0].Key)
	}
}

func TestParseBy(t *testing.T) {
	for _, ok := range []string{"agent", "day", "model", "project", "session"} {
		if by, err := ParseBy(ok); err != nil || string(by) != ok {
			t.Errorf("%s: %v, %v", ok, by, err)
		}
	}
	if _, err := ParseBy("agent_id"); err == nil {
		t.Error("agent_id was taken")
	}
}

func TestDollars(t *testing.T) {
	for usd, want := range map[float64]string{0: "$0.00", 0.0142: "$0.01", 0.0042: "<$0.01", 0.5: "$0.50", 12.345: "$12.35", -1: "$-1.00"} {
		if got := Dollars(usd); got != want {
			t.Errorf("Dollars(%v) = %q; want %q", usd, got, want)
		}
	}
}

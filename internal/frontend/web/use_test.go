package web

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/platform/figures"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/webtest"
)

// TestAtOnce counts the most tasks that ran at the same time.
func TestAtOnce(t *testing.T) {
	p := period{step: time.Minute, parts: 5}
	begin := time.Unix(0, 0)
	at := func(minutes float64) time.Time { return begin.Add(time.Duration(minutes * float64(time.Minute))) }
	spans := []span{
		{at(-3), at(1.5)},  // began before
		{at(0.2), at(0.4)}, // within the first part
		{at(1.5), at(1.7)}, // begins as another ends
		{at(3.1), at(99)},  // goes on
		{at(3.5), at(3.9)}, // beside it
		{at(-9), at(-8)},   // was before all
		{at(20), at(30)},   // is after all
	}
	if got, want := atOnce(spans, p, begin), []float64{2, 1, 0, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("at once %v, not %v", got, want)
	}
}

// TestAxis has lines at numbers that people read, up to the largest value.
func TestAxis(t *testing.T) {
	p := periods()[0]
	for most, want := range map[float64]string{0: "0 1", 1: "0 1", 3: "0 1 2 3", 17: "0 5 10 15 20", 90_000: "0 50.0k 100k",
		2_300_000: "0 1.0M 2.0M 3.0M"} {
		values := make([]float64, p.parts)
		values[7] = most
		c := charted("x", "x", p, time.Unix(0, 0), values, measure{1, func(v float64) string { return figures.Count(int64(v)) }, grouped})
		var got []string
		for _, m := range c.Ticks {
			got = append(got, m.Text)
			if m.Place < 0 || m.Place > chartHeight {
				t.Errorf("%v: a line at %v is outside", most, m.Place)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("the axis of %v is %q, not %q", most, got, want)
		}
		if b := c.Bars[7]; b.Y+b.H > float64(c.Base)+0.2 || b.Text != grouped(most) {
			t.Errorf("the bar of %v is %+v", most, b)
		}
	}
}

// TestPeriods have now in their last part, and begin at whole steps.
func TestPeriods(t *testing.T) {
	now := time.Date(2026, 11, 23, 14, 17, 31, 0, time.UTC)
	for _, p := range periods() {
		begin := p.begin(now)
		if n := p.part(begin, now); n != p.parts-1 {
			t.Errorf("%s: now is in part %d of %d", p.Name, n, p.parts)
		}
		if begin.Second() != 0 || p.step >= time.Hour && begin.Minute() != 0 {
			t.Errorf("%s begins at %s", p.Name, begin)
		}
	}
}

// TestUse shows what models have used as drawings and as numbers.
func TestUse(t *testing.T) {
	s, url := page(t)
	usd, now := 0.25, time.Date(2026, 11, 23, 14, 17, 31, 0, time.Local)
	s.Now = func() time.Time { return now }
	s.Used = func(_ context.Context, since time.Time, yield func(Call)) error {
		yield(Call{Time: now, Model: "<b>m</b>", Input: 12_000, Output: 345, USD: &usd})
		yield(Call{Time: now, Model: "other", Input: 1})
		yield(Call{Time: since.Add(-time.Hour), Model: "old", Input: 1})
		return nil
	}
	paired, _ := pairedCookie(t, s, false)
	cookie := map[string]string{"Cookie": paired}
	if status, text, _ := asks(t, http.MethodGet, url+"/use", "", nil); status != http.StatusUnauthorized {
		t.Errorf("who is not paired gets %d: %.200s", status, text)
	}
	for _, p := range periods() {
		_, text, _ := asks(t, http.MethodGet, url+"/use?period="+p.Name, "", cookie)
		for _, want := range []string{"12,346", "&lt;b&gt;m&lt;/b&gt;", "$0.25", "at least $0.25", "unknown", "<svg", "<rect"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", p.Name, want)
			}
		}
		if strings.Contains(text, ">old<") || strings.Contains(text, "cannot be shown") {
			t.Errorf("%s: %s", p.Name, text)
		}
	}
}

// TestCharts sends charts that have changed to a page that looks at them, and nothing else; pages share what is read
// for them.
func TestCharts(t *testing.T) {
	f := webtest.New(3, task.LocalBash)
	s, url := floods(t, f)
	var calls, reads atomic.Int64
	calls.Store(1)
	s.Used = func(_ context.Context, _ time.Time, yield func(Call)) error {
		reads.Add(1)
		for range calls.Load() {
			yield(Call{Time: s.Now(), Model: "m", Input: 1000})
		}
		return nil
	}
	paired, _ := pairedCookie(t, s, false)
	opens := func() func() string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/stream?charts=hour", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Cookie", paired)
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 16<<20)
		return func() string {
			for lines.Scan() {
				if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
					var html string
					if err := json.Unmarshal([]byte(data), &html); err != nil {
						t.Fatalf("%v: %s", err, data)
					}
					return html
				}
			}
			return ""
		}
	}
	one, other := opens(), opens()
	for _, next := range []func() string{one, other} {
		if html := next(); !strings.Contains(html, "1,000") || !strings.Contains(html, "<svg") {
			t.Fatalf("the page begins with %.300s", html)
		}
	}
	if n := reads.Load(); n != 1 {
		t.Errorf("for two pages the use was read %d times", n)
	}
	calls.Store(7)
	changed := f.Tasks[1]
	changed.Paused = true
	f.Change(changed)
	for _, next := range []func() string{one, other} {
		if html := next(); !strings.Contains(html, "7,000") {
			t.Errorf("after a change it shows %.300s", html)
		}
	}
}

package browser

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/drover-dev/drover/test/modeltest"
)

// TestCharts shows what is used while it is used, without a request of the page.
func TestCharts(t *testing.T) {
	s := serves(t)
	s.Fifo("hold")
	s.Good("run", "-d", "--", "sh", "-c", "read x <hold")
	b := opens(t)
	b.does("open the link", chromedp.Navigate(s.link))
	b.until("paired", `document.querySelector("#tree a[href^='/task/']")`)
	b.does("open the charts", chromedp.Navigate(s.address+"/use?period=hour"))
	atOnce := `[...document.querySelectorAll("#used figure")].find((f) => f.textContent.includes("Concurrent"))`
	b.until("the chart of tasks", atOnce+`?.querySelector("figcaption").textContent.length > 0`)
	var before string
	b.does("read it", chromedp.Evaluate(atOnce+`.querySelector("figcaption").textContent`, &before))
	b.does("open its table", chromedp.Evaluate(atOnce+`.querySelector("details").open = true`, nil))
	b.does("count requests", chromedp.Evaluate(`window.asked = performance.getEntriesByType("resource").length; window.same = true`, nil))
	s.Good("run", "-d", "--", "sh", "-c", "read x <hold")
	b.until("another task", atOnce+`.querySelector("figcaption").textContent !== `+strconv.Quote(before))
	b.until("no request and no other page", `window.same && performance.getEntriesByType("resource").length === window.asked`)
	b.until("the table is open", atOnce+`.querySelector("details").open`)
}

// TestParked shows an agent that waits for a usage limit of its provider, among what needs the user, and lets it go on.
func TestParked(t *testing.T) {
	s := serves(t)
	var lifted atomic.Bool
	m, err := modeltest.New(func(context.Context, *modeltest.Request) modeltest.Answer {
		if !lifted.Load() {
			return modeltest.RateLimit("7200")
		}
		return modeltest.Text("found it")
	})
	s.Must(err)
	t.Cleanup(m.Close)
	s.Env = append(s.Env, "ANTHROPIC_BASE_URL="+m.URL, "ANTHROPIC_API_KEY=sk-test")
	id := s.Good("agent", "run", "-d", "explore", "look")
	b := opens(t)
	b.does("open the link", chromedp.Navigate(s.link))
	b.until("it waits", `document.querySelector("#needs article h3")?.textContent.includes("Waits for a limit")`)
	b.until("until when", `/1 h 59 min|2 h 0 min/.test(document.querySelector("#needs article").textContent)`)
	b.until("why", `document.querySelector("#needs article").textContent.includes("429")`)
	lifted.Store(true)
	b.presses(`#needs [data-act="resume"]`)
	s.Good("wait", id)
	b.until("nothing needs the user", `!document.getElementById("nothing").hidden`)
}

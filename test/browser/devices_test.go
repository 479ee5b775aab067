package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// TestDevices pairs two more browsers with links of the page. The one that may only read sees the question and cannot
// answer; of the two that may, and the shell, one answers, and the others are told.
func TestDevices(t *testing.T) {
	s := serves(t)
	s.Good("-p", "-d", "--ask-timeout", "5m", "--model", s.script("touch first", "touch second"), "go")
	first := opens(t)
	first.does("open the link", chromedp.Navigate(s.link), chromedp.WaitVisible("#add", chromedp.ByQuery))
	first.does("add a device", chromedp.Click("#add", chromedp.ByQuery))
	first.until("two links with their codes", `document.querySelectorAll("#links .qr path").length === 2`)
	var reading, writing string
	first.does("read the links", chromedp.Text("#links > div:first-child p", &reading, chromedp.ByQuery),
		chromedp.Text("#links > div:last-child p", &writing, chromedp.ByQuery),
		chromedp.Click("#close", chromedp.ByQuery))
	first.until("the links are gone", `document.getElementById("links").textContent === "" && document.getElementById("device").hidden`)

	reader := opens(t)
	reader.does("open the link to read", chromedp.Navigate(reading))
	reader.until("the question", `document.querySelector(".call")?.textContent.includes("touch first")`)
	reader.until("no answer", `!document.getElementById("readonly").hidden && document.querySelector("#needs .writes").hidden`)
	var status int
	reader.does("answer all the same", chromedp.Evaluate(`(() => { const a = document.querySelector("#needs article").dataset;
		return fetch("/act/decide", {method: "POST", body: JSON.stringify({session: a.session, ref: a.ref, digest: a.digest, allow: true})})
			.then((r) => r.status); })()`, &status, awaited))
	if status != 403 || s.there("first") {
		t.Errorf("a browser that may only read answers: %d", status)
	}

	second := opens(t)
	second.does("open the other link", chromedp.Navigate(writing))
	second.until("the question", `document.querySelector(".call")?.textContent.includes("touch first")`)
	q := s.question()
	second.until("the list stands still", "performance.now() - shifted > settle")
	second.does("cut the stream", chromedp.Evaluate("stream.close()", nil))
	first.presses(card + " .allow")
	first.until("the next question", `document.querySelector(".call")?.textContent.includes("touch second")`)
	reader.until("the next question", `document.querySelector(".call")?.textContent.includes("touch second")`)
	second.does("answer late", chromedp.Click(card+" .deny", chromedp.ByQuery))
	second.until("who was first", `/answered already: allowed by user/.test(document.getElementById("said").textContent)`)
	if late := s.Run("approvals", "deny", q); late.Code() != 3 || !s.there("first") {
		t.Errorf("the shell is late: %s", late)
	}

	// A link pairs one browser.
	third := opens(t)
	third.does("open a used link", chromedp.Navigate(writing))
	third.until("it is refused", `document.getElementById("said")?.textContent.includes("this link was used")`)
}

package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// TestSettings shows what the doctor finds, and changes a setting of a session.
func TestSettings(t *testing.T) {
	s := serves(t)
	session := s.Good("-p", "-d", "--ask-timeout", "5m", "--model", s.script("touch it"), "go")
	s.question()
	b := opens(t)
	b.does("open the link", chromedp.Navigate(s.link))
	b.until("paired", `document.getElementById("tree")`)
	b.does("open the settings", chromedp.Click(`a[href="/settings"]`, chromedp.ByQuery))
	b.until("the doctor", `[...document.querySelectorAll("th")].some((e) => e.textContent === "state folder") && document.querySelector("td.st-completed")`)
	b.does("open those of the session", chromedp.Click(`a[href="/session/`+session+`"]`, chromedp.ByQuery))
	b.until("its mode", `document.querySelector('[name="permission_mode"]')?.value === "default"`)
	b.does("choose another", chromedp.SetValue(`[name="permission_mode"]`, "acceptEdits", chromedp.ByQuery),
		chromedp.Click(`#form [type="submit"]`, chromedp.ByQuery))
	b.until("saved", `document.getElementById("said").textContent === "Saved."`)
	b.does("load the page again", chromedp.Reload())
	b.until("the new mode", `document.querySelector('[name="permission_mode"]')?.value === "acceptEdits"`)
}

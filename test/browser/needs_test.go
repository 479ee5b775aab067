package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// TestNeeds answers a command that waits for input, approves a plan, and takes note of a failure.
func TestNeeds(t *testing.T) {
	s := serves(t)
	s.Settings(`{"tasks":{"stallAfter":"300ms"}}`)
	stalled := s.Good("run", "-d", "--tty", "--", "sh", "-c", "printf 'Name? '; read name; echo hello $name >name")
	s.Run("run", "-d", "--name", "broken", "--", "false")
	plan := "script:" + s.File("plan.json", `{"version": 1, "agents": {"main": [
		{"tools": [{"name": "ExitPlanMode", "input": {"plan": "1. touch <i>it</i>"}}]}, {"text": "done"}]}}`, 0o600)
	session := s.Good("-p", "-d", "--ask-timeout", "5m", "--permission-mode", "plan", "--model", plan, "go")
	b := opens(t)
	b.does("open the link", chromedp.Navigate(s.link))
	b.until("all three", `document.querySelectorAll("#needs article").length === 3`)
	b.until("the most urgent first", `[...document.querySelectorAll("#needs h3")].map((e) => e.firstChild.textContent.trim().split(" ·")[0]).join() ===
		"Plan to approve,Waits for input,Failed"`)
	b.until("the plan", `document.querySelector(".call").textContent.includes("1. touch <i>it</i>")`)
	b.presses(card + " .allow")
	s.Good("wait", session)
	b.until("the plan is approved", `document.querySelectorAll("#needs article").length === 2`)
	b.until("what the command asks", `document.querySelector("#needs article").textContent.includes("Name?")`)
	b.does("answer it", chromedp.SendKeys(`#needs article [data-field="text"]`, "Ann\n", chromedp.ByQuery))
	s.Good("wait", stalled)
	if !s.there("name") {
		t.Error("the command did not get the answer")
	}
	b.until("the failure is left", `document.querySelectorAll("#needs article").length === 1`)
	b.does("it is seen", chromedp.Click(`[data-act="seen"]`, chromedp.ByQuery))
	b.until("nothing needs the user", `!document.getElementById("nothing").hidden`)
}

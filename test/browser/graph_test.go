package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestTodos shows to-dos as a graph and as a list, and keeps them as they are.
func TestTodos(t *testing.T) {
	s := serves(t)
	s.Good("todo", "add", "draw <b>it</b>")
	s.Good("todo", "add", "--blocked-by", "1", "look at it")
	b := opens(t)
	b.does("open the link", chromedp.Navigate(s.link))
	b.until("paired", `document.getElementById("tree")`)
	b.does("open the to-dos", chromedp.Click(`a[href="/todos"]`, chromedp.ByQuery))
	b.until("two of them and a line", `document.querySelectorAll(".graph rect").length === 2 && document.querySelectorAll(".graph path").length === 1`)
	b.until("their names", `document.querySelector(".graph .label").textContent === "#1 draw <b>it</b>"`)
	b.does("open the list", chromedp.Click("details summary", chromedp.ByQuery))
	s.Good("todo", "done", "1")
	b.until("one is done", `document.querySelectorAll(".graph rect.st-completed").length === 1`)
	b.until("the list is open", `document.querySelector("details").open && document.querySelector("td.st-completed")`)
}

// TestWorkflow follows the steps of a workflow as a graph.
func TestWorkflow(t *testing.T) {
	s := serves(t)
	s.Fifo("go")
	file := s.File("flow.yaml", "name: release\nsteps:\n  - id: build\n    shell: read x <go\n  - id: test\n    needs: [build]\n    shell: \"true\"\n", 0o600)
	id := strings.TrimSpace(s.Good("workflow", "run", "-d", file))
	b := opens(t)
	b.does("open the link", chromedp.Navigate(s.link))
	b.until("paired", `document.getElementById("tree")`)
	b.does("open the workflow", chromedp.Navigate(s.address+"/task/"+s.sessionOf(id)+"/"+id))
	b.until("one step runs, one waits", `document.querySelectorAll(".graph rect.st-running").length === 1 && document.querySelectorAll(".graph rect.st-pending").length === 1`)
	b.until("one after the other", `document.querySelectorAll(".graph path").length === 1`)
	s.Free("go")
	b.until("both are done", `document.querySelectorAll(".graph rect.st-completed").length === 2`)
	b.does("open a step", chromedp.Evaluate(`document.querySelector("#head td a, #head th a").click()`, nil))
	b.until("its page", `document.querySelector("pre.call").textContent.includes("read x")`)
}

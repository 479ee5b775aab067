package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestHostile shows output and names that want to be a page: no script of them runs, and no request
// leaves.
func TestHostile(t *testing.T) {
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	s := serves(t)
	bad := fmt.Sprintf(`"><img src=%[1]s/i onerror=window.hit=1><script src=%[1]s/s></script><svg onload=window.hit=1>`+
		`<a href="javascript:window.hit=1">x</a><style>@import "%[1]s/c";</style>{{.}}`, elsewhere.URL)
	s.File("bad", bad+"\x1b[31mred\x1b[0m\x1b]8;;"+elsewhere.URL+"\x07link\x1b]8;;\x07\u202e\n", 0o600)
	s.Fifo("hold")
	id := s.Good("run", "-d", "--name", bad[:100], "--", "sh", "-c", "cat bad; read x <hold")
	session := s.sessionOf(id)
	// A failure has its text in what needs the user.
	s.Run("run", "-d", "--name", bad[:90], "--", "sh", "-c", "exit 3 # "+bad)
	model := s.script("touch '" + bad + "'")
	asking := s.Good("-p", "-d", "--ask-timeout", "5m", "--model", model, bad)
	s.Good("todo", "add", bad)
	b := opens(t)
	b.does("open the link", chromedp.Navigate(s.link))
	b.until("the names", `document.querySelector("#tree a[href^='/task/']")?.textContent.includes("<img")`)
	b.until("the question", `document.querySelector(".call")?.textContent.includes("<script")`)
	b.until("the failure", `document.querySelectorAll("#needs article").length === 2`)
	unharmed := func(where string) {
		t.Helper()
		var found string
		b.does(where, chromedp.Evaluate(`String(window.hit) + document.querySelectorAll(
			"main img, main svg:not([class]), main script, main style, [onload], [onerror], a[href^='javascript'], a[href^='http']").length`, &found))
		if found != "undefined0" || asked.Load() != 0 {
			t.Errorf("%s: %s, and %d requests have left", where, found, asked.Load())
		}
	}
	unharmed("the page of all sessions")
	b.does("open the task", chromedp.Navigate(s.address+"/task/"+session+"/"+id))
	b.until("its output", `document.getElementById("output").textContent.includes("{{.}}redlink<U+202E>")`)
	b.until("its colour", `document.querySelector("#output .c1")?.textContent === "red"`)
	for _, part := range []string{"record", "messages", "changes"} {
		b.does("open "+part, chromedp.Click(`details[data-part="`+part+`"] summary`, chromedp.ByQuery))
	}
	b.until("the record", `document.querySelector('[data-part="record"] pre')?.textContent.includes("task_id")`)
	unharmed("the page of a task")
	for path, shows := range map[string]string{
		"/conversation/" + asking: `document.querySelector("#talk .begin pre")?.textContent.includes("<script")`,
		"/session/" + asking:      `document.querySelector("h2 a").textContent.includes("<img")`,
		"/todos":                  `document.querySelector(".graph .label").textContent.includes("<img")`,
		"/use":                    `document.querySelector("tbody th").textContent.length > 0`,
		"/settings":               `document.querySelector("ul li a[href^='/session']").textContent.includes("<img")`,
	} {
		b.does("open "+path, chromedp.Navigate(s.address+path))
		b.until(path+" shows the text", shows)
		unharmed(path)
	}

	// Even a script that runs reaches nobody: the policy holds for all that is loaded.
	b.does("load from elsewhere", chromedp.Evaluate(`new Promise((done) => {
		const i = new Image(); i.onerror = () => done(1); i.onload = () => done(2); i.src = "`+elsewhere.URL+`/forced"; })`,
		nil, awaited))
	b.does("ask elsewhere", chromedp.Evaluate(`fetch("`+elsewhere.URL+`/forced").catch(() => 1)`, nil, awaited))
	b.until("the policy has refused both", `performance.getEntriesByType("resource").length > 0`)
	if asked.Load() != 0 {
		t.Errorf("%d requests have left", asked.Load())
	}
}

// sessionOf is the session of a task.
func (s *site) sessionOf(id string) string {
	s.Helper()
	var r struct {
		Session string `json:"session_id"`
	}
	s.Read(&r, "inspect", id)
	return r.Session
}

// TestTask follows the output of a task, finds text in it, and stops it with a receipt.
func TestTask(t *testing.T) {
	s := serves(t)
	s.Fifo("go")
	s.Good("run", "-d", "--name", "counter", "--", "sh", "-c", "seq 1 60000; read x <go; echo after; sleep 600")
	b := opens(t)
	b.does("open the link", chromedp.Navigate(s.link))
	b.until("the task", `document.querySelector("#tree a[href^='/task/']")?.textContent === "counter"`)
	b.does("open it", chromedp.Click("#tree a[href^='/task/']", chromedp.ByQuery))
	b.until("the end of its output", `document.getElementById("output")?.textContent.trimEnd().endsWith("60000")`)
	s.Free("go")
	b.until("what it prints", `document.getElementById("output").textContent.trimEnd().endsWith("after")`)
	b.does("look at the beginning", chromedp.Click("#begin", chromedp.ByQuery))
	b.until("the beginning", `document.getElementById("output").textContent.startsWith("1\n2\n3\n")`)
	b.does("find", chromedp.SendKeys("#text", "31415\n", chromedp.ByQuery))
	b.until("found", `document.querySelector("#found button")?.textContent === "31415"`)
	b.does("go there", chromedp.Click("#found button", chromedp.ByQuery))
	b.until("there", `document.getElementById("output").textContent.startsWith("31415\n31416\n")`)
	b.does("stop", chromedp.Click(`[data-act="stop"]`, chromedp.ByQuery))
	b.until("the receipt", `document.getElementById("receipt").textContent.includes("SIGTERM")`)
	b.until("nothing is left", `document.getElementById("receipt").textContent.includes("No processes are left")`)
	if text := s.Good("ps", "-a"); !strings.Contains(text, "killed") {
		t.Errorf("the task goes on: %s", text)
	}
}

// TestTalk has a conversation on the page, and reads it when its session has ended.
func TestTalk(t *testing.T) {
	s := serves(t)
	model := "script:" + s.File("script.json", `{"version": 1, "agents": {"main": [
		{"tools": [{"name": "Bash", "input": {"command": "touch it"}}]},
		{"text": "first <i>answer</i>"}, {"text": "second answer"}]}}`, 0o600)
	session := s.Good("-p", "-d", "--ask-timeout", "5m", "--model", model, "hello")
	b := opens(t)
	b.does("open the link", chromedp.Navigate(s.link))
	b.until("paired", `document.getElementById("tree")`)
	b.does("open the conversation", chromedp.Navigate(s.address+"/conversation/"+session))
	b.until("its prompt", `document.querySelector("#talk .begin pre")?.textContent === "hello"`)
	b.does("prompt", chromedp.SendKeys("#prompt", "and now?\n", chromedp.ByQuery))
	b.until("the prompt is sent", `document.getElementById("prompt").value === ""`)
	s.Good("approvals", "allow", s.question())
	b.until("the call", `document.querySelector("#talk .call pre")?.textContent.includes("command: touch it")`)
	b.until("the answer", `document.getElementById("talk").textContent.includes("first <i>answer</i>")`)
	b.until("the second prompt", `[...document.querySelectorAll(".begin pre")].some((e) => e.textContent === "and now?")`)
	b.until("its answer", `document.getElementById("talk").textContent.includes("second answer")`)
	b.does("leave it", chromedp.Navigate(s.address))
	s.Good("wait", session) // nobody is attached any more
	b.until("its end", `!document.getElementById("empty").hidden`)
	b.does("open it again", chromedp.Navigate(s.address+"/conversation/"+session))
	// From what it left, or from its host, which may take a moment to end.
	b.until("its messages", `["kept", "talk"].some((id) => document.getElementById(id)?.textContent.includes("second answer"))`)
}

// TestDiff comments on lines of a change: the agent gets one message with them, and none if it has changed
// its files since they were read.
func TestDiff(t *testing.T) {
	s := serves(t)
	s.File("a", "one\ntwo\nthree\n", 0o600)
	for _, args := range []string{"init -q", "add a", "-c user.name=u -c user.email=u@localhost commit -qm first"} {
		git := exec.Command("git", strings.Fields(args)...)
		git.Dir, git.Env = s.Dir, s.Env
		s.Must(git.Run())
	}
	model := "script:" + s.File("../script.json", `{"version": 1, "agents": {"general-purpose": [
		{"tools": [{"name": "Bash", "input": {"command": "sed -i s/two/2/ a; echo '<b>new</b>' > '<i>n'"}}]},
		{"text": "done"}, {"tools": [{"name": "Bash", "input": {"command": "echo more >> a"}}]}, {"text": "answered"}]}}`, 0o600)
	id := s.Good("agent", "run", "-d", "--isolation", "worktree", "--model", model, "--allowed-tools", "Bash", "general-purpose", "begin")
	s.Good("wait", id)
	b := opens(t)
	b.does("open the link", chromedp.Navigate(s.link))
	b.until("paired", `document.getElementById("tree")`)
	b.does("open the task", chromedp.Navigate(s.address+"/task/"+s.sessionOf(id)+"/"+id))
	b.does("open its changes", chromedp.Click(`details[data-part="changes"] > summary`, chromedp.ByQuery))
	b.until("two files", `document.querySelectorAll("#files details").length === 2`)
	b.does("open a file", chromedp.Click(`details[data-path="a"] summary`, chromedp.ByQuery))
	b.until("its lines", `document.querySelector("tr.removed code")?.textContent === "-two" && document.querySelector("tr.added code").textContent === "+2"`)
	drafts := 0
	write := func(selector, text string) {
		t.Helper()
		drafts++
		b.does("comment "+selector, chromedp.Click(selector, chromedp.ByQuery))
		b.until("a place for it", fmt.Sprintf(`document.querySelectorAll("#drafts li").length === %d`, drafts))
		b.does("write "+text, chromedp.SendKeys("#drafts li:last-child textarea", text, chromedp.ByQuery))
	}
	write(`details[data-path="a"] tr.removed button.at`, "this was fine")
	write(`details[data-path="a"] tr.added button.at`, "why a digit?")
	b.does("send", chromedp.Click("#comments [type=submit]", chromedp.ByQuery))
	b.until("sent", `document.getElementById("said").textContent === "Comments sent."`)
	s.Good("wait", id)
	said := s.Good("logs", "--messages", id)
	for _, text := range []string{"1. a:2 (before your change)", "this was fine", "2. a:2\n", "why a digit?"} {
		if !strings.Contains(said, text) {
			t.Errorf("the agent was not told %q: %s", text, said)
		}
	}
	// The agent has changed the file in answer.
	drafts = 0
	write(`details[data-path="a"] tr.added button.at`, "late")
	b.does("send", chromedp.Click("#comments [type=submit]", chromedp.ByQuery))
	b.until("refused", `document.getElementById("said").textContent.includes("has changed its files")`)
	b.until("kept", `document.querySelector("#drafts textarea").value === "late"`)
}

// TestHugeOutput opens an output of 5 GB at its end, goes to the middle, finds a text, and goes back to the end.
func TestHugeOutput(t *testing.T) {
	const size, middle = 5 << 30, 5 << 29
	s := serves(t)
	s.Good("run", "--name", "huge", "--", "echo", "it begins")
	var all []struct {
		ID      string `json:"task_id"`
		Session string `json:"session_id"`
		Output  string `json:"output_file"`
	}
	s.Read(&all, "ps", "-a", "--json")
	f, err := os.OpenFile(all[0].Output, os.O_RDWR, 0)
	s.Must(err)
	s.Must(f.Truncate(size))
	for at, text := range map[int64]string{middle: "\nin the middle\n" + strings.Repeat("a line\n", 20_000), size - 200_000: "\na needle" + strings.Repeat("\nanother line", 10_000) + "\n", size - 15: "\nthe last line\n"} {
		_, err := f.WriteAt([]byte(text), at)
		s.Must(err)
	}
	s.Must(f.Close())
	b := opens(t)
	b.does("open the link", chromedp.Navigate(s.link))
	b.until("paired", `document.getElementById("tree")`)
	b.does("open the task", chromedp.Navigate(s.address+"/task/"+all[0].Session+"/"+all[0].ID))
	b.until("its end", `document.getElementById("output")?.textContent.trimEnd().endsWith("the last line")`)
	b.does("go to the middle", chromedp.Evaluate(fmt.Sprintf("load(%d, true)", int64(middle)), nil, awaited))
	b.until("the middle", `document.getElementById("output").textContent.startsWith("\nin the middle\na line")`)
	b.until("more as it is scrolled", `(document.getElementById("output").scrollTop = 1e9) && document.querySelectorAll("#output > div").length > 1`)
	b.does("look for a text", chromedp.SetValue("#text", "needle", chromedp.ByQuery))
	b.does("find", chromedp.Evaluate(fmt.Sprintf(`search(%d)`, int64(size-2<<20)), nil, awaited))
	b.until("what was found", `document.querySelector("#found button").textContent.includes("a needle")`)
	b.does("follow the end", chromedp.Click("#end", chromedp.ByQuery))
	b.until("the end again", `document.getElementById("output").textContent.trimEnd().endsWith("the last line")`)
	var took []string
	b.does("measure", chromedp.Evaluate(`performance.getEntriesByType("resource").filter((e) => /output|search/.test(e.name)).map(
		(e) => new URL(e.name).pathname.split("/")[1] + " " + Math.round(e.responseStart - e.requestStart))`, &took))
	t.Logf("milliseconds to the first byte of each answer: %q", took)
}

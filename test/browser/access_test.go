package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// faults are what keeps people from using a page: a control without a name, a text without contrast to what it
// stands on, a page without a language, a title or exactly one main part and heading.
const faults = `(() => {
  const out = [];
  const named = (e) => e.ariaLabel || e.title || [...(e.labels ?? [])].map((l) => l.textContent).join("") || e.textContent;
  const seen = (e) => e.checkVisibility({visibilityProperty: true});
  for (const e of document.querySelectorAll("button, a[href], input, select, textarea, summary, [tabindex='0']")) {
    if (seen(e) && !(named(e) || e.getAttribute("aria-labelledby")).trim()) out.push("no name: " + e.outerHTML.slice(0, 80));
  }
  if (!document.documentElement.lang || !document.title) out.push("no language or title");
  for (const s of ["main", "h1"]) if (document.querySelectorAll(s).length !== 1) out.push("not one " + s);
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  for (const e of document.querySelectorAll("body *")) {
    const text = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!text || !seen(e) || e.closest("script, style, title, svg")) continue;
    let under = e;
    while (under && rgb(getComputedStyle(under).backgroundColor)[3] < 255) under = under.parentElement;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(rgb(getComputedStyle(under ?? document.body).backgroundColor))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) out.push("contrast " + ratio.toFixed(1) + ": " + e.outerHTML.slice(0, 80));
  }
  return out.join("\n");
})()`

// TestAccess looks at every page in light and in dark, and answers a question with the keyboard alone.
func TestAccess(t *testing.T) {
	s := serves(t)
	id := s.Good("run", "-d", "--name", "tests", "--", "sh", "-c", "echo ok; sleep 600")
	s.Run("run", "-d", "--name", "lint", "--", "sh", "-c", "exit 3")
	s.Good("todo", "add", "look")
	session := s.Good("-p", "-d", "--ask-timeout", "5m", "--model", s.script("touch it"), "go")
	b := opens(t)
	b.does("open the link", chromedp.Navigate(s.link))
	b.until("what needs the user", `document.querySelectorAll("#needs article").length === 2`)
	for _, path := range []string{"/", "/task/" + s.sessionOf(id) + "/" + id, "/conversation/" + session, "/session/" + session,
		"/use", "/todos", "/settings"} {
		b.does("open "+path, chromedp.Navigate(s.address+path))
		b.until(path+" has its style", `document.querySelector("main") && getComputedStyle(document.body).maxWidth !== "none"`)
		for _, scheme := range []string{"light", "dark"} {
			var found string
			b.does(path, emulation.SetEmulatedMedia().WithFeatures(
				[]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}), chromedp.Evaluate(faults, &found))
			if found != "" {
				t.Errorf("%s in %s:\n%s", path, scheme, found)
			}
		}
	}

	b.does("go back", chromedp.Navigate(s.address))
	b.until("the question", `document.querySelector("`+card+` .allow")`)
	b.until("the list stands still", "performance.now() - shifted > settle")
	at := ""
	for n := 0; n < 40 && !strings.Contains(at, "allow"); n++ {
		b.does("the next control", chromedp.KeyEvent(kb.Tab), chromedp.Evaluate("document.activeElement.className", &at))
	}
	b.does("press it", chromedp.KeyEvent(kb.Enter))
	b.until("the question is answered", `!document.querySelector("`+card+`")`)
	s.Good("wait", session)
	if !s.there("it") {
		t.Error("what was allowed has not run")
	}
}

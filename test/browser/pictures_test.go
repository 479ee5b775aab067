package browser

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestPictures looks at the pages as wide as a screen and as a phone, in light and in dark: nothing is wider
// than the page. With PICTURES=1 it takes the pictures of docs/web.md.
func TestPictures(t *testing.T) {
	s := serves(t)
	s.Good("run", "-d", "--name", "tests", "--", "sh", "-c", "printf '\\033[32mok\\033[0m engine\\n\\033[31mFAIL\\033[0m journal\\n'; sleep 600")
	s.Good("run", "-d", "--name", "build", "--", "sh", "-c", "sleep 600")
	s.Run("run", "-d", "--name", "lint", "--", "sh", "-c", "echo 3 issues; exit 3")
	s.Good("-p", "-d", "--ask-timeout", "30m", "--model", s.script("git push --force origin main"), "publish the branch")
	b := opens(t)
	b.does("open the link", chromedp.Navigate(s.link))
	b.until("all of it", `document.querySelectorAll("#needs article").length === 2 && document.querySelectorAll("#tree tr").length >= 5`)
	for _, p := range []struct {
		name          string // of the picture; empty: none
		path, scheme  string
		width, height int64
	}{
		{"page-wide", "/", "light", 1280, 800}, {"page-phone", "/", "dark", 390, 844},
		{"", "/use?period=hour", "dark", 1280, 800}, {"", "/use", "light", 390, 844},
	} {
		var data []byte
		var wide bool
		b.does(p.path, chromedp.Navigate(s.address+p.path))
		b.until("its style", `getComputedStyle(document.body).maxWidth !== "none" && !document.querySelector("time:empty")`)
		b.does(p.path,
			chromedp.EmulateViewport(p.width, p.height),
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: p.scheme}}),
			chromedp.Evaluate(`document.documentElement.scrollWidth > document.documentElement.clientWidth`, &wide),
			chromedp.CaptureScreenshot(&data))
		if wide {
			t.Errorf("%s is wider than %d", p.path, p.width)
		}
		if os.Getenv("PICTURES") != "" && p.name != "" {
			s.Must(os.WriteFile(filepath.Join("..", "..", "docs", "pictures", p.name+".png"), data, 0o644))
		}
	}
}

package browser

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/drover-dev/drover/internal/frontend/web"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/webtest"
)

// TestFlood has 2,000 tasks change without pause on a page that is looked at: it draws all of them, its memory
// and what it is sent stay bounded, and it answers meanwhile.
func TestFlood(t *testing.T) {
	const tasks, rounds = 2000, 10
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := webtest.New(tasks, task.LocalBash)
	s, err := web.New(web.Config{Token: "a token of the tests", Now: time.Now,
		Devices: web.DevicesOf(filepath.Join(t.TempDir(), "token"), "a token of the tests"),
		Sessions: func(context.Context, bool) ([]web.Session, error) {
			return []web.Session{webtest.Session{Flood: f}}, nil
		}}, l)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	t.Cleanup(group.Wait)
	t.Cleanup(cancel)
	group.Go(func() {
		if err := s.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	b := opens(t)
	b.does("open the link", chromedp.Navigate("http://"+l.Addr().String()+s.Link(true)))
	b.until("all tasks", `document.querySelectorAll("#tree tr").length === 2001`)
	b.does("measure", chromedp.Evaluate(`window.frames = [0, 0]; window.came = 0; stream.addEventListener("change", () => came++);
		let last = performance.now(); (function frame(now) { frames[0]++; frames[1] = Math.max(frames[1], now - last); last = now;
			requestAnimationFrame(frame); })(last)`, nil))
	for round := range rounds {
		for _, rec := range f.Tasks {
			rec.Progress = &task.Progress{TokenCount: int64(round + 1)}
			f.Change(rec)
		}
		if round == rounds/2 { // the page answers in the middle of it
			b.does("find", chromedp.SendKeys("#find", "task 1234", chromedp.ByQuery))
			b.until("what is found", `[...document.querySelectorAll("#tree td.name")].filter((e) => e.checkVisibility()).length === 1`)
		}
	}
	b.until("the last state of all", `[...document.querySelectorAll("#tree tr td:nth-child(6)")].every((e) => e.textContent === "10")`)
	var got struct {
		Frames [2]float64 `json:"frames"`
		Came   int        `json:"came"`
		Heap   float64    `json:"heap"`
		Nodes  int        `json:"nodes"`
	}
	b.does("read what it took", chromedp.Evaluate(`({frames, came, heap: performance.memory.usedJSHeapSize, nodes: document.querySelectorAll("*").length})`, &got))
	t.Logf("%d changes came as %d messages; %.0f frames, the longest %.0f ms; %.0f MiB, %d elements", tasks*rounds, got.Came,
		got.Frames[0], got.Frames[1], got.Heap/(1<<20), got.Nodes)
	if got.Came > tasks*rounds/20 || got.Heap > 200<<20 || got.Nodes > 20*tasks {
		t.Errorf("%d messages, %.0f MiB, %d elements", got.Came, got.Heap/(1<<20), got.Nodes)
	}
}

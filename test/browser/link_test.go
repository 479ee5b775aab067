package browser

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// line is one between a browser and the server, which can be cut.
type line struct {
	to string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
	asked bytes.Buffer // what the browser has sent
}

// lines begins a line to an address, and returns its own.
func lines(t *testing.T, to string) (*line, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &line{to: to, conns: map[net.Conn]bool{}}
	var group sync.WaitGroup
	t.Cleanup(group.Wait)
	t.Cleanup(func() { n.set(true) })
	t.Cleanup(func() { _ = l.Close() })
	group.Go(func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() { n.carry(c) })
		}
	})
	return n, l.Addr().String()
}

// set cuts the line or mends it.
func (n *line) set(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
	for c := range n.conns {
		_ = c.Close()
	}
}

// keep remembers a connection until the function is called; false: the line is cut.
func (n *line) keep(c net.Conn) (func(), bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		_ = c.Close()
		return nil, false
	}
	n.conns[c] = true
	return func() {
		_ = c.Close()
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.conns, c)
	}, true
}

func (n *line) carry(c net.Conn) {
	free, ok := n.keep(c)
	if !ok {
		return
	}
	defer free()
	server, err := net.Dial("tcp", n.to)
	if err != nil {
		return
	}
	freeServer, ok := n.keep(server)
	if !ok {
		return
	}
	defer freeServer()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		_, _ = io.Copy(io.MultiWriter(server, n), c)
		_ = server.Close()
	})
	_, _ = io.Copy(c, server)
	_ = c.Close()
}

// Write takes what a browser sends.
func (n *line) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked.Write(p)
}

func (n *line) said() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked.String()
}

// TestLinkCut cuts the line between the page and the server: the page says so, goes on from the change on
// that it has, and is not loaded again.
func TestLinkCut(t *testing.T) {
	s := serves(t)
	s.Good("run", "-d", "--name", "before", "--", "sh", "-c", "sleep 600")
	server := strings.TrimPrefix(s.address, "http://")
	n, at := lines(t, server)
	b := opens(t)
	b.does("open the link", chromedp.Navigate(strings.Replace(s.link, server, at, 1)))
	b.until("the task", `document.getElementById("tree").textContent.includes("before")`)
	b.until("a connection", `document.getElementById("link").textContent === "connected"`)
	b.does("count what comes", chromedp.Evaluate(`window.here = []; stream.addEventListener("change", (e) => here.push(JSON.parse(e.data)))`, nil))
	s.Good("run", "-d", "--name", "between", "--", "sh", "-c", "sleep 600")
	b.until("a change with a number", `here.length > 0 && document.getElementById("tree").textContent.includes("between")`)

	n.set(true)
	b.until("it says so", `document.getElementById("link").textContent.includes("connection lost")`)
	s.Good("run", "-d", "--name", "meanwhile", "--", "sh", "-c", "sleep 600")
	b.does("forget what came", chromedp.Evaluate("here.length = 0", nil))
	n.set(false)
	b.until("what was started meanwhile", `document.getElementById("tree").textContent.includes("meanwhile")`)
	b.until("a connection again", `document.getElementById("link").textContent === "connected"`)
	var resets int
	b.does("look at what came", chromedp.Evaluate("here.filter((c) => c.reset).length", &resets))
	if said := n.said(); resets > 0 || !strings.Contains(strings.ToLower(said), "\r\nlast-event-id: ") {
		t.Errorf("the page began anew %d times; it asked: %s", resets, said)
	}
}

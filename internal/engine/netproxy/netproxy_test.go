package netproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/test/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const public = "93.184.216.34" // what names resolve to in these tests

// world is a proxy with a network of its own: every public address is dialled as the
// test's server, others are dialled as they are.
type world struct {
	t     testing.TB
	addr  string // of the proxy
	proxy *Proxy
	stop  func() error

	mu       sync.Mutex
	server   string              // what public addresses lead to
	names    map[string][]string // answers of the resolver, else public
	asked    []string            // of the resolver
	dialled  []string
	outcomes []string
	logged   chan struct{} // one for each outcome
}

func newWorld(t testing.TB, server string, change func(*Config)) *world {
	t.Helper()
	w := &world{t: t, server: server, names: map[string][]string{}, logged: make(chan struct{}, 1000)}
	cfg := Config{
		Known: func(user, password string) bool { return strings.HasPrefix(user, "task") && password == "secret" },
		Match: func(r Request) (bool, bool) { return r.Host == "good.example" || r.Host == public, false },
		Resolve: func(_ context.Context, name string) ([]netip.Addr, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked = append(w.asked, name)
			var out []netip.Addr
			for _, a := range w.names[name] {
				out = append(out, netip.MustParseAddr(a))
			}
			if out == nil {
				out = []netip.Addr{netip.MustParseAddr(public)}
			}
			return out, nil
		},
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			w.mu.Lock()
			w.dialled = append(w.dialled, addr)
			if strings.HasPrefix(addr, public) {
				addr = w.server
			}
			w.mu.Unlock()
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
		Log: func(r Request, o Outcome) {
			w.mu.Lock()
			defer w.mu.Unlock()
			what := "connected"
			if o.Refused {
				what = "refused"
			} else if o.Err != nil {
				what = "failed"
			}
			w.outcomes = append(w.outcomes, fmt.Sprintf("%s %s %s %v %v", r.User, r, what, o.Sent > 0, o.Received > 0))
			select {
			case w.logged <- struct{}{}:
			default:
			}
		},
	}
	if change != nil {
		change(&cfg)
	}
	w.proxy = New(cfg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = l.Addr().String()
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.proxy.Serve(ctx, l) }()
	w.stop = sync.OnceValue(func() error {
		cancel(errEnd)
		select {
		case err := <-ended:
			return err
		case <-time.After(20 * time.Second):
			return errors.New("Serve has not returned")
		}
	})
	t.Cleanup(func() {
		if err := w.stop(); !errors.Is(err, errEnd) {
			t.Errorf("Serve: %v", err)
		}
		if w.proxy.total != 0 || len(w.proxy.users) != 0 {
			t.Errorf("connections are still counted: %d, %v", w.proxy.total, w.proxy.users)
		}
	})
	return w
}

var errEnd = errors.New("the test ends")

func (w *world) list(of *[]string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(*of)
}

// wantOutcomes waits for as many outcomes and compares them.
func (w *world) wantOutcomes(want ...string) {
	w.t.Helper()
	for range want {
		select {
		case <-w.logged:
		case <-time.After(10 * time.Second):
			w.t.Fatalf("outcomes %v, want %v", w.list(&w.outcomes), want)
		}
	}
	got := w.list(&w.outcomes)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("outcomes %q, want %q", got, want)
	}
}

func (w *world) url(scheme string) *url.URL {
	return &url.URL{Scheme: scheme, User: url.UserPassword("task1", "secret"), Host: w.addr}
}

func (w *world) client() *http.Client {
	transport := &http.Transport{Proxy: http.ProxyURL(w.url("http"))}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (w *world) dial() *wire {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return &wire{w.t, c.(*net.TCPConn), bufio.NewReader(c)}
}

// wire is a raw connection to the proxy.
type wire struct {
	t testing.TB
	*net.TCPConn
	r *bufio.Reader
}

var auth = "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("task1:secret")) + "\r\n"

func (c *wire) send(s string) {
	if _, err := io.WriteString(c.TCPConn, s); err != nil {
		c.t.Logf("send: %v", err) // the proxy may have closed by then
	}
}

// response reads a response and its body.
func (c *wire) response() (*http.Response, string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatalf("read a response: %v", err)
	}
	body, _ := io.ReadAll(resp.Body)
	return resp, string(body)
}

// connected sends CONNECT and expects a tunnel. Of a response to CONNECT net/http would
// wait for a body.
func (c *wire) connect(target string) string {
	c.t.Helper()
	c.send("CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n" + auth + "\r\n")
	return c.head()
}

func (c *wire) head() string {
	c.t.Helper()
	status := ""
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			c.t.Fatalf("read a response: %v after %q", err, status)
		}
		if status == "" {
			status = strings.TrimSpace(line)
		}
		if strings.TrimSpace(line) == "" {
			return status
		}
	}
}

// socks sends a handshake and returns the reply.
func (c *wire) socks(kind byte, address string, port int) byte {
	c.t.Helper()
	c.send("\x05\x01\x02\x01\x05task1\x06secret\x05\x01\x00" + string([]byte{kind}) + address + string([]byte{byte(port >> 8), byte(port)}))
	head := make([]byte, 4+10)
	if _, err := io.ReadFull(c.r, head); err != nil {
		c.t.Fatalf("read a SOCKS reply: %v, %x", err, head)
	}
	return head[5]
}

func name(s string) string { return string([]byte{byte(len(s))}) + s }

// ended expects that the proxy closes the connection.
func (c *wire) ended() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, c.r); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Error("the proxy has not closed the connection")
	}
}

// web answers with what it was asked.
func web(t testing.TB) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(s.Close)
	return s
}

func answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set(RefusedHeader, "a lie of the server")
	w.Header().Set("Keep-Alive", "timeout=5")
	_, _ = fmt.Fprintf(w, "%s %s host=%s body=%s header=%v", r.Method, r.URL.RequestURI(), r.Host, body, r.Header)
}

func echo(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	return l.Addr().String()
}

func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl")
	}
	plain := web(t)
	secure := httptest.NewTLSServer(http.HandlerFunc(answer))
	t.Cleanup(secure.Close)
	for _, c := range []struct{ name, proxy, url, server, want string }{
		{"http", "http", "http://good.example/a?b=;c", plain.URL, "GET /a?b=;c host=good.example body="},
		{"http with port", "http", "http://good.example:8080/", plain.URL, "GET / host=good.example:8080"},
		{"https", "http", "https://good.example/a", secure.URL, "GET /a host=good.example"},
		{"socks5h", "socks5h", "http://good.example/a", plain.URL, "GET /a host=good.example"},
		{"socks5h https", "socks5h", "https://good.example/a", secure.URL, "GET /a host=good.example"},
		{"socks5 address", "socks5", "http://" + public + "/a", plain.URL, "GET /a host=" + public},
		{"http refused", "http", "http://evil.example/", plain.URL, "connection to evil.example:80 refused: no rule allows it (a rule evil.example:80 would allow it)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, _ := url.Parse(c.server)
			w := newWorld(t, server.Host, nil)
			out, err := exec.CommandContext(t.Context(), curl, "-sSk", "--noproxy", "", "-x", w.url(c.proxy).String(), c.url).CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), c.want) {
				t.Errorf("%v: %s, want %s", err, out, c.want)
			}
			if strings.Contains(string(out), "Proxy-") {
				t.Errorf("the server got a header for the proxy: %s", out)
			}
		})
	}
	t.Run("https refused", func(t *testing.T) {
		w := newWorld(t, plain.Listener.Addr().String(), nil)
		out, err := exec.CommandContext(t.Context(), curl, "-sSki", "--noproxy", "", "-x", w.url("http").String(), "https://evil.example/").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "403") || !strings.Contains(string(out), "Drover-Refused: connection to evil.example:443 refused") {
			t.Errorf("%v: %s", err, out)
		}
		w.wantOutcomes("task1 evil.example:443 refused false false")
	})
}

func TestGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git")
	}
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), git, args...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME="+dir, "no_proxy=", "NO_PROXY=", "GIT_TERMINAL_PROMPT=0",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	run("init", "-q", dir+"/a")
	run("-C", dir+"/a", "commit", "-q", "--allow-empty", "-m", "one")
	run("clone", "-q", "--bare", dir+"/a", dir+"/www/a.git")
	run("-C", dir+"/www/a.git", "update-server-info")
	server := httptest.NewServer(http.FileServer(http.Dir(dir + "/www")))
	t.Cleanup(server.Close)
	w := newWorld(t, server.Listener.Addr().String(), nil)
	run("-c", "http.proxy="+w.url("http").String(), "clone", "-q", "http://good.example/a.git", dir+"/b")
	if log := run("-C", dir+"/b", "log", "--format=%s"); log != "one\n" {
		t.Errorf("log: %s", log)
	}
}

func TestForwarded(t *testing.T) {
	server := web(t)
	w := newWorld(t, server.Listener.Addr().String(), nil)
	c := w.dial()
	c.send("POST http://GOOD.example./p?q HTTP/1.1\r\nHost: evil.example\r\n" + auth +
		"Proxy-Connection: keep-alive\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 3\r\nX-Forwarded-For: 1.1.1.1\r\nX-End: 2\r\nContent-Length: 4\r\n\r\nbody")
	resp, body := c.response()
	if resp.StatusCode != 200 || !strings.HasPrefix(body, "POST /p?q host=good.example body=body") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	for _, hop := range []string{"Proxy-", "X-Hop", "Keep-Alive", "secret"} {
		if strings.Contains(body, hop) {
			t.Errorf("%s was passed on: %s", hop, body)
		}
	}
	for _, end := range []string{"X-End:[2]", "X-Forwarded-For:[1.1.1.1]"} {
		if !strings.Contains(body, end) {
			t.Errorf("%s was not passed on: %s", end, body)
		}
	}
	if resp.Header.Get(RefusedHeader) != "" || resp.Header.Get("Keep-Alive") != "" {
		t.Errorf("headers of the server's connection: %v", resp.Header)
	}
	w.wantOutcomes("task1 good.example:80 connected true true")
}

// Every request on a connection is judged by itself, whatever its predecessor was.
func TestSecondRequest(t *testing.T) {
	server := web(t)
	w := newWorld(t, server.Listener.Addr().String(), nil)
	c := w.dial()
	c.send("GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n" + auth + "\r\n" +
		"GET http://evil.example/ HTTP/1.1\r\nHost: good.example\r\n" + auth + "\r\n" +
		"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n")
	for _, want := range []int{200, 403, 407} {
		if resp, body := c.response(); resp.StatusCode != want {
			t.Errorf("%d %s, want %d", resp.StatusCode, body, want)
		}
	}
	w.wantOutcomes("task1 good.example:80 connected true true", "task1 evil.example:80 refused false false")
	for _, a := range w.list(&w.asked) {
		if a != "good.example" {
			t.Errorf("the resolver was asked about %s, which is not allowed", a)
		}
	}
}

// What one side takes for the end of a body, the other does too.
func TestSmuggling(t *testing.T) {
	server := web(t)
	w := newWorld(t, server.Listener.Addr().String(), nil)
	inner := "GET /smuggled HTTP/1.1\r\nHost: evil.example\r\n\r\n"
	for _, head := range []string{
		"Content-Length: 0\r\nContent-Length: 50\r\n",
		"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
		"Transfer-Encoding: xchunked\r\n",
		"Transfer-Encoding : chunked\r\n",
		"Content-Length: +3\r\n",
		"Content-Length: -1\r\n",
		"X: 1\r\n Content-Length: 9\r\n",
		"X\x00: 1\r\n",
		"X: a\rb\r\n",
		"Host: good.example\r\nHost: evil.example\r\n",
		"Connection: Content-Length\r\nContent-Length: 60\r\n",
		"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n",
		"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
		"Transfer-Encoding: \x0bchunked\r\n",
		"Transfer-Encoding: chunked, identity\r\n",
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
		"Expect: 100-continue\r\nContent-Length: 5\r\n",
		"Content-Length: 0x10\r\n",
		"Content-Length: 5, 5\r\n",
	} {
		c := w.dial()
		c.send("POST http://good.example/first HTTP/1.1\r\nHost: good.example\r\n" + auth + head + "\r\n0\r\n\r\n" + inner)
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c.r)
		if strings.Contains(string(all), "/smuggled") {
			t.Errorf("%q: a second request went through: %s", head, all)
		}
	}
}

func TestCredentials(t *testing.T) {
	server := web(t)
	w := newWorld(t, server.Listener.Addr().String(), nil)
	basic := func(s string) string {
		return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(s)) + "\r\n"
	}
	for _, head := range []string{"", basic("task1:wrong"), basic("other:secret"), basic(":secret"), basic("task1"), "Proxy-Authorization: Bearer secret\r\n", "Proxy-Authorization: Basic %%%\r\n"} {
		for _, first := range []string{"GET http://good.example/", "CONNECT good.example:80"} {
			c := w.dial()
			c.send(first + " HTTP/1.1\r\nHost: good.example\r\n" + head + "\r\n")
			resp, body := c.response()
			if resp.StatusCode != 407 || resp.Header.Get("Proxy-Authenticate") == "" || !strings.Contains(body, "credentials") {
				t.Errorf("%s with %q: %d %s", first, head, resp.StatusCode, body)
			}
		}
	}
	c := w.dial() // of one task; another one does not go on with it
	c.send("GET http://good.example/ HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n")
	if resp, _ := c.response(); resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
	c.send("GET http://good.example/ HTTP/1.1\r\nHost: x\r\n" + basic("task2:secret") + "\r\n")
	if resp, _ := c.response(); resp.StatusCode != 407 {
		t.Error(resp.Status)
	}
	for hello, want := range map[string]string{
		"\x05\x01\x00": "\x05\xff", // no credentials offered
		"\x05\x01\x00\x01\x05task1\x06secret\x05\x01\x00\x01\x01\x01\x01\x01\x00\x50": "\x05\xff",
		"\x05\x00":                               "\x05\xff", // nothing offered
		"\x05\x02\x00\x02\x01\x05task1\x05wrong": "\x05\x02\x01\x01",
		"\x05\x01\x02\x01\x00\x06secret":         "\x05\x02\x01\x01",
		"\x05\x01\x02\x05\x05task1\x06secret":    "\x05\x02",
	} {
		c := w.dial()
		c.send(hello)
		if got, _ := io.ReadAll(c.r); string(got) != want {
			t.Errorf("SOCKS %q: %q, want %q", hello, got, want)
		}
	}
	anybody := newWorld(t, server.Listener.Addr().String(), func(c *Config) {
		c.Known = func(string, string) bool { return true }
	})
	c = anybody.dial()
	c.send("GET http://good.example/ HTTP/1.1\r\nHost: x\r\n" + basic(":secret") + "\r\n")
	if resp, _ := c.response(); resp.StatusCode != 407 {
		t.Errorf("no user: %s", resp.Status)
	}
	if dialled := w.list(&w.dialled); len(dialled) != 1 {
		t.Errorf("connections were made without credentials: %v", dialled)
	}
}

func TestSOCKS(t *testing.T) {
	w := newWorld(t, echo(t), nil)
	v4 := netip.MustParseAddr(public).As4()
	mapped := netip.MustParseAddr("::ffff:" + public).As16()
	for _, to := range []struct {
		kind    byte
		address string
		want    byte
	}{
		{addressName, name("good.example"), replyDone}, {addressName, name("GOOD.example."), replyDone},
		{addressName, name(public), replyDone},
		{addressIPv4, string(v4[:]), replyDone}, {addressIPv6, string(mapped[:]), replyDone},
		{addressName, name("evil.example"), replyRefused},
		{addressName, name("good.example\x00.evil.example"), replyFailed}, {addressName, name("a\r\nb"), replyFailed},
		{addressName, name(""), replyFailed}, {addressName, name("127.1"), replyFailed}, {addressName, name("fe80::1%lo"), replyFailed},
		{addressIPv4, "\x7f\x00\x00\x01", replyRefused},
		{2, "", replyAddress},
	} {
		c := w.dial()
		if got := c.socks(to.kind, to.address, 80); got != to.want {
			t.Errorf("%d %q: reply %d, want %d", to.kind, to.address, got, to.want)
		}
		if to.want == replyDone {
			c.pingPong()
		} else {
			c.ended()
		}
	}
	c := w.dial() // UDP ASSOCIATE
	c.send("\x05\x01\x02\x01\x05task1\x06secret\x05\x03\x00\x01\x01\x01\x01\x01\x00\x50")
	if got, _ := io.ReadAll(c.r); len(got) != 14 || got[5] != replyCommand {
		t.Errorf("%x", got)
	}
	if c := w.dial(); c.socks(addressName, name("good.example"), 0) != replyFailed {
		t.Error("port 0 is no error")
	}
	// Bytes that come before the reply are not lost.
	c = w.dial()
	c.send("\x05\x01\x02\x01\x05task1\x06secret\x05\x01\x00\x03" + name("good.example") + "\x00\x50early ")
	if _, err := io.ReadFull(c.r, make([]byte, 14)); err != nil {
		t.Fatal(err)
	}
	c.send("late")
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c.r); err != nil || string(got) != "early late" {
		t.Errorf("%q %v", got, err)
	}
	// A server that nobody listens at.
	gone, _ := net.Listen("tcp", "127.0.0.1:0")
	_ = gone.Close()
	w.mu.Lock()
	w.server = gone.Addr().String()
	w.mu.Unlock()
	if got := w.dial().socks(addressName, name("good.example"), 80); got != replyNobody {
		t.Errorf("reply %d", got)
	}
}

// pingPong sends to an echo server, ends its side, and reads to the end.
func (c *wire) pingPong() {
	c.t.Helper()
	c.send("ping")
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c.r); err != nil || string(got) != "ping" {
		c.t.Errorf("got %q, %v", got, err)
	}
}

func TestConnect(t *testing.T) {
	w := newWorld(t, echo(t), nil)
	c := w.dial()
	// Bytes that come with the request are not lost.
	c.send("CONNECT good.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n" + auth + "\r\nearly ")
	if got := c.head(); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Fatal(got)
	}
	c.send("late")
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c.r); err != nil || string(got) != "early late" {
		t.Errorf("%q %v", got, err)
	}
	w.wantOutcomes("task1 good.example:443 connected true true")
}

// These never reach the server, whatever the spelling.
func TestHostileTargets(t *testing.T) {
	server := web(t)
	port := server.Listener.Addr().(*net.TCPAddr).Port
	w := newWorld(t, server.Listener.Addr().String(), func(c *Config) {
		c.Match = func(Request) (bool, bool) { return true, false } // as *
	})
	w.names["rebound.example"] = []string{"127.0.0.1"}
	w.names["mapped.example"] = []string{"::ffff:127.0.0.1"}
	w.names["zone.example"] = []string{"fe80::1%lo"}
	for _, host := range []string{
		"127.0.0.1", "127.0.0.2", "0.0.0.0", "10.0.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "168.63.129.16",
		"[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1]", "[fd00:ec2::254]", "[ff02::1]",
		"[fe80::1%25lo]", "[::1%25lo]", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "0177.0.0.1", "127.1", "127.0.1", "127.0.0.01",
		"0", "127.0.0.1.", "0.0.0.0.", "192.0.0.8", "240.0.0.1", "255.255.255.255", "[64:ff9b:1::7f00:1]", "[::ffff:0:7f00:1]",
		"[2001:0:1::80ff:fffe]", "[100::1]", "[fec0::1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[2002:a9fe:a9fe::1]",
		"localhost", "LOCALHOST", "localhost.", "a.localhost", "%6cocalhost", "①②⑦.⓪.⓪.①", "１２７。０。０。１", "ⓛocalhost",
		"rebound.example", "mapped.example", "zone.example", "good.example%00.evil.example", "good.example%0d%0aX:1", "good.example\\@127.0.0.1", "good.example@127.0.0.1",
	} {
		target := fmt.Sprintf("%s:%d", host, port)
		c := w.dial()
		if got := c.connect(target); strings.Contains(got, " 200 ") {
			t.Errorf("CONNECT %s: %s", target, got)
		}
		c = w.dial()
		c.send("GET http://" + target + "/ HTTP/1.1\r\nHost: good.example\r\n" + auth + "\r\n")
		if resp, body := c.response(); resp.StatusCode == 200 || resp.StatusCode >= 500 {
			t.Errorf("GET %s: %d %s", target, resp.StatusCode, body)
		}
		bare := strings.Trim(host, "[]")
		if got := w.dial().socks(addressName, name(bare), port); got == replyDone {
			t.Errorf("SOCKS %s: connected", bare)
		}
	}
	if dialled := w.list(&w.dialled); len(dialled) > 0 {
		t.Errorf("dialled %v", dialled)
	}
}

func TestMalformed(t *testing.T) {
	w := newWorld(t, "127.0.0.1:1", nil)
	for request, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: good.example\r\n" + auth + "\r\n":                                  400,
		"GET https://good.example/ HTTP/1.1\r\nHost: good.example\r\n" + auth + "\r\n":              400,
		"GET ftp://good.example/ HTTP/1.1\r\nHost: good.example\r\n" + auth + "\r\n":                400,
		"GET http:good.example HTTP/1.1\r\nHost: good.example\r\n" + auth + "\r\n":                  400,
		"GET http:///x HTTP/1.1\r\nHost: good.example\r\n" + auth + "\r\n":                          400,
		"GET http://good.example:99999/ HTTP/1.1\r\nHost: good.example\r\n" + auth + "\r\n":         400,
		"CONNECT good.example HTTP/1.1\r\nHost: good.example\r\n" + auth + "\r\n":                   400,
		"CONNECT good.example:443/x HTTP/1.1\r\nHost: good.example\r\n" + auth + "\r\n":             400,
		"CONNECT /x HTTP/1.1\r\nHost: good.example\r\n" + auth + "\r\n":                             400,
		"CONNECT u@good.example:443 HTTP/1.1\r\nHost: good.example\r\n" + auth + "\r\n":             400,
		"CONNECT good.example:1 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n" + auth + "\r\nabc":    400,
		"OPTIONS * HTTP/1.1\r\nHost: good.example\r\n" + auth + "\r\n":                              400,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                                          407,
		"GET http://good.example/ HTTP/1.1\r\nHost: a b\r\n" + auth + "\r\n":                        400,
		"GET http://good.example/ HTTP/1.1\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n":        431,
		"GET http://good.example/" + strings.Repeat("a", 1<<20) + " HTTP/1.1\r\nHost: x\r\n\r\n":    431,
		"CONNECT " + strings.Repeat("a.", 1000) + "com:443 HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n": 400,
	} {
		c := w.dial()
		c.send(request)
		resp, err := http.ReadResponse(c.r, nil)
		if err != nil {
			if want != 431 { // the rest of a request that is too long may reset the connection
				t.Errorf("%.60q: %v, want %d", request, err, want)
			}
			continue
		}
		if resp.StatusCode != want {
			t.Errorf("%.60q: %s, want %d", request, resp.Status, want)
		}
	}
	for _, first := range []string{"\x16\x03\x01\x02\x00", "\x04\x01\x00\x50\x01\x01\x01\x01\x00", "\x00", "\r\n", "get / HTTP/1.1\r\n\r\n"} {
		c := w.dial()
		c.send(first)
		c.ended()
	}
	if got := w.list(&w.dialled); len(got) > 0 {
		t.Errorf("dialled %v", got)
	}
}

// Half a request ends after the time for a handshake.
func TestHandshakeTime(t *testing.T) {
	w := newWorld(t, "127.0.0.1:1", func(c *Config) { c.Limits.Handshake = 50 * time.Millisecond })
	for _, half := range []string{"", "G", "GET http://good.example/ HTTP/1.1\r\nHost: x\r\n", "CONNECT ", "\x05", "\x05\x05\x02", "\x05\x01\x02\x01\x05task1", "\x05\x01\x02\x01\x05task1\x06secret\x05\x01\x00\x03\xffabc"} {
		c := w.dial()
		c.send(half)
		c.ended()
	}
}

// The address that was checked is the one that is dialled, and a name that resolves to
// both kinds is reached at the public one only.
func TestRebinding(t *testing.T) {
	server := web(t)
	times := 0
	w := newWorld(t, server.Listener.Addr().String(), func(c *Config) {
		c.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			times++
			if times == 1 {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr(public), netip.MustParseAddr("::ffff:10.0.0.1")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	})
	client := w.client()
	resp, err := client.Get("http://good.example/")
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
	if got := w.list(&w.dialled); times != 1 || !slices.Equal(got, []string{public + ":80"}) {
		t.Errorf("resolved %d times, dialled %v", times, got)
	}
	resp, err = client.Get("http://good.example/")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 403 || !strings.Contains(string(body), "127.0.0.1 belongs to this machine (a rule 127.0.0.1:80 would allow it)") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestPrivate(t *testing.T) {
	server := web(t)
	at := server.Listener.Addr().(*net.TCPAddr)
	get := func(w *world, url string) int {
		t.Helper()
		resp, err := w.client().Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for _, c := range []struct {
		host, rules string
		want        int
	}{
		{"localhost", "localhost:PORT", 200},
		{"localhost", "localhost:1 *", 403},
		{"app.localhost", "*.localhost", 200},
		{"127.0.0.1", "127.0.0.1", 200},
		{"127.0.0.1", "127.0.0.0/8:PORT", 200},
		{"127.0.0.1", "* 0.0.0.0/0", 403},
		{"git.corp.example", "git.corp.example", 403},
		{"git.corp.example", "git.corp.example 127.0.0.1:PORT", 200},
		{"git.corp.example", "127.0.0.1:PORT", 403},
	} {
		rules := rulesOf(t, strings.Fields(strings.ReplaceAll(c.rules, "PORT", fmt.Sprint(at.Port)))...)
		w := newWorld(t, "", func(cfg *Config) { cfg.Match = rules.Match })
		w.names["git.corp.example"] = []string{"127.0.0.1"}
		// Go's client would not use a proxy for localhost, unless told to.
		if got := get(w, fmt.Sprintf("http://%s:%d/", c.host, at.Port)); got != c.want {
			t.Errorf("%s with %s: %d, want %d", c.host, c.rules, got, c.want)
		}
	}
	// An address of an interface of this machine is private, though it looks public.
	w := newWorld(t, at.String(), nil)
	w.proxy.own = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr(public)}, nil }
	if got := get(w, "http://good.example/"); got != 403 {
		t.Errorf("this machine by its public address: %d", got)
	}
	// A metadata service is not private by the name alone.
	w = newWorld(t, at.String(), func(c *Config) {
		c.Private = func(r Request) bool { return r.Host == "good.example" }
	})
	w.names["good.example"] = []string{"169.254.169.254"}
	if got := get(w, "http://good.example/"); got != 403 {
		t.Errorf("a metadata service: %d", got)
	}
}

// A question is asked once for all connections that ask for the same, before the name
// is resolved; its answer is for all of them.
func TestQuestion(t *testing.T) {
	server := web(t)
	asked, answers := make(chan Request, 10), make(chan error)
	w := newWorld(t, server.Listener.Addr().String(), func(c *Config) {
		c.Limits.Questions = 2
		c.Allow = func(ctx context.Context, r Request) error {
			asked <- r
			select {
			case err := <-answers:
				return err
			case <-ctx.Done():
				asked <- Request{Host: "ended: " + context.Cause(ctx).Error()}
				return ctx.Err()
			}
		}
	})
	const ask = "GET http://new.example/ HTTP/1.1\r\nHost: x\r\n"
	var waiting []*wire
	for range 3 {
		c := w.dial()
		c.send(ask + auth + "\r\n")
		waiting = append(waiting, c)
	}
	if got := <-asked; got != (Request{"task1", "new.example", 80}) {
		t.Errorf("%+v", got)
	}
	if !waittest.Until(10*time.Second, func() bool { return w.waiting() == 3 }) {
		t.Fatal("the connections do not share the question")
	}
	if got := w.list(&w.asked); len(got) != 0 {
		t.Errorf("names were resolved before they were allowed: %v", got)
	}
	answers <- nil
	for _, c := range waiting {
		if resp, body := c.response(); resp.StatusCode != 200 {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
	if len(asked) > 0 {
		t.Errorf("asked again: %+v", <-asked)
	}
	w.wantOutcomes("task1 new.example:80 connected true true", "task1 new.example:80 connected true true", "task1 new.example:80 connected true true")

	// A no has the text of the answer, for a person and for a program, on one line.
	c := w.dial()
	c.send(ask + auth + "\r\n")
	<-asked
	answers <- errors.New("Ann said no\r\nX-Evil: 1")
	resp, body := c.response()
	said := resp.Header.Get(RefusedHeader)
	if resp.StatusCode != 403 || !strings.Contains(said, "new.example:80 refused: Ann said no") || resp.Header.Get("X-Evil") != "" ||
		strings.TrimSpace(body) != said {
		t.Errorf("%d %q %q", resp.StatusCode, said, body)
	}

	// One that leaves ends its question, by HTTP and by SOCKS.
	c = w.dial()
	c.send(ask + auth + "\r\n")
	<-asked
	_ = c.Close()
	if got := <-asked; !strings.Contains(got.Host, "ended: ") {
		t.Errorf("%+v", got)
	}
	c = w.dial()
	c.send("\x05\x01\x02\x01\x05task1\x06secret\x05\x01\x00\x03" + name("new.example") + "\x00\x50")
	<-asked
	_ = c.Close()
	if got := <-asked; !strings.Contains(got.Host, errNobodyWaits.Error()) {
		t.Errorf("%+v", got)
	}

	// Others are bounded; what rules allow goes through all the same.
	if !waittest.Until(10*time.Second, func() bool { return w.waiting() == 0 }) {
		t.Fatal("questions of connections that left are open")
	}
	for _, host := range []string{"one", "two"} {
		c := w.dial()
		c.send("GET http://" + host + ".example/ HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n")
		<-asked
	}
	c = w.dial()
	c.send("GET http://three.example/ HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n")
	if resp, body := c.response(); resp.StatusCode != 403 || !strings.Contains(body, "2 questions") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	c.send("GET http://good.example/ HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n")
	if resp, body := c.response(); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	// The rest ends with Serve, which the cleanup waits for.
}

// waiting counts who waits for answers.
func (w *world) waiting() int {
	w.proxy.mu.Lock()
	defer w.proxy.mu.Unlock()
	waiting := 0
	for _, q := range w.proxy.questions {
		waiting += q.waiting
	}
	return waiting
}

func TestQuestionTime(t *testing.T) {
	w := newWorld(t, "127.0.0.1:1", func(c *Config) {
		c.Limits.Question = time.Millisecond
		c.Allow = func(ctx context.Context, _ Request) error { <-ctx.Done(); return ctx.Err() }
	})
	c := w.dial()
	c.send("GET http://new.example/ HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n")
	if resp, body := c.response(); resp.StatusCode != 403 || !strings.Contains(body, "nobody answered within 1ms") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// Whatever refuses a connection says what would allow it, in the header and in the body.
func TestRemedies(t *testing.T) {
	server := web(t)
	hold := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(hold) }))
	via, err := url.Parse("http://192.0.2.7:3128")
	if err != nil {
		t.Fatal(err)
	}
	deny := func(c *Config) { c.Allow = nil }
	wait := func(ctx context.Context, _ Request) error {
		select {
		case <-ctx.Done():
		case <-hold:
		}
		return ctx.Err()
	}
	for name, c := range map[string]struct {
		host, why, fix string
		change         func(*Config)
	}{
		"no rule":            {"evil.example", "no rule allows it", "evil.example:80", deny},
		"this machine":       {"home.example", "belongs to this machine", "127.0.0.1:80", nil},
		"a private network":  {"corp.example", "belongs to a private network", "10.1.2.3:80", nil},
		"metadata":           {"cloud.example", "169.254.169.254 belongs to", "169.254.169.254:80", nil},
		"behind a proxy":     {"corp.example", "belongs to a private network", "10.1.2.3:80", func(c *Config) { c.Upstream = func(*url.URL) (*url.URL, error) { return via, nil } }},
		"nobody answers":     {"evil.example", "nobody answered within", "evil.example:80", func(c *Config) { c.Limits.Question, c.Allow = time.Millisecond, wait }},
		"too many questions": {"evil.example", "wait for an answer", "evil.example:80", func(c *Config) { c.Limits.Questions, c.Allow = 1, wait }},
		"the answer of a user": {"evil.example", "the user said no", "and why", func(c *Config) {
			c.Allow = func(context.Context, Request) error { return errors.New("the user said no (and why)") }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, server.Listener.Addr().String(), func(cfg *Config) {
				cfg.Setting = "sandbox.domains"
				cfg.Match = func(r Request) (bool, bool) { return r.Host != "evil.example" && r.Host != "first.example", false }
				if c.change != nil {
					c.change(cfg)
				}
			})
			w.names["home.example"], w.names["corp.example"], w.names["cloud.example"] = []string{"127.0.0.1"}, []string{"10.1.2.3"}, []string{"169.254.169.254"}
			if name == "too many questions" {
				first := w.dial()
				first.send("GET http://first.example/ HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n")
				if !waittest.Until(10*time.Second, func() bool { return w.waiting() == 1 }) {
					t.Fatal("the first question is not asked")
				}
			}
			conn := w.dial()
			conn.send("GET http://" + c.host + "/ HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n")
			resp, body := conn.response()
			for where, text := range map[string]string{"the header": resp.Header.Get(RefusedHeader), "the body": body} {
				if !strings.Contains(text, c.why) || !strings.Contains(text, c.fix) ||
					name != "the answer of a user" && !strings.Contains(text, "in the setting sandbox.domains would allow it") {
					t.Errorf("%s says %q", where, text)
				}
			}
			if resp.StatusCode != 403 {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(t, echo(t), func(c *Config) {
		c.Limits.Connections, c.Limits.PerUser, c.Limits.Handshaking = 20, 2, 3
		c.Limits.Handshake = time.Hour
	})
	if c := w.dial(); c.connect("good.example:1") == "" {
		t.Fatal()
	}
	second := w.dial()
	if second.socks(addressName, name("good.example"), 1) != replyDone {
		t.Fatal("no second connection")
	}
	third := w.dial()
	if got := third.connect("good.example:1"); !strings.Contains(got, " 503 ") {
		t.Errorf("a third connection of a user: %s", got)
	}
	if got := w.dial().socksStatus(); got != 1 {
		t.Errorf("the same by SOCKS: %d", got)
	}
	// Another user has a place.
	c := w.dial()
	c.send("CONNECT good.example:1 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("task2:secret")) + "\r\n\r\n")
	if got := c.head(); !strings.Contains(got, " 200 ") {
		t.Errorf("another user: %s", got)
	}
	// Those that say nothing leave places for others.
	third.ended()
	if !waittest.Until(10*time.Second, func() bool { return w.counted("") == 0 }) {
		t.Fatalf("%d are handshaking", w.counted(""))
	}
	var silent []*wire
	for range 3 {
		silent = append(silent, w.dial())
	}
	if !waittest.Until(10*time.Second, func() bool { return w.counted("") == 3 }) {
		t.Fatalf("%d are handshaking", w.counted(""))
	}
	w.dial().ended()
	// A place is free again when its connection has ended.
	_ = second.Close()
	_ = silent[0].Close()
	if !waittest.Until(10*time.Second, func() bool { return w.counted("") == 2 && w.counted("task1") == 1 }) {
		t.Fatal("places are not given back")
	}
	if got := w.dial().connect("good.example:1"); !strings.Contains(got, " 200 ") {
		t.Errorf("after one ended: %s", got)
	}
}

// All users together have a bound too.
func TestConnectionsInAll(t *testing.T) {
	w := newWorld(t, echo(t), func(c *Config) { c.Limits.Connections, c.Limits.Handshake = 1, time.Hour })
	first := w.dial()
	if got := first.connect("good.example:1"); !strings.Contains(got, " 200 ") {
		t.Fatal(got)
	}
	w.dial().ended()
}

func (w *world) counted(user string) int {
	w.proxy.mu.Lock()
	defer w.proxy.mu.Unlock()
	return w.proxy.users[user]
}

func (c *wire) socksStatus() byte {
	c.send("\x05\x01\x02\x01\x05task1\x06secret")
	got, _ := io.ReadAll(c.r)
	if len(got) != 4 {
		c.t.Fatalf("%x", got)
	}
	return got[3]
}

// Open connections end when nothing moves, sooner after one side has ended.
func TestIdle(t *testing.T) {
	quiet, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = quiet.Close() })
	w := newWorld(t, quiet.Addr().String(), func(c *Config) { c.Limits.HalfOpen = 30 * time.Millisecond })
	c := w.dial()
	if got := c.connect("good.example:1"); !strings.Contains(got, " 200 ") {
		t.Fatal(got)
	}
	_ = c.CloseWrite()
	c.ended()
	w = newWorld(t, quiet.Addr().String(), func(c *Config) { c.Limits.Idle = 30 * time.Millisecond })
	c = w.dial()
	if got := c.connect("good.example:1"); !strings.Contains(got, " 200 ") {
		t.Fatal(got)
	}
	c.ended()
	c = w.dial()
	c.send("GET http://good.example/ HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n")
	if resp, body := c.response(); resp.StatusCode != 504 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// Serve ends when its listener is closed, with everything that is open.
func TestListenerClosed(t *testing.T) {
	server := echo(t)
	p := New(Config{
		Known:  func(string, string) bool { return true },
		Match:  func(Request) (bool, bool) { return true, true },
		Limits: Limits{Handshake: time.Hour},
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(t.Context(), l) }()
	w := &world{t: t, addr: l.Addr().String()}
	tunnel, socks, idle := w.dial(), w.dial(), w.dial()
	if got := tunnel.connect(server); !strings.Contains(got, " 200 ") {
		t.Fatal(got)
	}
	at := netip.MustParseAddrPort(server)
	v4 := at.Addr().As4()
	if socks.socks(addressIPv4, string(v4[:]), int(at.Port())) != replyDone {
		t.Fatal("no connection")
	}
	_ = l.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Serve has not returned")
	}
	for _, c := range []*wire{tunnel, socks, idle} {
		c.ended()
	}
	if p.total != 0 {
		t.Errorf("%d connections are counted", p.total)
	}
}

// A protocol that HTTP changes to goes on, and is counted.
func TestUpgrade(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(c, rw)
	}))
	t.Cleanup(server.Close)
	w := newWorld(t, server.Listener.Addr().String(), nil)
	c := w.dial()
	c.send("GET http://good.example/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n" + auth + "\r\n")
	if got := c.head(); !strings.Contains(got, " 101 ") {
		t.Fatal(got)
	}
	c.send("ping")
	got := make([]byte, 4)
	if _, err := io.ReadFull(c.r, got); err != nil || string(got) != "ping" {
		t.Errorf("%q %v", got, err)
	}
	_ = c.Close()
	w.wantOutcomes("task1 good.example:80 connected true true")
}

// Large bodies come through whole, both ways, by each protocol.
func TestLarge(t *testing.T) {
	const size = 8 << 20
	data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	w := newWorld(t, echo(t), nil)
	c := w.dial()
	if got := c.connect("good.example:1"); !strings.Contains(got, " 200 ") {
		t.Fatal(got)
	}
	var writing sync.WaitGroup
	writing.Go(func() {
		_, _ = c.Write(data)
		_ = c.CloseWrite()
	})
	got, err := io.ReadAll(c.r)
	writing.Wait()
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	w = newWorld(t, server.Listener.Addr().String(), nil)
	resp, err := w.client().Post("http://good.example/", "application/octet-stream", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	got, err = io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// FuzzSOCKS: whatever comes, the handshake ends, reads little, and what it lets through
// is a host that is normalised already.
func FuzzSOCKS(f *testing.F) {
	f.Add([]byte("\x01\x02\x01\x05task1\x06secret\x05\x01\x00\x03\x0cgood.example\x00\x50rest"))
	f.Add([]byte("\x01\x02\x01\x05task1\x06secret\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"))
	f.Add([]byte("\x02\x00\x02\x01\x00\x00\x05\x01\x00\x04aaaaaaaaaaaaaaaa\x00\x50"))
	f.Fuzz(func(t *testing.T, in []byte) {
		left := bytes.NewReader(in)
		var wrote bytes.Buffer
		claimed := 0
		r, err := socksHandshake(readWriter{left, &wrote}, func(user, password string) error {
			claimed++
			if user != "task1" || password != "secret" {
				return errCredentials
			}
			return nil
		})
		if wrote.Len() > 4 || len(in)-left.Len() > 1100 {
			t.Fatalf("read %d, wrote %d", len(in)-left.Len(), wrote.Len())
		}
		if err != nil {
			return
		}
		if host, err := parseHost(r.Host); claimed != 1 || err != nil || host != r.Host || r.User != "task1" || r.Port < 1 || r.Port > 65535 {
			t.Fatalf("%+v %v", r, err)
		}
	})
}

type readWriter struct {
	io.Reader
	io.Writer
}

// FuzzConnection: whatever the first bytes are, nothing but an allowed public host is
// dialled, and the connection ends.
func FuzzConnection(f *testing.F) {
	f.Add([]byte("GET http://good.example/ HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n"))
	f.Add([]byte("CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n"))
	f.Add([]byte("\x05\x01\x02\x01\x05task1\x06secret\x05\x01\x00\x03\x0cgood.example\x00\x50rest"))
	server := echo(f)
	w := newWorld(f, server, nil)
	f.Fuzz(func(t *testing.T, in []byte) {
		nc, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Skip(err)
		}
		c := nc.(*net.TCPConn)
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = c.Write(in)
		_ = c.CloseWrite()
		_, err = io.Copy(io.Discard, c)
		_ = c.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the connection does not end")
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, a := range w.dialled {
			if !strings.HasPrefix(a, public+":") {
				t.Fatalf("dialled %s", a)
			}
		}
		w.dialled, w.outcomes, w.asked = nil, nil, nil
	})
}

func BenchmarkConnect(b *testing.B) {
	w := newWorld(b, echo(b), nil)
	for b.Loop() {
		c := w.dial()
		c.connect("good.example:1")
		c.send("ping")
		_, _ = io.ReadFull(c.r, make([]byte, 4))
		_ = c.Close()
	}
}

func BenchmarkTunnel(b *testing.B) {
	w := newWorld(b, echo(b), nil)
	c := w.dial()
	c.connect("good.example:1")
	data := make([]byte, 64<<10)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = c.Write(data)
		_, _ = io.ReadFull(c.r, data)
	}
}

func BenchmarkDirect(b *testing.B) {
	c, err := net.Dial("tcp", echo(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	data := make([]byte, 64<<10)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		_, _ = c.Write(data)
		_, _ = io.ReadFull(c, data)
	}
}

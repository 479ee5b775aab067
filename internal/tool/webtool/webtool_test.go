package webtool

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a server with a page for each path, and what it was asked for.
type site struct {
	*httptest.Server
	hits atomic.Int64
}

func serve(t *testing.T, f http.HandlerFunc) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		f(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func fetch(t *testing.T, f *Fetcher, url string) agent.Output {
	t.Helper()
	in, _ := json.Marshal(map[string]string{"url": url, "prompt": "what is it?"})
	out, err := New(f).Call(t.Context(), agent.Call{Input: in})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func private(c Config) *Fetcher {
	c.AllowPrivate = true
	return NewFetcher(c)
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		name, kind, body string
		want             string // of the text, set in by two blanks; empty: refused
		refused          string
	}{
		{"html", "text/html; charset=utf-8", "<title>T</title><p>a &amp;lt; <a href='/x'>b</a></p>",
			"  T\n  \n  a &lt; [b](BASE/x)\n", ""},
		{"json", "application/json", "{\"a\":\n 1}", "  {\"a\":\n   1}\n", ""},
		{"problem", "application/problem+json", "{}", "  {}\n", ""},
		{"xml", "application/atom+xml", "<a>1</a>", "  <a>1</a>\n", ""},
		{"plain", "text/plain", "one\r\n\r\ntwo\u202e\x1b[2J", "  one\n  \n  two<U+202E><U+001B>[2J\n", ""},
		{"latin", "text/plain; charset=ISO-8859-1", "gr\xfcn", "  grün\n", ""},
		{"unlabelled", "", "just words", "  just words\n", ""},
		{"empty", "text/plain", "", "(there is no text in it)\n", ""},
		{"image", "image/png", "x", "", "it is image/png, not text"},
		{"archive", "application/zip", "x", "", "it is application/zip, not text"},
		{"svg", "image/svg+xml", "<svg/>", "", "not text"},
		{"lie", "text/plain", "ELF\x00\x01", "", "it is binary, not text"},
		{"unlabelled-binary", "", "\x89PNG\x0d\x0a\x1a\x0a\x00", "", "it is binary, not text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Content-Type"] = nil
				if c.kind != "" {
					w.Header().Set("Content-Type", c.kind)
				}
				_, _ = w.Write([]byte(c.body))
			})
			out := fetch(t, private(Config{}), s.URL+"/p#part")
			if c.refused != "" {
				if !out.IsError || !strings.HasSuffix(out.Text, c.refused) || strings.Contains(out.Text, "\n") {
					t.Errorf("%q", out.Text)
				}
				return
			}
			head, body, _ := strings.Cut(out.Text, "\n\n")
			if out.IsError || body != strings.ReplaceAll(c.want, "BASE", s.URL) ||
				!strings.HasPrefix(head, "Content of "+s.URL+"/p (") || !strings.Contains(head, "untrusted") {
				t.Errorf("%q\n%q", head, body)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get("Cookie") != "" || r.Header.Get("Authorization") != "" ||
			r.UserAgent() != "drover" {
			t.Errorf("%s %v", r.Method, r.Header)
		}
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		if r.URL.Path == "/again" {
			http.Redirect(w, r, "/end", http.StatusFound)
		}
	})
	f := private(Config{})
	fetch(t, f, s.URL+"/again")
	fetch(t, f, s.URL+"/other")
	if s.hits.Load() != 3 {
		t.Errorf("%d requests", s.hits.Load())
	}
}

func TestRefused(t *testing.T) {
	f := private(Config{})
	for in, want := range map[string]string{
		"ftp://x.invalid/":                      "must begin with http:// or https://",
		"file:///etc/passwd":                    "must begin with http:// or https://",
		"x.invalid":                             "must begin with",
		" http://x.invalid":                     "is not an address",
		"http://":                               "names no host",
		"http://user:secret@x.invalid/":         "holds a user or a password",
		"http://user@x.invalid/":                "holds a user or a password",
		"http://x.invalid/\x00":                 "is not an address",
		"http://x/" + strings.Repeat("x", 9000): "is not an address",
	} {
		out := fetch(t, f, in)
		if !out.IsError || !strings.Contains(out.Text, want) || strings.Contains(out.Text, "secret") {
			t.Errorf("%.60s: %q", in, out.Text)
		}
	}
	for in, want := range map[string]string{`{}`: `"url" is missing`,
		`{"url":"http://x","method":"POST"}`: `unknown field "method"`} {
		if out, err := New(f).Call(t.Context(), agent.Call{Input: json.RawMessage(in)}); err != nil || !out.IsError ||
			!strings.Contains(out.Text, want) {
			t.Errorf("%s: %q", in, out.Text)
		}
	}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	if out := fetch(t, f, s.URL); !out.IsError || !strings.HasSuffix(out.Text, "the host answered 404 Not Found") {
		t.Errorf("%q", out.Text)
	}
}

// Addresses of private networks and of this machine are not connected to, by
// whatever name they are reached.
func TestPrivate(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	f := NewFetcher(Config{})
	for _, host := range []string{"127.0.0.1", "localhost", "2130706433", "0", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]",
		"127.1"} {
		out := fetch(t, f, "http://"+host+":"+port+"/")
		if !out.IsError {
			t.Errorf("%s: %q", host, out.Text)
		}
	}
	if out := fetch(t, f, s.URL); !strings.HasSuffix(out.Text, errPrivate.Error()) {
		t.Errorf("%q", out.Text)
	}
	if s.hits.Load() != 0 {
		t.Errorf("%d requests came through", s.hits.Load())
	}
	for _, a := range []string{"10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.1.2.3",
		"224.0.0.1", "255.255.255.255", "198.18.0.1",
		"::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:10.0.0.1", "::ffff:100.64.0.1", "::ffff:0.1.2.3",
		"64:ff9b::a00:1", "2002:a00:1::", "::10.0.0.1", "fec0::1"} {
		if open(netip.MustParseAddr(a)) {
			t.Errorf("%s is taken for public", a)
		}
	}
	for _, a := range []string{"1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1"} {
		if !open(netip.MustParseAddr(a)) {
			t.Errorf("%s is taken for private", a)
		}
	}
	if public("unix", "/run/x.sock") == nil || public("tcp4", "not an address") == nil ||
		public("tcp4", "1.1.1.1:80") != nil {
		t.Error("networks are told apart wrongly")
	}
}

func TestRedirects(t *testing.T) {
	other := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "elsewhere") })
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, "/end", http.StatusMovedPermanently)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/out":
			http.Redirect(w, r, other.URL+"/x\u202e", http.StatusFound)
		case "/name":
			http.Redirect(w, r, "http://localhost/", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/user":
			http.Redirect(w, r, "http://a:b@"+r.Host+"/end", http.StatusFound)
		default:
			_, _ = fmt.Fprint(w, "the end")
		}
	})
	f := private(Config{})
	for path, c := range map[string]struct {
		want  string
		fails bool
	}{
		"/same": {"  the end\n", false},
		"/loop": {"it redirects more than 5 times", true},
		"/out":  {"redirects to another address, which was not followed: " + other.URL + "/x", false},
		"/name": {"which was not followed: http://localhost/", false},
		"/file": {"it redirects to what is no address of a page", true},
		"/user": {"it redirects to what is no address of a page", true},
	} {
		if out := fetch(t, f, s.URL+path); out.IsError != c.fails || !strings.Contains(out.Text, c.want) ||
			strings.Contains(out.Text, "\u202e") {
			t.Errorf("%s: %q", path, out.Text)
		}
	}
	if other.hits.Load() != 0 {
		t.Error("a redirect to another host was followed")
	}
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"http://a/", "https://A/x", true}, {"https://a/", "http://a/", false}, {"http://a:8080/", "https://a/", false},
		{"https://a/", "https://a:443/", true},
		{"https://a/", "https://b.a/", false}, {"https://a/", "https://a:444/", false},
	} {
		from, _ := url.Parse(c.from)
		to, _ := url.Parse(c.to)
		if err := follow(&http.Request{URL: to}, []*http.Request{{URL: from}}); (err == nil) != c.ok {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
		}
	}
}

func TestBounds(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		switch r.URL.Path {
		case "/large":
			_, _ = fmt.Fprint(w, strings.Repeat("ü", 3000))
		case "/long":
			_, _ = fmt.Fprint(w, strings.Repeat("x", maxShown+10))
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for range 20 {
				if _, err := z.Write(make([]byte, 1<<20)); err != nil {
					return // the reader has enough
				}
			}
			_ = z.Close()
		}
	})
	out := fetch(t, private(Config{MaxBytes: 2001}), s.URL+"/large")
	if res := out.Structured.(Result); !res.Truncated || res.Bytes != 2001 ||
		!strings.HasSuffix(out.Text, "ü\ufffd\n\n(the end of the page was cut off)\n") {
		t.Errorf("%+v %q", res, out.Text[len(out.Text)-100:])
	}
	if out := fetch(t, private(Config{}), s.URL+"/long"); !out.Structured.(Result).Truncated ||
		len(out.Text) > maxShown+1000 {
		t.Errorf("%d bytes", len(out.Text))
	}
	if out := fetch(t, private(Config{MaxBytes: 4096}), s.URL+"/bomb"); !out.IsError ||
		!strings.Contains(out.Text, "binary") {
		t.Errorf("%.200q", out.Text)
	}
}

// A host that never answers is given up, and a turn that ends is told why.
func TestTimeout(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	if out := fetch(t, private(Config{Timeout: 20 * time.Millisecond}), s.URL); !out.IsError ||
		!strings.HasSuffix(out.Text, "there was no answer in time") {
		t.Errorf("%q", out.Text)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("turn interrupted")
	cancel(gone)
	if _, err := New(private(Config{})).Call(ctx, agent.Call{Input: json.RawMessage(`{"url":"` + s.URL +
		`"}`)}); !errors.Is(err, gone) {
		t.Errorf("error %v", err)
	}
}

func TestCache(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			http.Error(w, "x", http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprint(w, strings.Repeat("x", 1<<20))
	})
	f := private(Config{TTL: time.Hour})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			in, _ := json.Marshal(map[string]string{"url": s.URL + "/a"})
			if _, err := New(f).Call(t.Context(), agent.Call{Input: in}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	before := s.hits.Load()
	out := fetch(t, f, s.URL+"/a#other-part")
	if !out.Structured.(Result).Cached || s.hits.Load() != before || !strings.Contains(out.Text, ", fetched at ") {
		t.Errorf("%+v", out.Structured)
	}
	fetch(t, f, s.URL+"/bad")
	if fetch(t, f, s.URL+"/bad"); s.hits.Load() != before+2 {
		t.Error("a failure was kept")
	}
	for i := range 30 {
		fetch(t, f, fmt.Sprintf("%s/%d", s.URL, i))
	}
	if f.size > maxKeptBytes || len(f.pages) > 16 || f.size == 0 {
		t.Errorf("%d pages with %d bytes are kept", len(f.pages), f.size)
	}
	if out := fetch(t, f, s.URL+"/a"); out.Structured.(Result).Cached {
		t.Error("the oldest page was not the first to go")
	}
	none := private(Config{})
	before = s.hits.Load()
	fetch(t, none, s.URL+"/a")
	if fetch(t, none, s.URL+"/a"); s.hits.Load() != before+2 || len(none.pages) != 0 {
		t.Error("a page was kept although none is to be")
	}
	old := private(Config{TTL: time.Hour})
	old.keep("k", page{text: "x", at: time.Now().Add(-2 * time.Hour)})
	if _, ok := old.kept("k"); ok || old.size != 0 {
		t.Error("a page that is too old was given")
	}
}

func TestHTML(t *testing.T) {
	base, _ := url.Parse("https://x.invalid/a/")
	for _, c := range []struct{ name, in, want string }{
		{"blocks", "<h1>One</h1><p>two\n  three</p><div>four</div>five", "# One\n\ntwo three\n\nfour\nfive\n"},
		{"inline", "a<b>b</b> <i>c</i>\nd <!-- e -->f", "ab c d f\n"},
		{"list", "<ul><li>a<ul><li>b</li></ul></li><li>c</ul>", "- a\n\n  - b\n\n- c\n"},
		{"links", `<a href="b?x=1&amp;y=2">one <b>two</b></a>, <a href="javascript:x">js</a> <a href="#p">part</a> <a ` +
			`href="/"></a>`, "[one two](https://x.invalid/a/b?x=1&y=2), js part\n"},
		{"self", `<a href="https://y.invalid/">https://y.invalid/</a>`, "https://y.invalid/\n"},
		{"pre", "<pre>  a\n    b &lt;</pre>c", "```\n  a\n    b <\n```\n\nc\n"},
		{"table", "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>", "a | b\n1 | 2\n"},
		{"hidden", "<script>if (a < b) x('</p>')</script><style>p{}</style><template><p>no</p><template></template></template><svg><text>no</text></svg>yes<noscript>no</noscript>", "yes\n"},
		{"image", `<img alt="a picture" src=x> <img src=y>`, "[a picture]\n"},
		{"broken", "<p><a href='/x'>open <div></a></a></p></ul></pre> end <", "[open](https://x.invalid/x)\n\nend <\n"},
		{"nothing", "", "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := htmlText(c.in, base); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// The work does not grow faster than the page, however that is nested.
func FuzzHTML(f *testing.F) {
	f.Add("<a href=x><pre><li>x</a>")
	f.Add(strings.Repeat("<b><a href=/><ul>", 1000))
	base, _ := url.Parse("https://x.invalid/")
	f.Fuzz(func(t *testing.T, page string) {
		if got := htmlText(page, base); len(got) > 200*len(page)+100 {
			t.Errorf("%d bytes of %d", len(got), len(page))
		}
	})
}

func TestSpec(t *testing.T) {
	tool := New(NewFetcher(Config{}))
	if s := tool.Spec(); !json.Valid(s.InputSchema) || !strings.HasSuffix(string(s.InputSchema),
		`"additionalProperties":false}`) {
		t.Errorf("schema %s", s.InputSchema)
	}
	if p, ok := tool.(agent.Parallel); !ok || !p.Parallel() {
		t.Error("it holds other calls up")
	}
	if r, ok := tool.(agent.ReadOnly); ok && r.ReadOnly() {
		t.Error("it would be used without permission")
	}
}

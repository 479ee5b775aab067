package modelwire_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/modelwire"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

func raw(status int, contentType, body string) modeltest.Answer {
	return modeltest.Answer{Status: status, ContentType: contentType, Raw: []byte(body)}
}

// Refusals that no further try would fix, in the words of many servers.
func TestRefusals(t *testing.T) {
	const (
		js = "application/json"
		// What servers say to a conversation that is too long.
		long1 = "prompt is too long: 210000 tokens > 200000 maximum"
		long2 = "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000"
		long3 = "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens."
		long4 = "the request exceeds the available context size, try increasing it"
		long5 = "Your input exceeds the context window of this model. Please adjust your input and try again."
	)
	each(t, func(t *testing.T, d dialect) {
		for _, c := range []struct {
			name   string
			answer modeltest.Answer
			kind   string
			says   string
		}{
			{"key", modeltest.Error(401, "authentication_error", "invalid x-api-key"), "auth", "set " + d.keyVar},
			{"permission", modeltest.Error(403, "permission_error", "no\nsuch right"), "auth", "no such right"},
			{"money", modeltest.Error(400, "invalid_request_error", "Your credit balance is too low"), "account", "billing"},
			{"payment", modeltest.Error(402, "billing_error", "pay"), "account", "billing"},
			{"quota", modeltest.Error(429, "insufficient_quota", "You exceeded your current quota"), "account", "billing"},
			{"model", modeltest.Error(404, "not_found_error", "model: x"), "unknown_model", "--model"},
			{"long", modeltest.Error(400, "invalid_request_error", long1), "context_overflow", "too long"},
			{"long-limit", modeltest.Error(400, "invalid_request_error", long2), "context_overflow", "too long"},
			{"long-maximum", modeltest.Error(400, "invalid_request_error", long3), "context_overflow", "too long"},
			{"long-code", modeltest.Error(400, "context_length_exceeded", "no"), "context_overflow", "too long"},
			{"long-llama", raw(400, js, `{"error":{"code":400,"message":"`+long4+`","type":"exceed_context_size_error"}}`),
				"context_overflow", "too long"},
			{"long-500", raw(500, js, `{"error":"`+long4+`"}`), "context_overflow", "too long"},
			{"long-window", modeltest.Error(400, "invalid_request_error", long5), "context_overflow", "too long"},
			{"large", modeltest.Error(413, "request_too_large", "over 32 MB"), "context_overflow", "too long"},
			{"request", modeltest.Error(400, "invalid_request_error", "messages.3: bad"), "bad_request", "messages.3: bad"},
			{"text-error", raw(400, js, `{"error":"model is loading wrong"}`), "bad_request", "model is loading wrong"},
			{"detail", raw(422, js, `{"detail":"no such field"}`), "bad_request", "no such field"},
			{"detail-list", raw(422, js, `{"detail":[{"loc":["body","tools",3],"msg":"wrong","type":"t"}]}`), "bad_request",
				"wrong (body.tools.3)"},
			{"no-tools", modeltest.Error(400, "invalid_request_error", "m does not support tools"), "bad_request",
				"choose a model that can call tools"},
			{"in-200", raw(200, js, `{"error":{"message":"no such thing","type":"invalid_request_error"}}`), "bad_request",
				"no such thing"},
			{"flat", raw(400, js, `{"object":"error","message":"flat words","type":"BadRequestError","code":400}`),
				"bad_request", "flat words"},
			{"list", raw(400, js, `[{"error":{"code":400,"message":"in a list"}}]`), "bad_request", "in a list"},
			{"html", modeltest.HTML(200, "<html>welcome</html>"), "bad_answer", "text/html of 20 bytes"},
			{"html-error", modeltest.HTML(403, "<html>blocked</html>"), "auth", "text/html of 20 bytes"},
			{"html-bad", modeltest.HTML(400, "<html>bad</html>"), "bad_request", "text/html of 16 bytes"},
			{"json", raw(200, js, `{"id":"m"}`), "bad_answer", "application/json of 10 bytes"},
			{"plain", raw(200, "text/plain", "data: {}\n\n"), "bad_answer", "text/plain of 10 bytes"},
			{"odd-type", raw(200, ";;;", "data: {}\n\n"), "bad_answer", "without a content type of 10 bytes"},
			{"nothing", raw(200, "", ""), "bad_answer", "empty"},
			{"no-retry", modeltest.Answer{Status: 503, Raw: []byte("x"), Header: http.Header{"X-Should-Retry": {"false"}}},
				"server_error", "503"},
			{"proxy", modeltest.HTML(407, "who are you"), "proxy", "HTTPS_PROXY"},
		} {
			t.Run(c.name, func(t *testing.T) {
				m, s := d.asked(t, c.answer)
				reply, err := m.Reply(waittest.Context(t, patience), request("hi"), func(p agent.Part) { t.Errorf("part %+v", p) })
				var told *agent.ModelError
				if reply != nil || !errors.As(err, &told) || told.Kind != c.kind {
					t.Fatalf("Reply = %v, %v; want kind %s", reply, err, c.kind)
				}
				if text := told.Error(); !strings.Contains(text, c.says) || strings.Contains(text, "\n") {
					t.Errorf("the text %q does not say %q in one line", text, c.says)
				}
				if s.Count() != 1 {
					t.Errorf("asked %d times", s.Count())
				}
			})
		}
	})
}

func TestRetry(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		past := modeltest.RateLimit(time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		m, s := d.asked(t,
			modeltest.RateLimit("0.05"), modeltest.RateLimit(""), modeltest.RateLimit("soon"), modeltest.RateLimit("-7"), past,
			modeltest.Error(500, "api_error", "oops"), modeltest.HTML(502, "<html>"),
			modeltest.Error(529, "overloaded_error", "Overloaded"),
			modeltest.Answer{Raw: modeltest.ErrorEvent(d.api, "overloaded_error", "Overloaded")}, modeltest.Text("at last"))
		var h heard
		reply, err := m.Reply(waittest.Context(t, patience), request("hi"), h.on)
		if err != nil {
			t.Fatal(err)
		}
		if reply.Blocks[0].Text != "at last" || s.Count() != 10 {
			t.Errorf("reply %+v after %d calls", reply, s.Count())
		}
		if len(h.retries) != 9 || h.retries[0].Retry.After != 50*time.Millisecond || h.retries[8].Retry.Attempt != 9 ||
			h.retries[8].Retry.Most != 9 {
			t.Errorf("told %+v", h.retries)
		}
		sent := s.Requests()
		for _, r := range sent[1:] {
			if !bytes.Equal(r.Body, sent[0].Body) {
				t.Fatal("a later try sent another request")
			}
		}
	})
}

// However long the provider wants us to wait, it is no more than a minute.
func TestAbsurd(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		for _, after := range []string{"99999999999999999999", "1e300",
			time.Now().Add(30 * 24 * time.Hour).UTC().Format(http.TimeFormat)} {
			m, _ := d.asked(t, modeltest.RateLimit(after))
			ctx, cancel := context.WithCancelCause(waittest.Context(t, patience))
			var wait time.Duration
			_, err := m.Reply(ctx, request("hi"), func(p agent.Part) {
				wait = p.Retry.After
				cancel(errors.New("seen"))
			})
			if wait != modelwire.MaxWait || err == nil {
				t.Errorf("Retry-After %s: wait %v, %v", after, wait, err)
			}
		}
	})
}

func TestExhausted(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		for status, kind := range map[int]string{500: "server_error", 502: "server_error", 503: "server_error",
			529: "overloaded", 429: "rate_limit"} {
			m, s := d.asked(t, modeltest.Error(status, "some_error", "not now"))
			_, err := m.Reply(waittest.Context(t, patience), request("hi"), nil)
			var told *agent.ModelError
			if !errors.As(err, &told) || told.Kind != kind || told.Status != status ||
				!strings.Contains(told.Text, "after 10 tries") {
				t.Errorf("%d: Reply = %v", status, err)
			}
			if s.Count() != 10 {
				t.Errorf("%d: %d calls, want 10", status, s.Count())
			}
		}
	})
}

// What was handed on of an answer that failed is taken back, before the call is made
// again or given up.
func TestVoid(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		whole := modeltest.Text("hello").StreamOf(d.api, "m")
		broken := func(kind string) modeltest.Answer {
			return modeltest.Answer{Raw: append(bytes.Clone(whole[:after(whole, "hello")]),
				modeltest.ErrorEvent(d.api, kind, "Sorry")...)}
		}
		for _, c := range []struct {
			name, kind, want string
			calls            int
		}{
			{"again", "overloaded_error", "reply", 2},
			{"unknown", "later_error", "reply", 2},
			{"final", "invalid_request_error", "bad_request", 1},
		} {
			t.Run(c.name, func(t *testing.T) {
				m, s := d.asked(t, broken(c.kind), modeltest.Text("again"))
				var h heard
				reply, err := m.Reply(waittest.Context(t, patience), request("hi"), h.on)
				if kindOf(err) != c.want || s.Count() != c.calls || len(h.retries) != c.calls-1 {
					t.Errorf("Reply = %v, %v after %d calls, told of %d", reply, err, s.Count(), len(h.retries))
				}
				if h.void != "hello" || err == nil && h.text != "again" || err != nil && h.text != "" {
					t.Errorf("%q is void, %q is left", h.void, h.text)
				}
			})
		}
	})
}

// One caller is told to wait; the others, of the same model, wait with it and
// are told so. Another model is not held up.
func TestShared(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		const park = 300 * time.Millisecond
		s := serve(t, func(_ context.Context, r *modeltest.Request) modeltest.Answer {
			if r.N == 1 {
				return modeltest.RateLimit("0.3")
			}
			return modeltest.Text("ok")
		})
		var l modelwire.Limiter
		a := d.connect(t, config{url: s.URL, limiter: &l})
		b := d.connect(t, config{url: s.URL, limiter: &l})
		refused := make(chan time.Time, 1)
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := a.Reply(waittest.Context(t, patience), request("a"), func(p agent.Part) {
				if p.Kind == agent.RetryPart {
					refused <- time.Now()
				}
			}); err != nil {
				t.Error(err)
			}
		})
		at := <-refused
		for range 5 {
			all.Go(func() {
				var h heard
				if _, err := b.Reply(waittest.Context(t, patience), request("b"), h.on); err != nil {
					t.Error(err)
				}
				if waited := time.Since(at); waited < park*9/10 {
					t.Errorf("another caller waited %v, want %v", waited, park)
				}
				if len(h.retries) != 1 {
					t.Errorf("another caller was told %d times that it waits", len(h.retries))
				}
			})
		}
		other := request("c")
		other.Model = "n"
		if _, err := a.Reply(waittest.Context(t, patience), other, nil); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if s.Count() != 8 {
			t.Errorf("%d calls, want 8: a refused one and seven good ones", s.Count())
		}
	})
}

// As many calls of a model go on at the same time as were set, over all clients.
func TestCalls(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		var mu sync.Mutex
		var now, most int
		s := serve(t, func(_ context.Context, r *modeltest.Request) modeltest.Answer {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			now--
			mu.Unlock()
			return modeltest.Text("ok")
		})
		var l modelwire.Limiter
		var all sync.WaitGroup
		for range 4 {
			m := d.connect(t, config{url: s.URL, limiter: &l, calls: 2})
			for range 10 {
				all.Go(func() {
					if _, err := m.Reply(waittest.Context(t, patience), request("a"), nil); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		if most > 2 || s.Count() != 40 {
			t.Errorf("%d calls at the same time of %d, want at most 2 of 40", most, s.Count())
		}
	})
}

// A key that is refused is refused for all: a fan-out of agents does not spend a
// call each to learn it. Another key, and for a 403 another model, goes on.
func TestRefusedKey(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		for _, c := range []struct {
			name   string
			answer modeltest.Answer
			kind   string
			models int // that are asked by the same key before all are known to be refused
		}{
			{"401", modeltest.Error(401, "authentication_error", "revoked"), "auth", 1},
			{"403", modeltest.Error(403, "permission_error", "not this one"), "auth", 2},
			{"402", modeltest.Error(402, "billing_error", "pay"), "account", 1},
			{"quota", modeltest.Error(429, "insufficient_quota", "You exceeded your current quota"), "account", 1},
		} {
			t.Run(c.name, func(t *testing.T) {
				s := serve(t, func(_ context.Context, r *modeltest.Request) modeltest.Answer {
					if strings.Contains(r.Header.Get("X-Api-Key")+r.Header.Get("Authorization"), "good") {
						return modeltest.Text("ok")
					}
					return c.answer
				})
				var l modelwire.Limiter
				bad := d.connect(t, config{url: s.URL, limiter: &l, key: "bad", calls: 1})
				good := d.connect(t, config{url: s.URL, limiter: &l, key: "good"})
				var all sync.WaitGroup
				for i := range 50 {
					all.Go(func() {
						req := request("a")
						req.Model = fmt.Sprint("m", i%2)
						if _, err := bad.Reply(waittest.Context(t, patience), req, nil); kindOf(err) != c.kind {
							t.Errorf("Reply = %v, want %s", err, c.kind)
						}
					})
				}
				all.Wait()
				// The two models have a place each, so two calls may be under way at once.
				if n := s.Count(); n < c.models || n > 2 {
					t.Errorf("%d calls with a refused key", n)
				}
				if _, err := good.Reply(waittest.Context(t, patience), request("b"), nil); err != nil {
					t.Errorf("another key: %v", err)
				}
			})
		}
	})
}

// A wait that was asked for ends with the context, and says why.
func TestStopped(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		why := errors.New("stop requested")
		body := modeltest.Text(strings.Repeat("x", 500)).StreamOf(d.api, "m")
		for _, c := range []struct {
			name   string
			answer modeltest.Answer
			kind   agent.PartKind
			want   string
		}{
			{"parked", modeltest.RateLimit("60"), agent.RetryPart, "ask model m: stop requested"},
			{"text", modeltest.Answer{Raw: body, Hold: make(chan struct{}), HoldAt: after(body, "xxx")}, agent.TextPart, "cut"},
		} {
			t.Run(c.name, func(t *testing.T) {
				m, _ := d.asked(t, c.answer)
				ctx, cancel := context.WithCancelCause(waittest.Context(t, patience))
				defer cancel(nil)
				_, err := m.Reply(ctx, request("hi"), func(p agent.Part) {
					if p.Kind == c.kind {
						cancel(why)
					}
				})
				if !errors.Is(err, why) || kindOf(err) != c.want {
					t.Errorf("Reply = %v, want the cause", err)
				}
			})
		}
	})
}

func TestIdle(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		never := make(chan struct{})
		for name, a := range map[string]modeltest.Answer{
			"no-head":  {Wait: never},
			"headers":  {Hold: never},
			"halfways": {Blocks: rich().Blocks, Hold: never, HoldAt: 700},
		} {
			t.Run(name, func(t *testing.T) {
				s := answers(t, a)
				m := d.connect(t, config{url: s.URL, idle: 50 * time.Millisecond})
				var h heard
				_, err := m.Reply(waittest.Context(t, patience), request("hi"), h.on)
				if kindOf(err) != "idle" || !strings.Contains(err.Error(), "nothing came for too long") {
					t.Errorf("Reply = %v, want an end for silence", err)
				}
				// A call may be given up before the server has read it.
				if len(h.retries) != 9 || s.Count() > 10 {
					t.Errorf("told of %d more tries, %d calls", len(h.retries), s.Count())
				}
			})
		}
	})
}

// Signs of life are life: an answer that takes many times the idle limit comes
// whole, if the server shows in between that it is there.
func TestPings(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		const idle = 400 * time.Millisecond
		done := make(chan struct{})
		timer := time.AfterFunc(3*idle, func() { close(done) })
		defer timer.Stop()
		s := answers(t, modeltest.Answer{Blocks: []agent.Block{agent.TextBlock("slow")}, Hold: done, PingEach: idle / 20})
		m := d.connect(t, config{url: s.URL, idle: idle})
		reply, err := m.Reply(waittest.Context(t, patience), request("hi"), nil)
		if err != nil || reply.Blocks[0].Text != "slow" {
			t.Errorf("Reply = %+v, %v", reply, err)
		}
	})
}

// greeting is what a server says that does not speak HTTP.
const greeting = "SSH-2.0-OpenSSH_9.6\r\n"

// What cannot be reached is told soon, with what to look at.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = quiet()
	defer secure.Close()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		w.WriteHeader(http.StatusProxyAuthRequired)
	}))
	defer proxy.Close()
	proxyURL, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var greeter sync.WaitGroup
	greeter.Go(func() {
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			// What comes before the request is another failure: see TestGreeting.
			if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = c.Write([]byte(greeting))
			}
			_ = c.Close()
		}
	})
	defer greeter.Wait()
	defer func() { _ = other.Close() }()
	nobody := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr) // where no name server is
	}}
	each(t, func(t *testing.T, d dialect) {
		for _, c := range []struct {
			name, url string
			transport *http.Transport
			kind      string
			says      []string
			tries     int
		}{
			{"refused", "http://" + addr, nil, "unreachable", []string{"refused", d.urlVar}, 3},
			{"name", "http://nowhere.example", &http.Transport{DialContext: (&net.Dialer{Resolver: nobody}).DialContext},
				"unreachable", []string{"lookup nowhere.example", d.urlVar}, 3},
			{"certificate", secure.URL, nil, "tls", []string{"certificate", "SSL_CERT_FILE"}, 1},
			{"proxy", "https://model.example", &http.Transport{Proxy: http.ProxyURL(proxyURL)}, "proxy",
				[]string{"Proxy Authentication Required", "HTTPS_PROXY"}, 1},
			{"version", secure.URL, &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
				MaxVersion: tls.VersionTLS10}}, "tls", []string{"tls", d.urlVar}, 1},
			{"plain", strings.Replace(plain.URL, "http:", "https:", 1), nil, "tls", []string{d.urlVar}, 1},
			{"no-http", "http://" + other.Addr().String(), nil, "bad_answer", []string{d.urlVar}, 1},
		} {
			t.Run(c.name, func(t *testing.T) {
				cfg := config{url: c.url}
				if c.transport != nil {
					cfg.client = &http.Client{Transport: c.transport}
				}
				m := d.connect(t, cfg)
				var h heard
				_, err := m.Reply(waittest.Context(t, patience), request("hi"), h.on)
				if kindOf(err) != c.kind || strings.Contains(err.Error(), "key-1") {
					t.Errorf("Reply = %v, want %s", err, c.kind)
				}
				for _, say := range c.says {
					if !strings.Contains(err.Error(), say) {
						t.Errorf("%v does not say %q", err, say)
					}
				}
				if len(h.retries) != c.tries-1 {
					t.Errorf("told of %d more tries, want %d", len(h.retries), c.tries-1)
				}
			})
		}
	})
}

// A server that speaks before it is asked breaks the connection: it is tried again,
// and then told with what to look at.
func TestGreeting(t *testing.T) {
	log.SetOutput(io.Discard) // net/http has no other log for what a client hears
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	each(t, func(t *testing.T, d dialect) {
		closed := make(chan struct{})
		var servers sync.WaitGroup
		defer servers.Wait()
		dial := func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			servers.Go(func() {
				_, _ = server.Write([]byte(greeting))
				_, _ = server.Read(make([]byte, 1)) // until the client closes
				closed <- struct{}{}
			})
			return client, nil
		}
		m := d.connect(t, config{url: "http://model.example",
			client: &http.Client{Transport: &http.Transport{DialContext: dial}}})
		// The request is sent only after the client has read the greeting.
		ctx := httptrace.WithClientTrace(waittest.Context(t, patience),
			&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { <-closed }})
		var h heard
		_, err := m.Reply(ctx, request("hi"), h.on)
		if kindOf(err) != "cut" || len(h.retries) != 9 {
			t.Fatalf("Reply = %v after %d more tries", err, len(h.retries))
		}
		want := "the connection to model.example was broken: the server sent something that is no HTTP response to a " +
			"request " +
			"(check " + d.urlVar + "), after 10 tries (check the network, and go on when it holds)"
		if err.Error() != want {
			t.Errorf("Reply = %v, want %s", err, want)
		}
	})
}

// A connection that breaks is tried again as often as a 529, and then told.
func TestBroken(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		for name, a := range map[string]modeltest.Answer{
			"body":   {Raw: []byte("x"), Break: true},
			"begun":  {Raw: []byte{}, Break: true},
			"eof":    {NoHead: true},
			"reset":  {NoHead: true, Reset: true},
			"middle": {Blocks: rich().Blocks, Break: true, CutAt: 900, Reset: true},
		} {
			t.Run(name, func(t *testing.T) {
				m, s := d.asked(t, a)
				_, err := m.Reply(waittest.Context(t, patience), request("hi"), nil)
				if kindOf(err) != "cut" || !strings.Contains(err.Error(), "after 10 tries") || s.Count() != 10 {
					t.Errorf("Reply = %v after %d calls", err, s.Count())
				}
			})
		}
	})
}

// A small answer that unpacks to very much is given up early.
func TestBomb(t *testing.T) {
	var member bytes.Buffer
	z := gzip.NewWriter(&member)
	if _, err := z.Write(append(bytes.Repeat([]byte(":"), 1<<20-1), '\n')); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	packed := bytes.Repeat(member.Bytes(), 256) // gzip streams may be put end to end
	each(t, func(t *testing.T, d dialect) {
		for name, c := range map[string]struct {
			status int
			says   string
		}{"stream": {200, "larger than 64 MiB"}, "error": {400, "64 KiB or more"}} {
			t.Run(name, func(t *testing.T) {
				m, s := d.asked(t, modeltest.Answer{Status: c.status, Raw: packed,
					Header: http.Header{"Content-Encoding": {"gzip"}}})
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if _, err := m.Reply(waittest.Context(t, patience), request("hi"), nil); err == nil ||
					!strings.Contains(err.Error(), c.says) {
					t.Errorf("Reply = %v, want an error that says %q", err, c.says)
				}
				runtime.ReadMemStats(&after)
				if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
					t.Errorf("%d MiB of memory", n>>20)
				}
				if s.Count() != 1 {
					t.Errorf("%d calls", s.Count())
				}
			})
		}
	})
}

// A connection serves call after call: that is what the drain is for.
func TestReuse(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		s := answers(t, modeltest.Text("ok"))
		dials := 0 // calls are made one after the other
		tr := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials++
			var n net.Dialer
			return n.DialContext(ctx, network, addr)
		}}
		m := d.connect(t, config{url: s.URL, client: &http.Client{Transport: tr}})
		for range 20 {
			if _, err := m.Reply(waittest.Context(t, patience), request("hi"), nil); err != nil {
				t.Fatal(err)
			}
		}
		if dials != 1 {
			t.Errorf("%d connections for 20 calls one after the other", dials)
		}
	})
}

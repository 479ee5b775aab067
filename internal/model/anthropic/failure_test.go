package anthropic

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/limit"
	"github.com/drover-dev/drover/internal/model/modeltest"
)

type nopCloser struct{ io.Reader }

func (nopCloser) Close() error { return nil }

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer modeltest.Answer
		kind   string
		says   string
	}{
		{"key", modeltest.Error(401, "authentication_error", "invalid x-api-key"), "auth", "set ANTHROPIC_API_KEY"},
		{"permission", modeltest.Error(403, "permission_error", "no\nsuch right"), "auth", "no such right"},
		{"money", modeltest.Error(400, "invalid_request_error", "Your credit balance is too low"), "account", "billing"},
		{"payment", modeltest.Error(402, "billing_error", "pay"), "account", "billing"},
		{"model", modeltest.Error(404, "not_found_error", "model: x"), "unknown_model", "--model"},
		{"long", modeltest.Error(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), "context_overflow", "too long"},
		{"large", modeltest.Error(413, "request_too_large", "over 32 MB"), "context_overflow", "too long"},
		{"request", modeltest.Error(400, "invalid_request_error", "messages.3: bad"), "bad_request", "messages.3: bad"},
		{"html", modeltest.HTML(200, "<html>welcome</html>"), "bad_answer", "text/html of 20 bytes"},
		{"html-error", modeltest.HTML(403, "<html>blocked</html>"), "auth", "text/html of 20 bytes"},
		{"json", modeltest.Answer{ContentType: "application/json", Raw: []byte(`{"id":"m"}`)}, "bad_answer", "application/json of 10 bytes"},
		{"nothing", modeltest.Answer{Raw: []byte{}}, "bad_answer", "empty"},
		{"no-retry", modeltest.Answer{Status: 503, Raw: []byte("x"), Header: http.Header{"X-Should-Retry": {"false"}}}, "server_error", "503"},
		{"proxy", modeltest.HTML(407, "who are you"), "unreachable", "HTTPS_PROXY"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := answers(t, c.answer)
			m := connect(t, Config{BaseURL: s.URL})
			reply, err := m.Reply(within(t), request("hi"), func(p agent.Part) { t.Errorf("part %+v", p) })
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
}

func TestRetry(t *testing.T) {
	overloaded := modeltest.Answer{Raw: []byte("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n")}
	s := answers(t,
		modeltest.RateLimit("0.05"), modeltest.RateLimit(""), modeltest.RateLimit("soon"), modeltest.Error(500, "api_error", "oops"), modeltest.HTML(502, "<html>"),
		modeltest.Error(529, "overloaded_error", "Overloaded"), overloaded, modeltest.Text("at last"))
	m := connect(t, Config{BaseURL: s.URL})
	var told []agent.Part
	reply, err := m.Reply(within(t), request("hi"), func(p agent.Part) {
		if p.Kind == agent.RetryPart {
			told = append(told, p)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if reply.Blocks[0].Text != "at last" || s.Count() != 8 {
		t.Errorf("reply %+v after %d calls", reply, s.Count())
	}
	if len(told) != 7 || told[0].After != 50*time.Millisecond || !strings.Contains(told[0].Text, "try 2 of 10") {
		t.Errorf("told %+v", told)
	}
	bodies := s.Requests()
	for _, r := range bodies[1:] {
		if !bytes.Equal(r.Body, bodies[0].Body) {
			t.Fatal("a later try sent another request")
		}
	}
}

func TestExhausted(t *testing.T) {
	s := answers(t, modeltest.Error(529, "overloaded_error", "Overloaded"))
	m := connect(t, Config{BaseURL: s.URL})
	_, err := m.Reply(within(t), request("hi"), nil)
	var told *agent.ModelError
	if !errors.As(err, &told) || told.Kind != "overloaded" || told.Status != 529 || !strings.Contains(told.Text, "after 10 tries") {
		t.Errorf("Reply = %v", err)
	}
	if s.Count() != 10 {
		t.Errorf("%d calls, want 10", s.Count())
	}
}

// Content that was handed on is never asked for again.
func TestDelivered(t *testing.T) {
	whole := modeltest.Text("hello").Stream("m")
	broken := append(whole[:bytes.Index(whole, []byte("event: content_block_stop"))],
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"...)
	s := answers(t, modeltest.Answer{Raw: broken}, modeltest.Text("again"))
	m := connect(t, Config{BaseURL: s.URL})
	_, err := m.Reply(within(t), request("hi"), nil)
	var cut *agent.CutError
	var told *agent.ModelError
	if !errors.As(err, &cut) || !errors.As(err, &told) || told.Kind != "overloaded" {
		t.Errorf("Reply = %v, want a cut that says overloaded", err)
	}
	if s.Count() != 1 {
		t.Errorf("%d calls", s.Count())
	}
}

// One caller is told to wait; the other, of the same model, waits with it.
func TestShared(t *testing.T) {
	const park = 300 * time.Millisecond
	s := serve(t, func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		if r.N == 1 {
			return modeltest.RateLimit("0.3")
		}
		return modeltest.Text("ok")
	})
	var l limit.Limiter
	a := connect(t, Config{BaseURL: s.URL, Limiter: &l})
	b := connect(t, Config{BaseURL: s.URL, Limiter: &l})
	refused := make(chan time.Time, 1)
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := a.Reply(within(t), request("a"), func(p agent.Part) {
			if p.Kind == agent.RetryPart {
				refused <- time.Now()
			}
		}); err != nil {
			t.Error(err)
		}
	})
	at := <-refused
	var told int
	if _, err := b.Reply(within(t), request("b"), func(p agent.Part) {
		if p.Kind == agent.RetryPart {
			told++
		}
	}); err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(at); waited < park*9/10 {
		t.Errorf("the other caller waited %v, want %v", waited, park)
	}
	if told != 1 {
		t.Errorf("the other caller was told %d times that it waits", told)
	}
	all.Wait()
	if s.Count() != 3 {
		t.Errorf("%d calls, want 3: a refused one and two good ones", s.Count())
	}
	// Another model is not held up.
	l.Park(a.host+" claude-haiku-4-5-20251001", time.Minute)
	other := request("c")
	other.Model = "sonnet"
	if _, err := a.Reply(within(t), other, nil); err != nil {
		t.Fatal(err)
	}
}

func TestAbsurd(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for text, want := range map[string]time.Duration{
		"7": 7 * time.Second, "0.5": 500 * time.Millisecond, "1e300": time.Hour, "NaN": 0, "-5": 0, "": 0, "tomorrow": 0,
		"99999999999999999999": time.Hour, now.Add(9 * time.Second).UTC().Format(http.TimeFormat): 9 * time.Second,
		now.Add(-time.Hour).UTC().Format(http.TimeFormat): 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("Retry-After %q = %v, want %v", text, got, want)
		}
	}
}

// A wait that was asked for ends with the context, and says why.
func TestStopped(t *testing.T) {
	why := errors.New("stop requested")
	gate := make(chan struct{})
	for _, c := range []struct {
		name   string
		answer modeltest.Answer
		kind   agent.PartKind
		cut    bool
	}{
		{"parked", modeltest.RateLimit("60"), agent.RetryPart, false},
		{"text", modeltest.Answer{Blocks: []agent.Block{agent.TextBlock(strings.Repeat("x", 500))}, Hold: gate, HoldAt: 900}, agent.TextPart, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := connect(t, Config{BaseURL: answers(t, c.answer).URL})
			ctx, cancel := context.WithCancelCause(within(t))
			defer cancel(nil)
			_, err := m.Reply(ctx, request("hi"), func(p agent.Part) {
				if p.Kind == c.kind {
					cancel(why)
				}
			})
			var cut *agent.CutError
			if !errors.Is(err, why) || errors.As(err, &cut) != c.cut {
				t.Errorf("Reply = %v, want the cause", err)
			}
		})
	}
}

func TestIdle(t *testing.T) {
	never := make(chan struct{})
	for name, a := range map[string]modeltest.Answer{
		"no-head":  {Wait: never},
		"headers":  {Hold: never},
		"halfways": {Blocks: rich().Blocks, Hold: never, HoldAt: 700},
	} {
		t.Run(name, func(t *testing.T) {
			s := answers(t, a)
			m := connect(t, Config{BaseURL: s.URL, Idle: 50 * time.Millisecond})
			_, err := m.Reply(within(t), request("hi"), nil)
			var cut *agent.CutError
			if !errors.As(err, &cut) || !errors.Is(err, errIdle) {
				t.Errorf("Reply = %v, want a cut for silence", err)
			}
			if s.Count() != 1 {
				t.Errorf("%d calls", s.Count())
			}
		})
	}
}

// Pings are life: an answer that takes many times the idle limit comes whole.
func TestPings(t *testing.T) {
	const idle = 400 * time.Millisecond
	done := make(chan struct{})
	timer := time.AfterFunc(3*idle, func() { close(done) })
	defer timer.Stop()
	s := answers(t, modeltest.Answer{Blocks: []agent.Block{agent.TextBlock("slow")}, Hold: done, PingEach: idle / 20})
	m := connect(t, Config{BaseURL: s.URL, Idle: idle})
	reply, err := m.Reply(within(t), request("hi"), nil)
	if err != nil || reply.Blocks[0].Text != "slow" {
		t.Errorf("Reply = %+v, %v", reply, err)
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	m := connect(t, Config{BaseURL: "http://" + addr})
	var told int
	_, err = m.Reply(within(t), request("hi"), func(p agent.Part) { told++ })
	var failed *agent.ModelError
	if !errors.As(err, &failed) || failed.Kind != "unreachable" || !strings.Contains(failed.Text, addr) || !strings.Contains(failed.Text, "refused") {
		t.Errorf("Reply = %v", err)
	}
	if told != maxDials-1 {
		t.Errorf("told of %d more tries, want %d", told, maxDials-1)
	}
}

// A request that may have arrived is not sent again: it may be paid for.
func TestBroken(t *testing.T) {
	s := answers(t, modeltest.Answer{Status: 200, Raw: []byte("x"), Break: true})
	m := connect(t, Config{BaseURL: s.URL})
	if _, err := m.Reply(within(t), request("hi"), nil); err == nil {
		t.Error("a reply came")
	}
	if s.Count() != 1 {
		t.Errorf("%d calls", s.Count())
	}
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
	packed := bytes.Repeat(member.Bytes(), 4*maxStream>>20) // gzip streams may be put end to end
	for name, c := range map[string]struct {
		status int
		says   string
	}{"stream": {200, "larger than 64 MiB"}, "error": {400, "64 KiB or more"}} {
		t.Run(name, func(t *testing.T) {
			s := answers(t, modeltest.Answer{Status: c.status, Raw: packed, Header: http.Header{"Content-Encoding": {"gzip"}}})
			m := connect(t, Config{BaseURL: s.URL})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := m.Reply(within(t), request("hi"), nil); err == nil || !strings.Contains(err.Error(), c.says) {
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
}

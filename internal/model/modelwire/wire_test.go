package modelwire

import (
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent"
)

func TestRetryAfter(t *testing.T) {
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

// A message is translated once, and forgotten with the message.
func TestTranslations(t *testing.T) {
	var tr Translations
	made := 0
	of := func(m agent.Message) string {
		out, err := tr.Of(m, func(m agent.Message) ([]byte, error) {
			made++
			return append([]byte("t:"), m.Encoded()...), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	kept := agent.NewMessage(agent.User, agent.TextBlock("kept"))
	for range 3 {
		for range 100 {
			of(agent.NewMessage(agent.User, agent.TextBlock("let go")))
		}
		if of(kept) != "t:"+string(kept.Encoded()) {
			t.Fatal("another message's translation")
		}
	}
	if made != 301 {
		t.Errorf("%d translations, want 301", made)
	}
	size := func() int {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return len(tr.made)
	}
	for deadline := time.Now().Add(20 * time.Second); size() > 1; {
		if time.Now().After(deadline) {
			t.Fatalf("%d translations are kept of one message", size())
		}
		runtime.GC() // the cleanups run behind it
		runtime.Gosched()
	}
	if of(kept); made != 301 {
		t.Error("the message that is kept was translated again")
	}
	if _, err := tr.Of(agent.NewMessage(agent.User), func(agent.Message) ([]byte, error) {
		return nil,
			io.ErrNoProgress
	}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("Of = %v", err)
	}
	runtime.KeepAlive(kept)
}

// refusing is a client whose calls are refused each time, without a network.
type refusing struct {
	sent   int
	status int
	header http.Header
}

func (r *refusing) RoundTrip(*http.Request) (*http.Response, error) {
	r.sent++
	return &http.Response{StatusCode: r.status, Header: r.header, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

// Tries end after a time, also if it is others who are refused again and again.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &refusing{status: 429, header: http.Header{"Retry-After": {"30"}}}
		e := &Endpoint{Host: "h", HTTP: &http.Client{Transport: client}, Limiter: NewLimiter(0)}
		begin := time.Now()
		stop := make(chan struct{})
		var others sync.WaitGroup
		others.Go(func() {
			tick := time.NewTicker(20 * time.Second)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					e.Limiter.Park(e.key("m"), time.Minute)
				case <-stop:
					return
				}
			}
		})
		_, err := e.Reply(t.Context(), &Call{Model: "m", URL: "http://h"}, nil)
		close(stop)
		others.Wait()
		var told *agent.ModelError
		if !errors.As(err, &told) || told.Kind != "rate_limit" || client.sent != 1 {
			t.Errorf("Reply = %v after %d calls", err, client.sent)
		}
		if took := time.Since(begin); took != patience {
			t.Errorf("took %v, want %v", took, patience)
		}
	})
}

// A refused key is tried again after a moment: it may have been fixed.
func TestShutOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &refusing{status: 401}
		e := &Endpoint{Host: "h", Secret: "k", HTTP: &http.Client{Transport: client}, Limiter: NewLimiter(0)}
		ask := func() {
			var told *agent.ModelError
			if _, err := e.Reply(t.Context(), &Call{Model: "m", URL: "http://h"}, nil); !errors.As(err, &told) ||
				told.Kind != "auth" {
				t.Errorf("Reply = %v", err)
			}
		}
		ask()
		time.Sleep(shutFor - 1)
		ask()
		if client.sent != 1 {
			t.Errorf("%d calls, want 1", client.sent)
		}
		time.Sleep(time.Nanosecond)
		ask()
		if client.sent != 2 {
			t.Errorf("%d calls, want 2", client.sent)
		}
	})
}

func TestParseRefusal(t *testing.T) {
	for body, want := range map[string]Refusal{
		`{"error":{"type":"t","code":"c","message":"m"}}`: {Type: "t", Code: "c", Message: "m"},
		`{"error":{"code":502,"message":"m"}}`:            {Code: "502", Message: "m"},
		`{"error":"m"}`:                                   {Message: "m"},
		`{"detail":"m"}`:                                  {Message: "m"},
		`{"message":"m","code":null}`:                     {Message: "m"},
		`[{"error":{"message":"m","type":7}}]`:            {Type: "7", Message: "m"},
	} {
		if got, ok := ParseRefusal([]byte(body)); !ok || *got != want {
			t.Errorf("%s: %+v, %v", body, got, ok)
		}
	}
	for _, body := range []string{"", "null", "[]", "<html>", `{"id":"m"}`, `{"error":null}`, `{"detail":[{"loc":1}]}`} {
		if got, ok := ParseRefusal([]byte(body)); ok {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

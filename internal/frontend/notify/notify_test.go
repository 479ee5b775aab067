package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/api/attention"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// session has a list that a test changes.
type session struct {
	control.API
	mu       sync.Mutex
	list     control.Attention
	changed  chan struct{}
	detached bool
}

func newSession() *session { return &session{changed: make(chan struct{})} }

func (s *session) set(items ...control.AttentionItem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = control.Attention{Items: items, Version: s.list.Version + "x"}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *session) Info(context.Context) (control.Info, error) {
	return control.Info{Detached: s.detached}, nil
}

func (s *session) Attention(ctx context.Context, req control.AttentionRequest) (control.Attention, error) {
	end := time.After(req.Wait)
	for {
		s.mu.Lock()
		list, changed := s.list, s.changed
		s.mu.Unlock()
		if req.Wait == 0 || list.Version != req.After {
			return list, nil
		}
		select {
		case <-changed:
		case <-end:
			return list, nil
		case <-ctx.Done():
			return list, ctx.Err()
		}
	}
}

// announced is what a command of the user has read.
type announced struct {
	mu    sync.Mutex
	lines []string
	err   error
}

func (a *announced) run(_ context.Context, _ []string, stdin []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var m Announcement
	if err := json.Unmarshal(stdin, &m); err != nil {
		return err
	}
	a.lines = append(a.lines, m.Text)
	return a.err
}

func (a *announced) told() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lines
}

// One message for all that wait, none again, and what a detached session leaves is announced at its end.
func TestNotifier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := newSession(), &announced{}
		s.detached = true
		n := New(Config{Command: "x", After: 10 * time.Second, Run: a.run, Tell: func(text string) { t.Error(text) }})
		n.Open(s)
		s.set(item("q1", attention.Question, time.Now()))
		time.Sleep(5 * time.Second)
		s.set(item("q1", attention.Question, time.Now()), item("q2", attention.Question, time.Now()))
		time.Sleep(4 * time.Second)
		if got := a.told(); got != nil {
			t.Fatalf("before the wait: %q", got)
		}
		time.Sleep(2 * time.Second)
		want := "Drover: 2 items need you\nquestion: permission for Bash\nquestion: permission for Bash"
		if got := a.told(); len(got) != 1 || got[0] != want {
			t.Fatalf("after the wait: %q", got)
		}
		time.Sleep(time.Hour)
		s.set(item("b1", attention.Failure, time.Now()))
		n.Ended(0)
		if got := a.told(); len(got) != 2 || got[1] != "Drover needs you\nfailure: permission for Bash" {
			t.Fatalf("at the end: %q", got)
		}
		n.Close()
	})
}

// A channel that fails is told of once, and holds up the end for a moment only.
func TestNotifierFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession()
		s.detached = true
		var told []string
		run := func(ctx context.Context, _ []string, stdin []byte) error {
			if strings.Contains(string(stdin), "b9") {
				<-ctx.Done()
			}
			return errors.New("no desktop")
		}
		n := New(Config{Command: "x", Run: run, Tell: func(text string) { told = append(told, text) }})
		n.Open(s)
		for k := range 3 {
			s.set(item(fmt.Sprint("b", k), attention.Failure, time.Now()))
			time.Sleep(time.Minute)
		}
		s.set(item("b9", attention.Failure, time.Now()))
		began := time.Now()
		n.Ended(0)
		n.Close()
		if took := time.Since(began); took > 2*lastTime {
			t.Errorf("the end took %v", took)
		}
		if len(told) != 1 || told[0] != "notify.command: no desktop" {
			t.Errorf("told %q", told)
		}
	})
}

func TestNothingConfigured(t *testing.T) {
	var told []string
	n := New(Config{Webhook: "example.org", Quiet: "night", Tell: func(text string) { told = append(told, text) }})
	if n != nil || len(told) != 2 || !strings.Contains(told[0], "notify.webhook") || !strings.Contains(told[1], "notify.quiet") {
		t.Fatalf("%v, told %q", n, told)
	}
}

// Servers get the message with the key; a redirect is not followed, and busy ones are asked again.
func TestChannels(t *testing.T) {
	var got []string
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, fmt.Sprintf("%s %s|%s|%s|%s", r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("Title"),
			r.Header.Get("Priority"), body))
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	defer server.Close()
	c := Config{Webhook: server.URL + "/hook", WebhookKey: "k1", Ntfy: server.URL + "/topic", NtfyKey: "k2", client: client()}
	defer c.client.CloseIdleConnections()
	hostile := item("q1", attention.Question, noon)
	hostile.Why, hostile.Request = "permission for Bash: no rule allows cat secret", &task.Question{Tool: "Bash", Reason: "no rule allows cat secret"}
	hostile.Name = "evil\x1b]0;x\x07\nname"
	m, err := compose([]control.AttentionItem{hostile})
	if err != nil {
		t.Fatal(err)
	}
	channels, problems := c.channels()
	if len(channels) != 2 || problems != nil {
		t.Fatalf("%d channels, %v", len(channels), problems)
	}
	for _, ch := range channels {
		if err := ch.send(t.Context(), m); err != nil {
			t.Error(err)
		}
	}
	if len(got) != 2 || !strings.HasPrefix(got[0], `/hook Bearer k1|||{"title":"Drover needs you","text":"Drover needs you\nquestion, evil`) ||
		!strings.HasPrefix(got[1], "/topic Bearer k2|Drover needs you|high|question, evil") || strings.Contains(got[1], "\x1b") ||
		strings.Contains(strings.Join(got, ""), "secret") {
		t.Errorf("got %q", got)
	}
	got, status = nil, http.StatusFound
	if err := channels[0].send(t.Context(), m); err == nil || !strings.Contains(err.Error(), "302") || len(got) != 1 {
		t.Errorf("a redirect: %v, %q", err, got)
	}
}

// A server that is busy is asked three times, and its address is not in the error.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		c := Config{client: &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			tries++
			if tries == 1 {
				return nil, errors.New("connection refused")
			}
			return &http.Response{StatusCode: 503, Status: "503 Busy", Body: http.NoBody}, nil
		})}}
		err := c.post(t.Context(), "https://host/secret", nil, http.Header{})
		if err == nil || tries != 3 || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "503") {
			t.Errorf("%d tries: %v", tries, err)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

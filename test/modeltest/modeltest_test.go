package modeltest_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, h modeltest.Handler) *modeltest.Server {
	t.Helper()
	s, err := modeltest.New(h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s
}

func post(t *testing.T, s *modeltest.Server, label, body string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/messages", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Drover-Agent", label)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(got)
}

const ask = `{"model":"m","stream":%,"messages":[{"role":"user","content":"hello"},{"role":"user","content":[{` +
	`"type":"tool_result","tool_use_id":"t","content":"42"}]}]}`

// The order of events is that of the true provider.
func TestStream(t *testing.T) {
	s := serve(t, func(context.Context, *modeltest.Request) modeltest.Answer {
		return modeltest.Answer{Blocks: []agent.Block{agent.TextBlock("hi"),
			modeltest.ToolUse("", "Bash", map[string]string{"command": "true"})}}
	})
	status, header, body := post(t, s, "", strings.Replace(ask, "%", "true", 1))
	if status != 200 || !strings.HasPrefix(header.Get("Content-Type"), "text/event-stream") ||
		header.Get("Request-Id") == "" {
		t.Errorf("status %d, header %v", status, header)
	}
	var names []string
	for _, line := range strings.Split(body, "\n") {
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			names = append(names, name)
		}
	}
	want := "message_start ping content_block_start content_block_delta content_block_stop " +
		"content_block_start content_block_delta content_block_stop message_delta message_stop"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("events %s\nwant   %s", got, want)
	}
	if !strings.Contains(body, `"stop_reason":"tool_use"`) {
		t.Errorf("no stop reason in %s", body)
	}
	if got := s.Requests()[0].LastText(); got != "42" {
		t.Errorf("LastText = %q", got)
	}
}

func TestWhole(t *testing.T) {
	s := serve(t, modeltest.Turns(map[string][]modeltest.Answer{"": {modeltest.Text("hi")}}))
	_, _, body := post(t, s, "", strings.Replace(ask, "%", "false", 1))
	var got struct {
		Type, Role string
		Model      string
		StopReason string `json:"stop_reason"`
		Content    []agent.Block
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if got.Type != "message" || got.Role != "assistant" || got.Model != "m" || got.StopReason != "end_turn" ||
		got.Content[0].Text != "hi" {
		t.Errorf("message %s", body)
	}
}

func TestTurns(t *testing.T) {
	s := serve(t, modeltest.Turns(map[string][]modeltest.Answer{
		"a": {modeltest.RateLimit("3"), modeltest.Text("second")},
		"":  {modeltest.Text("other")},
	}))
	body := strings.Replace(ask, "%", "true", 1)
	for _, c := range []struct {
		label  string
		status int
		says   string
	}{{"a", 429, "rate_limit_error"}, {"b", 200, "other"}, {"a", 200, "second"}, {"a", 400, "no turn 3"},
		{"b", 400, "no turn 2"}} {
		status, header, got := post(t, s, c.label, body)
		if status != c.status || !strings.Contains(got, c.says) {
			t.Errorf("agent %s: %d %s, want %d and %q", c.label, status, got, c.status, c.says)
		}
		if status == 429 && header.Get("Retry-After") != "3" {
			t.Errorf("header %v", header)
		}
	}
}

func TestRefuses(t *testing.T) {
	s := serve(t, func(context.Context, *modeltest.Request) modeltest.Answer { return modeltest.Text("hi") })
	if status, _, _ := post(t, s, "", "{oops"); status != 400 {
		t.Errorf("a body that is no JSON got %d", status)
	}
	res, err := http.Get(s.URL + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 404 {
		t.Errorf("another path got %d", res.StatusCode)
	}
}

func TestKeep(t *testing.T) {
	s := serve(t, func(context.Context, *modeltest.Request) modeltest.Answer { return modeltest.Text("hi") })
	s.Keep(2)
	for range 5 {
		post(t, s, "", strings.Replace(ask, "%", "false", 1))
	}
	kept := s.Requests()
	if s.Count() != 5 || len(kept) != 2 || kept[0].N != 4 || kept[1].N != 5 {
		t.Errorf("%d calls, kept %+v", s.Count(), kept)
	}
	s.Keep(0)
	post(t, s, "", strings.Replace(ask, "%", "false", 1))
	if s.Count() != 6 || len(s.Requests()) != 0 {
		t.Errorf("%d calls, %d kept", s.Count(), len(s.Requests()))
	}
}

// Close ends calls that wait for something that never comes.
func TestClose(t *testing.T) {
	waiting := make(chan struct{})
	s, err := modeltest.New(func(context.Context, *modeltest.Request) modeltest.Answer {
		close(waiting)
		return modeltest.Answer{Wait: make(chan struct{})}
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		res, err := http.Post(s.URL+"/v1/messages", "application/json", strings.NewReader(`{"stream":true}`))
		if err == nil {
			_ = res.Body.Close()
		}
		done <- err
	}()
	<-waiting
	s.Close()
	if err := <-done; err == nil {
		t.Error("the call got an answer")
	}
}

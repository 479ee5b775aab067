package provider_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/provider"
	"github.com/drover-dev/drover/test/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestFind(t *testing.T) {
	both := env("ANTHROPIC_API_KEY", "a", "OPENAI_API_KEY", "o")
	for _, c := range []struct {
		name, full, provider string
		env                  func(string) string
	}{
		{"", "claude-sonnet-5-5", "anthropic", both},
		{"haiku", "claude-haiku-5-5", "anthropic", both},
		{"anthropic/opus", "claude-opus-5-5", "anthropic", env("ANTHROPIC_AUTH_TOKEN", "t")},
		{"openai/gpt-5", "gpt-5", "openai", both},
		{"openai/meta/llama-3:free", "meta/llama-3:free", "openai", env("OPENAI_API_KEY", "o")},
		{"openai/openai/gpt-5", "openai/gpt-5", "openai", both},
		{"openai/qwen3", "qwen3", "openai", env("OPENAI_BASE_URL", "http://localhost:11434/v1")},
		{"openai/gpt-5", "gpt-5", "openai", env("OPENAI_API_KEY", "o", "DROVER_OPENAI_API", "responses",
			"DROVER_OPENAI_CALLS", "4")},
	} {
		var f provider.Finder
		got, err := f.Find(c.name, c.env, "/")
		if err != nil || got.Name != c.full || got.Provider != c.provider || got.Model == nil {
			t.Errorf("%q: %+v, %v; want %s of %s", c.name, got, err, c.full, c.provider)
		}
		f.Close()
	}
}

func TestRefused(t *testing.T) {
	openaiOnly := env("OPENAI_API_KEY", "o")
	for _, c := range []struct {
		name    string
		env     func(string) string
		missing bool
		says    []string
	}{
		{"", env(), true, []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "script:FILE", "drover demo"}},
		{"sonnet", openaiOnly, true, []string{"ANTHROPIC_API_KEY", "openai/NAME"}},
		{"openai/gpt-5", env("ANTHROPIC_API_KEY", "a"), true, []string{"OPENAI_API_KEY", "OPENAI_BASE_URL"}},
		{"other/x", openaiOnly, false, []string{`"other"`, "anthropic", "openai", "script:FILE"}},
		{"openai/", openaiOnly, false, []string{"no name"}},
		{"openai/x", env("OPENAI_API_KEY", "o", "DROVER_OPENAI_API", "grpc"), false,
			[]string{"DROVER_OPENAI_API", "chat or responses"}},
		{"openai/x", env("OPENAI_API_KEY", "o", "DROVER_OPENAI_CALLS", "many"), false,
			[]string{"DROVER_OPENAI_CALLS", `"many"`}},
		{"sonnet", env("ANTHROPIC_API_KEY", "a", "DROVER_ANTHROPIC_CALLS", "-1"), false, []string{"DROVER_ANTHROPIC_CALLS"}},
		{"openai/x", env("OPENAI_API_KEY", "o", "OPENAI_BASE_URL", "nonsense"), false, []string{"OPENAI_BASE_URL"}},
		{"script:none.json", env(), false, []string{"none.json"}},
	} {
		var f provider.Finder
		_, err := f.Find(c.name, c.env, t.TempDir())
		if err == nil {
			t.Errorf("%q was found", c.name)
			continue
		}
		var missing *provider.MissingError
		if errors.As(err, &missing) != c.missing {
			t.Errorf("%q: %v, MissingError %v", c.name, err, !c.missing)
		}
		for _, want := range c.says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v does not say %s", c.name, err, want)
			}
		}
	}
}

func reply(t *testing.T, f *provider.Finder, name string, get func(string) string) error {
	t.Helper()
	c, err := f.Find(name, get, "/")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = c.Model.Reply(ctx, &agent.Request{Model: c.Name, Messages: []agent.Message{agent.NewMessage(agent.User,
		agent.TextBlock("hi"))}}, nil)
	return err
}

// Who asks with another key or address gets another client; who asks with the
// same gets the same. The variables say which API is called and how many calls
// go on at once, counted over all who ask.
func TestVariables(t *testing.T) {
	var mu sync.Mutex
	now, most := map[modeltest.API]int{}, map[modeltest.API]int{}
	s, err := modeltest.New(func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		mu.Lock()
		now[r.API]++
		most[r.API] = max(most[r.API], now[r.API])
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
		now[r.API]--
		mu.Unlock()
		return modeltest.Text("ok")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var f provider.Finder
	defer f.Close()
	openai := env("OPENAI_BASE_URL", s.URL+"/v1", "DROVER_OPENAI_CALLS", "1")
	keyed := env("OPENAI_BASE_URL", s.URL+"/v1", "OPENAI_API_KEY", "k", "DROVER_OPENAI_CALLS", "1")
	responses := env("OPENAI_BASE_URL", s.URL, "DROVER_OPENAI_API", "responses")
	anthropic := env("ANTHROPIC_BASE_URL", s.URL, "ANTHROPIC_API_KEY", "a", "DROVER_ANTHROPIC_CALLS", "2")
	one, _ := f.Find("openai/m", openai, "/")
	two, _ := f.Find("openai/n", openai, "/")
	three, _ := f.Find("openai/m", keyed, "/")
	if one.Model != two.Model || one.Model == three.Model {
		t.Error("clients are not shared by address and key")
	}
	var all sync.WaitGroup
	for range 8 {
		for name, get := range map[string]func(string) string{"openai/m": openai, "openai/k": keyed, "m": anthropic} {
			if name == "openai/k" {
				name = "openai/m" // the same model by another key: one line for both
			}
			all.Go(func() {
				if err := reply(t, &f, name, get); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if most[modeltest.Chat] != 1 || most[modeltest.Messages] > 2 {
		t.Errorf("calls at the same time: %v", most)
	}
	if err := reply(t, &f, "openai/m", responses); err != nil || most[modeltest.Responses] != 1 {
		t.Errorf("responses: %v, %v", err, most)
	}
}

// Headers that the user sets for the provider are sent with every call; a line that is none is refused.
func TestCustomHeaders(t *testing.T) {
	s, err := modeltest.New(func(context.Context, *modeltest.Request) modeltest.Answer { return modeltest.Text("ok") })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var f provider.Finder
	defer f.Close()
	with := func(lines string) func(string) string {
		return env("ANTHROPIC_API_KEY", "k", "ANTHROPIC_BASE_URL", s.URL, "ANTHROPIC_CUSTOM_HEADERS", lines)
	}
	got, err := f.Find("sonnet", with("X-Team: blue sky\nX-Cost: 7\n"), "/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := got.Model.Reply(t.Context(), &agent.Request{Model: got.Name}, nil); err != nil {
		t.Fatal(err)
	}
	if h := s.Requests()[0].Header; h.Get("X-Team") != "blue sky" || h.Get("X-Cost") != "7" || h.Get("X-Api-Key") != "k" {
		t.Errorf("sent %v", h)
	}
	if _, err := f.Find("sonnet", with("nonsense"), "/"); err == nil || !strings.Contains(err.Error(), "ANTHROPIC_CUSTOM_HEADERS") {
		t.Errorf("a line that is no header: %v", err)
	}
}

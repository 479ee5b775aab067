package tui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// providers are what the set-up page reaches.
type providers struct {
	saved []Access
	fail  error // of saving
}

func (p *providers) options(o *Options) {
	o.Later = true
	o.SetUp = &SetUp{File: "~/credentials.json", Agents: []Vendor{{"claude", "Claude Code"}},
		Local: func(context.Context) []Local {
			return []Local{{"Ollama", "http://127.0.0.1:11434/v1", []string{"qwen3", "llama4:8b"}}, {"LM Studio", "http://127.0.0.1:1234/v1", nil}}
		},
		Models: func(_ context.Context, a Access) ([]string, error) {
			switch {
			case strings.HasPrefix(a.APIKey+a.AuthToken, "bad"):
				return nil, errors.New("api.example.com refused the key (401 Unauthorized)")
			case a.BaseURL == "https://down.example":
				return nil, errors.New("down.example does not answer")
			case a.BaseURL == "https://plain.example":
				return nil, nil
			}
			return []string{"m-large", "m-small"}, nil
		},
		Save: func(a Access) error { p.saved = append(p.saved, a); return p.fail }}
}

// the ways that the page offers there, in their order
const (
	anthropicKey = iota
	openaiKey
	anthropicGateway
	openaiGateway
	cloud
	ollama
	lmStudio
	claude
	tour
)

func (u *user) way(n int) {
	for range n {
		u.press("down")
	}
	u.press("enter")
}

func TestSetUpFrames(t *testing.T) {
	scenes := map[string]func(*user){
		"setup":       func(*user) {},
		"setup-key":   func(u *user) { u.way(anthropicKey); u.types("bad-secret"); u.press("enter") },
		"setup-cloud": func(u *user) { u.way(cloud) },
		"setup-gateway": func(u *user) {
			u.way(openaiGateway)
			u.types("https://down.example/")
			u.press("enter")
			u.paste("tok\nen")
			u.press("enter")
		},
		"setup-models": func(u *user) { u.way(ollama) },
		"setup-vendor": func(u *user) { u.way(claude) },
	}
	for name, scene := range scenes {
		for _, size := range [][2]int{{60, 20}, {80, 24}} {
			t.Run(fmt.Sprintf("%s-%dx%d", name, size[0], size[1]), func(t *testing.T) {
				u := start(t, size[0], size[1], new(providers).options)
				scene(u)
				golden(t, u.screen())
			})
		}
	}
}

// Each way ends with what is saved, and with the conversation, which gets the prompt that was given.
func TestSetUp(t *testing.T) {
	for name, c := range map[string]struct {
		scene func(*user)
		want  Access
	}{
		"key":             {func(u *user) { u.way(anthropicKey); u.types("sk-1") }, Access{Provider: "anthropic", APIKey: "sk-1"}},
		"key of a model":  {func(u *user) { u.way(openaiKey); u.types("sk-2"); u.press("enter"); u.types("sma") }, Access{Provider: "openai", APIKey: "sk-2", Model: "openai/m-small"}},
		"refused at once": {func(u *user) { u.way(anthropicKey); u.types("bad"); u.press("enter", "ctrl+u"); u.types("sk-3") }, Access{Provider: "anthropic", APIKey: "sk-3"}},
		"gateway": {func(u *user) {
			u.way(anthropicGateway)
			u.types("https://gw.example/v1/")
			u.press("enter")
			u.paste("tok")
			u.press("enter", "down")
		}, Access{Provider: "anthropic", BaseURL: "https://gw.example", AuthToken: "tok", Model: "anthropic/m-small"}},
		"gateway without a list": {func(u *user) {
			u.way(openaiGateway)
			u.types("https://plain.example")
			u.press("tab", "enter")
			u.sees("Model")
			u.types("gpt-x")
		}, Access{Provider: "openai", BaseURL: "https://plain.example", Model: "openai/gpt-x"}},
		"unchecked": {func(u *user) {
			u.way(openaiGateway)
			u.types("https://down.example")
			u.press("tab", "enter")
			u.sees("down.example does not answer", "ctrl+s")
			u.press("ctrl+s")
			u.types("m")
		}, Access{Provider: "openai", BaseURL: "https://down.example", Model: "openai/m"}},
		"cloud": {func(u *user) {
			u.way(cloud)
			u.press("enter")
			u.types("http://127.0.0.1:4000")
			u.press("tab", "enter")
		}, Access{Provider: "anthropic", BaseURL: "http://127.0.0.1:4000", AuthToken: "none", Model: "anthropic/m-large"}},
		"local": {func(u *user) { u.way(ollama) }, Access{Provider: "openai", BaseURL: "http://127.0.0.1:11434/v1", Model: "openai/qwen3"}},
	} {
		t.Run(name, func(t *testing.T) {
			var p providers
			u := start(t, 80, 24, func(o *Options) { p.options(o); o.Prompt = "fix it" })
			c.scene(u)
			for _, line := range strings.Split(u.screen(), "\n") {
				if strings.Contains(line, c.want.APIKey) && c.want.APIKey != "" || strings.Contains(line, c.want.AuthToken) && c.want.AuthToken == "tok" {
					t.Errorf("the secret is shown: %s", line)
				}
			}
			u.did("")
			u.press("enter")
			if len(p.saved) != 1 || p.saved[0] != c.want {
				t.Fatalf("saved %+v, want %+v\n%s", p.saved, c.want, u.screen())
			}
			u.sees("Saved in ~/credentials.json.")
			u.did("prompt fix it")
		})
	}
}

// What does not work is said, and nothing is saved; esc leads back, and in the end out.
func TestSetUpRefused(t *testing.T) {
	var p providers
	u := start(t, 80, 24, p.options)
	u.way(openaiGateway)
	u.press("ctrl+s", "enter", "enter")
	u.sees("✗ Address is empty")
	u.types("localhost:4000")
	u.press("tab", "enter")
	u.sees("✗ the address must begin with https:// or http://")
	u.press("esc")
	u.way(lmStudio - openaiGateway)
	u.sees("LM Studio answers, but has no model.")
	u.press("enter", "esc")
	if p.saved != nil {
		t.Errorf("saved %+v", p.saved)
	}
	p.fail = errors.New("disk full")
	u.press("up", "enter", "enter")
	u.sees("✗ disk full")
	u.press("esc")
	u.did("")
	u.press("esc")
	u.did("quit")
	u = start(t, 80, 24, p.options)
	u.way(tour)
	u.did("quit")
	if !u.m.setup.demo {
		t.Error("the tour is not given")
	}
}

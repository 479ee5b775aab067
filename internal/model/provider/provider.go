// Package provider finds the model that a name means.
//
// A [Finder] keeps one client per provider, address and key, and one limiter
// for all of them, so that every agent of a process shares what the provider
// allows. It promises that a name that cannot work is refused with the way to
// mend it, before anything is sent. It does not choose between models.
package provider

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/anthropic"
	"github.com/drover-dev/drover/internal/model/limit"
	"github.com/drover-dev/drover/internal/model/script"
)

// Default is the model that is meant when nobody names one.
const Default = "sonnet"

// Choice is a model and how it calls itself.
type Choice struct {
	Model    agent.Model
	Name     string // as it is sent, and shown
	Provider string // anthropic, script
}

// Finder finds models. Its methods may be called by several goroutines. The
// zero Finder is ready.
type Finder struct {
	mu      sync.Mutex
	limiter *limit.Limiter
	models  map[string]agent.Model // by provider and what it was made from
}

// MissingError says that there is no way to reach a model yet.
type MissingError struct{ Text, Mend string }

func (e *MissingError) Error() string { return e.Text + " (" + e.Mend + ")" }

// Find returns the model for a name: an alias or full name of the default
// provider, PROVIDER/NAME, or script:FILE. env is the environment of whoever
// asks; cwd is where a relative FILE is.
func (f *Finder) Find(name string, env func(string) string, cwd string) (Choice, error) {
	if name == "" {
		name = Default
	}
	if file, ok := strings.CutPrefix(name, "script:"); ok {
		if !filepath.IsAbs(file) {
			file = filepath.Join(cwd, file)
		}
		m, err := f.script(file)
		return Choice{Model: m, Name: "script:" + filepath.Base(file), Provider: "script"}, err
	}
	provider, model, ok := strings.Cut(name, "/")
	if !ok {
		provider, model = "anthropic", name
	}
	if provider != "anthropic" {
		return Choice{}, fmt.Errorf("model %q: unknown provider %q (known: anthropic, script:FILE)", name, provider)
	}
	m, err := f.anthropic(env)
	if err != nil {
		return Choice{}, err
	}
	return Choice{Model: m, Name: m.Resolve(model), Provider: provider}, nil
}

func (f *Finder) script(file string) (agent.Model, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := "script\x00" + file
	if m := f.models[key]; m != nil {
		return m, nil
	}
	m, err := script.Load(file)
	if err != nil {
		return nil, err
	}
	f.keep(key, m)
	return m, nil
}

func (f *Finder) anthropic(env func(string) string) (*anthropic.Model, error) {
	cfg := anthropic.Config{BaseURL: env("ANTHROPIC_BASE_URL"), APIKey: env("ANTHROPIC_API_KEY"), AuthToken: env("ANTHROPIC_AUTH_TOKEN")}
	if cfg.APIKey == "" && cfg.AuthToken == "" {
		return nil, &MissingError{Text: "no model can be reached: ANTHROPIC_API_KEY is not set",
			Mend: "set it, take --model script:FILE, or try `drover demo`, which needs no key"}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := strings.Join([]string{"anthropic", cfg.BaseURL, cfg.APIKey, cfg.AuthToken}, "\x00")
	if m, ok := f.models[key].(*anthropic.Model); ok {
		return m, nil
	}
	if f.limiter == nil {
		f.limiter = limit.New(0)
	}
	cfg.Limiter = f.limiter
	m, err := anthropic.New(cfg)
	if err != nil {
		return nil, err
	}
	f.keep(key, m)
	return m, nil
}

// keep remembers a model. The caller holds mu.
func (f *Finder) keep(key string, m agent.Model) {
	if f.models == nil {
		f.models = map[string]agent.Model{}
	}
	f.models[key] = m
}

// Close ends idle connections.
func (f *Finder) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.models {
		if c, ok := m.(interface{ Close() }); ok {
			c.Close()
		}
	}
	f.models = nil
}

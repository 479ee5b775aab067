// Package provider finds the model for a name.
//
// A [Finder] keeps one client per provider, address and key, and one rate limiter for
// all of them, so that all agents of a process share the provider's limits. A name
// that cannot work is refused with an error that says how to fix it, before anything
// is sent. The package does not choose between models.
package provider

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/anthropic"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/model/modelinfo"
	"github.com/drover-dev/drover/internal/model/modelwire"
	"github.com/drover-dev/drover/internal/model/openai"
	"github.com/drover-dev/drover/internal/model/script"
)

// Default is the model when neither the user nor a definition names one.
const Default = modelinfo.Default

// Choice is a model and its name.
type Choice struct {
	Model    agent.Model
	Name     string // in the form that is sent and shown
	Provider string // anthropic, openai, script
}

// Finder finds models. Its methods may be called by several goroutines. The
// zero Finder is ready.
type Finder struct {
	// Own are models of the program that holds the finder, by name. They win over
	// all others, and are not closed. Own must not change after the first Find.
	Own map[string]agent.Model

	mu      sync.Mutex
	limiter *modelwire.Limiter
	models  map[string]agent.Model // by provider and configuration
}

// AnyName is the name in [Finder.Own] of the model for every name that Own lacks.
const AnyName = "*"

func (f *Finder) own(name string) (agent.Model, bool) {
	if m, ok := f.Own[name]; ok {
		return m, true
	}
	m, ok := f.Own[AnyName]
	return m, ok
}

// MissingError says that a model cannot be reached yet. Err is
// [choose.ErrUnknown] where no provider has such a model, or nil.
type MissingError struct {
	Text, Fix string
	Err       error
}

func (e *MissingError) Error() string { return e.Text + " (" + e.Fix + ")" }
func (e *MissingError) Unwrap() error { return e.Err }

// Find returns the model for a name: an alias or full name of the default
// provider, PROVIDER/NAME, or script:FILE. env is the environment of the
// caller; a relative FILE is in cwd.
func (f *Finder) Find(name string, env func(string) string, cwd string) (Choice, error) {
	if name == "" {
		name = Default
	}
	if m, ok := f.own(name); ok {
		return Choice{Model: m, Name: name, Provider: "program"}, nil
	}
	if file, ok := strings.CutPrefix(name, "script:"); ok {
		if !filepath.IsAbs(file) {
			file = filepath.Join(cwd, file)
		}
		m, err := f.script(file)
		return Choice{Model: m, Name: "script:" + filepath.Base(file), Provider: "script"}, err
	}
	if err := modelinfo.Refused(name); err != nil {
		return Choice{}, fmt.Errorf("model %q: %w", name, err)
	}
	provider, model, ok := strings.Cut(name, "/")
	if !ok {
		provider, model = "anthropic", name
	}
	switch provider {
	case "anthropic":
		m, err := f.anthropic(env)
		if err != nil {
			return Choice{}, err
		}
		full := m.Resolve(model)
		if err := possible(name, full, env); err != nil {
			return Choice{}, err
		}
		return Choice{Model: m, Name: full, Provider: provider}, nil
	case "openai":
		if model == "" {
			return Choice{}, fmt.Errorf("model %q: no name after the provider (such as openai/gpt-5)", name)
		}
		m, err := f.openai(env)
		if err != nil {
			return Choice{}, err
		}
		return Choice{Model: m, Name: model, Provider: provider}, nil
	}
	return Choice{}, fmt.Errorf("model %q: unknown provider %q (known: anthropic, openai, script:FILE)", name, provider)
}

// possible refuses names without a model at the anthropic provider itself. A server
// of the user's may have any model.
func possible(name, full string, env func(string) string) error {
	if strings.HasPrefix(full, "claude") || env("ANTHROPIC_BASE_URL") != "" {
		return nil
	}
	fix := "see `drover models`; a model of another provider is written as openai/NAME"
	if near := modelinfo.Nearest(name); near != "" {
		fix = fmt.Sprintf("did you mean %q? %s", near, fix)
	}
	return &MissingError{Text: fmt.Sprintf("model %.80q: there is no such model or alias", name), Fix: fix,
		Err: choose.ErrUnknown}
}

// Ready returns the names of the providers that are configured: with a key, or with the
// address of a server that needs none. It sends nothing.
func Ready(env func(string) string) (names []string) {
	var f Finder
	if _, err := f.anthropic(env); err == nil {
		names = append(names, "anthropic")
	}
	if _, err := f.openai(env); err == nil {
		names = append(names, "openai")
	}
	return names
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
	account := modelwire.Account{BaseURL: env("ANTHROPIC_BASE_URL"), APIKey: env("ANTHROPIC_API_KEY")}
	cfg := anthropic.Config{Account: account,
		AuthToken: env("ANTHROPIC_AUTH_TOKEN"), Headers: env("ANTHROPIC_CUSTOM_HEADERS")}
	if cfg.APIKey == "" && cfg.AuthToken == "" {
		missing := &MissingError{Text: "no model can be reached: neither ANTHROPIC_API_KEY nor OPENAI_API_KEY is set",
			Fix: "set one of them, with --model openai/NAME for the second; or take --model script:FILE, or try `drover " +
				"demo`, which needs no key"}
		if env("OPENAI_API_KEY") != "" || env("OPENAI_BASE_URL") != "" {
			missing = &MissingError{Text: "this model is of the anthropic provider, and ANTHROPIC_API_KEY is not set",
				Fix: "set it, or name a model of the openai provider, which is set up: --model openai/NAME"}
		}
		return nil, missing
	}
	calls, err := callsOf(env, "DROVER_ANTHROPIC_CALLS")
	if err != nil {
		return nil, err
	}
	cfg.Calls = calls
	key := strings.Join([]string{"anthropic", cfg.BaseURL, cfg.APIKey, cfg.AuthToken, cfg.Headers, strconv.Itoa(calls)}, "\x00")
	return find(f, key, func(l *modelwire.Limiter) (*anthropic.Model, error) {
		cfg.Limiter = l
		return anthropic.New(cfg)
	})
}

func (f *Finder) openai(env func(string) string) (*openai.Model, error) {
	cfg, api := modelwire.Account{BaseURL: env("OPENAI_BASE_URL"), APIKey: env("OPENAI_API_KEY")}, env("DROVER_OPENAI_API")
	if cfg.APIKey == "" && cfg.BaseURL == "" {
		return nil, &MissingError{Text: "no model of the openai provider can be reached: OPENAI_API_KEY is not set",
			Fix: "set it, or OPENAI_BASE_URL to a server that needs no key, such as http://localhost:11434/v1 for Ollama"}
	}
	calls, err := callsOf(env, "DROVER_OPENAI_CALLS")
	if err != nil {
		return nil, err
	}
	cfg.Calls = calls
	key := strings.Join([]string{"openai", cfg.BaseURL, cfg.APIKey, api, strconv.Itoa(calls)}, "\x00")
	return find(f, key, func(l *modelwire.Limiter) (*openai.Model, error) {
		cfg.Limiter = l
		return openai.New(cfg, openai.API(api))
	})
}

// callsOf returns how many calls of one model may run at the same time; 0 means
// any number.
func callsOf(env func(string) string, variable string) (int, error) {
	text := env(variable)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s=%q is no number of calls (set it to a whole number; 0 means any)", variable, text)
	}
	return n, nil
}

// find returns the client with the key, and makes it at the first call. All share one limiter.
func find[M agent.Model](f *Finder, key string, make func(*modelwire.Limiter) (M, error)) (m M, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.models[key].(M); ok {
		return known, nil
	}
	if f.limiter == nil {
		f.limiter = modelwire.NewLimiter(0)
	}
	if m, err = make(f.limiter); err != nil {
		return m, err
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

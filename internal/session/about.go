package session

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/policy/hook"
)

// Bounds of the description of an agent's environment.
const (
	mostInstructions = 64 << 10 // bytes
	mostListed       = 500      // of each list
	aboutChars       = 300      // of a description
)

// Environment is what the main agent works with.
func (s *Session) Environment(context.Context) (control.Environment, error) {
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	a := s.cfg.Agents
	e := control.Environment{
		Mode:        string(a.Rules.Mode),
		Directories: append([]string{}, a.Rules.Dirs...),
		Hooks:       []control.Hook{},
		Servers:     []control.MCPServer{},
		AgentTypes:  []control.AgentType{},
		Models:      a.Policy.Names(),
		Memory:      []control.MemoryFile{},
		Spent:       []control.Spending{},
		Context:     control.Context{Parts: []control.ContextPart{}},
	}
	e.Instructions = a.Notes[:min(len(a.Notes), mostInstructions)]
	if m != nil {
		k := m.environment()
		e.Mode, e.Rules, e.Servers = k.Settings(m.Conversation).Mode, k.Rules(), k.ServerStates()
		e.Context = k.Context(m.Conversation)
	} else {
		e.Rules = a.RuleSources.Listed(a.Rules)
	}
	current := a.Policy.Full(s.cfg.Options.Model)
	if m != nil {
		current = m.ModelSettings().Name
	}
	for _, name := range e.Models {
		offer := control.ModelOffer{Name: name, Full: a.Policy.Full(name)}
		offer.Current = strings.TrimPrefix(offer.Full, "openai/") == current
		if a.Accounts != nil {
			about := a.Accounts.About(offer.Full)
			offer.Title, offer.Window, offer.Input, offer.Output = about.Title, about.Window, about.Input, about.Output
		}
		e.Offered = append(e.Offered, offer)
	}
	if a.Hooks != nil {
		for _, h := range a.Hooks.Entries() {
			listed := control.Hook{Event: h.Event, Matcher: h.Matcher, Command: h.Command, Source: h.Path, Runs: h.Runs}
			if h.Bounded && h.Runs {
				listed.Sandbox = s.sandboxes.Holds(hook.Outside + h.Command)
			}
			e.Hooks = append(e.Hooks, listed)
		}
	}
	if a.Catalog != nil {
		for _, d := range a.Catalog().All() {
			e.AgentTypes = append(e.AgentTypes, control.AgentType{Name: cmp.Or(d.DisplayName, d.Name),
				Description: excerpt.Line(d.Description, aboutChars), Model: d.Model, Source: d.Source})
		}
	}
	if store := a.Memory; store != nil {
		files, _, err := store.Files()
		if err != nil {
			return e, err
		}
		for _, f := range files {
			e.Memory = append(e.Memory,
				control.MemoryFile{Path: filepath.Join(store.Dir(), f.Name), Bytes: f.Bytes, Changed: f.Changed})
		}
	}
	if a.Accounts != nil {
		for _, r := range a.Accounts.Rows(usage.ByModel) {
			e.Spent = append(e.Spent, control.Spending{Model: r.Key, Calls: r.Calls, Input: r.Input, Output: r.Output,
				CacheRead: r.CacheRead, CacheWrite: r.CacheWrite, USD: r.USD, Unpriced: r.Unpriced})
		}
		for _, share := range a.Accounts.Shares("") {
			e.Budget = share.Budget.USD
		}
	}
	e.Rules, e.Hooks = atMost(e.Rules), atMost(e.Hooks)
	e.AgentTypes, e.Memory = atMost(e.AgentTypes), atMost(e.Memory)
	return e, nil
}

func atMost[T any](list []T) []T { return list[:min(len(list), mostListed)] }

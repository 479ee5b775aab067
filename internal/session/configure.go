package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/subagent"
)

// live is what the user may change of the main agent while it works. Its methods may be
// called by any goroutine.
type live struct {
	mu    sync.Mutex
	model string // as a finder takes it
	mode  permission.Mode
	gate  *permission.Gate // of the mode
}

func (l *live) get() (model string, mode permission.Mode, gate *permission.Gate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.model, l.mode, l.gate
}

// Configure changes what the main agent works with.
func (s *Session) Configure(_ context.Context, req control.ConfigureRequest) (control.Settings, error) {
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	if m == nil {
		return control.Settings{}, &control.Error{
			Code:    control.Unavailable,
			Message: "this session has no main agent whose settings could change",
			Fix:     "start one with `drover -p`",
		}
	}
	if err := m.configure(req); err != nil {
		return control.Settings{}, err
	}
	return s.pulse.configured(m.settings()), nil
}

// configure changes all that is asked for, or nothing.
func (m *Main) configure(req control.ConfigureRequest) error {
	m.configuring.Lock()
	defer m.configuring.Unlock()
	me := m.environment.me
	model, mode, gate := me.live.get()
	next := m.ModelSettings()
	if req.Model != nil {
		choice, window, err := m.s.newModel(me, *req.Model)
		if err != nil {
			return &control.Error{Code: control.Invalid, Message: fmt.Sprintf("change the model: %v", err),
				Fix: "see `drover models`"}
		}
		model = choice.Name
		next.Model, next.Name, next.Window = choice.Model, choice.Full, window
	}
	if req.Mode != nil && permission.Mode(*req.Mode) != mode {
		var err error
		mode = permission.Mode(*req.Mode)
		if gate, err = m.environment.newGate(mode); err != nil {
			return &control.Error{Code: control.Invalid, Message: fmt.Sprintf("change the permission mode: %v", err)}
		}
	}
	if t := req.Thinking; t != nil {
		if t.Effort != "" && !slices.Contains(control.Efforts(), t.Effort) {
			return &control.Error{
				Code:    control.Invalid,
				Message: fmt.Sprintf("change the thinking: effort %q is not known", t.Effort),
				Fix:     "use one of " + strings.Join(control.Efforts(), ", "),
			}
		}
		next.Thinking = agent.Thinking(*t)
	}
	if req.SessionMode != nil && !m.SetMode(*req.SessionMode) {
		return &control.Error{
			Code:    control.Invalid,
			Message: fmt.Sprintf("change the session mode: mode %.40q is not known", *req.SessionMode),
			Fix:     "use interactive or autopilot",
		}
	}
	if err := m.SetModel(next); err != nil {
		return fmt.Errorf("change the settings of the main agent: %w", err)
	}
	me.live.mu.Lock()
	defer me.live.mu.Unlock()
	me.live.model, me.live.mode, me.live.gate = model, mode, gate
	return nil
}

// settings are those of the main agent now.
func (m *Main) settings() control.Settings {
	_, mode, _ := m.environment.me.live.get()
	now := m.ModelSettings()
	return control.Settings{
		Model:    now.Name,
		Mode:     string(mode),
		Thinking: control.Thinking(now.Thinking),

		SessionMode: m.Conversation.Mode(),
		Window:      now.Window,
	}
}

// foundModel is a model that can be called.
type foundModel struct {
	Name  string // as a finder takes it
	Full  string
	Model agent.Model
}

// newModel finds the model that the user names for the main agent.
func (s *Session) newModel(me caller, name string) (foundModel, int64, error) {
	var choice choose.Choice
	choice, err := s.choose(me, subagent.Input{Model: name}, subagent.Definition{Name: mainName})
	if err != nil {
		return foundModel{}, 0, err
	}
	if len(choice.Notes) > 0 { // it would be another than was asked for
		return foundModel{}, 0, errors.New(strings.Join(choice.Notes, "; "))
	}
	found, err := s.cfg.Agents.Models.Find(choice.Name, home.Lookup(me.env), me.origin())
	if err != nil {
		return foundModel{}, 0, err
	}
	var window int64
	if s.cfg.Agents.Window != nil {
		window, _ = s.cfg.Agents.Window(found.Name)
	}
	return foundModel{Name: choice.Name, Full: found.Name, Model: found.Model}, window, nil
}

package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// live has the settings of the main agent that the user may change while it works. Its methods
// may be called by any goroutine.
type live struct {
	changing sync.Mutex // held while it changes

	mu    sync.Mutex // guards the fields below
	model string     // in the form that a finder takes
	mode  policy.Mode
	gate  *policy.Gate // of the mode

	thinking *agent.Thinking // nil: it was not changed

	before policy.Mode // that plan mode has replaced; empty: none
	plans  int         // how often the mode was changed to plan mode

	// moved is the task as which a turn acts that was moved to the background with what
	// the agent had; nil: the conversation has it.
	moved atomic.Pointer[task.Host]
}

// task is the task as which the agent acts, if a turn was moved to the background.
func (l *live) task() (task.Host, bool) {
	if l == nil {
		return nil, false
	}
	h := l.moved.Load()
	if h == nil {
		return nil, false
	}
	return *h, true
}

func (l *live) get() (model string, mode policy.Mode, gate *policy.Gate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.model, l.mode, l.gate
}

func newLive(model string, mode policy.Mode) *live {
	l := &live{}
	l.change(model, mode, nil)
	return l
}

// copy returns the same settings without the gate and the task.
func (l *live) copy() *live {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &live{model: l.model, mode: l.mode, before: l.before, plans: l.plans}
}

// change sets the model and the mode. It remembers the mode that plan mode replaces.
func (l *live) change(model string, mode policy.Mode, gate *policy.Gate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if mode == policy.Plan && l.mode != policy.Plan {
		l.before = l.mode
		l.plans++
	}
	l.model, l.mode, l.gate = model, mode, gate
}

// Configure applies all requested changes to the main agent, or none. Clients see the new
// settings before another change is made.
func (k *Environment) Configure(c *conversation.Conversation, req control.ConfigureRequest) (control.Settings, error) {
	me := k.Me
	me.live.changing.Lock()
	defer me.live.changing.Unlock()
	model, mode, gate := me.live.get()
	next := c.ModelSettings()
	if req.Model != nil {
		choice, window, err := k.s.newModel(me, *req.Model)
		if err != nil {
			return control.Settings{}, control.Refuse(control.Invalid, fmt.Sprintf("change the model: %v", err),
				"see `drover models`")
		}
		model = choice.Name
		next.Model, next.Name, next.Window = k.s.parkable(me, choice.Model, choice.Provider), choice.Full, window
	}
	if req.Mode != nil && policy.Mode(*req.Mode) != mode {
		var err error
		mode = policy.Mode(*req.Mode)
		if gate, err = k.newGate(mode); err != nil {
			return control.Settings{}, control.Refuse(control.Invalid, fmt.Sprintf("change the permission mode: %v", err), "")
		}
	}
	if t := req.Thinking; t != nil {
		if t.Effort != "" && !slices.Contains(control.Efforts(), t.Effort) {
			return control.Settings{}, control.Refuse(control.Invalid,
				fmt.Sprintf("change the thinking: effort %q is not known", t.Effort),
				"use one of "+strings.Join(control.Efforts(), ", "))
		}
		next.Thinking = agent.Thinking(*t)
	}
	if req.SessionMode != nil && !c.SetMode(*req.SessionMode) {
		return control.Settings{}, control.Refuse(control.Invalid,
			fmt.Sprintf("change the session mode: mode %.40q is not known", *req.SessionMode), "use interactive or autopilot")
	}
	if err := c.SetModel(next); err != nil {
		return control.Settings{}, fmt.Errorf("change the settings of the main agent: %w", err)
	}
	me.live.change(model, mode, gate)
	if req.Thinking != nil {
		me.live.mu.Lock()
		me.live.thinking = &next.Thinking
		me.live.mu.Unlock()
	}
	return k.s.idle.Configured(k.Settings(c)), nil
}

// Settings returns the current settings of the main agent.
func (k *Environment) Settings(c *conversation.Conversation) control.Settings {
	_, mode, _ := k.Me.live.get()
	now := c.ModelSettings()
	return control.Settings{
		Model:    now.Name,
		Mode:     string(mode),
		Thinking: control.Thinking(now.Thinking),

		SessionMode: c.Mode(),
		Window:      now.Window,
	}
}

// foundModel is a model that can be called.
type foundModel struct {
	Name  string // in the form that a finder takes
	Full  string
	Model agent.Model

	Provider string
}

// fallbacks are the models that answer in the place of an agent's own, without those that a
// subagent may not use.
func (s *Set) fallbacks(me Caller, own string) ([]agent.ModelSettings, error) {
	var out []agent.ModelSettings
	last := ""
	for _, name := range s.cfg.Fallback {
		found, window, err := s.newModel(me, name)
		switch {
		case err != nil && me.Depth == 0:
			return nil, control.Refuse(control.Invalid, fmt.Sprintf("fallback model %s: %v", name, err), "see `drover models`")
		case err == nil && found.Full != own:
			out = append(out, agent.ModelSettings{Model: found.Model, Name: found.Full, Window: window})
			last = found.Provider
		}
	}
	if n := len(out); n > 0 {
		out[n-1].Model = s.parkable(me, out[n-1].Model, last)
	}
	return out, nil
}

// newModel finds the model that the user names for the main agent, or for calls that an agent's own
// model cannot answer.
func (s *Set) newModel(me Caller, name string) (foundModel, int64, error) {
	var choice choose.Choice
	choice, err := s.choose(me, subagent.Input{Model: name}, subagent.Definition{Name: MainName}, me.Depth > 0)
	if err != nil {
		return foundModel{}, 0, err
	}
	if len(choice.Notes) > 0 { // it differs from the requested one
		return foundModel{}, 0, errors.New(strings.Join(choice.Notes, "; "))
	}
	found, err := s.cfg.Models.Find(choice.Name, home.Lookup(me.Env), me.origin())
	if err != nil {
		return foundModel{}, 0, err
	}
	var window int64
	if s.cfg.Window != nil {
		window, _ = s.cfg.Window(found.Name)
	}
	return foundModel{Name: choice.Name, Full: found.Name, Model: found.Model, Provider: found.Provider}, window, nil
}

// Renew makes the next environment of the main agent when a turn that is moved to the background
// takes k along: the same tools, rules and settings, without their state. The caller makes
// its gate, and closes it.
func (s *Set) Renew(ctx context.Context, k *Environment) (*Environment, error) {
	me := k.Me
	me.live = k.Me.live.copy()
	_, mode, _ := me.live.get()
	me.Rules.Mode = mode
	n, err := s.newEnvironment(ctx, me, k.def, s.Place.Transcript())
	if err != nil {
		return nil, err
	}
	n.Resumed = true
	n.Config.Thinking = k.Config.Thinking
	n.Granted.Set(k.Granted.allowed(), k.Granted.restricted())
	n.reminders.GoOn(k.reminders)
	n.used.GoOn(k.used)
	return n, nil
}

// ActAs makes the agent ask and pause as a task: its turn was moved to the background.
func (k *Environment) ActAs(h task.Host) { k.Me.live.moved.Store(&h) }

// Moved reports the events of a turn in the background, as those of task id.
func (k *Environment) Moved(id task.ID) func(agent.Event) {
	return func(e agent.Event) {
		k.edited(e)
		k.limits.On(e)
		if k.s.cfg.On != nil {
			k.s.cfg.On(id, e)
		}
	}
}
